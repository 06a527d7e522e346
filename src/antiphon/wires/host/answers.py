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
from antiphon.wires.host.messages import (
    Counted,
    Done,
    Failed,
    Fault,
    Log,
    Measured,
    Models,
    ModelsChanged,
    RequestId,
    UsageChanged,
    Welcome,
)
from antiphon.wires.host.parts import DataPart, TextPart, ThinkingPart

__all__ = [
    "AnswerParts",
    "CallPart",
    "LooseParts",
    "ReadPart",
    "Received",
    "Unreadable",
    "read_answer",
]

_MAX_SHOWN: Final = 200


class CallPart(msgspec.Struct, frozen=True, tag="tool_call"):
    """A tool call with its arguments as they came: a number that is read may be rounded."""

    call_id: str
    name: str
    input: msgspec.Raw


ReadPart = TextPart | ThinkingPart | CallPart | DataPart


class AnswerParts(msgspec.Struct, frozen=True, tag="parts"):
    """The next parts of an answer, all of them known."""

    id: RequestId
    parts: Sequence[ReadPart]


class LooseParts(msgspec.Struct, frozen=True):
    """Parts of an answer. A part of an unknown type is only the name of its type."""

    id: RequestId
    parts: Sequence[ReadPart | str]


class Unreadable(msgspec.Struct, frozen=True):
    """A line that is no message. `is_new` if only its type is not known."""

    id: RequestId | None
    why: str
    is_new: bool = False


_Message = (
    Welcome
    | Models
    | Counted
    | Measured
    | AnswerParts
    | Done
    | Failed
    | UsageChanged
    | Log
    | ModelsChanged
)
Received = _Message | LooseParts | Unreadable
"""What a line is read as."""


class _Loose(msgspec.Struct, frozen=True):
    parts: list[msgspec.Raw]


class _Tagged(msgspec.Struct, frozen=True):
    type: str


_decode: Final = msgspec.json.Decoder(_Message).decode
_decode_loose: Final = msgspec.json.Decoder(_Loose).decode
_decode_tag: Final = msgspec.json.Decoder(_Tagged).decode
_decode_part: Final = msgspec.json.Decoder(ReadPart).decode
_TYPES: Final = frozenset(
    {"welcome", "models", "counted", "measured", "parts", "done", "error", "usage", "log"}
    | {"models_changed"}
)
_PARTS: Final = frozenset({"text", "thinking", "tool_call", "data"})


def read_answer(line: bytes) -> Received:
    """Return the message of a line."""
    try:
        answer: _Message = _decode(line)
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
        return _read_parts(request_id, line)
    if kind == "error":
        return Failed(id=request_id, error=_read_fault(fields.get("error")))
    is_new = kind not in _TYPES
    return Unreadable(request_id, f"type {kind[:_MAX_SHOWN]!r}" if is_new else why, is_new)


def _id_in(fields: dict[str, Any]) -> RequestId | None:
    found = fields.get("id")
    return found if isinstance(found, str) or type(found) is int else None


def _read_parts(request_id: RequestId, line: bytes) -> LooseParts | Unreadable:
    """Return the parts of a message; one that is known but not valid makes all unreadable."""
    try:
        return LooseParts(request_id, [_read_part(one) for one in _decode_loose(line).parts])
    except msgspec.ValidationError as error:
        return Unreadable(request_id, str(error))


def _read_part(part: msgspec.Raw) -> ReadPart | str:
    kind = _decode_tag(part).type
    if kind not in _PARTS:
        return kind[:_MAX_SHOWN]
    read: ReadPart = _decode_part(part)
    return read


def _read_fault(error: object) -> Fault:
    fields: dict[str, Any] = error if isinstance(error, dict) else {}
    message, action = fields.get("message"), fields.get("action")
    return Fault(
        code="server_failed",
        message=message if isinstance(message, str) else "",
        action=action if isinstance(action, str) else "",
    )
