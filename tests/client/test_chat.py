"""The chat wire: what it posts is what chat clients post, what it tells are Responses events."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from openai import AsyncOpenAI

from antiphon.backends.chat import ChatBackend
from antiphon.client.chat import ChatWire, legacy_profile, read_call
from antiphon.client.errors import BadCall, StreamBroken, TimedOut
from antiphon.client.wires import Wire
from antiphon.protocol.errors import BackendError
from antiphon.protocol.events import ErrorEvent, Event, ResponseCreated, is_terminal
from antiphon.protocol.machines.accumulator import ResponseAccumulator
from antiphon.protocol.machines.referee import judge_stream
from antiphon.protocol.response import Response, Usage
from antiphon.protocol.tools import ToolPolicy
from antiphon.testing import (
    Call,
    Close,
    Cut,
    ErrorChunk,
    Garbage,
    NoDone,
    Reset,
    Script,
    ScriptedUpstream,
    Split,
    serve_gateway,
)
from antiphon.transport.http import HttpClient
from antiphon.transport.stream import open_stream
from antiphon.wires.chat.profiles import GENERIC, PROFILES
from tests.asking import ask, ask_stream, terminal
from tests.building import counting_mint

Json = dict[str, Any]

WEATHER: Json = {
    "type": "function",
    "name": "weather",
    "description": "Say how the weather is.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
}
CLOCK: Json = {"type": "function", "name": "clock", "parameters": {"type": "object"}}
DONE = b"data: [DONE]\n\n"
RECORDED = sorted((Path(__file__).parents[1] / "wire" / "streams").glob("*.sse"))


def wire_for(body: Json | None = None, **fields: Any) -> ChatWire:
    asked = {"model": "m", "input": "hello", "stream": True, **(body or {}), **fields}
    return ChatWire(asked, mint=counting_mint(), clock=lambda: 7.0)


def posted(wire: Wire) -> Json:
    return msgspec.json.decode(wire.request, type=Json)


def chunk(finish_reason: str | None = None, *, index: int = 0, **delta: object) -> bytes:
    choice = {"index": index, "delta": delta, "finish_reason": finish_reason}
    return b"data: %b\n\n" % json.dumps({"choices": [choice]}).encode()


async def travel(wire: ChatWire, base_url: str) -> list[Event]:
    """Post the request of the wire to a real server; return the events of the answer."""
    client = HttpClient()
    events: list[Event] = []
    try:
        async with await open_stream(client, base_url + wire.path, wire.request) as body:
            assert body.head.status == 200
            if body.head.content_type == "application/json":
                return wire.whole(await body.read_all(1_000_000))
            try:
                async for data in body:
                    events += wire.feed(data)
            except BackendError as error:
                return events + wire.end(error)
            return events + wire.end()
    finally:
        await client.close()


async def answer(script: Script, **fields: Any) -> tuple[list[Event], Response]:
    """Return the events of a scripted answer, which the referee accepts, and their response."""
    async with ScriptedUpstream(script) as upstream:
        events = await travel(wire_for(**fields), upstream.base_url)
    return events, judged(events)


def judged(events: Iterable[Event]) -> Response:
    events = list(events)
    assert judge_stream(events) == []
    accumulator = ResponseAccumulator()
    for event in events:
        accumulator.feed(event)
    response = accumulator.finish()
    assert accumulator.deviations == []
    assert response == terminal(events)
    return response


def kinds(response: Response) -> list[str]:
    return [item["type"] for item in response.output]


# What is posted.


@pytest.fixture
async def upstream() -> AsyncIterator[ScriptedUpstream]:
    async with ScriptedUpstream() as opened:
        yield opened


@pytest.mark.requirement("REQ-009.1", "22-A4", "22-E2")
@pytest.mark.parametrize("stream", [True, False])
async def test_the_body_is_the_one_that_a_chat_client_posts(
    upstream: ScriptedUpstream, stream: bool
) -> None:
    call_id = "call_1"
    arguments = '{"city":"Oslo"}'
    function = {key: value for key, value in WEATHER.items() if key != "type"}
    async with AsyncOpenAI(base_url=upstream.base_url, api_key="x", max_retries=0) as sdk:
        await sdk.chat.completions.create(
            **cast(
                Any,
                {
                    "model": "gpt-4",
                    "messages": [
                        {"role": "system", "content": "Be brief."},
                        {"role": "user", "content": "Weather in Oslo?"},
                        {
                            "role": "assistant",
                            "content": None,
                            "tool_calls": [
                                {
                                    "id": call_id,
                                    "type": "function",
                                    "function": {"name": "weather", "arguments": arguments},
                                }
                            ],
                        },
                        {"role": "tool", "tool_call_id": call_id, "content": "Rain."},
                        {"role": "assistant", "content": "It rains."},
                        {"role": "user", "content": "And now?"},
                    ],
                    "temperature": 0.5,
                    "top_p": 0.9,
                    "presence_penalty": 0.1,
                    "frequency_penalty": 0.2,
                    "max_tokens": 50,
                    "tools": [{"type": "function", "function": function}],
                    "tool_choice": {"type": "function", "function": {"name": "weather"}},
                    "parallel_tool_calls": False,
                    "stop": ["END"],
                    "seed": 11,
                    "n": 2,
                    "logit_bias": {"5": 1},
                    "user": "someone",
                    "stream": stream,
                    **({"stream_options": {"include_usage": True}} if stream else {}),
                },
            )
        )

    wire = wire_for(
        model="gpt-4",
        instructions="Be brief.",
        input=[
            {"role": "user", "content": "Weather in Oslo?"},
            {
                "type": "function_call",
                "call_id": call_id,
                "name": "weather",
                "arguments": arguments,
            },
            {"type": "function_call_output", "call_id": call_id, "output": "Rain."},
            {"role": "assistant", "content": "It rains."},
            {"role": "user", "content": "And now?"},
        ],
        temperature=0.5,
        top_p=0.9,
        presence_penalty=0.1,
        frequency_penalty=0.2,
        max_output_tokens=50,
        tools=[WEATHER],
        tool_choice={"type": "function", "name": "weather"},
        parallel_tool_calls=False,
        stop=["END"],
        seed=11,
        n=2,
        logit_bias={"5": 1},
        user="someone",
        stream=stream,
    )
    assert posted(wire) == upstream.requests[0].json


@pytest.mark.requirement("REQ-009.1")
def test_a_plain_request_posts_nothing_that_was_not_asked_for() -> None:
    assert posted(wire_for(stream=False)) == {
        "model": "m",
        "messages": [{"role": "user", "content": "hello"}],
        "stream": False,
    }


@pytest.mark.requirement("REQ-009.1")
@pytest.mark.parametrize("which", [None, *PROFILES, "https://api.openai.com/v1"])
def test_system_text_keeps_its_role_wherever_it_goes(which: str | None) -> None:
    body = {
        "model": "m",
        "instructions": "Be brief.",
        "input": [
            {"role": "user", "content": "a"},
            {"role": "system", "content": "Be briefer."},
            {"role": "user", "content": "b"},
        ],
    }
    messages = posted(ChatWire(body, legacy_profile(which)))["messages"]
    assert [message["role"] for message in messages] == ["system", "user", "system", "user"]


def test_a_profile_decides_what_reaches_the_server() -> None:
    body = {"model": "m", "input": "x", "top_k": 3, "max_output_tokens": 9}

    openai = ChatWire(body, legacy_profile("openai"))
    assert posted(openai)["max_completion_tokens"] == 9
    assert "top_k" not in posted(openai)
    assert posted(ChatWire(body, GENERIC))["top_k"] == 3


def test_there_is_no_profile_of_an_unknown_name() -> None:
    with pytest.raises(KeyError):
        legacy_profile("nobody")


# What can be asked.


def test_the_plan_holds_the_functions_and_names_what_nobody_runs() -> None:
    call = read_call(
        {
            "model": "m",
            "input": "x",
            "tools": [{"type": "web_search"}, WEATHER],
            "tool_choice": "required",
            "text": {"format": {"type": "json_object"}},
            "reasoning": {"effort": "low"},
            "prompt_cache_key": "k",
            "seed": 3,
        }
    )

    assert [offer.tool for offer in call.plan.toolbox.offers] == [WEATHER]
    assert call.plan.policy == ToolPolicy("required")
    assert call.plan.format == {"type": "json_object"}
    assert call.plan.reasoning_effort == "low"
    assert call.plan.extra == {"prompt_cache_key": "k", "seed": 3}
    assert call.assessment.degraded == ["tools[0] (web_search): it cannot be run here"]


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"conversation": "conv_1"}, "conversation"),
        ({"conversation": {"id": "conv_1"}}, "conversation"),
        ({"prompt": {"id": "p"}}, "prompt"),
        ({"background": True}, "background"),
        ({"input": [{"type": "item_reference", "id": "msg_1"}]}, "input[0]"),
        ({"model": None}, "model"),
        ({"temperature": 9}, "temperature"),
        ({"tools": [WEATHER, WEATHER]}, "tools"),
        ({"tools": [{"type": "web_search"}], "tool_choice": "required"}, "tool_choice"),
    ],
)
def test_what_no_chat_server_can_be_asked_is_refused_by_name(body: Json, param: str) -> None:
    with pytest.raises(BadCall) as caught:
        wire_for(body)
    assert caught.value.param == param


def test_what_is_lost_stands_in_the_response_from_its_first_event_on() -> None:
    wire = wire_for(
        store=True,
        truncation="auto",
        made_up=1,
        tools=[{"type": "web_search"}],
        include=["reasoning.encrypted_content"],
    )

    events = wire.feed(chunk("stop", content="a") + DONE)

    created = events[0]
    assert isinstance(created, ResponseCreated)
    assert created.response.antiphon
    assert list(created.response.antiphon.degraded) == [
        "tools[0] (web_search): it cannot be run here",
        "include (reasoning.encrypted_content)",
        "store: a chat server keeps nothing",
        "truncation: a chat server does not shorten the context",
        "made_up: unknown parameter; this backend cannot send it",
    ]
    assert judged(events).store is False


# What is told.


@pytest.mark.requirement("22-A3", "22-E2")
@pytest.mark.parametrize("stream", [True, False])
async def test_text_with_usage(stream: bool) -> None:
    usage = {
        "prompt_tokens": 5,
        "completion_tokens": 7,
        "total_tokens": 12,
        "prompt_tokens_details": {"cached_tokens": 4},
    }
    _, response = await answer(Script(text="Hi there, you.", usage=usage), stream=stream)

    assert response.status == "completed"
    assert response.output_text == "Hi there, you."
    assert response.usage is not None
    assert response.usage.input_tokens == 5
    assert response.usage.input_tokens_details.cached_tokens == 4
    assert (response.usage.output_tokens, response.usage.total_tokens) == (7, 12)
    assert not response.antiphon


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("way", ["reasoning_content", "reasoning", "think"])
async def test_reasoning_in_all_its_ways(way: Any, stream: bool) -> None:
    script = Script(text="Yes.", reasoning="Let me see.", reasoning_as=way)

    _, response = await answer(script, stream=stream)

    assert kinds(response) == ["reasoning", "message"]
    assert response.output[0]["content"] == [{"type": "reasoning_text", "text": "Let me see."}]
    assert response.output_text == "Yes."


async def test_reasoning_is_a_summary_for_who_asks_for_one() -> None:
    script = Script(text="Yes.", reasoning="Let me see.")

    _, response = await answer(script, reasoning={"summary": "auto"})

    assert response.output[0]["summary"] == [{"type": "summary_text", "text": "Let me see."}]


@pytest.mark.requirement("22-D3")
@pytest.mark.parametrize("stream", [True, False])
async def test_interleaved_calls_arrive_whole_and_in_order(stream: bool) -> None:
    calls = [
        Call("weather", '{"city":"Oslo, as it is called today"}', "call_a"),
        Call("clock", '{"zone":"Europe/Oslo","format":"long"}', "call_b"),
        Call("clock", "{}", "call_c"),
    ]
    script = Script(text="One moment.", calls=calls, interleave=True, faults=[Split((3, 7))])

    _, response = await answer(script, tools=[WEATHER, CLOCK], stream=stream)

    assert kinds(response) == ["message", *["function_call"] * 3]
    told = [(item["name"], item["arguments"], item["call_id"]) for item in response.output[1:]]
    assert told == [(call.name, call.arguments, call.id) for call in calls]


async def test_a_refusal_and_a_cut_by_length_are_told_as_such() -> None:
    _, refused = await answer(Script(refusal="No."))
    assert refused.output[0]["content"] == [{"type": "refusal", "refusal": "No."}]

    _, short = await answer(Script(text="a b", finish_reason="length"))
    assert short.status == "incomplete"
    assert short.incomplete_details is not None
    assert short.incomplete_details.reason == "max_output_tokens"


async def test_usage_that_nobody_counted_is_an_estimate_and_says_so() -> None:
    _, response = await answer(Script(text="word " * 20, usage=None))

    assert response.usage is not None
    assert response.usage.output_tokens == 25
    assert response.antiphon
    assert response.antiphon.usage == "estimated"


@pytest.mark.requirement("22-D2")
def test_further_choices_are_counted_and_noted_but_not_told() -> None:
    wire = wire_for(n=3)
    events = wire.feed(
        b"".join(chunk(content=f"<{index}>", index=index) for index in (0, 1, 2))
        + b"".join(chunk("stop", index=index) for index in (1, 2, 0))
        + DONE
    )

    response = judged(events)
    assert response.output_text == "<0>"
    assert wire.skipped_choices == 2
    assert response.antiphon
    assert response.antiphon.degraded == (
        "n: choices beyond the first are not returned; there were 2",
    )


@pytest.mark.requirement("22-D2")
def test_further_choices_of_a_whole_answer_are_counted() -> None:
    wire = wire_for(stream=False, n=2)
    choices = [
        {"index": index, "message": {"content": f"<{index}>"}, "finish_reason": "stop"}
        for index in (0, 1)
    ]

    response = judged(wire.whole(json.dumps({"choices": choices}).encode()))

    assert (response.output_text, wire.skipped_choices) == ("<0>", 1)


def test_a_call_that_tool_choice_forbids_is_not_handed_on() -> None:
    wire = wire_for(tools=[WEATHER, CLOCK], tool_choice="none")
    call = {"index": 0, "id": "c", "function": {"name": "clock", "arguments": "{}"}}

    response = judged(wire.feed(chunk("tool_calls", tool_calls=[call]) + DONE))

    assert response.output == []
    assert response.antiphon
    assert response.antiphon.degraded == ("tool_choice: a call to 'clock' was suppressed",)


def test_a_forced_call_that_is_not_made_is_a_failure() -> None:
    wire = wire_for(tools=[WEATHER], tool_choice="required")

    response = judged(wire.feed(chunk("stop", content="I would rather talk.") + DONE))

    assert response.status == "failed"
    assert response.error is not None
    assert response.error.code == "tool_choice_violated"
    assert response.output_text == "I would rather talk."


@pytest.mark.parametrize(
    ("profile", "choice", "is_bound"),
    [("generic", "auto", False), ("llamacpp", "auto", False), ("llamacpp", "required", True)],
)
def test_a_grammar_that_nothing_holds_the_model_to_is_reported(
    profile: str, choice: str, is_bound: bool
) -> None:
    form = {"type": "grammar", "syntax": "regex", "definition": "[0-9]+"}
    tool = {"type": "custom", "name": "n", "format": form}
    body = {"model": "m", "input": "x", "tools": [tool], "tool_choice": choice}
    wire = ChatWire(body, legacy_profile(profile))

    response = judged(wire.feed(chunk("stop", content="12") + DONE))

    assert ("grammar" in posted(wire)) == is_bound
    notes = response.antiphon.degraded if response.antiphon else ()
    assert any(note.startswith("tools[0].format") for note in notes) != is_bound


SAID: list[Script] = [
    Script(text="Hi there."),
    Script(text="So.", reasoning="Hm."),
    Script(text="So.", reasoning="Hm.", reasoning_as="think"),
    Script(refusal="No."),
    Script(text="x", calls=[Call("weather"), Call("clock", '{"a":1}')], interleave=True),
    Script(calls=[Call("made_up")]),
    Script(text="a b c", finish_reason="length", usage=None),
    Script(text="a b", finish_reason="content_filter"),
]


@pytest.mark.requirement("22-A3", "22-A4")
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("script", SAID)
async def test_the_road_tells_what_the_gateway_tells_of_the_same_model(
    script: Script, stream: bool
) -> None:
    body: Json = {"input": "hello", "model": "echo", "temperature": 0.5, "store": False}
    body |= {"tools": [WEATHER, CLOCK], "metadata": {"a": "b"}, "instructions": "Be brief."}
    async with ScriptedUpstream(script) as upstream:
        async with serve_gateway(ChatBackend(upstream.base_url)) as gateway:
            if stream:
                there = terminal(await ask_stream(gateway, **body))
            else:
                there = msgspec.convert((await ask(gateway, **body)).json, Response)
        here = judged(await travel(wire_for(body, stream=stream), upstream.base_url))
        assert upstream.requests[0].json == upstream.requests[1].json

    one, other = without_ids(here), without_ids(there)
    if script.usage is None:  # estimated: the gateway counts pieces of output too, not only bytes
        at_least, counted = one.pop("usage"), other.pop("usage")
        assert counted["input_tokens"] == at_least["input_tokens"]
        assert counted["output_tokens"] >= at_least["output_tokens"]
    assert one == other


def without_ids(response: Response) -> Json:
    value: Json = msgspec.to_builtins(response)
    for item in value["output"]:
        del item["id"]
    return {key: value[key] for key in value if key not in {"id", "created_at", "completed_at"}}


# Faults.


def partial_of(events: list[Event]) -> Response:
    """Return what events without a terminal one add up to."""
    accumulator = ResponseAccumulator()
    accumulator.feed_all(events)
    assert not any(map(is_terminal, events))
    assert accumulator.response is not None
    return accumulator.response


@pytest.mark.requirement("22-E2")
@pytest.mark.parametrize(
    ("fault", "code"),
    [
        (Cut(after=3), "server_closed"),
        (Reset(after=3), "server_closed"),
        (Garbage(after=3), "server_invalid_response"),
    ],
)
async def test_a_fault_in_mid_stream_comes_after_everything_the_model_produced(
    fault: Any, code: str
) -> None:
    wire = wire_for()
    async with ScriptedUpstream(Script(text="one two three four", faults=[fault])) as upstream:
        events = await travel(wire, upstream.base_url)

    partial = partial_of(events)
    assert partial.output_text == "one two"
    assert partial.output[0]["status"] == "incomplete"
    assert isinstance(wire.fault, StreamBroken)
    assert wire.fault.code == code
    assert "upstream" not in wire.fault.message


async def test_a_stream_that_ends_early_in_good_order_has_no_terminal_event() -> None:
    wire = wire_for()
    script = Script(text="one two three four", faults=[Close(after=3)])
    async with ScriptedUpstream(script) as upstream:
        events = await travel(wire, upstream.base_url)

    assert partial_of(events).output_text == "one two"
    assert (wire.fault, wire.is_done) == (None, True)


@pytest.mark.requirement("22-E2")
@pytest.mark.parametrize(
    ("error", "code", "param"),
    [
        ({"message": "slow down", "code": "rate_limit_exceeded"}, "rate_limit_exceeded", None),
        ({"message": "slow down", "type": "busy", "param": "input"}, None, "input"),
        ({"message": "slow down", "code": 429}, "429", None),
    ],
)
async def test_an_error_of_the_server_is_an_error_event_in_its_own_words(
    error: Json, code: str | None, param: str | None
) -> None:
    wire = wire_for()
    script = Script(text="one two three four", faults=[ErrorChunk(after=3, error=error)])
    async with ScriptedUpstream(script) as upstream:
        events = await travel(wire, upstream.base_url)

    assert partial_of(events).output_text == "one two"
    last = events[-1]
    assert isinstance(last, ErrorEvent)
    assert (last.message, last.code, last.param) == ("slow down", code, param)
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert (wire.fault, wire.is_done) == (None, True)


async def test_a_call_that_is_cut_is_incomplete() -> None:
    calls = [Call("weather", '{"city":"a very long name of a city"}')]
    async with ScriptedUpstream(Script(calls=calls, faults=[Cut(after=4)])) as upstream:
        events = await travel(wire_for(tools=[WEATHER]), upstream.base_url)

    (call,) = partial_of(events).output
    assert (call["type"], call["status"]) == ("function_call", "incomplete")


async def test_a_cut_loses_no_call_that_waits_for_another() -> None:
    wire = wire_for(tools=[WEATHER, CLOCK])
    calls = [
        {"index": 0, "id": "a", "function": {"name": "weather", "arguments": '{"ci'}},
        {"index": 1, "id": "b", "function": {"name": "clock", "arguments": '{"z'}},
    ]
    events = wire.feed(chunk(tool_calls=calls))
    events += wire.end(BackendError("it fell silent", code="upstream_timeout"))

    told = [(item["call_id"], item["arguments"]) for item in partial_of(events).output]
    assert told == [("a", '{"ci'), ("b", '{"z')]
    assert isinstance(wire.fault, TimedOut)


async def test_an_end_without_its_mark_is_an_end() -> None:
    _, response = await answer(Script(text="a b", faults=[NoDone()]))

    assert (response.status, response.output_text) == ("completed", "a b")


@pytest.mark.parametrize(
    ("fault", "code"), [(Cut(), "server_closed"), (Garbage(), "server_invalid_response")]
)
async def test_a_fault_before_any_output_has_no_events(fault: Any, code: str) -> None:
    wire = wire_for()
    async with ScriptedUpstream(Script(text="one", faults=[fault])) as upstream:
        assert await travel(wire, upstream.base_url) == []

    assert wire.fault is not None
    assert wire.fault.code == code
    assert wire.feed(chunk("stop", content="too late") + DONE) == []
    assert wire.end() == []


@pytest.mark.parametrize("data", [b"", b": hello\n\n", DONE, b"data: {torn"])
def test_a_stream_without_output_is_only_at_its_end(data: bytes) -> None:
    wire = wire_for()

    assert wire.feed(data) + wire.end() == []
    assert (wire.fault, wire.is_done) == (None, True)


@pytest.mark.parametrize("body", [b"", b"{}", b"<html>"])
def test_a_body_that_is_no_answer_has_no_events(body: bytes) -> None:
    wire = wire_for(stream=False)

    assert wire.whole(body) == []
    assert wire.fault is not None
    assert wire.fault.code == "server_invalid_response"


def test_a_fault_of_the_connection_after_the_reason_does_no_harm() -> None:
    wire = wire_for()
    events: list[Event] = []
    ending = []
    for data in (chunk(content="a"), chunk("stop")):
        events += wire.feed(data)
        ending.append(wire.is_ending)
    events += wire.end(BackendError("it fell silent", code="upstream_timeout"))

    assert ending == [False, True]
    assert judged(events).status == "completed"
    assert wire.fault is None


def test_an_error_that_comes_with_the_last_words_comes_after_them() -> None:
    wire = wire_for()

    events = wire.feed(chunk(content="a") + b'data: {"error":{"message":"out of memory"}}\n\n')

    assert partial_of(events).output_text == "a"
    assert isinstance(events[-1], ErrorEvent)
    assert (wire.feed(chunk(content="b")), wire.end()) == ([], [])


def test_a_call_that_goes_on_after_its_end_keeps_what_was_told_before() -> None:
    wire = wire_for(tools=[CLOCK])
    call = {"index": 0, "id": "c", "function": {"name": "clock", "arguments": "{}"}}
    more = {"index": 0, "function": {"arguments": "x"}}

    events = wire.feed(chunk(tool_calls=[call]) + chunk(content="Done.") + chunk(tool_calls=[more]))

    response = judged(events)
    assert response.status == "failed"
    assert kinds(response) == ["function_call", "message"]
    assert response.output[0]["arguments"] == "{}"


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_recorded_streams_tell_the_same_however_they_are_cut(path: Path) -> None:
    data = path.read_bytes()
    names = {name.decode() for name in re.findall(rb'"name": ?"([\w-]+)"', data)}
    tools = [{"type": "function", "name": name} for name in sorted(names)]

    at_once, by_bytes = wire_for(tools=tools), wire_for(tools=tools)
    events = at_once.feed(data) + at_once.end()
    pieces = [by_bytes.feed(data[n : n + 1]) for n in range(len(data))]
    slowly = [event for piece in [*pieces, by_bytes.end()] for event in piece]

    if any(map(is_terminal, events)):
        assert judged(slowly) == judged(events)
        return
    assert str(by_bytes.fault) == str(at_once.fault)
    if at_once.fault is None and not events:
        assert (slowly, at_once.is_done) == ([], True)
    elif events and not isinstance(events[0], ErrorEvent):
        assert partial_of(slowly) == partial_of(events)


# Ids and times.


def test_ids_and_times_come_from_where_they_are_told_to() -> None:
    wire = wire_for()
    response = judged(wire.feed(chunk("stop", content="a") + DONE))

    assert response.id == "resp_0"
    assert (response.created_at, response.completed_at) == (7, 7)
    assert response.usage != Usage()


def test_ids_are_never_alike_by_default() -> None:
    ids = set()
    for _ in range(2):
        wire = ChatWire({"model": "m", "input": "x"})
        response = judged(wire.feed(chunk("stop", content="a") + DONE))
        ids |= {response.id, response.output[0]["id"]}
        assert re.fullmatch(r"resp_client-[0-9a-f]{48}", response.id)
        assert response.created_at > 1_600_000_000
    assert len(ids) == 4
