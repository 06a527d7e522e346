"""Which message is a line, and if it is none, what is wrong with it?

Half of a surrogate pair, which JavaScript can write and UTF-8 cannot hold, never makes a message
invalid. In a question it becomes U+FFFD, because it could not be sent on. In an answer, such as
the arguments of a call, it is kept, as an escape.
"""

from __future__ import annotations

import json
from typing import Any, Final

import msgspec

from antiphon.client.history import repair_text
from antiphon.wires.host.lines import LongLine
from antiphon.wires.host.messages import Answer, Failed, Fault, Question, RequestId

__all__ = ["encode_line", "read_answer", "read_question"]

_DECODER: Final[msgspec.json.Decoder[Question]] = msgspec.json.Decoder(Question)
_ANSWERS: Final[msgspec.json.Decoder[Answer]] = msgspec.json.Decoder(Answer)
_TYPES: Final = frozenset({"hello", "models", "count", "measure", "respond", "cancel"})


def read_question(line: bytes | LongLine) -> Question | Failed:
    """Return the question, or the error that answers it."""
    if isinstance(line, LongLine):
        return _refuse("line_too_long", f"A line of {line.length} bytes was dropped.")
    try:
        return _DECODER.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _read_slowly(line)


def read_answer(line: bytes) -> Answer:
    """Return the answer. Raise msgspec.ValidationError or ValueError for anything else."""
    try:
        return _ANSWERS.decode(line)
    except msgspec.DecodeError:
        answer: Answer = msgspec.convert(json.loads(line), Answer)
        return answer


def encode_line(message: Answer | Question) -> bytes:
    """Return a message as a line."""
    try:
        return msgspec.json.encode(message) + b"\n"
    except UnicodeEncodeError:
        return json.dumps(msgspec.to_builtins(message)).encode() + b"\n"


def _read_slowly(line: bytes) -> Question | Failed:
    """Return the error of a line, or the question if only half a pair was wrong."""
    try:
        fields = repair_text(json.loads(line))
    except (ValueError, RecursionError):
        return _refuse("invalid_message", "A line is not valid JSON.")
    if not isinstance(fields, dict):
        return _refuse("invalid_message", "A line is not a JSON object.")
    kind = fields.get("type")
    if not isinstance(kind, str) or kind not in _TYPES:
        name = repr(kind)[:40]
        return _refuse("unknown_type", f"Messages of the type {name} are not known.", fields)
    try:
        question: Question = msgspec.convert(fields, Question)
    except (msgspec.ValidationError, RecursionError) as error:
        return _refuse("invalid_message", f"A message `{kind}` is not valid: {error}.", fields)
    return question


def _refuse(
    code: Any, message: str, fields: dict[str, Any] | None = None
) -> Failed:  # Any: the callers write literals
    return Failed(id=_id_of(fields or {}), error=Fault(code=code, message=message))


def _id_of(fields: dict[str, Any]) -> RequestId | None:
    found = fields.get("id")
    is_id = isinstance(found, int | str) and not isinstance(found, bool)
    return found if is_id else None
