"""What do the name and the arguments of a found call mean?

A name counts only if it was offered. Arguments are an object, or a string that holds one; the
rest is no call. What is good JSON is passed on as the model wrote it, down to the digits; what
is nearly JSON is read as literals and written again.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from functools import cached_property
from typing import Any, Final

import msgspec

from antiphon.wires.chat.recover.literals import read_keywords, read_literal

__all__ = ["Names", "object_text", "read_call_arguments", "read_keyword_arguments", "write_object"]

# `functions.name:0`, as Kimi numbers its calls.
_PREFIX: Final = "functions."
_NUMBER: Final = re.compile(r":\d{1,6}\Z")
_NOT_TEXT: Final = re.compile(r"[\[{\d-]|(?:true|false|null)\Z")


class Names:
    """The tools that a model may call, and the types of their parameters, where known."""

    def __init__(self, names: Collection[str]) -> None:
        self._names = frozenset(names)
        self._schemas: Mapping[str, Any] = names if isinstance(names, Mapping) else {}

    @cached_property
    def _alike(self) -> dict[str, list[str]]:
        """The names by how they are written alike; most answers have no call to look it up for."""
        alike: dict[str, list[str]] = {}
        for name in sorted(self._names):
            alike.setdefault(_plain(name), []).append(name)
        return alike

    def find(self, name: str) -> str | None:
        """Return the offered name that is meant: the same, or the only one written alike."""
        if name in self._names:
            return name
        alike = self._alike.get(_plain(name), ())
        return alike[0] if len(alike) == 1 else None

    def find_numbered(self, name: str) -> str | None:
        """Return the offered name that is meant, which may stand in `functions.name:0`."""
        return self.find(name) or self.find(_NUMBER.sub("", name).removeprefix(_PREFIX))

    def value(self, name: str, parameter: str, text: str) -> Any:
        """Return the value of a parameter that stands in the text without quotes.

        The schema decides which parameters are text. Without one, a text that is valid JSON, but
        not a string, is read as JSON.
        """
        types = _types(self._schemas.get(name), parameter)
        bare = text.strip()
        if "string" in types and not (bare == "null" and "null" in types):
            return text
        if not types and not _NOT_TEXT.match(bare):
            return text
        try:
            return msgspec.json.decode(bare)
        except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
            return text if types.isdisjoint({"object", "array"}) else _literal_or_text(text)


def read_call_arguments(raw: str, key: str) -> str | None:
    """Return the arguments as a JSON object, or None if they are not an object.

    `raw` is the value of the field `key`. Only `input` may hold plain text: a model that
    writes it means a tool that takes text, and gets `{"input": text}`.
    """
    raw = raw.strip()
    if raw == "null":
        return "{}"
    if raw[:1] not in ("'", '"'):
        return object_text(raw)
    try:
        text = read_literal(raw)
    except ValueError:
        return None
    if key != "input" and not text.strip():
        return "{}"
    held = object_text(text.strip())
    return held or (write_object({"input": text}) if key == "input" else None)


def read_keyword_arguments(text: str) -> str | None:
    """Return `a=1, b="x"` as a JSON object, or None if it is no such list."""
    try:
        return write_object(read_keywords(text))
    except ValueError:
        return None


def object_text(text: str) -> str | None:
    """Return the text if it is a JSON object, repaired if it nearly is one, or None."""
    if not text.startswith("{"):
        return None
    try:
        msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        try:
            return write_object(read_literal(text))
        except ValueError:
            return None
    return text


def write_object(fields: dict[str, Any]) -> str:
    """Return the fields as JSON. Raise ValueError if they cannot be written."""
    try:
        return msgspec.json.encode(fields).decode()
    except RecursionError as error:
        raise ValueError("too deep") from error


def _plain(name: str) -> str:
    return name.lower().replace("-", "_").replace(".", "_")


def _literal_or_text(text: str) -> Any:
    try:
        return read_literal(text)
    except ValueError:
        return text


def _types(schema: object, parameter: str) -> set[str]:
    fields = schema.get("properties") if isinstance(schema, Mapping) else None
    field = fields.get(parameter) if isinstance(fields, Mapping) else None
    if not isinstance(field, Mapping):
        return set()
    either = field.get("anyOf")
    kinds = [field, *(either if isinstance(either, list) else ())]
    found: set[str] = set()
    for kind in kinds:
        said = kind.get("type") if isinstance(kind, Mapping) else None
        found.update([said] if isinstance(said, str) else said if isinstance(said, list) else ())
    return found
