"""Where the server is, who we are, and how long we wait.

What is not given comes from the environment, under the names every OpenAI program uses:
OPENAI_BASE_URL, OPENAI_API_KEY, OPENAI_ORG_ID and OPENAI_PROJECT_ID. A key is optional: a
server on loopback may want none.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, Literal
from urllib.parse import urlsplit

import msgspec

from antiphon.client.errors import BadCall
from antiphon.transport.http import AskForKey, Limits
from antiphon.transport.secret import Secret

__all__ = ["OPENAI_BASE_URL", "ApiKey", "ClientSettings", "Timeouts", "WireApi", "read_settings"]

OPENAI_BASE_URL: Final = "https://api.openai.com/v1"
WireApi = Literal["responses", "chat"]
ApiKey = str | Secret | Callable[[], str | Secret | Awaitable[str | Secret]]
"""A key, or a function that returns one; it is asked for every request and may be async."""

_MIB: Final = 1024 * 1024
# A healthy stream may last for ever; timers want a number.
_FOR_EVER: Final = 1e9


class Timeouts(msgspec.Struct, frozen=True, kw_only=True):
    """How long we wait, in seconds. Nothing limits how long a healthy stream lasts.

    `idle` is how long a server may be silent: before its first event, and between two reads.
    `answer` is how long an answer that is not streamed may take to begin.
    """

    connect: float = 5.0
    idle: float = 120.0
    answer: float = 600.0

    def limits(self) -> Limits:
        """Return these as the limits of the transport."""
        return Limits(
            connect=self.connect,
            first_byte=self.idle,
            idle=self.idle,
            wall=_FOR_EVER,
            body=64 * _MIB,
        )


class ClientSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where to send requests, and under which name."""

    base_url: str
    key: Secret | AskForKey | None
    headers: Mapping[str, str]


def read_settings(
    environ: Mapping[str, str],
    *,
    base_url: str | None = None,
    api_key: ApiKey | None = None,
    organization: str | None = None,
    project: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> ClientSettings:
    """Return the settings: what is given, else the environment. Raise BadCall."""
    url = base_url or environ.get("OPENAI_BASE_URL", "").strip() or OPENAI_BASE_URL
    _check_url(url)
    sent = {
        "OpenAI-Organization": organization or environ.get("OPENAI_ORG_ID", "").strip(),
        "OpenAI-Project": project or environ.get("OPENAI_PROJECT_ID", "").strip(),
    }
    given = dict(headers or {})
    # With a header for credentials of its own, a request does not carry OpenAI's key.
    has_credentials = any(name.lower() == "authorization" for name in given)
    return ClientSettings(
        base_url=url.rstrip("/"),
        key=None if has_credentials and api_key is None else _read_key(api_key, environ),
        headers={name: value for name, value in sent.items() if value} | given,
    )


def _check_url(url: str) -> None:
    if not url.startswith(("http://", "https://")):
        raise BadCall(f"base_url must begin with http:// or https://, not {url[:40]!r}")
    try:
        parts = urlsplit(url)
        is_usable = bool(parts.hostname) and parts.port != 0
    except ValueError:  # its message may hold a password
        raise BadCall("base_url is not a URL: its host or its port is not valid") from None
    if not is_usable:
        raise BadCall("base_url names no host, or the port 0")
    if parts.username is not None or parts.password is not None:
        raise BadCall("base_url must not hold a name or a password; give api_key or headers")
    if parts.query or parts.fragment:
        raise BadCall("base_url must have no query and no fragment: paths are added to it")


def _read_key(key: ApiKey | None, environ: Mapping[str, str]) -> Secret | AskForKey | None:
    if callable(key):
        return _asking(key)
    return _secret(environ.get("OPENAI_API_KEY", "") if key is None else key)


def _asking(function: Callable[[], str | Secret | Awaitable[str | Secret]]) -> AskForKey:
    async def ask() -> Secret | None:
        key = function()
        return _secret(await key if inspect.isawaitable(key) else key)

    return ask


def _secret(value: str | Secret) -> Secret | None:
    if isinstance(value, Secret):
        return value
    if not isinstance(value, str):
        raise BadCall(f"api_key must give a string, not {type(value).__name__}", param="api_key")
    if not value.strip():
        return None
    try:
        return Secret(value)
    except ValueError as error:
        raise BadCall(f"the API key cannot be used: {error}") from None
