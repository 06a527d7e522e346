"""The provider: what a chat application asks, and what it gets, over real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from antiphon.backends.chat import ChatBackend
from antiphon.backends.scripted import ScriptedBackend
from antiphon.client import AsyncClient, Timeouts, errors
from antiphon.host import (
    RESPONSES_FOR_ALL,
    GateConfig,
    Message,
    Provider,
    ProviderSettings,
    RespondOptions,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
    ToolSpec,
)
from antiphon.host.errors import MalformedCall, ResponseFailed, TurnCancelled
from antiphon.host.parts import ResponsePart
from antiphon.host.usage import TurnEnded, TurnStarted, Update
from antiphon.protocol.codec import encode_sse
from antiphon.protocol.deltas import CallGrew, CallOpened, ReasoningGrew, TextGrew
from antiphon.testing import Call, Reset, Script, ScriptedUpstream, Stall, serve_gateway
from tests.building import COUNTED, STOP, build
from tests.client.native import Answer, NativeServer, native, response

HELLO = [Message.system("Be brief."), Message.user("Hello there")]


@asynccontextmanager
async def provider(
    base_url: str, environ: dict[str, str] | None = None, **settings: Any
) -> AsyncIterator[Provider]:
    async with (
        AsyncClient(base_url=base_url, environ={}, max_retries=0) as client,
        Provider(
            client,
            ProviderSettings(**({"gate": RESPONSES_FOR_ALL} | settings)),
            environ=environ or {},
        ) as host,
    ):
        yield host


class Shown:
    """What an application showed."""

    def __init__(self) -> None:
        self.parts: list[ResponsePart] = []

    def __call__(self, part: ResponsePart) -> None:
        self.parts.append(part)

    @property
    def text(self) -> str:
        return "".join(part.value for part in self.parts if isinstance(part, TextPart))

    @property
    def calls(self) -> list[ToolCallPart]:
        return [part for part in self.parts if isinstance(part, ToolCallPart)]


@pytest.mark.requirement("RFC016-facade", "RFC016-metric-1")
async def test_an_answer_comes_in_parts_and_ends_with_its_usage() -> None:
    async with (
        serve_gateway(ScriptedBackend(models=["echo"])) as gateway,
        provider(gateway.base_url) as host,
    ):
        shown = Shown()
        outcome = await host.respond("echo", HELLO, progress=shown)

    assert "Hello" in shown.text
    assert shown.text == outcome.response.output_text
    assert len(shown.parts) > 1
    assert outcome.response.instructions == "Be brief."
    assert outcome.usage is not None and outcome.usage.input_tokens > 0
    assert host.usage.of(outcome.response_id) is not None


WEATHER = ToolSpec("weather", "Tells the weather.", {"type": "object"})


@pytest.mark.requirement("22-D4", "RFC22-namespacing", "22-E2")
@pytest.mark.parametrize("wire", ["responses", "chat"])
@pytest.mark.parametrize("prefix", ["", "gw-"])
async def test_a_call_goes_to_the_application_and_its_result_back(wire: str, prefix: str) -> None:
    """Both roads give the same parts; nothing runs the tool but the application."""
    scripts = [Script(text="Let me see.", calls=[Call("weather", '{"in": "Rome"}', "call_1")])]
    scripts.append(Script(text="Sunny."))
    gate = RESPONSES_FOR_ALL if wire == "responses" else GateConfig()
    options = RespondOptions(tools=[WEATHER])
    async with (
        ScriptedUpstream(scripts) as upstream,
        serve_gateway(ChatBackend(upstream.base_url)) as gateway,
        provider(
            gateway.base_url if wire == "responses" else upstream.base_url,
            gate=gate,
            call_prefix=prefix,
        ) as host,
    ):
        shown = Shown()
        await host.respond("echo", HELLO, options, shown)
        (call,) = shown.calls
        result = ToolResultPart(call.call_id, [TextPart("sun, 30 degrees")])
        messages = [*HELLO, Message.assistant(shown.parts), Message.user([result])]
        again = Shown()
        await host.respond("echo", messages, options, again)

    assert (call.call_id, call.name, call.input) == (prefix + "call_1", "weather", {"in": "Rome"})
    assert again.text == "Sunny."
    sent = upstream.requests[1].json["messages"]
    assert [message["role"] for message in sent] == ["system", "user", "assistant", "tool"]
    assert sent[2]["content"] == "Let me see."
    assert sent[3] == {"role": "tool", "tool_call_id": "call_1", "content": "sun, 30 degrees"}


async def test_a_conversation_sends_only_what_is_new() -> None:
    async with (
        native(response(TextGrew("one"), COUNTED, STOP)) as server,
        provider(server.base_url) as host,
    ):
        options = RespondOptions(session="c")
        shown = Shown()
        await host.respond("m", [Message.user("first")], options, shown)
        messages = [Message.user("first"), Message.assistant(shown.parts), Message.user("second")]
        await host.respond("m", messages, options)

    assert server.body(1)["previous_response_id"] == "resp_1"
    assert len(server.body(1)["input"]) == 1
    assert host.usage.totals("c").turns == 2
    assert host.usage.totals("c").input == 6


@pytest.mark.requirement("REQ-003.1", "REQ-003.3", "RFC22-thinking")
@pytest.mark.parametrize(
    ("settings", "is_shown"),
    [
        ({}, False),
        ({"shows_thinking": True}, False),
        ({"shows_thinking": True, "thinking_models": ("other",)}, False),
        ({"shows_thinking": True, "thinking_models": ("m",)}, True),
        ({"shows_thinking": True, "thinking_models": ("*",)}, True),
        ({"thinking_models": ("*",)}, False),
    ],
)
async def test_thinking_is_shown_if_asked_for_and_allowed(
    settings: dict[str, Any], is_shown: bool
) -> None:
    said = (ReasoningGrew("hm"), TextGrew("Yes"), COUNTED, STOP)
    async with native(response(*said)) as server, provider(server.base_url, **settings) as host:
        shown = Shown()
        await host.respond("m", HELLO, progress=shown)

    assert any(isinstance(part, ThinkingPart) for part in shown.parts) is is_shown
    assert shown.text == "Yes"


async def test_a_model_that_is_known_to_reason_may_think() -> None:
    said = (ReasoningGrew("hm"), TextGrew("Yes"), COUNTED, STOP)
    async with (
        native(response(*said)) as server,
        provider(server.base_url, shows_thinking=True) as host,
    ):
        shown = Shown()
        await host.respond("gpt-5", HELLO, progress=shown)
    assert any(isinstance(part, ThinkingPart) for part in shown.parts)


@pytest.mark.requirement("22-A4", "REQ-009.2", "22-A-AC3")
@pytest.mark.parametrize(
    ("model", "environ", "path"),
    [
        ("gpt-5", {}, "/v1/responses"),
        ("gpt-5", {"OPENAI_RESPONSES_DISABLE": "1"}, "/v1/chat/completions"),
        ("gpt-3.5-turbo", {}, "/v1/chat/completions"),
    ],
)
async def test_the_gate_decides_the_endpoint(
    model: str, environ: dict[str, str], path: str
) -> None:
    gate = GateConfig(responses_enabled=True)
    async with (
        native(response(TextGrew("x"), COUNTED, STOP)) as server,
        provider(server.base_url, environ, gate=gate) as host,
    ):
        # A Responses stream is no answer to a chat request.
        with contextlib.suppress(errors.ClientError):
            await host.respond(model, HELLO)
    assert [request.path for request in server.requests] == [path]


async def test_a_gateway_that_is_asked_at_the_wrong_endpoint_tells_what_to_set() -> None:
    async with (
        serve_gateway(ScriptedBackend(models=["echo"])) as gateway,
        provider(gateway.base_url, gate=GateConfig()) as host,
    ):
        with pytest.raises(errors.ResourceNotFound) as caught:
            await host.respond("echo", HELLO)
    assert "RESPONSES_FOR_ALL" in "".join(caught.value.__notes__)


# Ends that are not good.


async def cancel_in_mid_answer(host: Provider, server: NativeServer) -> TurnCancelled:
    cancel = asyncio.Event()
    with pytest.raises(TurnCancelled) as caught:
        await host.respond("m", HELLO, progress=lambda part: cancel.set(), cancel=cancel)
    await asyncio.wait_for(server.raw.closed.wait(), 10)
    return caught.value


BEGUN = [encode_sse(event) for event in build([TextGrew("Hel"), TextGrew("lo"), STOP])[:6]]


@pytest.mark.requirement("RFC016-usage")
async def test_cancelling_hangs_up_and_keeps_what_came() -> None:
    updates: list[Update] = []
    async with (
        native(Answer(pieces=BEGUN, then="stall")) as server,
        provider(server.base_url) as host,
    ):
        host.usage.add_listener(updates.append)
        error = await cancel_in_mid_answer(host, server)

    assert error.partial is not None and error.partial.output_text.startswith("Hel")
    assert isinstance(updates[0], TurnStarted)
    assert isinstance(updates[1], TurnEnded)
    assert updates[1].turn.status == "abandoned"


async def test_a_turn_that_is_not_cancelled_does_not_notice() -> None:
    async with (
        native(response(TextGrew("x"), COUNTED, STOP)) as server,
        provider(server.base_url) as host,
    ):
        outcome = await host.respond("m", HELLO, cancel=asyncio.Event())
    assert outcome.status == "completed"


async def test_an_application_that_raises_stops_the_turn() -> None:
    def refuse(part: ResponsePart) -> None:
        raise ZeroDivisionError

    async with (
        native(Answer(pieces=BEGUN, then="stall")) as server,
        provider(server.base_url) as host,
    ):
        with pytest.raises(ZeroDivisionError):
            await host.respond("m", HELLO, progress=refuse)
        await asyncio.wait_for(server.raw.closed.wait(), 10)


@pytest.mark.requirement("22-C-AC", "RFC22-error")
async def test_a_stream_that_breaks_off_raises_after_its_parts() -> None:
    async with (
        ScriptedUpstream(Script(text="one two three four", faults=[Reset(after=2)])) as upstream,
        serve_gateway(ChatBackend(upstream.base_url)) as gateway,
        provider(gateway.base_url) as host,
    ):
        shown = Shown()
        with pytest.raises(ResponseFailed) as caught:
            await host.respond("echo", HELLO, RespondOptions(session="c"), shown)

    assert shown.text
    assert caught.value.response is not None
    assert caught.value.response.output_text == shown.text
    assert host.usage.totals("c").turns == 1


async def test_a_cut_native_stream_is_the_clients_error_with_what_came() -> None:
    async with (
        native(Answer(pieces=BEGUN, then="reset")) as server,
        provider(server.base_url) as host,
    ):
        shown = Shown()
        with pytest.raises(errors.StreamBroken) as caught:
            await host.respond("m", HELLO, progress=shown)
    assert caught.value.partial is not None
    assert caught.value.partial.output_text == shown.text == "Hello"


async def test_a_call_that_cannot_be_run_is_an_error_and_the_rest_is_told() -> None:
    said = (
        TextGrew("Well"),
        CallOpened(0, "f", "call_1"),
        CallGrew(0, '{"a":'),
        CallOpened(1, "g", "call_2"),
        CallGrew(1, "{}"),
        COUNTED,
        STOP,
    )
    async with native(response(*said)) as server, provider(server.base_url) as host:
        shown = Shown()
        with pytest.raises(MalformedCall):
            await host.respond("m", HELLO, RespondOptions(session="c"), shown)
    assert [call.name for call in shown.calls] == ["g"]
    assert host.usage.totals("c").input == 3


async def test_a_bad_option_is_refused_before_anything_is_sent_or_counted() -> None:
    updates: list[Update] = []
    async with (
        native(response(TextGrew("x"), COUNTED, STOP)) as server,
        provider(server.base_url) as host,
    ):
        host.usage.add_listener(updates.append)
        with pytest.raises(errors.UnsupportedParameter, match="stop"):
            await host.respond("m", HELLO, RespondOptions(model_options={"stop": ["x"]}))
        with pytest.raises(errors.TooManyTools):
            many = [ToolSpec(f"tool_{n}", "A tool.") for n in range(17)]
            await host.respond("m", HELLO, RespondOptions(tools=many))
    assert server.requests == []
    assert updates == []


async def test_parameters_and_tools_reach_the_request() -> None:
    options = RespondOptions(
        tools=[WEATHER],
        tool_mode="required",
        model_options={"temperature": 0.2, "max_tokens": 50},
        system_prompt="Always first.",
    )
    async with (
        native(response(TextGrew("x"), COUNTED, STOP)) as server,
        provider(server.base_url) as host,
    ):
        await host.respond("m", HELLO, options)

    sent = server.body(0)
    assert sent["temperature"] == 0.2
    assert sent["max_output_tokens"] == 50
    assert sent["tool_choice"] == "required"
    assert sent["tools"][0]["name"] == "weather"
    assert sent["instructions"].startswith("Always first.")
    assert sent["instructions"].endswith("Be brief.")


@pytest.mark.requirement("22-D2")
async def test_choices_beyond_the_first_are_counted() -> None:
    chunk = (
        b'data: {"choices":[{"index":0,"delta":{"content":"a"}},'
        b'{"index":1,"delta":{"content":"b"}},{"index":2,"delta":{"content":"c"}}]}\n\n'
    )
    stop = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
    async with (
        native(Answer(pieces=[chunk, stop])) as server,
        provider(server.base_url, gate=GateConfig()) as host,
    ):
        shown = Shown()
        outcome = await host.respond(
            "m", HELLO, RespondOptions(model_options={"extra_body": {"n": 3}}), shown
        )
    assert shown.text == "a"
    assert outcome.meta.skipped_choices == 2


# Models and tokens.


@pytest.mark.requirement("RFC016-facade")
async def test_models_are_those_of_the_server_with_what_is_known() -> None:
    listing = b'{"data":[{"id":"gpt-5"},{"id":"mine","context_length":4096}]}'
    answer = Answer(pieces=[listing], content_type="application/json")
    async with native(answer) as server, provider(server.base_url) as host:
        models = {model.id: model for model in await host.models(silent=False)}

    assert models["gpt-5"].capabilities.reasoning
    assert models["mine"].context_window == 4096


async def test_without_a_server_there_are_no_models_or_an_error() -> None:
    async with provider("http://127.0.0.1:1/v1") as host:
        assert list(await host.models()) == []
        with pytest.raises(errors.ServerUnreachable):
            await host.models(silent=False)


async def test_tokens_of_texts_and_messages_are_counted() -> None:
    async with provider("http://127.0.0.1:1/v1") as host:
        text = host.count_tokens("m", "eight words are here and they are counted")
        assert text > 5
        assert host.count_tokens("m", Message.user("eight words are here")) > 4


async def test_the_servers_count_makes_the_next_estimate_better() -> None:
    started: list[int] = []

    def note(update: Update) -> None:
        if isinstance(update, TurnStarted):
            started.append(update.estimated_input)

    counted = build([TextGrew("one"), COUNTED, STOP])
    options = RespondOptions(session="c")
    async with (
        native(Answer(pieces=[encode_sse(event) for event in counted])) as server,
        provider(server.base_url) as host,
    ):
        host.usage.add_listener(note)
        first = [Message.user("word " * 500)]
        await host.respond("m", first, options)
        await host.respond("m", [*first, Message.assistant("one"), Message.user("go")], options)

    # The server counted 3 for what looks like hundreds: that is what the next turn builds on.
    assert started[0] > 400
    assert started[1] < 50


@pytest.mark.requirement("REQ-010.1")
async def test_the_log_has_no_content(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="antiphon")
    async with (
        native(response(TextGrew("secret answer"), COUNTED, STOP)) as server,
        provider(server.base_url) as host,
    ):
        await host.respond("m", [Message.user("secret question")])

    records = [record for record in caplog.records if record.name == "antiphon.host"]
    assert records
    assert {record.levelname for record in records} == {"DEBUG"}
    assert "secret" not in "".join(record.getMessage() for record in records)


async def test_a_stalled_server_is_a_timeout() -> None:
    async with (
        ScriptedUpstream(Script(text="one two", faults=[Stall(after=1)])) as upstream,
        AsyncClient(
            base_url=upstream.base_url,
            environ={},
            timeouts=Timeouts(idle=0.05),
        ) as client,
        Provider(client, ProviderSettings(gate=GateConfig()), environ={}) as host,
    ):
        with pytest.raises((errors.TimedOut, ResponseFailed)) as caught:
            await host.respond("echo", HELLO)
    assert caught.value.code == "server_timeout"
