"""May we connect to this address? The guard for requests to URLs that others choose.

It checks the socket address at the moment of connecting. A name can resolve to anything, and
to something else a second later, and one address has many spellings: only the destination of
the socket counts. Every address outside the public internet is refused, and every IPv6 address
that stands for such an address. Names, certificates and redirects are not checked here;
HttpClient follows no redirect.
"""

from __future__ import annotations

import errno
import socket
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Any, Final

__all__ = ["AddressInfo", "is_public", "open_public_socket"]

AddressInfo = tuple[int | socket.AddressFamily, int | socket.SocketKind, int, str, tuple[Any, ...]]
"""An entry of getaddrinfo: family, type, protocol, canonical name, socket address."""

# RFC 6890 and the registries it began, and one public address that is a cloud's metadata service.
_CLOSED_4: Final = tuple(
    map(
        IPv4Network,
        (
            "0.0.0.0/8",  # this host: the same as loopback
            "10.0.0.0/8",
            "100.64.0.0/10",  # carriers' NAT
            "127.0.0.0/8",
            "168.63.129.16/32",  # metadata
            "169.254.0.0/16",  # link-local, metadata
            "172.16.0.0/12",
            "192.0.0.0/24",
            "192.0.2.0/24",  # documentation
            "192.88.99.0/24",  # relays of 6to4
            "192.168.0.0/16",
            "198.18.0.0/15",  # benchmarks
            "198.51.100.0/24",
            "203.0.113.0/24",
            "224.0.0.0/4",  # multicast
            "240.0.0.0/4",  # reserved, broadcast
        ),
    )
)
# In IPv6 only this much has been given out; loopback, link-local, unique local, site-local,
# multicast and addresses with an IPv4 one in them lie outside.
_OPEN_6: Final = IPv6Network("2000::/3")
_CLOSED_6: Final = tuple(
    map(
        IPv6Network,
        (
            "2001::/23",  # special purposes, Teredo among them
            "2001:db8::/32",  # documentation
            "2002::/16",  # 6to4
            "3fff::/20",
        ),
    )
)
# An address behind NAT64 stands for the IPv4 address in its last 32 bits, RFC 6052.
_NAT64: Final = IPv6Network("64:ff9b::/96")


def is_public(address: str) -> bool:
    """Return whether an address, written as numbers, is in the public internet.

    Any other text is not public.
    """
    try:
        found = ip_address(address)
    except ValueError:
        return False
    if isinstance(found, IPv6Address):
        inner = _inner(found)
        if inner is None:
            return found in _OPEN_6 and not any(found in network for network in _CLOSED_6)
        found = inner
    return not any(found in network for network in _CLOSED_4)


def open_public_socket(info: AddressInfo) -> socket.socket:
    """Return a socket for this address. Raise OSError if the address is not a public one."""
    family, kind, protocol, _, address = info
    if family not in (socket.AF_INET, socket.AF_INET6) or not is_public(str(address[0])):
        # No address in the message: its reader may not be allowed to know our network.
        raise PermissionError(errno.EACCES, "the address is not a public one")
    return socket.socket(family, kind, protocol)


def _inner(address: IPv6Address) -> IPv4Address | None:
    """Return the IPv4 address that is really meant."""
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFF_FFFF)
    return address.ipv4_mapped
