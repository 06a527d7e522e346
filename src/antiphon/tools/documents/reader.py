"""Read documents of all kinds: the `DocumentReader` of the gateway.

Plain text is decoded here, in pieces, and the event loop runs between them. Everything else goes
to a parsing process (`workers`). A document without any text is refused: an empty text would look
as if it had been read.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final

from antiphon.tools.documents.base import DocumentFailed, ReadContent, Source, content_of
from antiphon.tools.documents.kinds import Kind, kind_of
from antiphon.tools.documents.parsing.frames import Task
from antiphon.tools.documents.settings import DocumentSettings
from antiphon.tools.documents.text import HEAD_BYTES, TextDecoder, find_encoding
from antiphon.tools.documents.workers import PageInfo, ParserPool

__all__ = ["Documents"]

_PIECE: Final = 256 * 1024
_MIB: Final = 1024 * 1024
_PAGE_CPU_SECONDS: Final = 3
_PAGE_SECONDS: Final = 10.0
_NO_TEXT: Final[dict[Kind, str]] = {
    "pdf": "The PDF has no text. Its pages are probably pictures, such as scans.",
}


class Documents:
    """Reads documents. Its processes start when they are needed."""

    def __init__(self, settings: DocumentSettings | None = None) -> None:
        self._settings = settings or DocumentSettings()
        self._pool = ParserPool(self._settings)

    async def read(self, source: Source) -> AsyncGenerator[str, None]:
        """Yield the text in order. Raise DocumentFailed, also after some text."""
        head = await source.read(0, HEAD_BYTES)
        media_type = source.media_type or ""
        kind = kind_of(source.filename, media_type, head)
        has_text = False
        async with aclosing(self._pieces(kind, source, head)) as pieces:
            async for piece in pieces:
                has_text = has_text or not piece.isspace()
                yield piece
        if not has_text:
            raise DocumentFailed("invalid_file", _NO_TEXT.get(kind, "The file has no text."))

    async def read_page(self, html: bytes, content_type: str) -> tuple[str, PageInfo]:
        """Return the text of a page of HTML, its title and its links. It has little time."""
        task = self._task("html", content_type, _PAGE_CPU_SECONDS)
        texts: list[str] = []
        info = PageInfo()
        async with aclosing(self._pool.parse(task, content_of(html), _PAGE_SECONDS)) as pieces:
            async for piece in pieces:
                if isinstance(piece, PageInfo):
                    info = piece
                else:
                    texts.append(piece)
        return "".join(texts).strip(), info

    async def close(self) -> None:
        """End the processes."""
        await self._pool.close()

    async def _pieces(self, kind: Kind, source: Source, head: bytes) -> AsyncGenerator[str, None]:
        if kind == "text":
            async for piece in _decode(source.read, head, source.media_type or ""):
                yield piece
            return
        if source.size > self._settings.bytes:
            most = self._settings.bytes // _MIB
            raise DocumentFailed("invalid_file", f"The document is larger than {most} MiB.")
        task = self._task(kind, source.media_type or "", self._settings.cpu_seconds)
        async with aclosing(self._pool.parse(task, source.read, self._settings.seconds)) as pieces:
            async for found in pieces:
                if not isinstance(found, PageInfo):
                    yield found.replace("\0", "\ufffd") if "\0" in found else found

    def _task(self, kind: Kind, media_type: str, cpu_seconds: int) -> Task:
        settings = self._settings
        return Task(kind, media_type, cpu_seconds, settings.text_bytes, settings.unpacked_bytes)


async def _decode(read: ReadContent, head: bytes, media_type: str) -> AsyncGenerator[str, None]:
    decoder = TextDecoder(find_encoding(head, media_type) or "utf-8")
    offset = 0
    while data := await read(offset, _PIECE):
        offset += len(data)
        if text := decoder.feed(data):
            yield text
        await asyncio.sleep(0)
    if text := decoder.feed(b"", is_last=True):
        yield text
