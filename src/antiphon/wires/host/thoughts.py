"""What must come back with the thoughts of an editor's model?

A thinking part may have an id and metadata, such as a signature. They travel sealed
(`NativeState`) with the reasoning item that the parts became, and go back only to the model that
made them: another one of the same editor may not be able to read them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from antiphon.protocol.deltas import NativeState
from antiphon.protocol.items import Item, text_of
from antiphon.protocol.native_state import native_of
from antiphon.wires.host.parts import ThinkingPart

__all__ = ["WIRE", "thinking_of", "write_state"]

WIRE: Final = "host"


class _State(msgspec.Struct, frozen=True, omit_defaults=True):
    model: str
    id: str | None = None
    metadata: Mapping[str, Any] = {}


_decode: Final = msgspec.json.Decoder(_State).decode


def write_state(
    model: str, thought_id: str | None, metadata: Mapping[str, Any], account: str
) -> NativeState:
    """Return the delta that carries the id and the metadata of a thought."""
    state = _State(model, thought_id, metadata)
    return NativeState(WIRE, msgspec.json.encode(state), account=account)


def thinking_of(item: Item, model: str, account: str) -> ThinkingPart | None:
    """Return a reasoning item as the thought that it was, None if this model did not make it."""
    native = native_of(item, WIRE, account)
    if native is None:
        return None
    try:
        state = _decode(native.data)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    if state.model != model:
        return None
    text = text_of(item.get("content")) or text_of(item.get("summary"))
    return ThinkingPart(text, state.id, state.metadata)
