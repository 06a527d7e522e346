"""Results of hosted calls make the context longer: what happens when it is too long between rounds.

The model of these tests takes a limited number of characters and refuses more, as a server does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec
import pytest

from antiphon.backends.scripted import Script, ScriptedBackend, Step
from antiphon.plans.plan import Plan
from antiphon.protocol.deltas import CallMade, TextGrew
from antiphon.protocol.errors import ContextOverflow
from antiphon.protocol.items import Item, text_of
from antiphon.protocol.machines.referee import judge_stream
from antiphon.protocol.response import Response
from antiphon.testing.gateway import Gateway, serve_gateway
from antiphon.testing.tools import ScriptedTool
from antiphon.tools.base import HostedCall, ToolLimits, ToolRequest, ToolSession
from tests.asking import ask, ask_stream, request, terminal
from tests.engine.run.test_hosted import LOOK, MCP, STOP, calling, kinds, saying, used

TOO_LONG: Final = ContextOverflow("this model takes 100 tokens")
AUTO: Final = {"truncation": "auto"}


def said(role: str, text: str) -> Item:
    return {"type": "message", "role": role, "content": text}


def looking(number: int) -> list[Step]:
    """Return a round that makes one call, with the cost of that round."""
    return [[CallMade(LOOK, f'{{"n":{number}}}', f"c{number}")], [used(10, 3), STOP]]


def outputs(plan: Plan) -> list[str]:
    return [item["output"] for item in plan.items if item["type"] == "function_call_output"]


class Limited(ScriptedBackend):
    """A model that looks things up `rounds` times and then answers, with a small window.

    `refused` counts the requests that were too long for it.
    """

    def __init__(self, rounds: int, window: int) -> None:
        super().__init__(self._play)
        self.refused = 0
        self._made = 0
        self._rounds = rounds
        self._window = window

    def _play(self, plan: Plan) -> Script:
        if len(msgspec.json.encode(list(plan.items))) > self._window:
            self.refused += 1
            return [TOO_LONG]
        if plan.policy.mode == "none":
            return [TextGrew("SUM"), [used(7, 2), STOP]]
        self._made += 1
        return looking(self._made) if self._made <= self._rounds else saying("done")


def numbered(size: int) -> Callable[[HostedCall], list[str]]:
    return lambda call: [f"{call.arguments} " + "x" * size]


async def streamed(gateway: Gateway, **body: Any) -> Response:
    events = await ask_stream(gateway, tools=[MCP], **body)
    assert judge_stream(events) == []
    return terminal(events)


async def whole(gateway: Gateway, **body: Any) -> Response:
    answer = await ask(gateway, tools=[MCP], **body)
    assert answer.status == 200, answer.json
    return msgspec.convert(answer.json, Response)


# Without truncation.


@pytest.mark.parametrize("way", [streamed, whole])
@pytest.mark.parametrize("failing", [2, 3])
async def test_an_overflow_between_rounds_ends_the_response_and_keeps_its_items(
    failing: int, way: Callable[..., Any]
) -> None:
    script: list[list[Step]] = [*map(looking, range(1, failing)), [TOO_LONG]]
    tool = ScriptedTool()
    async with serve_gateway(ScriptedBackend(script), tools=[tool]) as gateway:
        response = await way(gateway)
        kept = (await request(gateway, "GET", f"/responses/{response.id}")).json
    made = failing - 1
    assert response.status == "failed"
    assert response.error is not None
    assert response.error.code == "context_length_exceeded"
    assert kinds(response) == ["mcp_call"] * made
    assert all(item["status"] == "completed" for item in response.output)
    assert response.usage is not None
    assert (response.usage.input_tokens, response.usage.output_tokens) == (10 * made, 3 * made)
    assert (response.antiphon.usage if response.antiphon else None) is None
    assert len(tool.calls) == made
    assert [item["id"] for item in kept["output"]] == [item["id"] for item in response.output]
    assert kept["error"]["code"] == "context_length_exceeded"


async def test_an_overflow_of_the_first_round_is_an_error_of_the_request() -> None:
    tool = ScriptedTool()
    async with serve_gateway(ScriptedBackend([[TOO_LONG]]), tools=[tool]) as gateway:
        answer = await ask(gateway, tools=[MCP])
    assert (answer.status, answer.error["code"]) == (400, "context_length_exceeded")
    assert tool.closed == 1


async def test_after_a_listing_an_overflow_is_a_failed_response() -> None:
    tool = ScriptedTool(lists=True)
    async with serve_gateway(ScriptedBackend([[TOO_LONG]]), tools=[tool]) as gateway:
        response = await streamed(gateway)
    assert response.status == "failed"
    assert kinds(response) == ["mcp_list_tools"]


# With truncation.


@pytest.mark.parametrize("way", [streamed, whole])
@pytest.mark.parametrize("lists", [False, True])
async def test_older_turns_are_left_out_between_rounds(
    lists: bool, way: Callable[..., Any]
) -> None:
    history = [said("user", "old " * 100), said("assistant", "reply " * 100), said("user", "now")]
    model, tool = Limited(2, 2600), ScriptedTool(numbered(700), lists=lists)
    async with serve_gateway(model, tools=[tool]) as gateway:
        response = await way(gateway, input=history, **AUTO)
    assert response.status == "completed", response.error
    assert kinds(response) == [*["mcp_list_tools"][: int(lists)], *["mcp_call"] * 2, "message"]
    assert model.refused == 1
    assert len(tool.calls) == 2
    assert response.antiphon is not None
    assert response.antiphon.degraded == ("truncation: the 2 oldest items were left out",)
    assert response.usage is not None
    assert response.usage.output_tokens == 7
    # What was left out stays out, and the results are there.
    last = model.plans[-1]
    assert "now" in str(last.items[0])
    assert len(outputs(last)) == 2


@pytest.mark.parametrize("lists", [False, True])
async def test_a_first_context_that_is_too_long_is_shortened_with_hosted_tools(lists: bool) -> None:
    history = [said("user", "old " * 500), said("assistant", "reply"), said("user", "now")]
    model, tool = Limited(1, 1500), ScriptedTool(lists=lists)
    async with serve_gateway(model, tools=[tool]) as gateway:
        response = await streamed(gateway, input=history, **AUTO)
    assert response.status == "completed", response.error
    assert model.refused == 1
    assert len(model.plans) == 3


async def test_many_rounds_with_large_results_go_on_without_the_oldest_calls() -> None:
    model, tool = Limited(14, 6000), ScriptedTool(numbered(1000))
    async with serve_gateway(model, tools=[tool]) as gateway:
        response = await streamed(gateway, input="now", **AUTO)
    assert response.status == "completed", response.error
    assert kinds(response) == [*["mcp_call"] * 14, "message"]
    assert len(tool.calls) == 14
    last = model.plans[-1]
    assert "now" in str(last.items[0])
    newest = outputs(last)[-1]
    assert '"n":14' in newest
    calls = {item["call_id"] for item in last.items if item["type"] == "function_call"}
    answered = {item["call_id"] for item in last.items if item["type"] == "function_call_output"}
    assert calls == answered
    assert 0 < model.refused < 10
    assert response.usage is not None
    assert response.usage.input_tokens == 14 * 10 + 20


async def test_refused_requests_do_not_count_as_rounds() -> None:
    model, tool = Limited(5, 3000), ScriptedTool(numbered(900))
    limits = ToolLimits(rounds=6)
    async with serve_gateway(model, tools=[tool], tool_limits=limits) as gateway:
        response = await streamed(gateway, input="now", **AUTO)
    assert response.status == "completed", response.error
    assert model.refused > 0


async def test_a_result_that_no_context_has_room_for_ends_the_response_truthfully() -> None:
    model, tool = Limited(3, 3000), ScriptedTool(numbered(5000))
    async with serve_gateway(model, tools=[tool]) as gateway:
        response = await streamed(gateway, input=[said("user", "old"), said("user", "now")], **AUTO)
    assert response.status == "failed"
    assert response.error is not None
    assert response.error.code == "context_length_exceeded"
    assert kinds(response) == ["mcp_call"]
    assert len(tool.calls) == 1
    assert response.usage is not None
    assert response.usage.output_tokens == 3


async def test_an_answer_that_has_begun_is_not_begun_again() -> None:
    second: list[Step] = [TextGrew("It is"), TOO_LONG]
    backend = ScriptedBackend([calling(LOOK), second])
    history = [said("user", "old"), said("user", "now")]
    async with serve_gateway(backend, tools=[ScriptedTool()]) as gateway:
        response = await streamed(gateway, input=history, **AUTO)
    assert response.status == "failed"
    assert kinds(response) == ["mcp_call", "message"]
    assert len(backend.plans) == 2


async def test_an_approved_call_stays_in_a_context_that_is_shortened() -> None:
    class Approved(ScriptedTool):
        async def begin(self, asked: ToolRequest) -> ToolSession:
            session = await super().begin(asked)
            call = HostedCall(function=self.functions[0], arguments='{"n":1}', call_id="a1")
            session.approved = [call]
            return session

    history = [said("user", "old " * 500), said("assistant", "reply"), said("user", "now")]
    model, tool = Limited(1, 1500), Approved()
    async with serve_gateway(model, tools=[tool]) as gateway:
        response = await streamed(gateway, input=history, **AUTO)
    assert response.status == "completed", response.error
    assert kinds(response) == ["mcp_call", "mcp_call", "message"]
    assert len(tool.calls) == 2
    assert [len(outputs(plan)) for plan in model.plans] == [1, 1, 2]
    assert model.refused == 1


# Compaction.


def threshold(tokens: int) -> dict[str, Any]:
    return {"context_management": [{"type": "compaction", "compact_threshold": tokens}]}


@pytest.mark.parametrize("way", [streamed, whole])
async def test_the_context_is_compacted_between_rounds(way: Callable[..., Any]) -> None:
    model, tool = Limited(6, 1_000_000), ScriptedTool(numbered(4000))
    async with serve_gateway(model, tools=[tool]) as gateway:
        response = await way(gateway, input="the question", **threshold(2500))
        following = await ask(gateway, previous_response_id=response.id, input="and now?")
    assert response.status == "completed", response.error
    assert kinds(response).count("mcp_call") == 6
    assert 1 <= kinds(response).count("compaction") <= 5
    assert kinds(response)[-1] == "message"
    summaries = [plan for plan in model.plans if plan.policy.mode == "none"]
    assert len(summaries) == kinds(response).count("compaction")
    asked = [plan for plan in model.plans[:-1] if plan.policy.mode != "none"]
    assert len(asked) == 7
    assert max(len(outputs(plan)) for plan in asked) < 6
    assert "the question" in str(asked[-1].items)
    assert '"n":6' in outputs(asked[-1])[-1]
    assert response.usage is not None
    assert response.usage.input_tokens == 6 * 10 + 20 + 7 * len(summaries)
    # The next turn begins from the summary.
    assert following.status == 200
    assert "SUM" in str(model.plans[-1].items)


async def test_a_summary_that_fails_between_rounds_ends_the_response_with_its_items() -> None:
    class Mute(Limited):
        def _play(self, plan: Plan) -> Script:
            return [STOP] if plan.policy.mode == "none" else super()._play(plan)

    tool = ScriptedTool(numbered(4000))
    async with serve_gateway(Mute(6, 1_000_000), tools=[tool]) as gateway:
        response = await streamed(gateway, input="x", **threshold(2500))
    assert response.status == "failed"
    assert kinds(response) == ["mcp_call"] * len(tool.calls)
    assert response.usage is not None
    assert response.usage.output_tokens > 0


async def test_truncation_helps_where_compaction_did_not() -> None:
    history = [said("user", "old " * 300), said("assistant", "a"), said("user", "now")]
    model, tool = Limited(2, 3200), ScriptedTool(numbered(900))
    async with serve_gateway(model, tools=[tool]) as gateway:
        response = await streamed(gateway, input=history, **AUTO, **threshold(100_000))
    assert response.status == "completed", response.error
    assert text_of(response.output[-1]["content"]) == "done"
