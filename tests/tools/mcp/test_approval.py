"""require_approval in all its forms."""

from __future__ import annotations

from typing import Any

import pytest
from openai.lib.responses_tool_runner import _mcp_approval_policy

from antiphon.protocol.errors import InvalidRequest
from antiphon.tools.mcp.approval import read_rule

_NAMES = {"tool_names": ["write"]}
_OTHERS = {"tool_names": ["read"]}


@pytest.mark.parametrize("name", ["write", "read", "other"])
@pytest.mark.parametrize(
    "value",
    [
        None,
        "always",
        "never",
        {"always": _NAMES},
        {"never": _NAMES},
        {"always": _NAMES, "never": _OTHERS},
        {"always": {}},
        {"never": {}},
        {"always": {"tool_names": []}},
        {"never": {"tool_names": []}},
        {},
    ],
)
def test_the_rule_is_the_one_that_the_openai_sdk_checks(value: Any, name: str) -> None:
    needs = read_rule(value, "tools[0]").needs_approval(
        name, is_read_only=False, trusts_read_only=False
    )
    told = _mcp_approval_policy({"require_approval": value}, name)
    assert needs == ((told or "always") == "always")


@pytest.mark.parametrize(
    "value",
    [
        {"always": _NAMES, "never": _NAMES},
        {"always": {}, "never": _NAMES},
        {"always": _NAMES, "never": {}},
        {"always": {}, "never": {}},
    ],
)
def test_a_contradiction_is_refused(value: Any) -> None:
    with pytest.raises(InvalidRequest, match="under always and under never"):
        read_rule(value, "tools[0]")


@pytest.mark.parametrize(
    "value", ["sometimes", 1, [], {"maybe": {}}, {"always": ["a"]}, {"never": {"names": []}}]
)
def test_what_has_no_meaning_is_refused(value: Any) -> None:
    with pytest.raises(InvalidRequest, match="require_approval"):
        read_rule(value, "tools[0]")


@pytest.mark.parametrize(
    ("is_read_only", "trusts", "needs"),
    [(True, True, False), (True, False, True), (False, True, True), (False, False, True)],
)
def test_a_claim_to_be_read_only_counts_only_if_it_is_trusted(
    is_read_only: bool, trusts: bool, needs: bool
) -> None:
    rule = read_rule({"never": {"read_only": True}}, "tools[0]")
    assert needs == rule.needs_approval("peek", is_read_only=is_read_only, trusts_read_only=trusts)


def test_a_read_only_tool_that_both_filters_match_needs_approval() -> None:
    rule = read_rule({"always": {"read_only": True}, "never": {"tool_names": ["peek"]}}, "t")
    assert rule.needs_approval("peek", is_read_only=True, trusts_read_only=True)
    assert not rule.needs_approval("peek", is_read_only=False, trusts_read_only=True)
