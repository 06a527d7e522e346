"""The front door: unknown places, broken HTTP, too much, too slow, too many."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from antiphon.backends.scripted import ScriptedBackend, Step
from antiphon.gateway.assemble import ServerSettings
from antiphon.plans.plan import Plan
from antiphon.protocol.deltas import Stopped, TextGrew
from antiphon.protocol.errors import StoreUnavailable
from antiphon.server.auth import new_key
from antiphon.server.delivery import connection
from antiphon.server.limits import ServerLimits
from antiphon.store.memory import MemoryStore
from antiphon.testing.gateway import Gateway, serve_gateway
from tests.asking import ask, ask_stream, events_of, request, terminal
from tests.scraping import value_of

STOP = Stopped("stop")


def limited(**limits: Any) -> ServerSettings:
    return ServerSettings(limits=ServerLimits(**limits))


async def raw(gateway: Gateway, data: bytes) -> bytes:
    """Send bytes as they stand and return everything until the server closes."""
    reader, writer = await asyncio.open_connection(*gateway.address)
    writer.write(data)
    try:
        return await asyncio.wait_for(reader.read(), 30)
    finally:
        writer.close()


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/nothing", 404, "unknown_url"),
        ("GET", "/responses/a/b/c", 404, "unknown_url"),
        ("GET", "/responses/", 404, "unknown_url"),
        ("PUT", "/responses", 405, "method_not_allowed"),
        ("GET", "/responses/resp_1", 404, "response_not_found"),
    ],
)
async def test_every_error_has_the_same_shape(
    method: str, path: str, status: int, code: str
) -> None:
    async with serve_gateway(ScriptedBackend()) as gateway:
        answer = await request(gateway, method, path)

    assert answer.status == status
    assert answer.error["code"] == code
    assert set(answer.error) == {"message", "type", "param", "code"}
    assert answer.headers["x-request-id"]


async def test_a_callers_request_id_comes_back() -> None:
    async with serve_gateway(ScriptedBackend()) as gateway:
        plain = await ask(gateway, {"x-request-id": "mine-1"})
        streamed = await ask(gateway, {"x-request-id": "mine-2"}, stream=True)
        odd = await ask(gateway, {"x-request-id": "a b;c"})

    assert plain.headers["x-request-id"] == "mine-1"
    assert streamed.headers["x-request-id"] == "mine-2"
    assert odd.headers["x-request-id"].startswith("req_")


HEAD = b"POST /v1/responses HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


@pytest.mark.parametrize(
    "data",
    [
        HEAD + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n{}",
        HEAD + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
        HEAD + b"Host: evil\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
        b"GET /v1/models HTTP/1.1\nHost: localhost\n\n",
        b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 40_000 + b"\r\n\r\n",
        b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n" + b"X: a\r\n" * 120 + b"\r\n",
        b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nBad Header: a\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    ],
    ids=["cl+te", "two-cl", "two-hosts", "bare-lf", "huge", "many", "space", "tls"],
)
async def test_broken_http_is_refused(data: bytes) -> None:
    async with serve_gateway(ScriptedBackend(), settings=limited(header_seconds=0.2)) as gateway:
        answer = await raw(gateway, data)

    # Either a 4xx, or nothing at all once the head's deadline has passed.
    assert answer == b"" or answer.startswith((b"HTTP/1.1 4", b"HTTP/1.0 4"))


async def test_a_head_that_does_not_end_is_cut() -> None:
    async with serve_gateway(ScriptedBackend(), settings=limited(header_seconds=2.0)) as gateway:
        assert await raw(gateway, HEAD + b"X-Slow: ") == b""


def test_a_head_that_begins_in_the_first_packet_has_the_deadline_of_heads() -> None:
    uvloop = pytest.importorskip("uvloop")  # it reads before our task has started

    async def send_half_a_head() -> bytes:
        settings = limited(header_seconds=2.0, keep_alive_seconds=3600)
        async with serve_gateway(ScriptedBackend(), settings=settings) as gateway:
            # Connected and written in one go: both are there when the server accepts.
            with socket.create_connection(gateway.address) as client:
                client.sendall(b"GET /healthz HT")
                client.setblocking(False)
                async with asyncio.timeout(30):
                    return await asyncio.get_running_loop().sock_recv(client, 100)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(send_half_a_head()) == b""


async def test_a_second_head_on_a_kept_connection_has_its_own_deadline() -> None:
    async with serve_gateway(ScriptedBackend(), settings=limited(header_seconds=2.0)) as gateway:
        reader, writer = await asyncio.open_connection(*gateway.address)
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await reader.readuntil(b'{"status":"ok"}')
        writer.write(b"GET /healthz HT")
        assert await asyncio.wait_for(reader.read(), 30) == b""
        writer.close()


@pytest.mark.slow  # the server waits 10 seconds for the rest of the body
async def test_a_body_that_does_not_end_is_a_408() -> None:
    async with serve_gateway(ScriptedBackend(), settings=limited(body_seconds=0.05)) as gateway:
        answer = await raw(gateway, HEAD + b"Content-Length: 9\r\nConnection: close\r\n\r\n{")

    assert answer.startswith(b"HTTP/1.1 408")


async def test_a_body_over_the_limit_is_a_413() -> None:
    async with serve_gateway(ScriptedBackend(), settings=limited(body_bytes=1000)) as gateway:
        answer = await ask(gateway, input="x" * 2000)

    assert (answer.status, answer.error["code"]) == (413, "request_too_large")


async def test_a_compressed_body_is_refused() -> None:
    async with serve_gateway(ScriptedBackend()) as gateway:
        answer = await ask(gateway, {"Content-Encoding": "gzip"})

    assert answer.error["code"] == "unsupported_encoding"


async def test_a_large_body_is_read_off_the_loop_and_whole() -> None:
    text = "word " * 100_000
    async with serve_gateway(ScriptedBackend([[TextGrew("ok"), STOP]])) as gateway:
        answer = await ask(gateway, input=text)
        items = await request(gateway, "GET", f"/responses/{answer.json['id']}/input_items")

    assert items.json["data"][0]["content"][0]["text"] == text


@pytest.mark.parametrize(
    "body",
    [b"", b"null", b"[]", b'"x"', b"{}", b"[" * 5000, b'{"input":"a","input":"b"}', b"\xff\xfe"],
)
async def test_a_body_that_is_no_request_is_a_400(body: bytes) -> None:
    async with serve_gateway(ScriptedBackend()) as gateway:
        answer = await request(gateway, "POST", "/responses", body)

    assert answer.status == 400
    assert answer.error["type"] == "invalid_request_error"


async def test_one_turn_too_many_is_a_503_that_says_when_to_come_back() -> None:
    go_on = asyncio.Event()
    backend = ScriptedBackend([[TextGrew("a"), go_on, STOP]])
    async with serve_gateway(backend, settings=limited(turns=1)) as gateway:
        running = asyncio.create_task(ask(gateway, stream=True))
        await _until_running(gateway)
        refused = await ask(gateway)
        go_on.set()
        finished = await running

    assert (refused.status, refused.headers["Retry-After"]) == (503, "1")
    assert finished.status == 200


async def _until_running(gateway: Gateway) -> None:
    while not gateway.app._turns:  # noqa: ASYNC110 - there is no event to wait for
        await asyncio.sleep(0)


async def test_draining_finishes_what_runs_and_takes_nothing_new() -> None:
    go_on = asyncio.Event()
    async with serve_gateway(ScriptedBackend([[TextGrew("a"), go_on, STOP]])) as gateway:
        running = asyncio.create_task(ask(gateway, stream=True))
        await _until_running(gateway)
        draining = asyncio.create_task(gateway.app.drain())
        await asyncio.sleep(0)
        refused = await ask(gateway)
        ready = await request(gateway, "GET", "/../readyz")
        go_on.set()
        await draining
        finished = events_of((await running).body)

    assert refused.status == ready.status == 503
    assert terminal(finished).status == "completed"


async def test_what_does_not_finish_in_time_ends_as_failed_with_a_last_event() -> None:
    has_begun = asyncio.Event()

    def script(plan: Plan) -> Iterator[Step]:
        yield TextGrew("a")
        has_begun.set()
        yield asyncio.Event()  # for ever

    settings = limited(drain_seconds=0.01)
    async with serve_gateway(ScriptedBackend(script), settings=settings) as gateway:
        running = asyncio.create_task(ask(gateway, stream=True))
        await has_begun.wait()
        await gateway.app.drain()
        response = terminal(events_of((await running).body))
        stored = await gateway.store.get("local", response.id)

    assert response.status == "failed"
    assert response.output_text == "a"
    assert stored is not None
    assert stored.status == "failed"


class BrokenStore(MemoryStore):
    """A store whose disk is full."""

    async def finish(self, owner: str, response: Any, **_: Any) -> None:
        raise StoreUnavailable("the disk is full; nothing was stored")


async def test_a_store_that_fails_is_never_told_as_success() -> None:
    async with serve_gateway(ScriptedBackend(), store=BrokenStore()) as gateway:
        events = await ask_stream(gateway, input="hello")
        plain = await ask(gateway)

    assert terminal(events).error is not None
    assert terminal(events).error.code == "store_unavailable"  # type: ignore[union-attr] # see above
    assert terminal(events).output_text == "hello"
    assert plain.status == 503
    assert plain.error["code"] == "store_unavailable"


async def test_health_readiness_and_metrics_tell_the_truth() -> None:
    async with serve_gateway(ScriptedBackend()) as gateway:
        await ask(gateway, input="one two")
        health = await request(gateway, "GET", "/../healthz")
        ready = await request(gateway, "GET", "/../readyz")
        metrics = (await request(gateway, "GET", "/../metrics")).body.decode()

    assert (health.status, ready.status) == (200, 200)
    assert value_of(metrics, "antiphon_responses_total", status="completed") == 1
    assert value_of(metrics, "antiphon_tokens_total", kind="output") == 2
    assert "antiphon_turns 0.0" in metrics


async def test_the_api_describes_itself() -> None:
    async with serve_gateway(ScriptedBackend()) as gateway:
        document = (await request(gateway, "GET", "/../openapi.json")).json

    assert document["openapi"] == "3.1.0"
    assert "/v1/responses/{id}/input_items" in document["paths"]
    assert "$extra" not in json.dumps(document)


async def test_silence_is_filled_with_a_heartbeat() -> None:
    go_on = asyncio.Event()
    backend = ScriptedBackend(lambda plan: [TextGrew("a"), go_on, STOP])
    async with serve_gateway(backend, settings=limited(heartbeat_seconds=0.02)) as gateway:
        plain = await _read_until(gateway, b": keepalive\n\n", {})
        codex = await _read_until(gateway, b"event: keepalive\n", {"User-Agent": "codex_cli_rs/1"})
        go_on.set()

    assert b'{"type":"keepalive"}' not in plain
    assert b'{"type":"keepalive"}' in codex


async def _read_until(gateway: Gateway, mark: bytes, headers: dict[str, str]) -> bytes:
    """Read a stream as far as this mark and one line more, then leave."""
    body = msgspec.json.encode({"input": "x", "stream": True})
    head = HEAD + b"".join(f"{k}: {v}\r\n".encode() for k, v in headers.items())
    reader, writer = await asyncio.open_connection(*gateway.address)
    writer.write(head + b"Content-Length: %d\r\n\r\n" % len(body) + body)
    seen = b""
    while mark not in seen:
        seen += await reader.readline()
    seen += await reader.readline()
    writer.close()
    return seen


# Expect: 100-continue.

BODY = b'{"input":"hello"}'
WAITING = HEAD + b"Content-Length: %d\r\nExpect: 100-continue\r\n" % len(BODY)


async def test_a_client_that_waits_is_told_to_send_its_body() -> None:
    async with serve_gateway(ScriptedBackend()) as gateway, asyncio.timeout(30):
        reader, writer = await asyncio.open_connection(*gateway.address)
        for _ in range(2):  # the connection can be used again
            writer.write(WAITING + b"\r\n")
            assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
            writer.write(BODY)
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200 ")
            size = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
            await reader.readexactly(size)
        writer.close()


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (WAITING.replace(b"responses", b"nothing"), b"404"),
        (WAITING.replace(b"application/json", b"text/plain"), b"415"),
        (WAITING.replace(b"Content-Length: ", b"Content-Length: 99"), b"413"),
        (WAITING + b"Content-Encoding: gzip\r\n", b"400"),
        (WAITING.replace(b"100-continue", b"miracle"), b"417"),
        (WAITING + b"Authorization: Bearer ak_wrong_key\r\n", b"401"),
    ],
    ids=["no route", "no JSON", "too large", "compressed", "unknown", "wrong key"],
)
async def test_a_client_that_is_refused_is_not_told_to_send_its_body(
    head: bytes, status: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    # How long the server waits for the body before it closes.
    monkeypatch.setattr(connection, "_LINGER_SECONDS", 0.5)
    settings = limited(body_bytes=1000)
    async with serve_gateway(ScriptedBackend(), settings=settings) as gateway:
        answer = await raw(gateway, head + b"\r\n")

    assert answer.startswith(b"HTTP/1.1 " + status)
    assert b"connection: close" in answer.lower()
    assert b"100 Continue" not in answer


async def test_a_client_of_http_1_0_is_not_told_to_go_on() -> None:
    store = MemoryStore()
    key, record = new_key("ann", 1)
    await store.add_key(record)
    head = WAITING.replace(b"HTTP/1.1", b"HTTP/1.0") + f"Authorization: Bearer {key}\r\n".encode()
    settings = ServerSettings(require_keys=True)
    async with serve_gateway(ScriptedBackend(), store=store, settings=settings) as gateway:
        answer = await raw(gateway, head + b"\r\n" + BODY)

    assert answer.startswith(b"HTTP/1.0 200 ")
