"""Our events as the events of a Messages stream.

Invariants, for any events of a builder:

- `message_start` comes first, then blocks with indexes 0, 1, 2, …; one block is open at a time;
- the start of a block is empty, and its content comes in deltas only: clients ignore the rest;
- blocks of calls that are open at once wait for the first to end;
- the end is `message_delta` and `message_stop`, or one `error` event and nothing after it;
- a block that a failure cut is not closed: a client may then repeat the request unseen, and after
  a closed block it must not.

    | ours                       | Messages                                             |
    |----------------------------|------------------------------------------------------|
    | response.created           | message_start, ping                                  |
    | text or refusal grew       | text block: start at the first piece, text_delta     |
    | annotation added           | citations_delta if it is a web page                  |
    | reasoning grew             | thinking block, if the caller asked for thinking     |
    | reasoning done             | signature_delta with the seal; without a text, a     |
    |                            | redacted_thinking block                              |
    | function_call added, grew  | tool_use block, input_json_delta                     |
    | item `anthropic:…` done    | its block as it is                                   |
    | completed, incomplete      | message_delta with the whole usage, message_stop     |
    | failed, cancelled          | error                                                |
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, get_args

import msgspec

from antiphon.protocol.events import (
    AnnotationEvent,
    ArgumentsDelta,
    ContentPartAdded,
    ErrorEvent,
    Event,
    OutputItemAdded,
    OutputItemDone,
    OutputTextDelta,
    ReasoningTextDelta,
    RefusalDelta,
    ResponseCompleted,
    ResponseCreated,
    ResponseFailed,
    ResponseIncomplete,
    SummaryPartAdded,
    SummaryTextDelta,
)
from antiphon.protocol.items import Item, item_type
from antiphon.wires.messages.answer import (
    THOUGHT_GAP,
    citation_of,
    first_message,
    input_of,
    native_blocks,
    notes_of,
    stop_reason_of,
)
from antiphon.wires.messages.ask import Thinking
from antiphon.wires.messages.errors import error_body, error_type
from antiphon.wires.messages.ids import tool_use_id_of
from antiphon.wires.messages.usage import usage_of

__all__ = ["PING", "MessagesEncoder"]

PING: Final = b'event: ping\ndata: {"type":"ping"}\n\n'

_DELTA: Final = (
    b"event: content_block_delta\ndata: "
    b'{"type":"content_block_delta","index":%d,"delta":{"type":"%b","%b":'
)
_encode = msgspec.json.Encoder().encode

_ItemEvent = (
    OutputItemAdded
    | OutputItemDone
    | ContentPartAdded
    | OutputTextDelta
    | RefusalDelta
    | AnnotationEvent
    | ReasoningTextDelta
    | SummaryPartAdded
    | SummaryTextDelta
    | ArgumentsDelta
)


class MessagesEncoder:
    """Writes one stream. `prompt_tokens` is what is known of the prompt when it begins."""

    heartbeat = PING

    def __init__(self, thinking: Thinking, *, prompt_tokens: int = 0) -> None:
        self._thinking = thinking
        self._prompt_tokens = prompt_tokens
        self._ready: list[bytes] = []
        """What the next call returns."""
        self._out = self._ready
        """Where is written to: another list from the end of an item on that was cut.

        That is sent if the response is incomplete, and not if it failed.
        """
        self._index = -1
        """The index of the last block that was started."""
        self._kind: str | None = None
        """The type of the block that is open; None if none is."""
        self._grow = b""
        """How a delta of the open block begins, up to its text."""
        self._item: int | None = None
        """The output_index of the item that is written now; None between items."""
        self._is_new_part = False
        self._has_thought = False
        self._waiting: dict[int, list[_ItemEvent]] = {}
        """The events of items that opened while another was open, by their output_index."""
        self._begins_object: bool | None = None
        """Whether the input of the call that is open begins an object, once it has begun."""
        self._input: list[str] = []
        """The input so far, if it is not written yet."""
        self._error: ErrorEvent | None = None

    def encode(self, events: Sequence[Event]) -> bytes:
        """Return what these events are on the wire."""
        for event in events:
            # Nearly always. An open text is of the item that grows: prose is never beside another.
            if type(event) is OutputTextDelta and self._kind == "text" and not self._is_new_part:
                self._out.append(self._grow + _encode(event.delta) + b"}}\n\n")
                continue
            write = _WRITERS.get(type(event))
            if write is not None:
                write(self, event)
        data = b"".join(self._ready)
        self._ready.clear()
        return data

    def end(self) -> bytes:
        """Return what ends the stream: the last event has done it."""
        return b""

    # Beginning and end.

    def _begin(self, event: ResponseCreated) -> None:
        message = first_message(event.response, self._prompt_tokens)
        self._put("message_start", {"message": message})
        self._out.append(PING)

    def _finish(self, event: ResponseCompleted | ResponseIncomplete) -> None:
        if event.response.status == "cancelled":
            self._fail(event)
            return
        if self._out is not self._ready:
            self._ready += self._out
            self._out = self._ready
        response = event.response
        stop = {"stop_reason": stop_reason_of(response), "stop_sequence": None}
        notes = notes_of(response, self._thinking)
        self._put("message_delta", {"delta": stop, "usage": usage_of(response.usage), **notes})
        self._put("message_stop", {})

    def _note_error(self, event: ErrorEvent) -> None:
        self._error = event

    def _fail(self, event: ResponseFailed | ResponseIncomplete | ResponseCompleted) -> None:
        self._out = self._ready
        failure, error = event.response.error, self._error
        code = failure.code if failure else None
        kind = error.kind if error is not None and isinstance(error.kind, str) else None
        message = failure.message if failure else f"the response is {event.response.status}"
        self._put("error", error_body(error_type(code, kind), message))

    # Items, one after the other.

    def _take(self, event: _ItemEvent) -> None:
        """Write an event of the item whose turn it is; let those of others wait."""
        place = event.output_index
        if self._item is None:
            self._item = place
        if place != self._item:
            self._waiting.setdefault(place, []).append(event)
            return
        self._write(event)
        if self._waiting:
            self._catch_up()

    def _catch_up(self) -> None:
        """Write the items that waited, up to the first that is still open."""
        while self._item is None and self._waiting:
            self._item = min(self._waiting)
            for late in self._waiting.pop(self._item):
                self._write(late)

    def _write(self, event: _ItemEvent) -> None:
        match event:
            case OutputTextDelta() | RefusalDelta():
                self._open_text()
                self._put_delta(event.delta)
            case ArgumentsDelta():
                self._grow_input(event.delta)
            case ReasoningTextDelta() | SummaryTextDelta():
                self._think(event.delta)
            case ContentPartAdded() | SummaryPartAdded():
                self._is_new_part = True
            case AnnotationEvent():
                self._cite(event.annotation)
            case OutputItemAdded():
                self._open_item(event.item)
            case OutputItemDone():
                self._close_item(event.item)

    def _open_item(self, item: Item) -> None:
        self._is_new_part = self._has_thought = False
        if item_type(item) == "function_call":
            call_id = tool_use_id_of(str(item["call_id"]))
            block = {"type": "tool_use", "id": call_id, "name": item["name"], "input": {}}
            self._start(block, "input_json_delta", "partial_json")
            self._begins_object = None

    def _grow_input(self, text: str) -> None:
        """Write a piece of the input of a call; one that does not begin an object waits."""
        if self._begins_object:
            self._put_delta(text)
            return
        self._input.append(text)
        if self._begins_object is None and (begun := text.lstrip()):
            self._begins_object = begun.startswith("{")
            if self._begins_object:
                self._put_delta("".join(self._input))
                self._input = []

    def _end_input(self) -> None:
        """Write an input that was no object as one."""
        text, self._input = "".join(self._input), []
        if text.strip():
            self._put_delta(_encode(input_of(text)).decode())

    def _close_item(self, item: Item) -> None:
        if item.get("status") == "incomplete" and self._out is self._ready:
            self._out = []
        if self._input:
            self._end_input()
        sealed = item.get("encrypted_content") if item_type(item) == "reasoning" else None
        if sealed and self._thinking.is_shown:
            self._sign(sealed)
        for block in native_blocks(item) or ():
            self._start(block)
            self._stop()
        self._stop()
        self._item = None

    # What is in a block.

    def _open_text(self) -> None:
        """Start the text block of a part at its first piece: the API refuses empty ones."""
        if self._is_new_part or self._kind != "text":
            self._stop()
            self._is_new_part = False
            self._start({"type": "text", "text": ""}, "text_delta", "text")

    def _cite(self, annotation: dict[str, Any]) -> None:
        citation = citation_of(annotation)
        if citation is not None:
            self._open_text()
            delta = {"type": "citations_delta", "citation": citation}
            self._put("content_block_delta", {"index": self._index, "delta": delta})

    def _think(self, text: str) -> None:
        if not self._thinking.is_shown:
            return
        if self._thinking.is_omitted:
            self._has_thought = True
            return
        if self._kind != "thinking":
            block = {"type": "thinking", "thinking": "", "signature": ""}
            self._start(block, "thinking_delta", "thinking")
        elif self._is_new_part:
            self._put_delta(THOUGHT_GAP)
        self._is_new_part, self._has_thought = False, True
        self._put_delta(text)

    def _sign(self, sealed: str) -> None:
        """Write what brings the thought back: as a signature, or as a block of its own."""
        if not self._has_thought:
            self._start({"type": "redacted_thinking", "data": sealed})
            return
        if self._kind != "thinking":
            self._start({"type": "thinking", "thinking": "", "signature": ""})
        delta = {"type": "signature_delta", "signature": sealed}
        self._put("content_block_delta", {"index": self._index, "delta": delta})

    # What goes out.

    def _start(self, block: dict[str, Any], delta: str = "", field: str = "") -> None:
        """Start a block; its deltas, if any, have this type and carry text in this field."""
        self._index += 1
        self._kind = block["type"]
        self._put("content_block_start", {"index": self._index, "content_block": block})
        self._grow = _DELTA % (self._index, delta.encode(), field.encode())

    def _stop(self) -> None:
        if self._kind is not None:
            self._kind = None
            self._put("content_block_stop", {"index": self._index})

    def _put_delta(self, text: str) -> None:
        self._out.append(self._grow + _encode(text) + b"}}\n\n")

    def _put(self, name: str, fields: dict[str, Any]) -> None:
        data = _encode({"type": name, **fields})
        self._out.append(b"event: %b\ndata: %b\n\n" % (name.encode(), data))


_WRITERS: Final[dict[type[Any], Callable[[MessagesEncoder, Any], None]]] = {
    ResponseCreated: MessagesEncoder._begin,
    ResponseCompleted: MessagesEncoder._finish,
    ResponseIncomplete: MessagesEncoder._finish,
    ResponseFailed: MessagesEncoder._fail,
    ErrorEvent: MessagesEncoder._note_error,
    **dict.fromkeys(get_args(_ItemEvent), MessagesEncoder._take),
}
