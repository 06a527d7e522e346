"""A line of the answerer as a message, also if it is not quite one that we know.

A later version may have further types, parts and error codes. Nothing that came for a request is
dropped in silence: an unknown part is kept by its name, an unknown error is one of the server, and
any other line that cannot be read names its request if it can (`Unreadable`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from antiphon.protocol.codec import decode_json
from antiphon.wires.host.messages import Answer, Failed, Fault, RequestId
from antiphon.wires.host.parts import ResponsePart

__all__ = ["LooseParts", "Unreadable", "read_answer"]

_MAX_SHOWN: Final = 200

_decode: Final = msgspec.json.Decoder(Answer).decode
_TYPES: Final = frozenset(
    {"welcome", "models", "counted", "measured", "parts", "done", "error", "usage", "log"}
    | {"models_changed"}
)
_PARTS: Final = frozenset({"text", "thinking", "tool_call", "data"})


class LooseParts(msgspec.Struct, frozen=True):
    """Parts of an answer. A part of an unknown type is only the name of its type."""

    id: RequestId
    parts: Sequence[ResponsePart | str]


class Unreadable(msgspec.Struct, frozen=True):
    """A line that is no message. `is_new` if only its type is not known."""

    id: RequestId | None
    why: str
    is_new: bool = False


def read_answer(line: bytes) -> Answer | LooseParts | Unreadable:
    """Return the message of a line."""
    try:
        answer: Answer = _decode(line)
    except msgspec.ValidationError as error:
        return _read_loosely(line, str(error))
    except (msgspec.DecodeError, UnicodeDecodeError):
        return Unreadable(None, "it is not JSON")
    except RecursionError:
        return Unreadable(None, "its JSON is too deep")
    return answer


def _read_loosely(line: bytes, why: str) -> LooseParts | Failed | Unreadable:
    value = decode_json(line)
    fields: dict[str, Any] = value if isinstance(value, dict) else {}
    kind, request_id = fields.get("type"), _id_in(fields)
    if not isinstance(kind, str):
        return Unreadable(request_id, "it has no type")
    if kind == "parts" and request_id is not None:
        return _read_parts(request_id, fields.get("parts"))
    if kind == "error":
        return Failed(id=request_id, error=_read_fault(fields.get("error")))
    is_new = kind not in _TYPES
    return Unreadable(request_id, f"type {kind[:_MAX_SHOWN]!r}" if is_new else why, is_new)


def _id_in(fields: dict[str, Any]) -> RequestId | None:
    found = fields.get("id")
    return found if isinstance(found, str) or type(found) is int else None


def _read_parts(request_id: RequestId, parts: object) -> LooseParts | Unreadable:
    read: list[ResponsePart | str] = []
    for part in parts if isinstance(parts, list) else [parts]:
        kind = part.get("type") if isinstance(part, dict) else None
        if isinstance(kind, str) and kind not in _PARTS:
            read.append(kind[:_MAX_SHOWN])
            continue
        try:
            read.append(msgspec.convert(part, ResponsePart))
        except msgspec.ValidationError as error:
            return Unreadable(request_id, str(error))
    return LooseParts(request_id, read)


def _read_fault(error: object) -> Fault:
    fields: dict[str, Any] = error if isinstance(error, dict) else {}
    message, action = fields.get("message"), fields.get("action")
    return Fault(
        code="server_failed",
        message=message if isinstance(message, str) else "",
        action=action if isinstance(action, str) else "",
    )
