"""The small decisions of a turn: what is left out, what is checked, what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from antiphon.engine.prepare.format import FormatCheck
from antiphon.engine.prepare.validate import refuse_degraded, refuse_impossible
from antiphon.engine.run.truncate import drop_oldest
from antiphon.protocol.errors import InvalidRequest
from antiphon.protocol.items import Item
from antiphon.protocol.request import read_request
from tests.building import assessed


def _user(text: str) -> Item:
    return {"type": "message", "role": "user", "content": text}


def test_the_oldest_half_of_the_turns_goes_first() -> None:
    system = {"type": "message", "role": "system", "content": "rules"}
    call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
    output = {"type": "function_call_output", "call_id": "c", "output": "x"}
    items = [system, _user("1"), call, output, _user("2"), _user("3"), call, output]

    assert drop_oldest(items) == [system, _user("2"), _user("3"), call, output]
    assert drop_oldest([system, _user("1"), call, output]) is None


@pytest.mark.parametrize(
    ("form", "text", "is_fine"),
    [
        ({"type": "json_object"}, '{"a":1}', True),
        ({"type": "json_object"}, "[1]", False),
        ({"type": "json_object"}, "hello", False),
        ({"type": "json_schema", "schema": {"type": "array"}}, "[]", True),
        ({"type": "json_schema", "schema": {"required": ["a"]}}, "{}", False),
    ],
)
def test_an_answer_is_held_against_its_format(
    form: dict[str, Any], text: str, is_fine: bool
) -> None:
    assert (FormatCheck(form).problem(text) is None) is is_fine


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "nonsense"},
        {"$ref": "http://127.0.0.1:9/other.json"},
        {"pattern": "("},
        {"pattern": "(?=a)b"},
        # Other ways to say a pointer, by which a bomb could pass the scale.
        {"$ref": "#/$defs/a~1b", "$defs": {"a/b": {}}},
        {"$ref": "#/%24defs/a", "$defs": {"a": {}}},
        {"$ref": "#//a", "": {"a": {}}},
        {"$ref": "#a", "$defs": {"a": {"$anchor": "a"}}},
        {"$ref": "urn:a", "$defs": {"a": {"$id": "urn:a"}}},
        {"$dynamicRef": "#a", "$defs": {"a": {"$dynamicAnchor": "a"}}},
    ],
)
def test_a_schema_that_cannot_be_used_is_refused_and_nothing_is_fetched(
    schema: dict[str, Any],
) -> None:
    with pytest.raises(InvalidRequest) as caught:
        FormatCheck({"type": "json_schema", "schema": schema})
    assert caught.value.param == "text.format.schema"


def test_a_schema_may_refer_to_its_own_parts_and_have_an_id() -> None:
    schema = {"$id": "urn:mine", "$ref": "#/$defs/a", "$defs": {"a": {"type": "array"}}}
    check = FormatCheck({"type": "json_schema", "schema": schema})

    assert check.problem("[]") is None
    assert check.problem("{}") is not None


def test_an_answer_whose_check_would_double_with_each_level_is_not_checked() -> None:
    twice = {"properties": {"a": {"allOf": [{"$ref": "#"}, {"$ref": "#"}]}}}
    check = FormatCheck({"type": "json_schema", "schema": twice, "strict": True})

    assert check.why_unchecked('{"a":' * 8 + "{}" + "}" * 8) is None
    assert check.why_unchecked('{"a":' * 60 + "{}" + "}" * 60) is not None


def test_json_that_is_nested_beyond_reason_is_no_json() -> None:
    assert FormatCheck({"type": "json_object"}).problem("[" * 100_000 + "]" * 100_000) is not None


_FUNCTION = {"type": "function", "name": "f"}


@pytest.mark.requirement("003-flow-1")
@pytest.mark.parametrize(
    ("body", "error", "param"),
    [
        (
            {"tools": [{"type": "web_search"}], "tool_choice": "required"},
            InvalidRequest,
            "tool_choice",
        ),
        (
            {"tools": [{"type": "web_search"}], "tool_choice": {"type": "web_search"}},
            InvalidRequest,
            "tool_choice",
        ),
        (
            {"tools": [_FUNCTION], "tool_choice": {"type": "function", "name": "g"}},
            InvalidRequest,
            "tool_choice",
        ),
        ({"tools": [_FUNCTION, _FUNCTION]}, InvalidRequest, "tools"),
        ({"background": True, "store": False}, InvalidRequest, "store"),
    ],
)
def test_what_would_make_the_answer_wrong_is_refused(
    body: dict[str, Any], error: type[InvalidRequest], param: str
) -> None:
    with pytest.raises(error) as caught:
        request = read_request({"input": "x"} | body)
        refuse_impossible(request)
        assessed(request)
    assert caught.value.param == param


def test_a_request_without_input_names_it() -> None:
    with pytest.raises(InvalidRequest) as caught:
        refuse_impossible(read_request({}))
    assert caught.value.param == "input"


def test_strict_names_what_it_refuses() -> None:
    with pytest.raises(InvalidRequest) as caught:
        refuse_degraded(["tools[0] (web_search): it cannot be run here"])
    assert caught.value.param == "tools[0]"
