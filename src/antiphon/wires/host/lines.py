"""Bytes in, lines out, with a limit on the length of a line.

A line that is too long is dropped while it arrives and is never held in memory: it becomes one
`LongLine`, so that the reader can report it and go on with the next line. Lines without anything
but white space are skipped.
"""

from __future__ import annotations

from typing import Final

import msgspec

__all__ = ["MAX_LINE_BYTES", "LineReader", "LongLine"]

MAX_LINE_BYTES: Final = 64 * 1024 * 1024


class LongLine(msgspec.Struct, frozen=True):
    """A line that was dropped, and how many bytes it had."""

    length: int


class LineReader:
    """Splits a stream of bytes into lines. It holds at most one line of the allowed length."""

    def __init__(self, max_bytes: int = MAX_LINE_BYTES) -> None:
        self._max_bytes = max_bytes
        self._pieces: list[bytes] = []
        self._length = 0

    def feed(self, data: bytes) -> list[bytes | LongLine]:
        """Return the lines that these bytes end, without their line breaks."""
        lines: list[bytes | LongLine] = []
        *ends, rest = data.split(b"\n")
        for end in ends:
            self._keep(end)
            line = self._take()
            if isinstance(line, LongLine) or line.strip():
                lines.append(line)
        self._keep(rest)
        return lines

    def _keep(self, piece: bytes) -> None:
        self._length += len(piece)
        if self._length > self._max_bytes:
            self._pieces.clear()
        elif piece:
            self._pieces.append(piece)

    def _take(self) -> bytes | LongLine:
        pieces, length = self._pieces, self._length
        self._pieces, self._length = [], 0
        return LongLine(length) if length > self._max_bytes else b"".join(pieces)
