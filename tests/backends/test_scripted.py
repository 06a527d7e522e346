"""The fake model: it plays what it is told, and echoes when told nothing."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from antiphon.backends.scripted import Script, ScriptedBackend
from antiphon.plans.plan import Plan
from antiphon.protocol.deltas import (
    CallGrew,
    CallOpened,
    Degraded,
    Delta,
    Stopped,
    TextGrew,
    UsageKnown,
)
from antiphon.protocol.errors import BackendError
from antiphon.protocol.response import Usage
from antiphon.protocol.tools import ToolPolicy
from tests.building import plan_with
from tests.playing import Collected, play, play_into, said

WEATHER: dict[str, Any] = {"type": "function", "name": "get_weather", "parameters": {}}
CLOCK: dict[str, Any] = {"type": "function", "name": "get_time", "parameters": {}}


def plan_of(text: str, **fields: Any) -> Plan:
    return plan_with(model="scripted", items=[{"role": "user", "content": text}], **fields)


async def test_it_echoes_word_by_word_and_counts_words() -> None:
    deltas = await said(ScriptedBackend(), plan_of("one  two", instructions="be brief"))
    *grown, usage, stopped = deltas
    assert grown == [TextGrew("one"), TextGrew("  two")]
    assert isinstance(usage, UsageKnown)
    assert (usage.usage.input_tokens, usage.usage.output_tokens) == (4, 2)
    assert stopped == Stopped("stop")


async def test_the_echo_stops_for_length_at_the_limit() -> None:
    deltas = await said(ScriptedBackend(), plan_of("a b c", max_output_tokens=2))
    assert deltas[:2] == [TextGrew("a"), TextGrew(" b")]
    assert deltas[-1] == Stopped("length")


async def test_the_echo_says_that_it_ignores_a_format() -> None:
    deltas = await said(ScriptedBackend(), plan_of("a", format={"type": "json_object"}))
    assert isinstance(deltas[0], Degraded)


@pytest.mark.parametrize(
    ("text", "arguments"),
    [('{"city": "Oslo"}', '{"city": "Oslo"}'), ("Oslo", "{}"), ("[1]", "{}")],
)
async def test_a_required_tool_is_called_with_the_json_of_the_user(
    text: str, arguments: str
) -> None:
    policy = ToolPolicy("required", frozenset({"get_time"}))
    deltas = await said(ScriptedBackend(), plan_of(text, tools=[WEATHER, CLOCK], policy=policy))
    assert deltas[:2] == [CallOpened(0, "get_time", alias="get_time"), CallGrew(0, arguments)]


async def test_each_call_plays_its_own_script_and_is_remembered() -> None:
    backend = ScriptedBackend([[[TextGrew("a"), TextGrew("b")]], [Stopped("stop")]])
    assert await play(backend, plan_of("first")) == [[TextGrew("a"), TextGrew("b")]]
    assert await play(backend, plan_of("second")) == [(Stopped("stop"),)]
    assert [plan.items[0]["content"] for plan in backend.plans] == ["first", "second"]
    with pytest.raises(BackendError, match="called 3 times"):
        await play(backend, plan_of("third"))


async def test_an_error_in_the_script_is_raised_after_what_came_before() -> None:
    backend = ScriptedBackend([[TextGrew("a"), BackendError("gone", code="upstream_closed")]])
    sink = Collected()
    with pytest.raises(BackendError, match="gone"):
        await play_into(sink, backend, plan_of("x"))
    assert sink.batches == [(TextGrew("a"),)]
    assert backend.stopped_early == 0


async def test_an_event_holds_the_script_until_it_is_set() -> None:
    gate = asyncio.Event()
    backend, sink = ScriptedBackend(lambda _: [TextGrew("a"), gate, TextGrew("b")]), Collected()
    playing = asyncio.create_task(play_into(sink, backend, plan_of("x")))
    await sink.has_more.wait()
    await asyncio.sleep(0.01)
    assert sink.deltas == [TextGrew("a")]
    gate.set()
    await playing
    assert sink.deltas == [TextGrew("a"), TextGrew("b")]


async def test_cancelling_it_is_noticed() -> None:
    backend, sink = ScriptedBackend(), Collected()
    playing = asyncio.create_task(play_into(sink, backend, plan_of("a b c")))
    await sink.has_more.wait()
    playing.cancel()
    await asyncio.wait({playing})
    assert backend.stopped_early == 1
    assert backend.stopped.is_set()


async def test_the_next_step_waits_for_a_sink_that_is_behind() -> None:
    backend, sink = ScriptedBackend(), Collected(True, False, True)
    await play_into(sink, backend, plan_of("a b c"))
    assert sink.waited == 2
    assert [delta.text for delta in sink.deltas if isinstance(delta, TextGrew)] == ["a", " b", " c"]


async def test_it_lists_its_models_and_closes() -> None:
    backend = ScriptedBackend()
    assert [info.id for info in await backend.models()] == ["scripted", "echo"]
    await backend.close()
    assert backend.is_closed


async def test_it_counts_what_its_usage_would_say() -> None:
    usage = Usage(input_tokens=42)
    scripts: list[Script] = [[TextGrew("a")], [[UsageKnown(usage), Stopped("stop")]]]
    backend = ScriptedBackend(scripts)
    assert await ScriptedBackend().count(plan_of("one two three")) == 3
    assert await backend.count(plan_of("x")) is None
    await play(backend, plan_of("x"))
    assert await backend.count(plan_of("x")) == 42
    await play(backend, plan_of("x"))
    assert await backend.count(plan_of("x")) is None
    assert len(backend.plans) == 2


async def test_a_script_that_can_be_read_but_once_is_not_read_to_count() -> None:
    steps: list[Delta] = [TextGrew("a"), Stopped("stop")]
    backend = ScriptedBackend([iter(steps)])
    assert await backend.count(plan_of("x")) is None
    assert await play(backend, plan_of("x"))
