"""A model behind a Responses server: real HTTP to a server, and to a gateway of our own."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest

from antiphon.backends.chat import ChatBackend
from antiphon.backends.http import HttpBackend
from antiphon.protocol.deltas import Stopped, TextGrew
from antiphon.protocol.errors import BackendError, ContextOverflow
from antiphon.testing import Call, Cut, Script, ScriptedUpstream, Status, serve_gateway
from antiphon.testing.gateway import Gateway
from antiphon.transport.secret import Secret
from antiphon.wires.responses.profiles import PROFILES
from antiphon.wires.responses.wire import ResponsesWire
from tests.asking import ask, ask_stream, request, terminal
from tests.building import plan_with
from tests.playing import Collected
from tests.talking import talk
from tests.transport.raw import Connection, RawServer, Request, raw_server, reply
from tests.wires.responses.upstream import Json, ended, message, sse, texted

LOOK: Final[Json] = {"type": "function", "name": "look", "parameters": {"type": "object"}}
PATCH: Final[Json] = {"type": "custom", "name": "patch"}
HELLO: Final = sse([*texted(["Hel", "lo"]), ended([message("Hello")])])
USER: Final[Json] = {"role": "user", "content": "hello"}


def backend_for(url: str, profile: str = "openai", **settings: Any) -> HttpBackend:
    async def go_on(_: float) -> None:
        pass

    wire = ResponsesWire(PROFILES[profile], account="team")
    return HttpBackend(url, wire, sleep=go_on, jitter=lambda: 0.0, **settings)


@asynccontextmanager
async def answering(data: bytes, **options: Any) -> AsyncIterator[RawServer]:
    async def script(_: Request, connection: Connection) -> None:
        await connection.write(reply(data, **options))

    async with raw_server(script) as server:
        yield server


# One server.


async def test_a_stream_is_read_as_it_arrives() -> None:
    async with answering(HELLO, content_type="text/event-stream") as server:
        backend = backend_for(f"{server.url}/v1", key=Secret("sk-1"))
        sink = Collected()
        await (await backend.open(plan_with(items=[USER]))).run(sink)
        await backend.close()
    assert [delta.text for delta in sink.deltas if isinstance(delta, TextGrew)] == ["Hel", "lo"]
    assert sink.deltas[-1] == Stopped("stop")
    (asked,) = server.requests
    assert asked.path == "/v1/responses"
    assert asked.headers["authorization"] == "Bearer sk-1"


async def test_azure_takes_its_key_in_a_header_of_its_own() -> None:
    async with answering(b'{"data":[{"id":"m"}]}') as server:
        backend = backend_for(server.url, "azure", key=Secret("azure-key"))
        assert [model.id for model in await backend.models()] == ["m"]
        await backend.close()
    assert server.requests[0].headers["api-key"] == "azure-key"
    assert "authorization" not in server.requests[0].headers


@pytest.mark.parametrize(
    ("status", "error", "code"),
    [
        ("400 No", {"code": "context_length_exceeded", "message": "x"}, "context_length_exceeded"),
        ("404 No", {"code": "model_not_found", "message": "no model"}, "model_not_found"),
        ("429 No", {"code": "rate_limit_exceeded", "message": "x"}, "rate_limit_exceeded"),
        (
            "400 No",
            {"code": 400, "message": "x", "type": "invalid_request_error"},
            "upstream_refused",
        ),
        ("401 No", {"message": "bad key sk-secret-key"}, "upstream_auth"),
        ("503 No", {"message": "busy"}, "upstream_overloaded"),
    ],
)
async def test_refusals_are_what_they_are_on_every_wire(
    status: str, error: Json, code: str
) -> None:
    async with answering(json.dumps({"error": error}).encode(), status=status) as server:
        backend = backend_for(server.url, key=Secret("sk-secret-key"))
        with pytest.raises(BackendError) as caught:
            await (await backend.open(plan_with(items=[USER]))).run(Collected())
        await backend.close()
    assert caught.value.code == code
    assert "sk-secret-key" not in caught.value.message
    assert isinstance(caught.value, ContextOverflow) == (code == "context_length_exceeded")


async def test_input_tokens_are_counted_where_the_server_counts_them() -> None:
    async with answering(b'{"object":"response.input_tokens","input_tokens":42}') as server:
        counting, not_counting = backend_for(server.url), backend_for(server.url, "xai")
        assert await counting.count(plan_with([LOOK], items=[USER])) == 42
        assert await not_counting.count(plan_with(items=[USER])) is None
        await counting.close()
        await not_counting.close()
    (asked,) = server.requests
    assert asked.path == "/responses/input_tokens"
    assert set(json.loads(asked.body)) == {"model", "input", "tools"}


# Our own gateway as the upstream of another.


@asynccontextmanager
async def chained(
    *scripts: Script, profile: str = "openai"
) -> AsyncIterator[tuple[Gateway, ScriptedUpstream]]:
    """Run a gateway in front of a gateway in front of a chat server."""
    async with ScriptedUpstream(list(scripts)) as upstream:
        chat = ChatBackend(upstream.base_url, profile="vllm")
        async with (
            serve_gateway({"chat": chat}, default_model="echo") as inner,
            serve_gateway(
                {"native": backend_for(inner.base_url, profile)}, default_model="echo"
            ) as outer,
        ):
            yield outer, upstream


CALLING: Final = Script(
    text="Let me look.",
    reasoning="Where?",
    calls=[Call("look", '{"a": 1}'), Call("patch", '{"input": "*** Begin"}')],
)


async def test_a_tool_loop_goes_through_two_gateways() -> None:
    async with chained(CALLING, Script(text="Found.")) as (outer, upstream):
        first = terminal(await ask_stream(outer, input=[USER], tools=[LOOK, PATCH]))
        kinds = [item["type"] for item in first.output]
        assert kinds == ["reasoning", "message", "function_call", "custom_tool_call"]
        assert first.output[3]["input"] == "*** Begin"
        results = [
            {"type": "function_call_output", "call_id": first.output[2]["call_id"], "output": "x"},
            {
                "type": "custom_tool_call_output",
                "call_id": first.output[3]["call_id"],
                "output": "done",
            },
        ]
        second = await ask(outer, input=results, previous_response_id=first.id, tools=[LOOK, PATCH])
        messages = upstream.requests[-1].json["messages"]
    assert second.json["output"][0]["content"][0]["text"] == "Found."
    assert [entry["role"] for entry in messages] == ["user", "assistant", "tool", "tool"]
    assert messages[1]["reasoning"] == "Where?"
    assert "x-antiphon-degraded" not in second.headers


async def test_a_stream_and_a_whole_answer_say_the_same() -> None:
    async with chained(CALLING) as (outer, _):
        streamed = terminal(await ask_stream(outer, input="hi", tools=[LOOK, PATCH]))
        whole = (await ask(outer, input="hi", tools=[LOOK, PATCH])).json
    assert [_bare(item) for item in streamed.output] == [_bare(item) for item in whole["output"]]
    assert streamed.usage is not None
    assert streamed.usage.total_tokens == whole["usage"]["total_tokens"]


def _bare(item: Json) -> Json:
    return {name: value for name, value in item.items() if name not in ("id", "call_id")}


async def test_a_websocket_and_the_background_work_over_it() -> None:
    async with chained(Script(text="Hello")) as (outer, _):
        async with talk(outer.base_url) as wire:
            assert (await wire.turn(input="hi"))["type"] == "response.completed"
        queued = (await ask(outer, input="hi", background=True)).json
        async with asyncio.timeout(60):
            while True:
                found = (await request(outer, "GET", f"/responses/{queued['id']}")).json
                if found["status"] not in ("queued", "in_progress"):
                    break
                await asyncio.sleep(0.01)
    assert found["status"] == "completed"
    assert found["output"][0]["content"][0]["text"] == "Hello"


async def test_sealed_reasoning_of_the_inner_gateway_comes_back_to_it() -> None:
    async with chained(CALLING, Script(text="Found.")) as (outer, upstream):
        body = {"tools": [LOOK], "include": ["reasoning.encrypted_content"], "store": False}
        first = (await ask(outer, input=[USER], **body)).json
        calls = [item for item in first["output"] if "call_id" in item]
        results = [
            {"type": "function_call_output", "call_id": call["call_id"], "output": "x"}
            for call in calls
        ]
        second = await ask(outer, input=[USER, *first["output"], *results], **body)
        assistant = upstream.requests[-1].json["messages"][1]
    assert first["output"][0]["encrypted_content"]
    assert second.status == 200
    assert assistant["reasoning"] == "Where?"


async def test_a_stream_that_is_cut_upstream_fails_with_what_was_said() -> None:
    async with chained(Script(text="one two three", faults=[Cut(after=2)])) as (outer, _):
        response = terminal(await ask_stream(outer, input="hi"))
    assert response.status == "failed"
    assert response.output
    assert response.error is not None


async def test_a_server_that_is_busy_at_first_is_asked_again() -> None:
    async with chained(Script(faults=[Status(503)]), Script(text="Hello")) as (outer, _):
        response = terminal(await ask_stream(outer, input="hi"))
    assert response.status == "completed"
