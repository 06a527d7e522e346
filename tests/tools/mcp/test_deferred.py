"""Tools of MCP servers that a model finds by a search, and addresses that their results show."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from antiphon.backends.scripted import ScriptedBackend, Step
from antiphon.protocol.deltas import CallMade, TextGrew
from antiphon.protocol.machines.referee import judge_stream
from antiphon.protocol.response import Response
from antiphon.testing.gateway import Gateway, serve_gateway
from antiphon.testing.tools import ScriptedTool
from antiphon.tools.mcp.settings import McpServer
from antiphon.tools.tool_search import ToolSearch
from tests.asking import ask, ask_stream, terminal
from tests.tools.mcp.gateways import STOP, mcp_gateway, tool
from tests.tools.mcp.servers import DESK, calls_in
from tests.tools.web.sessions import make_runner
from tests.web import loopback_web

SEARCH = {"type": "tool_search"}
MAIL = {
    "type": "function",
    "name": "send_mail",
    "description": "Send a letter.",
    "parameters": {"type": "object"},
    "defer_loading": True,
}
ADD = CallMade("desk__add", '{"a": 2, "b": 3}', "c")
DONE: list[Step] = [TextGrew("done"), STOP]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "calls"


@pytest.fixture
def desks(log: Path) -> dict[str, McpServer]:
    args = (str(DESK), str(log), "stdio")
    return {"desk": McpServer(command=sys.executable, args=args, connect_seconds=60)}


def late(**fields: Any) -> dict[str, Any]:
    return tool(require_approval="never", defer_loading=True, **fields)


def searching(query: str, *then: Sequence[Step]) -> ScriptedBackend:
    search = CallMade("tool_search", json.dumps({"query": query}), "s")
    return ScriptedBackend([[search, STOP], *map(list, then)])


def names(backend: ScriptedBackend, index: int) -> list[str]:
    return [offer.alias for offer in backend.plans[index].toolbox.offers]


async def asked(gateway: Gateway, **body: Any) -> Response:
    events = await ask_stream(gateway, **body)
    assert judge_stream(events) == []
    response = terminal(events)
    assert response.status == "completed", response.error
    return response


def kinds(response: Response) -> list[str]:
    return [item["type"] for item in response.output]


async def test_a_deferred_tool_of_a_server_is_found_and_called(desks: Any, log: Path) -> None:
    backend = searching("adds numbers", [ADD, STOP], DONE, DONE)
    tools = [late(), MAIL, SEARCH]
    async with mcp_gateway(backend, desks, tools=[ToolSearch()]) as gateway:
        first = await asked(gateway, tools=tools)
        await ask(gateway, tools=tools, previous_response_id=first.id)
    assert kinds(first) == [
        *["mcp_list_tools", "tool_search_call", "tool_search_output"],
        *["mcp_call", "message"],
    ]
    assert first.output[3]["output"] == "5"
    assert names(backend, 0) == ["tool_search"]
    assert names(backend, 1) == ["tool_search", "desk__add"]
    (found,) = first.output[2]["tools"]
    assert found == {"type": "mcp", "server_label": "desk", "allowed_tools": ["add"]}
    about = next(one for one in backend.plans[0].toolbox.offers).tool["description"]
    assert "To be found: send_mail, desk." in about
    # In the next turn it is still there, and the others are not.
    assert set(names(backend, 3)) == {"tool_search", "desk__add"}
    assert len(calls_in(log, "add")) == 1


async def test_tools_of_the_caller_and_of_servers_are_found_together(desks: Any) -> None:
    both: list[Step] = [[ADD, CallMade("send_mail", "{}", "m")], STOP]
    backend = searching("send a letter, and adds numbers", both)
    async with mcp_gateway(backend, desks, tools=[ToolSearch()]) as gateway:
        response = await asked(gateway, tools=[late(), MAIL, SEARCH])
    assert {"tool_search", "send_mail", "desk__add"} <= set(names(backend, 1))
    assert set(kinds(response)[-2:]) == {"mcp_call", "function_call"}
    assert {one["type"] for one in response.output[2]["tools"]} == {"function", "mcp"}


@pytest.mark.parametrize(
    "choice",
    [
        {"type": "tool_search"},
        {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "tool_search"}]},
        {"type": "allowed_tools", "mode": "required", "tools": [{"type": "tool_search"}]},
    ],
)
async def test_a_search_that_is_chosen_does_not_suppress_what_it_found(
    choice: dict[str, Any], desks: Any, log: Path
) -> None:
    mail: list[Step] = [CallMade("send_mail", "{}", "m"), STOP]
    backend = searching("send a letter, and adds numbers", [ADD, STOP], mail)
    async with mcp_gateway(backend, desks, tools=[ToolSearch()]) as gateway:
        response = await asked(gateway, tools=[late(), MAIL, SEARCH], tool_choice=choice)
    assert kinds(response)[-2:] == ["mcp_call", "function_call"]
    assert len(calls_in(log, "add")) == 1
    modes = [plan.policy.mode for plan in backend.plans]
    assert modes[1:] == ["auto", "auto"]


async def test_other_tools_that_are_chosen_stay_the_only_ones(desks: Any, log: Path) -> None:
    choice = {
        "type": "allowed_tools",
        "mode": "auto",
        "tools": [{"type": "tool_search"}, {"type": "function", "name": "now"}],
    }
    now = {"type": "function", "name": "now", "parameters": {"type": "object"}}
    backend = searching("adds numbers", [ADD, STOP], DONE)
    async with mcp_gateway(backend, desks, tools=[ToolSearch()]) as gateway:
        response = await asked(gateway, tools=[late(), now, SEARCH], tool_choice=choice)
    assert "mcp_call" not in kinds(response)
    assert calls_in(log, "add") == []


async def test_a_server_that_is_chosen_is_not_deferred(desks: Any, log: Path) -> None:
    backend = ScriptedBackend([[ADD, STOP], DONE])
    choice = {"type": "mcp", "server_label": "desk", "name": "add"}
    async with mcp_gateway(backend, desks, tools=[ToolSearch()]) as gateway:
        await asked(gateway, tools=[late(), SEARCH], tool_choice=choice)
    assert "desk__add" in names(backend, 0)
    assert len(calls_in(log, "add")) == 1


async def test_a_found_tool_still_needs_approval(desks: Any, log: Path) -> None:
    backend = searching("adds numbers", [ADD, STOP])
    tools = [tool(defer_loading=True), SEARCH]
    async with mcp_gateway(backend, desks, tools=[ToolSearch()]) as gateway:
        response = await asked(gateway, tools=tools)
    assert kinds(response)[-1] == "mcp_approval_request"
    assert calls_in(log, "add") == []


async def test_without_a_search_deferred_tools_are_shown_and_that_is_reported(desks: Any) -> None:
    backend = ScriptedBackend([DONE])
    async with mcp_gateway(backend, desks) as gateway:
        response = await asked(gateway, tools=[late()])
    assert "desk__add" in names(backend, 0)
    assert "tools[0].defer_loading" in str(response.antiphon)


# Addresses.


@pytest.mark.parametrize("is_shown", [True, False])
async def test_a_page_that_a_result_of_this_turn_named_can_be_opened(*, is_shown: bool) -> None:
    async with loopback_web() as web:
        url = f"{web.url}/tides"
        server = ScriptedTool(lambda call: [f"see {url} for more" if is_shown else "nothing"])
        page = CallMade("open_page", json.dumps({"url": url}), "p")
        backend = ScriptedBackend([[CallMade("test__look", "{}", "c"), STOP], [page, STOP], DONE])
        tools = [{"type": "mcp", "server_label": "test"}, {"type": "web_search"}]
        async with serve_gateway(backend, tools=[make_runner(web), server]) as gateway:
            response = await asked(gateway, tools=tools)
        assert kinds(response) == ["mcp_call", "web_search_call", "message"]
        assert response.output[1]["status"] == ("completed" if is_shown else "failed")
        assert ("/tides" in str(web.opened)) is is_shown


async def test_a_page_that_only_a_failed_call_named_cannot_be_opened() -> None:
    async with loopback_web() as web:
        url = f"{web.url}/tides"
        page = CallMade("open_page", json.dumps({"url": url}), "p")
        backend = ScriptedBackend([[page, STOP], [page, STOP], DONE])
        async with serve_gateway(backend, tools=[make_runner(web)]) as gateway:
            response = await asked(gateway, tools=[{"type": "web_search"}])
        assert [item["status"] for item in response.output[:2]] == ["failed", "failed"]
        assert web.opened == []
