"""One HTTP exchange: a request goes out, a head comes back, a body is read.

With `chunks`, `line`, `tap` and `wire` the only importer of the HTTP client library. Bodies are
requested and taken as they are, never decompressed, so that a size limit counts what is really
kept in memory; redirects are not followed, cookies not kept, proxies of the environment not used.

Whatever goes wrong on the way becomes a BackendError, except that we ran out of file descriptors,
which is OutOfFiles. A reused connection that breaks before the
first byte of the answer is not an error yet: the peer closed it while it was idle, so the request
is sent once more, at once, on a fresh connection. A cancelled request leaves no connection open.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import aiohttp
import msgspec
from aiohttp.http import HttpProcessingError

from antiphon import __version__
from antiphon.protocol.errors import AntiphonError, BackendError, OutOfFiles
from antiphon.transport.chunks import ChunkReader, Hear
from antiphon.transport.egress import AddressInfo
from antiphon.transport.line import Line
from antiphon.transport.secret import Secret
from antiphon.transport.tap import StaleConnection
from antiphon.transport.wire import Answer

__all__ = ["PIECE", "AskForKey", "Exchange", "Head", "HttpClient", "Limits", "Reply", "Secret"]

AskForKey = Callable[[], Awaitable[Secret | None]]
"""Returns the key for the next request, or None to send none."""

_MIB: Final = 1024 * 1024
PIECE: Final = 32 * 1024
"""The most that one read returns: what one reader does with it keeps the others waiting."""

# How many of the keys that were asked for are still taken out of error messages.
_KNOWN_KEYS: Final = 16
_NO_FILES: Final = (errno.EMFILE, errno.ENFILE)
_SCHEMES: Final = ("http://", "https://")
_OWN_HEADERS: Final = {
    "accept-encoding": "identity",
    "user-agent": f"antiphon/{__version__}",
}


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """How long we wait, in seconds, and how much we take, in bytes.

    `first_byte` runs from the request to the first byte of a streamed body, `idle` between
    two reads; an answer that is not streamed has `idle` to begin. `wall` ends everything.
    """

    connect: float = 5.0
    first_byte: float = 120.0
    idle: float = 300.0
    wall: float = 3600.0
    body: int = 16 * _MIB
    line: int = 8 * _MIB


class Head(msgspec.Struct, frozen=True):
    """What an answer begins with. Names of headers are in lower case."""

    status: int
    headers: Mapping[str, str]

    @property
    def content_type(self) -> str:
        """The media type alone, in lower case; empty if the peer names none."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()


class Reply(msgspec.Struct, frozen=True):
    """A whole answer."""

    head: Head
    body: bytes


class Exchange:
    """A request that was answered: the head is here, the body is still to be read."""

    __slots__ = ("_reader", "_response", "head")

    def __init__(self, response: aiohttp.ClientResponse | Answer) -> None:
        headers = {name.lower(): value for name, value in response.headers.items()}
        self.head: Final = Head(response.status, headers)
        self._response = response
        self._reader = ChunkReader(response.content)

    async def read(self, hear: Hear | None = None) -> bytes | None:
        """Return what has arrived, at most a PIECE; wait if that is nothing. Nothing at the end.

        What came before a reset is returned before the reset is raised. A cancelled read
        closes the connection. What comes while we wait may be given to `hear` (see there).
        """
        try:
            return await self._reader.read(PIECE, hear)
        except (aiohttp.ClientError, OSError) as error:
            if rest := self._reader.rest(PIECE):
                return rest
            self.abort()
            raise _closed(error) from error
        except BaseException:
            self.abort()
            raise

    @property
    def is_behind(self) -> bool:
        """Say whether more is waiting already than the last read could take."""
        return self._reader.is_behind

    def abort(self) -> None:
        """Close the connection now. A body read to its end has given it back already."""
        self._response.close()


class HttpClient:
    """Connections to peers, kept and used again. It belongs to the event loop it is used in.

    `key` is asked before each request if it is a function. `open_socket` makes the socket for an
    address and may refuse to: see `egress`.
    """

    def __init__(
        self,
        *,
        key: Secret | AskForKey | None = None,
        headers: Mapping[str, str] | None = None,
        limits: Limits | None = None,
        open_socket: Callable[[AddressInfo], socket.socket] | None = None,
    ) -> None:
        self.limits: Final = limits or Limits()
        self._open_socket = open_socket
        self._key = key if isinstance(key, Secret) else None
        self._ask_for_key = None if isinstance(key, Secret) else key
        self._keys: deque[Secret] = deque([self._key] if self._key else [], _KNOWN_KEYS)
        # Names in lower case, so that the caller's spelling does not matter: theirs win.
        self._headers = {**_OWN_HEADERS, **{k.lower(): v for k, v in (headers or {}).items()}}
        self._is_closed = False
        self._kept: Line | None = None
        self._fresh: Line | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def send(
        self,
        method: str,
        url: str,
        *,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Exchange:
        """Send a request and return once its head is back. Connecting is limited, waiting not.

        A body that is compressed although we asked for none that is gets refused.
        """
        exchange = await self._send(method, url, body, headers)
        _check_encoding(exchange)
        return exchange

    async def tell(self, url: str, body: bytes, headers: Mapping[str, str]) -> Head:
        """POST and return the head of the answer, if it comes in time; the rest is not read."""
        try:
            async with asyncio.timeout(self.limits.first_byte):
                exchange = await self._send("POST", url, body, headers)
        except TimeoutError:
            raise _late() from None
        exchange.abort()
        return exchange.head

    async def fetch(
        self,
        method: str,
        url: str,
        *,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Reply:
        """Send a request and return the whole answer, if it fits the limits."""
        limits = self.limits
        try:
            async with asyncio.timeout(limits.wall), asyncio.timeout(limits.idle) as idle:
                exchange = await self.send(method, url, body=body, headers=headers)
                return Reply(exchange.head, await _read_all(exchange, limits, idle))
        except TimeoutError:
            raise _late() from None

    def redact(self, text: str) -> str:
        """Return what a peer said without our own key, which some repeat in their errors."""
        for key in self._keys:
            text = key.redact(text)
        return text

    async def close(self) -> None:
        """Close every connection. Nothing can be sent after that."""
        self._is_closed = True
        for line in (self._kept, self._fresh):
            if line is not None:
                await line.close()
        self._kept = self._fresh = None

    async def _send(
        self, method: str, url: str, body: bytes | None, headers: Mapping[str, str] | None
    ) -> Exchange:
        if not url[:8].lower().startswith(_SCHEMES):
            raise BackendError("only http and https are spoken", code="upstream_unreachable")
        if self._ask_for_key is not None:
            # Outside of the try: what that function raises is not a fault of the connection.
            headers = await self._signed(self._ask_for_key, headers)
        try:
            return Exchange(await self._ask(method, url, body, headers))
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise _unreachable(url, error) from error
        except (aiohttp.InvalidURL, aiohttp.NonHttpUrlClientError) as error:
            raise _unreachable(url, error) from error
        except (aiohttp.ClientResponseError, HttpProcessingError) as error:
            raise BackendError(
                "the upstream's answer is not HTTP", code="upstream_invalid_response"
            ) from error
        except (aiohttp.ClientError, OSError) as error:
            raise _closed(error) from error

    async def _ask(
        self, method: str, url: str, body: bytes | None, headers: Mapping[str, str] | None
    ) -> aiohttp.ClientResponse | Answer:
        self._check_use()
        if self._kept is None:
            self._kept = self._open_line(is_kept=True)
        sent = self._request_headers(body, headers)
        try:
            return await self._kept.send(method, url, body, headers, sent)
        except StaleConnection:
            pass
        self._check_use()
        if self._fresh is None:
            self._fresh = self._open_line(is_kept=False)
        return await self._fresh.send(method, url, body, headers, sent)

    def _check_use(self) -> None:
        loop = asyncio.get_running_loop()
        if self._is_closed:
            raise RuntimeError("the client is closed")
        if self._loop is None:
            self._loop = loop
        if loop is not self._loop:
            raise RuntimeError("an HttpClient belongs to one event loop; make one for each")

    def _open_line(self, *, is_kept: bool) -> Line:
        return Line(
            aiohttp.ClientTimeout(total=None, connect=self.limits.connect),
            self._headers,
            self._request_headers(b"", None),
            open_socket=self._open_socket,
            is_kept=is_kept,
        )

    async def _signed(
        self, ask: AskForKey, headers: Mapping[str, str] | None
    ) -> Mapping[str, str] | None:
        """Return the headers with the key that is asked for, unless the caller sent another."""
        key = None if "authorization" in self._headers else await ask()
        if key is None:
            return headers
        if key not in self._keys:
            self._keys.append(key)
        return {"Authorization": f"Bearer {key.reveal()}", **(headers or {})}

    def _request_headers(
        self, body: bytes | None, headers: Mapping[str, str] | None
    ) -> dict[str, str]:
        sent: dict[str, str] = {}
        if body is not None:
            sent["Content-Type"] = "application/json"
        if self._key is not None and "authorization" not in self._headers:
            sent["Authorization"] = f"Bearer {self._key.reveal()}"
        return {**sent, **(headers or {})}


async def _read_all(exchange: Exchange, limits: Limits, idle: asyncio.Timeout) -> bytes:
    now = asyncio.get_running_loop().time
    body = bytearray()
    while data := await exchange.read():
        body += data
        if len(body) > limits.body:
            exchange.abort()
            raise BackendError(
                f"the upstream's answer is longer than {limits.body} bytes",
                code="upstream_invalid_response",
            )
        idle.reschedule(now() + limits.idle)
    return bytes(body)


def _check_encoding(exchange: Exchange) -> None:
    encoding = exchange.head.headers.get("content-encoding", "identity").strip().lower()
    if encoding in {"", "identity"}:
        return
    exchange.abort()
    raise BackendError(
        f"the upstream's answer is compressed ({encoding[:40]}) although we asked for plain bytes",
        code="upstream_invalid_response",
    )


def _unreachable(url: str, error: Exception) -> AntiphonError:
    if _is_out_of_files(error):
        return OutOfFiles()
    host = "/".join(url.split("/", 3)[:3]).rpartition("@")[2]
    return BackendError(
        f"the upstream at {host} cannot be reached: {_reason(error)}", code="upstream_unreachable"
    )


def _is_out_of_files(error: Exception) -> bool:
    """Return whether a connection failed because we have no file descriptor left.

    A name lookup does not report that by itself, so after one we try to get a descriptor.
    """
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        try:
            socket.socket().close()
        except OSError as reason:
            return reason.errno in _NO_FILES
        return False
    return isinstance(error, OSError) and error.errno in _NO_FILES


def _late() -> BackendError:
    return BackendError("the upstream did not answer in time", code="upstream_timeout", status=504)


def _closed(error: Exception) -> BackendError:
    return BackendError(
        f"the upstream closed the connection: {_reason(error)}", code="upstream_closed"
    )


def _reason(error: Exception) -> str:
    """Say what happened in a few words, without addresses of ours."""
    if isinstance(error, TimeoutError):
        return "no connection in time"
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return "its name is not known"
    if isinstance(error, OSError) and error.errno:
        said = error.strerror or ""
        # asyncio puts an address there; what else stands there may be the egress guard's.
        is_plain = said and not said.startswith("Connect call failed")
        return (said if is_plain else os.strerror(error.errno)).lower()
    return {
        aiohttp.ServerDisconnectedError: "it hung up",
        aiohttp.ClientPayloadError: "its answer is cut off",
    }.get(type(error), type(error).__name__)
