"""Tool limits: what may be sent, what is refused, and what is logged on the way there."""

from __future__ import annotations

import logging
from typing import Any

import msgspec
import pytest

from antiphon.client.errors import BadCall, BadTool, TooManyTools
from antiphon.client.tool_limits import ToolLimits, prepare_tools

DEFAULT = ToolLimits()


def function(name: str = "find", **fields: Any) -> dict[str, Any]:
    return {"type": "function", "name": name, **fields}


def with_schema(**schema: Any) -> dict[str, Any]:
    return function(parameters={"type": "object", **schema})


def many(count: int) -> list[dict[str, Any]]:
    return [function(f"f{index}") for index in range(count)]


@pytest.mark.requirement("22-B4", "REQ-006.1")
def test_the_defaults_are_sixteen_tools_and_32_kilobytes() -> None:
    assert (DEFAULT.max_count, DEFAULT.max_size) == (16, 32768)
    assert prepare_tools(many(16), DEFAULT) == many(16)


@pytest.mark.requirement("22-B4", "REQ-006.2")
def test_one_tool_too_many_is_refused_with_exact_figures() -> None:
    with pytest.raises(TooManyTools) as refusal:
        prepare_tools(many(17), DEFAULT)
    size = len(msgspec.json.encode(many(17)))
    assert (refusal.value.count, refusal.value.size) == (17, size)
    assert (refusal.value.max_count, refusal.value.max_size) == (16, 32768)
    assert f"17 tools of {size} bytes" in refusal.value.message


@pytest.mark.requirement("22-B4", "REQ-006.1", "REQ-006.2")
def test_one_byte_too_much_is_refused() -> None:
    tools = [function()]
    size = len(msgspec.json.encode(tools))
    assert prepare_tools(tools, ToolLimits(max_size=size)) == tools
    with pytest.raises(TooManyTools) as refusal:
        prepare_tools(tools, ToolLimits(max_size=size - 1))
    assert refusal.value.size == size


@pytest.mark.requirement("REQ-006.1")
def test_the_caps_can_be_raised() -> None:
    assert len(prepare_tools(many(100), ToolLimits(max_count=100))) == 100


@pytest.mark.requirement("REQ-006.1")
def test_without_a_cap_any_number_of_tools_of_any_size_may_be_sent() -> None:
    no_count = ToolLimits(max_count=None, max_size=2**20)
    no_limit = ToolLimits(max_count=None, max_size=None)
    assert len(prepare_tools(many(3000), no_count)) == 3000
    assert len(prepare_tools(many(30_000), no_limit)) == 30_000
    with pytest.raises(TooManyTools, match="at most 10 bytes are allowed"):
        prepare_tools(many(1), ToolLimits(max_count=None, max_size=10))
    with pytest.raises(TooManyTools, match="at most 16 tools are allowed"):
        prepare_tools(many(17), ToolLimits(max_size=None))


@pytest.mark.requirement("REQ-006.2", "REQ-010.1")
@pytest.mark.parametrize(
    ("limits", "tools", "lines"),
    [
        (ToolLimits(), many(12), 0),
        (ToolLimits(), many(13), 1),
        (ToolLimits(max_size=450), many(12), 1),
        (ToolLimits(soft=1.0), many(16), 0),
    ],
)
def test_near_a_cap_there_is_one_line_with_figures_only(
    limits: ToolLimits, tools: list[Any], lines: int, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG, "antiphon.client"):
        prepare_tools(tools, limits)
    assert len(caplog.records) == lines
    for record in caplog.records:
        size = len(msgspec.json.encode(tools))
        assert record.levelno == logging.DEBUG
        assert f"{len(tools)} of 16 tools, {size} of {limits.max_size} bytes" in record.getMessage()
        assert "f1" not in record.getMessage()


@pytest.mark.requirement("22-D1", "22-B4", "003-tools")
def test_a_tool_in_chat_shape_is_made_flat_and_stays_lenient() -> None:
    inner = {"name": "find", "description": "d", "parameters": {"type": "object"}}
    assert prepare_tools([{"type": "function", "function": inner}], DEFAULT) == [
        {"type": "function", **inner, "strict": False}
    ]
    strict = {"type": "function", "function": {**inner, "strict": True}}
    assert prepare_tools([strict], DEFAULT)[0]["strict"] is True


def test_a_custom_tool_in_chat_shape_is_made_flat() -> None:
    grammar = {"definition": "a: b", "syntax": "lark"}
    tool = {
        "type": "custom",
        "custom": {"name": "sh", "format": {"type": "grammar", "grammar": grammar}},
    }
    assert prepare_tools([tool], DEFAULT) == [
        {"type": "custom", "name": "sh", "format": {"type": "grammar", **grammar}}
    ]


def test_other_tools_are_only_counted() -> None:
    odd = {"type": "mcp", "name": "not a name!", "description": "x" * 999, "parameters": 5}
    assert prepare_tools([odd, odd], DEFAULT) == [odd, odd]


@pytest.mark.requirement("22-D1")
@pytest.mark.parametrize("name", ["a", "a" * 90, "Get_weather-2"])
def test_a_name_of_the_rules_passes(name: str) -> None:
    assert prepare_tools([function(name)], DEFAULT) == [function(name)]


@pytest.mark.requirement("22-D1")
@pytest.mark.parametrize("name", ["", "a" * 91, "get weather", "größe", "a.b", "a\n", None, 7])
def test_a_name_against_the_rules_is_refused(name: Any) -> None:
    with pytest.raises(BadTool) as refusal:
        prepare_tools([function(name)], DEFAULT)
    assert refusal.value.tool == str(name)


@pytest.mark.requirement("22-D1")
def test_the_limits_of_names_and_descriptions_can_be_lifted() -> None:
    tool = function("a" * 200, description="d" * 2000)
    assert prepare_tools([tool], ToolLimits(max_name=None, max_description=None)) == [tool]
    with pytest.raises(BadTool, match="200 characters; at most 64"):
        prepare_tools([tool], ToolLimits(max_name=64))


@pytest.mark.requirement("22-D1")
@pytest.mark.parametrize(
    ("fields", "rule"),
    [
        ({"description": "d" * 257}, "257 characters; at most 256"),
        ({"description": 7}, "description must be a string"),
        ({"strict": "yes"}, "strict must be"),
        ({"parameters": {}}, '"type": "object" at the top'),
        ({"parameters": {"type": "array"}}, '"type": "object" at the top'),
        ({"parameters": {"$ref": "#/$defs/a", "$defs": {"a": {}}}}, '"type": "object" at the top'),
        ({"parameters": "x"}, '"type": "object" at the top'),
    ],
)
def test_a_function_against_the_rules_is_refused_by_name(fields: Any, rule: str) -> None:
    with pytest.raises(BadTool, match=rule) as refusal:
        prepare_tools([function(**fields)], DEFAULT)
    assert refusal.value.tool == "find"
    assert refusal.value.param == "tools"


@pytest.mark.requirement("22-D1")
@pytest.mark.parametrize(
    "tool",
    [
        function(description="d" * 256),
        function(description=None, parameters=None, strict=None),
        with_schema(),
        with_schema(properties={}, required=[], additionalProperties=False),
        with_schema(properties={"a": {"type": ["string", "null"]}, "b": True}),
        with_schema(properties={"$ref": {"type": "string"}, "default": {"$ref": "#/$defs/x"}},
                    **{"$defs": {"x": {"enum": [{"$ref": "https://data.example"}]}}}),
        with_schema(properties={"a": {"$ref": "#/$defs/x~1y"}}, **{"$defs": {"x/y": {}}}),
        with_schema(properties={"tree": {"$ref": "#"}}),
        with_schema(anyOf=[{"required": ["a"]}, {"$ref": "#/anyOf/0"}]),
        with_schema(**{"$schema": "https://unknown.example/schema", "$id": "https://x.example"}),
        with_schema(nullable=True, example={"a": 1}),
    ],
)  # fmt: skip
def test_a_schema_of_the_subset_passes(tool: dict[str, Any]) -> None:
    assert prepare_tools([tool], DEFAULT) == [tool]


@pytest.mark.requirement("22-D1")
@pytest.mark.parametrize(
    ("schema", "rule"),
    [
        ({"properties": []}, "parameters.properties is not"),
        ({"properties": {"a": {"type": "text"}}}, "parameters.properties.a.type is not"),
        ({"properties": {"a": {"items": [{}]}}}, "parameters.properties.a.items is not"),
        ({"properties": {"a": {"exclusiveMinimum": True}}}, "exclusiveMinimum is not"),
        ({"required": "a"}, "parameters.required is not"),
        ({"properties": {1: {}}}, "no JSON Schema|cannot be written as JSON"),
        ({"items": {"$ref": "https://x.example/a"}}, "refer to 'https://x.example/a'"),
        ({"not": {"$ref": "other.json#/a"}}, "refer to 'other.json#/a'"),
        ({"allOf": [{"$dynamicRef": "x"}]}, "refer to 'x'"),
        ({"$defs": {"a": {"$ref": "#/$defs/b"}}}, "refer to '#/\\$defs/b'"),
        ({"anyOf": [{"$ref": "#/anyOf/7"}]}, "refer to '#/anyOf/7'"),
        ({"properties": {"a": {"$ref": "#/type"}}}, "refer to '#/type'"),
        ({"properties": {"a": {"$ref": "#/type/x"}}}, "refer to '#/type/x'"),
    ],
)
def test_a_schema_outside_the_subset_is_refused(schema: dict[Any, Any], rule: str) -> None:
    tool = function(parameters={"type": "object", **schema})
    with pytest.raises(BadTool, match=rule) as refusal:
        prepare_tools([tool], DEFAULT)
    assert refusal.value.tool == "find"


def test_two_functions_of_one_name_are_refused() -> None:
    with pytest.raises(BadTool, match="two functions of this name"):
        prepare_tools([function(), {"type": "web_search"}, function()], DEFAULT)


@pytest.mark.parametrize("tool", ["find", {}, {"type": 7}])
def test_a_tool_needs_a_type(tool: Any) -> None:
    with pytest.raises(BadTool, match="must be a dict with a type"):
        prepare_tools([tool], DEFAULT)


@pytest.mark.parametrize("tools", ["find", {"type": "function"}, 7])
def test_tools_are_a_list(tools: Any) -> None:
    with pytest.raises(BadCall, match="tools must be a list"):
        prepare_tools(tools, DEFAULT)
