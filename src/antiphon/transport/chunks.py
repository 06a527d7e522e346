"""Reading a body that comes in very many HTTP chunks.

A stream of events has as many chunks as events. The HTTP library hands them out one by one and
keeps an account for each, which was a fifth of what reading a stream cost. Here all that are
waiting are taken at once, with one account for all of them, and the peer may go on. Of more than
fits, the last piece is left to the library, with the account and the flow control it keeps.

This reaches into the library's reader. It does so in this place only, and only as long as the
reader has the fields we know; otherwise, and for whatever is not plain, the library reads.
"""

from __future__ import annotations

from typing import Final

from aiohttp import StreamReader

__all__ = ["ChunkReader"]

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
        """Whether more is waiting already than the last read could take."""

    async def read(self, most: int) -> bytes:
        """Return what has arrived; wait if that is nothing. Nothing at the end."""
        content = self._content
        if self._takes:
            while not (content._buffer or content._eof or content._exception):
                if content._waiter is not None or not content._protocol.connected:
                    await content._wait("read")  # raises what is wrong
                waiter = content._waiter = content._loop.create_future()
                try:
                    await waiter
                finally:
                    content._waiter = None
            if content._buffer and content._exception is None:
                return self._take(most)
        data = await content.read(most)
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
        self.is_behind = bool(waiting)
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
        self.is_behind = bool(waiting)
        return b"".join(taken)
