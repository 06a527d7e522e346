"""tool_choice: which tools are meant, and what cannot be forced."""

from __future__ import annotations

from typing import Any

import pytest

from antiphon.plans.tool_choice import resolve_choice
from antiphon.plans.toolbox import gather_tools
from antiphon.protocol.errors import InvalidRequest
from antiphon.protocol.tools import Tool, ToolPolicy, read_choice
from tests.plans.test_toolbox import SEARCH, box, custom, function, space

TOOLS = [
    function("f"),
    custom("c"),
    space("a", function("f"), function("g"), custom("c")),
    {"type": "shell"},
    {"type": "apply_patch"},
    {"type": "web_search"},
]


def policy(choice: Any, *tools: Tool) -> tuple[ToolPolicy, list[str]]:
    given = list(tools) or TOOLS
    return resolve_choice(read_choice(choice), gather_tools(given)[0], given)


@pytest.mark.parametrize(
    ("choice", "allowed"),
    [
        ({"type": "function", "name": "f"}, {"f"}),
        ({"type": "function", "name": "f", "namespace": "a"}, {"a__f"}),
        ({"type": "function", "name": "g"}, {"a__g"}),
        ({"type": "custom", "name": "c"}, {"c"}),
        ({"type": "custom", "name": "c", "namespace": "a"}, {"a__c"}),
        ({"type": "namespace", "name": "a"}, {"a__f", "a__g", "a__c"}),
        ({"type": "shell"}, {"shell"}),
        ({"type": "apply_patch"}, {"apply_patch"}),
    ],
)
def test_a_tool_that_is_named_is_forced(choice: Any, allowed: set[str]) -> None:
    assert policy(choice) == (ToolPolicy("required", frozenset(allowed)), [])


@pytest.mark.parametrize("mode", ["auto", "none", "required"])
def test_a_mode_is_for_all_tools(mode: Any) -> None:
    assert policy(mode) == (ToolPolicy(mode), [])


def test_allowed_tools_are_the_sum_of_what_is_named() -> None:
    named = [{"type": "namespace", "name": "a"}, {"type": "shell"}, {"type": "web_search"}]
    found, report = policy({"type": "allowed_tools", "mode": "auto", "tools": named})
    assert found == ToolPolicy("auto", frozenset({"a__f", "a__g", "a__c", "shell"}))
    assert report == ["tool_choice (web_search): it cannot be run here"]


@pytest.mark.parametrize(
    "choice",
    [
        {"type": "function", "name": "h"},
        {"type": "function", "name": "f", "namespace": "b"},
        {"type": "function", "name": "h", "namespace": "a"},
        {"type": "namespace", "name": "b"},
        {"type": "namespace"},
        {"type": "local_shell"},
    ],
)
def test_a_choice_of_what_is_not_there_is_refused(choice: Any) -> None:
    with pytest.raises(InvalidRequest, match="not among the tools") as caught:
        policy(choice)
    assert caught.value.param == "tool_choice"


@pytest.mark.parametrize(
    ("choice", "tools"),
    [
        ({"type": "web_search"}, [{"type": "web_search"}]),
        ({"type": "mcp", "server_label": "x", "name": "f"}, [{"type": "mcp", "server_label": "x"}]),
        ("required", [{"type": "web_search"}]),
        (
            {"type": "function", "name": "f", "namespace": "a"},
            [space("a", function("f", allowed_callers=["programmatic"]))],
        ),
        (
            {"type": "function", "name": "late"},
            [SEARCH, function("late", defer_loading=True)],
        ),
        (
            {"type": "function", "name": "f", "namespace": "a"},
            [SEARCH, space("a", function("f", defer_loading=True))],
        ),
    ],
)
def test_to_force_what_cannot_be_called_is_refused(choice: Any, tools: list[Tool]) -> None:
    with pytest.raises(InvalidRequest) as caught:
        policy(choice, *tools)
    assert caught.value.code == "unsupported_tool"


def test_tools_that_items_carry_can_be_forced() -> None:
    toolbox = box(items=[{"type": "additional_tools", "tools": [function("late")]}])
    choice = read_choice({"type": "function", "name": "late"})
    assert resolve_choice(choice, toolbox, [])[0] == ToolPolicy("required", frozenset({"late"}))
