"""Tool calls: which are told, which are not, and why."""

from __future__ import annotations

from typing import Any

import pytest

from antiphon.host.calls import ToolCalls
from antiphon.host.errors import ChangedCall
from antiphon.protocol.items import Item
from antiphon.protocol.response import Response
from antiphon.wires.host.parts import ToolCallPart
from tests.host.streams import ARGUMENTS, CITY, call_item

NOTHING = ToolCallPart("call_1", "weather", {})
NEEDS_CITY = {
    "type": "function",
    "name": "weather",
    "parameters": {"type": "object", "required": ["city"]},
}


def response(status: str = "completed", tools: list[dict[str, Any]] | None = None) -> Response:
    return Response(id="resp_1", status=status, tools=tools)


def settle(item: Item, whole: Response | None = None) -> list[ToolCallPart] | str:
    """The calls told by the last word, or why there is none."""
    calls = ToolCalls("")
    told = calls.settle("key", item, whole or response())
    return calls.malformed[0].message if calls.malformed else told


@pytest.mark.parametrize("empty", [{"arguments": ""}, {"arguments": None}])
def test_an_empty_last_word_stands_for_no_arguments(empty: Item) -> None:
    assert settle(call_item() | empty) == [NOTHING]


def test_an_empty_word_that_is_not_the_last_stands_for_nothing() -> None:
    assert ToolCalls("").hear("key", call_item(arguments="")) == []


@pytest.mark.parametrize(
    "tools",
    [
        [NEEDS_CITY | {"name": "other"}],
        [NEEDS_CITY | {"parameters": {"type": "object", "properties": {"city": {}}}}],
        [NEEDS_CITY | {"parameters": None}],
    ],
)
def test_an_empty_last_word_is_enough_for_a_function_that_needs_nothing(
    tools: list[dict[str, Any]],
) -> None:
    assert settle(call_item(arguments=""), response(tools=tools)) == [NOTHING]


def test_an_empty_last_word_is_not_enough_for_a_function_that_needs_something() -> None:
    assert "no JSON object" in settle(call_item(arguments=""), response(tools=[NEEDS_CITY]))


def test_an_empty_call_that_was_cut_off_has_none_either() -> None:
    assert "no JSON object" in settle(call_item(arguments="", status="incomplete"))


def test_arguments_that_are_no_string_are_malformed() -> None:
    calls = ToolCalls("")
    calls.settle("key", call_item() | {"arguments": CITY}, response())
    assert calls.malformed[0].arguments == '{"city":"Ulm"}'


@pytest.mark.parametrize(
    ("status", "item_status", "is_told"),
    [
        ("completed", "completed", True),
        ("completed", "incomplete", True),
        ("incomplete", "completed", True),
        ("incomplete", None, True),
        ("incomplete", "incomplete", False),
        ("incomplete", "in_progress", False),
        ("failed", "completed", False),
        ("cancelled", "completed", False),
    ],
)
def test_a_call_counts_at_the_end_if_the_model_finished_it(
    status: str, item_status: str | None, is_told: bool
) -> None:
    told = settle(call_item(status=item_status), response(status))
    assert (told == [ToolCallPart("call_1", "weather", CITY)]) is is_told
    assert is_told or "cut off" in told


def custom(text: object, status: str | None = "completed") -> Item:
    base: Item = {"id": "ct_1", "type": "custom_tool_call", "call_id": "c", "name": "sh"}
    return base | {"input": text, "status": status}


def test_free_input_is_told_as_it_is() -> None:
    assert ToolCalls("").hear("key", custom("{")) == [
        ToolCallPart("c", "sh", {"input": "{"}, "custom")
    ]


@pytest.mark.parametrize("item", [custom("l", "incomplete"), custom("")])
def test_free_input_that_may_not_be_whole_waits(item: Item) -> None:
    assert ToolCalls("").hear("key", item) == []


@pytest.mark.parametrize("text", ["", None])
def test_free_input_may_be_empty_at_the_end(text: str | None) -> None:
    assert settle(custom(text)) == [ToolCallPart("c", "sh", {"input": ""}, "custom")]


def test_free_input_that_was_cut_off_is_an_error_even_if_the_response_is_completed() -> None:
    assert "cut off" in settle(custom("rm -r /tm", "incomplete"))


def test_free_input_that_is_no_string_is_malformed() -> None:
    calls = ToolCalls("")
    calls.settle("key", custom(["ls"]), response())
    assert calls.malformed[0].arguments == '["ls"]'


def test_a_change_after_the_call_was_told_is_noted_once() -> None:
    calls = ToolCalls("")
    calls.hear("key", call_item())
    for _ in range(2):
        assert calls.hear("key", call_item(arguments="{}")) == []
    assert calls.settle("key", call_item(arguments="{}"), response()) == []
    assert calls.deviations == ["call call_1 changed after it was handed over"]
    with pytest.raises(ChangedCall) as raised:
        calls.check(response())
    changed = raised.value
    assert (changed.call_id, changed.name) == ("call_1", "weather")
    assert (changed.told, changed.said) == (ARGUMENTS, "{}")
    assert changed.response == response()


def test_a_call_that_was_never_told_otherwise_has_not_changed() -> None:
    calls = ToolCalls("")
    calls.hear("key", call_item())
    calls.settle("key", call_item("call_9", arguments='{ "city" : "Ulm" }'), response())
    calls.check(response())


def test_the_last_word_counts_and_not_one_between() -> None:
    calls = ToolCalls("")
    calls.hear("key", call_item())
    calls.hear("key", call_item(arguments="{}"))
    calls.settle("key", call_item(), response())
    calls.check(response())
    assert calls.deviations == ["call call_1 changed after it was handed over"]


def test_a_call_that_was_told_is_not_malformed_under_another_key() -> None:
    calls = ToolCalls("")
    cut = call_item(status="incomplete")
    assert len(calls.hear("one", cut)) == 1
    assert calls.settle("two", cut, response("incomplete")) == []
    assert calls.malformed == []


def test_arguments_that_may_be_those_of_another_call_are_not_run() -> None:
    calls = ToolCalls("")
    assert (
        calls.settle("key", call_item(), response(), "its arguments may be those of another call")
        == []
    )
    assert "another call" in calls.malformed[0].message


def test_numbers_and_truth_values_are_not_the_same_payload() -> None:
    calls = ToolCalls("")
    told = [
        *calls.hear("one", call_item(arguments='{"a":1}')),
        *calls.hear("two", call_item(arguments='{"a":true}')),
    ]
    assert len(told) == 1
    assert calls.deviations == [
        "call_id call_1 stands for several calls; only the first was handed over"
    ]


@pytest.mark.parametrize(
    "arguments", ["{" * 100_000, '{"a":' * 100_000, '{"a":NaN}', '{"a":1e400}', '{"a":-Infinity}']
)
def test_arguments_that_no_parser_likes_are_malformed(arguments: str) -> None:
    assert "no JSON object" in settle(call_item(arguments=arguments))


@pytest.mark.parametrize("half", ["\\ud83d", "\ud83d"], ids=["escaped", "raw"])
def test_half_a_character_in_the_arguments_is_json(half: str) -> None:
    arguments = f'{{"id": "a{half}", "at": 0.5}}'
    assert settle(call_item(arguments=arguments)) == [
        ToolCallPart("call_1", "weather", {"id": "a\ud83d", "at": 0.5})
    ]


def test_half_a_character_in_other_words_is_the_same_payload() -> None:
    calls = ToolCalls("")
    calls.hear("key", call_item(arguments='{"id":"\\ud83d"}'))
    calls.hear("key", call_item(arguments='{ "id" : "\\uD83D" }'))
    calls.check(response())
