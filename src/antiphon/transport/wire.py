"""How does a request get onto a connection, and when is the connection free again?

The HTTP library follows redirects, keeps cookies, signs in, compresses and traces. We use none
of that, and to be asked about all of it was most of what a request cost. So a plain one, a POST
with a body, is written here, head and body at once, to a connection of the library's pool, and
the library's parser reads the answer. What a URL decides is prepared once.

This stands on the library's lower floor. Whatever is not plain, and everything where that floor
is not the one we know, goes through the library's session, which shares the pool.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from inspect import signature
from typing import TYPE_CHECKING, Final

import aiohttp
from aiohttp.client_proto import ResponseHandler
from yarl import URL

if TYPE_CHECKING:
    from aiohttp.connector import Connection
    from aiohttp.http import RawResponseMessage
    from multidict import CIMultiDictProxy

__all__ = ["READ_BUFFER", "Answer", "Target", "Wire"]

READ_BUFFER: Final = 32 * 1024
"""Bytes of an answer that wait to be read; at twice that the peer has to wait."""

_MAX_TARGETS: Final = 64
# A body above this size is not copied behind its head: that would cost more than two buffers do.
_LONG: Final = 16 * 1024
# They say how the body goes out, or that it waits: the library knows what follows from them.
_NOT_PLAIN: Final = frozenset({"content-length", "expect", "transfer-encoding"})
_FORBIDDEN: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
# Answers that announce another one. The last word of a peer that switches protocols is 101.
_INTERIM: Final = frozenset(range(100, 200)) - {101}


def _look() -> bool:
    """Say whether the library has the floor we stand on."""
    floor: list[tuple[Callable[..., object], set[str]]] = [
        (aiohttp.TCPConnector.connect, {"req", "traces", "timeout"}),
        (aiohttp.ClientRequest, {"method", "url", "headers", "loop"}),
        (
            ResponseHandler.set_response_params,
            {"read_until_eof", "auto_decompress", "read_bufsize"},
        ),
    ]
    return all(names <= signature(what).parameters.keys() for what, names in floor)


_IS_KNOWN: Final = _look()


class Target:
    """What is the same for every request to a URL: the connection it needs, and its head."""

    __slots__ = ("first", "lines", "request")

    def __init__(self, request: aiohttp.ClientRequest) -> None:
        self.request: Final = request
        self.first: Final = f"{_checked(f'POST {request.url.raw_path_qs} HTTP/1.1')}\r\n"
        self.lines: Final = _lines(
            (name, value)
            for name, value in request.headers.items()
            if name.lower() != "content-length"
        )

    def head(self, headers: Mapping[str, str] | None, size: int) -> bytes:
        """Return the head of a request with these headers, which win, and so long a body."""
        lines = {**self.lines, **_lines(headers.items())} if headers else self.lines
        text = f"{self.first}{''.join(lines.values())}Content-Length: {size}\r\n\r\n"
        return text.encode("utf-8", "ignore")


class Answer:
    """The answer to a request, as the library's own: the head is here, the body comes."""

    __slots__ = ("connection", "content", "headers", "status")

    def __init__(
        self, connection: Connection, message: RawResponseMessage, content: aiohttp.StreamReader
    ) -> None:
        self.status: Final = message.code
        self.headers: Final[CIMultiDictProxy[str]] = message.headers
        self.content: Final = content
        self.connection: Connection | None = connection
        content.on_eof(self._give_back)

    def close(self) -> None:
        """Hang up, unless the body has come to its end. Whoever reads it is told."""
        if not self.content.at_eof() and self.content.exception() is None:
            self.content.set_exception(aiohttp.ClientConnectionError("Connection closed"))
        connection, self.connection = self.connection, None
        if connection is not None and not connection._loop.is_closed():
            _hang_up(connection)

    def _give_back(self) -> None:
        connection, self.connection = self.connection, None
        if connection is None:
            return
        transport = connection.transport
        if transport is not None and transport.get_write_buffer_size():
            _hang_up(connection)  # what is unsent would precede the next request
        else:
            connection.release()


class Wire:
    """Sends plain requests over the connections of a pool."""

    def __init__(
        self,
        connector: aiohttp.TCPConnector,
        timeout: aiohttp.ClientTimeout,
        headers: Mapping[str, str],
    ) -> None:
        self._connector = connector
        self._timeout = timeout
        self._headers = headers
        self._is_plain = _IS_KNOWN and _NOT_PLAIN.isdisjoint(map(str.lower, headers))
        self._targets: dict[str, Target | None] = {}

    def find(self, url: str, headers: Mapping[str, str] | None) -> Target | None:
        """Return where to send a request, or None if it is one for the library."""
        if headers and not _NOT_PLAIN.isdisjoint(map(str.lower, headers)):
            return None
        try:
            return self._targets[url]
        except KeyError:
            target = self._prepare(url) if self._is_plain else None
        if len(self._targets) >= _MAX_TARGETS:
            del self._targets[next(iter(self._targets))]
        self._targets[url] = target
        return target

    async def post(self, target: Target, headers: Mapping[str, str] | None, body: bytes) -> Answer:
        """Send a request and return its answer, once the head is here."""
        head = target.head(headers, len(body))
        connection = await self._connect(target.request)
        try:
            return await _exchange(connection, head, body)
        except BaseException:
            _hang_up(connection)
            raise

    async def _connect(self, request: aiohttp.ClientRequest) -> Connection:
        try:
            connection = await self._connector.connect(request, [], self._timeout)
            while connection.protocol:  # is not empty: somebody answered what nobody had asked
                connection.close()
                connection = await self._connector.connect(request, [], self._timeout)
            return connection
        except TimeoutError as error:
            raise aiohttp.ConnectionTimeoutError("no connection in time") from error

    def _prepare(self, url: str) -> Target | None:
        try:
            parsed = URL(url)
        except ValueError:
            return None
        if not parsed.raw_host or parsed.raw_user or parsed.raw_password:
            return None
        loop = self._connector._loop
        return Target(aiohttp.ClientRequest("POST", parsed, headers=self._headers, loop=loop))


async def _exchange(connection: Connection, head: bytes, body: bytes) -> Answer:
    protocol = connection.protocol
    assert protocol is not None  # it was not given back yet
    protocol.set_response_params(
        read_until_eof=True, auto_decompress=False, read_bufsize=READ_BUFFER
    )
    transport = protocol.transport
    # A peer that is gone already may have said why: then that is here to be read.
    if transport is not None and not transport.is_closing():
        if len(body) > _LONG:
            transport.writelines((head, body))
        else:
            transport.write(head + body)
    message, content = await protocol.read()
    while message.code in _INTERIM:
        message, content = await protocol.read()
    return Answer(connection, message, content)


def _hang_up(connection: Connection) -> None:
    """Close the connection now: a peer that does not read must not keep it by that."""
    transport = connection.transport
    if transport is not None and transport.get_write_buffer_size():
        transport.abort()
    connection.close()


def _lines(headers: Iterable[tuple[str, str]]) -> dict[str, str]:
    return {name.lower(): f"{_checked(f'{name}: {value}')}\r\n" for name, value in headers}


def _checked(line: str) -> str:
    if _FORBIDDEN.search(line):
        raise ValueError("a header must not contain line breaks or other control characters")
    return line
