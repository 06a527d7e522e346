"""Schemas that are bombs are refused; schemas that people write are taken."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from antiphon.protocol.errors import InvalidRequest
from antiphon.protocol.schema import SchemaScale, check_schema

Schema = dict[str, Any]


def nest(levels: int) -> Schema:
    schema: Schema = {"type": "string"}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


def tree(levels: int, pointer: Callable[[int], str] = "#/$defs/d{}".format) -> Schema:
    """Each definition names the next one twice."""
    numbers = range(levels)
    defs = {f"d{n}": {"allOf": [{"$ref": pointer(after)}] * 2} for n, after in pairwise(numbers)}
    return {"$ref": pointer(0), "$defs": {**defs, f"d{levels - 1}": {"type": "object"}}}


def behind_many(levels: int) -> Schema:
    """The same tree, behind more references than are followed."""
    bomb = tree(levels)
    harmless = {f"h{n}": {"type": "object"} for n in range(300)}
    refs = [{"$ref": f"#/$defs/{name}"} for name in harmless]
    return {"allOf": [*refs, {"$ref": "#/$defs/d0"}], "$defs": bomb["$defs"] | harmless}


def in_a_list(levels: int) -> Schema:
    parts: list[Schema] = [{"allOf": [{"$ref": f"#/parts/{n + 1}"}] * 2} for n in range(levels)]
    return {"$ref": "#/parts/0", "parts": [*parts, {"type": "object"}]}


@pytest.mark.parametrize(
    ("schema", "code"),
    [
        ({"description": "x" * 70_000}, "schema_too_large"),
        (nest(11), "schema_too_deep"),
        (tree(40), "schema_too_large"),
        (behind_many(40), "schema_too_large"),
        (in_a_list(40), "schema_too_large"),
    ],
    ids=["large", "deep", "tree", "behind many", "in a list"],
)
def test_schema_bombs_are_refused(schema: Schema, code: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        check_schema(schema, "tools[0].parameters")
    assert caught.value.code == code
    assert caught.value.param == "tools[0].parameters"


LEAF = {"type": "integer"}
EXPRESSION: Schema = {
    "$ref": "#/$defs/node",
    "$defs": {
        "node": {"anyOf": [{"$ref": "#/$defs/add"}, LEAF]},
        "add": {
            "properties": {"left": {"$ref": "#/$defs/node"}, "right": {"$ref": "#/$defs/node"}}
        },
    },
}


@pytest.mark.parametrize(
    "schema",
    [None, nest(8), tree(5), EXPRESSION, {"properties": {"next": {"$ref": "#"}}}],
    ids=["none", "nested", "shared", "expression", "list"],
)
def test_schemas_that_people_write_are_taken(schema: Schema | None) -> None:
    check_schema(schema, "x")


@pytest.mark.parametrize(
    ("schema", "loops"),
    [(tree(5), 0), ({"properties": {"next": {"$ref": "#"}}}, 1), (EXPRESSION, 2)],
)
def test_references_of_a_schema_to_itself_are_counted(schema: Schema, loops: int) -> None:
    assert SchemaScale(schema).loops == loops


def test_a_schema_that_comes_again_is_judged_again_by_what_it_is_then() -> None:
    schema = nest(9)
    check_schema(schema, "tools[0].parameters")
    schema["properties"]["b"] = nest(10)
    for param in ("tools[0].parameters", "tools[1].parameters"):
        with pytest.raises(InvalidRequest) as caught:
            check_schema(schema, param)
        assert (caught.value.code, caught.value.param) == ("schema_too_deep", param)
    del schema["properties"]["b"]
    check_schema(schema, "tools[0].parameters")
