"""How is a connection opened? Look the name up, connect to an address, secure the connection.

Addresses are tried as RFC 8305 wants it (happy eyeballs). Every socket is made by the caller's
`open_socket`, which judges the address it is for: this is where the egress guard stands. A
failed or cancelled attempt leaves no socket open. The time limit is the caller's; `seconds`
bounds how long an event loop keeps what is left of a TLS handshake that was cancelled.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import Callable, Sequence
from contextlib import suppress
from ipaddress import ip_address
from threading import Lock
from typing import Final

from aiohappyeyeballs import start_connection

from antiphon.transport.connection import Connection
from antiphon.transport.egress import AddressInfo
from antiphon.transport.proxy import open_tunnel
from antiphon.transport.target import Key

__all__ = ["NAME_SECONDS", "Dialler", "OpenSocket"]

OpenSocket = Callable[[AddressInfo], socket.socket]
"""Makes the socket for an address, or raises OSError to refuse it."""

NAME_SECONDS: Final = 10.0
"""The addresses of a name are kept for so long."""

_MAX_NAMES: Final = 256
_NEXT_ADDRESS_SECONDS: Final = 0.25
# By the variables that name the certificates.
_contexts: Final[dict[tuple[str | None, str | None], ssl.SSLContext]] = {}
_making: Final = Lock()


class Dialler:
    """Opens connections, and keeps the addresses of names for a while."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, open_socket: OpenSocket | None, seconds: float
    ) -> None:
        self._loop = loop
        self._open_socket = open_socket
        self._seconds = seconds
        self._names: dict[tuple[str, int], tuple[float, asyncio.Task[Sequence[AddressInfo]]]] = {}

    async def dial(self, key: Key, make: Callable[[], Connection]) -> Connection:
        """Return an open connection, made by `make`. Raise OSError if that fails."""
        first = key.proxy or key
        addresses = await self._look_up(first.host, first.port)
        context = await _tls_context() if key.is_secure else None
        opened = await start_connection(
            addresses,
            happy_eyeballs_delay=_NEXT_ADDRESS_SECONDS,
            loop=self._loop,
            socket_factory=self._open_socket,
        )
        if key.proxy is not None and key.is_secure:
            try:
                await open_tunnel(opened, key.proxy, key.host, key.port)
            except BaseException:
                opened.close()
                raise
        try:
            _, connection = await self._loop.create_connection(
                make,
                sock=opened,
                ssl=context,
                server_hostname=key.host.rstrip(".") if context else None,
                ssl_handshake_timeout=self._seconds if context else None,
            )
        except BaseException:
            # Not `close`: the event loop may still watch the descriptor, which the next socket
            # would get. The loop closes the socket when it sees this.
            with suppress(OSError):
                opened.shutdown(socket.SHUT_RDWR)
            raise
        return connection

    async def _look_up(self, host: str, port: int) -> Sequence[AddressInfo]:
        """Return the addresses of a host. Requests at the same time share one look-up."""
        literal = _read_address(host, port)
        if literal is not None:
            return [literal]
        now = self._loop.time()
        asked, looking = self._names.get((host, port), (0.0, None))
        if looking is None or now >= asked + NAME_SECONDS or _has_failed(looking):
            looking = self._loop.create_task(self._ask(host, port))
            looking.add_done_callback(_has_failed)  # the requests may all have gone
            self._names.pop((host, port), None)
            self._names[host, port] = now, looking
            if len(self._names) > _MAX_NAMES:
                del self._names[next(iter(self._names))]
        return await asyncio.shield(looking)

    async def _ask(self, host: str, port: int) -> Sequence[AddressInfo]:
        found = await self._loop.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG
        )
        if not found:
            raise socket.gaierror(socket.EAI_NONAME, "no address")
        return found


def _has_failed(looking: asyncio.Task[Sequence[AddressInfo]]) -> bool:
    return looking.done() and (looking.cancelled() or looking.exception() is not None)


def _read_address(host: str, port: int) -> AddressInfo | None:
    """Return the address that a host is, if it is one. Zones of IPv6 need the name service."""
    try:
        address = ip_address(host)
    except ValueError:
        return None
    if "%" in host:
        return None
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    place = (host, port) if address.version == 4 else (host, port, 0, 0)
    return family, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", place


async def _tls_context() -> ssl.SSLContext:
    """Return the settings of TLS. Reading all the certificates takes too long for the loop."""
    sources = os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR")
    context = _contexts.get(sources)
    if context is None:
        context = await asyncio.to_thread(_make_context, sources)
    return context


def _make_context(sources: tuple[str | None, str | None]) -> ssl.SSLContext:
    """Return a context with the certificates of the system, or of the two variables.

    The requests of a burst make one together: each would take the others' time to connect.
    """
    with _making:
        if sources not in _contexts:
            context = ssl.create_default_context()
            context.set_alpn_protocols(["http/1.1"])
            _contexts[sources] = context
        return _contexts[sources]
