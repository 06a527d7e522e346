"""Is the text what `text.format` asked for?

Schemas come from callers: they are compiled without fetching anything, their patterns run on
an engine that takes linear time, and they refer to their own parts by plain pointers only. The
request has weighed what those unfold to; what it could not follow must not be followed here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, NoReturn

import jsonschema_rs
import msgspec

from antiphon.protocol.errors import InvalidRequest
from antiphon.protocol.schema import SchemaScale

__all__ = ["FormatCheck"]

_REFERRING: Final = frozenset(
    {"$ref", "$id", "$anchor", "$dynamicRef", "$dynamicAnchor", "$recursiveRef"}
)
# About 30 ms of the event loop.
_MAX_WORK: Final = 300_000
_NOTHING: Final = object()
# Without ~, % and empty steps: other spellings of a pointer than the one that was weighed.
_PLAIN_REF: Final = re.compile(r"#(/[^/~%]+)*")


class FormatCheck:
    """Checks one answer. `is_binding`: a miss is a failure, not a remark."""

    def __init__(self, form: Mapping[str, Any]) -> None:
        self._validator: jsonschema_rs.Validator | None = None
        self._loops = 0
        self.is_binding = form["type"] == "json_object" or bool(form.get("strict"))
        if form["type"] == "json_schema":
            self._validator = _compile(form["schema"])
            self._loops = SchemaScale(form["schema"]).loops

    def problem(self, text: str) -> str | None:
        """Return what is wrong with the text, or None."""
        value = _decode(text)
        if value is _NOTHING:
            return "text.format: the answer is not JSON"
        if self._validator is None:
            return None if isinstance(value, dict) else "text.format: the answer is no JSON object"
        for miss in self._validator.iter_errors(value):
            path = "".join(f"[{step!r}]" for step in miss.instance_path) or "its top"
            return f"text.format: the answer does not match the schema at {path}"
        return None

    def why_unchecked(self, text: str) -> str | None:
        """Return why a text is not held against the schema at all, or None.

        With a schema that refers to itself, the work may double with each level of the answer.
        """
        if self._loops > 1 and self._loops ** _depth(_decode(text)) > _MAX_WORK:
            return "text.format: the answer is nested too deep to check it by this schema"
        return None


def _decode(text: str) -> object:
    try:
        value: object = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return _NOTHING
    return value


def _depth(value: object) -> int:
    depth = 0
    level = [value]
    while level := [
        child
        for node in level
        if isinstance(node, dict | list)
        for child in (node.values() if isinstance(node, dict) else node)
    ]:
        depth += 1
    return depth


def _compile(schema: dict[str, Any]) -> jsonschema_rs.Validator:
    for keyword, value in _references(schema, is_root=True):
        if keyword != "$ref" or not _PLAIN_REF.fullmatch(value):
            raise InvalidRequest(
                f"text.format.schema may refer to its own parts only, as in #/$defs/name: "
                f"{keyword} {value[:80]!r} is not taken",
                code="invalid_schema",
                param="text.format.schema",
            )
    try:
        return jsonschema_rs.validator_for(
            schema,
            retriever=_refuse_fetch,
            pattern_options=jsonschema_rs.RegexOptions(),
        )
    except (jsonschema_rs.ValidationError, ValueError) as error:
        raise InvalidRequest(
            f"text.format.schema is not a usable JSON Schema: {str(error).splitlines()[0]}",
            code="invalid_schema",
            param="text.format.schema",
        ) from None


def _references(node: object, *, is_root: bool = False) -> Iterator[tuple[str, str]]:
    """Yield every keyword that refers to a schema, or names one to be referred to."""
    if isinstance(node, list):
        for child in node:
            yield from _references(child)
    elif isinstance(node, dict):
        for name, child in node.items():
            if name in _REFERRING and isinstance(child, str) and not (is_root and name == "$id"):
                yield name, child
            yield from _references(child)


def _refuse_fetch(uri: str) -> NoReturn:
    raise ValueError(f"a schema may not refer to {uri!r}: nothing is fetched")
