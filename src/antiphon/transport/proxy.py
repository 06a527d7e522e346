"""Which proxy leads to a host, and how is a tunnel through it opened?

The variables are those of other programs, in upper or lower case: HTTP_PROXY, HTTPS_PROXY,
ALL_PROXY and NO_PROXY. Only proxies that are reached without TLS are supported. The sign-in of a
proxy is in no message.
"""

from __future__ import annotations

import asyncio
import base64
import re
import socket
from typing import Final, NamedTuple
from urllib.request import getproxies_environment

from yarl import URL

from antiphon.transport.secret import Secret

__all__ = ["BadUrl", "Proxy", "ProxyFault", "find_proxy", "open_tunnel"]

_MAX_HEAD: Final = 64 * 1024
_END: Final = b"\r\n\r\n"
_status: Final = re.compile(rb"HTTP/1\.[01] (\d{3})[ \r]").match


class BadUrl(ValueError):
    """A URL without a host, with an invalid port, or that cannot be parsed."""


class ProxyFault(ConnectionError):
    """The proxy opens no tunnel."""


class Proxy(NamedTuple):
    """Where a proxy is, and the value of Proxy-Authorization if it needs one."""

    host: str
    port: int
    sign_in: Secret | None


def find_proxy(*, is_secure: bool, host: str, port: int) -> Proxy | None:
    """Return the proxy that the environment names for this host. Raise BadUrl if it is invalid."""
    found = getproxies_environment()
    text = found.get("https" if is_secure else "http") or found.get("all")
    if not text or _is_excepted(host, port, found.get("no", "")):
        return None
    try:
        url = URL(text if "://" in text else f"http://{text}")
    except ValueError as error:
        raise BadUrl("the proxy in the environment is not a URL") from error
    if url.scheme != "http" or not url.raw_host or url.port is None:
        raise BadUrl("the proxy in the environment is not a URL that begins with http://")
    sign_in = None
    if url.user or url.password:
        pair = f"{url.user or ''}:{url.password or ''}".encode()
        sign_in = Secret(f"Basic {base64.b64encode(pair).decode()}")
    return Proxy(url.raw_host, url.port, sign_in)


def _is_excepted(host: str, port: int, exceptions: str) -> bool:
    """Return whether a host is in a list of names, which stand for the names below them too."""
    name = host.lower().rstrip(".")
    for text in exceptions.lower().split(","):
        pattern = text.strip().removesuffix(f":{port}").lstrip(".").strip("[]")
        if pattern == "*" or (pattern and f".{name}".endswith(f".{pattern}")):
            return True
    return False


async def open_tunnel(opened: socket.socket, proxy: Proxy, host: str, port: int) -> None:
    """Ask the proxy at the other end of a socket for a tunnel. Raise ProxyFault if it refuses."""
    loop = asyncio.get_running_loop()
    place = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    sign_in = f"Proxy-Authorization: {proxy.sign_in.reveal()}\r\n" if proxy.sign_in else ""
    head = f"CONNECT {place} HTTP/1.1\r\nHost: {place}\r\n{sign_in}\r\n"
    await loop.sock_sendall(opened, head.encode())
    answer = b""
    while _END not in answer:
        part = await loop.sock_recv(opened, 4096)
        answer += part
        if not part or len(answer) > _MAX_HEAD:
            raise ProxyFault("the proxy sent no answer that can be read")
    found = _status(answer)
    if found is None:
        raise ProxyFault("the proxy's answer is not HTTP")
    status = int(found[1])
    if not 200 <= status < 300:
        hint = "; it needs a name and a password in its URL" if status == 407 else ""
        raise ProxyFault(f"the proxy answered {status}{hint}")
    if not answer.endswith(_END) or answer.count(_END) > 1:
        raise ProxyFault("the proxy sent something through the tunnel before we did")
