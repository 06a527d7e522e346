"""A plan in the words of the chat API.

Pure: a plan and a profile go in, a request body and a report come out. The report names every
field of the request that this server cannot honour, in the words of the Responses API, so the
caller can be told, or refused, before anything is sent. Labels that mean nothing to a chat
model (`id`, `status`, `phase`) are left out without a word.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from antiphon.chat.emulation import grammar_field
from antiphon.chat.parts import ChatPart, PartWriter, join_text, only_text
from antiphon.chat.profiles import Profile
from antiphon.chat.turns import Call, Entry, Said, Turn, arrange
from antiphon.protocol.items import item_type, text_of
from antiphon.protocol.lower import lower_items
from antiphon.protocol.plan import Plan
from antiphon.protocol.tools import Tool, ToolPolicy

__all__ = ["names_in_text", "unenforced", "write_request"]

# JSON objects in the words of the chat API.
Body = dict[str, Any]
ChatMessage = dict[str, Any]

_SYSTEM: Final = frozenset({"system", "developer"})
_NO_OUTPUT: Final = "(no output was provided for this call)"
_NO_PARAMETERS: Final = {"type": "object", "properties": {}}
_ORDER: Final = "Answer only with JSON that matches this JSON Schema: "
# What means "as you like": leaving it out says the same.
_ANY_TIER: Final = frozenset({"auto", "default"})


def write_request(plan: Plan, profile: Profile) -> tuple[Body, list[str]]:
    """Return the body for POST /chat/completions, and what it could not say."""
    report: list[str] = []
    body: Body = {"model": plan.model, "messages": _messages(plan, profile, report)}
    body["stream"] = plan.stream
    if plan.stream and profile.stream_options:
        body["stream_options"] = {"include_usage": True}
    _put_tools(plan, profile, body, report)
    _put_format(plan.format, profile, body, report)
    _put_sampling(plan, profile, body, report)
    _put_hints(plan, profile, body, report)
    _put_extra(plan.extra, profile, body, report)
    return body, report


def _messages(plan: Plan, profile: Profile, report: list[str]) -> list[ChatMessage]:
    turns, lost = arrange(lower_items(plan.items, plan.toolbox))
    report += lost
    writer = _MessageWriter(profile, report)
    writer.instruct(plan.instructions)
    if _must_tell_schema(plan.format, profile):
        writer.instruct(_ORDER + msgspec.json.encode((plan.format or {})["schema"]).decode())
    for turn in turns:
        if isinstance(turn, Turn):
            writer.act(turn)
        else:
            writer.say(turn)
    return writer.finish()


class _MessageWriter:
    """Turns to messages. System text that comes first is gathered into one message."""

    def __init__(self, profile: Profile, report: list[str]) -> None:
        self._profile = profile
        self._report = report
        self._parts = PartWriter(profile, report)
        self._system: list[str] = []
        self._messages: list[ChatMessage] = []
        self._unused_reasoning: list[int] = []
        self._sealed_reasoning: list[int] = []

    def instruct(self, instructions: str | None) -> None:
        if instructions:
            self._system.append(instructions)

    def say(self, said: Said) -> None:
        item, where = said.item, f"input[{said.index}]"
        if item_type(item) == "function_call_output":
            parts = self._parts.write(item.get("output"), f"{where}.output")
            label = {"type": "text", "text": f"Output of a tool call ({item['call_id']}):"}
            self._add_user([label, *parts])
            return
        parts = self._parts.write(item.get("content"), f"{where}.content")
        role = item.get("role")
        if role in _SYSTEM:
            self._add_system(join_text(parts, "\n"), where, str(role))
        else:
            self._add_user(parts)

    def act(self, turn: Turn) -> None:
        texts = [
            join_text(self._parts.write(item.get("content"), f"input[{index}].content"), "")
            for index, item in turn.messages
        ]
        text = "\n\n".join(text for text in texts if text)
        message: ChatMessage = {"role": "assistant", "content": text}
        if turn.calls:
            message["content"] = text or None
            message["tool_calls"] = [_chat_call(call, self._report) for call in turn.calls]
        self._add_reasoning(turn, message)
        if not turn.messages and not turn.calls:
            return
        self._messages.append(message)
        self._add_results(turn.calls)

    def finish(self) -> list[ChatMessage]:
        """Return all messages, the gathered system message first."""
        self._report_reasoning(self._unused_reasoning, "this model does not take it back")
        self._report_reasoning(self._sealed_reasoning, "encrypted_content of another server")
        texts = ["\n\n".join(self._system)] if self._profile.merges_system else self._system
        role = self._profile.system_role
        return [{"role": role, "content": text} for text in texts if text] + self._messages

    def _add_system(self, text: str, where: str, role: str) -> None:
        if not self._messages:
            self._system.append(text)
            return
        late = self._profile.late_system_role
        if late == "user":
            self._report.append(f"{where} ({role} message): sent as a user message")
        self._messages.append({"role": late, "content": text})

    def _add_user(self, parts: list[ChatPart]) -> None:
        content: str | list[ChatPart] = join_text(parts, "\n") if only_text(parts) else parts
        self._messages.append({"role": "user", "content": content})

    def _add_reasoning(self, turn: Turn, message: ChatMessage) -> None:
        field = self._profile.reasoning_replay
        thoughts = []
        for index, item in turn.reasoning:
            thought = text_of(item.get("content")) or text_of(item.get("summary"))
            if not thought and item.get("encrypted_content"):
                self._sealed_reasoning.append(index)
            elif thought and (field == "none" or not (turn.messages or turn.calls)):
                self._unused_reasoning.append(index)
            elif thought:
                thoughts.append(thought)
        if thoughts:
            message[field] = "\n\n".join(thoughts)

    def _report_reasoning(self, indexes: list[int], why: str) -> None:
        if indexes:
            more = f" (and {len(indexes) - 1} more)" if len(indexes) > 1 else ""
            self._report.append(f"input[{indexes[0]}] (reasoning): {why}{more}")

    def _add_results(self, calls: list[Call]) -> None:
        """Add the results right behind the calls, and their images in a user message after."""
        images: list[ChatPart] = []
        for call in calls:
            parts = self._result_parts(call.result)
            shown = [part for part in parts if part["type"] != "text"]
            text = join_text(parts, "\n")
            if shown:
                images += [{"type": "text", "text": f"Shown by tool call {call.id}:"}, *shown]
                text = text or "(see the next message)"
            self._messages.append({"role": "tool", "tool_call_id": call.id, "content": text})
        if images:
            self._messages.append({"role": "user", "content": images})

    def _result_parts(self, result: Entry | None) -> list[ChatPart]:
        if result is None:
            return [{"type": "text", "text": _NO_OUTPUT}]
        index, item = result
        return self._parts.write(item.get("output"), f"input[{index}].output")


def _chat_call(call: Call, report: list[str]) -> Body:
    """Return a call of an earlier turn. Servers parse the arguments, and refuse what is no object.

    A call without arguments is one with none; one that was cut short is quoted.
    """
    arguments = call.item.get("arguments") or "{}"
    if not _is_object(arguments):
        report.append(f"input[{call.index}].arguments: no JSON object; sent as a text in one")
        arguments = msgspec.json.encode({"arguments": arguments}).decode()
    function = {"name": call.item["name"], "arguments": arguments}
    return {"id": call.id, "type": "function", "function": function}


def _is_object(text: str) -> bool:
    try:
        msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError):
        return False
    return True


def _put_tools(plan: Plan, profile: Profile, body: Body, report: list[str]) -> None:
    if not plan.tools:
        return
    body["tools"] = [
        {"type": "function", "function": _chat_tool(tool, profile)} for tool in plan.tools
    ]
    choice = _tool_choice(plan.policy)
    if choice is not None:
        body["tool_choice"] = choice
    if plan.parallel_tool_calls is None:
        return
    if profile.parallel_tool_calls:
        body["parallel_tool_calls"] = plan.parallel_tool_calls
    elif not plan.parallel_tool_calls:
        report.append("parallel_tool_calls: this server may still call several at once")


def _chat_tool(tool: Tool, profile: Profile) -> Body:
    function: Body = {"name": tool["name"]}
    if tool.get("description") is not None:
        function["description"] = tool["description"]
    function["parameters"] = tool.get("parameters") or _NO_PARAMETERS
    if tool.get("strict") is not None and profile.strict_tools:
        function["strict"] = tool["strict"]
    return function


def _tool_choice(policy: ToolPolicy) -> str | Body | None:
    """Return tool_choice; all tools stay visible, and the turn suppresses what is not allowed."""
    if policy.mode == "required" and policy.allowed is not None and len(policy.allowed) == 1:
        return {"type": "function", "function": {"name": next(iter(policy.allowed))}}
    return None if policy.mode == "auto" else policy.mode


def _put_format(
    form: Mapping[str, Any] | None, profile: Profile, body: Body, report: list[str]
) -> None:
    if form is None:
        return
    kind = form.get("type")
    if kind == "json_schema" and profile.json_schema:
        fields = ("name", "description", "schema", "strict")
        given = {field: form[field] for field in fields if form.get(field) is not None}
        body["response_format"] = {"type": "json_schema", "json_schema": given}
    elif kind in {"json_schema", "json_object"}:
        body["response_format"] = {"type": "json_object"}
    elif kind == "grammar" and (bound := grammar_field(dict(form), profile)) is not None:
        body |= bound
    else:
        report.append(f"text.format ({kind}): this backend cannot send it")


def _must_tell_schema(form: Mapping[str, Any] | None, profile: Profile) -> bool:
    """Say whether the model learns of the schema only if it is told in words."""
    return form is not None and form.get("type") == "json_schema" and not profile.json_schema


def names_in_text(plan: Plan, profile: Profile) -> dict[str, Any]:
    """Return the tools that a call left in the text may be of: name and schema of arguments."""
    if not profile.text_calls or plan.policy.mode == "none":
        return {}
    return {tool["name"]: tool.get("parameters") for tool in plan.tools}


def unenforced(plan: Plan, profile: Profile) -> list[str]:
    """Return what the server does not hold its model to: whoever relies on it must check it."""
    found = []
    if plan.tools and plan.policy.mode == "required" and not profile.enforces_required:
        found.append("tool_choice: this server does not force a tool call")
    if not profile.strict_tools:
        found += [
            f"{offer.where}.strict: this server does not hold arguments to the schema"
            for offer in plan.toolbox.offers
            if offer.tool.get("strict")
        ]
    if plan.format is None or plan.format.get("type") != "grammar":
        found += [
            f"{offer.where}.format: nothing holds the input to the grammar"
            for offer in plan.toolbox.offers
            if offer.kind == "custom" and (offer.tool.get("format") or {}).get("type") == "grammar"
        ]
    if _must_tell_schema(plan.format, profile):
        found.append("text.format: this server knows JSON but no schema")
    return found


def _put_sampling(plan: Plan, profile: Profile, body: Body, report: list[str]) -> None:
    fields = {
        profile.max_tokens_field: plan.max_output_tokens,
        "temperature": plan.temperature,
        "top_p": plan.top_p,
    }
    penalties = {
        "presence_penalty": plan.presence_penalty,
        "frequency_penalty": plan.frequency_penalty,
    }
    if profile.penalties:
        fields |= penalties
    else:
        report += [name for name, value in penalties.items() if value]
    body |= {name: value for name, value in fields.items() if value is not None}
    if not plan.logprobs and not plan.top_logprobs:
        return
    if not profile.logprobs:
        report.append("top_logprobs: this server gives none")
        return
    body["logprobs"] = True
    if plan.top_logprobs is not None:
        body["top_logprobs"] = plan.top_logprobs


def _put_hints(plan: Plan, profile: Profile, body: Body, report: list[str]) -> None:
    if plan.reasoning_effort is not None:
        if profile.reasoning_effort:
            body["reasoning_effort"] = plan.reasoning_effort
        else:
            report.append("reasoning.effort: this server has no such setting")
    if plan.verbosity is not None:
        if profile.verbosity:
            body["verbosity"] = plan.verbosity
        elif plan.verbosity != "medium":
            report.append("text.verbosity: this server has no such setting")
    if plan.service_tier is not None:
        if profile.service_tier:
            body["service_tier"] = plan.service_tier
        elif plan.service_tier not in _ANY_TIER:
            report.append("service_tier: this server has only one")


def _put_extra(extra: Mapping[str, Any], profile: Profile, body: Body, report: list[str]) -> None:
    for name, value in extra.items():
        if value is None:
            continue
        if name in profile.extra_fields and name not in body:
            body[name] = value
        else:
            report.append(f"{name}: this backend cannot send it")
