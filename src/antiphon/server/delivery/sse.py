"""Events to a client's socket: one write per batch, heartbeats in the silence between.

A client that does not read holds the model back (the write waits, so nothing is read from
upstream) until its connection is cut.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from aiohttp import web

from antiphon.protocol.codec import DONE, Dialect, encode_all_sse
from antiphon.protocol.events import Event, TerminalEvent
from antiphon.protocol.items import text_length
from antiphon.server.limits import ServerLimits

__all__ = ["SseWriter"]

_COMMENT: Final = b": keepalive\n\n"
_LONG: Final = 64 * 1024
_EVENT: Final = b'event: keepalive\ndata: {"type":"keepalive"}\n\n'


class SseWriter:
    """Writes one stream. Use as `async with SseWriter(…) as writer`."""

    def __init__(
        self,
        request: web.BaseRequest,
        response: web.StreamResponse,
        dialect: Dialect,
        limits: ServerLimits,
    ) -> None:
        self._request = request
        self._response = response
        self._dialect = dialect
        self._limits = limits
        self._beat = _EVENT if _counts_only_events(request, dialect) else _COMMENT
        self._loop = asyncio.get_running_loop()
        self._is_chunked = False
        self._transport: asyncio.Transport | None = None
        self._protocol = request.protocol
        self._is_writing = False
        self._silent_since = self._loop.time()
        self._timer: asyncio.TimerHandle | None = None
        self._beats: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> SseWriter:
        await self._response.prepare(self._request)
        self._is_chunked = self._response.headers.get("Transfer-Encoding") == "chunked"
        self._transport = self._request.transport
        self._buffer_at_most(self._limits.write_buffer_bytes)
        self._watch()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._transport = None
        self._buffer_at_most(0)

    async def write(self, events: list[Event]) -> None:
        """Send a batch of events in one write; wait while the client is behind.

        The last events of a long answer repeat all of it, each of them: they go one by one, so
        that one of them is in memory at a time.
        """
        if events and _is_long_end(events):
            for event in events:
                await self._send(self._encode([event]))
        elif events:
            await self._send(self._encode(events))
        elif self._is_gone:
            raise ConnectionResetError("the client has gone")
        else:
            await self._catch_up()

    @property
    def show(self) -> Callable[[list[Event]], bool] | None:
        """Sends a batch of events at once; says whether the client keeps up. Not for HTTP/1.0."""
        return self._show if self._is_chunked else None

    async def end(self) -> None:
        """Send the end marker and end the body."""
        await self._send(DONE)
        self._transport = None  # a beat that comes too late is the library's to refuse
        await self._response.write_eof()

    def _show(self, events: list[Event]) -> bool:
        if self._is_gone:
            return False
        self._write_chunk(self._encode(events))
        self._silent_since = self._loop.time()
        return not self._protocol.writing_paused

    @property
    def _is_gone(self) -> bool:
        return self._transport is None or self._transport.is_closing()

    def _encode(self, events: list[Event]) -> bytes:
        return encode_all_sse(events, self._dialect)

    async def _send(self, data: bytes) -> None:
        self._is_writing = True
        # The head goes with the first chunk; and the library knows what to raise.
        if self._is_chunked and self._request.writer.output_size and not self._is_gone:
            self._write_chunk(data)
            await self._catch_up()
        else:
            await self._response.write(data)
        self._is_writing = False
        self._silent_since = self._loop.time()

    def _write_chunk(self, data: bytes) -> None:
        """Write a chunk as HTTP has it: the library's own way there is four times as long."""
        assert self._transport is not None
        if len(data) > _LONG:
            self._transport.writelines([b"%x\r\n" % len(data), data, b"\r\n"])  # not copied
        else:
            self._transport.write(b"%x\r\n%b\r\n" % (len(data), data))

    async def _catch_up(self) -> None:
        if self._protocol.writing_paused:
            await self._request.writer.drain()

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
            task = self._loop.create_task(self._send(self._beat))
            self._beats.add(task)
            task.add_done_callback(self._forget_beat)
        self._timer = self._loop.call_later(seconds / 4, self._watch)

    def _forget_beat(self, task: asyncio.Task[None]) -> None:
        self._beats.discard(task)
        if not task.cancelled():
            task.exception()  # a client that has gone is noticed by its handler


def _is_long_end(events: Sequence[Event]) -> bool:
    last = events[-1]
    if len(events) == 1 or not isinstance(last, TerminalEvent):
        return False
    return any(text_length(item) > _LONG for item in last.response.output)


def _counts_only_events(request: web.BaseRequest, dialect: Dialect) -> bool:
    """Say whether only parsed events reset this client's idle timer, as in Codex."""
    agent = request.headers.get("User-Agent", "").lower()
    return dialect == "openai" and agent.startswith("codex")
