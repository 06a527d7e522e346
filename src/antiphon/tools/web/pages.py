"""Which text has the page at this address? Pages are chosen by models, so nothing is trusted.

`fetch` gets them: only public addresses, within limits of bytes, time and redirects. What is
longer is cut, and the cut is stated; a PDF is not cut, because a part of one is none. HTML and
PDF are read in a process with little time and memory (`tools.documents`). Without the extra
`documents` only pages of plain text can be read.

`robots.txt` is not asked for: it is for programs that walk through sites, and here one page is
opened because a user's request needs it. The User-Agent names antiphon, so a site can refuse.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import aclosing
from typing import Final

import msgspec

from antiphon.tools.base import ToolFailed
from antiphon.tools.documents.base import DocumentFailed, Source, content_of
from antiphon.tools.documents.charsets import decode_page
from antiphon.tools.documents.kinds import can_read
from antiphon.tools.documents.reader import Documents
from antiphon.tools.web.fetch import Fetched, Fetcher, FetchFailed, join_url

__all__ = ["Page", "PageLimits", "PageReader", "can_read_html"]

_HTML: Final = frozenset({"text/html", "application/xhtml+xml"})
_PLAIN: Final = frozenset({"application/json", "application/xml", "application/javascript"})
_PDF: Final = "application/pdf"
_ACCEPT: Final = {
    "Accept": "text/html,application/xhtml+xml,text/plain,application/json;q=0.9,"
    "application/pdf;q=0.8"
}
_MAX_TEXT: Final = 1024 * 1024  # characters that are kept


class PageLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How much of a page is read, and for how long."""

    seconds: float = 15.0
    bytes: int = 2 * 1024 * 1024
    pdf_bytes: int = 16 * 1024 * 1024


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """A page that was read. `url` is where it was in the end."""

    url: str
    title: str = ""
    text: str = ""
    links: frozenset[str] = frozenset()
    is_cut: bool = False


def can_read_html() -> bool:
    """Return whether the extra `documents` is installed."""
    return can_read("html")


class PageReader:
    """Reads pages. `open_places` are those that may be inside, as `host:port`."""

    def __init__(
        self,
        limits: PageLimits | None = None,
        open_places: frozenset[str] = frozenset(),
        documents: Documents | None = None,
    ) -> None:
        self._limits = limits or PageLimits()
        self._fetcher = Fetcher(self._limits.seconds, open_places)
        self._documents = documents or Documents()

    async def read(self, url: str, is_allowed: Callable[[str], bool]) -> Page:
        """Return the page. Raise ToolFailed with the reason if it cannot be read.

        `is_allowed` is asked for the address and for that of every redirect.
        """
        try:
            found = await self._fetcher.fetch(url, self._most, is_allowed, _ACCEPT)
        except FetchFailed as failure:
            raise ToolFailed(f"the page cannot be read: {failure}") from None
        return await self._extract(found)

    async def close(self) -> None:
        """Close all connections, and end the processes that read documents."""
        await self._fetcher.close()
        await self._documents.close()

    def _most(self, content_type: str) -> int:
        is_pdf = _kind_of(content_type) == _PDF
        return self._limits.pdf_bytes if is_pdf else self._limits.bytes

    async def _extract(self, found: Fetched) -> Page:
        kind = _kind_of(found.content_type)
        if kind == _PDF or found.body.startswith(b"%PDF-"):
            return await self._read_pdf(found)
        text = decode_page(found.body, found.content_type, is_cut=found.is_cut)
        if kind in _HTML or (not kind and text.lstrip()[:1] == "<"):
            return await self._read_html(found)
        if not _is_text(kind) or "\0" in text[:1024]:
            raise ToolFailed(f"pages of the type {kind[:60] or 'unknown'} cannot be read")
        return Page(url=found.url, text=text.strip(), is_cut=found.is_cut)

    async def _read_html(self, found: Fetched) -> Page:
        if not can_read_html():
            raise ToolFailed("HTML pages cannot be read here: the extra `documents` is missing")
        try:
            text, info = await self._documents.read_page(found.body, found.content_type)
        except DocumentFailed:
            raise ToolFailed("the page is too complicated to be read") from None
        return Page(
            url=found.url,
            title=info.title,
            text=text[:_MAX_TEXT],
            links=frozenset(join_url(found.url, link) for link in info.links if link[:1] != "#"),
            is_cut=found.is_cut or len(text) > _MAX_TEXT,
        )

    async def _read_pdf(self, found: Fetched) -> Page:
        """Return the text of a PDF, as far as it is kept."""
        if found.is_cut:
            raise ToolFailed(f"the PDF is longer than {len(found.body)} bytes")
        name = found.url.rpartition("/")[2].partition("?")[0]
        source = Source(name, len(found.body), content_of(found.body), _PDF)
        texts: list[str] = []
        size = 0
        try:
            async with aclosing(self._documents.read(source)) as pieces:
                async for piece in pieces:
                    texts.append(piece)
                    size += len(piece)
                    if size > _MAX_TEXT:
                        break
        except DocumentFailed as failure:
            raise ToolFailed(f"the page cannot be read: {failure.message}") from None
        text = "".join(texts)[:_MAX_TEXT].strip()
        return Page(url=found.url, title=name, text=text, is_cut=size > _MAX_TEXT)


def _kind_of(content_type: str) -> str:
    return content_type.partition(";")[0].strip().lower()


def _is_text(kind: str) -> bool:
    is_structured = kind.startswith("application/") and kind.endswith(("+json", "+xml"))
    return not kind or kind.startswith("text/") or kind in _PLAIN or is_structured
