"""A connection that gives its client ten seconds to say what it wants.

aiohttp closes connections that stay silent, but a client that sends one byte of a header now
and then would be kept for ever. This adds the deadline: from the first byte of a request's
head to its last.
"""

from __future__ import annotations

import asyncio
from typing import Any

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from antiphon.server.limits import ServerLimits

__all__ = ["GuardedServer"]


class _Connection(RequestHandler):
    __slots__ = ("_head_seconds", "_head_timer")

    def __init__(self, manager: web.Server, head_seconds: float, **options: Any) -> None:
        super().__init__(manager, **options)
        self._head_seconds = head_seconds
        self._head_timer: asyncio.TimerHandle | None = None

    def data_received(self, data: bytes) -> None:
        heads = self._request_count
        super().data_received(data)
        is_idle = self._waiter is not None and not self._waiter.done()
        if self._request_count != heads or not is_idle:
            self._stop_head_timer()
        elif self._head_timer is None:
            self._head_timer = self._loop.call_later(self._head_seconds, self.force_close)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._stop_head_timer()
        super().connection_lost(exc)

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None


class GuardedServer(web.Server):
    """aiohttp's low-level server with our limits, cancelling handlers whose client left."""

    def __init__(self, handler: Any, limits: ServerLimits) -> None:  # Any: aiohttp's own alias
        super().__init__(
            handler,
            request_factory=self._sized_request,
            handler_cancellation=True,
            access_log=None,
            keepalive_timeout=limits.keep_alive_seconds,
            max_line_size=limits.header_bytes,
            max_field_size=limits.header_bytes,
            max_headers=limits.header_count,
            auto_decompress=False,
            lingering_time=2.0,
        )
        self._limits = limits

    def __call__(self) -> RequestHandler:
        return _Connection(self, self._limits.header_seconds, loop=self._loop, **self._kwargs)

    def _sized_request(
        self, message: Any, payload: Any, protocol: Any, writer: Any, task: Any
    ) -> web.BaseRequest:
        return web.BaseRequest(
            message,
            payload,
            protocol,
            writer,
            task,
            self._loop,
            client_max_size=self._limits.body_bytes,
        )
