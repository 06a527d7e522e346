"""The stream on the socket: what is written by hand is HTTP all the same, to its end."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest

from antiphon.backends.scripted import ScriptedBackend
from antiphon.gateway.assemble import ServerSettings
from antiphon.protocol.deltas import Stopped, TextGrew
from antiphon.store.memory import MemoryStore
from antiphon.testing.gateway import serve_gateway
from tests.asking import ask
from tests.faults.house import PATIENCE, limited
from tests.server.keyed import make_key

END = b"\r\n0\r\n\r\n"
BODY = b'{"input":"Say hi","stream":true}'


async def test_a_heartbeat_that_comes_too_late_is_not_written_behind_the_end() -> None:
    backend = ScriptedBackend([[TextGrew("hi"), Stopped("stop")]])
    # A beat is due at once; and a response that has ended is told without a pause.
    async with (
        asyncio.timeout(PATIENCE),
        serve_gateway(backend, settings=limited(heartbeat_seconds=0.0)) as gateway,
    ):
        path = f"/v1/responses/{(await ask(gateway)).json['id']}?stream=true"
        reader, writer = await asyncio.open_connection(*gateway.address)
        answers = []
        for _ in range(2):
            writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            answers.append(await reader.readuntil(END))
        writer.close()

    assert [answer[:15] for answer in answers] == [b"HTTP/1.1 200 OK"] * 2
    assert all(b"[DONE]" in answer for answer in answers)


async def test_the_head_and_the_end_of_a_stream_take_no_writes_of_their_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each write wakes the client up."""
    backend = ScriptedBackend([[TextGrew("hi"), Stopped("stop")]])
    writes: list[bytes] = []

    class Socket(socket.socket):
        def send(self, data: Any, flags: int = 0) -> int:  # Any: each kind of buffer
            if self.getsockname()[1] == port:
                writes.append(bytes(data))
            return super().send(data, flags)

    async with asyncio.timeout(PATIENCE), serve_gateway(backend) as gateway:
        port = gateway.address[1]
        monkeypatch.setattr(socket, "socket", Socket)  # `accept` makes such ones
        reader, writer = await asyncio.open_connection(*gateway.address)
        head = (
            "POST /v1/responses HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        )
        writer.write(f"{head}Content-Length: {len(BODY)}\r\n\r\n".encode() + BODY)
        await reader.readuntil(END)
        writer.close()

    assert b"HTTP/1.1 200 OK" in writes[0]
    assert b"event: response.created" in writes[0]
    assert writes[-1].endswith(b"data: [DONE]\n\n" + END)


async def test_the_head_of_a_stream_does_not_wait_for_an_event() -> None:
    go_on = asyncio.Event()
    backend = ScriptedBackend([[TextGrew("hi"), go_on, Stopped("stop")]])
    async with asyncio.timeout(PATIENCE), serve_gateway(backend) as gateway:
        response_id = (await ask(gateway, background=True)).json["id"]
        path = f"/v1/responses/{response_id}?stream=true&starting_after=1000"
        reader, writer = await asyncio.open_connection(*gateway.address)
        writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        go_on.set()
        await reader.readuntil(END)
        writer.close()

    assert head.startswith(b"HTTP/1.1 200 OK")


async def test_over_http_1_0_a_stream_ends_with_the_connection() -> None:
    store = MemoryStore()
    headers = await make_key(store)
    settings = ServerSettings(require_keys=True)
    backend = ScriptedBackend([[TextGrew("hi"), Stopped("stop")]])
    async with (
        asyncio.timeout(PATIENCE),
        serve_gateway(backend, store=store, settings=settings) as gateway,
    ):
        reader, writer = await asyncio.open_connection(*gateway.address)
        head = f"POST /v1/responses HTTP/1.0\r\nAuthorization: {headers['Authorization']}\r\n"
        writer.write(f"{head}Content-Length: {len(BODY)}\r\n\r\n".encode() + BODY)
        head, _, body = (await reader.read()).decode().partition("\r\n\r\n")
        writer.close()

    assert head.startswith("HTTP/1.0 200 OK")
    assert "Transfer-Encoding" not in head
    assert body.startswith("event: response.created\n")
    assert body.endswith("\n\ndata: [DONE]\n\n")
