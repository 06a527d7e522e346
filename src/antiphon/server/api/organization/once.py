"""How an object is created once, also if the request is sent again.

The Idempotency-Key is claimed with a random seed, and what is created is named after the seed, so
a second attempt finds it. The secret of a new key is never stored. With an Idempotency-Key it is
computed from the seed and the caller's own credential, so the same caller gets the same secret
again, and a copy of the store does not reveal it.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from typing import Final

import msgspec

from antiphon.accounts.principal import LOCAL
from antiphon.protocol.errors import Conflict
from antiphon.server.api.objects import read_once
from antiphon.server.api.request_keys import check_same
from antiphon.server.app import Call

__all__ = ["Attempt", "begin_once", "secret_is_gone"]

_SEED_BYTES: Final = 16


class Attempt(msgspec.Struct, frozen=True):
    """A request that creates something. `is_again` means that it was sent before."""

    seed: str
    is_again: bool = False
    is_named: bool = False
    """Whether the caller sent an Idempotency-Key."""

    def derive(self, purpose: str) -> str:
        """Return a short name that is the same for each attempt."""
        return hashlib.sha256(f"{purpose}:{self.seed}".encode()).hexdigest()[:16]

    def secret(self, call: Call) -> str:
        """Return a secret that is the same for each attempt of a caller with a credential."""
        headers = call.request.headers
        credential = headers.get("Authorization") or headers.get("x-api-key") or ""
        if not self.is_named or call.principal == LOCAL:
            return secrets.token_urlsafe(32)
        mixed = hmac.digest(
            credential.encode("utf-8", "surrogateescape"), self.seed.encode(), "sha256"
        )
        return base64.urlsafe_b64encode(mixed).rstrip(b"=").decode()


async def begin_once(call: Call, resource: str) -> Attempt:
    """Claim the Idempotency-Key of the request, if it has one. Raise Mismatch."""
    once = await read_once(call, resource)
    seed = secrets.token_hex(_SEED_BYTES)
    if once is None:
        return Attempt(seed)
    claims, owner = call.app.engine.store.claims, call.owner
    # Found also if its holder has died: what it made is there nevertheless.
    found = await claims.find(owner, once.token)
    if once.earlier(found) is None and found is not None:
        await claims.release(owner, once.token, found.response_id)
        found = None
    if found is None:
        found = await claims.take(owner, once.token, once.digest, seed, once.now)
    if found is None:
        return Attempt(seed, is_named=True)
    check_same(once, found)
    return Attempt(found.response_id, is_again=True, is_named=True)


def secret_is_gone() -> Conflict:
    """Return the error for a key that was created before, with a secret that cannot be shown."""
    return Conflict(
        "the secret that this Idempotency-Key has made cannot be shown again to this credential;"
        " use a new Idempotency-Key",
        code="secret_not_available",
    )
