"""Reads documents that are plain text, in UTF-8 or UTF-16. Everything else is refused."""

from __future__ import annotations

import codecs
from collections.abc import AsyncIterator
from typing import Final

from antiphon.tools.documents.base import DocumentFailed, Source

__all__ = ["PlainTextReader"]

_BLOCK: Final = 256 * 1024


class PlainTextReader:
    """Decodes text as it comes."""

    async def read(self, source: Source) -> AsyncIterator[str]:
        """Yield the text."""
        offset = 0
        decode = None
        while data := await source.read(offset, _BLOCK):
            if decode is None:
                decode = _decoder(data)
            offset += len(data)
            yield decode.decode(data)
        if decode is not None:
            yield decode.decode(b"", final=True)

    async def close(self) -> None:
        """Hold nothing."""


def _decoder(data: bytes) -> codecs.IncrementalDecoder:
    name = "utf-16" if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else "utf-8-sig"
    if name != "utf-16" and b"\x00" in data[:8192]:
        raise DocumentFailed("unsupported_file", "only files of plain text can be read here")
    return codecs.getincrementaldecoder(name)("replace")
