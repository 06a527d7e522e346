"""Who listens at the place that an editor's file names?

The file of an editor stays behind when the editor crashes, and any user of the machine may listen
on its port then. Linux states whose socket a port is; on other systems that is not known. It is
looked up before we connect, so that another user sees no connection, and again before anything is
sent: between the two, another user may have begun to listen.
"""

from __future__ import annotations

import ipaddress
import sys
from pathlib import Path
from typing import Final

__all__ = ["listening_users"]

_PROC: Final = Path("/proc/net")
_LISTENS: Final = "0A"
_TABLES: Final = ("tcp", "tcp6")


def listening_users(host: str, port: int, proc: Path = _PROC) -> frozenset[int] | None:
    """Return the ids of those who listen at this loopback address, None if it is not known."""
    if not sys.platform.startswith("linux"):
        return None
    tables = [proc / name for name in _TABLES if (proc / name).exists()]  # tcp6 needs IPv6
    try:
        users = frozenset(uid for path in tables for uid in _listeners(path, host, port))
    except OSError:
        return None
    return users if tables else None


def _listeners(path: Path, host: str, port: int) -> list[int]:
    """Return who listens at this address, or at all addresses, by one table of the kernel."""
    found = []
    for row in path.read_text().splitlines()[1:]:
        fields = row.split()
        address, _, number = fields[1].partition(":")
        if fields[3] == _LISTENS and int(number, 16) == port and _takes(address, host):
            found.append(int(fields[7]))
    return found


def _takes(address: str, host: str) -> bool:
    """Return whether a socket with this address gets connections to the host."""
    # Words of 32 bits, each in the byte order of the machine.
    words = (int(address[at : at + 8], 16) for at in range(0, len(address), 8))
    packed = b"".join(word.to_bytes(4, sys.byteorder) for word in words)
    listens: ipaddress.IPv4Address | ipaddress.IPv6Address = ipaddress.ip_address(packed)
    if isinstance(listens, ipaddress.IPv6Address):
        listens = listens.ipv4_mapped or listens
    return listens.is_unspecified or listens == ipaddress.ip_address(host)
