"""One prompt of llm: what is asked of the provider, and its answer as events of llm.

Both kinds of models use this; they differ only in how they wait. Every part gets an index of its
own, so that llm keeps two thoughts apart and gives back what it was given.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import llm
from llm.parts import StreamEvent
from llm.parts import TextPart as LlmText
from llm.parts import ToolCallPart as LlmCall

from antiphon.host import (
    DataPart,
    Message,
    Outcome,
    RespondOptions,
    ResponsePart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolSpec,
)
from llm_antiphon.messages import NOTES, translate_messages
from llm_antiphon.options import parameters
from llm_antiphon.thread import find_thread, mark_thread

if TYPE_CHECKING:
    from llm_antiphon.models import GatewayModelBase

__all__ = ["Turn"]

_log: Final = logging.getLogger("llm_antiphon")
_NO_ARGUMENTS: Final = {"type": "object", "properties": {}}


class Turn:
    """A prompt on its way. `show` takes each part of the answer, `finish` its outcome."""

    def __init__(self, model: GatewayModelBase, prompt: llm.Prompt, response: Any) -> None:
        self._model = model
        self._prompt = prompt
        self._response = response
        self._index = -1
        self._open: tuple[str, str | None] | None = None
        self._last: StreamEvent | None = None
        self._said: list[Any] = []

    @property
    def messages(self) -> list[Message]:
        """The whole conversation."""
        return translate_messages(self._prompt.messages)

    @property
    def options(self) -> RespondOptions:
        """What holds for this turn."""
        prompt = self._prompt
        summary = "auto" if self._model.known.reasoning and not prompt.hide_reasoning else None
        given = parameters(prompt.options, summary=summary)
        if prompt.schema:
            given["response_format"] = _schema_format(prompt.schema)
        if hosted := [tool for tool in prompt.tools if isinstance(tool, llm.ServerSideTool)]:
            given["tools"] = [tool.tool_spec(self._model) for tool in hosted]
        if thread := find_thread(prompt.messages):
            given["previous_response_id"] = thread
        tools = [_tool(tool) for tool in prompt.tools if isinstance(tool, llm.Tool)]
        return RespondOptions(tools=tools, model_options=given)

    def show(self, part: ResponsePart) -> Iterator[StreamEvent]:
        """Give the events of a part."""
        match part:
            case TextPart():
                yield self._text(part)
            case ThinkingPart():
                yield self._thought(part)
            case ToolCallPart():
                yield from self._call(part)
            case DataPart():
                yield from self._item(part)

    def finish(self, outcome: Outcome) -> Iterator[StreamEvent]:
        """Hand over what llm logs, and note on the last part where to continue."""
        response = outcome.response
        self._response.response_json = outcome.to_dict()
        if response.model:
            self._response.set_resolved_model(response.model)
        self._log_usage(outcome)
        if outcome.degraded:
            _log.warning("The gateway could not honour: %s", "; ".join(outcome.degraded))
        if self._last is not None and response.store is not False:
            answer = llm.Message("assistant", self._said)
            mark = mark_thread(outcome.response_id, [*self._prompt.messages, answer])
            yield self._note({"thread": mark})

    def _text(self, part: TextPart) -> StreamEvent:
        self._turn_to("text")
        self._said.append(LlmText(part.value))
        return self._event("text", part.value)

    def _thought(self, part: ThinkingPart) -> StreamEvent:
        notes = {"id": part.id, **part.metadata} if part.id else dict(part.metadata)
        if not self._turn_to("reasoning", part.id):
            notes = self._notes() | notes
        return self._event("reasoning", part.value, notes)

    def _call(self, part: ToolCallPart) -> Iterator[StreamEvent]:
        arguments = dict(part.input)
        notes = {"kind": part.kind} if part.kind != "function" else None
        self._response.add_tool_call(llm.ToolCall(part.name, arguments, part.call_id))
        self._said.append(LlmCall(part.name, arguments, part.call_id))
        yield from self._call_events(part.name, json.dumps(arguments), part.call_id, notes)

    def _item(self, part: DataPart) -> Iterator[StreamEvent]:
        """Show what the server ran itself as a call that llm does not run."""
        text = part.data.decode("utf-8", "replace")
        item = json.loads(text)
        call_id = str(item.get("id") or f"item_{self._index + 1}")
        name = str(item.get("type", "item"))
        yield from self._call_events(
            name, text, call_id, {"data": text, "mime": part.mime}, is_hosted=True
        )
        self._turn_to("tool_result", call_id)
        yield StreamEvent(
            "tool_result",
            str(item.get("status") or "completed"),
            part_index=self._index,
            tool_call_id=call_id,
            tool_name=name,
            server_executed=True,
        )

    def _call_events(
        self,
        name: str,
        arguments: str,
        call_id: str,
        notes: dict[str, Any] | None,
        *,
        is_hosted: bool = False,
    ) -> Iterator[StreamEvent]:
        self._turn_to("tool_call", call_id)
        for kind, chunk in (("tool_call_name", name), ("tool_call_args", arguments)):
            event = self._event(kind, chunk, notes)
            event.tool_call_id, event.server_executed = call_id, is_hosted
            yield event

    def _turn_to(self, kind: str, name: str | None = None) -> bool:
        """Begin a part, unless what comes belongs to the open one; return whether it began."""
        if self._open == (kind, name):
            return False
        self._open = (kind, name)
        self._index += 1
        return True

    def _event(self, kind: str, chunk: str, notes: dict[str, Any] | None = None) -> StreamEvent:
        metadata = {NOTES: notes} if notes else None
        self._last = StreamEvent(kind, chunk, part_index=self._index, provider_metadata=metadata)
        return self._last

    def _notes(self) -> dict[str, Any]:
        metadata = self._last.provider_metadata if self._last else None
        return dict((metadata or {}).get(NOTES, {}))

    def _note(self, notes: dict[str, Any]) -> StreamEvent:
        """Return an event without content that adds notes to the last part."""
        last = self._last
        assert last is not None
        return StreamEvent(
            "tool_call_args" if last.type.startswith("tool_call") else last.type,
            "",
            part_index=last.part_index,
            tool_call_id=last.tool_call_id,
            server_executed=last.server_executed,
            provider_metadata={NOTES: self._notes() | notes},
        )

    def _log_usage(self, outcome: Outcome) -> None:
        usage = outcome.usage
        if usage is None:
            return
        details = {
            "cached_tokens": usage.input_tokens_details.cached_tokens,
            "reasoning_tokens": usage.output_tokens_details.reasoning_tokens,
        }
        self._response.set_usage(
            input=usage.input_tokens,
            output=usage.output_tokens,
            details={name: count for name, count in details.items() if count} or None,
        )


def _tool(tool: llm.Tool) -> ToolSpec:
    return ToolSpec(tool.name, tool.description or "", tool.input_schema or _NO_ARGUMENTS)


def _schema_format(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the format for a schema. It is not strict: llm's schemas leave fields open."""
    wanted = {"name": "output", "schema": schema, "strict": False}
    return {"type": "json_schema", "json_schema": wanted}
