"""Events to a client's socket: one write per batch, heartbeats in the silence between.

The head is sent with the first events, so that an error before them can have a status of its
own. A client that does not read holds the model back (`drained` waits, so nothing is read from
upstream) until its connection is cut.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from aiohttp import web

from antiphon.protocol.events import Event
from antiphon.server.limits import ServerLimits
from antiphon.wires.door import EventEncoder

__all__ = ["SseSink"]

_LONG: Final = 64 * 1024


class SseSink:
    """Writes one stream. Use as `async with SseSink(…) as sink`.

    `head` makes the answer when the first events are about to be sent; `encoder` writes the
    events in the language of the client.
    """

    def __init__(
        self,
        request: web.BaseRequest,
        head: Callable[[], web.StreamResponse],
        encoder: EventEncoder,
        limits: ServerLimits,
    ) -> None:
        self._request = request
        self._head = head
        self._response: web.StreamResponse | None = None
        self._encoder = encoder
        self._encode = encoder.encode
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self._waiting: list[bytes] = []
        # Set while chunks can be written to it: not before the head is out, not over HTTP/1.0.
        self._transport: asyncio.Transport | None = None
        self._is_chunked = False
        self._protocol = request.protocol
        self._is_writing = False
        self._silent_since = self._loop.time()
        self._timer: asyncio.TimerHandle | None = None
        self._beats: set[asyncio.Task[None]] = set()

    @property
    def response(self) -> web.StreamResponse:
        """The answer, once the first events were sent."""
        assert self._response is not None
        return self._response

    async def __aenter__(self) -> SseSink:
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._transport = None
        if self._response is not None:
            self._buffer_at_most(0)

    def show(self, events: list[Event]) -> bool:
        """Send a batch of events in one write; return whether the client keeps up.

        Before the head is out, and over HTTP/1.0, they wait for `drained`.
        """
        transport, data = self._transport, self._encode(events)
        if transport is None:
            self._waiting.append(data)
            return False
        if transport.is_closing():
            return False
        if data:  # an empty chunk would be the end of the body
            _write_chunk(transport, data)
            self._silent_since = self._loop.time()
        return not self._protocol.writing_paused

    async def drained(self) -> None:
        """Send what waits, after the head, and wait while the client is behind."""
        if self._response is None:
            self._response = self._head()
            await self._open(self._response)
        waiting, self._waiting = self._waiting, []
        for data in filter(None, waiting):
            await self._send(data)
        transport = self._request.transport
        if transport is None or transport.is_closing():
            raise ConnectionResetError("the client has gone")
        if self._protocol.writing_paused:
            await self._request.writer.drain()

    async def end(self) -> None:
        """Send what ends the stream and the body, in one write."""
        response = self.response
        if self._timer is not None:
            self._timer.cancel()  # no beat follows, also if this waits
        self._is_writing = True  # and one that is due already is not written
        await self._request.writer.write_eof(self._encoder.end())
        await response.write_eof()  # which has nothing left to send

    async def _open(self, response: web.StreamResponse) -> None:
        await response.prepare(self._request)
        if not any(self._waiting):
            self._request.writer.send_headers()  # the first event may take long
        self._is_chunked = response.headers.get("Transfer-Encoding") == "chunked"
        self._buffer_at_most(self._limits.write_buffer_bytes)
        self._watch()

    async def _send(self, data: bytes) -> None:
        self._is_writing = True
        if self._transport is not None and not self._transport.is_closing():
            _write_chunk(self._transport, data)
            if self._protocol.writing_paused:
                await self._request.writer.drain()
        else:
            # The head goes with the first chunk; and the library knows what to raise.
            await self.response.write(data)
            if self._is_chunked:
                self._transport = self._request.transport
        self._is_writing = False
        self._silent_since = self._loop.time()

    def _buffer_at_most(self, size: int) -> None:
        """Let writes wait when more than this is on its way to the client."""
        transport = self._request.transport  # None when it is closed: uvloop's takes nothing then
        if transport is not None:
            transport.set_write_buffer_limits(high=size)

    def _watch(self) -> None:
        """Look after the stream now and again, and beat in silence."""
        seconds = self._limits.heartbeat_seconds
        silence = self._loop.time() - self._silent_since
        if silence >= seconds and not self._is_writing:
            task = self._loop.create_task(self._beat())
            self._beats.add(task)
            task.add_done_callback(self._forget_beat)
        self._timer = self._loop.call_later(seconds / 4, self._watch)

    async def _beat(self) -> None:
        if not self._is_writing:  # else the stream has ended since
            await self._send(self._encoder.heartbeat)

    def _forget_beat(self, task: asyncio.Task[None]) -> None:
        self._beats.discard(task)
        if not task.cancelled():
            task.exception()  # a client that has left is noticed by its handler


def _write_chunk(transport: asyncio.Transport, data: bytes) -> None:
    """Write a chunk as HTTP has it: the library's own way there is four times as long."""
    if len(data) > _LONG:
        # Not joined, which would copy it. Not `writelines`: in early releases of
        # Python 3.12 and 3.13 it never pauses the protocol (CVE-2024-12254).
        transport.write(b"%x\r\n" % len(data))
        transport.write(data)
        transport.write(b"\r\n")
    else:
        transport.write(b"%x\r\n%b\r\n" % (len(data), data))
