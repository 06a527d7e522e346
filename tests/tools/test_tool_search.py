"""A search for deferred tools that the gateway runs."""

from __future__ import annotations

from typing import Any

import pytest

from antiphon.backends.scripted import ScriptedBackend, Step
from antiphon.plans.toolbox import gather_tools
from antiphon.protocol.deltas import CallMade, Stopped, TextGrew
from antiphon.protocol.machines.referee import judge_stream
from antiphon.testing.gateway import serve_gateway
from antiphon.tools.tool_search import ToolSearch, rank_tools
from tests.asking import ask, ask_stream, terminal

SEARCH = {"type": "tool_search"}
STOP = Stopped("stop")


def function(name: str, about: str, **more: Any) -> dict[str, Any]:
    """Return a tool that is shown only when it was found."""
    return {
        "type": "function",
        "name": name,
        "description": about,
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
        "defer_loading": True,
        **more,
    }


WEATHER = function("get_forecast", "Return the weather of a city for the next days.")
MAIL = function("send_mail", "Send an electronic letter to somebody.")
CRM = {
    "type": "namespace",
    "name": "crm",
    "description": "Customers.",
    "tools": [function("listOrders", "All orders of a customer.")],
}
NOW = {"type": "function", "name": "now", "parameters": {"type": "object"}}
TOOLS = [NOW, WEATHER, MAIL, CRM, SEARCH]


def searching(query: str, *then: list[Step]) -> ScriptedBackend:
    """Return a model that searches first."""
    call = CallMade("tool_search", f'{{"query":"{query}"}}', "s")
    return ScriptedBackend([[call, STOP], *then])


def names(backend: ScriptedBackend, index: int) -> list[str]:
    """Return what the model could call in a round."""
    return [offer.alias for offer in backend.plans[index].toolbox.offers]


async def test_what_is_found_can_be_called_in_the_next_round() -> None:
    backend = searching(
        "weather forecast", [CallMade("get_forecast", '{"city":"Oslo"}', "c"), STOP]
    )
    async with serve_gateway(backend, tools=[ToolSearch()]) as gateway:
        events = await ask_stream(gateway, tools=TOOLS)
    response = terminal(events)
    assert judge_stream(events) == []
    assert response.status == "completed", response.error
    kinds = [item["type"] for item in response.output]
    assert kinds == ["tool_search_call", "tool_search_output", "function_call"]
    search, found, made = response.output
    assert (search["execution"], search["status"]) == ("server", "completed")
    assert search["arguments"] == {"query": "weather forecast"}
    assert [tool["name"] for tool in found["tools"]] == ["get_forecast"]
    assert made["name"] == "get_forecast"
    assert names(backend, 0) == ["now", "tool_search"]
    assert names(backend, 1) == ["now", "tool_search", "get_forecast"]


async def test_a_later_turn_still_has_what_was_found() -> None:
    done: list[Step] = [TextGrew("ok"), STOP]
    backend = searching("orders of a customer", done, done)
    async with serve_gateway(backend, tools=[ToolSearch()]) as gateway:
        first = terminal(await ask_stream(gateway, tools=TOOLS))
        await ask(gateway, tools=TOOLS, previous_response_id=first.id)
    assert names(backend, 1) == ["now", "tool_search", "crm__listOrders"]
    assert set(names(backend, 2)) == {"now", "crm__listOrders", "tool_search"}
    assert [tool["type"] for tool in first.output[1]["tools"]] == ["namespace"]


async def test_a_search_that_finds_nothing_says_so_and_the_model_goes_on() -> None:
    backend = searching("xylophone", [TextGrew("sorry"), STOP])
    async with serve_gateway(backend, tools=[ToolSearch()]) as gateway:
        response = terminal(await ask_stream(gateway, tools=TOOLS))
    assert response.output[1]["tools"] == []
    assert backend.plans[1].items[-1]["output"].endswith("No tool was found.")


async def test_a_search_without_a_query_makes_no_item() -> None:
    wrong: list[Step] = [CallMade("tool_search", "{}", "s"), STOP]
    backend = ScriptedBackend([wrong, [TextGrew("sorry"), STOP]])
    async with serve_gateway(backend, tools=[ToolSearch()]) as gateway:
        response = terminal(await ask_stream(gateway, tools=TOOLS))
    assert [item["type"] for item in response.output] == ["message"]
    assert backend.plans[1].items[-1]["output"].startswith("error:")


async def test_a_found_tool_is_checked_as_any_other() -> None:
    strict = function("get_forecast", "weather", strict=True)
    strict["parameters"] |= {"required": ["city"], "additionalProperties": False}
    bad: list[Step] = [CallMade("get_forecast", '{"town":1}', "c"), STOP]
    good: list[Step] = [CallMade("get_forecast", '{"city":"Oslo"}', "c"), STOP]
    backend = searching("weather", bad, good)
    backend.capabilities = ScriptedBackend(enforces=frozenset()).capabilities
    async with serve_gateway(backend, tools=[ToolSearch()]) as gateway:
        response = terminal(await ask_stream(gateway, tools=[strict, SEARCH]))
    assert response.output[-1]["arguments"] == '{"city":"Oslo"}'
    assert response.antiphon
    assert response.antiphon.repaired


async def test_a_search_with_nothing_to_find_is_reported() -> None:
    backend = ScriptedBackend([[TextGrew("ok"), STOP]])
    async with serve_gateway(backend, tools=[ToolSearch()]) as gateway:
        response = terminal(await ask_stream(gateway, tools=[NOW, SEARCH]))
    assert "nothing to find" in str(response.antiphon)
    assert names(backend, 0) == ["now"]


@pytest.mark.parametrize(
    ("query", "best"),
    [
        ("what is the weather tomorrow", "get_forecast"),
        ("send a letter", "send_mail"),
        ("order", "listOrders"),
        ("Customers", "listOrders"),
        ("mails", "send_mail"),
    ],
)
def test_tools_are_ranked_by_their_words(query: str, best: str) -> None:
    toolbox, _ = gather_tools(TOOLS, hosted=frozenset({"tool_search"}))
    assert rank_tools(query, toolbox.hidden)[0].name == best


def test_at_most_ten_are_found() -> None:
    tools = [function(f"mail_{n}", "Send mail.") for n in range(30)]
    toolbox, _ = gather_tools([*tools, SEARCH], hosted=frozenset({"tool_search"}))
    assert len(rank_tools("mail", toolbox.hidden)) == 10
