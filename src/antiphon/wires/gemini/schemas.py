"""A JSON Schema as the `parameters` of a Gemini function, which is a part of OpenAPI 3.

Servers that know `parametersJsonSchema` need none of this. The others refuse a whole request for
one keyword that they do not know. So:

    | JSON Schema                      | becomes                                             |
    |----------------------------------|-----------------------------------------------------|
    | `$ref`                           | what it refers to; a plain object where it recurs   |
    | `type: [a, "null"]`              | `a`, nullable; of several types, `anyOf`            |
    | `const`                          | an `enum` of one                                    |
    | `oneOf`, `allOf`                 | `anyOf`, one schema                                 |
    | `anyOf` beside other keywords    | `anyOf` alone, these keywords in each branch        |
    | `exclusiveMinimum` of an integer | `minimum`, one more; and so with the maximum        |
    | an object without properties     | nothing, as the parameters of a whole function      |

Every other keyword is left out and returned by name. `additionalProperties: false` is not named:
no property that was not described can be written there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

__all__ = ["write_parameters"]

Schema = dict[str, Any]
"""A JSON Schema, or what Gemini has instead; Any is what JSON holds."""

_KEPT: Final = frozenset(
    {
        "description",
        "enum",
        "items",
        "maximum",
        "maxItems",
        "maxLength",
        "maxProperties",
        "minimum",
        "minItems",
        "minLength",
        "minProperties",
        "pattern",
        "properties",
        "required",
        "title",
        "type",
    }
)
# Marks of a dialect, and what is worked on here.
_UNSAID: Final = frozenset(
    {
        "$schema",
        "$id",
        "$comment",
        "$defs",
        "definitions",
        "$ref",
        "additionalProperties",
        "allOf",
        "anyOf",
        "const",
        "default",
        "examples",
        "exclusiveMaximum",
        "exclusiveMinimum",
        "format",
        "nullable",
        "oneOf",
    }
)
_FORMATS: Final = frozenset({"date-time", "double", "enum", "float", "int32", "int64"})
_STRICTER: Final = {"exclusiveMinimum": ("minimum", 1), "exclusiveMaximum": ("maximum", -1)}
_MAX_DEPTH: Final = 32


def write_parameters(schema: Mapping[str, Any] | None) -> tuple[Schema | None, list[str]]:
    """Return the parameters of a function, None if it has none, and the keywords left out."""
    writer = _SchemaWriter(schema or {})
    written = writer.write(dict(schema or {}), 0)
    if written.get("type") == "object" and not written.get("properties"):
        return None, sorted(writer.lost)
    return written or None, sorted(writer.lost)


class _SchemaWriter:
    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._open: list[str] = []
        self.lost: set[str] = set()

    def write(self, node: object, depth: int) -> Schema:
        """Return one schema. A boolean schema, or one that is too deep, allows anything."""
        if not isinstance(node, Mapping):
            return {}
        if depth > _MAX_DEPTH:
            self.lost.add("nesting")
            return {"type": "object"}
        reference = node.get("$ref")
        if isinstance(reference, str):
            return self._write_reference(reference, node, depth)
        node = _merged(node)
        branches = node.get("anyOf") or node.get("oneOf")
        if isinstance(branches, list):
            return self._write_branches(node, branches, depth)
        kinds = node.get("type")
        if isinstance(kinds, list):
            each: list[Schema] = [dict(node) | {"type": kind} for kind in kinds]
            return self._write_branches({}, each, depth)
        return self._write_plain(node, depth)

    def _write_reference(self, reference: str, node: Mapping[str, Any], depth: int) -> Schema:
        target = self._find(reference)
        if target is None or reference in self._open:
            self.lost.add("$ref")
            return {"type": "object"}
        self._open.append(reference)
        rest = {name: value for name, value in node.items() if name != "$ref"}
        written = self.write({**target, **rest}, depth + 1)
        self._open.pop()
        return written

    def _find(self, reference: str) -> Mapping[str, Any] | None:
        """Return the schema of this root that is referred to by a path in it."""
        found: Any = self._root
        for step in reference.removeprefix("#").strip("/").split("/"):
            name = step.replace("~1", "/").replace("~0", "~")
            found = found.get(name) if isinstance(found, Mapping) and step else found
        return found if reference.startswith("#") and isinstance(found, Mapping) else None

    def _write_branches(self, node: Mapping[str, Any], branches: list[Any], depth: int) -> Schema:
        shared = {name: value for name, value in node.items() if name not in ("anyOf", "oneOf")}
        is_nullable = shared.pop("nullable", False) is True
        real = [one for one in branches if not _is_null(one)]
        is_nullable = is_nullable or len(real) < len(branches)
        written = [
            self.write({**shared, **one} if isinstance(one, Mapping) else shared, depth + 1)
            for one in real
        ]
        made = written[0] if len(written) == 1 else {"anyOf": written} if written else {}
        if not is_nullable:
            return made
        if len(written) == 1:
            return made | {"nullable": True}
        return {"anyOf": [one | {"nullable": True} for one in written]} if written else made

    def _write_plain(self, node: Mapping[str, Any], depth: int) -> Schema:
        written: Schema = {name: node[name] for name in node if name in _KEPT}
        self.lost |= {name for name in node if name not in _KEPT and name not in _UNSAID}
        if node.get("nullable") is True:
            written["nullable"] = True
        if node.get("format") in _FORMATS:
            written["format"] = node["format"]
        elif "format" in node:
            self.lost.add("format")
        self._put_values(node, written)
        self._put_bounds(node, written)
        self._put_children(node, written, depth)
        return written

    def _put_values(self, node: Mapping[str, Any], written: Schema) -> None:
        values = [node["const"]] if "const" in node else written.pop("enum", None)
        if values is None:
            return
        if isinstance(values, list) and all(isinstance(value, str) for value in values):
            written |= {"type": "string", "enum": values}
        else:
            self.lost.add("const" if "const" in node else "enum")

    def _put_bounds(self, node: Mapping[str, Any], written: Schema) -> None:
        for name, (plain, step) in _STRICTER.items():
            bound = node.get(name)
            if isinstance(bound, int) and not isinstance(bound, bool):
                whole = node.get("type") == "integer"
                written.setdefault(plain, bound + step if whole else bound)
                self.lost |= set() if whole else {name}
            elif bound is not None:
                self.lost.add(name)

    def _put_children(self, node: Mapping[str, Any], written: Schema, depth: int) -> None:
        if isinstance(node.get("items"), Mapping):
            written["items"] = self.write(node["items"], depth + 1)
        elif written.pop("items", None) is not None:
            self.lost.add("items")
        if written.get("type") == "array":
            written.setdefault("items", {})
        properties = node.get("properties")
        if isinstance(properties, Mapping):
            children = {name: self.write(one, depth + 1) for name, one in properties.items()}
            written |= {"type": "object", "properties": children}
            known = [name for name in node.get("required") or () if name in children]
            written.pop("required", None)
            written |= {"required": known} if known else {}
        else:
            written.pop("required", None)
        if isinstance(node.get("additionalProperties"), Mapping):
            self.lost.add("additionalProperties")


def _merged(node: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the schema with those of its `allOf` in it."""
    parts = node.get("allOf")
    if not isinstance(parts, list):
        return node
    merged: Schema = {name: value for name, value in node.items() if name != "allOf"}
    for part in parts:
        for name, value in part.items() if isinstance(part, Mapping) else ():
            old = merged.get(name)
            if isinstance(old, dict) and isinstance(value, Mapping):
                merged[name] = {**old, **value}
            elif isinstance(old, list) and isinstance(value, list):
                merged[name] = [*old, *(one for one in value if one not in old)]
            else:
                merged.setdefault(name, value)
    return merged


def _is_null(node: object) -> bool:
    return isinstance(node, Mapping) and (node.get("type") == "null" or node.get("enum") == [None])
