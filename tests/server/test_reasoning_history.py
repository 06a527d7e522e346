"""What a chat model is sent of its own earlier reasoning, over HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from antiphon.backends.chat import ChatBackend
from antiphon.testing import Call, Script, ScriptedUpstream
from antiphon.testing.gateway import Gateway, serve_gateway
from antiphon.wires.chat.profiles import PROFILES
from tests.asking import ask

LOOK = {"type": "function", "name": "look"}
SCRIPTS = [
    Script(reasoning="look first", calls=[Call("look", id="c1")]),
    Script(reasoning="it rains", text="wet"),
    Script(text="goodbye"),
]
ASKED: list[list[dict[str, Any]]] = [
    [{"type": "message", "role": "user", "content": "weather?"}],
    [{"type": "function_call_output", "call_id": "c1", "output": "rain"}],
    [{"type": "message", "role": "user", "content": "thanks"}],
]


@asynccontextmanager
async def open_gateway(profile: str) -> AsyncIterator[tuple[Gateway, ScriptedUpstream]]:
    async with ScriptedUpstream(SCRIPTS) as upstream:
        backend = ChatBackend(upstream.base_url, profile=PROFILES[profile])
        async with serve_gateway(backend, default_model="echo") as gateway:
            yield gateway, upstream


def thoughts_in(upstream: ScriptedUpstream, field: str) -> list[str]:
    """Return the reasoning of the assistant's messages in the last request."""
    messages = upstream.requests[-1].json["messages"]
    return [message[field] for message in messages if field in message]


@pytest.mark.parametrize("profile", ["deepseek", "vllm", "ollama", "openrouter"])
async def test_reasoning_of_every_turn_goes_back_when_a_response_continues_another(
    profile: str,
) -> None:
    async with open_gateway(profile) as (gateway, upstream):
        last = None
        for given in ASKED:
            answer = await ask(gateway, input=given, tools=[LOOK], previous_response_id=last)
            assert answer.status == 200
            last = answer.json["id"]
        found = thoughts_in(upstream, PROFILES[profile].reasoning_replay)
    assert found == ["look first", "it rains"]


@pytest.mark.parametrize("profile", ["deepseek", "vllm"])
async def test_reasoning_of_every_turn_goes_back_when_the_caller_sends_the_items(
    profile: str,
) -> None:
    async with open_gateway(profile) as (gateway, upstream):
        history: list[dict[str, Any]] = []
        for given in ASKED:
            history += given
            answer = await ask(gateway, input=history, tools=[LOOK], store=False)
            assert answer.status == 200
            history += answer.json["output"]
        found = thoughts_in(upstream, PROFILES[profile].reasoning_replay)
    assert found == ["look first", "it rains"]


async def test_reasoning_is_reported_where_the_server_does_not_take_it_back() -> None:
    async with open_gateway("generic") as (gateway, upstream):
        first = await ask(gateway, input=ASKED[0], tools=[LOOK])
        second = await ask(
            gateway, input=ASKED[1], tools=[LOOK], previous_response_id=first.json["id"]
        )
        assert "look first" not in str(upstream.requests[-1].json)
    assert "reasoning" in second.headers["x-antiphon-degraded"]
