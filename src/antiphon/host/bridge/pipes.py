"""How do lines get in and out of a process without stopping its event loop?

A thread for each direction: reading and writing may block there, on every system and for every
kind of stdin. Both directions are limited. `LineSource` reads a few pieces ahead and waits.
`LineSink` accepts every line at once; a producer of many lines must await `room`, which waits while
the reader is behind.

`take_over` makes the process's own stdin and stdout private: what a library prints goes to
stderr, and can never be taken for a message.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Final, NamedTuple

from antiphon.wires.host.lines import MAX_LINE_BYTES, LineReader, LongLine

__all__ = ["HARD_LIMIT", "SOFT_LIMIT", "LineSink", "LineSource", "take_over"]

SOFT_LIMIT: Final = 1024 * 1024
"""The number of unread bytes from which answers wait."""
HARD_LIMIT: Final = 16 * SOFT_LIMIT
"""The number of unread bytes from which no more messages are read."""

_READ_BYTES: Final = 256 * 1024
_READ_AHEAD: Final = 4
_Lines = list[bytes | LongLine]


class LineSource:
    """The lines of a file descriptor, until its end. Iterate over it once."""

    def __init__(self, descriptor: int, max_bytes: int = MAX_LINE_BYTES) -> None:
        self._descriptor = descriptor
        self._reader = LineReader(max_bytes)
        self._loop = asyncio.get_running_loop()
        self._arrived: asyncio.Queue[_Lines | None] = asyncio.Queue()
        self._ahead = threading.Semaphore(_READ_AHEAD)

    async def __aiter__(self) -> AsyncIterator[bytes | LongLine]:
        """Yield the lines. End with the input, or when it cannot be read."""
        # A daemon: a blocked read must not keep the process alive.
        threading.Thread(target=self._read, name="antiphon-lines-in", daemon=True).start()
        while (lines := await self._arrived.get()) is not None:
            for line in lines:
                yield line
            self._ahead.release()

    def _read(self) -> None:
        """Read until the end, in a thread of its own."""
        with contextlib.suppress(OSError):  # a broken pipe is the end, as on Windows
            while data := os.read(self._descriptor, _READ_BYTES):
                if lines := self._reader.feed(data):
                    self._ahead.acquire()
                    self._pass(lines)
        self._pass(None)

    def _pass(self, lines: _Lines | None) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended first
            self._loop.call_soon_threadsafe(self._arrived.put_nowait, lines)


class LineSink:
    """Writes lines to a file descriptor. `write` may be called from any thread.

    `on_broken` is called in the event loop when the reader has gone.
    """

    def __init__(self, descriptor: int, on_broken: Callable[[], object] = lambda: None) -> None:
        self._descriptor = descriptor
        self._on_broken = on_broken
        self._loop = asyncio.get_running_loop()
        self._changed = threading.Condition()
        self._waiting: deque[bytes] = deque()
        self._size = 0
        self._rooms = [_Room(limit, asyncio.Event()) for limit in (SOFT_LIMIT, HARD_LIMIT)]
        self._is_closed = False
        self._has_ended = asyncio.Event()
        threading.Thread(target=self._write, name="antiphon-lines-out", daemon=True).start()

    def write(self, line: bytes) -> None:
        """Write the line, with its line break, as soon as the reader takes it."""
        with self._changed:
            if self._is_closed:
                return
            self._waiting.append(line)
            self._size += len(line)
            self._changed.notify()

    @property
    def is_full(self) -> bool:
        """Whether the reader has fallen behind."""
        return self._size >= SOFT_LIMIT

    async def room(self, limit: int = SOFT_LIMIT) -> None:
        """Wait until fewer bytes than the limit are waiting for the reader."""
        if self._size < limit:
            return
        for room in self._rooms:
            if room.limit == limit:
                room.event.clear()
                with self._changed:
                    is_free = self._size < limit or self._is_closed
                if not is_free:
                    await room.event.wait()

    async def close(self, patience: float) -> None:
        """Write what is waiting, for at most so many seconds, and end."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience):
                await self._has_ended.wait()

    def _write(self) -> None:
        """Write until closed, in a thread of its own."""
        try:
            while data := self._take():
                _write_all(self._descriptor, data)
                self._release(len(data))
        except OSError:
            self._end(self._on_broken)
        else:
            self._end(lambda: None)

    def _take(self) -> bytes:
        """Return all lines that are waiting, at least one; nothing after the last."""
        with self._changed:
            while not self._waiting and not self._is_closed:
                self._changed.wait()
            data = b"".join(self._waiting)
            self._waiting.clear()
            return data

    def _release(self, written: int) -> None:
        with self._changed:
            before, self._size = self._size, self._size - written
        for room in self._rooms:
            if before >= room.limit > self._size:
                self._schedule(room.event.set)

    def _end(self, then: Callable[[], object]) -> None:
        with self._changed:
            self._is_closed = True
            self._size = 0
            self._waiting.clear()
        for room in self._rooms:
            self._schedule(room.event.set)
        self._schedule(self._has_ended.set)
        self._schedule(then)

    def _schedule(self, call: Callable[[], object]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended first
            self._loop.call_soon_threadsafe(call)


class _Room(NamedTuple):
    """Those who wait until less than `limit` is waiting."""

    limit: int
    event: asyncio.Event


def take_over() -> tuple[int, int]:
    """Return private descriptors of stdin and stdout, and put others in their places.

    From then on nothing can be read from stdin, and what is printed goes to stderr.
    """
    _ensure_stderr()
    source, sink = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    if sys.platform == "win32":
        import msvcrt

        for descriptor in (source, sink):
            msvcrt.setmode(descriptor, os.O_BINARY)
    return source, sink


def _ensure_stderr() -> None:
    """Open descriptor 2, if the parent gave us none: another file must not get its number."""
    try:
        os.fstat(2)
    except OSError:
        os.open(os.devnull, os.O_WRONLY)  # the lowest free number


def _write_all(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]
