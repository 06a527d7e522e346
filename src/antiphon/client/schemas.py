"""JSON Schema as servers want it for strict functions.

There an object lists all its properties as required and allows no others, and has no defaults. A
value that may be missing is one that may be null, as in the type `int | None`.
"""

from __future__ import annotations

from typing import Any

from antiphon.client.errors import BadTool

__all__ = ["make_strict"]


def make_strict(tool: str, schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema for a strict function. Raise BadTool for what cannot be strict."""
    strict: dict[str, Any] = _strict(tool, schema)
    return strict


def _strict(tool: str, node: Any) -> Any:  # Any: a schema, or a part of one
    if isinstance(node, list):
        return [_strict(tool, one) for one in node]
    if not isinstance(node, dict):
        return node
    made = {key: value for key, value in node.items() if key != "default"}
    for key in ("items", "anyOf", "allOf", "oneOf", "prefixItems"):
        if key in made:
            made[key] = _strict(tool, made[key])
    for key in ("properties", "$defs"):
        if key in made:
            made[key] = {name: _strict(tool, inner) for name, inner in made[key].items()}
    if made.get("type") == "object":
        _close(tool, made)
    return made


def _close(tool: str, schema: dict[str, Any]) -> None:
    """Require all properties of an object and forbid others."""
    if "properties" not in schema and schema.get("additionalProperties") is not False:
        raise BadTool(tool, "a dict with any keys cannot be strict; name its keys in a type")
    schema["required"] = list(schema.get("properties", {}))
    schema["additionalProperties"] = False
