"""One request and its answer: first the head, then the body in pieces.

The connection puts in what it reads, and a task takes it out. What waits to be taken is limited:
above a high mark the connection stops reading until the task has caught up. Bytes keep their
order, and everything that arrived before a fault is returned before the fault is raised.

A fault is kept as data and becomes an exception when it is raised. An exception that is kept
would refer to the frames that it passed, and through them to itself.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final, Protocol

import msgspec

from antiphon.protocol.errors import BackendError

__all__ = [
    "HIGH_MARK",
    "LEAVING",
    "LOW_MARK",
    "MAX_CALLBACK",
    "PIECE",
    "Exchange",
    "Fault",
    "Head",
    "Sending",
    "Source",
    "StaleConnection",
    "TakeBytes",
    "closed",
    "late",
    "too_long",
]

PIECE: Final = 32 * 1024
"""The most that one read returns: the work on one piece delays all other tasks."""

HIGH_MARK: Final = 256 * 1024
"""The connection stops reading when more bytes than this wait."""

LOW_MARK: Final = 64 * 1024
"""The connection reads again when at most so many bytes wait."""

# Seconds that a peer has to notice that we left, before its connection is reset.
_LINGER: Final = 0.05

MAX_CALLBACK: Final = 4 * 1024
"""Larger parts of a body are not passed to the callback: in a flood, larger batches are cheaper."""

LEAVING: Final = (asyncio.CancelledError, ConnectionError)
"""How a task ends that leaves its answer: it is cancelled, or its own client is gone."""

TakeBytes = Callable[[bytes], bool]
"""Takes a part of a body in the callback of the socket; returns whether it takes more."""


class Head(msgspec.Struct, frozen=True):
    """Status and headers of an answer. Names of headers are in lower case."""

    status: int
    headers: Mapping[str, str]

    @property
    def content_type(self) -> str:
        """The media type alone, in lower case; empty if the peer sends none."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()


class StaleConnection(BackendError):
    """A reused connection broke before the first byte of the answer.

    The peer closed it while it was idle, and the close crossed our request.
    """


class Fault(msgspec.Struct, frozen=True):
    """Why an answer is not complete."""

    message: str
    code: str
    is_stale: bool = False

    def error(self) -> BackendError:
        """Return an exception that reports this."""
        kind = StaleConnection if self.is_stale else BackendError
        return kind(self.message, code=self.code)


def closed(reason: str, *, is_stale: bool = False) -> Fault:
    """Return the fault of a connection that was closed too early."""
    message = f"the upstream closed the connection: {reason}"
    return Fault(message, "upstream_closed", is_stale)


def late(what: str = "") -> BackendError:
    """Return the error of a peer that takes too long; `what` says in which way."""
    message = f"the upstream did not answer in time{': ' if what else ''}{what}"
    return BackendError(message, code="upstream_timeout", status=504)


def too_long(limit: int) -> BackendError:
    """Return the error of a body that has more than `limit` bytes."""
    message = f"the upstream's answer is longer than {limit} bytes"
    return BackendError(message, code="upstream_invalid_response")


class Source(Protocol):
    """What an exchange may ask of the connection that feeds it."""

    def pause_reading(self) -> None:
        """Read nothing for now."""

    def resume_reading(self) -> None:
        """Read again."""

    def stop_sending(self) -> None:
        """Close our side: the peer learns that nobody waits, and what it has sent can be read."""

    def hang_up(self, exchange: Exchange) -> None:
        """Close the connection and end the exchange, if it still serves this one."""


class Exchange:
    """A request that was sent. `head` is there once `begin` has returned.

    One task uses it. Cancelling that task while it waits closes the connection, unless it
    `lingers`.
    """

    head: Head
    is_behind = False
    """Whether more may be waiting already than the last read could take."""
    lingers = False
    """Whether a task that leaves has promised to call `linger`."""
    is_sent = True
    """Whether the peer may have the whole request. Known once the connection is closed."""
    heard_at = 0.0
    """When bytes were passed to a callback last, by the clock of the loop."""
    _offset = 0  # of what waits first, this much has been taken
    _size = 0
    _is_paused = False
    _is_over = False
    _fault: Fault | None = None
    _error: Exception | None = None  # of the callback
    _callback: TakeBytes | None = None
    _is_full = False  # the callback accepts nothing further
    _has_head = False
    _waiter: asyncio.Future[None] | None = None

    def __init__(self, loop: asyncio.AbstractEventLoop, source: Source) -> None:
        self._loop = loop
        self._source: Source | None = source
        self._waiting: deque[bytes] = deque()

    # For the task.

    async def begin(self) -> None:
        """Wait for the head. Raise BackendError if none comes."""
        while not self._has_head:
            if self._fault is not None:
                raise self._fault.error()
            await self._wait()

    async def read(self, callback: TakeBytes | None = None) -> bytes | None:
        """Return what has arrived, at most a PIECE; wait if that is nothing. b"" at the end.

        What came before a fault is returned before the fault is raised. What arrives while we
        wait may be passed to the callback instead: return None when that accepts nothing
        further, and raise what it raises.
        """
        while not self._size:
            if self._fault is not None:
                raise self._fault.error()
            if self._is_over:
                return b""
            self._callback = callback
            await self._wait()
            if self._is_full:
                self._end_callback()
                return None
        return self._take()

    def pass_to(self, callback: TakeBytes) -> None:
        """Pass what arrives to this callback from now on. For the one that `read` was given."""
        self._callback = callback

    def take_waiting(self) -> bytes:
        """Return all that has arrived and was not read, without waiting for more."""
        taken: list[bytes] = []
        while self._size:
            taken.append(self._take())
        return b"".join(taken)

    async def linger(self, seconds: float) -> None:
        """Stop the peer, and let arrive what it has sent before it noticed that.

        Our side is closed at once, and all of it when the peer has done so too, or after this
        time, or when as much waits as is ever kept.
        """
        self.lingers, self._callback = False, None
        source = self._source
        if source is None:
            return
        source.stop_sending()
        # Twice: a process that stood still reads what has arrived meanwhile after its first timer.
        for _ in range(2):
            await self._arrive(seconds / 2)
        source.hang_up(self)

    async def _arrive(self, seconds: float) -> None:
        """Wait until nothing more can arrive, or for so long."""
        is_late = False

        def note_late() -> None:
            nonlocal is_late
            is_late = True
            self.wake()

        timer = self._loop.call_later(seconds, note_late)
        try:
            while not (self._is_over or self._is_paused or is_late):
                await self._wait()
        finally:
            timer.cancel()

    @property
    def is_whole(self) -> bool:
        """Whether the whole answer has arrived."""
        return self._has_head and self._is_over and self._fault is None

    @property
    def status(self) -> int | None:
        """The status of the answer, if its head has arrived."""
        return self.head.status if self._has_head else None

    def abort(self) -> None:
        """Close the connection now. Does nothing if the whole answer has arrived."""
        if self._source is not None:
            self._waiting.clear()
            self._size = 0
            self._source.hang_up(self)  # this ends it

    # For the connection.

    def start(self, head: Head) -> None:
        """Take the head."""
        self.head = head
        self._has_head = True
        self.wake()

    def put(self, body: bytes) -> None:
        """Take a part of the body."""
        callback = self._callback
        if callback is not None and len(body) <= MAX_CALLBACK:
            self.heard_at = self._loop.time()
            try:
                if callback(body):
                    return
            except Exception as error:  # noqa: BLE001 - raised by the task that reads
                self._error = error
            self._is_full = True
        else:
            self._waiting.append(body)
            self._size += len(body)
            if self._size > HIGH_MARK and not self._is_paused and self._source is not None:
                self._is_paused = True
                self._source.pause_reading()
        self._callback = None  # what comes next has to wait behind this
        self.wake()

    def end(self, fault: Fault | None) -> None:
        """Note that nothing more comes, and why if the answer is not complete."""
        self._is_over = True
        self._fault = fault
        self._source = self._callback = None  # the callback may refer to what holds us
        self.wake()

    def wake(self) -> None:
        """Let the task look again, if it waits."""
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    async def _wait(self) -> None:
        if self._waiter is not None:
            raise RuntimeError("another task is waiting for this answer already")
        waiter = self._waiter = self._loop.create_future()
        try:
            await waiter
        except BaseException:
            if not self.lingers:
                self.abort()
            raise
        finally:
            self._waiter = None

    def _take(self) -> bytes:
        """Return all that waits, or a PIECE of it."""
        waiting = self._waiting
        if self._size <= PIECE and not self._offset:
            data = b"".join(waiting)  # of one part it is that part, not a copy
            waiting.clear()
            self._size = 0
        else:
            data = self._take_piece()
        self.is_behind = self._size > 0 or len(data) == PIECE
        if self._is_paused and self._size <= LOW_MARK:
            self._is_paused = False
            if self._source is not None:
                self._source.resume_reading()
        return data

    def _take_piece(self) -> bytes:
        waiting, taken, room = self._waiting, [], PIECE
        while room and waiting:
            part = waiting[0][self._offset : self._offset + room]
            taken.append(part)
            room -= len(part)
            self._offset += len(part)
            if self._offset == len(waiting[0]):
                waiting.popleft()
                self._offset = 0
        data = b"".join(taken)
        self._size -= len(data)
        return data

    def _end_callback(self) -> None:
        """Raise the exception of the callback, if it raised one."""
        self._is_full = self.is_behind = False
        error, self._error = self._error, None
        if error is None:
            return
        if not (self.lingers and isinstance(error, LEAVING)):
            self.abort()
        try:
            raise error
        finally:
            del error  # its traceback refers to this frame


class Sending:
    """A request on its way, for a caller that may leave before all of its answer is here.

    Whoever passes one to a client has to call `linger` when its task leaves. It keeps what a
    provider bills apart from what it does not: a request that did not go out, or was refused.
    """

    def __init__(self) -> None:
        self._exchange: Exchange | None = None

    def begin(self, exchange: Exchange) -> None:
        """Note that the request is being sent, or sent again."""
        self._exchange = exchange
        exchange.lingers = True

    def forget(self) -> None:
        """Note that what was sent came to nothing."""
        self._exchange = None

    @property
    def is_taken(self) -> bool:
        """Whether the peer may work on the request: it may have all of it, and did not refuse."""
        exchange = self._exchange
        if exchange is None or not exchange.is_sent:
            return False
        return exchange.status is None or 200 <= exchange.status < 300

    @property
    def head(self) -> Head | None:
        """Status and headers of the answer, if they have arrived."""
        exchange = self._exchange
        return None if exchange is None or exchange.status is None else exchange.head

    @property
    def is_whole(self) -> bool:
        """Whether the whole answer has arrived."""
        return self._exchange is not None and self._exchange.is_whole

    async def linger(self) -> bytes:
        """Stop the peer, and return what it had sent and was not read.

        A task that leaves because its client is gone is often cancelled as well. So to be
        cancelled does not end this: the task is leaving already.
        """
        exchange = self._exchange
        if exchange is None:
            return b""
        lingering = asyncio.ensure_future(exchange.linger(_LINGER))
        while not lingering.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait({lingering})
        lingering.result()
        return exchange.take_waiting()

    def abort(self) -> None:
        """Close the connection now."""
        if self._exchange is not None:
            self._exchange.abort()
