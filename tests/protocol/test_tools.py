"""Tools and tool_choice, made plain."""

from __future__ import annotations

from typing import Any

import pytest

from antiphon.protocol.errors import InvalidRequest
from antiphon.protocol.tools import (
    Meant,
    ToolChoice,
    ToolPolicy,
    check_shape,
    read_choice,
)


def test_a_policy_allows_what_it_names() -> None:
    assert ToolPolicy().allows("f")
    assert ToolPolicy("required", frozenset({"f"})).allows("f")
    assert not ToolPolicy("auto", frozenset({"f"})).allows("g")
    assert not ToolPolicy("none", frozenset({"f"})).allows("f")


@pytest.mark.parametrize(
    ("meant", "label"),
    [
        (Meant("function", "f"), "f"),
        (Meant("function", "f", "n"), "n.f"),
        (Meant("namespace", "n"), "n"),
        (Meant("shell"), "shell"),
    ],
)
def test_a_tool_that_is_meant_has_a_label(meant: Meant, label: str) -> None:
    assert meant.label == label


@pytest.mark.parametrize(
    ("choice", "plain"),
    [
        ("auto", ToolChoice()),
        ({"type": "namespace", "name": "n"}, ToolChoice("required", (Meant("namespace", "n"),))),
        ({"type": "apply_patch"}, ToolChoice("required", (Meant("apply_patch"),))),
        ({"type": "mcp", "name": 3}, ToolChoice("required", (Meant("mcp"),))),
        (
            {"type": "allowed_tools", "mode": None, "tools": [{"type": "shell"}, {}]},
            ToolChoice("auto", (Meant("shell"), Meant("None"))),
        ),
    ],
)
def test_a_choice_is_a_mode_and_what_is_meant(choice: Any, plain: ToolChoice) -> None:
    assert read_choice(choice) == plain


def test_a_mode_of_allowed_tools_that_is_none_is_named() -> None:
    with pytest.raises(InvalidRequest) as caught:
        read_choice({"type": "allowed_tools", "mode": "maybe", "tools": [{"type": "shell"}]})
    assert caught.value.param == "tool_choice.mode"


def test_a_definition_of_another_type_is_not_a_missing_one() -> None:
    form = {"type": "grammar", "syntax": "lark", "definition": 3}
    with pytest.raises(InvalidRequest) as caught:
        check_shape({"type": "custom", "name": "c", "format": form}, "tools[0]")
    assert (caught.value.code, caught.value.param) == ("invalid_type", "tools[0].format.definition")


def test_what_a_tool_of_an_unknown_kind_holds_is_not_looked_at() -> None:
    check_shape({"type": "acme", "name": "", "format": 3, "parameters": 3}, "tools[0]")
