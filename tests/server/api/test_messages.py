"""POST /v1/messages over a real socket: Anthropic's own client against the whole gateway."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anthropic
import msgspec
import pytest

from antiphon.backends.chat import ChatBackend
from antiphon.backends.scripted import ScriptedBackend
from antiphon.gateway.assemble import ServerSettings
from antiphon.protocol.deltas import Delta, ReasoningGrew, Stopped, TextGrew
from antiphon.protocol.errors import BackendError, ContextOverflow
from antiphon.routing.describe import ModelSettings
from antiphon.server.auth import new_key
from antiphon.server.doors import DoorSettings
from antiphon.server.limits import ServerLimits
from antiphon.store.memory import MemoryStore
from antiphon.testing import Call, ErrorChunk, Script, ScriptedUpstream, Status, serve_gateway
from antiphon.testing.gateway import Gateway
from tests.asking import request

HELLO: Any = {"role": "user", "content": "hello"}
TOOL: Any = {
    "name": "look",
    "description": "Looks.",
    "input_schema": {"type": "object", "properties": {"a": {"type": "integer"}}},
}
THINKING: Any = {"type": "adaptive"}
BODY: Any = {"model": "echo", "max_tokens": 99, "messages": [HELLO]}


def client_of(gateway: Gateway, **options: Any) -> anthropic.AsyncAnthropic:
    root = gateway.base_url.removesuffix("/v1")
    options = {"api_key": "none", "max_retries": 0, **options}
    return anthropic.AsyncAnthropic(base_url=root, **options)


@asynccontextmanager
async def served(
    *scripts: Script, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
) -> AsyncIterator[tuple[Gateway, ScriptedUpstream]]:
    async with ScriptedUpstream(list(scripts)) as upstream:
        backend = ChatBackend(upstream.base_url, profile="vllm", sleep=sleep)
        async with serve_gateway({"test": backend}, default_model="echo") as gateway:
            yield gateway, upstream


async def test_a_stream_and_a_whole_answer_are_the_same_message() -> None:
    script = Script(
        text="Let me look.",
        reasoning="Where is it?",
        calls=[Call("look", '{"a": 1}', id="functions.look:0"), Call("look", '{"a": 2}')],
        interleave=True,
    )
    ask: Any = {**BODY, "tools": [TOOL], "thinking": THINKING}
    async with served(script) as (gateway, _), client_of(gateway) as client:
        async with client.messages.stream(**ask) as stream:
            streamed = await stream.get_final_message()
        whole = await client.messages.create(**ask)

    thought, text, first, second = streamed.content
    assert (thought.type, text.type) == ("thinking", "text")
    assert (first.type, second.type) == ("tool_use", "tool_use")
    assert first.type == "tool_use"
    assert (first.id, first.input) == ("toolu_functions-2elook-3a0", {"a": 1})
    assert streamed.stop_reason == whole.stop_reason == "tool_use"
    assert whole._request_id
    assert streamed.usage.output_tokens == whole.usage.output_tokens > 0
    assert _without_seals(streamed) == _without_seals(whole)


def _without_seals(message: Any) -> list[dict[str, Any]]:
    blocks = [block.to_dict() for block in message.content]
    return [{**block, "signature": bool(block.get("signature"))} for block in blocks]


async def test_a_tool_loop_reaches_the_model_with_its_thinking() -> None:
    look = Call("look", '{"a": 1}', id="functions.look:0")
    scripts = Script(reasoning="Where is it?", calls=[look]), Script(text="There.")
    ask: Any = {**BODY, "tools": [TOOL], "thinking": THINKING}
    async with served(*scripts) as (gateway, upstream), client_of(gateway) as client:
        called = await client.messages.create(**ask)
        call: Any = called.content[1]
        result = {"type": "tool_result", "tool_use_id": call.id, "content": "42"}
        history = [HELLO, {"role": "assistant", "content": called.content}]
        ask["messages"] = [*history, {"role": "user", "content": [result]}]
        answer = await client.messages.with_raw_response.create(**ask)

    _, assistant, tool = upstream.requests[1].json["messages"]
    assert assistant["reasoning"] == "Where is it?"
    made = assistant["tool_calls"][0]
    assert (made["id"], made["function"]["arguments"]) == ("functions.look:0", '{"a":1}')
    assert tool == {"role": "tool", "tool_call_id": "functions.look:0", "content": "42"}
    assert "x-antiphon-degraded" not in answer.headers


async def test_what_is_not_honoured_is_named_and_never_refused() -> None:
    async with served(Script(text="ok")) as (gateway, _):
        extra = {"context_management": {"edits": []}, "speed": "fast", "betas": ["x-2026-01-01"]}
        answer = await request(gateway, "POST", "/messages?beta=true", {**BODY, **extra})

    assert answer.status == 200
    named = answer.headers["x-antiphon-degraded"]
    assert all(name in named for name in extra)


async def test_nothing_is_stored_unless_it_is_asked_for() -> None:
    async with serve_gateway(ScriptedBackend()) as gateway:
        sent = await request(gateway, "POST", "/messages", BODY)
        kept = await request(gateway, "POST", "/messages", {**BODY, "store": True})
        ids = [answer.json["id"].replace("msg_", "resp_") for answer in (sent, kept)]
        found = [await request(gateway, "GET", f"/responses/{one}") for one in ids]

    assert [answer.status for answer in found] == [404, 200]


async def test_the_settings_may_store_all_turns() -> None:
    settings = ServerSettings(doors=DoorSettings(store=True))
    async with serve_gateway(ScriptedBackend(), settings=settings) as gateway:
        sent = await request(gateway, "POST", "/messages", BODY)
        found = await request(gateway, "GET", sent.json["id"].replace("msg_", "/responses/resp_"))

    assert found.status == 200


async def test_a_door_that_is_closed_is_not_there() -> None:
    settings = ServerSettings(doors=DoorSettings(messages=False))
    async with serve_gateway(ScriptedBackend(), settings=settings) as gateway:
        answer = await request(gateway, "POST", "/messages", BODY)

    assert answer.status == 404


@pytest.mark.parametrize("stream", [True, False])
async def test_an_overflow_is_an_http_error_in_the_words_that_clients_know(stream: bool) -> None:
    backend = ScriptedBackend([[ContextOverflow("it does not fit")]])
    models = {"echo": ModelSettings(context_length=100)}
    body = {**BODY, "messages": [{"role": "user", "content": "x" * 4000}], "stream": stream}
    async with serve_gateway(backend, models=models) as gateway:
        answer = await request(gateway, "POST", "/messages", body)

    assert answer.status == 400
    assert answer.json["type"] == "error"
    assert answer.error == {
        "type": "invalid_request_error",
        "message": "prompt is too long: 1000 tokens > 100 maximum",
    }


@pytest.mark.parametrize(
    ("error", "status", "kind"),
    [
        (
            BackendError("slow", status=429, code="rate_limit_exceeded", retry_after=7),
            429,
            "rate_limit_error",
        ),
        (BackendError("full", status=503), 529, "overloaded_error"),
        (BackendError("gone"), 502, "api_error"),
    ],
)
async def test_errors_have_the_shape_and_status_of_anthropic(
    error: Exception, status: int, kind: str
) -> None:
    async with serve_gateway(ScriptedBackend([[error]])) as gateway:  # type: ignore[list-item]  # a fault
        answer = await request(gateway, "POST", "/messages", BODY)

    assert (answer.status, answer.error["type"]) == (status, kind)
    assert answer.json["request_id"] == answer.headers["x-request-id"]


@pytest.mark.parametrize("path", ["/messages", "/messages/count_tokens"])
async def test_a_server_without_room_is_overloaded_in_the_words_of_anthropic(path: str) -> None:
    settings = ServerSettings(limits=ServerLimits(turns=0))
    async with serve_gateway(ScriptedBackend(), settings=settings) as gateway:
        answer = await request(gateway, "POST", path, BODY)

    assert (answer.status, answer.error["type"]) == (529, "overloaded_error")


@pytest.mark.parametrize(
    ("method", "path", "status", "kind"),
    [
        ("GET", "/messages", 405, "invalid_request_error"),
        ("PUT", "/messages/count_tokens", 405, "invalid_request_error"),
        ("POST", "/messages/batches", 404, "not_found_error"),
        ("GET", "/messages/batches/1/results", 404, "not_found_error"),
    ],
)
async def test_what_no_route_answers_is_an_error_of_the_api_that_it_belongs_to(
    method: str, path: str, status: int, kind: str
) -> None:
    async with serve_gateway(ScriptedBackend()) as gateway:
        answer = await request(gateway, method, path)

    assert (answer.status, answer.json["type"], answer.error["type"]) == (status, "error", kind)
    assert answer.headers.get("Allow") == ("POST" if status == 405 else None)


async def test_a_turn_that_breaks_off_is_an_error_and_not_an_end() -> None:
    said: Sequence[Any] = [TextGrew("hel"), BackendError("gone", code="upstream_closed")]
    async with serve_gateway(ScriptedBackend([said, said])) as gateway:
        streamed = await request(gateway, "POST", "/messages", {**BODY, "stream": True})
        whole = await request(gateway, "POST", "/messages", BODY)

    assert streamed.body.rstrip().splitlines()[-2] == b"event: error"
    assert b"message_stop" not in streamed.body
    assert (whole.status, whole.error["type"]) == (502, "api_error")


async def test_tokens_are_counted_without_a_model() -> None:
    async with served(Script(text="never")) as (gateway, upstream), client_of(gateway) as client:
        counted = await client.messages.with_raw_response.count_tokens(
            model="echo", messages=[HELLO], tools=[TOOL], system="Be brief."
        )

    assert (await counted.parse()).input_tokens > 10
    assert counted.headers["x-antiphon-count"] == "estimate"
    assert upstream.requests == []


async def test_no_model_runs_for_an_answer_of_no_tokens() -> None:
    async with served(Script(text="never")) as (gateway, upstream):
        answer = await request(gateway, "POST", "/messages", {**BODY, "max_tokens": 0})

    assert (answer.status, answer.json["content"]) == (200, [])
    assert upstream.requests == []


async def test_models_are_listed_in_the_shape_of_the_client() -> None:
    models = {"echo": ModelSettings(context_length=32_000, max_output_tokens=1000)}
    async with (
        serve_gateway(ScriptedBackend(), models=models) as gateway,
        client_of(gateway) as client,
    ):
        listed = [model async for model in client.models.list()]
        one = await client.models.retrieve("echo")

    assert "echo" in [model.id for model in listed]
    assert (one.type, one.max_input_tokens, one.max_tokens) == ("model", 32_000, 1000)


@pytest.mark.parametrize("header", ["api_key", "auth_token"])
async def test_a_key_is_taken_from_either_header(header: str) -> None:
    store = MemoryStore()
    key, record = new_key("alice", 0)
    await store.add_key(record)
    settings = ServerSettings(require_keys=True)
    async with serve_gateway(ScriptedBackend(), store=store, settings=settings) as gateway:
        given = {"api_key": None, "auth_token": None, header: key}
        async with client_of(gateway, **given) as client:
            answer = await client.messages.create(**BODY)
        async with client_of(gateway, api_key="ak_wrong_key") as stranger:
            with pytest.raises(anthropic.AuthenticationError):
                await stranger.messages.create(**BODY)

    assert answer.content[0].type == "text"


async def test_thinking_is_not_shown_to_those_who_did_not_ask() -> None:
    said: Sequence[Delta] = [ReasoningGrew("hm"), TextGrew("yes"), Stopped("stop")]
    async with serve_gateway(ScriptedBackend([said, said])) as gateway:
        plain = await request(gateway, "POST", "/messages", BODY)
        asked = await request(gateway, "POST", "/messages", {**BODY, "thinking": THINKING})

    assert [block["type"] for block in plain.json["content"]] == ["text"]
    assert [block["type"] for block in asked.json["content"]] == ["thinking", "text"]


async def test_an_upstream_that_is_busy_is_reported_as_busy() -> None:
    script = Script(faults=[Status(429, "slow down", headers={"Retry-After": "9"})])
    waits: list[float] = []

    async def note(seconds: float) -> None:
        waits.append(seconds)

    async with served(script, sleep=note) as (gateway, upstream):
        answer = await request(gateway, "POST", "/messages", {**BODY, "stream": True})

    assert (answer.status, answer.error["type"]) == (429, "rate_limit_error")
    assert answer.headers["Retry-After"] == "9"
    assert waits == [9] * (len(upstream.requests) - 1)


async def test_a_probe_of_the_root_is_answered() -> None:
    """Claude Code sends HEAD / before its first request."""
    async with serve_gateway(ScriptedBackend()) as gateway:
        answer = await request(gateway, "HEAD", "/..")
    assert answer.status == 200


async def test_an_overload_in_mid_stream_keeps_its_type() -> None:
    """A client must be able to tell it from a fault (envoy #2697)."""
    error = {"message": "Overloaded", "type": "overloaded_error"}
    script = Script(text="one two three", faults=[ErrorChunk(after=2, error=error)])
    async with served(script) as (gateway, _):
        answer = await request(gateway, "POST", "/messages", {**BODY, "stream": True})

    *_, last = answer.body.decode().rstrip().splitlines()
    assert msgspec.json.decode(last.removeprefix("data: "))["error"]["type"] == "overloaded_error"


async def test_hundreds_of_tools_reach_the_model() -> None:
    tools = [{**TOOL, "name": f"look_{number}"} for number in range(300)]
    body = {**BODY, "tools": tools, "tool_choice": {"type": "tool", "name": "look_299"}}
    script = Script(calls=[Call("look_299", '{"a": 1}')])
    async with served(script) as (gateway, upstream):
        answer = await request(gateway, "POST", "/messages", body)

    assert [block["name"] for block in answer.json["content"]] == ["look_299"]
    names = [tool["function"]["name"] for tool in upstream.requests[0].json["tools"]]
    assert names == [tool["name"] for tool in tools]
    assert "x-antiphon-degraded" not in answer.headers


LATE: Any = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_x"}]}


@pytest.mark.parametrize("path", ["/messages", "/messages/count_tokens"])
async def test_a_fault_that_is_found_late_has_the_names_of_the_caller(path: str) -> None:
    image = {"type": "image", "source": {"type": "url", "url": "x" * (20 * 1024 * 1024 + 1)}}
    wrong = {"role": "user", "content": [image]}
    system = [{"type": "text", "text": "Be brief."}]
    async with served(Script()) as (gateway, _):
        orphan = await request(gateway, "POST", path, {**BODY, "messages": [HELLO, LATE]})
        body = {**BODY, "system": system, "messages": [HELLO, wrong]}
        early = await request(gateway, "POST", path, body)
        effort = {**BODY, "output_config": {"format": {"type": "json_schema", "schema": 1}}}
        form = await request(gateway, "POST", path, effort)

    for answer in (orphan, early, form):
        assert answer.status == 400, answer.body
        assert b"input" not in answer.body.replace(b"function call output", b"")
        assert b"text.format" not in answer.body
    assert early.error["message"].startswith("messages[1].content[0]")
    assert form.error["message"].startswith("output_config.format")
