"""The provider: what a chat application asks, and what it gets, over real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
import threading
from typing import Any, Literal

import msgspec
import pytest
from msgspec import UNSET

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
from antiphon.host.usage import Totals, TurnEnded, TurnStarted, Update, UsageTracker
from antiphon.protocol.codec import encode_sse
from antiphon.protocol.deltas import CallGrew, CallOpened, ReasoningGrew, TextGrew, UsageKnown
from antiphon.protocol.items import Item
from antiphon.protocol.response import Usage
from antiphon.testing import Call, Reset, Script, ScriptedUpstream, Stall, serve_gateway
from antiphon.wires.host.parts import Part, ResponsePart
from tests.building import COUNTED, STOP, build
from tests.client.native import Answer, NativeServer, native, response
from tests.client.native import error as refusal
from tests.host.providing import Shown, provider
from tests.host.streams import Fields, created, done, end, event, message, message_item
from tests.transport.raw import Connection, Request, raw_server, reply

HELLO = [Message.system("Be brief."), Message.user("Hello there")]


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


@pytest.mark.requirement("REQ-004.2")
async def test_a_conversation_goes_on_after_a_call_that_was_never_run() -> None:
    scripts = [Script(calls=[Call("weather", '{"in": "Rome"}', "call_1")]), Script(text="Fine.")]
    options = RespondOptions(tools=[WEATHER], session="c")
    async with (
        ScriptedUpstream(scripts) as upstream,
        serve_gateway(ChatBackend(upstream.base_url)) as gateway,
        provider(gateway.base_url) as host,
    ):
        shown = Shown()
        await host.respond("echo", HELLO, options, shown)
        messages = [*HELLO, Message.assistant(shown.parts), Message.user("Never mind.")]
        outcome = await host.respond("echo", messages, options)
    assert outcome.response.output_text == "Fine."
    sent = upstream.requests[1].json["messages"]
    assert [message["role"] for message in sent] == [
        *("system", "user", "assistant", "tool", "user"),
    ]
    assert sent[3]["content"] == "(no output was provided for this call)"


@pytest.mark.requirement("REQ-003.1", "REQ-003.3", "RFC22-thinking")
@pytest.mark.parametrize(
    ("settings", "is_shown"),
    [
        ({}, False),
        ({"shows_thinking": True}, True),
        ({"shows_thinking": True, "thinking_models": ()}, False),
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


REASONERS = (
    *("deepseek-reasoner", "qwen3-32b", "gpt-oss-120b", "gpt-5", "claude-opus-4.6"),
    *("magistral-small", "glm-4.6", "kimi-k2-thinking", "some-model"),
)


@pytest.mark.requirement("REQ-003.1")
@pytest.mark.parametrize("wire", ["responses", "chat"])
@pytest.mark.parametrize("model", REASONERS)
async def test_without_a_list_every_model_that_sends_thinking_shows_it(
    model: str, wire: str
) -> None:
    """A list of models that are known to reason is always older than the models."""
    said = (ReasoningGrew("hm"), TextGrew("Yes"), COUNTED, STOP)
    async with (
        native(response(*said)) as server,
        ScriptedUpstream(Script(reasoning="hm", text="Yes")) as upstream,
        provider(
            server.base_url if wire == "responses" else upstream.base_url,
            gate=RESPONSES_FOR_ALL if wire == "responses" else GateConfig(),
            shows_thinking=True,
        ) as host,
    ):
        shown = Shown()
        await host.respond(model, HELLO, progress=shown)
    thoughts = [part.value for part in shown.parts if isinstance(part, ThinkingPart)]
    assert "".join(thoughts) == "hm"
    assert shown.text == "Yes"


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


async def _without_chat(request: Request, connection: Connection) -> None:
    if request.method == "GET":
        await connection.write(reply(b'{"data":[{"id":"echo"}]}'))
    else:
        missing = b'{"error":{"message":"there is nothing here","code":"unknown_url"}}'
        await connection.write(reply(missing, status="404 Not Found"))


async def test_a_server_that_is_asked_at_the_wrong_endpoint_tells_what_to_set() -> None:
    async with (
        raw_server(_without_chat) as server,
        provider(server.url + "/v1", gate=GateConfig()) as host,
    ):
        with pytest.raises(errors.ResourceNotFound) as caught:
            await host.respond("echo", HELLO)
    assert "RESPONSES_FOR_ALL" in "".join(caught.value.__notes__)


# Ends that are not good.


async def cancel_in_mid_answer(host: Provider, server: NativeServer) -> TurnCancelled:
    cancel = asyncio.Event()
    with pytest.raises(TurnCancelled) as caught:
        await host.respond("m", HELLO, progress=lambda part: cancel.set(), cancel=cancel)
    await asyncio.wait_for(server.raw.closed.wait(), 60)
    return caught.value


BEGUN = [encode_sse(event) for event in build([TextGrew("Hel"), TextGrew("lo"), STOP])[:6]]


def long_answer() -> list[bytes]:
    """Return the beginning of an answer of a thousand tokens, by our estimate."""
    return [encode_sse(event) for event in build([TextGrew("word " * 800), STOP])[:5]]


def told(*stream: Fields, then: Literal["end", "stall"] = "end") -> Answer:
    """Return a stream of events that are given as JSON."""
    events = [{"sequence_number": number} | fields for number, fields in enumerate(stream)]
    pieces = [b"data: " + msgspec.json.encode(fields) + b"\n\n" for fields in events]
    return Answer(pieces=pieces, then=then)


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


class Odd(Exception):
    """An error of an application that happens to have a response."""

    response = "not ours"


@pytest.mark.requirement("RFC016-usage")
@pytest.mark.parametrize("error", [Odd, GeneratorExit])
async def test_an_application_that_raises_stops_the_turn_and_what_came_is_counted(
    error: type[BaseException],
) -> None:
    def refuse(part: ResponsePart) -> None:
        raise error

    async with (
        native(Answer(pieces=long_answer(), then="stall")) as server,
        provider(server.base_url) as host,
    ):
        with pytest.raises(error):
            await host.respond("m", HELLO, RespondOptions(session="c"), refuse)
        await asyncio.wait_for(server.raw.closed.wait(), 60)
    ended = host.usage.of("resp_1")
    assert ended is not None and (ended.status, ended.is_estimate) == ("abandoned", True)
    assert ended.counted.output_tokens == 1000
    assert host.usage.totals("c").output == 1000


@pytest.mark.requirement("RFC016-usage")
@pytest.mark.parametrize("way", ["task", "event"])
async def test_a_turn_that_is_stopped_is_counted_as_far_as_it_came(way: str) -> None:
    cancel, begun = asyncio.Event(), asyncio.Event()
    options = RespondOptions(session="c")
    async with (
        native(Answer(pieces=long_answer(), then="stall")) as server,
        provider(server.base_url) as host,
    ):
        asking = asyncio.create_task(
            host.respond("m", HELLO, options, lambda part: begun.set(), cancel)
        )
        await begun.wait()
        asking.cancel() if way == "task" else cancel.set()
        with pytest.raises(asyncio.CancelledError if way == "task" else TurnCancelled):
            await asking
        assert own_tasks() == []
    assert host.usage.totals("c").output == 1000
    assert host.usage.totals("c").turns == host.usage.totals("c").estimated_turns == 1


def own_tasks() -> list[str]:
    """Return what of a turn is still running."""
    names = [getattr(task.get_coro(), "__qualname__", "") for task in asyncio.all_tasks()]
    return [name for name in names if name.startswith(("Provider.", "Event."))]


@pytest.mark.parametrize("is_watched", [True, False])
async def test_nothing_is_left_running_when_the_answer_is_there(is_watched: bool) -> None:
    async with (
        native(response(TextGrew("x"), COUNTED, STOP)) as server,
        provider(server.base_url) as host,
    ):
        watched = asyncio.Event()
        await host.respond("m", HELLO, cancel=watched if is_watched else None)
        assert own_tasks() == []


async def test_a_turn_that_is_cancelled_beforehand_is_neither_sent_nor_counted() -> None:
    updates: list[Update] = []
    cancel = asyncio.Event()
    cancel.set()
    async with (
        native(response(TextGrew("x"), COUNTED, STOP)) as server,
        provider(server.base_url) as host,
    ):
        host.usage.add_listener(updates.append)
        with pytest.raises(TurnCancelled) as caught:
            await host.respond("m", HELLO, cancel=cancel)
    assert caught.value.partial is None
    assert (server.requests, updates) == ([], [])


async def test_a_turn_can_be_cancelled_while_the_tokenizer_is_loaded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    is_loading, go_on = threading.Event(), threading.Event()

    def load(model: str) -> bool:
        is_loading.set()
        return go_on.wait(60)

    updates: list[Update] = []
    cancel = asyncio.Event()
    async with (
        native(response(TextGrew("x"), COUNTED, STOP)) as server,
        provider(server.base_url) as host,
    ):
        host.usage.add_listener(updates.append)
        monkeypatch.setattr(host.tokens, "prepare", load)
        asking = asyncio.create_task(host.respond("m", HELLO, cancel=cancel))
        await asyncio.to_thread(is_loading.wait, 10)
        cancel.set()
        with pytest.raises(TurnCancelled):
            await asking
        go_on.set()
    assert (server.requests, updates) == ([], [])


@pytest.mark.requirement("RFC016-usage")
@pytest.mark.parametrize("status", [401, 404, 429, 503])
async def test_a_turn_that_is_refused_takes_nothing(status: int) -> None:
    updates: list[Update] = []
    async with native(refusal(status)) as server, provider(server.base_url) as host:
        host.usage.add_listener(updates.append)
        with pytest.raises(errors.ClientError):
            await host.respond("m", HELLO, RespondOptions(session="c"))
    ended = updates[-1]
    assert isinstance(ended, TurnEnded) and ended.turn.status == "not_run"
    assert host.usage.totals("c") == Totals()


async def test_a_turn_without_a_server_or_a_call_that_is_wrong_takes_nothing() -> None:
    async with provider("http://127.0.0.1:1/v1") as host:
        with pytest.raises(errors.ServerUnreachable):
            await host.respond("m", HELLO, RespondOptions(session="c"))
    async with provider("http://127.0.0.1:1/v1", gate=GateConfig()) as legacy:
        background = RespondOptions(session="c", model_options={"background": True})
        with pytest.raises(errors.BadCall):
            await legacy.respond("m", HELLO, background)
    assert host.usage.totals("c") == legacy.usage.totals("c") == Totals()


async def test_a_request_that_is_swallowed_is_counted_as_sent() -> None:
    async with (
        native(Answer(pieces=[], then="reset")) as server,
        provider(server.base_url) as host,
    ):
        with pytest.raises(errors.StreamBroken):
            await host.respond("m", HELLO, RespondOptions(session="c"))
    assert host.usage.totals("c").input > 0
    assert host.usage.totals("c").estimated_turns == 1


async def test_zeros_on_the_way_are_no_figures() -> None:
    zeros = {"input_tokens": 0, "output_tokens": 0, "total_tokens": 0}
    begun = event("created", response={"id": "resp_1", "status": "in_progress", "usage": zeros})
    cancel = asyncio.Event()
    async with (
        native(told(begun, *message("word " * 800)[:3], then="stall")) as server,
        provider(server.base_url) as host,
    ):
        with pytest.raises(TurnCancelled):
            await host.respond("m", HELLO, progress=lambda part: cancel.set(), cancel=cancel)
    ended = host.usage.of("resp_1")
    assert ended is not None and ended.is_estimate
    assert ended.counted.input_tokens > 0 and ended.counted.output_tokens == 1000


async def test_turns_of_no_session_push_no_conversation_out() -> None:
    async with (
        native(response(TextGrew("x"), COUNTED, STOP)) as server,
        AsyncClient(base_url=server.base_url, environ={}) as client,
        Provider(
            client,
            ProviderSettings(gate=RESPONSES_FOR_ALL),
            usage=UsageTracker(max_conversations=1),
            environ={},
        ) as host,
    ):
        await host.respond("m", HELLO, RespondOptions(session="c"))
        outcome = await host.respond("m", HELLO)
    assert host.usage.totals("c").turns == 1
    known = host.usage.of(outcome.response_id)
    assert known is not None and known.conversation is None


@pytest.mark.requirement("RFC016-usage")
async def test_a_listener_that_raises_changes_neither_outcome_nor_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reported: list[BaseException] = []
    monkeypatch.setattr(sys, "excepthook", lambda kind, error, trace: reported.append(error))

    def fail(update: Update) -> None:
        raise RuntimeError("the status line is gone")

    answers = [response(TextGrew("x"), COUNTED, STOP), refusal(401)]
    async with native(*answers) as server, provider(server.base_url) as host:
        host.usage.add_listener(fail)
        outcome = await host.respond("m", HELLO)
        with pytest.raises(errors.AuthFailed):
            await host.respond("m", HELLO)
    assert outcome.response.output_text == "x"
    assert [str(error) for error in reported] == ["the status line is gone"] * 4


@pytest.mark.parametrize("ending", ["whole", "refused", "left"])
async def test_an_asynchronous_listener_has_finished_when_the_turn_is_over(ending: str) -> None:
    heard: list[str] = []

    async def listen(update: Update) -> None:
        for _ in range(10):
            await asyncio.sleep(0)
        heard.append(update.turn.status if isinstance(update, TurnEnded) else "started")

    script = refusal(401) if ending == "refused" else response(TextGrew("x"), COUNTED, STOP)
    async with native(script) as server, provider(server.base_url) as host:
        host.usage.add_listener(listen)
        if ending == "whole":
            await host.respond("m", HELLO, progress=lambda part: heard.append("part"))
            assert heard == ["started", "part", "completed"]
        elif ending == "refused":
            with pytest.raises(errors.AuthFailed):
                await host.respond("m", HELLO)
            assert heard == ["started", "not_run"]
        else:
            async with host.stream("m", HELLO) as answer:
                await anext(aiter(answer))
            assert heard == ["started", "abandoned"]


async def test_the_room_of_the_model_is_told_with_the_start() -> None:
    updates: list[Update] = []
    async with (
        native(response(TextGrew("x"), COUNTED, STOP)) as server,
        provider(server.base_url) as host,
    ):
        host.usage.add_listener(updates.append)
        await host.respond("gpt-4o", HELLO)
        await host.respond("m", HELLO)
    starts = [update for update in updates if isinstance(update, TurnStarted)]
    assert [start.max_input for start in starts] == [111_616, None]


# What goes back.


def thinking_answer(**fields: Any) -> Answer:
    """Return an answer that thinks, searches, and cites what it found."""
    reasoning: Item = {"id": "rs_1", "type": "reasoning", "summary": [], **fields}
    search: Item = {"id": "ws_1", "type": "web_search_call", "status": "completed"}
    note = {"type": "url_citation", "url": "https://a.example/x", "title": "T"}
    said = message_item("Hi", annotations=[note])
    return told(
        created(),
        done(reasoning),
        done(search, 1),
        *message("Hi", index=2)[:3],
        event("output_text.annotation.added", annotation=note, **PLACE),
        done(said, 2),
        end(reasoning, search, said),
    )


PLACE = {"item_id": "msg_1", "output_index": 2, "content_index": 0, "annotation_index": 0}
THOUGHT = [{"type": "summary_text", "text": "hm"}]


async def second_input(
    answer: Answer, options: RespondOptions, model: str = "gpt-5", **settings: Any
) -> dict[str, Any]:
    """Return the request of the second turn, after one that was handed back as it came."""
    async with native(answer) as server, provider(server.base_url, **settings) as host:
        shown = Shown()
        await host.respond(model, HELLO, options, shown)
        messages = [*HELLO, Message.assistant(shown.parts), Message.user("And?")]
        await host.respond(model, messages, options)
    return server.body(1)


@pytest.mark.requirement("RFC016-open-question", "REQ-004.2")
async def test_an_answer_with_inline_links_is_known_again() -> None:
    sent = await second_input(thinking_answer(), RespondOptions(session="c"))
    assert sent["previous_response_id"] == "resp_1"
    assert [item["role"] for item in sent["input"]] == ["user"]


@pytest.mark.parametrize(
    ("model", "settings", "kinds", "search_id"),
    [
        ("gpt-5", {}, ["web_search_call"], None),
        ("gpt-5", {"shows_thinking": True}, ["reasoning", "web_search_call"], "ws_1"),
        ("gpt-4o", {}, ["web_search_call"], "ws_1"),
        ("m", {}, ["web_search_call"], None),
    ],
)
async def test_a_search_goes_back_with_its_thought_or_without_its_id(
    model: str, settings: dict[str, Any], kinds: list[str], search_id: str | None
) -> None:
    answer = thinking_answer(summary=THOUGHT)
    sent = (await second_input(answer, RespondOptions(), model, **settings))["input"]
    assert [item["type"] for item in sent] == ["message", *kinds, "message", "message"]
    assert sent[-3].get("id") == search_id
    assert sent[-2]["content"][0]["text"] == "Hi"


@pytest.mark.requirement("RFC22-thinking")
@pytest.mark.parametrize(
    ("store", "fields", "is_sent"),
    [
        (None, {"summary": THOUGHT}, True),
        (False, {"summary": THOUGHT}, False),
        (False, {"summary": THOUGHT, "encrypted_content": "sealed"}, True),
        (False, {"encrypted_content": "sealed"}, True),
    ],
)
async def test_a_thought_goes_back_if_the_server_can_know_it_again(
    store: bool | None, fields: dict[str, Any], is_sent: bool
) -> None:
    options = RespondOptions(model_options={} if store is None else {"store": store})
    sent = await second_input(thinking_answer(**fields), options, shows_thinking=True)
    assert ("reasoning" in [item["type"] for item in sent["input"]]) is is_sent


@pytest.mark.requirement("003-tools", "22-D4")
async def test_a_call_of_a_custom_tool_goes_back_as_it_came() -> None:
    item: Item = {"id": "ct_1", "type": "custom_tool_call", "call_id": "c1", "name": "sh"}
    item |= {"input": "ls", "status": "completed"}
    async with (
        native(told(created(), done(item), end(item))) as server,
        provider(server.base_url, call_prefix="gw-") as host,
    ):
        shown = Shown()
        await host.respond("m", HELLO, progress=shown)
        result = ToolResultPart(shown.calls[0].call_id, [TextPart("a.txt")])
        await host.respond("m", [*HELLO, Message.assistant(shown.parts), Message.user([result])])
    assert server.body(1)["input"][1:] == [
        {"type": "custom_tool_call", "call_id": "c1", "name": "sh", "input": "ls"},
        {"type": "custom_tool_call_output", "call_id": "c1", "output": "a.txt"},
    ]


async def test_a_chat_server_gets_no_thoughts_and_no_custom_calls() -> None:
    turn: list[Part] = [
        ThinkingPart("hm", "rs_1", {"encrypted_content": "sealed"}),
        TextPart("Let me see."),
        ToolCallPart("c1", "sh", {"input": "ls"}, "custom"),
    ]
    result = Message.user([ToolResultPart("c1", [TextPart("a.txt")])])
    async with (
        ScriptedUpstream(Script(text="One file.")) as upstream,
        provider(upstream.base_url, gate=GateConfig()) as host,
    ):
        outcome = await host.respond("m", [*HELLO, Message.assistant(turn), result])
    sent = upstream.requests[0].json["messages"]
    assert [message["role"] for message in sent] == ["system", "user", "assistant", "tool"]
    assert sent[2]["tool_calls"][0]["function"] == {"name": "sh", "arguments": '{"input":"ls"}'}
    assert "hm" not in str(sent)
    assert outcome.response.antiphon is UNSET or not outcome.response.antiphon.degraded


async def test_a_chat_server_that_takes_thoughts_back_gets_them() -> None:
    async with AsyncClient(base_url="https://api.deepseek.com/v1", environ={}) as client:
        host = Provider(client, ProviderSettings(), environ={})
        how = host._translation("deepseek-reasoner", "chat", RespondOptions())
    assert how.keeps_reasoning and how.is_stored


@pytest.mark.requirement("RFC016-scope-3")
async def test_the_reasoning_effort_reaches_the_request() -> None:
    async with (
        native(response(TextGrew("x"), COUNTED, STOP)) as server,
        provider(server.base_url) as host,
    ):
        await host.respond("m", HELLO, RespondOptions(model_options={"reasoning_effort": "high"}))
    assert server.body(0)["reasoning"] == {"effort": "high"}


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


async def test_an_estimate_is_not_taken_for_a_count_of_the_server() -> None:
    """The server gives no figures, so there is none that the next turn could build on."""
    started: list[int] = []

    def note(update: Update) -> None:
        if isinstance(update, TurnStarted):
            started.append(update.estimated_input)

    uncounted = told(created(), *message("one"), end(message_item("one")))
    async with native(uncounted) as server, provider(server.base_url) as host:
        host.usage.add_listener(note)
        first = [Message.user("word " * 500)]
        later = [*first, Message.assistant("one"), Message.user("go")]
        await host.respond("m", first, RespondOptions(session="c"))
        await host.respond("m", later, RespondOptions(session="c"))
        await host.respond("m", later, RespondOptions(session="other"))
    assert started[1] == started[2] > 600


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


def counting(tokens: int) -> Answer:
    """Return an answer of a server that counted so many tokens of input."""
    usage = Usage(input_tokens=tokens, output_tokens=1, total_tokens=tokens + 1)
    return response(TextGrew("x"), UsageKnown(usage), STOP)


LONG = Message.user("x" * 4000)


@pytest.mark.requirement("RFC016-metric-5")
@pytest.mark.parametrize("session", [None, "c"])
async def test_counting_tokens_learns_from_the_servers_own_count(session: str | None) -> None:
    async with native(counting(5000)) as server, provider(server.base_url) as host:
        before = host.count_tokens("m", LONG)
        await host.respond("m", [LONG], RespondOptions(session=session))
        after = host.count_tokens("m", LONG)
        new = host.count_tokens("m", Message.user("y" * 4000))
    assert before < 1100
    assert 4900 <= after <= 5250
    assert 4800 <= new <= 5400
    assert host.count_tokens("another", LONG) == before


@pytest.mark.requirement("RFC016-metric-5")
async def test_the_parts_of_a_conversation_come_to_what_the_server_counted() -> None:
    """Editors add up what each message is counted as, to know when to summarise."""
    messages = [Message.user("A question " * 50), Message.assistant("An answer. " * 80)]
    messages.append(Message.user('{"a":1,"b":[2,3],"c":"0f9e"}' * 40))
    async with native(counting(1400), counting(1900)) as server, provider(server.base_url) as host:
        await host.respond("m", messages)
        assert sum(host.count_tokens("m", it) for it in messages) == pytest.approx(1400, rel=0.02)
        messages += [Message.assistant("More. " * 60), Message.user("And? " * 90)]
        await host.respond("m", messages)
        assert sum(host.count_tokens("m", it) for it in messages) == pytest.approx(1900, rel=0.02)


@pytest.mark.parametrize(
    "options",
    [
        {"previous_response_id": "resp_0"},
        {"conversation": "conv_0"},
        {"prompt": {"id": "pmpt_0"}},
        {"truncation": "auto"},
    ],
)
async def test_a_count_of_more_or_less_than_was_sent_teaches_nothing(
    options: dict[str, Any],
) -> None:
    async with native(counting(5000)) as server, provider(server.base_url) as host:
        before = host.count_tokens("m", LONG)
        await host.respond("m", [LONG], RespondOptions(model_options=options))
        assert host.count_tokens("m", LONG) == before


@pytest.mark.parametrize("is_learned", [True, False])
async def test_the_length_that_a_server_is_asked_for_is_learned_unless_it_is_an_estimate(
    is_learned: bool,
) -> None:
    body: dict[str, Any] = {"object": "response.input_tokens", "input_tokens": 5000}
    if not is_learned:
        body["antiphon"] = {"usage": "estimated"}
    answer = Answer(pieces=[msgspec.json.encode(body)], content_type="application/json")
    async with native(answer) as server, provider(server.base_url) as host:
        before = host.count_tokens("m", LONG)
        options = RespondOptions(session="c", tools=[WEATHER])
        counted = await host.measure_tokens("m", [LONG], options)
        after = host.count_tokens("m", LONG)
    assert counted.input_tokens == 5000
    assert (after > 3 * before) is is_learned
    assert server.requests[0].path == "/v1/responses/input_tokens"
    assert server.body(0)["tools"][0]["name"] == "weather"


async def test_a_chat_server_is_not_asked_for_a_length() -> None:
    async with provider("http://127.0.0.1:1/v1", gate=GateConfig()) as host:
        with pytest.raises(errors.BadCall, match="chat server"):
            await host.measure_tokens("m", [LONG])


async def test_an_estimate_of_the_server_teaches_nothing() -> None:
    async with (
        ScriptedUpstream(Script(text="x", usage=None)) as upstream,
        provider(upstream.base_url, gate=GateConfig()) as host,
    ):
        before = host.count_tokens("m", LONG)
        outcome = await host.respond("m", [LONG])
        assert outcome.usage is not None and outcome.usage.input_tokens != before
        assert host.count_tokens("m", LONG) == before


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
