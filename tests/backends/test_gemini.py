"""A Gemini server over HTTP: answers, faults, counting, the list of models."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from antiphon.backends.http import HttpBackend
from antiphon.plans.plan import Plan
from antiphon.protocol.deltas import Delta, Stopped, TextGrew
from antiphon.protocol.errors import BackendError
from antiphon.transport.secret import Secret
from antiphon.wires.gemini.profiles import PROFILES
from antiphon.wires.gemini.wire import GeminiWire
from tests.gemini_upstream import Cut, GeminiUpstream, Refusal, serve_gemini, text
from tests.playing import Collected, play_into, said
from tests.transport.raw import Connection, Request, raw_server, reply
from tests.wires.gemini.answers import chunk, finish

HELLO = {"type": "message", "role": "user", "content": "Hi."}
RETRY = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "7s"}


@pytest.fixture
async def upstream() -> AsyncIterator[GeminiUpstream]:
    async with serve_gemini() as server:
        yield server


@pytest.fixture
async def backend(upstream: GeminiUpstream) -> AsyncIterator[HttpBackend]:
    made = HttpBackend(upstream.base_url, GeminiWire(PROFILES["gemini"]), key=Secret("AIza-key"))
    yield made
    await made.close()


def plan(**fields: Any) -> Plan:
    return Plan(**{"model": "gemini-3-flash", "items": [HELLO], **fields})


async def failure(backend: HttpBackend, **fields: Any) -> tuple[list[Delta], BackendError]:
    sink = Collected()
    with pytest.raises(BackendError) as caught:
        await play_into(sink, backend, plan(**fields))
    return sink.deltas, caught.value


@pytest.mark.parametrize("is_streamed", [True, False])
async def test_answer_is_read_streamed_and_whole(
    upstream: GeminiUpstream, backend: HttpBackend, is_streamed: bool
) -> None:
    upstream.play(text("Hello there."))
    deltas = await said(backend, plan(stream=is_streamed))
    words = "".join(one.text for one in deltas if isinstance(one, TextGrew))
    assert (words, deltas[-1]) == ("Hello there.", Stopped("stop"))
    method = "streamGenerateContent?alt=sse" if is_streamed else "generateContent"
    assert upstream.requests[0].path == f"/v1beta/models/gemini-3-flash:{method}"


async def test_key_is_in_its_own_header(upstream: GeminiUpstream, backend: HttpBackend) -> None:
    upstream.play(text("Hello."))
    await said(backend, plan())
    headers = upstream.requests[0].headers
    assert headers["x-goog-api-key"] == "AIza-key"
    assert "authorization" not in headers


async def test_rate_limit_has_the_delay_that_the_service_gives(
    upstream: GeminiUpstream, backend: HttpBackend
) -> None:
    upstream.play(Refusal(429, "RESOURCE_EXHAUSTED", "slow down", RETRY))
    _, error = await failure(backend)
    assert (error.status, error.code, error.retry_after) == (429, "rate_limit_exceeded", 7.0)


async def test_overload_is_one(upstream: GeminiUpstream, backend: HttpBackend) -> None:
    upstream.play(Refusal(503, "UNAVAILABLE"))
    _, error = await failure(backend)
    assert (error.status, error.code) == (503, "upstream_overloaded")


@pytest.mark.parametrize("is_streamed", [True, False])
async def test_blocked_prompt_is_the_callers(
    upstream: GeminiUpstream, backend: HttpBackend, is_streamed: bool
) -> None:
    upstream.play([{"promptFeedback": {"blockReason": "SAFETY"}}])
    deltas, error = await failure(backend, stream=is_streamed)
    assert deltas == []
    assert (error.status, error.code) == (400, "content_policy")


async def test_cut_stream_is_a_fault_after_what_came(
    upstream: GeminiUpstream, backend: HttpBackend
) -> None:
    upstream.play(Cut(chunk({"text": "Half"})))
    deltas, error = await failure(backend)
    assert deltas == [TextGrew("Half")]
    assert error.code == "upstream_closed"


async def test_malformed_call_is_a_fault(upstream: GeminiUpstream, backend: HttpBackend) -> None:
    upstream.play([finish(reason="MALFORMED_FUNCTION_CALL", finishMessage="print(look(")])
    deltas, error = await failure(backend)
    assert deltas == []
    assert error.code == "upstream_invalid_response"


async def test_models_of_all_pages(backend: HttpBackend) -> None:
    assert [model.id for model in await backend.models()] == ["gemini-3-flash", "gemini-2.5-flash"]


async def test_count_is_the_services(upstream: GeminiUpstream, backend: HttpBackend) -> None:
    assert await backend.count(plan()) == 42
    assert upstream.requests == []


async def test_error_never_holds_the_key(upstream: GeminiUpstream, backend: HttpBackend) -> None:
    upstream.play(Refusal(400, "INVALID_ARGUMENT", "AIza-key is odd"))
    _, error = await failure(backend)
    assert "AIza-key" not in json.dumps([error.message, *error.args])


async def test_pages_of_models_that_lead_back_are_read_once() -> None:
    async def answer(_: Request, connection: Connection) -> None:
        await connection.write(reply(b'{"models":[{"name":"models/a"}],"nextPageToken":"again"}'))

    async with raw_server(answer) as upstream:
        backend = HttpBackend(upstream.url, GeminiWire(PROFILES["gemini"]))
        models = await backend.models()
        await backend.close()
    assert len(upstream.requests) == 2
    assert {model.id for model in models} == {"a"}
