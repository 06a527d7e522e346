"""One application on four roads: what it does and sees is the same on each.

    chat          a chat-completions server, as older models are asked
    switched off  the same, because OPENAI_RESPONSES_DISABLE is set for a server of Responses
    stateless     a Responses server, with the whole history in every request
    stateful      a Responses server, with a session: only what is new is sent

Behind each road is the same scripted chat model, so what reaches it can be compared as well.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Literal

import pytest

from antiphon.backends.chat import ChatBackend
from antiphon.client import AsyncClient, Timeouts, errors
from antiphon.host import (
    RESPONSES_FOR_ALL,
    GateConfig,
    Message,
    Provider,
    ProviderSettings,
    RespondOptions,
    StreamAdapter,
    TextPart,
    ThinkingPart,
    TokenCounter,
    ToolResultPart,
    ToolSpec,
    UsageTracker,
    translate_messages,
)
from antiphon.protocol.response import Usage
from antiphon.testing import Call, Script, ScriptedUpstream, serve_gateway
from antiphon.wires.host.parts import ResponsePart
from tests.client.native import Answer, native
from tests.client.native import error as refusal
from tests.client.test_error_table import begun
from tests.host.providing import Shown, provider

ROADS = ("chat", "switched off", "stateless", "stateful")
WEATHER = ToolSpec("weather", "Tells the weather.", {"type": "object"})
HELLO = [Message.system("Be brief."), Message.user("Hello there")]
DISABLED = {"OPENAI_RESPONSES_DISABLE": "1"}


class Road:
    """A provider on one road, and the model at its end."""

    def __init__(self, name: str, host: Provider, upstream: ScriptedUpstream) -> None:
        self.host = host
        self._name = name
        self._upstream = upstream

    def options(self, **fields: Any) -> RespondOptions:
        return RespondOptions(session="s" if self._name == "stateful" else None, **fields)

    async def ask(self, messages: list[Message], **fields: Any) -> Shown:
        shown = Shown()
        await self.host.respond("echo", messages, self.options(**fields), shown)
        return shown

    def heard(self, number: int) -> list[dict[str, Any]]:
        """Return the chat messages that reached the model."""
        messages: list[dict[str, Any]] = self._upstream.requests[number].json["messages"]
        return messages


@asynccontextmanager
async def road(name: str, *scripts: Script, **settings: Any) -> AsyncIterator[Road]:
    is_chat = name in ("chat", "switched off")
    async with (
        ScriptedUpstream(list(scripts)) as upstream,
        serve_gateway(ChatBackend(upstream.base_url)) as gateway,
        provider(
            upstream.base_url if is_chat else gateway.base_url,
            DISABLED if name == "switched off" else {},
            gate=GateConfig() if name == "chat" else RESPONSES_FOR_ALL,
            **settings,
        ) as host,
    ):
        yield Road(name, host, upstream)


@pytest.mark.requirement("22-E2", "22-A5", "RFC016-phase-2")
@pytest.mark.parametrize("name", ROADS)
async def test_two_turns_reach_the_model_whole_on_every_road(name: str) -> None:
    async with road(name, Script(text="one two"), Script(text="three")) as way:
        first = await way.ask(HELLO)
        second = await way.ask([*HELLO, Message.assistant(first.parts), Message.user("And?")])
    assert (first.text, second.text) == ("one two", "three")
    assert [(message["role"], message["content"]) for message in way.heard(1)] == [
        ("system", "Be brief."),
        ("user", "Hello there"),
        ("assistant", "one two"),
        ("user", "And?"),
    ]


@pytest.mark.requirement("22-E2", "22-A5", "RFC016-phase-2")
@pytest.mark.parametrize("name", ROADS)
async def test_a_tool_is_called_and_answered_on_every_road(name: str) -> None:
    scripts = [Script(calls=[Call("weather", '{"in":"Rome"}', "call_1")]), Script(text="Sunny.")]
    async with road(name, *scripts, call_prefix="gw-") as way:
        first = await way.ask(HELLO, tools=[WEATHER])
        (call,) = first.calls
        result = Message.user([ToolResultPart(call.call_id, [TextPart("30 degrees")])])
        messages = [*HELLO, Message.assistant(first.parts), result]
        second = await way.ask(messages, tools=[WEATHER])
    assert (call.call_id, dict(call.input), second.text) == (
        *("gw-call_1", {"in": "Rome"}, "Sunny."),
    )
    assert way.heard(1)[-1] == {
        "role": "tool",
        "tool_call_id": "call_1",
        "content": "30 degrees",
    }


@pytest.mark.requirement("22-E2", "22-A5", "RFC016-phase-2")
@pytest.mark.parametrize("name", ROADS)
async def test_usage_is_that_of_the_model_on_every_road(name: str) -> None:
    usage = {"prompt_tokens": 120, "completion_tokens": 7, "total_tokens": 127}
    async with road(name, Script(text="one", usage=usage)) as way:
        outcome = await way.host.respond("echo", HELLO, way.options())
    assert outcome.usage is not None
    assert (outcome.usage.input_tokens, outcome.usage.output_tokens) == (120, 7)
    ended = way.host.usage.of(outcome.response_id)
    assert ended is not None and not ended.is_estimate


@pytest.mark.requirement("22-E2", "22-A5", "RFC016-phase-2")
@pytest.mark.parametrize("name", ROADS)
async def test_thinking_and_a_full_answer_are_told_alike_on_every_road(name: str) -> None:
    script = Script(reasoning="hm", text="one two three", finish_reason="length")
    async with road(name, script, shows_thinking=True) as way:
        shown = Shown()
        outcome = await way.host.respond("echo", HELLO, way.options(), shown)
    thoughts = [part.value for part in shown.parts if isinstance(part, ThinkingPart)]
    assert ("".join(thoughts), shown.text) == ("hm", "one two three")
    assert (outcome.status, outcome.incomplete_reason) == ("incomplete", "max_output_tokens")


@pytest.mark.requirement("22-E2", "22-A5", "RFC016-phase-2")
@pytest.mark.parametrize("name", ROADS)
async def test_options_reach_the_model_on_every_road(name: str) -> None:
    async with road(name, Script(text="one")) as way:
        await way.ask(HELLO, model_options={"temperature": 0.5, "max_output_tokens": 9})
        sent = way._upstream.requests[0].json
    assert sent["temperature"] == 0.5
    assert 9 in (sent.get("max_tokens"), sent.get("max_completion_tokens"))


# Errors.

CODES = ["context_length_exceeded", "insufficient_quota", "model_not_found", "other"]


@pytest.mark.requirement("22-A4")
@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 422, 429, 500, 503])
async def test_both_endpoints_fail_with_the_same_errors(status: int, code: str) -> None:
    raised = []
    for gate in (GateConfig(), RESPONSES_FOR_ALL):
        async with (
            native(refusal(status, code, "It did not work.")) as server,
            provider(server.base_url, gate=gate) as host,
        ):
            with pytest.raises(errors.ClientError) as caught:
                await host.respond("m", HELLO)
        error = caught.value
        raised.append((type(error), error.status, error.code, str(error)))
    assert raised[0] == raised[1]
    assert raised[0][1] == status


@pytest.mark.requirement("22-A4")
@pytest.mark.parametrize("gate", [GateConfig(), RESPONSES_FOR_ALL])
async def test_a_server_that_is_not_there_is_the_same_error_on_both_endpoints(
    gate: GateConfig,
) -> None:
    async with provider("http://127.0.0.1:1/v1", gate=gate) as host:
        with pytest.raises(errors.ServerUnreachable):
            await host.respond("m", HELLO)


@pytest.mark.requirement("22-A4")
@pytest.mark.parametrize("gate", [GateConfig(), RESPONSES_FOR_ALL])
async def test_an_answer_that_is_none_is_the_same_error_on_both_endpoints(gate: GateConfig) -> None:
    page = Answer(pieces=[b"<html>Hello</html>"], content_type="text/html")
    async with native(page) as server, provider(server.base_url, gate=gate) as host:
        with pytest.raises(errors.InvalidAnswer):
            await host.respond("m", HELLO)


@pytest.mark.requirement("22-A4")
@pytest.mark.parametrize("gate", [GateConfig(), RESPONSES_FOR_ALL])
@pytest.mark.parametrize(
    ("then", "expected"), [("reset", errors.StreamBroken), ("stall", errors.TimedOut)]
)
async def test_an_answer_that_breaks_is_the_same_error_on_both_endpoints(
    then: Literal["reset", "stall"], expected: type[errors.ClientError], gate: GateConfig
) -> None:
    pieces = begun("chat" if gate == GateConfig() else "responses")
    broken = Answer(pieces=pieces, then=then)
    shown = Shown()
    async with (
        native(broken) as server,
        AsyncClient(base_url=server.base_url, environ={}, timeouts=Timeouts(idle=0.5)) as client,
        Provider(client, ProviderSettings(gate=gate), environ={}) as host,
    ):
        with pytest.raises(expected) as caught:
            await host.respond("m", HELLO, progress=shown)
    assert shown.text == "one two"
    assert caught.value.partial is not None
    assert caught.value.partial.output_text == "one two"


# Other providers.


@pytest.mark.requirement("22-A-AC1")
@pytest.mark.parametrize("model", ["claude-sonnet-4.5", "gemini-2.5-pro", "llama-3.3-70b"])
async def test_models_of_other_providers_are_asked_as_if_responses_did_not_exist(
    model: str,
) -> None:
    """The bytes are the same with the feature off, on, and on for other base URLs."""
    sent = []
    settings = [
        (GateConfig(), DISABLED),
        (GateConfig(), {}),
        (GateConfig(responses_enabled=True), {}),
    ]
    for gate, environ in settings:
        async with (
            ScriptedUpstream(Script(text="one"), models=[model]) as upstream,
            provider(upstream.base_url, environ, gate=gate) as host,
        ):
            shown = Shown()
            await host.respond(model, HELLO, RespondOptions(tools=[WEATHER]), shown)
        (request,) = upstream.requests
        sent.append((request.json, shown.text))
    assert sent[0] == sent[1] == sent[2]


# Each job by itself.


@pytest.mark.requirement("RFC016-modules")
async def test_the_pieces_of_a_provider_do_together_what_it_does() -> None:
    """Translator, client, adapter, tracker and counter know nothing of each other."""
    script = Script(text="Let me see.", calls=[Call("weather", '{"in":"Rome"}', "call_1")])
    async with (
        ScriptedUpstream(script) as upstream,
        serve_gateway(ChatBackend(upstream.base_url)) as gateway,
        provider(gateway.base_url) as host,
        AsyncClient(base_url=gateway.base_url, environ={}) as client,
    ):
        shown = Shown()
        outcome = await host.respond("echo", HELLO, progress=shown)

        sent = translate_messages(HELLO)
        body = {"input": sent.items, "instructions": sent.instructions}
        usage, adapter = UsageTracker(), StreamAdapter()
        turn = usage.start("c", "echo", TokenCounter().count_request(body, "echo").tokens)
        parts: list[ResponsePart] = []
        async with client.stream(
            model="echo", input=sent.items, instructions=sent.instructions
        ) as stream:
            async for event in stream:
                parts += adapter.feed(event)
        response = adapter.finish().response
        usage.complete(turn, response)
    assert _texts(parts) == _texts(shown.parts)
    assert usage.totals("c").input == outcome.response.usage.input_tokens  # type: ignore[union-attr]  # it is there
    assert [request.json for request in upstream.requests[:1]] == [upstream.requests[1].json]


def _texts(parts: list[ResponsePart]) -> list[object]:
    """Return the parts, neighbouring texts as one: how a stream is cut is not part of it."""
    joined: list[Any] = []
    for part in parts:
        if isinstance(part, TextPart) and joined and isinstance(joined[-1], str):
            joined[-1] += part.value
        else:
            joined.append(part.value if isinstance(part, TextPart) else part)
    return joined


# A conversation that is summarised in time.


@pytest.mark.requirement("RFC016-metric-5", "RFC016-problem-1")
@pytest.mark.parametrize("digits_at_once", [1, 3])
async def test_an_editor_that_adds_up_counts_never_sends_too_much(digits_at_once: int) -> None:
    """The model's window is small, its tokenizer unknown, and it refuses what is too long."""
    window, refused = 4000, []

    def answer(body: dict[str, Any]) -> Script:
        tokens = sum(3 + _true_tokens(str(message["content"])) for message in body["messages"])
        if tokens > window:
            refused.append(tokens)
        usage = Usage(input_tokens=tokens, output_tokens=40, total_tokens=tokens + 40)
        counts = {"prompt_tokens": usage.input_tokens, "completion_tokens": 40}
        return Script(text="word " * 40, usage={**counts, "total_tokens": usage.total_tokens})

    def _true_tokens(text: str) -> int:
        """Words are a token each, and digits come one by one, or three at once."""
        digits = sum(character.isdigit() for character in text)
        return -(-digits // digits_at_once) + len(text.split()) + text.count(",")

    summaries = 0
    async with (
        ScriptedUpstream(answer) as upstream,
        provider(upstream.base_url, gate=GateConfig()) as host,
    ):
        messages: list[Message] = []
        for turn in range(60):
            text = "some prose " * 30 if turn % 3 else "12345,67890," * 25
            messages.append(Message.user(f"{turn} {text}"))
            if sum(host.count_tokens("m", it) for it in messages) > 0.9 * window:
                messages = [Message.user("A summary of what was said."), messages[-1]]
                summaries += 1
            shown = Shown()
            await host.respond("m", messages, progress=shown)
            messages.append(Message.assistant(shown.parts))
    assert refused == []
    assert summaries >= 2
