"""A caller that leaves gets what the peer had sent, and learns whether the request went out."""

from __future__ import annotations

import asyncio
import socket

import pytest

from antiphon.transport.http import HttpClient, Sending
from antiphon.transport.stream import open_stream
from tests.transport.certificates import Authority
from tests.transport.raw import Connection, Request, chunk, head, raw_server, reply
from tests.transport.test_dial import full_port

EVENTS = head("text/event-stream")
PATIENCE = 60.0


async def _reach(
    client: HttpClient, url: str, sending: Sending, begun: asyncio.Event | None = None
) -> None:
    """Read to the end; set `begun` when something has arrived."""
    async with await open_stream(client, url, b"{}", sending=sending) as stream:
        async for _ in stream:
            if begun is not None:
                begun.set()


async def _leave(reading: asyncio.Task[None]) -> None:
    reading.cancel()
    await asyncio.wait({reading})
    assert reading.cancelled()


@pytest.mark.parametrize("is_secure", [False, True])
async def test_what_the_peer_sends_until_it_notices_is_returned(
    is_secure: bool, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = asyncio.Event()

    async def talk_on(_: Request, connection: Connection) -> None:
        await connection.write(EVENTS + chunk(b"one"))
        await connection.until_closed()
        if not is_secure:  # an event loop closes both sides of TLS together
            await connection.write(chunk(b"two") + chunk(b"three"))

    tls = None
    if is_secure:
        authority = Authority(tmp_path_factory.mktemp("tls"))
        monkeypatch.setenv("SSL_CERT_FILE", str(authority.path))
        tls = authority.server_context("127.0.0.1")
    client, sending = HttpClient(), Sending()
    async with raw_server(talk_on, tls=tls) as server:
        reading = asyncio.ensure_future(_reach(client, server.url, sending, begun))
        await asyncio.wait_for(begun.wait(), PATIENCE)
        await _leave(reading)
        assert await sending.linger() == (b"" if is_secure else b"twothree")
        assert sending.is_taken
        assert not sending.is_whole
        assert await sending.linger() == b""
    await client.close()


async def test_a_whole_answer_that_crosses_with_our_leave_is_read() -> None:
    asked = asyncio.Event()

    async def answer_late(_: Request, connection: Connection) -> None:
        asked.set()
        await connection.until_closed()
        await connection.write(reply(b"{}"))

    client, sending = HttpClient(), Sending()
    async with raw_server(answer_late) as server:
        reading = asyncio.ensure_future(_reach(client, server.url, sending))
        await asyncio.wait_for(asked.wait(), PATIENCE)
        await _leave(reading)
        assert await sending.linger() == b"{}"
        assert sending.is_whole
    await client.close()


async def test_being_cancelled_again_loses_nothing() -> None:
    asked, goes_on = asyncio.Event(), asyncio.Event()

    async def answer_late(_: Request, connection: Connection) -> None:
        asked.set()
        await goes_on.wait()
        await connection.write(reply(b"{}"))

    async def leave() -> bytes:
        try:
            await _reach(client, server.url, sending)
        except asyncio.CancelledError:
            return await sending.linger()
        raise AssertionError

    client, sending = HttpClient(), Sending()
    async with raw_server(answer_late) as server:
        leaving = asyncio.ensure_future(leave())
        await asyncio.wait_for(asked.wait(), PATIENCE)
        for _ in range(3):
            leaving.cancel()
            await asyncio.sleep(0)
        goes_on.set()
        assert await leaving == b"{}"
    await client.close()


async def test_a_peer_that_ignores_our_leave_is_reset() -> None:
    asked, reset = asyncio.Event(), asyncio.Event()

    async def talk_for_ever(_: Request, connection: Connection) -> None:
        await connection.write(EVENTS)
        asked.set()
        try:
            while True:
                await connection.write(chunk(b"word"))
                await asyncio.sleep(0.001)
        except ConnectionError:
            reset.set()

    client, sending = HttpClient(), Sending()
    async with raw_server(talk_for_ever) as server:
        reading = asyncio.ensure_future(_reach(client, server.url, sending))
        await asyncio.wait_for(asked.wait(), PATIENCE)
        await _leave(reading)
        await sending.linger()
        await asyncio.wait_for(reset.wait(), PATIENCE)
        assert sending.is_taken
    await client.close()


async def test_a_request_is_not_taken_while_we_connect() -> None:
    client, sending = HttpClient(), Sending()
    with full_port() as port:
        reading = asyncio.ensure_future(_reach(client, f"http://127.0.0.1:{port}", sending))
        await asyncio.sleep(0.05)
        await _leave(reading)
        assert await sending.linger() == b""
        assert not sending.is_taken
    await client.close()


async def test_half_a_request_is_not_taken() -> None:
    client, sending = HttpClient(), Sending()
    with socket.create_server(("127.0.0.1", 0)) as deaf:  # it accepts, and reads nothing
        deaf.setblocking(False)
        url = f"http://127.0.0.1:{deaf.getsockname()[1]}"

        async def send() -> None:
            await open_stream(client, url, bytes(32 * 1024 * 1024), sending=sending)

        sender = asyncio.ensure_future(send())
        theirs, _ = await asyncio.get_running_loop().sock_accept(deaf)
        with theirs:
            await asyncio.sleep(0.02)
            await _leave(sender)
            await sending.linger()
            assert not sending.is_taken
    await client.close()


async def test_a_refused_request_is_not_taken() -> None:
    async def refuse(_: Request, connection: Connection) -> None:
        await connection.write(reply(b"{}", status="429 No"))

    client, sending = HttpClient(), Sending()
    async with raw_server(refuse) as server:
        await _reach(client, server.url, sending)
        assert not sending.is_taken
    await client.close()
