"""JSON Schemas as the Messages API takes them.

The input of a tool must be an object, and must not name the dialect that it is written in. What
binds the model (a strict tool, the format of an answer) must close every object, and knows only
part of the keywords: the others are left out here, and the answer is checked against all of them
later.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

__all__ = ["bound_schema", "input_schema", "is_closed"]

Schema = dict[str, Any]

# What the API refuses in a schema that binds the model.
_UNKNOWN: Final = frozenset(
    {
        *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
        *("minLength", "maxLength", "maxItems", "uniqueItems", "contains"),
        *("minProperties", "maxProperties", "patternProperties", "propertyNames"),
        *("if", "then", "else", "not", "dependentRequired", "dependentSchemas"),
    }
)
# Where a schema holds schemas: by name, or as they are.
_NAMED: Final = ("properties", "$defs", "definitions")
_PLAIN: Final = ("items", "additionalProperties", "anyOf", "allOf", "oneOf", "prefixItems")


def input_schema(parameters: Mapping[str, Any] | None) -> Schema:
    """Return the schema of a tool's input; one without parameters takes an empty object."""
    schema = {name: value for name, value in (parameters or {}).items() if name != "$schema"}
    if schema.get("type") != "object":
        schema = {"type": "object", **{key: schema[key] for key in schema if key != "type"}}
    schema.setdefault("properties", {})
    return schema


def is_closed(schema: object) -> bool:
    """Return whether every object in the schema forbids further properties."""
    if not isinstance(schema, dict):
        return True
    is_object = schema.get("type") == "object" or "properties" in schema
    if is_object and schema.get("additionalProperties") is not False:
        return False
    return all(map(is_closed, _inner(schema)))


def bound_schema(schema: object) -> tuple[Any, list[str]]:
    """Return the schema without the keywords that the API refuses, and their names."""
    left_out: dict[str, None] = {}
    return _strip(schema, left_out), list(left_out)


def _strip(schema: object, left_out: dict[str, None]) -> Any:  # Any: JSON of the caller
    if isinstance(schema, list):
        return [_strip(one, left_out) for one in schema]
    if not isinstance(schema, dict):
        return schema
    kept: Schema = {}
    for name, value in schema.items():
        if name == "$schema":
            continue
        if name in _UNKNOWN or (name == "minItems" and value not in (0, 1)):
            left_out[name] = None
        elif name in _NAMED and isinstance(value, dict):
            kept[name] = {key: _strip(inner, left_out) for key, inner in value.items()}
        else:
            kept[name] = _strip(value, left_out) if name in _PLAIN else value
    return kept


def _inner(schema: Schema) -> Iterator[object]:
    for name in _NAMED:
        value = schema.get(name)
        yield from value.values() if isinstance(value, dict) else ()
    for name in _PLAIN:
        value = schema.get(name)
        yield from value if isinstance(value, list) else (value,)
