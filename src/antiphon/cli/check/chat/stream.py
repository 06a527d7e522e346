"""Judges the chunks of a chat completion stream, and joins them.

The rules, each under the name of its findings:

- `chunk_shape`: a chunk has id, object, created, model and choices of the documented types;
- `chunk_same`: id, created and model are the same in all chunks;
- `choice_index`: there is one choice, with index 0;
- `role`: the first delta has the role assistant, and no later delta has another;
- `call_index`: calls begin with the indexes 0, 1, 2, …;
- `call_begin`: the first piece of a call has its id, type and name; no later piece changes them;
- `finish_missing`, `after_finish`: one chunk has a finish_reason, and only usage follows it;
- `usage_chunk`: usage comes once, in a last chunk without choices;
- `done_marker`: `[DONE]` is the last frame, once;
- `stream_error`: the server reported an error instead of an end.

This shares no code with the encoder of our own chat completions, so that it can judge it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from antiphon.cli.check.case import Finding, Json, brief, json_of, shown
from antiphon.protocol.sse import Frame

__all__ = ["judge_frames"]

_DONE: Final = b"[DONE]"
_FIXED: Final = ("id", "created", "model")
_TEXTS: Final = ("content", "refusal")


def judge_frames(frames: Sequence[Frame]) -> tuple[Json | None, list[Finding]]:
    """Return the completion that the chunks make, and every rule that the stream breaks."""
    judge = _ChunkJudge()
    findings: list[Finding] = []
    for number, frame in enumerate(frames):
        if frame.data == _DONE:
            continue
        where = f"#{number} {shown(frame.data)}"
        found = judge.take(json_of(frame.data))
        findings += [Finding(one.rule, one.detail, where) for one in found]
    findings += judge.end()
    if not judge.has_failed:
        findings += _judge_end_marker(frames)
    return judge.completion(), findings


def _judge_end_marker(frames: Sequence[Frame]) -> Iterator[Finding]:
    marks = [number for number, frame in enumerate(frames) if frame.data == _DONE]
    if not marks:
        yield Finding("done_marker", "the stream does not end with data: [DONE]")
    elif marks != [len(frames) - 1]:
        yield Finding("done_marker", "something follows data: [DONE]")


class _ChunkJudge:
    """Takes the chunks in their order; `completion` is what they add up to."""

    def __init__(self) -> None:
        self.has_failed = False
        self._first: Json | None = None
        self._role: object = None
        self._texts: dict[str, str] = {}
        self._calls: list[Json] = []
        self._finish: str | None = None
        self._usage: Json | None = None

    def take(self, chunk: object) -> Iterator[Finding]:
        """Yield what is wrong with the next chunk."""
        if isinstance(chunk, dict) and isinstance(chunk.get("error"), dict | str):
            self.has_failed = True
            yield Finding("stream_error", f"the server reports {brief(chunk['error'])}")
            return
        if not isinstance(chunk, dict) or not isinstance(chunk.get("choices"), list):
            yield Finding("chunk_shape", "the chunk is not an object with a list of choices")
            return
        yield from self._judge_fields(chunk)
        if self._usage is not None:
            yield Finding("usage_chunk", "a chunk follows the one with usage")
        usage = chunk.get("usage")
        if usage is not None:
            yield from self._take_usage(usage, chunk["choices"])
        elif not chunk["choices"] and self._finish is not None:
            yield Finding("after_finish", "an empty chunk follows the finish_reason")
        for choice in chunk["choices"]:
            yield from self._take_choice(choice)

    def end(self) -> Iterator[Finding]:
        """Yield what is missing at the end."""
        if self._finish is None and not self.has_failed:
            yield Finding("finish_missing", "no chunk has a finish_reason")

    def completion(self) -> Json | None:
        """Return the chunks as the whole completion; None if it has no end."""
        if self._first is None or self._finish is None:
            return None
        message: Json = {"role": self._role, "content": None, **self._texts}
        if self._calls:
            message["tool_calls"] = self._calls
        choice = {"index": 0, "message": message, "finish_reason": self._finish}
        fixed = {name: self._first.get(name) for name in _FIXED}
        return {
            **fixed,
            "object": "chat.completion",
            "choices": [choice],
            "usage": self._usage,
        }

    def _judge_fields(self, chunk: Json) -> Iterator[Finding]:
        if chunk.get("object") != "chat.completion.chunk":
            yield Finding("chunk_shape", f"object is {brief(chunk.get('object'))}")
        for name, kind in (("id", str), ("created", int), ("model", str)):
            if not isinstance(chunk.get(name), kind):
                yield Finding("chunk_shape", f"{name} is {brief(chunk.get(name))}")
        if self._first is None:
            self._first = chunk
        for name in _FIXED:
            if chunk.get(name) != self._first.get(name):
                change = f"{brief(self._first.get(name))} to {brief(chunk.get(name))}"
                yield Finding("chunk_same", f"{name} changes from {change}")

    def _take_usage(self, usage: object, choices: Sequence[object]) -> Iterator[Finding]:
        if choices:
            yield Finding("usage_chunk", "usage is in a chunk that has choices")
        elif self._finish is None:
            yield Finding("usage_chunk", "usage comes before the finish_reason")
        if isinstance(usage, dict):
            self._usage = usage
        else:
            yield Finding("usage_chunk", f"usage is {brief(usage)}")

    def _take_choice(self, choice: object) -> Iterator[Finding]:
        if not isinstance(choice, dict) or not isinstance(choice.get("delta"), dict):
            yield Finding("chunk_shape", "a choice is not an object with a delta")
            return
        if choice.get("index") != 0 or isinstance(choice.get("index"), bool):
            yield Finding("choice_index", f"the index is {brief(choice.get('index'))}, not 0")
        if self._finish is not None:
            yield Finding("after_finish", f"after {self._finish!r} comes {brief(choice)}")
            return
        yield from self._take_delta(choice["delta"])
        reason = choice.get("finish_reason")
        if isinstance(reason, str):
            self._finish = reason
        elif reason is not None:
            yield Finding("chunk_shape", f"finish_reason is {brief(reason)}")

    def _take_delta(self, delta: Json) -> Iterator[Finding]:
        role = delta.get("role")
        if self._role is None:
            self._role = "assistant"
            if role != "assistant":
                yield Finding("role", f"the first delta has the role {brief(role)}")
        elif role not in (None, self._role):
            yield Finding("role", f"a later delta has the role {brief(role)}")
        for name in _TEXTS:
            piece = delta.get(name)
            if isinstance(piece, str):
                self._texts[name] = self._texts.get(name, "") + piece
            elif piece is not None:
                yield Finding("chunk_shape", f"{name} is {brief(piece)}")
        calls = delta.get("tool_calls")
        if calls is not None and not isinstance(calls, list):
            yield Finding("chunk_shape", f"tool_calls is {brief(calls)}")
            return
        for piece in calls or ():
            yield from self._take_call(piece)

    def _take_call(self, piece: object) -> Iterator[Finding]:
        index = piece.get("index") if isinstance(piece, dict) else None
        if not isinstance(piece, dict) or not isinstance(index, int) or isinstance(index, bool):
            yield Finding("call_index", f"a piece of a call has the index {brief(index)}")
            return
        function = piece.get("function")
        if not isinstance(function, dict):
            yield Finding("chunk_shape", "a piece of a call has no function")
            return
        if index not in range(len(self._calls)):
            if index != len(self._calls):
                yield Finding("call_index", f"call {index} begins, expected {len(self._calls)}")
                return
            yield from self._begin_call(piece, function)
        else:
            yield from _judge_repeated(self._calls[index], piece, function)
        grown = function.get("arguments")
        if isinstance(grown, str):
            self._calls[index]["function"]["arguments"] += grown
        elif grown is not None:
            yield Finding("chunk_shape", f"arguments is {brief(grown)}")

    def _begin_call(self, piece: Json, function: Json) -> Iterator[Finding]:
        call_id, name = piece.get("id"), function.get("name")
        begun = {"name": name, "arguments": ""}
        self._calls.append({"id": call_id, "type": "function", "function": begun})
        for what, value in (("id", call_id), ("name", name)):
            if not isinstance(value, str) or not value:
                yield Finding("call_begin", f"the first piece of a call has the {what} {value!r}")
        if piece.get("type") != "function":
            yield Finding(
                "call_begin", f"the first piece of a call has the type {brief(piece.get('type'))}"
            )


def _judge_repeated(call: Json, piece: Json, function: Json) -> Iterator[Finding]:
    """A later piece may repeat what the first has; empty counts as left out."""
    for what, begun, later in (
        ("id", call["id"], piece.get("id")),
        ("type", call["type"], piece.get("type")),
        ("name", call["function"]["name"], function.get("name")),
    ):
        if later and later != begun:
            change = f"{brief(begun)} to {brief(later)}"
            yield Finding("call_begin", f"the {what} of a call changes from {change}")
