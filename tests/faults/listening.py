"""A client that reads a stream event by event, and leaves when the test says so."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import msgspec

from antiphon.protocol.codec import decode_event
from antiphon.protocol.events import Event, OutputTextDelta, ResponseCreated
from antiphon.protocol.machines.referee import judge_stream
from antiphon.protocol.sse import SseDecoder
from tests.faults.house import PATIENCE

__all__ = ["Listener", "listen", "open_request", "reset"]

_RESET = struct.pack("ii", 1, 0)


class Listener:
    """One stream on its way. `events` are those read so far."""

    def __init__(self, answer: aiohttp.ClientResponse) -> None:
        self.answer = answer
        self.events: list[Event] = []
        self._decoder = SseDecoder()
        self._is_over = False

    @property
    def response_id(self) -> str:
        """The id that the first event names."""
        first = self.events[0]
        assert isinstance(first, ResponseCreated)
        return first.response.id

    @property
    def text(self) -> str:
        """All text that was streamed so far."""
        return "".join(e.delta for e in self.events if isinstance(e, OutputTextDelta))

    async def until_text(self, text: str) -> None:
        """Read until this much text has arrived, and not a letter more."""
        while self.text != text:
            assert text.startswith(self.text), self.text
            assert await self.read(), f"the stream ended after {self.text!r}"

    async def rest(self) -> list[Event]:
        """Read to the end; let the referee judge the whole stream; return all events."""
        while await self.read():
            pass
        assert judge_stream(self.events) == []
        return self.events

    def leave(self) -> None:
        """Hang up."""
        self.answer.close()

    async def read(self) -> bool:
        """Take what has arrived; say whether the stream goes on."""
        async with asyncio.timeout(PATIENCE):
            data = await self.answer.content.readany()
        for frame in self._decoder.feed(data):
            assert not self._is_over, "something follows the end mark"
            if frame.data == b"[DONE]":
                self._is_over = True
            else:
                self.events.append(decode_event(frame.data))
        assert data or self._is_over, "the stream ended without its mark"
        return bool(data)


@asynccontextmanager
async def listen(
    base_url: str, headers: Mapping[str, str] | None = None, /, **body: Any
) -> AsyncIterator[Listener]:
    """Ask for a stream and read it as it comes."""
    data = msgspec.json.encode({"input": "hello", "stream": True} | body)
    sent = {"Content-Type": "application/json", **(headers or {})}
    async with (
        aiohttp.ClientSession(read_bufsize=2**20) as session,
        session.post(f"{base_url}/responses", data=data, headers=sent) as answer,
    ):
        assert answer.status == 200, await answer.read()
        yield Listener(answer)


async def open_request(
    address: tuple[str, int], body: object, *, receive_buffer: int | None = None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Send a request over a socket of our own and read nothing of the answer."""
    data = msgspec.json.encode(body)
    sock = socket.socket()
    if receive_buffer is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    sock.setblocking(False)
    await asyncio.get_running_loop().sock_connect(sock, address)
    reader, writer = await asyncio.open_connection(sock=sock, limit=receive_buffer or 2**16)
    head = "POST /v1/responses HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    writer.write(f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data)
    await writer.drain()
    return reader, writer


def reset(writer: asyncio.StreamWriter) -> None:
    """Hang up in the rudest way: a reset instead of a close."""
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    writer.transport.abort()
