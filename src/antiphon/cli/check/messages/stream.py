"""Judges the events of a Messages stream, and joins them.

The rules, each under the name of its findings:

- `event_shape`: an event is an object with a type, and has its documented fields;
- `event_name`: the `event:` field of a frame is the type of its event;
- `first`: message_start comes first, once, with an empty message;
- `block_index`: blocks begin with the indexes 0, 1, 2, …;
- `block_open`: one block is open at a time, and none at the end;
- `block_closed`: a delta or a stop is for the block that is open;
- `block_start`: a block of text, thinking or input begins empty;
- `delta_type`: a delta fits the type of its block;
- `message_delta`: it comes after the blocks, with stop_reason and usage, before message_stop;
- `stop_missing`, `after_stop`: message_stop comes once, and nothing follows it;
- `stream_error`: the server reported an error instead of an end.

A ping may be anywhere before the end. Events, blocks and deltas of unknown types are passed over:
new ones may be added to the API. This shares no code with the encoder of our own
Messages API, so that it can judge it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from antiphon.cli.check.case import Finding, Json, brief, json_of, shown
from antiphon.protocol.sse import Frame

__all__ = ["judge_frames"]

_EMPTY: Final[dict[str, Json]] = {
    "text": {"text": ""},
    "thinking": {"thinking": ""},
    "tool_use": {"input": {}},
    "server_tool_use": {"input": {}},
}
# The types of block that a delta may be for, and the field that grows.
_DELTAS: Final[dict[str, tuple[tuple[str, ...], str, type]]] = {
    "text_delta": (("text",), "text", str),
    "citations_delta": (("text",), "citation", dict),
    "input_json_delta": (("tool_use", "server_tool_use"), "partial_json", str),
    "thinking_delta": (("thinking",), "thinking", str),
    "signature_delta": (("thinking",), "signature", str),
}


def judge_frames(frames: Sequence[Frame]) -> tuple[Json | None, list[Finding]]:
    """Return the message that the events make, and every rule that the stream breaks."""
    judge = _EventJudge()
    findings: list[Finding] = []
    for number, frame in enumerate(frames):
        where = f"#{number} {shown(frame.data)}"
        found = judge.take(frame.event, json_of(frame.data))
        findings += [Finding(one.rule, one.detail, where) for one in found]
    findings += judge.end()
    return judge.message if judge.is_over else None, findings


class _EventJudge:
    """Takes the events in their order; `message` is what they add up to."""

    def __init__(self) -> None:
        self.message: Json | None = None
        self.is_over = False
        self._has_failed = False
        self._blocks: list[Json] = []
        self._open: int | None = None
        self._json = ""
        """The input of the open block so far."""
        self._stop: Json | None = None
        """The last message_delta."""
        self._takers: Final[dict[str, Callable[[Json], Iterator[Finding]]]] = {
            "message_start": self._start,
            "content_block_start": self._start_block,
            "content_block_delta": self._grow_block,
            "content_block_stop": self._stop_block,
            "message_delta": self._change_message,
            "message_stop": self._stop_message,
            "error": self._fail,
        }

    def take(self, name: str, event: object) -> Iterator[Finding]:
        """Yield what is wrong with the next event."""
        kind = event.get("type") if isinstance(event, dict) else None
        if not isinstance(event, dict) or not isinstance(kind, str):
            yield Finding("event_shape", "the event is not a JSON object with a type")
            return
        if name != kind:
            yield Finding("event_name", f"the frame is named {name!r}, its event {kind!r}")
        if self.is_over or self._has_failed:
            yield Finding("after_stop", f"{kind} comes after the end")
            return
        taker = self._takers.get(kind)
        if taker is None:
            return
        if self.message is None and kind not in ("message_start", "error"):
            yield Finding("first", f"{kind} comes before message_start")
            return
        yield from taker(event)

    def end(self) -> Iterator[Finding]:
        """Yield what is missing at the end."""
        if not self.is_over and not self._has_failed:
            yield Finding("stop_missing", "the stream does not end with message_stop")

    def _start(self, event: Json) -> Iterator[Finding]:
        if self.message is not None:
            yield Finding("first", "message_start comes twice")
            return
        message = event.get("message")
        if not isinstance(message, dict):
            yield Finding("event_shape", "message_start has no message")
            self.message = {"content": self._blocks, "usage": {}}
            return
        if message.get("content") != [] or message.get("stop_reason") is not None:
            yield Finding("first", "the message of message_start is not empty")
        usage = message.get("usage")
        if not isinstance(usage, dict) or not isinstance(usage.get("input_tokens"), int):
            yield Finding("event_shape", f"usage of message_start is {brief(usage)}")
            usage = {}
        self.message = {**message, "content": self._blocks, "usage": usage}

    def _start_block(self, event: Json) -> Iterator[Finding]:
        block, expected = event.get("content_block"), len(self._blocks)
        if self._open is not None:
            yield Finding("block_open", f"a block begins while block {self._open} is open")
        if self._stop is not None:
            yield Finding("message_delta", "a block begins after message_delta")
        if event.get("index") != expected:
            yield Finding("block_index", f"block {brief(event.get('index'))}, expected {expected}")
        if not isinstance(block, dict) or not isinstance(block.get("type"), str):
            yield Finding("event_shape", f"content_block is {brief(block)}")
            block = {"type": "unknown"}
        for field, empty in _EMPTY.get(block["type"], {}).items():
            if block.get(field) != empty:
                yield Finding("block_start", f"{field} begins as {brief(block.get(field))}")
        self._open, self._json = expected, ""
        self._blocks.append({**block, **_EMPTY.get(block["type"], {})})

    def _grow_block(self, event: Json) -> Iterator[Finding]:
        if self._open is None or event.get("index") != self._open:
            yield Finding("block_closed", f"block {brief(event.get('index'))} is not open")
            return
        delta, block = event.get("delta"), self._blocks[self._open]
        kind = delta.get("type") if isinstance(delta, dict) else None
        if not isinstance(delta, dict) or not isinstance(kind, str):
            yield Finding("event_shape", f"delta is {brief(delta)}")
            return
        if kind not in _DELTAS:
            return
        types, field, expected = _DELTAS[kind]
        if block["type"] not in types:
            yield Finding("delta_type", f"a {kind} is for a block of type {block['type']}")
        elif not isinstance(delta.get(field), expected):
            yield Finding("event_shape", f"{field} of the {kind} is {brief(delta.get(field))}")
        else:
            self._add(block, field, delta[field])

    def _add(self, block: Json, field: str, value: Any) -> None:  # Any: what JSON holds
        match field:
            case "partial_json":
                self._json += value
            case "citation":
                block["citations"] = [*(block.get("citations") or ()), value]
            case _:
                before = block.get(field)
                block[field] = before + value if isinstance(before, str) else value

    def _stop_block(self, event: Json) -> Iterator[Finding]:
        if self._open is None or event.get("index") != self._open:
            yield Finding("block_closed", f"block {brief(event.get('index'))} is not open")
            return
        if self._json:
            # Not an object: the rules for the message say so, unless the answer was cut.
            self._blocks[self._open]["input"] = json_of(self._json)
        self._open = None

    def _change_message(self, event: Json) -> Iterator[Finding]:
        assert self.message is not None  # take() passes nothing else before message_start
        delta, usage = event.get("delta"), event.get("usage")
        if self._open is not None:
            yield Finding("block_open", f"message_delta comes while block {self._open} is open")
        if not isinstance(delta, dict):
            yield Finding("message_delta", f"its delta is {brief(delta)}")
            delta = {}
        if not isinstance(usage, dict) or not isinstance(usage.get("output_tokens"), int):
            yield Finding("message_delta", f"its usage is {brief(usage)}")
            usage = {}
        known = {name: value for name, value in usage.items() if value is not None}
        self._stop = event
        usage = {**self.message["usage"], **known}
        self.message = {**self.message, **delta, "content": self._blocks, "usage": usage}

    def _stop_message(self, _: Json) -> Iterator[Finding]:
        assert self.message is not None  # take() passes nothing else before message_start
        self.is_over = True
        if self._open is not None:
            yield Finding("block_open", f"message_stop comes while block {self._open} is open")
        if self._stop is None:
            yield Finding("message_delta", "message_stop comes without message_delta")
        elif not isinstance(self.message.get("stop_reason"), str):
            yield Finding("message_delta", "no message_delta has a stop_reason")

    def _fail(self, event: Json) -> Iterator[Finding]:
        self._has_failed = True
        yield Finding("stream_error", f"the server reports {brief(event.get('error'))}")
