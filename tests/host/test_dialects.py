"""One client and one provider, unchanged, against every dialect of a Responses stream."""

from __future__ import annotations

import pytest

from antiphon.backends.chat import ChatBackend
from antiphon.client import AsyncClient
from antiphon.host import (
    RESPONSES_FOR_ALL,
    Message,
    Provider,
    ProviderSettings,
    RespondOptions,
    ResponsePart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolSpec,
)
from antiphon.protocol.deltas import CallGrew, CallOpened, ReasoningGrew, TextGrew
from antiphon.testing import Call, Script, ScriptedUpstream, serve_gateway
from tests.building import COUNTED, STOP
from tests.client.native import native, response

DIALECTS = ["openai", "open-responses"]
SETTINGS = ProviderSettings(
    gate=RESPONSES_FOR_ALL, shows_thinking=True, thinking_models=("*",), call_prefix="gw-"
)
TOOL = ToolSpec("add", "Adds.", {"type": "object"})


async def ask(base_url: str, dialect: str) -> list[ResponsePart]:
    parts: list[ResponsePart] = []
    headers = {"x-antiphon-dialect": dialect}
    async with (
        AsyncClient(base_url=base_url, environ={}, headers=headers) as client,
        Provider(client, SETTINGS, environ={}) as host,
    ):
        await host.respond(
            "echo", [Message.user("2 and 3?")], RespondOptions(tools=[TOOL]), parts.append
        )
    return parts


def assert_is_the_answer(parts: list[ResponsePart]) -> None:
    thought = "".join(part.value for part in parts if isinstance(part, ThinkingPart))
    text = "".join(part.value for part in parts if isinstance(part, TextPart))
    calls = [part for part in parts if isinstance(part, ToolCallPart)]
    assert thought == "let me think"
    assert text == "I add them."
    assert calls == [
        ToolCallPart("gw-call_1", "add", {"a": 2}),
        ToolCallPart("gw-call_2", "add", {"a": 3}),
    ]


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_our_gateway_in_both_dialects(dialect: str) -> None:
    script = Script(
        reasoning="let me think",
        text="I add them.",
        calls=[Call("add", '{"a":2}', "call_1"), Call("add", '{"a":3}', "call_2")],
        interleave=True,
    )
    async with (
        ScriptedUpstream(script) as upstream,
        serve_gateway(ChatBackend(upstream.base_url)) as gateway,
    ):
        assert_is_the_answer(await ask(gateway.base_url, dialect))


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_native_server_in_both_dialects(dialect: str) -> None:
    said = (
        ReasoningGrew("let me "),
        ReasoningGrew("think"),
        TextGrew("I add "),
        TextGrew("them."),
        CallOpened(0, "add", "call_1"),
        CallOpened(1, "add", "call_2"),
        CallGrew(0, '{"a"'),
        CallGrew(1, '{"a":3'),
        CallGrew(0, ":2}"),
        CallGrew(1, "}"),
        COUNTED,
        STOP,
    )
    answer = response(*said, dialect="openai" if dialect == "openai" else "open-responses")
    async with native(answer) as server:
        assert_is_the_answer(await ask(server.base_url, dialect))
