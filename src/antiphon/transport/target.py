"""What a URL decides about a request: where to connect to, and most of the head.

It is prepared once for each URL. URLs are read and quoted by `yarl`. No line of a head contains
a control character, so no header brings another one. A name and a password in the URL become a
Basic sign-in and are in no message.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import Final, NamedTuple

from yarl import URL

from antiphon.transport.proxy import BadUrl, Proxy, find_proxy

__all__ = ["BadUrl", "Key", "Target", "target_finder"]

_MAX_TARGETS: Final = 64
_FORBIDDEN: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
# With these methods a request without a body has no Content-Length.
_BODILESS: Final = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})


class Key(NamedTuple):
    """Requests with the same key can use the same connection."""

    is_secure: bool
    host: str
    port: int
    proxy: Proxy | None = None


class Target:
    """Where a request goes, and how its head begins. `headers` go with every request to it.

    With `proxies` it may go through a proxy that the environment names.
    """

    __slots__ = ("_has_user", "_lines", "_lines_with_body", "_path", "key", "place")

    def __init__(self, url: str, headers: Mapping[str, str], *, proxies: bool = False) -> None:
        parsed = _parse(url)
        host, port, is_secure = parsed.raw_host, parsed.port, parsed.scheme == "https"
        if not host or port is None:
            raise BadUrl("the URL has no host")
        if " " in host:
            raise BadUrl("the URL cannot be read")
        proxy = find_proxy(is_secure=is_secure, host=host, port=port) if proxies else None
        self.key: Final = Key(is_secure, host, port, proxy)
        self._has_user: Final = bool(parsed.user or parsed.password)
        own = {"Host": parsed.host_port_subcomponent or "", "Accept": "*/*"}
        self.place: Final = f"{parsed.scheme}://{own['Host']}"
        """The beginning of the URL, for messages."""
        path = parsed.raw_path_qs
        if proxy is not None and not is_secure:  # there is no tunnel: the proxy reads this
            path = f"http://{own['Host']}{path}"
            if proxy.sign_in is not None:
                own["Proxy-Authorization"] = proxy.sign_in.reveal()
        self._path: Final = _checked(path)
        self._lines: Final = {**_lines(own), **self._check(_lines(headers))}
        if self._has_user:
            self._lines.update(_sign_in(parsed.user or "", parsed.password or ""))
        content_type = _lines({"Content-Type": "application/json"})
        self._lines_with_body: Final = {**self._lines, **content_type}

    def head(self, method: str, headers: Mapping[str, str] | None, size: int | None) -> bytes:
        """Return the head of a request with these headers, which win, and a body of this size."""
        lines = self._lines if size is None else self._lines_with_body
        if headers:
            lines = {**lines, **self._check(_lines(headers))}
        is_bodiless = size is None and method in _BODILESS
        length = "" if is_bodiless else f"Content-Length: {size or 0}\r\n"
        text = f"{_checked(method)} {self._path} HTTP/1.1\r\n{''.join(lines.values())}{length}\r\n"
        return text.encode("utf-8", "ignore")

    def _check(self, lines: dict[str, str]) -> dict[str, str]:
        if self._has_user and "authorization" in lines:
            raise ValueError(
                "an AUTHORIZATION header and a name in the URL cannot be combined; use one of them"
            )
        return lines


def target_finder(headers: Mapping[str, str], *, proxies: bool = False) -> Callable[[str], Target]:
    """Return a function that returns the target of a URL, or raises BadUrl if it has none.

    It remembers the URLs that were used last. `headers` go with every request.
    """
    return lru_cache(_MAX_TARGETS)(partial(Target, headers=headers, proxies=proxies))


def _parse(url: str) -> URL:
    try:
        return URL(url)
    except ValueError as error:
        raise BadUrl("the URL cannot be read") from error


def _sign_in(user: str, password: str) -> dict[str, str]:
    try:
        pair = f"{user}:{password}".encode("latin-1")
    except UnicodeEncodeError:  # which would carry the password
        raise BadUrl("the name and the password in the URL must be Latin-1") from None
    return _lines({"Authorization": f"Basic {base64.b64encode(pair).decode()}"})


def _lines(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the lines by the names of the headers in lower case; the length is ours to give."""
    lines = {name.lower(): f"{_checked(f'{name}: {value}')}\r\n" for name, value in headers.items()}
    lines.pop("content-length", None)
    if "transfer-encoding" in lines:
        raise ValueError("a header must not change how the body is sent")
    return lines


def _checked(line: str) -> str:
    if _FORBIDDEN.search(line):
        raise ValueError("a header must not contain line breaks or other control characters")
    return line
