"""Plays a recorded stream to the reader, and puts what it says into plain lists."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from antiphon.protocol.deltas import Delta
from antiphon.protocol.errors import BackendError
from antiphon.wires.chat.stream import ChatStream

__all__ = ["plain", "replay"]


def replay(pieces: Iterable[bytes]) -> list[list[Any]]:
    """Return everything that the pieces tell, ending with the fault if there is one."""
    reader = ChatStream()
    said: list[Delta] = []
    try:
        for piece in pieces:
            said += reader.feed(piece)
            if reader.fault is not None:
                raise reader.fault
        said += reader.end()
        if reader.fault is not None:
            raise reader.fault
    except BackendError as error:
        return [*map(plain, said), ["fault", error.status, error.code, error.message]]
    return [plain(delta) for delta in said]


def plain(delta: Delta) -> list[Any]:
    """Return a delta as its name and its fields, those with default values left out."""
    fields = msgspec.structs.asdict(delta)
    defaults = dict(zip(reversed(type(delta).__struct_fields__), _defaults(delta), strict=False))
    told = [value for name, value in fields.items() if defaults.get(name, ...) != value]
    return [type(delta).__name__, *msgspec.json.decode(msgspec.json.encode(told))]


def _defaults(delta: Delta) -> list[Any]:
    return list(reversed(type(delta).__struct_defaults__))
