"""Where is an MCP server, and with what is it asked?

An endpoint is made of the operator's settings or of a caller's tool. It holds secrets, so it shows
none of its fields when it is printed. Two endpoints with one `key` may share a connection, within
one owner.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Final

import msgspec

from antiphon.protocol.errors import InvalidRequest, invalid
from antiphon.tools.mcp.settings import McpServer, McpSettings, Transport
from antiphon.transport.secret import Secret

__all__ = ["Endpoint", "configured_endpoints", "read_headers", "url_endpoint"]

_MAX_URL: Final = 2048
_MAX_HEADERS: Final = 32
_MAX_HEADER: Final = 8 * 1024
_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}")
_URL: Final = re.compile(r"(https?)://([^/?#\\@\s]+)([/?][^#\\\s]*)?", re.IGNORECASE)
# What the connection and the protocol write themselves.
_RESERVED: Final = frozenset(
    {
        "accept",
        "accept-encoding",
        "connection",
        "content-length",
        "content-type",
        "cookie",
        "host",
        "last-event-id",
        "proxy-authorization",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """A server, and how to reach it: either under `url` or as the process of `command`."""

    label: str
    url: str | None = None
    transport: Transport = "streamable-http"
    command: tuple[str, ...] = ()
    env: Mapping[str, str] = {}
    cwd: str | None = None
    headers: Mapping[str, Secret] = {}
    is_guarded: bool = False
    """Whether only public addresses are connected to: a caller chose the URL."""
    allowed: frozenset[str] | None = None
    """The tools that the operator allows; None for all."""
    trusts_read_only: bool = False
    takes_headers: bool = False
    """Whether headers of a caller are sent to it."""
    connect_seconds: float = 10.0
    call_seconds: float = 60.0

    def __repr__(self) -> str:
        return f"Endpoint({self.label!r})"

    @property
    def key(self) -> tuple[str, str, bytes]:
        """What two uses must have in common to share a connection."""
        place = self.url if self.url is not None else "\0".join(self.command)
        pairs = sorted((name.lower(), value.reveal()) for name, value in self.headers.items())
        written = msgspec.json.encode([place, self.transport, self.is_guarded, pairs])
        return self.label, place, hashlib.sha256(written).digest()

    def with_headers(self, headers: Mapping[str, Secret]) -> Endpoint:
        """Return the endpoint as a caller with these headers uses it."""
        if not headers:
            return self
        return msgspec.structs.replace(self, headers={**self.headers, **headers})


def configured_endpoints(settings: McpSettings, environ: Mapping[str, str]) -> dict[str, Endpoint]:
    """Return the servers of the settings by label. Raise ValueError for what cannot be used."""
    return {label: _configured(label, one, environ) for label, one in settings.servers.items()}


def url_endpoint(label: str, url: object, allow: tuple[str, ...], where: str) -> Endpoint:
    """Return the server that a caller names by its URL; raise InvalidRequest if it may not be."""
    param = f"{where}.server_url"
    if not isinstance(url, str) or len(url) > _MAX_URL or not _URL.fullmatch(url):
        raise invalid(param, "must be an http or https URL without user name, blanks or fragment")
    if not any(_matches(url, pattern) for pattern in allow):
        raise InvalidRequest(
            f"{param}: this gateway does not connect to servers that a request names; its operator "
            "can allow URLs with mcp.allow_urls, or configure the server under [mcp.servers]",
            code="unsupported_tool",
            param=param,
        )
    return Endpoint(label=label, url=url, is_guarded=True, takes_headers=True)


def read_headers(authorization: object, headers: object, where: str) -> dict[str, Secret]:
    """Return the headers of a caller's tool. Messages about them never show a value."""
    found: dict[str, Secret] = {}
    given = {} if headers is None else headers
    if not isinstance(given, dict) or len(given) > _MAX_HEADERS:
        raise invalid(f"{where}.headers", f"must be an object of at most {_MAX_HEADERS} headers")
    for name, value in given.items():
        if not _TOKEN.fullmatch(name) or _is_reserved(name):
            raise invalid(f"{where}.headers", f"must not have the header {name[:40]!r}")
        found[name] = _secret(value, f"{where}.headers")
    if authorization is not None:
        token = _secret(authorization, f"{where}.authorization")
        found = {name: value for name, value in found.items() if name.lower() != "authorization"}
        found["Authorization"] = Secret(f"Bearer {token.reveal()}")
    return found


def _matches(url: str, pattern: str) -> bool:
    """Return whether a pattern allows a URL. A `*` in its host stays within the host.

    A pattern without a path allows every path. `*` alone allows everything.
    """
    scheme, joint, rest = pattern.partition("://")
    if not joint:
        return pattern == "*"
    host, slash, path = rest.partition("/")
    found = _URL.fullmatch(url)
    if found is None or not fnmatchcase(f"{found[1]} {found[2]}", f"{scheme} {host}"):
        return False
    return not slash or fnmatchcase(found[3] or "/", f"/{path}")


def _secret(value: object, param: str) -> Secret:
    if isinstance(value, str) and len(value) <= _MAX_HEADER:
        try:
            return Secret(value)
        except ValueError:
            pass
    raise invalid(param, "must be printable ASCII and not empty")


def _is_reserved(name: str) -> bool:
    return name.lower() in _RESERVED or name.lower().startswith("mcp-")


def _configured(label: str, server: McpServer, environ: Mapping[str, str]) -> Endpoint:
    if (server.url is None) == (server.command is None):
        raise ValueError(f"[mcp.servers.{label}] must have either url or command")
    if server.url is not None and not _URL.fullmatch(server.url):
        raise ValueError(f"[mcp.servers.{label}]: url must be an http or https URL")
    names = server.allowed_tools
    return Endpoint(
        label=label,
        url=server.url,
        transport=server.transport,
        command=() if server.command is None else (server.command, *server.args),
        env={**server.env, **{name: _value(environ, name, label) for name in server.env_names}},
        cwd=server.cwd,
        headers=_own_headers(label, server, environ),
        allowed=None if names is None else frozenset(names),
        trusts_read_only=server.trust_read_only,
        takes_headers=server.caller_headers,
        connect_seconds=server.connect_seconds,
        call_seconds=server.call_seconds,
    )


def _own_headers(label: str, server: McpServer, environ: Mapping[str, str]) -> dict[str, Secret]:
    values = dict(server.headers)
    values |= {name: _value(environ, var, label) for name, var in server.header_envs.items()}
    if server.key_env is not None:
        values["Authorization"] = f"Bearer {_value(environ, server.key_env, label)}"
    for name in values:
        if not _TOKEN.fullmatch(name) or _is_reserved(name):
            raise ValueError(f"[mcp.servers.{label}]: the header {name!r} cannot be set")
    return {name: Secret(value) for name, value in values.items()}


def _value(environ: Mapping[str, str], name: str, label: str) -> str:
    value = environ.get(name, "").strip()
    if not value:
        raise ValueError(
            f"[mcp.servers.{label}] names the environment variable {name}, which is not set"
        )
    return value
