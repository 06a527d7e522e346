"""Which text has the page at this address? Pages are chosen by models, so nothing is trusted.

- Only http and https, without credentials in the address, and only public addresses: the guard of
  `transport.egress` looks at the socket, also after every redirect, of which at most three are
  followed. The operator may name places (`host:port`) that are read although they are not public.
- No cookies and no keys are sent, and the same connection is never used for both kinds of places.
- Bytes, time and redirects are limited. What is longer is cut, and the cut is stated.
- HTML and PDF are read in a process of its own, with little time and memory (`tools.documents`).
  Without the extra `documents` only pages of plain text can be read.

`robots.txt` is not asked for: it is for programs that walk through sites, and here one page is
opened because a user's request needs it. The User-Agent names antiphon, so a site can refuse.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import msgspec
from yarl import URL

from antiphon.protocol.errors import BackendError
from antiphon.tools.base import ToolFailed
from antiphon.tools.documents.base import DocumentFailed
from antiphon.tools.documents.charsets import decode_page
from antiphon.tools.documents.kinds import can_read
from antiphon.tools.documents.reader import Documents
from antiphon.tools.web.domains import is_web_address
from antiphon.transport.egress import open_public_socket
from antiphon.transport.http import Exchange, HttpClient, Limits

__all__ = ["Page", "PageLimits", "PageReader", "can_read_html"]

_MAX_URL: Final = 4096
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_HTML: Final = frozenset({"text/html", "application/xhtml+xml"})
_PLAIN: Final = frozenset({"application/json", "application/xml", "application/javascript"})
_ACCEPT: Final = {"Accept": "text/html,application/xhtml+xml,text/plain,application/json;q=0.9"}
_MAX_TEXT: Final = 1024 * 1024  # characters that are kept


class PageLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How much of a page is read, and for how long."""

    seconds: float = 15.0
    bytes: int = 2 * 1024 * 1024
    redirects: int = 3


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
        seconds = self._limits.seconds
        waits = Limits(connect=min(5.0, seconds), idle=seconds, wall=seconds)
        self._guarded = HttpClient(limits=waits, open_socket=open_public_socket)
        self._unguarded = HttpClient(limits=waits)
        self._open_places = open_places
        self._documents = documents or Documents()
        self._owns_documents = documents is None

    async def read(self, url: str, is_allowed: Callable[[str], bool]) -> Page:
        """Return the page. Raise ToolFailed with the reason if it cannot be read.

        `is_allowed` is asked for the address and for that of every redirect.
        """
        try:
            async with asyncio.timeout(self._limits.seconds):
                url, kind, body, is_cut = await self._fetch(url, is_allowed)
        except TimeoutError:
            raise ToolFailed(f"the page did not arrive in {self._limits.seconds:g} s") from None
        except BackendError as error:
            why = error.message.replace("the upstream", "the site")
            raise ToolFailed(f"the page cannot be read: {why}") from None
        return await self._extract(url, kind, body, is_cut=is_cut)

    async def close(self) -> None:
        """Close all connections."""
        await self._guarded.close()
        await self._unguarded.close()
        if self._owns_documents:
            await self._documents.close()

    async def _fetch(
        self, url: str, is_allowed: Callable[[str], bool]
    ) -> tuple[str, str, bytes, bool]:
        for _ in range(self._limits.redirects + 1):
            exchange = await self._ask(url, is_allowed)
            head = exchange.head
            if head.status in _REDIRECTS and "location" in head.headers:
                exchange.abort()
                url = _joined(url, head.headers["location"])
                continue
            if head.status != 200:
                exchange.abort()
                raise ToolFailed(f"the site answered HTTP {head.status}")
            body, is_cut = await self._read(exchange)
            return url, head.headers.get("content-type", ""), body, is_cut
        raise ToolFailed(f"the page redirects more than {self._limits.redirects} times")

    async def _ask(self, url: str, is_allowed: Callable[[str], bool]) -> Exchange:
        if len(url) > _MAX_URL or not is_web_address(url):
            raise ToolFailed("only http and https addresses without a password can be opened")
        if not is_allowed(url):
            raise ToolFailed("the page is outside the domains that are allowed")
        parsed = URL(url)
        is_open = f"{parsed.raw_host}:{parsed.port}" in self._open_places
        client = self._unguarded if is_open else self._guarded
        return await client.send("GET", str(parsed.with_fragment(None)), headers=_ACCEPT)

    async def _read(self, exchange: Exchange) -> tuple[bytes, bool]:
        """Return the body, and whether it was longer than is read."""
        body = bytearray()
        while data := await exchange.read():
            body += data
            if len(body) > self._limits.bytes:
                exchange.abort()
                return bytes(body[: self._limits.bytes]), True
        return bytes(body), False

    async def _extract(self, url: str, content_type: str, body: bytes, *, is_cut: bool) -> Page:
        kind = content_type.partition(";")[0].strip().lower()
        text = decode_page(body, content_type, is_cut=is_cut)
        if kind in _HTML or (not kind and text.lstrip()[:1] == "<"):
            return await self._read_html(url, body, content_type, is_cut=is_cut)
        if not _is_text(kind) or "\0" in text[:1024]:
            raise ToolFailed(f"pages of the type {kind[:60] or 'unknown'} cannot be read")
        return Page(url=url, text=text.strip(), is_cut=is_cut)

    async def _read_html(self, url: str, body: bytes, content_type: str, *, is_cut: bool) -> Page:
        if not can_read_html():
            raise ToolFailed("HTML pages cannot be read here: the extra `documents` is missing")
        try:
            text, info = await self._documents.read_page(body, content_type)
        except DocumentFailed:
            raise ToolFailed("the page is too complicated to be read") from None
        return Page(
            url=url,
            title=info.title,
            text=text[:_MAX_TEXT],
            links=frozenset(_joined(url, link) for link in info.links if link[:1] != "#"),
            is_cut=is_cut or len(text) > _MAX_TEXT,
        )


def _is_text(kind: str) -> bool:
    is_structured = kind.startswith("application/") and kind.endswith(("+json", "+xml"))
    return not kind or kind.startswith("text/") or kind in _PLAIN or is_structured


def _joined(base: str, location: str) -> str:
    """Return the address that a link or a redirect leads to; empty if it is none."""
    try:
        return str(URL(base).join(URL(location.strip())))
    except ValueError:
        return ""
