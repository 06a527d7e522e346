"""A connection with two deadlines that aiohttp does not have.

A client that sends one byte of a header now and then would be kept for ever: here it has ten
seconds from the first byte of a request's head to its last. And a client that does not read
would keep its answer in our memory for ever, also after the handler is done and the connection
is closing: here it is cut when nothing has left the buffer for the write-stall limit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final, cast

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from antiphon.protocol.errors import CallerError, OurFault
from antiphon.server.errors import error_response
from antiphon.server.limits import ServerLimits
from antiphon.server.memory import limit_kernel_buffer

__all__ = ["GuardedServer", "meter_arrivals"]

# A body that was refused unread is read and dropped for so long: a client that is cut off while
# it sends may never see the answer.
_LINGER_SECONDS: Final = 10.0


class _NoHttp(CallerError):
    code = "invalid_http"


class _Connection(RequestHandler):
    __slots__ = ("_head_timer", "_limits", "_stall_timer", "_wire", "meter")

    def __init__(self, manager: web.Server, limits: ServerLimits, **options: Any) -> None:
        super().__init__(manager, **options)
        self._limits = limits
        self._head_timer: asyncio.TimerHandle | None = None
        self._stall_timer: asyncio.TimerHandle | None = None
        self.meter: Callable[[int], None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        # Kept apart from aiohttp's own, which is gone as soon as the connection is closing.
        self._wire = cast(asyncio.Transport, transport)
        # We are told to pause as soon as anything is left in the buffer. The transport of TLS
        # would take 0 to mean that it is always full.
        is_secure = transport.get_extra_info("sslcontext") is not None
        self._wire.set_write_buffer_limits(high=1 if is_secure else 0, low=0)
        limit_kernel_buffer(self._wire, self._limits.write_buffer_bytes)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._await_progress(self._wire.get_write_buffer_size())

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop_stall_timer()

    def data_received(self, data: bytes) -> None:
        if self.meter is not None:
            self.meter(len(data))
        heads = self._request_count
        super().data_received(data)
        if self._request_count == heads and self._is_idle():
            if self._head_timer is None:
                self._head_timer = self._loop.call_later(
                    self._limits.header_seconds, self.force_close
                )
        elif self._head_timer is not None:
            self._stop_head_timer()

    def _is_idle(self) -> bool:
        """Return whether what arrives is the head of a request."""
        # The task that waits for requests may not have started when the first bytes arrive.
        is_waiting = self._waiter is not None and not self._waiter.done()
        return is_waiting or self._request_count == 0

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer what is not HTTP. aiohttp would log the offending line, with any key in it."""
        if request.writer.output_size > 0:
            raise ConnectionError("half an answer is out, and there is no other half")
        error = (
            _NoHttp("the request cannot be read as HTTP/1.1")
            if status < 500
            else OurFault("the gateway broke")
        )
        response = error_response(error)
        response.force_close()
        return response

    def connection_lost(self, exc: BaseException | None) -> None:
        self._stop_head_timer()
        self._stop_stall_timer()
        super().connection_lost(exc)

    def _await_progress(self, size: int) -> None:
        """Look again after the write-stall limit at a buffer that now has this size."""
        self._stall_timer = self._loop.call_later(
            self._limits.write_stall_seconds, self._cut_stalled, size
        )

    def _cut_stalled(self, before: int) -> None:
        size = self._wire.get_write_buffer_size()
        if size < before:
            self._await_progress(size)
        else:
            self._wire.abort()

    def _stop_stall_timer(self) -> None:
        if self._stall_timer is not None:
            self._stall_timer.cancel()
            self._stall_timer = None

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None


def meter_arrivals(request: web.BaseRequest, meter: Callable[[int], None] | None) -> None:
    """Report to this function how many bytes arrive on the request's connection from now on."""
    if isinstance(request.protocol, _Connection):
        request.protocol.meter = meter


class GuardedServer(web.Server):
    """aiohttp's low-level server with our limits, cancelling handlers whose client left."""

    def __init__(
        self,
        handler: Any,  # Any: aiohttp's own alias
        limits_now: Callable[[], ServerLimits],
    ) -> None:
        limits = limits_now()
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
            lingering_time=_LINGER_SECONDS,
        )
        self._limits_now = limits_now

    def __call__(self) -> RequestHandler:
        return _Connection(self, self._limits_now(), loop=self._loop, **self._kwargs)

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
            client_max_size=self._limits_now().body_bytes,
        )
