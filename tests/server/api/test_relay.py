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
from antiphon.protocol.token_counts import MOST_TOKENS
from antiphon.store.base.ledger import Budget, Charge
from antiphon.store.memory import MemoryStore
from antiphon.testing.gateway import Gateway, serve_gateway
from antiphon.transport.secret import Secret
from tests.asking import request
from tests.engine.test_bill import settled
from tests.faults.house import PATIENCE
from tests.scraping import value_of
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
    assert value_of(metrics, "antiphon_tokens_total", kind="input") == 3


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
    assert value_of(metrics, "antiphon_tokens_total", kind="input") == 3


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


async def _charge_of(upstream: Upstream, body: dict[str, Any]) -> Charge:
    async with gateway_before(upstream) as gateway:
        answer = await request(gateway, "POST", "/completions", {"model": "e", **body})
        assert answer.status == 200
        assert isinstance(gateway.store, MemoryStore)
        (charge,) = await settled(gateway.store)
        assert await gateway.store.ledger.check() == []
    return charge


@pytest.mark.parametrize("start", [b"data: ", b"data:"])
async def test_events_of_a_stream_without_a_report_are_counted(start: bytes) -> None:
    pieces = [start + b'{"choices":[{"text":"a"}]}\n\n'] * 5
    upstream = Upstream(head("text/event-stream"), *map(chunk, [*pieces, b""]))
    charge = await _charge_of(upstream, {"prompt": "x", "stream": True})

    assert (charge.basis, charge.used.output) == ("counted", 5)


async def test_long_texts_of_a_stream_are_counted_by_their_length() -> None:
    texts = [_event(choices=[{"text": "ab" * 20}]) for _ in range(5)]
    last = _event(choices=[{"text": "", "finish_reason": "stop"}])
    data = b"".join([*texts, last, b"data: [DONE]\n\n"])
    pieces = [data[start : start + 7] for start in range(0, len(data), 7)]
    upstream = Upstream(head("text/event-stream"), *map(chunk, [*pieces, b""]))
    charge = await _charge_of(upstream, {"prompt": "x", "stream": True})

    assert (charge.basis, charge.used.output) == ("counted", 50)


@pytest.mark.parametrize("more", [0, 2])
async def test_a_report_before_the_stream_breaks_off_is_one_of_what_had_arrived(more: int) -> None:
    text, usage = {"choices": [{"text": "a"}]}, {"prompt_tokens": 3, "completion_tokens": 9}
    events = [_event(**text), _event(choices=[], usage=usage), *[_event(**text)] * more]
    upstream = Upstream(head("text/event-stream"), *map(chunk, events))

    async def serve(asked: Request, connection: Connection) -> None:
        await upstream(asked, connection)
        if asked.method != "GET":
            connection.writer.close()

    async with gateway_before(serve) as gateway:
        body = {"model": "e", "prompt": "x", "stream": True}
        with pytest.raises(aiohttp.ClientError):
            await request(gateway, "POST", "/completions", body)
        assert isinstance(gateway.store, MemoryStore)
        (charge,) = await settled(gateway.store)
    assert charge.basis == ("counted" if more else "reported")
    assert (charge.used.fresh, charge.used.output) == (3, 9)


async def test_a_stream_that_keeps_to_its_limit_is_not_cut() -> None:
    first = _event(choices=[{"text": ""}])
    texts = [_event(choices=[{"text": "a long word "}])] * 10
    usage = {"prompt_tokens": 3, "completion_tokens": 10, "total_tokens": 13}
    last = _event(choices=[{"text": "", "finish_reason": "stop"}], usage=usage)
    events = [first, *texts, last, b"data: [DONE]\n\n"]
    upstream = Upstream(head("text/event-stream"), *map(chunk, [*events, b""]))
    async with gateway_before(upstream) as gateway:
        await gateway.store.ledger.put_budget(
            Budget(id="b", scope="organization", scope_id="", unit="tokens", ceiling=3000)
        )
        body = {"model": "e", "prompt": "x", "stream": True, "max_tokens": 10}
        answer = await request(gateway, "POST", "/completions", body)
        assert isinstance(gateway.store, MemoryStore)
        (charge,) = await settled(gateway.store)

    assert answer.body == b"".join(events)
    assert (charge.outcome, charge.basis, charge.used.output) == ("completed", "reported", 10)


async def test_a_report_in_a_stream_is_found_without_a_space_before_it() -> None:
    usage = b'data:{"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":4}}\n\n'
    upstream = Upstream(head("text/event-stream"), *map(chunk, [usage, b""]))
    charge = await _charge_of(upstream, {"prompt": "x", "stream": True})

    assert (charge.basis, charge.used.total) == ("reported", 7)


async def test_a_report_without_its_output_is_no_report_of_it() -> None:
    pieces = [b'data: {"choices":[{"text":"a"}]}\n\n'] * 5
    usage = b'data: {"choices":[],"usage":{"prompt_tokens":3}}\n\n'
    upstream = Upstream(head("text/event-stream"), *map(chunk, [*pieces, usage, b""]))
    charge = await _charge_of(upstream, {"prompt": "x", "stream": True})

    assert (charge.basis, charge.used.fresh) == ("counted", 3)
    assert charge.used.output >= 5


@pytest.mark.parametrize("is_split", [False, True])
@pytest.mark.parametrize("max_tokens", [10, None])
async def test_a_stream_ends_where_its_grant_ends(max_tokens: int | None, is_split: bool) -> None:
    event = b'data: {"choices":[{"text":"a"}]}\n\n'
    halves = [event[:9], event[9:]] if is_split else [event]
    left = asyncio.Event()

    async def talk_for_ever(request: Request, connection: Connection) -> None:
        if request.method == "GET":
            await connection.write(reply(MODELS))
            return
        await connection.write(head("text/event-stream"))
        try:
            while True:
                for half in halves:
                    await connection.write(chunk(half))
                    await asyncio.sleep(0)
        except ConnectionError:
            left.set()

    async with gateway_before(talk_for_ever) as gateway:
        await gateway.store.ledger.put_budget(
            Budget(id="b", scope="organization", scope_id="", unit="tokens", ceiling=3000)
        )
        body = {"model": "e", "prompt": "x", "stream": True}
        body |= {} if max_tokens is None else {"max_tokens": max_tokens}
        url = f"{gateway.base_url}/completions"
        async with aiohttp.ClientSession() as session, session.post(url, json=body) as answer:
            data = await answer.read()
        await left.wait()
        assert isinstance(gateway.store, MemoryStore)
        (charge,) = await settled(gateway.store)
        assert await gateway.store.ledger.check() == []

    *events, last, done, rest = data.split(b"\n\n")
    assert (done, rest) == (b"data: [DONE]", b"")
    assert json.loads(last.removeprefix(b"data: "))["choices"][0]["finish_reason"] == "length"
    assert set(events) == {event.removesuffix(b"\n\n")}
    assert (charge.outcome, charge.basis) == ("incomplete", "counted")
    assert charge.used.output >= len(events) >= charge.held.output


async def test_the_text_of_an_answer_without_a_report_is_counted() -> None:
    answer = json.dumps({"choices": [{"text": "word " * 100}]}).encode()
    charge = await _charge_of(Upstream(reply(answer)), {"prompt": "x"})

    assert charge.basis == "counted"
    assert charge.used.output >= 125


@pytest.mark.parametrize(
    ("body", "held"),
    [
        ({"prompt": "x", "max_tokens": 10}, 10),
        ({"prompt": ["x"] * 7, "max_tokens": 10}, 70),
        ({"prompt": [[1, 2], [3]], "max_tokens": 10, "n": 3}, 60),
        ({"prompt": [1, 2, 3], "max_tokens": 10}, 10),
        ({"prompt": "x", "max_tokens": 10, "n": 5, "best_of": 1}, 50),
        ({"prompt": "x", "max_tokens": 10**18, "n": 10**6}, MOST_TOKENS),
    ],
)
async def test_the_output_of_all_prompts_and_choices_is_held(
    body: dict[str, Any], held: int
) -> None:
    answer = json.dumps({"choices": [{"text": "a"}], "usage": USAGE}).encode()
    charge = await _charge_of(Upstream(reply(answer)), body)

    assert charge.held.output == held
