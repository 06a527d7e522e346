"""Events as chunks of a chat stream.

    | event                          | chunk                                                    |
    |--------------------------------|----------------------------------------------------------|
    | response.created               | role, and empty content                                  |
    | text, refusal, reasoning delta | content, refusal, reasoning_content                      |
    | call added                     | tool_calls with index, id and name                       |
    | delta of arguments or input    | tool_calls with the same index                           |
    | annotation added               | annotations                                              |
    | reasoning done                 | reasoning_details, if it is sealed                       |
    | completed, incomplete          | finish_reason, then usage if asked for; [DONE] at the end |
    | failed, cancelled              | an object with `error`, and no [DONE]                    |

All messages are one choice, with a blank line between them. Other items are counted, and
named in the last chunk. Entries of lists have an `index`, by which accumulators find them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from antiphon.protocol.codec import DONE
from antiphon.protocol.events import (
    AnnotationEvent,
    ArgumentsDelta,
    CustomInputDelta,
    ErrorEvent,
    Event,
    OutputItemAdded,
    OutputItemDone,
    OutputTextDelta,
    OutputTextDone,
    ReasoningTextDelta,
    RefusalDelta,
    ResponseCompleted,
    ResponseCreated,
    ResponseFailed,
    ResponseIncomplete,
    SummaryTextDelta,
)
from antiphon.protocol.items import item_type
from antiphon.protocol.response import Response
from antiphon.wires.chat.completion import (
    BETWEEN,
    TextPlaces,
    call_of,
    chat_id,
    chat_notes,
    chat_usage,
    finish_reason,
    image_of,
    is_sealed,
    nested_note,
    sealed_detail,
)
from antiphon.wires.door import HEARTBEAT, failure_of, openai_error

__all__ = ["ChatEncoder"]

Json = dict[str, Any]  # a JSON object: Any is what JSON holds

_encode = msgspec.json.Encoder().encode
_TAIL: Final = b',"logprobs":null,"finish_reason":null}]'
_CALLS: Final = frozenset({"function_call", "custom_tool_call"})
_QUIET: Final = _CALLS | {"message", "reasoning"}


class ChatEncoder:
    """Writes one stream. `fields` are the names under which reasoning is written.

    `has_usage`: the last chunk holds the usage. `is_old`: the client knows one `function_call`.
    """

    __slots__ = (
        "_calls",
        "_detail_count",
        "_error",
        "_fields",
        "_has_refusal",
        "_has_text",
        "_has_thought",
        "_head",
        "_image_count",
        "_is_done",
        "_is_old",
        "_left_out",
        "_note_count",
        "_places",
        "_refusal_index",
        "_start",
        "_tail",
        "_text_head",
        "_text_index",
        "_text_tail",
        "_thought",
        "_usage",
        "heartbeat",
    )

    def __init__(
        self,
        *,
        has_usage: bool = False,
        is_old: bool = False,
        fields: tuple[str, ...] = ("reasoning_content",),
    ) -> None:
        self.heartbeat = HEARTBEAT
        self._fields = fields
        self._is_old = is_old
        self._usage = has_usage
        self._tail = _TAIL + (b',"usage":null}\n\n' if has_usage else b"}\n\n")
        self._text_tail = b"}" + self._tail
        self._start = b"{"
        self._head = self._text_head = b""
        # Which item the last text, refusal and reasoning belong to, and whether there was any.
        self._text_index = self._refusal_index = -1
        self._thought: tuple[int, type[Event], int] | None = None
        self._has_text = self._has_refusal = self._has_thought = False
        self._places = TextPlaces()
        self._calls: dict[int, tuple[bytes, bytes]] = {}
        """What stands before and after a piece of a call, by the index of its item."""
        self._note_count = self._detail_count = self._image_count = 0
        self._left_out: Counter[str] = Counter()
        self._error: ErrorEvent | None = None
        self._is_done = False

    def encode(self, events: Sequence[Event]) -> bytes:
        """Return the chunks of these events."""
        pieces: list[bytes] = []
        for event in events:
            # Nearly all events are text that goes on.
            if (
                type(event) is OutputTextDelta
                and event.output_index == self._text_index
                and not event.logprobs
            ):
                pieces += (self._text_head, _encode(event.delta), self._text_tail)
            elif (write := _WRITERS.get(type(event))) is not None:
                pieces.append(write(self, event))
        return b"".join(pieces)

    def end(self) -> bytes:
        """Return the end marker, unless the stream has failed."""
        return DONE if self._is_done else b""

    def _begin(self, event: ResponseCreated) -> bytes:
        response = event.response
        fields = {
            "id": chat_id(response.id),
            "object": "chat.completion.chunk",
            "created": int(response.created_at),
            "model": response.model,
            "system_fingerprint": None,
        }
        self._start = _encode(fields)[:-1]
        self._head = b'data: %b,"choices":[{"index":0,"delta":' % self._start
        self._text_head = self._head + b'{"content":'
        return self._chunk({"role": "assistant", "content": "", "refusal": None})

    def _chunk(self, delta: Json) -> bytes:
        return b"%b%b%b" % (self._head, _encode(delta), self._tail)

    # Prose.

    def _write_text(self, event: OutputTextDelta) -> bytes:
        text = event.delta
        if event.output_index != self._text_index:
            self._text_index = event.output_index
            text = BETWEEN + text if self._has_text else text
            self._has_text = True
        if not event.logprobs:
            return self._chunk({"content": text})
        choice = {
            "index": 0,
            "delta": {"content": text},
            "logprobs": {"content": event.logprobs, "refusal": None},
            "finish_reason": None,
        }
        return self._frame({"choices": [choice]})

    def _write_refusal(self, event: RefusalDelta) -> bytes:
        text = event.delta
        if event.output_index != self._refusal_index:
            self._refusal_index = event.output_index
            text = BETWEEN + text if self._has_refusal else text
            self._has_refusal = True
        return self._chunk({"refusal": text})

    def _write_reasoning(self, event: ReasoningTextDelta | SummaryTextDelta) -> bytes:
        index = (
            event.content_index if isinstance(event, ReasoningTextDelta) else event.summary_index
        )
        text, place = event.delta, (event.output_index, type(event), index)
        if place != self._thought:
            self._thought = place
            text = BETWEEN + text if self._has_thought else text
            self._has_thought = True
        return self._chunk(dict.fromkeys(self._fields, text))

    def _note_part(self, event: OutputTextDone) -> bytes:
        self._places.end_part(event.text)
        return b""

    def _write_note(self, event: AnnotationEvent) -> bytes:
        note = nested_note(event.annotation, self._note_count, self._places.offset)
        self._note_count += 1
        return self._chunk({"annotations": [note]})

    # Items.

    def _add_item(self, event: OutputItemAdded) -> bytes:
        kind = item_type(event.item)
        if kind == "message":
            self._places.begin_message()
        if kind not in _CALLS:
            return b""
        if not self._is_old:
            return self._add_call(event)
        if self._calls:  # there is room for one
            self._left_out[kind] += 1
            return b""
        self._calls[event.output_index] = (b'{"function_call":{"arguments":', b"}}")
        return self._chunk({"function_call": {"name": event.item["name"], "arguments": ""}})

    def _add_call(self, event: OutputItemAdded) -> bytes:
        item, index = event.item, len(self._calls)
        kind, field = "function", "arguments"
        if item_type(item) == "custom_tool_call":
            kind, field = "custom", "input"
        before = b'{"tool_calls":[{"index":%d,"%b":{"%b":' % (index, kind.encode(), field.encode())
        self._calls[event.output_index] = (before, b"}}]}")
        call = call_of({**item, field: ""})
        return self._chunk({"tool_calls": [{"index": index, **call}]})

    def _grow_call(self, event: ArgumentsDelta | CustomInputDelta) -> bytes:
        place = self._calls.get(event.output_index)
        if place is None:
            return b""
        return b"%b%b%b%b%b" % (self._head, place[0], _encode(event.delta), place[1], self._tail)

    def _end_item(self, event: OutputItemDone) -> bytes:
        item = event.item
        kind = item_type(item)
        if kind == "message":
            self._places.end_message()
        elif is_sealed(item):
            detail = sealed_detail(item, self._detail_count)
            self._detail_count += 1
            return self._chunk({"reasoning_details": [detail]})
        elif kind not in _QUIET:
            return self._pass_item(item, kind)
        return b""

    def _pass_item(self, item: Json, kind: str) -> bytes:
        image = image_of(item, self._image_count)
        if image is None:
            self._left_out[kind] += 1
            return b""
        self._image_count += 1
        return self._chunk({"images": [image]})

    # The end.

    def _note_error(self, event: ErrorEvent) -> bytes:
        self._error = event
        return b""

    def _finish(self, event: ResponseCompleted | ResponseIncomplete) -> bytes:
        response = event.response
        if response.status == "cancelled":
            return self._fail(response)
        self._is_done = True
        reason = finish_reason(response, has_calls=bool(self._calls), is_old=self._is_old)
        choice = {"index": 0, "delta": {}, "logprobs": None, "finish_reason": reason}
        last: Json = {"choices": [choice], "service_tier": response.service_tier}
        if notes := chat_notes(response, self._left_out):
            last["antiphon"] = notes
        if not self._usage:
            return self._frame(last)
        usage: Json = {"choices": [], "usage": chat_usage(response.usage)}
        return self._frame({**last, "usage": None}) + self._frame(usage)

    def _break_off(self, event: ResponseFailed) -> bytes:
        return self._fail(event.response)

    def _fail(self, response: Response) -> bytes:
        """Write the error. The error event knows more of it than the response."""
        if self._error is None:
            error = failure_of(response)
            assert error is not None  # it failed, or was cancelled
            return b"data: %b\n\n" % openai_error(error)
        told = self._error
        fields = {
            "message": told.message if told.detail is msgspec.UNSET else told.detail,
            "type": "server_error" if told.kind is msgspec.UNSET else told.kind,
            "param": told.param,
            "code": told.code,
        }
        return b"data: %b\n\n" % _encode({"error": fields})

    def _frame(self, fields: Json) -> bytes:
        return b"data: %b,%b\n\n" % (self._start, _encode(fields)[1:])


# One table for all encoders: binding these methods again would cost in every stream.
_WRITERS: Final[dict[type[Event], Callable[[ChatEncoder, Any], bytes]]] = {
    ResponseCreated: ChatEncoder._begin,
    OutputTextDelta: ChatEncoder._write_text,
    OutputTextDone: ChatEncoder._note_part,
    RefusalDelta: ChatEncoder._write_refusal,
    ReasoningTextDelta: ChatEncoder._write_reasoning,
    SummaryTextDelta: ChatEncoder._write_reasoning,
    AnnotationEvent: ChatEncoder._write_note,
    OutputItemAdded: ChatEncoder._add_item,
    OutputItemDone: ChatEncoder._end_item,
    ArgumentsDelta: ChatEncoder._grow_call,
    CustomInputDelta: ChatEncoder._grow_call,
    ErrorEvent: ChatEncoder._note_error,
    ResponseCompleted: ChatEncoder._finish,
    ResponseIncomplete: ChatEncoder._finish,
    ResponseFailed: ChatEncoder._break_off,
}
