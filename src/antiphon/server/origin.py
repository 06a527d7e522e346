"""Where does a request come from: this machine's user, a web page, or a proxy?

A gateway without keys answers everyone who can reach it, so these checks decide who that is. They
are made in one place, before a handler runs, and only where no keys are required:

- The Host must be a loopback name, because a page can give 127.0.0.1 any name (DNS rebinding).
- A page of another origin is refused, by `Origin` and by `Sec-Fetch-Site`; a page on another port
  of localhost is another origin. `allowed_origins` lists those that may use the gateway.
- A proxy is refused, by its headers and by HTTP/1.0, which nginx speaks by default: behind it the
  Host is loopback for the whole world.
- A body must be declared as JSON: pages can send other types without asking first.

Where keys are required, a key proves who is asking, and a page or a proxy has none of its own. CORS
(preflights and headers) works the same with and without keys, for the allowed origins only.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final
from urllib.parse import urlsplit

from aiohttp import HttpVersion10, web

from antiphon.protocol.errors import CallerError, Forbidden

__all__ = ["ANY_ORIGIN", "OriginPolicy", "UnsupportedBody", "is_loopback_name", "is_origin"]

ANY_ORIGIN: Final = "*"
# Probes of a supervisor may speak HTTP/1.0 or come through a proxy: they show nothing.
_PROBES: Final = frozenset({"/healthz", "/readyz", "/health"})
# Finds the first of a proxy's headers in the names, one on each line: none has a line break.
_PROXY_HEADER: Final = re.compile(
    r"^(?:forwarded|via|x-real-ip|x-forwarded-.*)$", re.ASCII | re.IGNORECASE | re.MULTILINE
)
_FOREIGN_SITES: Final = frozenset({"cross-site", "same-site"})
_METHODS: Final = "GET, POST, DELETE"
_EXPOSED: Final = (
    "x-request-id, request-id, x-antiphon-degraded, x-antiphon-served-by, x-antiphon-replayed, "
    "x-antiphon-count, x-should-retry, Retry-After"
)
_PREFLIGHT_SECONDS: Final = "600"
_HOST: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:[0-9]{1,5})?")
_ORIGIN: Final = re.compile(r"[a-z][a-z0-9+.-]*://(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(:[0-9]{1,5})?")
_JSON: Final = re.compile(r"application/([\w.-]+\+)?json", re.IGNORECASE)
_SET_KEYS: Final = "set require_keys = true and make a key with `antiphon keys create`"


class UnsupportedBody(CallerError):
    """A body that is not declared as JSON, where only JSON is taken."""

    status = 415
    code = "unsupported_media_type"


@lru_cache(maxsize=256)
def is_loopback_name(host: str) -> bool:
    """Return whether a host name, with or without a port, can only mean this machine."""
    found = _HOST.fullmatch(host)
    if found is None:
        return False
    name = found[1].strip("[]").lower()
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name == "localhost" or name.endswith(".localhost")


def is_origin(text: str) -> bool:
    """Return whether this is an origin as browsers send it: scheme, host, and a port or none."""
    return _ORIGIN.fullmatch(text) is not None


class OriginPolicy:
    """Decides which pages and proxies may use the gateway."""

    def __init__(self, allowed: Sequence[str] = (), *, is_keyless: bool) -> None:
        self._allowed = frozenset(allowed)
        self.is_keyless = is_keyless

    def check(self, request: web.BaseRequest, *, is_open: bool) -> None:
        """Raise Forbidden if the request does not come from a place that may ask.

        `is_open` is for routes that show nothing of anyone: there only proxies are refused.
        """
        if not self.is_keyless:
            return
        if request.rel_url.raw_path not in _PROBES:
            _refuse_proxy(request)
        if not is_open:
            _refuse_foreign_host(request)
            self._refuse_foreign_page(request)

    def check_body(self, request: web.BaseRequest, *, takes_form: bool) -> None:
        """Raise UnsupportedBody if a caller without a key sends something else than JSON.

        A route that takes forms is open for programs, which send no `Origin`, and for the page of
        this gateway itself, which the browser states in two headers. Other pages could send it a
        form without asking first.
        """
        if not request.body_exists or _JSON.fullmatch(request.content_type or ""):
            return
        headers = request.headers
        is_page = "Origin" in headers or "Sec-Fetch-Site" in headers
        is_known = self._allowed_origin(request) is not None or _is_own_page(request)
        if takes_form and (is_known or not is_page):
            return
        raise UnsupportedBody("send the body as JSON, with Content-Type: application/json")

    def preflight(self, request: web.BaseRequest) -> web.Response | None:
        """Return the answer to a browser that asks before a request, or None if none does."""
        headers = request.headers
        if request.method != "OPTIONS" or "Access-Control-Request-Method" not in headers:
            return None
        if self._allowed_origin(request) is None:
            raise Forbidden(_not_allowed(headers.get("Origin", "")))
        answer = web.Response(status=204, headers=self.headers(request))
        answer.headers["Access-Control-Allow-Methods"] = _METHODS
        answer.headers["Access-Control-Max-Age"] = _PREFLIGHT_SECONDS
        if names := headers.get("Access-Control-Request-Headers"):
            answer.headers["Access-Control-Allow-Headers"] = names
        if headers.get("Access-Control-Request-Private-Network") == "true":
            answer.headers["Access-Control-Allow-Private-Network"] = "true"
        return answer

    def headers(self, request: web.BaseRequest) -> Mapping[str, str]:
        """Return the headers that let an allowed page read the answer."""
        if not self._allowed:
            return {}
        origin = self._allowed_origin(request)
        if origin is None:
            return {"Vary": "Origin"}
        return {
            "Vary": "Origin",
            "Access-Control-Allow-Origin": origin,
            "Access-Control-Expose-Headers": _EXPOSED,
        }

    def _allowed_origin(self, request: web.BaseRequest) -> str | None:
        """Return the origin of the page, if it is one of the allowed."""
        origin = request.headers.get("Origin")
        if origin is None:
            return None
        is_allowed = ANY_ORIGIN in self._allowed or origin.lower() in self._allowed
        return origin if is_allowed else None

    def _refuse_foreign_page(self, request: web.BaseRequest) -> None:
        headers = request.headers
        if self._allowed_origin(request) is not None:
            return
        origin = headers.get("Origin")
        if origin is not None and not _is_own(origin, request.scheme, headers["Host"]):
            raise Forbidden(_not_allowed(origin))
        if headers.get("Sec-Fetch-Site", "").strip().lower() in _FOREIGN_SITES:
            raise Forbidden(_not_allowed(origin or ""))


def _is_own_page(request: web.BaseRequest) -> bool:
    """Return whether the browser states that a page of this gateway asks."""
    origin, site = request.headers.get("Origin"), request.headers.get("Sec-Fetch-Site")
    is_own = origin is not None and _is_own(origin, request.scheme, request.headers["Host"])
    return is_own and site == "same-origin"


def _refuse_proxy(request: web.BaseRequest) -> None:
    if request.version <= HttpVersion10:
        raise Forbidden(
            "HTTP/1.0, which a proxy such as nginx speaks by default, is not answered without "
            f"keys, because behind a proxy everyone could ask: {_SET_KEYS}, or send HTTP/1.1",
            code="keys_required",
        )
    found = _PROXY_HEADER.search("\n".join(request.headers))
    if found is not None:
        raise Forbidden(
            f"the header {found[0]} shows that this request came through a proxy, and behind a "
            f"proxy everyone could ask without a key: {_SET_KEYS}",
            code="keys_required",
        )


def _refuse_foreign_host(request: web.BaseRequest) -> None:
    hosts = request.headers.getall("Host", ())
    if len(hosts) != 1 or not is_loopback_name(hosts[0]):
        raise Forbidden("without keys only loopback host names are answered")


def _is_own(origin: str, scheme: str, host: str) -> bool:
    """Return whether a page of this origin was served under the scheme and Host that it asks."""
    is_same = origin.lower().startswith(f"{scheme}://")
    return is_same and _place(origin) == _place(f"{scheme}://{host}")


def _place(url: str) -> tuple[str | None, int]:
    try:
        parts = urlsplit(url)
        return parts.hostname, parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError:  # a bracket that does not close, a port that is none
        return None, -1


def _not_allowed(origin: str) -> str:
    page = f"the page {origin[:200]!r}" if origin else "a page of another origin"
    return (
        f"{page} may not use this gateway; add its origin to allowed_origins in the settings "
        "if it is yours"
    )
