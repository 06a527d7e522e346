"""Hosted tools as the official SDK sees them: its stream helper and its referee of items."""

from __future__ import annotations

from typing import Any, cast

import pytest
from openai import AsyncOpenAI
from openai.lib import responses_tool_runner

from antiphon.backends.scripted import ScriptedBackend, Step
from antiphon.protocol.deltas import CallMade, Stopped, TextGrew
from antiphon.testing.gateway import serve_gateway
from antiphon.testing.tools import ScriptedTool
from antiphon.tools.base import ToolFailed

TOOL: Any = {
    "type": "mcp",
    "server_label": "test",
    "server_url": "https://example.com/mcp",
    "require_approval": "never",
}


def forecaster() -> ScriptedBackend:
    """Return a model that makes two calls, then answers."""
    calls: list[Step] = [
        TextGrew("Let me see."),
        [CallMade("test__look", '{"q":1}', "a"), CallMade("test__look", '{"q":2}', "b")],
        Stopped("stop"),
    ]
    return ScriptedBackend([calls, [TextGrew("Rain."), Stopped("stop")]])


def _validate(item: Any) -> None:
    """Let the referee of the SDK judge an item. It has no public name."""
    judge = responses_tool_runner._validate_server_item
    judge(cast(dict[str, object], item.to_dict(mode="json")), [TOOL])


@pytest.mark.parametrize("lists", [True, False])
async def test_the_stream_helper_and_the_referee_accept_hosted_calls(*, lists: bool) -> None:
    tool = ScriptedTool(lambda call: ["rain"], lists=lists)
    async with (
        serve_gateway(forecaster(), tools=[tool]) as gateway,
        AsyncOpenAI(base_url=gateway.base_url, api_key="x") as client,
        client.responses.stream(model="echo", input="weather?", tools=[TOOL]) as stream,
    ):
        kinds = [event.type async for event in stream]
        final = await stream.get_final_response()
    assert "response.mcp_call.completed" in kinds
    assert final.output_text == "Let me see.Rain."
    hosted = [item for item in final.output if item.type.startswith("mcp")]
    assert len(hosted) == 2 + lists
    for item in hosted:
        _validate(item)


async def test_a_failed_call_is_read_with_its_error() -> None:
    tool = ScriptedTool(lambda call: [ToolFailed("no such file")])
    async with (
        serve_gateway(forecaster(), tools=[tool]) as gateway,
        AsyncOpenAI(base_url=gateway.base_url, api_key="x") as client,
    ):
        response = await client.responses.create(model="echo", input="weather?", tools=[TOOL])
    call = next(item for item in response.output if item.type == "mcp_call")
    assert call.status == "failed"
    assert "no such file" in str(call.error)
    assert response.status == "completed"
