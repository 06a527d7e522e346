"""Events of a Messages stream, decoded: bytes of one event in, a struct out.

Only the fields that are read are named; any other is skipped. Content blocks stay as the bytes
that came, because what a provider signed must go back unchanged. A server may leave out anything,
so nothing but the shape of an object is required.
"""

from __future__ import annotations

import json
from typing import Any, Final

import msgspec

from antiphon.protocol.errors import BackendError
from antiphon.protocol.halves import decode_torn, join_all

__all__ = [
    "Body",
    "Growth",
    "MessageEvent",
    "invalid_answer",
    "read_block",
    "read_delta",
    "read_event",
    "read_growth",
]

# A JSON object of a peer: Any is what it may put there.
Body = dict[str, Any]

_SHOWN: Final = 200
# Where the end of a piece may be half a character.
_GROWING: Final = frozenset({"text", "thinking", "partial_json"})
_RAW: Final = frozenset({"content_block"})


class Growth(msgspec.Struct, frozen=True):
    """The `delta` of an event: of a block, or of the message itself."""

    type: str = ""
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    partial_json: str | None = None
    citation: Body | None = None
    stop_reason: str | None = None
    stop_sequence: str | None = None
    stop_details: Body | None = None


class MessageEvent(msgspec.Struct, frozen=True):
    """One event. Which fields it has depends on its type."""

    type: str = ""
    index: int | None = None
    delta: Growth | None = None
    content_block: msgspec.Raw = msgspec.Raw(b"null")
    message: Body | None = None
    usage: Body | None = None
    error: Body | str | None = None


_decode_event: Final = msgspec.json.Decoder(MessageEvent).decode
_decode_block: Final = msgspec.json.Decoder(Body).decode


def read_event(data: bytes) -> MessageEvent:
    """Return the event. Raise BackendError if it is none."""
    try:
        return _decode_event(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return _read_torn_event(data, error)


def read_growth(fields: Body) -> Growth:
    """Return the fields of a delta. Raise BackendError if one has another type."""
    try:
        return msgspec.convert(fields, Growth)
    except msgspec.ValidationError as error:
        raise invalid_answer(str(error)[:_SHOWN]) from None


def read_block(raw: bytes | msgspec.Raw) -> Body:
    """Return the fields of an object. Raise BackendError if it is none."""
    try:
        return _decode_block(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return _read_torn_block(bytes(raw), error)


def read_delta(data: bytes) -> Body:
    """Return all fields of the `delta` of an event. Texts may end in half a character."""
    try:
        delta = _decode_block(data).get("delta")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        delta = _load(data, error).get("delta")
    return delta if isinstance(delta, dict) else {}


def _read_torn_event(data: bytes, error: Exception) -> MessageEvent:
    try:
        return msgspec.convert(decode_torn(data, _GROWING, _RAW), MessageEvent)
    except (ValueError, RecursionError):
        raise _unreadable(error) from None


def _read_torn_block(data: bytes, error: Exception) -> Body:
    value = _load(data, error)
    block: Body = join_all(value)
    kind = block.get("type")
    if kind in ("text", "thinking") and isinstance(value.get(kind), str):
        block[kind] = value[kind]
    return block


def _load(data: bytes, error: Exception) -> Body:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise _unreadable(error) from None
    return value


def _unreadable(error: Exception) -> BackendError:
    return invalid_answer(f"it is not readable: {str(error)[:_SHOWN]}")


def invalid_answer(why: str) -> BackendError:
    """Return the error for an answer that breaks the rules of the API."""
    return BackendError(
        f"the upstream's answer is not a message: {why}", code="upstream_invalid_response"
    )
