"""Answers of an editor for tests: messages as lines, and what is made of them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from antiphon.protocol.deltas import Delta
from antiphon.protocol.errors import BackendError
from antiphon.wires.host.answers import read_answer
from antiphon.wires.host.lines import LineReader
from antiphon.wires.host.stream import HostStream

__all__ = ["CLOSED", "Json", "done", "failed", "lines", "parts", "read", "text"]

Json = dict[str, Any]

CLOSED = BackendError("closed", code="upstream_closed")


def text(value: str) -> Json:
    """Return a text part."""
    return {"type": "text", "value": value}


def parts(*some: Json) -> Json:
    """Return a message with these parts."""
    return {"type": "parts", "id": 1, "parts": list(some)}


def done(**fields: Any) -> Json:
    """Return the end of an answer."""
    return {"type": "done", "id": 1, **fields}


def failed(code: str, message: str = "No.", **fields: Any) -> Json:
    """Return an error."""
    return {"type": "error", "id": 1, "error": {"code": code, "message": message, **fields}}


def lines(*messages: Json) -> bytes:
    """Return the messages as the editor writes them."""
    return b"".join(json.dumps(one).encode() + b"\n" for one in messages)


def read(data: bytes | Iterable[bytes], account: str = "me") -> tuple[list[Delta], HostStream]:
    """Return what an answer of the model m holds, and its reader; an open end is a cut."""
    reader, splitter = HostStream(model="m", account=account), LineReader()
    deltas: list[Delta] = []
    for piece in [data] if isinstance(data, bytes) else data:
        for line in splitter.feed(piece):
            assert isinstance(line, bytes)
            deltas += reader.feed(read_answer(line))
    return deltas + reader.end(CLOSED), reader
