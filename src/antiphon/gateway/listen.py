"""Which address does the gateway listen on, and can only this machine reach it?

The address of the socket decides, not the name that was given for it.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import socket
import ssl
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import msgspec

from antiphon.gateway.config import Settings
from antiphon.gateway.errors import BadSettings, Unavailable
from antiphon.server.delivery.connection import GuardedServer
from antiphon.server.limits import ServerLimits

__all__ = [
    "Address",
    "bind",
    "listening",
    "metrics_url",
    "own_root",
    "resolve",
    "ui_url",
    "url_of",
]

_BACKLOG: Final = 1024
_CLOSE_SECONDS: Final = 1.0


class Address(msgspec.Struct, frozen=True):
    """An address to listen on; `host` is numeric."""

    family: socket.AddressFamily
    host: str
    port: int

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it."""
        return ipaddress.ip_address(self.host.partition("%")[0]).is_loopback


_REASONS: Final = {
    errno.EADDRINUSE: "is in use; stop the other server or pass another --port",
    errno.EACCES: "is not allowed for this user; pass a --port above 1023",
    errno.EADDRNOTAVAIL: "is not an address of this machine; pass another --host",
}


def resolve(host: str, port: int) -> Address:
    """Return the address of a host name or number. Raise BadSettings if there is none."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError):
        raise BadSettings(f"--host: {host!r} is not a known name or address") from None
    # 127.0.0.1 before ::1 for names that mean both: it is what most clients try first.
    family, _, _, _, place = min(found, key=lambda info: info[0] != socket.AF_INET)
    return Address(family, str(place[0]), port)


def bind(address: Address) -> socket.socket:
    """Return a socket that listens on the address. Clients can connect from now on."""
    sock = socket.socket(address.family, socket.SOCK_STREAM)
    try:
        if sys.platform != "win32":  # there it would let two servers share a port
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((address.host, address.port))
        sock.listen(_BACKLOG)
    except OSError as error:
        sock.close()
        reason = _REASONS.get(error.errno or 0, f"cannot be used: {error.strerror}")
        raise Unavailable(f"{address.host} port {address.port} {reason}") from None
    sock.setblocking(False)
    return sock


@asynccontextmanager
async def listening(
    handler: Any,  # Any: aiohttp's own alias for a handler
    limits_now: Callable[[], ServerLimits],
    sock: socket.socket,
    tls: ssl.SSLContext | None = None,
) -> AsyncIterator[None]:
    """Accept connections on the socket; on exit, close it and wait for requests a moment.

    `limits_now` returns the limits of a new connection. Three of them stay as they are when this
    begins: `header_bytes`, `header_count` and `keep_alive_seconds`.
    """
    server = GuardedServer(handler, limits_now)
    listener = await asyncio.get_running_loop().create_server(
        server,
        sock=sock,
        backlog=_BACKLOG,
        ssl=tls,
        ssl_handshake_timeout=limits_now().header_seconds if tls else None,
        ssl_shutdown_timeout=_CLOSE_SECONDS if tls else None,
    )
    try:
        yield
    finally:
        listener.close()
        await server.shutdown(_CLOSE_SECONDS)


def url_of(sock: socket.socket, *, is_secure: bool = False) -> str:
    """Return the base URL under which this machine reaches the socket."""
    return f"{_root_of(sock, is_secure=is_secure)}/v1"


def ui_url(sock: socket.socket, *, is_secure: bool = False) -> str:
    """Return the URL under which this machine reaches the dashboard."""
    return f"{_root_of(sock, is_secure=is_secure)}/ui"


def metrics_url(sock: socket.socket) -> str:
    """Return the URL under which this machine reaches the metrics' own port."""
    return f"{_root_of(sock)}/metrics"


def own_root(settings: Settings) -> str:
    """Return the URL, without a path, under which this machine reaches a gateway so set."""
    address = resolve(settings.host, settings.port)
    return _root(address.host, address.port, is_secure=settings.tls_cert is not None)


def _root_of(sock: socket.socket, *, is_secure: bool = False) -> str:
    host, port = sock.getsockname()[:2]
    return _root(host, port, is_secure=is_secure)


def _root(host: str, port: int, *, is_secure: bool) -> str:
    scheme = "https" if is_secure else "http"
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - compared, not bound
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
