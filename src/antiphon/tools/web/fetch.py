"""What is at this address? Addresses are chosen by models and callers, so nothing is trusted.

- Only http and https, without credentials in the address, and only public addresses: the guard of
  `transport.egress` looks at the socket, also after every redirect, of which at most three are
  followed. The operator may name places (`host:port`) that are read although they are not public.
- No cookies and no keys are sent, and the same connection is never used for both kinds of places.
- Bytes, time and redirects are limited. A body may be compressed (gzip, deflate): the limit counts
  what comes out of it, piece by piece, so a small body cannot become a large one here.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Callable, Mapping
from typing import Final

import msgspec
from yarl import URL

from antiphon.protocol.errors import BackendError
from antiphon.tools.web.domains import is_web_address
from antiphon.transport.egress import open_public_socket
from antiphon.transport.http import Exchange, HttpClient, Limits

__all__ = ["FetchFailed", "Fetched", "Fetcher", "join_url"]

_MAX_URL: Final = 4096
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_MAX_REDIRECTS: Final = 3
_PIECE: Final = 64 * 1024
# zlib's own number: 15 bits of window, and 32 to find out whether it is gzip or zlib.
_ANY_HEADER: Final = 47
_PACKED: Final = {"gzip": _ANY_HEADER, "x-gzip": _ANY_HEADER, "deflate": _ANY_HEADER}


class FetchFailed(Exception):
    """Nothing can be read there, for this reason. Callers and models read the text."""


class Fetched(msgspec.Struct, frozen=True):
    """What was read. `url` is where it was in the end; `is_cut` if there is more of it."""

    url: str
    content_type: str
    body: bytes
    is_cut: bool


class Fetcher:
    """Reads what is at addresses. `open_places` are those that may be inside, as `host:port`."""

    def __init__(self, seconds: float, open_places: frozenset[str] = frozenset()) -> None:
        self._seconds = seconds
        waits = Limits(connect=min(5.0, seconds), idle=seconds, wall=seconds)
        self._guarded = HttpClient(limits=waits, open_socket=open_public_socket)
        self._unguarded = HttpClient(limits=waits)
        self._open_places = open_places

    async def fetch(
        self,
        url: str,
        most: Callable[[str], int],
        is_allowed: Callable[[str], bool] = lambda _: True,
        headers: Mapping[str, str] | None = None,
    ) -> Fetched:
        """Return what is there. Raise FetchFailed with the reason if it cannot be read.

        `most` returns how many bytes are read of a content type. `is_allowed` is asked for the
        address and for that of every redirect.
        """
        sent = {"Accept-Encoding": "gzip, deflate", **(headers or {})}
        try:
            async with asyncio.timeout(self._seconds):
                return await self._follow(url, most, is_allowed, sent)
        except TimeoutError:
            raise FetchFailed(f"it did not arrive in {self._seconds:g} s") from None
        except BackendError as error:
            raise FetchFailed(error.message.replace("the upstream", "the site")) from None

    async def close(self) -> None:
        """Close all connections."""
        await self._guarded.close()
        await self._unguarded.close()

    async def _follow(
        self,
        url: str,
        most: Callable[[str], int],
        is_allowed: Callable[[str], bool],
        headers: Mapping[str, str],
    ) -> Fetched:
        for _ in range(_MAX_REDIRECTS + 1):
            exchange = await self._ask(url, is_allowed, headers)
            head = exchange.head
            if head.status in _REDIRECTS and "location" in head.headers:
                exchange.abort()
                url = join_url(url, head.headers["location"])
                continue
            if head.status != 200:
                exchange.abort()
                raise FetchFailed(f"the site answered HTTP {head.status}")
            kind = head.headers.get("content-type", "")
            body, is_cut = await _read(exchange, most(kind))
            return Fetched(url, kind, body, is_cut)
        raise FetchFailed(f"it redirects more than {_MAX_REDIRECTS} times")

    async def _ask(
        self, url: str, is_allowed: Callable[[str], bool], headers: Mapping[str, str]
    ) -> Exchange:
        if len(url) > _MAX_URL or not is_web_address(url):
            raise FetchFailed("only http and https addresses without a password can be opened")
        if not is_allowed(url):
            raise FetchFailed("it is outside the domains that are allowed")
        parsed = URL(url)
        is_open = f"{parsed.raw_host}:{parsed.port}" in self._open_places
        client = self._unguarded if is_open else self._guarded
        address = str(parsed.with_fragment(None))
        return await client.send("GET", address, headers=headers, may_be_compressed=True)


async def _read(exchange: Exchange, most: int) -> tuple[bytes, bool]:
    """Return the body, and whether it was longer than is read."""
    encoding = exchange.head.headers.get("content-encoding", "").strip().lower()
    unpack = _unpacker(encoding, exchange)
    body = bytearray()
    while data := await exchange.read():
        is_over = unpack(data, body, most)
        if is_over or len(body) > most:
            exchange.abort()
            return bytes(body[:most]), True
        await asyncio.sleep(0)
    return bytes(body), False


def _unpacker(encoding: str, exchange: Exchange) -> Callable[[bytes, bytearray, int], bool]:
    """Return what adds a piece to the body; it returns whether there is more than may be read."""
    if encoding in ("", "identity"):
        return _add
    if encoding not in _PACKED:
        exchange.abort()
        raise FetchFailed(f"it is compressed as {encoding[:40]}, which cannot be read")
    return _Inflater(encoding).add


def _add(data: bytes, body: bytearray, most: int) -> bool:
    body += data[: max(0, most - len(body)) + 1]
    return len(body) > most


class _Inflater:
    """Unpacks a body as it comes."""

    def __init__(self, encoding: str) -> None:
        self._inflate = zlib.decompressobj(_PACKED[encoding])
        self._may_be_raw = encoding == "deflate"  # some servers leave the header of zlib out

    def add(self, data: bytes, body: bytearray, most: int) -> bool:
        """Add what the data unpacks to, but no more than one byte over the limit."""
        while data and len(body) <= most:
            body += self._next(data, min(_PIECE, most + 1 - len(body)))
            data = self._inflate.unconsumed_tail
        return len(body) > most

    def _next(self, data: bytes, most: int) -> bytes:
        try:
            found = self._inflate.decompress(data, most)
        except zlib.error:
            if not self._may_be_raw:
                raise FetchFailed("its compressed content is damaged") from None
            self._may_be_raw = False
            self._inflate = zlib.decompressobj(-15)
            return self._next(data, most)
        self._may_be_raw = False
        return found


def join_url(base: str, location: str) -> str:
    """Return the address that a link or a redirect leads to; empty if it is none."""
    try:
        return str(URL(base).join(URL(location.strip())))
    except ValueError:
        return ""
