"""What of a request can be done where the only tools are those that the caller runs."""

from __future__ import annotations

from typing import Any

import pytest

from antiphon.plans.assess import check_request
from antiphon.protocol.errors import InvalidRequest
from antiphon.protocol.request import read_request
from antiphon.protocol.tools import ToolPolicy

_FUNCTION = {"type": "function", "name": "f"}
_SEARCH = {"type": "web_search"}


@pytest.mark.requirement("003-flow-4", "003-tools")
def test_tools_nobody_can_run_are_reported() -> None:
    checked = check_request(
        read_request({"input": "x", "tools": [{"type": "web_search"}, _FUNCTION]})
    )

    assert [offer.tool for offer in checked.toolbox.offers] == [_FUNCTION]
    assert checked.degraded == ["tools[0] (web_search): it cannot be run here"]


def test_what_a_function_asks_for_beyond_its_schema_is_reported() -> None:
    tool = {**_FUNCTION, "defer_loading": True, "output_schema": None}

    assert check_request(read_request({"input": "x", "tools": [tool]})).degraded == [
        "tools[0].defer_loading: nothing here could load it later"
    ]


@pytest.mark.requirement("003-tools")
@pytest.mark.parametrize(
    "body",
    [
        {"tools": [_SEARCH], "tool_choice": "required"},
        {"tools": [_SEARCH], "tool_choice": {"type": "web_search"}},
        {"tools": [_FUNCTION], "tool_choice": {"type": "function", "name": "g"}},
    ],
)
def test_forcing_what_nobody_can_run_is_refused(body: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest) as caught:
        check_request(read_request({"input": "x"} | body))
    assert caught.value.param == "tool_choice"


def test_two_tools_of_one_name_are_refused() -> None:
    with pytest.raises(InvalidRequest) as caught:
        check_request(read_request({"input": "x", "tools": [_FUNCTION, _FUNCTION]}))
    assert caught.value.code == "duplicate_tool"


def test_a_choice_among_tools_is_narrowed_to_those_that_can_be_run() -> None:
    choice = {"type": "allowed_tools", "mode": "auto", "tools": [_FUNCTION, _SEARCH]}

    checked = check_request(
        read_request({"input": "x", "tools": [_FUNCTION, _SEARCH], "tool_choice": choice})
    )

    assert checked.policy == ToolPolicy("auto", frozenset({"f"}))
    assert "tool_choice (web_search): it cannot be run here" in checked.degraded


@pytest.mark.requirement("003-ignored-1")
def test_what_is_asked_of_the_answer_and_never_given_is_reported() -> None:
    body = {
        "input": "x",
        "include": ["message.output_text.logprobs", "file_search_call.results"],
        "stream_options": {"include_obfuscation": True},
    }

    assert check_request(read_request(body)).degraded == [
        "include (file_search_call.results)",
        "stream_options.include_obfuscation",
    ]


_COMPACTION = {"type": "compaction", "compact_threshold": 1000}


@pytest.mark.parametrize(
    ("body", "note"),
    [
        ({"include": ["reasoning.encrypted_content"]}, "include (reasoning.encrypted_content)"),
        ({"context_management": [_COMPACTION]}, "context_management"),
    ],
)
def test_what_needs_sealing_is_reported_where_nothing_is_sealed(
    body: dict[str, Any], note: str
) -> None:
    request = read_request({"input": "x"} | body)
    assert check_request(request, can_seal=True).degraded == []
    assert check_request(request).degraded == [note]
    assert check_request(request, how_to_seal="try this").degraded == [f"{note}: try this"]


@pytest.mark.parametrize("entry", [{"type": "other"}, {"type": "compaction"}])
def test_context_management_that_cannot_be_done_is_reported(entry: dict[str, Any]) -> None:
    request = read_request({"input": "x", "context_management": [entry, _COMPACTION]})
    (note,) = check_request(request, can_seal=True).degraded
    assert note.startswith("context_management[0]")


def test_a_request_that_only_compacts_calls_no_tool() -> None:
    trigger = {"type": "compaction_trigger"}
    body = {"input": [trigger], "tools": [_FUNCTION], "tool_choice": "required"}
    assert check_request(read_request(body)).policy == ToolPolicy("none")


def test_tools_of_the_whole_context_count() -> None:
    carrier = {"type": "additional_tools", "role": "developer", "tools": [_FUNCTION, _SEARCH]}
    request = read_request({"input": "x", "tool_choice": {"type": "function", "name": "f"}})

    checked = check_request(request, [carrier, *request.items])

    assert [offer.where for offer in checked.toolbox.offers] == ["input[0].tools[0]"]
    assert checked.policy == ToolPolicy("required", frozenset({"f"}))
    assert checked.degraded == ["input[0].tools[1] (web_search): it cannot be run here"]


def test_a_choice_holds_for_the_names_that_the_model_knows() -> None:
    space = {"type": "namespace", "name": "a.b", "tools": [_FUNCTION]}
    choice = {"type": "namespace", "name": "a.b"}
    request = read_request({"input": "x", "tools": [space], "tool_choice": choice})
    assert check_request(request).policy == ToolPolicy("required", frozenset({"a_b__f"}))


def test_a_request_that_generates_nothing_calls_no_tool() -> None:
    body = {"input": "x", "tools": [_FUNCTION], "generate": False}
    assert check_request(read_request(body)).policy == ToolPolicy("none")
