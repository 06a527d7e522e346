"""A long request that is sent as it lies in memory: not joined, and not compressed again.

Most bytes of a request in a long conversation were in earlier requests too. They are kept in
pieces that never change, so that a request refers to them: joining them would copy a megabyte
into memory that the kernel has to clear first, for each turn.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate
from typing import Final

__all__ = ["PIECE", "LongBody", "add_pieces"]

PIECE: Final = 32 * 1024
"""A piece that is as long as this stays as it is."""


class LongBody:
    """The bytes `begin`, all of `lasting`, and `end`, in this order.

    The pieces in `lasting` are the same objects in the next request of a conversation.
    """

    __slots__ = ("_size", "begin", "end", "lasting")

    def __init__(self, begin: bytes, lasting: Sequence[bytes], end: bytes) -> None:
        self.begin = begin
        self.lasting = lasting
        self.end = end
        self._size = len(begin) + sum(map(len, lasting)) + len(end)

    def __len__(self) -> int:
        return self._size

    def __bytes__(self) -> bytes:
        return b"".join(self.pieces)

    @property
    def pieces(self) -> list[bytes]:
        """All pieces, in order."""
        return [self.begin, *self.lasting, self.end]


def add_pieces(pieces: Sequence[bytes], values: Sequence[bytes]) -> tuple[bytes, ...]:
    """Return pieces with more values behind them; between two values stands a comma.

    Only the last piece may be another one, which has the old one at its beginning.
    """
    if not values:
        return tuple(pieces)
    made, waiting = [*pieces], [*values]
    if made and len(made[-1]) < PIECE:
        last = made.pop()
        waiting.insert(0, last[1:] if made else last)  # without its comma
    ends = [*accumulate(map(len, waiting))]
    start = 0
    while start < len(ends):
        before = ends[start - 1] if start else 0
        stop = bisect_left(ends, before + PIECE, start) + 1
        some = waiting[start:stop]
        made.append(b",".join([b"", *some] if made else some))
        start = stop
    return tuple(made)
