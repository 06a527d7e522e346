"""Does another user listen at the place that an editor's file names?

The file of an editor stays behind when the editor crashes, and any user of the machine may listen
on its port then. Linux states whose socket a port is; on other systems that is not known. It is
looked up before we connect: the listener cannot be replaced while it listens.
"""

from __future__ import annotations

import ipaddress
import os
import sys
from pathlib import Path
from typing import Final

__all__ = ["foreign_listener"]

_PROC: Final = Path("/proc/net")
_LISTENS: Final = "0A"
_TABLES: Final = ("tcp", "tcp6")


def foreign_listener(host: str, port: int, proc: Path = _PROC) -> int | None:
    """Return the id of another user who listens at this loopback address, None if none does."""
    if not sys.platform.startswith("linux"):
        return None
    for table in _TABLES:
        for uid in _listeners(proc / table, host, port):
            if uid != os.geteuid():
                return uid
    return None


def _listeners(path: Path, host: str, port: int) -> list[int]:
    """Return who listens at this address, or at all addresses, by one table of the kernel."""
    try:
        rows = path.read_text().splitlines()[1:]
    except OSError:
        return []  # no such table, as without IPv6
    found = []
    for row in rows:
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
