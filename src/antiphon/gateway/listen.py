"""Which address do we listen at, and is it this machine's alone?

What counts is the address of the socket, not the name that was given for it.
"""

from __future__ import annotations

import errno
import ipaddress
import socket
import sys
from typing import Final

import msgspec

from antiphon.cli.errors import BadSettings, CliError

__all__ = ["Address", "bind", "metrics_url", "resolve", "url_of"]


class Address(msgspec.Struct, frozen=True):
    """An address to listen at; `host` is numeric."""

    family: socket.AddressFamily
    host: str
    port: int

    @property
    def is_loopback(self) -> bool:
        """Say whether only this machine can reach it."""
        return ipaddress.ip_address(self.host.partition("%")[0]).is_loopback


_REASONS: Final = {
    errno.EADDRINUSE: "is in use; stop the other server or pass another --port",
    errno.EACCES: "is not for this user; pass a --port above 1023",
    errno.EADDRNOTAVAIL: "is not an address of this machine; pass another --host",
}


def resolve(host: str, port: int) -> Address:
    """Return the address that a host name or number means. Raise BadSettings if none."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError):
        raise BadSettings(f"--host: {host!r} is not a name or address that is known here") from None
    # 127.0.0.1 before ::1 for names that mean both: it is what most clients try first.
    family, _, _, _, place = min(found, key=lambda info: info[0] != socket.AF_INET)
    return Address(family, str(place[0]), port)


def bind(address: Address) -> socket.socket:
    """Return a socket that listens at the address, so that clients may already connect."""
    sock = socket.socket(address.family, socket.SOCK_STREAM)
    try:
        if sys.platform != "win32":  # there it would let two servers share a port
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((address.host, address.port))
        sock.listen(1024)
    except OSError as error:
        sock.close()
        reason = _REASONS.get(error.errno or 0, f"cannot be used: {error.strerror}")
        raise CliError(f"{address.host} port {address.port} {reason}") from None
    sock.setblocking(False)
    return sock


def url_of(sock: socket.socket) -> str:
    """Return the base URL under which this machine reaches the socket."""
    return f"{_root_of(sock)}/v1"


def metrics_url(sock: socket.socket) -> str:
    """Return the URL under which this machine reaches the metrics' own port."""
    return f"{_root_of(sock)}/metrics"


def _root_of(sock: socket.socket) -> str:
    host, port = sock.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - compared, not bound
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
