"""Who asks? Keys, and the one owner who needs none: whoever is on this machine.

A key reads `ak_<id>_<secret>`. We keep the SHA-256 of the secret, look the key up by its id
and compare in constant time. On loopback without `require_keys`, a caller without a key is
the owner `local`; then Host and Origin must be loopback names too, because a web page can
make a browser speak to 127.0.0.1 under any name it likes (DNS rebinding).
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import secrets
from collections.abc import Callable
from functools import lru_cache
from typing import Final
from urllib.parse import urlsplit

from aiohttp import web

from antiphon.protocol.errors import Forbidden, Unauthorized
from antiphon.store.base import KeyRecord, Store

__all__ = ["LOCAL_OWNER", "Auth", "is_loopback_name", "new_key"]

LOCAL_OWNER: Final = "local"

_PREFIX: Final = "ak"
_REMEMBER_SECONDS: Final = 5
_MAX_REMEMBERED: Final = 10_000


def new_key(
    owner: str, now: int, *, name: str = "", expires_at: int | None = None
) -> tuple[str, KeyRecord]:
    """Return a new key as the caller must keep it, and as we keep it."""
    key_id, secret = secrets.token_hex(8), secrets.token_urlsafe(32)
    record = KeyRecord(key_id, owner, _digest(secret), now, expires_at, None, name)
    return f"{_PREFIX}_{key_id}_{secret}", record


@lru_cache(maxsize=256)
def is_loopback_name(host: str) -> bool:
    """Say whether a host name, with or without a port, can only mean this machine."""
    name = _host_of(f"//{host}")
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name == "localhost" or name.endswith(".localhost")


class Auth:
    """Finds the owner of a request. `now` is the time in seconds since the epoch."""

    def __init__(self, store: Store, now: Callable[[], int], *, require_keys: bool) -> None:
        self._store = store
        self._now = now
        self._require_keys = require_keys
        self._seen: dict[bytes, tuple[int, str]] = {}

    async def owner(self, request: web.BaseRequest) -> str:
        """Return who asks. Raise Unauthorized or Forbidden."""
        token = _bearer(request)
        if not self._require_keys:
            check_origin(request)
            if not token.startswith(f"{_PREFIX}_"):
                return LOCAL_OWNER  # clients on loopback send any placeholder
        elif not token:
            raise Unauthorized("an API key is required: Authorization: Bearer ak_…")
        return await self._owner_of(token)

    async def _owner_of(self, token: str) -> str:
        digest = _digest(token)
        until, owner = self._seen.get(digest, (0, ""))
        if self._now() < until:
            return owner
        owner = await self._look_up(token)
        if len(self._seen) >= _MAX_REMEMBERED:
            self._seen.clear()
        self._seen[digest] = (self._now() + _REMEMBER_SECONDS, owner)
        return owner

    async def _look_up(self, token: str) -> str:
        _, _, rest = token.partition("_")
        key_id, _, secret = rest.partition("_")
        record = await self._store.find_key(key_id)
        stored = record.digest if record else b""
        is_right = hmac.compare_digest(_digest(secret), stored)
        if record is None or not is_right or not self._is_in_force(record):
            raise Unauthorized(
                "the API key is not valid; `antiphon keys list` shows those that are"
            )
        return record.owner

    def _is_in_force(self, record: KeyRecord) -> bool:
        now = self._now()
        return record.revoked_at is None and (record.expires_at is None or now < record.expires_at)


def check_origin(request: web.BaseRequest) -> None:
    """Raise Forbidden if a keyless request was not meant for this machine."""
    headers = request.headers
    hosts = headers.getall("Host", ())
    if len(hosts) != 1 or not is_loopback_name(hosts[0]):
        raise Forbidden("without keys only loopback host names are answered")
    origin = headers.get("Origin")
    if origin is not None and not is_loopback_name(origin.partition("//")[2]):
        raise Forbidden("without keys only pages of this machine are answered")


def _host_of(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:  # a bracket that does not close
        return ""


def _bearer(request: web.BaseRequest) -> str:
    given = request.headers.get("Authorization")
    if given is None:
        return ""
    scheme, _, token = given.partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def _digest(secret: str) -> bytes:
    # A header may hold bytes that are no UTF-8; aiohttp hands them on as halves of characters.
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).digest()
