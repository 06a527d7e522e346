"""What of a request can be done where only functions are run."""

from __future__ import annotations

from typing import Any

import pytest

from antiphon.protocol.checked import check_request
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

    assert checked.tools == [_FUNCTION]
    assert checked.degraded == ["tools[0] (web_search): nobody here can run it"]


def test_what_a_function_asks_for_beyond_its_schema_is_reported() -> None:
    tool = {**_FUNCTION, "defer_loading": True, "output_schema": None}

    assert check_request(read_request({"input": "x", "tools": [tool]})).degraded == [
        "tools[0].defer_loading"
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
    assert "tool_choice (web_search): nobody here can run it" in checked.degraded


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
