"""Which principal sends a request? Keys, tokens of issuers, and `local`, who needs neither.

A key reads `ak_<id>_<secret>`. We keep the SHA-256 of the secret, look the key up by its id and
compare in constant time. While a key is rotated, two secrets are good. A token is a JWT of an
issuer that the settings name (see `issuers`). Without `require_keys`, a caller without a key is
the owner `local`; `origin` has checked by then that the request comes from this machine.

What a look-up found is remembered for half a second by the monotonic clock, so that a revoked key
is refused within a second, also when the wall clock is set. What a role may do is in `roles`.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections.abc import Callable
from typing import Final

from aiohttp import web

from antiphon.accounts.principal import LOCAL, Principal, Role
from antiphon.protocol.errors import Unauthorized
from antiphon.server.issuers import Issuers, looks_like_token
from antiphon.server.key_uses import KeyUses
from antiphon.store.base import Access, KeyRecord, Keys

__all__ = ["Auth", "digest_of_secret", "new_key", "new_secret", "redact"]

_PREFIX: Final = "ak"
_REMEMBER_SECONDS: Final = 0.5
_MAX_REMEMBERED: Final = 10_000
_HINT_CHARS: Final = 4


def new_key(
    owner: str,
    now: int,
    *,
    name: str = "",
    expires_at: int | None = None,
    role: Role = "user",
    user: str | None = None,
    models: tuple[str, ...] | None = None,
    never_store: bool = False,
    run_budget: int | None = None,
    max_run_budget: int | None = None,
) -> tuple[str, KeyRecord]:
    """Return a new key as the caller must keep it, and as we keep it."""
    key_id = secrets.token_hex(8)
    key, digest, hint = new_secret(key_id)
    record = KeyRecord(
        key_id,
        owner,
        digest,
        now,
        expires_at,
        name=name,
        role=role,
        user=user,
        models=models,
        never_store=never_store,
        hint=hint,
        run_budget=run_budget,
        max_run_budget=max_run_budget,
    )
    return key, record


def new_secret(key_id: str, secret: str | None = None) -> tuple[str, bytes, str]:
    """Return a key with a new secret, and the digest and the hint of that secret."""
    secret = secret or secrets.token_urlsafe(32)
    return f"{_PREFIX}_{key_id}_{secret}", digest_of_secret(secret), secret[-_HINT_CHARS:]


def redact(record: KeyRecord) -> str:
    """Return a key as it may be shown: enough to recognise it, too little to use it."""
    return f"{_PREFIX}_{record.id[:4]}…{record.hint}"


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
        issuers: Issuers | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._now = now
        self._clock = clock
        self._require_keys = require_keys
        self.issuers = issuers
        self._seen: dict[bytes, tuple[float, Principal]] = {}
        self.uses = KeyUses(store, now)

    async def principal(self, request: web.BaseRequest) -> Principal:
        """Return who asks. Raise Unauthorized, or NotAllowed for a project that is not known."""
        token = _token(request)
        is_key = token.startswith(f"{_PREFIX}_")
        is_token = self.issuers is not None and not is_key and looks_like_token(token)
        if not self._require_keys and not is_key and not is_token:
            return LOCAL  # clients on loopback send any placeholder
        if not token:
            raise Unauthorized("an API key is required: Authorization: Bearer ak_…")
        return await self._principal_with(token, is_token=is_token)

    def likely_owner(self, request: web.BaseRequest) -> str | None:
        """Return whose key this was when it was looked up last; it may not be valid any more."""
        seen = self._seen.get(digest_of_secret(_token(request)))
        return None if seen is None else seen[1].owner

    def use_issuers(self, issuers: Issuers | None) -> None:
        """Take the tokens of these issuers from now on, and look up all keys again."""
        self.issuers = issuers
        self._seen = {}  # another one: a look-up under way must not note what it finds

    async def close(self) -> None:
        """Write what was noted, and close the connections to issuers."""
        await self.uses.settled()
        if self.issuers is not None:
            await self.issuers.close()

    async def _principal_with(self, token: str, *, is_token: bool) -> Principal:
        digest = digest_of_secret(token)
        seen = self._seen.get(digest)
        if seen is not None and self._clock() < seen[0]:
            return seen[1]
        # Counted from before the look-up: what it finds may be old when it arrives.
        until = self._clock() + _REMEMBER_SECONDS
        memory = self._seen
        if is_token and self.issuers is not None:
            principal = await self.issuers.principal(token)
        else:
            principal = await self._look_up(token)
        if len(memory) >= _MAX_REMEMBERED:
            memory.clear()
        memory[digest] = (until, principal)
        return principal

    async def _look_up(self, token: str) -> Principal:
        prefix, _, rest = token.partition("_")
        key_id, _, secret = rest.partition("_")
        found = await self._store.find_accesses([key_id]) if prefix == _PREFIX else {}
        access = found.get(key_id)
        digest = digest_of_secret(secret)
        is_right = _is_right(digest, access, self._now())
        if access is None or not is_right or not self._is_in_force(access):
            raise Unauthorized(
                "the API key is not valid; `antiphon keys list` shows those that are"
            )
        self.uses.note(key_id)
        key = access.key
        return Principal(
            key.owner,
            key.id,
            role=key.role,
            user=key.user,
            models=key.models,
            never_store=access.never_store,
            secret=digest,
            run_budget=key.run_budget,
            max_run_budget=key.max_run_budget,
        )

    def _is_in_force(self, access: Access) -> bool:
        key, now = access.key, self._now()
        is_over = key.expires_at is not None and now >= key.expires_at
        return key.revoked_at is None and not is_over and not access.is_archived


def digest_of_secret(secret: str) -> bytes:
    """Return what is stored of a secret."""
    # A header may hold bytes that are no UTF-8; aiohttp hands them on as halves of characters.
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).digest()


def _is_right(digest: bytes, access: Access | None, now: int) -> bool:
    """Return whether the secret is one of the key's two; as slow for each outcome."""
    key = access.key if access is not None else None
    current = key.digest if key is not None else b""
    previous = (key.previous_digest if key is not None else None) or b""
    is_current = hmac.compare_digest(digest, current)
    is_previous = hmac.compare_digest(digest, previous)
    until = key.previous_until if key is not None else None
    return is_current or (is_previous and until is not None and now < until)


def _token(request: web.BaseRequest) -> str:
    """Return the key that was sent, by the header of OpenAI's clients or of Anthropic's."""
    given = request.headers.get("Authorization")
    if given is None:
        return request.headers.get("x-api-key", "").strip()
    scheme, _, token = given.partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""
