"""The functions that a model is shown for tools that are run here."""

from __future__ import annotations

from typing import Any

import pytest

from antiphon.plans.assess import assess
from antiphon.plans.capabilities import Capabilities
from antiphon.plans.hosted_choice import allow_hosted
from antiphon.plans.hosted_functions import HostedFunction
from antiphon.plans.hosted_offers import offer_hosted
from antiphon.plans.toolbox import Toolbox, gather_tools
from antiphon.protocol.request import read_request
from antiphon.wires.lower import lower_items, lower_tools

MCP: dict[str, Any] = {"type": "mcp", "server_label": "files", "server_url": "http://x"}
READ = HostedFunction(kind="mcp", namespace="files", name="read", description="Reads.")
WRITE = HostedFunction(kind="mcp", namespace="files", name="write")
SEARCH = HostedFunction(kind="web_search", name="web_search")


def test_hosted_functions_come_after_the_callers_tools_under_names_of_their_own() -> None:
    mine = [{"type": "function", "name": name} for name in ("files__read", "web_search")]
    toolbox, _ = gather_tools(mine)
    offered = offer_hosted(toolbox, [READ, SEARCH])
    names = [tool["name"] for tool in lower_tools(offered)]
    assert names[:2] == ["files__read", "web_search"]
    assert len(set(names)) == 4
    assert [offered.functions[name] for name in names[2:]] == [READ, SEARCH]


def test_a_function_is_offered_once() -> None:
    offered = offer_hosted(offer_hosted(Toolbox(), [READ]), [READ, WRITE])
    assert list(offered.functions) == ["files__read", "files__write"]


def test_an_earlier_call_has_the_name_that_the_function_has_now() -> None:
    toolbox, _ = gather_tools([{"type": "function", "name": "files__read"}])
    offered = offer_hosted(toolbox, [READ])
    alias = next(iter(offered.functions))
    call = {"type": "mcp_call", "server_label": "files", "name": "read", "arguments": "{}"}
    assert lower_items([call], offered)[0]["name"] == alias != "files__read"


@pytest.mark.parametrize(
    ("choice", "allowed"),
    [
        ({"type": "mcp", "server_label": "files"}, {"files__read", "files__write"}),
        ({"type": "mcp", "server_label": "files", "name": "read"}, {"files__read"}),
        ({"type": "web_search_preview"}, {"web_search"}),
        (
            {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "mcp"}]},
            {"files__read", "files__write"},
        ),
    ],
)
def test_tool_choice_means_functions_that_are_listed_later(
    choice: dict[str, Any], allowed: set[str]
) -> None:
    tools = [MCP, {"type": "web_search"}]
    request = read_request({"input": "x", "tools": tools, "tool_choice": choice})
    found = assess(request, [], Capabilities(), frozenset({"mcp", "web_search"}))
    offered = offer_hosted(found.toolbox, [READ, WRITE, SEARCH])
    policy = allow_hosted(found.policy, offered)
    assert {alias for alias in offered.aliases if policy.allows(alias)} == allowed


def test_the_declared_tool_keeps_its_place_in_the_request() -> None:
    toolbox, report = gather_tools([{"type": "shell"}, MCP], hosted=frozenset({"mcp"}))
    assert [(one.tool, one.where) for one in toolbox.declared] == [(MCP, "tools[1]")]
    assert report == []
