"""Gemini answers for tests: chunks as bytes, and what is made of them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from antiphon.protocol.deltas import Delta, NativeState
from antiphon.protocol.events import Event
from antiphon.protocol.items import Item
from antiphon.protocol.machines.referee import judge_stream
from antiphon.protocol.native_state import NATIVE
from antiphon.protocol.response import Response
from antiphon.wires.gemini.stream import GeminiStream
from tests.building import build

__all__ = ["Sealed", "body", "chunk", "finish", "items_of", "read", "sse", "whole"]

Json = dict[str, Any]


def chunk(*parts: Json, **candidate: Any) -> Json:
    """Return a chunk with these parts of the first candidate."""
    usage = candidate.pop("usage", None)
    content = {"content": {"role": "model", "parts": list(parts)}} if parts else {}
    made: Json = {"candidates": [{**content, **candidate}]}
    return made | ({"usageMetadata": usage} if usage else {})


def finish(*parts: Json, reason: str = "STOP", **candidate: Any) -> Json:
    """Return the last chunk."""
    counted = {"promptTokenCount": 3, "candidatesTokenCount": 2, "totalTokenCount": 5}
    return chunk(*parts, finishReason=reason, **{"usage": counted, **candidate})


def sse(*chunks: Json) -> bytes:
    """Return the chunks as Gemini streams them, with CRLF."""
    return b"".join(b"data: " + json.dumps(one).encode() + b"\r\n\r\n" for one in chunks)


def body(*chunks: Json) -> bytes:
    """Return one whole answer with the parts of all chunks, indented as Gemini does it."""
    parts = [
        part
        for one in chunks
        for candidate in one.get("candidates", ())
        for part in candidate.get("content", {}).get("parts", ())
    ]
    last = chunks[-1]
    candidate = {**last["candidates"][0], "content": {"role": "model", "parts": parts}}
    return json.dumps({**last, "candidates": [candidate]}, indent=2).encode()


def read(data: bytes | Iterable[bytes], account: str = "") -> tuple[list[Delta], GeminiStream]:
    """Return what a stream tells, and its reader."""
    reader = GeminiStream(account=account)
    deltas: list[Delta] = []
    for piece in [data] if isinstance(data, bytes) else data:
        deltas += reader.feed(piece)
    return deltas + reader.end(), reader


def whole(data: bytes) -> tuple[list[Delta], GeminiStream]:
    """Return what an answer tells that was not streamed, and its reader."""
    reader = GeminiStream()
    return reader.whole(data), reader


class Sealed:
    """A seal that keeps native state beside the items, and gives it back."""

    def __init__(self) -> None:
        self._states: dict[str, NativeState] = {}

    def __call__(self, item: Item, state: NativeState | None) -> str:
        if state is None:
            return ""
        name = f"sealed_{len(self._states)}"
        self._states[name] = state
        return name

    def open(self, items: Sequence[Item]) -> list[Item]:
        """Return the items as a plan has them."""
        return [self._open(item) for item in items]

    def _open(self, item: Item) -> Item:
        name = item.get("encrypted_content")
        if not isinstance(name, str) or name not in self._states:
            return item
        rest = {key: value for key, value in item.items() if key != "encrypted_content"}
        return rest | {NATIVE: self._states[name]}


def items_of(deltas: Iterable[Delta], seal: Sealed | None = None) -> list[Item]:
    """Return the output that the builder makes of the deltas; the referee must accept it."""
    events: list[Event] = build(deltas, seal=seal)
    assert judge_stream(events) == []
    response = events[-1].response  # type: ignore[union-attr]  # the last one is terminal
    assert isinstance(response, Response)
    return response.output
