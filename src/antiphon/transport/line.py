"""Which way does a request go out: written by us, or through the library's session?

A line is both ways on one pool of connections. A plain POST is written by `wire`; everything else
takes the session. The connections of a line are kept for later requests, or each one serves a
single request: that is the line for a request whose kept connection turned out to be stale.
"""

from __future__ import annotations

import socket
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Final

import aiohttp

from antiphon.transport.egress import AddressInfo
from antiphon.transport.tap import install_taps
from antiphon.transport.wire import READ_BUFFER, Answer, Wire

__all__ = ["Line"]

# Above this size a body is sent piece by piece: the library would copy it whole on the event loop.
_LARGE_BODY: Final = 1024 * 1024
_PIECE: Final = 256 * 1024


class Line:
    """A pool of connections, and the two ways to use it.

    `own` are the headers that every request has, with the key; `headers` those of the client.
    """

    def __init__(
        self,
        timeout: aiohttp.ClientTimeout,
        headers: Mapping[str, str],
        own: Mapping[str, str],
        *,
        open_socket: Callable[[AddressInfo], socket.socket] | None,
        is_kept: bool,
    ) -> None:
        # How many requests run at once is decided above us; a pool with a limit would
        # let them wait here, and count that against the time to connect.
        connector = aiohttp.TCPConnector(
            limit=0, socket_factory=open_socket, force_close=not is_kept
        )
        install_taps(connector)
        names = {name.lower() for name in own}
        others = {name: value for name, value in headers.items() if name not in names}
        self._wire = Wire(connector, timeout, {**others, **own})
        self._session = aiohttp.ClientSession(
            connector=connector,
            timeout=timeout,
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            read_bufsize=READ_BUFFER,
            headers=headers,
        )

    async def send(
        self,
        method: str,
        url: str,
        body: bytes | None,
        headers: Mapping[str, str] | None,
        all_headers: Mapping[str, str],
    ) -> aiohttp.ClientResponse | Answer:
        """Send a request and return its answer, once the head is here.

        `all_headers` are `headers` and those that the client adds to every request.
        """
        if method == "POST" and body is not None and len(body) <= _LARGE_BODY:
            target = self._wire.find(url, headers)
            if target is not None:
                return await self._wire.post(target, headers, body)
        data: bytes | AsyncGenerator[memoryview, None] | None = body
        if body and len(body) > _LARGE_BODY:
            data = _pieces(body)
            all_headers = {**all_headers, "Content-Length": str(len(body))}
        return await self._session.request(
            method, url, data=data, headers=all_headers, allow_redirects=False
        )

    async def close(self) -> None:
        """Close every connection."""
        await self._session.close()


async def _pieces(body: bytes) -> AsyncGenerator[memoryview, None]:
    """Yield the body in views of it, none of which is a copy."""
    whole = memoryview(body)
    for start in range(0, len(whole), _PIECE):
        yield whole[start : start + _PIECE]
