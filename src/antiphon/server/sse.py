"""Events to a client's socket: one write per batch, heartbeats in the silence between.

A client that does not read holds the model back (the write waits, so nothing is read from
upstream) until its connection is cut.
"""

from __future__ import annotations

import asyncio
from typing import Final

from aiohttp import web

from antiphon.protocol.codec import DONE, Dialect, encode_sse
from antiphon.protocol.events import Event
from antiphon.server.limits import ServerLimits

__all__ = ["SseWriter"]

_COMMENT: Final = b": keepalive\n\n"
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
        self._is_writing = False
        self._silent_since = self._loop.time()
        self._timer: asyncio.TimerHandle | None = None
        self._beats: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> SseWriter:
        await self._response.prepare(self._request)
        self._buffer_at_most(self._limits.write_buffer_bytes)
        self._watch()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._buffer_at_most(0)

    async def write(self, events: list[Event]) -> None:
        """Send a batch of events in one write; wait while the client is behind."""
        dialect = self._dialect
        await self._send(b"".join([encode_sse(event, dialect) for event in events]))

    async def end(self) -> None:
        """Send the end marker and end the body."""
        await self._send(DONE)
        await self._response.write_eof()

    async def _send(self, data: bytes) -> None:
        self._is_writing = True
        await self._response.write(data)
        self._is_writing = False
        self._silent_since = self._loop.time()

    def _buffer_at_most(self, size: int) -> None:
        """Let writes wait when more than this is on its way to the client."""
        transport = self._request.transport
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


def _counts_only_events(request: web.BaseRequest, dialect: Dialect) -> bool:
    """Say whether only parsed events reset this client's idle timer, as in Codex."""
    agent = request.headers.get("User-Agent", "").lower()
    return dialect == "openai" and agent.startswith("codex")
