"""Reading a body that comes in very many HTTP chunks.

A stream of events has as many chunks as events. The HTTP library hands them out one by one and
keeps an account for each, which was a fifth of what reading a stream cost. Here all that are
waiting are taken at once, with one account for all of them, and the peer may go on. Of more than
fits, the last piece is left to the library, with the account and the flow control it keeps.
Chunks that arrive while somebody waits for them need not lie here at all: see `tap`.

This reaches into the library's reader. It does so in this place only, and only as long as the
reader has the fields we know; otherwise, and for whatever is not plain, the library reads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from aiohttp import StreamReader

from antiphon.transport.tap import TappedHandler

__all__ = ["ChunkReader", "Hear"]

Hear = Callable[[bytes], bool]
"""Is given a piece of a body as it arrives; says whether it wants more in this way."""

_IS_KNOWN: Final = {
    *("_buffer", "_buffer_offset", "_size", "_cursor", "_eof", "_exception"),
    *("_http_chunk_splits", "_protocol", "_waiter", "_loop"),
} <= set(getattr(StreamReader, "__slots__", ())) and hasattr(StreamReader, "_read_nowait_chunk")


class ChunkReader:
    """Reads a body, at most so many bytes at a time."""

    def __init__(self, content: StreamReader) -> None:
        self._content = content
        # A body that cannot be has a reader of its own kind, without those fields.
        self._takes = _IS_KNOWN and type(content) is StreamReader
        self.is_behind = False
        """Whether more may be waiting already than the last read could take."""

    async def read(self, most: int, hear: Hear | None = None) -> bytes | None:
        """Return what has arrived; wait if that is nothing. Nothing at the end.

        What arrives while we wait may be given to `hear` instead: return None when that has
        had enough, or raise what it raises.
        """
        content = self._content
        if self._takes:
            while not (content._buffer or content._eof or content._exception):
                if content._waiter is not None or not content._protocol.connected:
                    await content._wait("read")  # raises what is wrong
                waiter = content._waiter = content._loop.create_future()
                try:
                    if await (waiter if hear is None else _listen(content, waiter, hear)):
                        return None
                finally:
                    content._waiter = None
            if content._buffer and content._exception is None:
                return self._take(most)
        data: bytes = await content.read(most)
        self.is_behind = len(data) == most
        return data

    def rest(self, most: int) -> bytes:
        """Return what arrived before the body broke, which the library keeps to itself then."""
        return self._content._read_nowait(most)

    def _take(self, most: int) -> bytes:
        """Take all that is waiting, else whole chunks, or a piece of one that is too large."""
        content, waiting = self._content, self._content._buffer
        if content._size > most or content._buffer_offset:
            return self._take_some(most)
        data = waiting[0] if len(waiting) == 1 else b"".join(waiting)
        waiting.clear()
        content._size = 0
        content._cursor += len(data)
        if content._http_chunk_splits:
            content._http_chunk_splits.clear()
        if content._protocol._reading_paused:
            content._protocol.resume_reading()
        self.is_behind = bool(waiting) or len(data) == most
        return data

    def _take_some(self, most: int) -> bytes:
        content, waiting = self._content, self._content._buffer
        taken, size = [], 0
        if not content._buffer_offset:
            while len(waiting) > 1 and size + len(waiting[0]) + len(waiting[1]) <= most:
                taken.append(waiting.popleft())
                size += len(taken[-1])
            content._size -= size
            content._cursor += size
        taken.append(content._read_nowait_chunk(most - size))
        data = b"".join(taken)
        self.is_behind = bool(waiting) or len(data) == most
        return data


async def _listen(content: StreamReader, waiter: asyncio.Future[bool], hear: Hear) -> bool:
    """Let chunks be heard until there is something to read, or enough was heard: say so."""
    protocol = content._protocol
    if not isinstance(protocol, TappedHandler):
        return await waiter

    def tap(data: bytes) -> bool:
        if waiter.done():
            return False
        try:
            if not hear(data):
                waiter.set_result(True)
        except Exception as error:  # noqa: BLE001 # whoever waits for the data raises it
            waiter.set_exception(error)
        return True

    protocol.open_tap(tap)
    try:
        return await waiter
    finally:
        protocol.close_tap()
