"""The HTTP client: send a request, get the head of the answer, read the body.

Bodies are requested and taken as they are, never decompressed, so that a size limit counts what
is really kept in memory. Redirects are not followed, cookies not kept, and proxies of the
environment not used unless `proxies` is set. HTTP/1.1 only.

Every fault becomes a BackendError, except that we ran out of file descriptors, which is
OutOfFiles. A reused connection that breaks before the first byte of the answer is not an error
yet: the peer closed it while it was idle, so the request is sent again, at once, on a new
connection. That holds for every request, also for webhooks. The peer may have read the request
before it closed, and then it runs twice, as with every retry after a broken connection; webhooks
carry an id for that. A client with `resends=False` raises instead, for requests that must not run
twice. A cancelled request leaves no connection open.
"""

from __future__ import annotations

import asyncio
import errno
import re
import socket
import ssl
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Final

import msgspec

from antiphon.protocol.errors import AntiphonError, BackendError, OutOfFiles
from antiphon.protocol.long_body import LongBody
from antiphon.transport.connection import Connection, reason
from antiphon.transport.dial import Dialler, OpenSocket
from antiphon.transport.exchange import (
    PIECE,
    Exchange,
    Head,
    Sending,
    StaleConnection,
    late,
    too_long,
)
from antiphon.transport.pool import Pool
from antiphon.transport.proxy import BadUrl, ProxyFault
from antiphon.transport.secret import Secret
from antiphon.transport.target import Target, target_finder
from antiphon.transport.token import TokenSource
from antiphon.version import __version__

__all__ = [
    "PIECE",
    "AskForKey",
    "Exchange",
    "Head",
    "HttpClient",
    "Limits",
    "Reply",
    "Secret",
    "Sending",
]

AskForKey = Callable[[], Awaitable[Secret | None]]
"""Returns the key for the next request, or None to send none."""

_MIB: Final = 1024 * 1024
# How many of the keys that were asked for are still taken out of error messages.
_KNOWN_KEYS: Final = 16
_NO_FILES: Final = (errno.EMFILE, errno.ENFILE)
_SCHEMES: Final = ("http://", "https://")
_BEARER: Final = "Authorization"
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


class Reply(msgspec.Struct, frozen=True):
    """A whole answer."""

    head: Head
    body: bytes


class HttpClient:
    """Connections to peers, kept and used again. It belongs to the event loop it is used in.

    `key` is called before each request if it is a function. A token that the peer answers with 401
    is reported to its source, and the request is sent once more with the next one. `key_header` is
    where it goes: as a bearer token in Authorization, as it is in any other. `open_socket` makes
    the socket for an address and may refuse to: see `egress`. It cannot be combined with
    `proxies`, because a proxy connects to addresses that are not checked here.
    """

    def __init__(
        self,
        *,
        key: Secret | AskForKey | TokenSource | None = None,
        key_header: str = _BEARER,
        headers: Mapping[str, str] | None = None,
        limits: Limits | None = None,
        open_socket: OpenSocket | None = None,
        proxies: bool = False,
        resends: bool = True,
    ) -> None:
        if proxies and open_socket is not None:
            raise ValueError("a client with a guard for addresses must not use proxies")
        self.limits: Final = limits or Limits()
        self._open_socket = open_socket
        self._resends = resends
        # Names in lower case, so that the spelling does not matter: those of the caller win.
        own = {**_OWN_HEADERS, **{k.lower(): v for k, v in (headers or {}).items()}}
        self._key_header = key_header
        self._is_signed = key_header.lower() in own
        if isinstance(key, Secret) and not self._is_signed:
            own[key_header] = self._as_value(key)
        self._ask_for_key = None if isinstance(key, Secret) or self._is_signed else key
        self._keys: deque[Secret] = deque([key] if isinstance(key, Secret) else [], _KNOWN_KEYS)
        self._find_target = target_finder(own, proxies=proxies)
        self._is_closed = False
        self._pool: Pool | None = None
        self._dialler: Dialler | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def send(
        self,
        method: str,
        url: str,
        *,
        body: bytes | LongBody | None = None,
        headers: Mapping[str, str] | None = None,
        may_be_compressed: bool = False,
        sending: Sending | None = None,
    ) -> Exchange:
        """Send a request and return once its head is back. Connecting is limited, waiting not.

        A body that is compressed gets refused, unless the caller knows how to unpack it.
        `sending` is told what becomes of the request.
        """
        exchange = await self._send(method, url, body, headers, sending)
        if not may_be_compressed:
            _check_encoding(exchange)
        return exchange

    async def post(self, url: str, body: bytes, headers: Mapping[str, str]) -> Head:
        """POST and return the head of the answer, if it comes in time; the rest is not read."""
        try:
            async with asyncio.timeout(self.limits.first_byte):
                exchange = await self._send("POST", url, body, headers)
        except TimeoutError:
            raise late() from None
        exchange.abort()
        return exchange.head

    async def fetch(
        self,
        method: str,
        url: str,
        *,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        sending: Sending | None = None,
    ) -> Reply:
        """Send a request and return the whole answer, if it fits the limits.

        A task that leaves has to call the `linger` of `sending`, if it passes one.
        """
        limits = self.limits
        try:
            async with asyncio.timeout(limits.wall), asyncio.timeout(limits.idle) as idle:
                exchange = await self.send(method, url, body=body, headers=headers, sending=sending)
                return Reply(exchange.head, await _read_all(exchange, limits, idle))
        except TimeoutError:
            if sending is not None:
                sending.abort()
            raise late() from None

    def redact(self, text: str) -> str:
        """Return a peer's text without our own keys, which some repeat in their errors."""
        for key in self._keys:
            text = key.redact(text)
        return text

    async def close(self) -> None:
        """Close every connection, also those in use. Nothing can be sent after that."""
        self._is_closed = True
        if self._pool is not None:
            await self._pool.close()

    def _send(
        self,
        method: str,
        url: str,
        body: bytes | LongBody | None,
        headers: Mapping[str, str] | None,
        sending: Sending | None = None,
    ) -> Awaitable[Exchange]:
        if not url[:8].lower().startswith(_SCHEMES):
            raise BackendError("only http and https are spoken", code="upstream_unreachable")
        if self._ask_for_key is None:
            return self._send_once(method, url, body, headers, sending)
        return self._send_signed(self._ask_for_key, method, url, body, headers, sending)

    async def _send_signed(
        self,
        ask_for_key: AskForKey,
        method: str,
        url: str,
        body: bytes | LongBody | None,
        headers: Mapping[str, str] | None,
        sending: Sending | None,
    ) -> Exchange:
        key = await ask_for_key()
        exchange = await self._send_once(method, url, body, self._signed(key, headers), sending)
        if not self._may_renew(key, exchange.head):
            return exchange
        exchange.abort()
        if sending is not None:
            sending.forget()
        key = await ask_for_key()
        return await self._send_once(method, url, body, self._signed(key, headers), sending)

    async def _send_once(
        self,
        method: str,
        url: str,
        body: bytes | LongBody | None,
        headers: Mapping[str, str] | None,
        sending: Sending | None,
    ) -> Exchange:
        try:
            target = self._find_target(url)
        except BadUrl as error:
            raise _unreachable(_place(url), error) from error
        head = target.head(method, headers, None if body is None else len(body))
        pool = self._check_use()
        connection = pool.take(target.key)
        if connection is not None:
            exchange = connection.ask(head, body)
            if sending is not None:
                sending.begin(exchange)
            try:
                await exchange.begin()
            except StaleConnection:
                if not self._resends:
                    raise
                connection = None
                if sending is not None:
                    sending.forget()
        if connection is None:
            connection = await self._connect(pool, target)
            exchange = connection.ask(head, body)
            if sending is not None:
                sending.begin(exchange)
            await exchange.begin()
        return exchange

    async def _connect(self, pool: Pool, target: Target) -> Connection:
        assert self._dialler is not None
        self._check_use()
        key = target.key
        try:
            async with asyncio.timeout(self.limits.connect):
                connection = await self._dialler.dial(key, partial(pool.make, key))
        except (OSError, RuntimeError, UnicodeError) as error:
            raise _unreachable(target.place, error, has_proxy=key.proxy is not None) from error
        pool.add(connection)
        if self._is_closed:
            connection.hang_up()
        self._check_use()
        return connection

    def _check_use(self) -> Pool:
        loop = asyncio.get_running_loop()
        if self._is_closed:
            raise RuntimeError("the client is closed")
        if self._pool is None:
            self._loop = loop
            self._pool = Pool(loop)
            self._dialler = Dialler(loop, self._open_socket, self.limits.connect)
        if loop is not self._loop:
            raise RuntimeError("an HttpClient belongs to one event loop; make one for each")
        return self._pool

    def _signed(
        self, key: Secret | None, headers: Mapping[str, str] | None
    ) -> Mapping[str, str] | None:
        """Return the headers with this key."""
        if key is None:
            return headers
        if key not in self._keys:
            self._keys.append(key)
        return {self._key_header: self._as_value(key), **(headers or {})}

    def _as_value(self, key: Secret) -> str:
        return f"Bearer {key.reveal()}" if self._key_header == _BEARER else key.reveal()

    def _may_renew(self, key: Secret | None, head: Head) -> bool:
        """Return whether the peer refused a token that its source can replace."""
        source = self._ask_for_key
        if head.status != 401 or key is None or not isinstance(source, TokenSource):
            return False
        return source.refuse(key)


async def _read_all(exchange: Exchange, limits: Limits, idle: asyncio.Timeout) -> bytes:
    now = asyncio.get_running_loop().time
    body = bytearray()
    while data := await exchange.read():
        body += data
        if len(body) > limits.body:
            exchange.abort()
            raise too_long(limits.body)
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


def _place(url: str) -> str:
    """Return where a URL that cannot be parsed seems to lead, without keys in it."""
    return re.split(r"[?#\\]", "/".join(url.split("/", 3)[:3]).rpartition("@")[2])[0]


def _unreachable(place: str, error: Exception, *, has_proxy: bool = False) -> AntiphonError:
    if _is_out_of_files(error):
        return OutOfFiles()
    way = " through the proxy" if has_proxy else ""
    return BackendError(
        f"the upstream at {place} cannot be reached{way}: {_reason(error)}",
        code="upstream_unreachable",
    )


def _is_out_of_files(error: Exception) -> bool:
    """Return whether a connection failed because we have no file descriptor left.

    A name look-up does not report that by itself, so after one we try to get a descriptor.
    """
    if isinstance(error, socket.gaierror):
        try:
            socket.socket().close()
        except OSError as cause:
            return cause.errno in _NO_FILES
        return False
    return isinstance(error, OSError) and error.errno in _NO_FILES


def _reason(error: Exception) -> str:
    """Return why there is no connection in a few words, without addresses of ours."""
    match error:
        case BadUrl() | ProxyFault():
            return str(error)
        case TimeoutError():
            return "no connection in time"
        case socket.gaierror() | UnicodeError():
            return "its name is not known"
        case ssl.SSLCertVerificationError():
            return f"its certificate is not valid ({error.verify_message.lower()})"
        case ssl.SSLError():
            return "it does not speak TLS as we do"
        case OSError() if error.errno:
            return reason(error)
        case ConnectionError():
            return "it hung up"
    return type(error).__name__
