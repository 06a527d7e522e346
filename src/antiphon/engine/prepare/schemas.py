"""Does a value match a schema that a caller wrote?

Schemas are compiled without fetching anything, their patterns run on an engine that takes
linear time, and they refer to their own parts by plain pointers only. What those unfold to is
weighed first; what that could not follow must not be followed here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, Final, NoReturn

import jsonschema_rs
import msgspec

from antiphon.protocol.codec import decode_json
from antiphon.protocol.errors import InvalidRequest
from antiphon.protocol.schema import SchemaScale, check_schema

__all__ = ["NO_JSON", "SchemaCheck", "decode", "schema_check"]

_REFERRING: Final = frozenset(
    {"$ref", "$id", "$anchor", "$dynamicRef", "$dynamicAnchor", "$recursiveRef"}
)
# About 30 ms of the event loop.
_MAX_WORK: Final = 300_000
_MAX_REASON: Final = 300
_KEPT: Final = 256
NO_JSON: Final = object()
# Without ~, % and empty steps: other spellings of a pointer than the one that was weighed.
_PLAIN_REF: Final = re.compile(r"#(/[^/~%]+)*")


class Miss(msgspec.Struct, frozen=True):
    """Where a value does not match, and why."""

    where: str
    why: str


class SchemaCheck:
    """Validates values against one schema. Raise InvalidRequest if it cannot be used."""

    def __init__(self, schema: Mapping[str, Any], param: str) -> None:
        self._validator = _compile(dict(schema), param)
        self._loops = SchemaScale(dict(schema)).loops

    def miss(self, value: object) -> Miss | None:
        """Return the first thing that does not match, or None."""
        for miss in self._validator.iter_errors(value):
            path = "".join(f"[{step!r}]" for step in miss.instance_path) or "its top"
            return Miss(path, miss.message[:_MAX_REASON])
        return None

    def is_too_deep(self, value: object) -> bool:
        """Return whether a value cannot be held against the schema in reasonable time.

        With one that refers to itself, the work may double with each level of the value.
        """
        return self._loops > 1 and self._loops ** _depth(value) > _MAX_WORK


@lru_cache(_KEPT)
def _kept_check(schema: bytes, param: str) -> SchemaCheck:
    decoded = msgspec.json.decode(schema)
    check_schema(decoded, param)
    return SchemaCheck(decoded, param)


def schema_check(schema: Mapping[str, Any], param: str) -> SchemaCheck:
    """Return the check of a schema; clients send the same ones with every request."""
    return _kept_check(msgspec.json.encode(schema), param)


def decode(text: str) -> object:
    """Return the value of a JSON text; NO_JSON if it is not JSON."""
    return decode_json(text, NO_JSON)


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


def _compile(schema: dict[str, Any], param: str) -> jsonschema_rs.Validator:
    for keyword, value in _references(schema, is_root=True):
        if keyword != "$ref" or not _PLAIN_REF.fullmatch(value):
            raise InvalidRequest(
                f"{param} may refer to its own parts only, as in #/$defs/name: "
                f"{keyword} {value[:80]!r} is not taken",
                code="invalid_schema",
                param=param,
            )
    try:
        return jsonschema_rs.validator_for(
            schema,
            retriever=_refuse_fetch,
            pattern_options=jsonschema_rs.RegexOptions(),
        )
    except (jsonschema_rs.ValidationError, ValueError) as error:
        raise InvalidRequest(
            f"{param} is not a usable JSON Schema: {str(error).splitlines()[0]}",
            code="invalid_schema",
            param=param,
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
