"""Tools that the upstream runs itself: assessed when it is known which backend answers."""

from __future__ import annotations

import pytest

from antiphon.backends.scripted import Script, ScriptedBackend
from antiphon.plans.plan import Plan
from antiphon.protocol.deltas import ItemClosed, ItemOpened, Stopped, TextGrew
from antiphon.testing.gateway import serve_gateway
from tests.asking import ask, ask_stream, terminal

SEARCH = {"type": "web_search", "search_context_size": "low"}
LEFT_OUT = "tools[0] (web_search): it cannot be run here"


def searching(plan: Plan) -> Script:
    """Search, then answer."""
    item = {"type": "web_search_call", "status": "in_progress", "action": {"type": "search"}}
    yield ItemOpened("s", item)
    yield ItemClosed("s", item | {"status": "completed"})
    yield TextGrew("found")
    yield Stopped("stop")


def searcher() -> ScriptedBackend:
    return ScriptedBackend(searching, tool_kinds=frozenset({"web_search"}))


async def test_an_upstream_that_runs_a_tool_gets_it_in_its_plan() -> None:
    backend = searcher()
    async with serve_gateway(backend) as gateway:
        answer = await ask(gateway, tools=[SEARCH])

    assert "x-antiphon-degraded" not in answer.headers
    assert answer.json["tools"] == [SEARCH]
    assert [plan.toolbox.upstream for plan in backend.plans] == [(SEARCH,)]


async def test_an_upstream_that_does_not_run_it_never_sees_it() -> None:
    backend = ScriptedBackend()
    async with serve_gateway(backend) as gateway:
        answer = await ask(gateway, tools=[SEARCH])
        refused = await ask(gateway, {"x-antiphon-strict": "1"}, tools=[SEARCH])

    assert answer.json["antiphon"]["degraded"] == [LEFT_OUT]
    assert refused.status == 400
    assert [plan.toolbox.upstream for plan in backend.plans] == [()]


async def test_each_backend_is_asked_by_what_it_can_do() -> None:
    able, plain = searcher(), ScriptedBackend()
    async with serve_gateway({"able": able, "plain": plain}) as gateway:
        answers = [
            await ask(gateway, model=f"{name}/scripted", tools=[SEARCH])
            for name in ("able", "plain")
        ]

    assert ["x-antiphon-degraded" in answer.headers for answer in answers] == [False, True]
    assert able.plans[0].toolbox.upstream == (SEARCH,)
    assert plain.plans[0].toolbox.upstream == ()


@pytest.mark.parametrize("tools", [[SEARCH], [SEARCH, {"type": "function", "name": "f"}]])
async def test_a_search_is_the_call_that_tool_choice_requires(tools: list[object]) -> None:
    backend = searcher()
    async with serve_gateway(backend) as gateway:
        events = await ask_stream(gateway, tools=tools, tool_choice={"type": "web_search"})

    response = terminal(events)
    assert (response.status, response.output_text) == ("completed", "found")
    assert len(backend.plans) == 1


async def test_an_upstream_that_does_not_search_as_required_fails() -> None:
    backend = ScriptedBackend(
        lambda _: [TextGrew("no"), Stopped("stop")], tool_kinds=frozenset({"web_search"})
    )
    async with serve_gateway(backend) as gateway:
        events = await ask_stream(gateway, tools=[SEARCH], tool_choice="required")

    error = terminal(events).error
    assert error is not None
    assert error.code == "tool_choice_violated"
