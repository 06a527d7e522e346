"""JSON Schemas as the parameters of functions on servers that know only a part of OpenAPI."""

from __future__ import annotations

from typing import Any

import pytest
from google.genai import types
from hypothesis import given
from hypothesis import strategies as st

from antiphon.wires.gemini.schemas import write_parameters

NAME = {"name": {"type": "string"}}


def whole(schema: dict[str, Any]) -> tuple[Any, list[str]]:
    """Return what becomes of one property, and what was lost."""
    written, lost = write_parameters({"type": "object", "properties": {"x": schema}})
    assert written is not None
    types.Schema.model_validate(written)
    return written["properties"]["x"], lost


@pytest.mark.parametrize(
    ("schema", "written"),
    [
        ({"type": ["string", "null"]}, {"type": "string", "nullable": True}),
        (
            {"type": ["string", "integer"]},
            {"anyOf": [{"type": "string"}, {"type": "integer"}]},
        ),
        ({"const": "a"}, {"type": "string", "enum": ["a"]}),
        (
            {"description": "d", "anyOf": [{"type": "string"}, {"type": "null"}]},
            {"type": "string", "description": "d", "nullable": True},
        ),
        (
            {"oneOf": [{"type": "string"}, {"type": "number"}], "description": "d"},
            {
                "anyOf": [
                    {"type": "string", "description": "d"},
                    {"type": "number", "description": "d"},
                ]
            },
        ),
        (
            {"allOf": [{"type": "object", "properties": NAME}, {"required": ["name"]}]},
            {"type": "object", "properties": NAME, "required": ["name"]},
        ),
        ({"type": "integer", "exclusiveMaximum": 3}, {"type": "integer", "maximum": 2}),
        ({"type": "array"}, {"type": "array", "items": {}}),
        (
            {"type": "object", "properties": NAME, "required": ["name", "gone"]},
            {"type": "object", "properties": NAME, "required": ["name"]},
        ),
    ],
)
def test_schema_is_written_without_loss(schema: dict[str, Any], written: dict[str, Any]) -> None:
    assert whole(schema) == (written, [])


@pytest.mark.parametrize(
    ("schema", "lost"),
    [
        ({"type": "string", "format": "uri"}, ["format"]),
        ({"type": "integer", "enum": [1, 2]}, ["enum"]),
        ({"type": "number", "exclusiveMinimum": 0}, ["exclusiveMinimum"]),
        ({"type": "number", "multipleOf": 2}, ["multipleOf"]),
        ({"type": "object", "additionalProperties": {"type": "string"}}, ["additionalProperties"]),
        ({"type": "string", "if": {}, "then": {}}, ["if", "then"]),
        ({"$ref": "https://elsewhere.example"}, ["$ref"]),
    ],
)
def test_what_cannot_be_written_is_named(schema: dict[str, Any], lost: list[str]) -> None:
    assert whole(schema)[1] == lost


def test_references_are_inlined_and_recursion_ends() -> None:
    tree = {
        "type": "object",
        "properties": {"next": {"$ref": "#/$defs/tree"}, **NAME},
        "required": ["name"],
    }
    written, lost = write_parameters({"$ref": "#/$defs/tree", "$defs": {"tree": tree}})
    assert written == {
        "type": "object",
        "properties": {"next": {"type": "object"}, **NAME},
        "required": ["name"],
    }
    assert lost == ["$ref"]


@pytest.mark.parametrize(
    "schema", [None, {}, {"type": "object"}, {"type": "object", "properties": {}}]
)
def test_function_without_parameters_has_none(schema: dict[str, Any] | None) -> None:
    assert write_parameters(schema) == (None, [])


KEYWORDS: st.SearchStrategy[dict[str, Any]] = st.sampled_from(
    [
        *({"type": "string"}, {"type": "integer"}, {"type": ["string", "null"]}, {"const": "a"}),
        *({"enum": ["a", "b"]}, {"enum": [1]}, {"format": "date-time"}, {"format": "uri"}),
        *({"exclusiveMinimum": 1}, {"$comment": "c"}, {"additionalProperties": False}, {"not": {}}),
    ]
)


@st.composite
def schemas(draw: st.DrawFn, depth: int = 2) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for words in draw(st.lists(KEYWORDS, max_size=3)):
        schema |= words
    if depth and draw(st.booleans()):
        inner = st.lists(schemas(depth - 1), min_size=1, max_size=2)
        kind = draw(st.sampled_from(["anyOf", "oneOf", "allOf", "properties", "items"]))
        if kind == "properties":
            schema |= {"type": "object", "properties": dict(zip("ab", draw(inner), strict=False))}
        elif kind == "items":
            schema |= {"type": "array", "items": draw(schemas(depth - 1))}
        else:
            schema[kind] = draw(inner)
    return schema


@given(schema=schemas())
def test_any_schema_becomes_one_that_the_vendors_type_accepts(schema: dict[str, Any]) -> None:
    written, _ = write_parameters({"type": "object", "properties": {"x": schema}})
    types.Schema.model_validate(written)
    assert_plain(written)


def assert_plain(schema: Any) -> None:
    """Assert that `anyOf` stands alone, and that enums are of strings."""
    assert "anyOf" not in schema or set(schema) == {"anyOf"}
    assert all(isinstance(value, str) for value in schema.get("enum", ()))
    for inner in (*schema.get("anyOf", ()), *schema.get("properties", {}).values()):
        assert_plain(inner)
    if "items" in schema:
        assert_plain(schema["items"])
