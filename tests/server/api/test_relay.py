"""Embeddings and text completions, passed on to a server behind a real socket."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import openai
import pytest

from antiphon.backends.chat import ChatBackend
from antiphon.backends.scripted import ScriptedBackend
from antiphon.testing.gateway import Gateway, serve_gateway
from antiphon.transport.secret import Secret
from tests.asking import request
from tests.faults.house import PATIENCE
from tests.transport.raw import Connection, Request, chunk, head, raw_server, reply

USAGE = {"prompt_tokens": 3, "completion_tokens": 0, "total_tokens": 3}
VECTORS = {
    "object": "list",
    "model": "e",
    "data": [{"object": "embedding", "index": 0, "embedding": [0.5, -0.25]}],
    "usage": USAGE,
}
MODELS = b'{"data":[{"id":"e"}]}'

Serve = Callable[[Request, Connection], Awaitable[None]]


class Upstream:
    """Answers with these bytes, and remembers what it was sent."""

    def __init__(self, *pieces: bytes) -> None:
        self.seen: list[Request] = []
        self._pieces = pieces

    async def __call__(self, request: Request, connection: Connection) -> None:
        if request.method == "GET":
            await connection.write(reply(MODELS))
            return
        self.seen.append(request)
        for piece in self._pieces:
            await connection.write(piece)


@asynccontextmanager
async def gateway_before(upstream: Serve) -> AsyncIterator[Gateway]:
    async with asyncio.timeout(PATIENCE), raw_server(upstream) as server:
        backend = ChatBackend(server.url + "/v1", key=Secret("upstream-key"))
        async with serve_gateway({"up": backend}) as gateway:
            yield gateway


async def test_embeddings_are_passed_on_under_the_name_that_the_provider_knows(
    caplog: pytest.LogCaptureFixture,
) -> None:
    upstream = Upstream(reply(json.dumps(VECTORS).encode()))
    body = {"model": "up/e", "input": ["a", "b"], "dimensions": 2}
    with caplog.at_level(logging.INFO, "antiphon.requests"):
        async with gateway_before(upstream) as gateway:
            answer = await request(gateway, "POST", "/embeddings", body)
            metrics = gateway.app.metrics.render().decode()

    assert answer.json == VECTORS
    assert upstream.seen[0].path == "/v1/embeddings"
    assert json.loads(upstream.seen[0].body) == {**body, "model": "e"}
    assert upstream.seen[0].headers["authorization"] == "Bearer upstream-key"
    line = next(r.getMessage() for r in caplog.records if "/v1/embeddings" in r.getMessage())
    assert "model=up/e upstream=up input_tokens=3" in line
    assert 'antiphon_tokens_total{kind="input"} 3.0' in metrics


async def test_the_openai_client_gets_its_vectors() -> None:
    async with (
        gateway_before(Upstream(reply(json.dumps(VECTORS).encode()))) as gateway,
        openai.AsyncOpenAI(base_url=gateway.base_url, api_key="x") as client,
    ):
        found = await client.embeddings.create(model="e", input="a", encoding_format="float")

    assert found.data[0].embedding == [0.5, -0.25]


def _event(**fields: Any) -> bytes:
    return b"data: %b\n\n" % json.dumps(fields).encode()


async def test_a_stream_of_text_is_passed_on_as_it_comes() -> None:
    events = [_event(choices=[{"text": "a"}]), _event(choices=[], usage=USAGE), b"data: [DONE]\n\n"]
    upstream = Upstream(head("text/event-stream"), *map(chunk, [*events, b""]))
    async with gateway_before(upstream) as gateway:
        body = {"model": "e", "prompt": "x", "stream": True}
        answer = await request(gateway, "POST", "/completions", body)
        metrics = gateway.app.metrics.render().decode()

    assert answer.body == b"".join(events)
    assert answer.headers["Content-Type"].startswith("text/event-stream")
    assert 'antiphon_tokens_total{kind="input"} 3.0' in metrics


async def test_a_stream_that_breaks_off_does_not_end_well() -> None:
    upstream = Upstream(head("text/event-stream"), chunk(_event(choices=[{"text": "a"}])))

    async def serve(asked: Request, connection: Connection) -> None:
        await upstream(asked, connection)
        if asked.method != "GET":
            connection.writer.close()

    async with gateway_before(serve) as gateway:
        with pytest.raises(aiohttp.ClientError):
            await request(
                gateway, "POST", "/completions", {"model": "e", "prompt": "x", "stream": True}
            )


async def test_a_refusal_of_the_upstream_is_an_error_without_our_key() -> None:
    words = b'{"error":{"message":"bad upstream-key","type":"invalid_request_error"}}'
    async with gateway_before(Upstream(reply(words, status="400 Bad Request"))) as gateway:
        answer = await request(gateway, "POST", "/embeddings", {"model": "e", "input": "a"})

    assert answer.status == 400
    assert "upstream-key" not in answer.error["message"]


@pytest.mark.parametrize("body", [[], {}, {"model": 3}])
async def test_a_body_without_a_model_is_refused(body: object) -> None:
    async with gateway_before(Upstream()) as gateway:
        answer = await request(gateway, "POST", "/embeddings", body)

    assert answer.status == 400


async def test_a_key_is_reported_as_unused_and_refused_in_strict_mode() -> None:
    upstream = Upstream(reply(b"{}"))
    async with gateway_before(upstream) as gateway:
        body, key = {"model": "e", "input": "a"}, {"Idempotency-Key": "k"}
        answer = await request(gateway, "POST", "/embeddings", body, key)
        strict = await request(
            gateway, "POST", "/embeddings", body, {**key, "x-antiphon-strict": "1"}
        )

    assert answer.headers["x-antiphon-degraded"].startswith("Idempotency-Key")
    assert strict.status == 400
    assert len(upstream.seen) == 1


async def test_a_model_without_a_server_answers_501() -> None:
    async with serve_gateway(ScriptedBackend()) as gateway:
        answer = await request(gateway, "POST", "/embeddings", {"model": "echo", "input": "a"})

    assert answer.status == 501
