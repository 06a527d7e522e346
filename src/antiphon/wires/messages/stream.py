"""An answer of the Messages API as it comes over the wire: bytes in, deltas out, no I/O.

Invariants, whatever the bytes:

- what was read before a fault is returned, and the fault is in `fault`;
- `Stopped` comes once and last, at `message_stop`. An end without it is a fault
  (`upstream_closed`), unless the stop reason is known and no block is open;
- before the first content block nothing is returned: an error that comes then is as good as a
  refusal, and the request can be repeated;
- an answer that is not streamed takes the same path as the events of a stream.

    | stop_reason                            | Stopped                                         |
    |----------------------------------------|-------------------------------------------------|
    | end_turn, tool_use, stop_sequence      | stop; the sequence is reported                  |
    | max_tokens                             | length                                          |
    | model_context_window_exceeded          | length, reported                                |
    | refusal without text                   | stop, after a RefusalGrew                       |
    | refusal with text                      | content_filter                                  |
    | pause_turn                             | length, with the state to resume from           |
    | any other                              | stop, reported                                  |
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from antiphon.protocol.deltas import (
    AnnotationAdded,
    Delta,
    NativeState,
    ReasoningGrew,
    RefusalGrew,
    Reported,
    Stopped,
    StopReason,
    SummaryGrew,
    TextGrew,
    UsageKnown,
    produced_length,
)
from antiphon.protocol.errors import BackendError, BrokenStream
from antiphon.protocol.sse import MAX_LINE, SseDecoder, read_frames
from antiphon.wires.faults import fault_from_json
from antiphon.wires.messages.blocks import (
    WIRE,
    CallBlock,
    OpaqueBlock,
    OpenBlock,
    RedactedBlock,
    TextBlock,
    ThinkingBlock,
)
from antiphon.wires.messages.events import (
    Body,
    Growth,
    MessageEvent,
    invalid_answer,
    read_block,
    read_event,
    read_growth,
)
from antiphon.wires.messages.runs import DeltaRun
from antiphon.wires.messages.server_tools import ServerTools
from antiphon.wires.messages.usage import SpentReader

__all__ = ["MAX_OUTPUT", "MessagesStream"]

MAX_OUTPUT: Final = 8 * 1024 * 1024
"""How many characters one answer may have, in text, thinking and inputs together."""

_STOPS: Final[dict[str, StopReason]] = {
    "end_turn": "stop",
    "tool_use": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "pause_turn": "length",
}
_DECLINED: Final = "The model declined to answer."
_WINDOW: Final = "model_context_window_exceeded: the window of the model is full"
_MAX_BLOCKS: Final = 10_000
_MAX_REPORTS: Final = 32
_SHOWN: Final = 100
_encode = msgspec.json.Encoder().encode


class MessagesStream:
    """The reader of one answer, streamed or whole.

    `account` can read the state that the answer carries. `is_summary` is whether the server shows
    a summary of what the model thought, not the thought itself. `keeps_blocks` is whether the
    server may pause, and then needs all blocks again.
    """

    def __init__(
        self,
        *,
        account: str = "",
        is_summary: bool = True,
        keeps_blocks: bool = False,
        max_line: int = MAX_LINE,
        max_output: int = MAX_OUTPUT,
    ) -> None:
        self.fault: BackendError | None = None
        self.is_done = False
        self.has_begun = False
        """Whether the first block of content has come."""
        self._account = account
        self._grew: type[SummaryGrew | ReasoningGrew] = SummaryGrew if is_summary else ReasoningGrew
        self._kept: list[Body | msgspec.Raw] | None = [] if keeps_blocks else None
        self._room = max_output
        self._sse = SseDecoder(max_line)
        self._run = DeltaRun()
        self._out: list[Delta] = []
        self._id: object = None
        self._is_started = False
        self._blocks: dict[int, OpenBlock] = {}
        self._count = 0
        """How many blocks there were."""
        self._place = 0
        """How many characters the text has that a next text block would continue."""
        self._has_said = False
        """Whether there was any text, or a call."""
        self._server_tools = ServerTools()
        self._spent = SpentReader()
        self._stop: Growth | None = None
        self._reported: set[str] = set()

    @property
    def has_stopped(self) -> bool:
        """Whether the model has stopped, so that only the end mark can follow."""
        return self._stop is not None

    def feed(self, data: bytes) -> Sequence[Delta]:
        """Return the deltas of these bytes of a streamed answer."""
        if self.fault is not None:
            return ()
        try:
            lines = self._sse.feed_lines(data)
            texts = self._run.read(lines)
            if texts is not None:  # as nearly always
                return self._grow_run(texts)
            for frame in read_frames(lines):
                self._take_event(frame.data)
        except (BackendError, BrokenStream) as error:
            self._break(error)
        return self._give()

    def end(self, error: BackendError | None = None) -> Sequence[Delta]:
        """Return the deltas of the end of the stream; `error` is how it broke, if it did."""
        if self.fault is not None or self.is_done:
            return self._give()
        try:
            self._take_rest()
            if not self.is_done and (self._stop is None or self._blocks):
                raise error or _closed()
            self._finish()
        except BackendError as fault:
            self._break(fault)
        return self._give()

    def whole(self, body: bytes) -> Sequence[Delta]:
        """Return the deltas of an answer that was not streamed."""
        try:
            message = read_block(body)
            if message.get("type") == "error" or message.get("error"):
                raise fault_from_json(message)
            if not isinstance(message.get("content"), list):
                raise invalid_answer("it has no content")
            self._take_message(message)
        except BackendError as error:
            self._break(error)
        return self._give()

    # One funnel: lines, events, blocks.

    def _take_rest(self) -> None:
        """Take the last event. It may be torn: that is how a cut connection looks."""
        try:
            for frame in self._sse.end():
                self._take_event(frame.data)
        except BrokenStream:
            pass
        except BackendError as fault:
            if fault.code != "upstream_invalid_response":
                raise

    def _take_event(self, data: bytes) -> None:
        if self.is_done:
            return
        event = read_event(data)
        match event.type:
            case "content_block_delta":
                self._grow_block(event, data)
            case "content_block_start":
                self._open_block(_index(event), event.content_block)
            case "content_block_stop":
                self._close_block(_index(event))
            case "message_start":
                self._start(event.message or {})
            case "message_delta":
                self._note_stop(event.delta, event.usage)
            case "message_stop":
                self._finish()
            case "error":
                raise fault_from_json({"error": event.error})

    def _take_message(self, message: Body) -> None:
        """Take a whole message as the events that would have led to it."""
        self._start(message)
        for index, block in enumerate(message["content"]):
            self._open_block(index, msgspec.Raw(_encode(block)))
            self._close_block(index)
        names = ("stop_reason", "stop_sequence", "stop_details")
        self._note_stop(read_growth({name: message.get(name) for name in names}), None)
        self._finish()

    # The message.

    def _start(self, message: Body) -> None:
        """Take the start. Broken proxies repeat it, or append another answer to the first."""
        if self._is_started:
            if message.get("id") != self._id:
                raise invalid_answer("a second message begins in it")
            return
        self._is_started, self._id = True, message.get("id")
        self._spend(message.get("usage"))

    def _note_stop(self, delta: Growth | None, usage: Body | None) -> None:
        if delta is not None and delta.stop_reason:
            self._stop = delta
        if self._spend(usage) and self.has_begun:
            self._emit_usage()

    def _spend(self, usage: object) -> bool:
        return isinstance(usage, dict) and self._spent.take(usage)

    def _emit_usage(self) -> None:
        usage = self._spent.usage()
        if usage is not None:
            self._out.append(UsageKnown(usage, self._spent.has_output))

    # Blocks.

    def _open_block(self, index: int, raw: msgspec.Raw) -> None:
        if not self.has_begun:
            self.has_begun = True
            self._emit_usage()
        self._count += 1
        if index in self._blocks or self._count > _MAX_BLOCKS:
            raise invalid_answer(f"block {index} starts twice, or there is no end of them")
        block = self._blocks[index] = self._make(read_block(raw), raw)
        self._put(block.opened())
        self._follow(index, block)

    def _follow(self, index: int, block: OpenBlock) -> None:
        """Expect more text of the block, unless its next character is to be put together."""
        if isinstance(block, TextBlock):
            if block.is_torn:
                self._run.forget()
            else:
                self._run.follow(index)

    def _make(self, fields: Body, raw: msgspec.Raw) -> OpenBlock:
        served = self._server_tools.make(fields)
        if served is not None:
            return served
        self._put(self._server_tools.end())
        match fields.get("type"):
            case "text":
                return TextBlock(fields, self._place)
            case "thinking":
                return ThinkingBlock(fields, self._grew, self._account)
            case "redacted_thinking":
                return RedactedBlock(bytes(raw), self._account)
            case "tool_use":
                self._has_said = True
                return CallBlock(fields, self._count)
            case str():
                return OpaqueBlock(fields)
        raise invalid_answer("a block has no type")

    def _grow_block(self, event: MessageEvent, data: bytes) -> None:
        index = _index(event)
        block = self._blocks.get(index)
        if block is None or event.delta is None:
            raise invalid_answer("a block grew that is not open")
        kind, known = event.delta.type, block.grows_by
        if known is not None and kind not in known:
            self._report_once(f"{kind[:_SHOWN]}: a delta that its block cannot hold is left out")
        self._put(block.grow(event.delta, data))
        self._follow(index, block)

    def _grow_run(self, texts: Sequence[str]) -> Sequence[Delta]:
        """Return the next pieces of the text block that is open, as `_put` would add them."""
        block = self._blocks[self._run.index]
        assert isinstance(block, TextBlock)
        size = block.add(texts)
        self._place += size
        self._room -= size
        if self._room < 0:
            raise invalid_answer("it does not end")
        if size:
            self._has_said = True
        return [TextGrew(text) for text in texts if text]

    def _close_block(self, index: int) -> None:
        self._run.forget()
        block = self._blocks.pop(index, None)
        if block is None:
            raise invalid_answer("a block stopped that is not open")
        self._put(block.close())
        if self._kept is not None:
            self._kept.append(block.whole())

    def _put(self, deltas: Sequence[Delta]) -> None:
        for delta in deltas:
            if type(delta) is TextGrew:
                self._place += len(delta.text)
                self._has_said = True
            elif not isinstance(delta, _BESIDE):
                self._place = 0  # a text after this is another one
        self._room -= produced_length(deltas)
        if self._room < 0:
            raise invalid_answer("it does not end")
        self._out += deltas

    # The end.

    def _finish(self) -> None:
        if self.is_done:
            return
        if self._stop is None:
            raise invalid_answer("it ends without a stop reason")
        if self._blocks:
            raise invalid_answer("it ends in the middle of a block")
        self._put(self._server_tools.end())
        if not self.has_begun:
            self.has_begun = True
            self._emit_usage()
        self._out.append(self._stopped(self._stop))
        self.is_done = True

    def _stopped(self, stop: Growth) -> Stopped:
        match stop.stop_reason:
            case "refusal":
                return self._refused(stop.stop_details or {})
            case "pause_turn" if self._kept is not None:
                state = NativeState(WIRE, _encode(self._kept), account=self._account)
                return Stopped("length", state)
            case "pause_turn":
                self._report("pause_turn: the upstream paused, and cannot be resumed here")
            case "model_context_window_exceeded":
                self._report(_WINDOW)
            case "stop_sequence" if stop.stop_sequence:
                self._report(f"stop_sequence: the model stopped at {stop.stop_sequence[:_SHOWN]!r}")
            case str() as reason if reason not in _STOPS:
                self._report(f"stop_reason: {reason[:_SHOWN]!r} is not known; taken for 'end_turn'")
        return Stopped(_STOPS.get(stop.stop_reason or "", "stop"))

    def _refused(self, details: dict[str, Any]) -> Stopped:
        """Return how a refusal ends: with a reason if the model has produced nothing else."""
        if self._has_said:
            return Stopped("content_filter")
        why = details.get("explanation") or details.get("category")
        self._out.append(RefusalGrew(why if isinstance(why, str) else _DECLINED))
        return Stopped("stop")

    def _report_once(self, what: str) -> None:
        if what not in self._reported and len(self._reported) < _MAX_REPORTS:
            self._reported.add(what)
            self._report(what)

    def _report(self, what: str) -> None:
        self._out.append(Reported(what))

    def _break(self, error: BackendError | BrokenStream) -> None:
        if isinstance(error, BrokenStream):
            error = invalid_answer(error.message)
        torn = [delta for block in self._blocks.values() for delta in block.rest()]
        error.is_torn = bool(torn)
        self._out += torn
        self.fault = error

    def _give(self) -> Sequence[Delta]:
        out, self._out = self._out, []
        return out


# What does not end a text.
_BESIDE: Final = (AnnotationAdded, Reported, UsageKnown)


def _index(event: MessageEvent) -> int:
    if event.index is None:
        raise invalid_answer("an event has no index")
    return event.index


def _closed() -> BackendError:
    return BackendError(
        "the upstream ended its answer before it was complete",
        code="upstream_closed",
        ended_in_order=True,
    )
