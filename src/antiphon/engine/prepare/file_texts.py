"""What does a file say to a model? Its text up to a limit, remembered for the next turns.

A conversation sends its files again with every turn. The texts of the last ones are kept in this
process, by the digest of their contents, within a limit on their size.
"""

from __future__ import annotations

from collections import OrderedDict
from contextlib import aclosing
from typing import Final

import msgspec

from antiphon.tools.documents.base import DocumentReader, Source

__all__ = ["FileText", "FileTexts"]

_MOST_KEPT: Final = 32 * 1024 * 1024  # bytes of text


class FileText(msgspec.Struct, frozen=True):
    """The text of a file, and whether there is more of it."""

    text: str
    size: int
    """In bytes of UTF-8."""
    is_cut: bool


class FileTexts:
    """Reads files for models, at most `most` bytes of text of each."""

    def __init__(self, reader: DocumentReader, most: int) -> None:
        self._reader = reader
        self._most = most
        self._kept: OrderedDict[tuple[bytes, str], FileText] = OrderedDict()
        self._size = 0

    async def read(self, source: Source, digest: bytes) -> FileText:
        """Return the text of a file whose content has this digest. Raise DocumentFailed."""
        key = (digest, source.filename)
        known = self._kept.get(key)
        if known is not None:
            self._kept.move_to_end(key)
            return known
        found = await self._read(source)
        self._keep(key, found)
        return found

    async def _read(self, source: Source) -> FileText:
        pieces: list[bytes] = []
        left = self._most
        async with aclosing(self._reader.read(source)) as texts:
            async for text in texts:
                data = text.encode("utf-8", "replace")
                pieces.append(data[:left])
                left -= len(data)
                if left < 0:
                    break
        text = b"".join(pieces).decode("utf-8", "ignore").strip("\n")
        return FileText(text, self._most - max(left, 0), left < 0)

    def _keep(self, key: tuple[bytes, str], found: FileText) -> None:
        self._kept[key] = found
        self._size += found.size
        while self._size > _MOST_KEPT:
            _, oldest = self._kept.popitem(last=False)
            self._size -= oldest.size
