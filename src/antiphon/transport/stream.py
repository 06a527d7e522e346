"""A body that arrives piece by piece, with limits on every wait.

One timer watches a stream, however many pieces it has: it checks its deadline when it fires
and starts again if something arrived in between, so a piece costs no timer of its own. Time
counts only while we wait for the peer, not while our reader is busy. The caller checks status
and content type: `head` has them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import TracebackType
from typing import Final, Self

from antiphon.protocol.errors import BackendError
from antiphon.protocol.long_body import LongBody
from antiphon.transport.exchange import LEAVING, Exchange, Head, Sending, TakeBytes, late, too_long
from antiphon.transport.http import HttpClient, Limits

__all__ = ["ByteStream", "open_stream"]

_GRACE: Final = 0.05
_LEFTOVER: Final = 64 * 1024


async def open_stream(
    client: HttpClient,
    url: str,
    body: bytes | LongBody | None,
    *,
    method: str = "POST",
    headers: Mapping[str, str] | None = None,
    patience: float | None = None,
    sending: Sending | None = None,
) -> ByteStream:
    """Send and return the answer as a stream, once its head is here. Close it when done.

    `patience` is the time until the first byte of the body, if it is not that of the limits.
    With a `sending`, a task that leaves does not close the stream, but has to `linger`.
    """
    loop = asyncio.get_running_loop()
    started = loop.time()
    patience = client.limits.first_byte if patience is None else patience
    try:
        async with asyncio.timeout(patience):
            exchange = await client.send(method, url, body=body, headers=headers, sending=sending)
    except TimeoutError:
        if sending is not None:
            sending.abort()
        raise late("nothing came back") from None
    return ByteStream(exchange, client.limits, started, patience)


class ByteStream:
    """The pieces of a streamed body, as they arrive.

    Ends when the body does. A stall, a reset or a cut body raises BackendError. Closing it, or
    cancelling a read, closes the connection, unless the body was read to its end.
    """

    def __init__(self, exchange: Exchange, limits: Limits, started: float, patience: float) -> None:
        self.head: Head = exchange.head
        """Status and headers of the answer."""
        self._exchange = exchange
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self._wall = started + limits.wall
        # Until the first piece is here, the wait began with the request.
        self._patience = patience
        self._waiting_since: float | None = started
        self._is_open = True
        self._has_begun = False
        self._lateness: str | None = None  # why we closed the connection, if we did
        self._timer: asyncio.TimerHandle | None = None
        self._watch()

    @property
    def is_behind(self) -> bool:
        """Whether more is waiting already than the last read could take."""
        return self._exchange.is_behind

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        data = await self.read()
        if not data:
            raise StopAsyncIteration
        return data

    async def read(self) -> bytes:
        """Return the next piece; nothing at the end."""
        data = await self._read(None)
        assert data is not None
        return data

    async def read_or_hear(self, callback: TakeBytes) -> bytes | None:
        """Like `read`, but pass what arrives while we wait to `callback`, as it arrives.

        Return None when the callback accepts nothing further; raise what it raises.
        """

        def begin(data: bytes) -> bool:
            self._begin()
            self._exchange.pass_to(callback)
            return callback(data)

        return await self._read(callback if self._has_begun else begin)

    async def _read(self, callback: TakeBytes | None) -> bytes | None:
        if self._waiting_since is None:
            self._waiting_since = self._loop.time()
        try:
            data = await self._exchange.read(callback)
            if self._exchange.is_behind:
                # The next read would not wait: let other tasks run first.
                await asyncio.sleep(0)
        except BackendError as error:
            self.close()
            if self._lateness is None:
                raise
            raise late(self._lateness) from error
        except BaseException as error:
            self._leave(error)
            raise
        self._waiting_since = None
        if data == b"":
            self.close()
        elif not self._has_begun:
            self._begin()
        return data

    async def read_all(self, limit: int) -> bytes:
        """Return the rest of the body. Raise BackendError if it is longer than `limit`."""
        body = bytearray()
        while data := await self.read():
            body += data
            if len(body) > limit:
                self.close()
                raise too_long(limit)
        return bytes(body)

    async def finish(self) -> None:
        """Close a stream whose content is complete.

        The end of the body usually follows at once, and a connection read to its end can be
        used again. If the peer keeps the body open, the connection is closed.
        """
        if self._exchange.is_whole:  # it has been returned to its pool by now
            self.close()
            return
        try:
            async with asyncio.timeout(_GRACE):
                await self.read_all(_LEFTOVER)
        except (TimeoutError, BackendError):
            pass
        finally:
            self.close()

    def hurry(self, seconds: float) -> None:
        """Wait at most this long for more: what matters has arrived."""
        if seconds < self._patience:
            self._set_patience(seconds)

    def close(self) -> None:
        """Stop the peer now. Closing twice does nothing."""
        if not self._is_open:
            return
        self._is_open = False
        if self._timer is not None:
            self._timer.cancel()
        self._exchange.abort()

    def _leave(self, error: BaseException | None) -> None:
        """Close it, unless a task that leaves wants to linger."""
        if not (self._exchange.lingers and isinstance(error, LEAVING)):
            self.close()
        elif self._timer is not None:
            self._timer.cancel()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._leave(error)

    def _begin(self) -> None:
        """Note the first piece: from now on there is another limit."""
        self._has_begun = True
        self._set_patience(self._limits.idle)

    def _set_patience(self, seconds: float) -> None:
        """Wait so long from now on. A timer that fires too early starts again by itself."""
        before, self._patience = self._patience, seconds
        if seconds >= before:
            return
        if self._timer is not None:
            self._timer.cancel()
        if self._is_open:
            self._watch()

    def _watch(self) -> None:
        """Close the stream if the wait is over; otherwise check again when it may be."""
        now = self._loop.time()
        waiting = self._waiting_since
        since = now if waiting is None else max(waiting, self._exchange.heard_at)
        deadline = min(since + self._patience, self._wall)
        if deadline > now:
            self._timer = self._loop.call_at(deadline, self._watch)
            return
        self._lateness = "it takes too long" if now >= self._wall else "it fell silent"
        self.close()
