"""Which principal sends a request? Keys, and the owner `local`, who needs none.

A key reads `ak_<id>_<secret>`. We keep the SHA-256 of the secret, look the key up by its id and
compare in constant time. Without `require_keys`, a caller without a key is the owner `local`;
`origin` has checked by then that the request comes from this machine.

What a look-up found is remembered for half a second by the monotonic clock, so that a revoked key
is refused within a second, also when the wall clock is set.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections.abc import Callable
from typing import Final

from aiohttp import web

from antiphon.accounts.principal import LOCAL, Principal
from antiphon.protocol.errors import Unauthorized
from antiphon.store.base import KeyRecord, Keys

__all__ = ["Auth", "new_key"]

_PREFIX: Final = "ak"
_REMEMBER_SECONDS: Final = 0.5
_MAX_REMEMBERED: Final = 10_000


def new_key(
    owner: str, now: int, *, name: str = "", expires_at: int | None = None
) -> tuple[str, KeyRecord]:
    """Return a new key as the caller must keep it, and as we keep it."""
    key_id, secret = secrets.token_hex(8), secrets.token_urlsafe(32)
    record = KeyRecord(key_id, owner, _digest(secret), now, expires_at, None, name)
    return f"{_PREFIX}_{key_id}_{secret}", record


class Auth:
    """Finds the principal of a request.

    `now` is the time in seconds since the epoch, `clock` a monotonic one.
    """

    def __init__(
        self,
        store: Keys,
        now: Callable[[], int],
        *,
        require_keys: bool,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._now = now
        self._clock = clock
        self._require_keys = require_keys
        self._seen: dict[bytes, tuple[float, Principal]] = {}

    async def principal(self, request: web.BaseRequest) -> Principal:
        """Return who asks. Raise Unauthorized."""
        token = _token(request)
        if not self._require_keys and not token.startswith(f"{_PREFIX}_"):
            return LOCAL  # clients on loopback send any placeholder
        if not token:
            raise Unauthorized("an API key is required: Authorization: Bearer ak_…")
        return await self._principal_with(token)

    async def _principal_with(self, token: str) -> Principal:
        digest = _digest(token)
        seen = self._seen.get(digest)
        if seen is not None and self._clock() < seen[0]:
            return seen[1]
        # Counted from before the look-up: what it finds may be old when it arrives.
        until = self._clock() + _REMEMBER_SECONDS
        principal = await self._look_up(token)
        if len(self._seen) >= _MAX_REMEMBERED:
            self._seen.clear()
        self._seen[digest] = (until, principal)
        return principal

    async def _look_up(self, token: str) -> Principal:
        prefix, _, rest = token.partition("_")
        key_id, _, secret = rest.partition("_")
        record = await self._store.find_key(key_id) if prefix == _PREFIX else None
        stored = record.digest if record else b""
        is_right = hmac.compare_digest(_digest(secret), stored)
        if record is None or not is_right or not self._is_in_force(record):
            raise Unauthorized(
                "the API key is not valid; `antiphon keys list` shows those that are"
            )
        return Principal(record.owner, record.id)

    def _is_in_force(self, record: KeyRecord) -> bool:
        now = self._now()
        return record.revoked_at is None and (record.expires_at is None or now < record.expires_at)


def _token(request: web.BaseRequest) -> str:
    """Return the key that was sent, by the header of OpenAI's clients or of Anthropic's."""
    given = request.headers.get("Authorization")
    if given is None:
        return request.headers.get("x-api-key", "").strip()
    scheme, _, token = given.partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def _digest(secret: str) -> bytes:
    # A header may hold bytes that are no UTF-8; aiohttp hands them on as halves of characters.
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).digest()
