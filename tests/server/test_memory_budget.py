"""Memory for requests: reserved before a body is read, refused with 503, given back."""

from __future__ import annotations

import asyncio
import ctypes
import socket
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import aiohttp
import pytest
from openai import AsyncOpenAI
from openai.types.responses import Response

from antiphon.backends.scripted import Script, ScriptedBackend
from antiphon.gateway.assemble import ServerSettings
from antiphon.plans.plan import Plan
from antiphon.protocol.deltas import Stopped, TextGrew
from antiphon.server.auth import new_key
from antiphon.server.limits import ServerLimits
from antiphon.server.memory import FreedMemory, default_memory, limit_kernel_buffer
from antiphon.store import MemoryStore
from antiphon.store.base import Store
from antiphon.testing.gateway import Gateway, serve_gateway
from tests.asking import ask, ask_stream, request, terminal
from tests.server.test_request_log import Lines, lines

__all__ = ["lines"]  # a fixture of another module

MIB = 1024 * 1024
LIMITS = ServerLimits(memory_bytes=10 * MIB)


def says(*texts: str) -> Callable[[Plan], Script]:
    return lambda _: [*map(TextGrew, texts), Stopped("stop")]


HELLO = says("hello")


@asynccontextmanager
async def served(
    limits: ServerLimits = LIMITS,
    *,
    script: Callable[[Plan], Script] = HELLO,
    store: Store | None = None,
    require_keys: bool = False,
) -> AsyncIterator[Gateway]:
    settings = ServerSettings(limits=limits, require_keys=require_keys)
    async with serve_gateway(ScriptedBackend(script), store=store, settings=settings) as gateway:
        yield gateway


@asynccontextmanager
async def announced(
    gateway: Gateway, length: int, headers: dict[str, str] | None = None
) -> AsyncIterator[asyncio.StreamWriter]:
    """Announce a body, send its first byte, and wait until memory is reserved for it."""
    _, writer = await asyncio.open_connection(*gateway.address)
    writer.write(
        b"POST /v1/responses HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        b"Content-Length: %d\r\n%b\r\n{"
        % (length, "".join(f"{k}: {v}\r\n" for k, v in (headers or {}).items()).encode())
    )
    before = gateway.app.engine.budget.used
    async with asyncio.timeout(30):
        while gateway.app.engine.budget.used == before:  # noqa: ASYNC110 # nothing says when
            await asyncio.sleep(0.001)
    yield writer
    writer.close()
    async with asyncio.timeout(30):
        while gateway.app.engine.budget.used != before:  # noqa: ASYNC110 # nothing says when
            await asyncio.sleep(0.001)


async def test_a_body_that_does_not_fit_now_is_refused_with_503_unread() -> None:
    async with served() as gateway:
        async with announced(gateway, 3 * MIB // 2):
            refused = await ask(gateway, input="x" * (MIB // 2))
            small = await ask(gateway)
        fits = await ask(gateway, input="x" * (MIB // 2))

    assert refused.status == 503
    assert refused.error["code"] == "server_overloaded"
    assert refused.headers["Retry-After"] == "1"
    assert small.status == 200
    assert fits.status == 200


@pytest.mark.parametrize("stream", [True, False])
async def test_the_openai_sdk_tries_again_after_a_503_for_memory(
    stream: bool, lines: Lines
) -> None:
    text = "x" * MIB
    async with (
        served() as gateway,
        AsyncOpenAI(base_url=gateway.base_url, api_key="x") as client,
        asyncio.timeout(60),
        asyncio.TaskGroup() as tasks,
    ):
        hold = gateway.app.engine.budget.hold("somebody", 7 * MIB)
        asked = tasks.create_task(create(client, text, stream=stream))
        await lines.requests("POST")
        hold.release()
        answer = await asked
        statuses = [line["status"] for line in await lines.requests("POST", 2)]

    assert statuses == [503, 200]
    assert answer.output_text == "hello"


async def create(client: AsyncOpenAI, text: str, *, stream: bool) -> Response:
    """Ask as a program does that has the official SDK."""
    if not stream:
        return await client.responses.create(model="echo", input=text)
    events = await client.responses.create(model="echo", input=text, stream=True)
    last = [event async for event in events][-1]
    assert last.type == "response.completed"
    return last.response


async def test_items_that_are_listed_reserve_memory_before_they_are_read() -> None:
    async with served() as gateway:
        stored = await ask(gateway, input="x" * MIB, model="echo")
        path = f"/responses/{stored.json['id']}/input_items"
        async with announced(gateway, 3 * MIB // 2):
            refused = await request(gateway, "GET", path)
        listed = await request(gateway, "GET", path)
        assert gateway.app.engine.budget.used == 0

    assert (refused.status, refused.error["code"]) == (503, "server_overloaded")
    assert listed.status == 200


@pytest.mark.parametrize("query", ["", "?stream=true"])
async def test_a_stored_response_reserves_memory_before_it_is_read(query: str) -> None:
    async with served(script=says("x" * MIB)) as gateway:
        stored = await ask(gateway)
        path = f"/responses/{stored.json['id']}{query}"
        async with announced(gateway, 3 * MIB // 2):
            refused = await request(gateway, "GET", path)
        found = await request(gateway, "GET", path)
        assert gateway.app.engine.budget.used == 0

    assert (refused.status, refused.error["code"]) == (503, "server_overloaded")
    assert refused.headers["Retry-After"] == "1"
    assert found.status == 200


async def test_a_page_of_a_conversation_reserves_memory_before_it_is_read() -> None:
    item = {"role": "user", "content": "x" * MIB}
    async with served() as gateway:
        made = await request(gateway, "POST", "/conversations", {"items": [item]})
        path = f"/conversations/{made.json['id']}/items"
        async with announced(gateway, 3 * MIB // 2):
            refused = await request(gateway, "GET", path)
        listed = await request(gateway, "GET", path)
        assert gateway.app.engine.budget.used == 0

    assert (refused.status, refused.error["code"]) == (503, "server_overloaded")
    assert listed.status == 200


async def test_a_long_output_reserves_memory_and_is_refused_when_there_is_none() -> None:
    async with served(script=says("x" * MIB)) as gateway:
        async with announced(gateway, 3 * MIB // 2):
            refused = await ask(gateway)
        whole = await ask(gateway)
        assert gateway.app.engine.budget.used == 0

    assert (refused.status, refused.error["code"]) == (503, "server_overloaded")
    assert whole.status == 200


async def test_a_stream_that_outgrows_the_memory_ends_as_failed_with_what_it_has_sent() -> None:
    async with served(script=says(*["x" * 50_000] * 100)) as gateway:
        events = await ask_stream(gateway)
        assert gateway.app.engine.budget.used == 0

    response = terminal(events)
    assert response.status == "failed"
    assert response.error is not None
    assert response.error.code == "server_overloaded"
    assert 0 < len(response.output[0]["content"][0]["text"]) < 5_000_000


async def test_one_owner_who_fills_his_share_leaves_memory_for_another_key() -> None:
    store = MemoryStore()
    keys = {}
    for owner in ("ann", "bob"):
        key, record = new_key(owner, 1)
        await store.add_key(record)
        keys[owner] = {"Authorization": f"Bearer {key}"}
    async with served(store=store, require_keys=True) as gateway:
        async with announced(gateway, 3 * MIB // 2, keys["ann"]):
            refused = await ask(gateway, keys["ann"], input="x" * (MIB // 2))
            other = await ask(gateway, keys["bob"], input="x" * (MIB // 2))
        again = await ask(gateway, keys["ann"], input="x" * (MIB // 2))
        assert gateway.app.engine.budget.used == 0

    assert (refused.status, refused.error["code"]) == (503, "server_overloaded")
    assert other.status == 200
    assert again.status == 200


async def test_a_body_that_never_fits_is_refused_for_good() -> None:
    async with served() as gateway:
        refused = await ask(gateway, input="x" * (3 * MIB))

    assert refused.status == 413
    assert "memory_bytes" in refused.error["message"]


@pytest.mark.parametrize("path", ["responses", "responses/input_tokens"])
async def test_a_small_body_without_a_length_gives_its_memory_back(path: str) -> None:
    body = b'{"input": "hello", "stream": true, "model": "echo"}'
    async with served() as gateway:
        reader, writer = await asyncio.open_connection(*gateway.address)
        writer.write(
            b"POST /v1/%b HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            b"Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n"
            % (path.encode(), len(body), body)
        )
        async with asyncio.timeout(30):
            answer = await reader.read()
        writer.close()
        assert answer.startswith(b"HTTP/1.1 200")
        assert gateway.app.engine.budget.used == 0


async def test_a_long_message_on_a_websocket_is_counted_as_it_arrives_and_cut_off() -> None:
    async with served() as gateway:
        reader, writer = await asyncio.open_connection(*gateway.address)
        writer.write(
            b"GET /v1/responses HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\n"
            b"Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
            b"Sec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\n\r\n"
        )
        async with asyncio.timeout(30):
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101")
            # The head of a text frame of 16 MiB with an empty mask, and some of its content.
            writer.write(b"\x81\xff" + (16 * MIB).to_bytes(8, "big") + bytes(4) + b"x" * MIB)
            while gateway.app.engine.budget.used < MIB:  # noqa: ASYNC110 # nothing says when
                await asyncio.sleep(0.001)
            with suppress(ConnectionError):
                for _ in range(14):
                    writer.write(b"x" * MIB)
                    await writer.drain()
            with suppress(ConnectionError):
                await reader.read()  # returns because the gateway hangs up
            while gateway.app.engine.budget.used:  # noqa: ASYNC110 # nothing says when
                await asyncio.sleep(0.001)
        writer.close()


async def test_a_body_without_a_length_is_counted_as_it_arrives() -> None:
    async def pieces() -> AsyncIterator[bytes]:
        yield b'{"input": "'
        for _ in range(48):
            yield b"x" * 65_536
        yield b'"}'

    async with (
        served() as gateway,
        aiohttp.ClientSession() as session,
        session.post(
            f"{gateway.base_url}/responses",
            data=pieces(),
            headers={"Content-Type": "application/json"},
        ) as answer,
    ):
        assert answer.status == 413


async def test_memory_is_given_back_when_a_request_ends_however_it_ends() -> None:
    async with served() as gateway:
        used = gateway.app.engine.budget
        await ask(gateway, input="x" * MIB)
        assert used.used == 0
        await ask(gateway, input="x" * MIB, stream=True)
        assert used.used == 0
        await ask(gateway, input=[7] * 90_000)
        assert used.used == 0


async def test_a_background_turn_keeps_its_memory_until_it_has_ended() -> None:
    async with served() as gateway:
        answer = await ask(gateway, input="x" * MIB, background=True)
        budget = gateway.app.engine.budget
        path = f"/responses/{answer.json['id']}?stream=true"
        await request(gateway, "GET", path)
        async with asyncio.timeout(30):
            while budget.used:  # noqa: ASYNC110 # nothing says when
                await asyncio.sleep(0.001)
    assert answer.status == 200


async def test_a_history_reserves_memory_before_it_is_read() -> None:
    limits = ServerLimits(memory_bytes=24 * MIB)
    async with served(limits) as gateway:
        first = await ask(gateway, input="x" * MIB)
        previous = first.json["id"]
        async with announced(gateway, 4 * MIB):
            refused = await ask(gateway, previous_response_id=previous)
        again = await ask(gateway, previous_response_id=previous)

    assert refused.status == 503
    assert again.status == 200


async def test_frames_of_a_websocket_count_too() -> None:
    async with (
        served() as gateway,
        aiohttp.ClientSession() as session,
        session.ws_connect(f"{gateway.base_url}/responses") as wire,
    ):
        await wire.send_json({"type": "response.create", "input": "x" * (3 * MIB)})
        refused = await wire.receive_json()
        assert gateway.app.engine.budget.used == 0

    assert refused["type"] == "error"
    assert refused["status"] == 413


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"memory.max": "1000000\n"}, 500_000),
        ({"memory.max": "max\n"}, None),
        ({"memory/memory.limit_in_bytes": "2000000\n"}, 1_000_000),
        ({"memory/memory.limit_in_bytes": "9223372036854771712\n"}, None),
        ({"memory.max": "max", "a/b/memory.max": "600000", "a/memory.max": "400000"}, 200_000),
    ],
)
def test_the_budget_is_half_of_what_the_container_may_have(
    tmp_path: Path, files: dict[str, str], expected: int | None
) -> None:
    groups = tmp_path / "groups"
    groups.write_text("0::/a/b\n")
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    found = default_memory(root=tmp_path, cgroups=groups)
    if expected is None:
        assert found > 100 * MIB
    else:
        assert found == expected
    assert default_memory(2, root=tmp_path, cgroups=groups) == found // 2


async def test_the_end_of_a_long_answer_arrives_whole_although_it_is_sent_in_parts() -> None:
    text = "word " * 40_000
    async with serve_gateway(ScriptedBackend([[TextGrew(text), Stopped("stop")]])) as gateway:
        events = await ask_stream(gateway)

    assert terminal(events).output[0]["content"][0]["text"] == text


@pytest.mark.skipif(not hasattr(socket, "TCP_NOTSENT_LOWAT"), reason="the system has no limit")
async def test_the_kernel_keeps_little_for_a_client_that_does_not_read() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(server.getsockname())
        here, _ = server.accept()
        transport, _ = await asyncio.get_running_loop().create_connection(
            asyncio.Protocol, sock=here
        )
        limit_kernel_buffer(transport, 8192)
        transport.write(bytes(MIB))
        assert transport.get_write_buffer_size() > MIB - 256 * 1024
        transport.abort()


@pytest.mark.parametrize("over", ["stream", "websocket", "answer"])
async def test_every_connection_limits_what_the_kernel_keeps(
    over: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    limited: list[int] = []
    monkeypatch.setattr(
        "antiphon.server.delivery.connection.limit_kernel_buffer",
        lambda _, size: limited.append(size),
    )
    async with serve_gateway(ScriptedBackend()) as gateway:
        if over == "stream":
            await ask_stream(gateway)
        elif over == "answer":
            await ask(gateway)
        else:
            async with (
                aiohttp.ClientSession() as session,
                session.ws_connect(f"{gateway.base_url}/responses"),
            ):
                pass
    assert limited == [ServerLimits().write_buffer_bytes]


@pytest.mark.skipif(
    sys.platform != "linux" or not hasattr(ctypes.CDLL(None), "mallinfo2"),
    reason="the C library does not tell what is free",
)
def test_freed_memory_goes_back_to_the_system_although_it_lies_between_used_blocks() -> None:
    freed = FreedMemory()
    blocks = [bytes(3000) for _ in range(20_000)]
    freed.give_back()  # it looks every few seconds, also while they are in use
    kept = blocks[::10]
    full = _resident()
    del blocks

    assert freed.give_back()
    assert full - _resident() > 20 * MIB
    assert not freed.give_back()
    del kept


def _resident() -> int:
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) * 1024
