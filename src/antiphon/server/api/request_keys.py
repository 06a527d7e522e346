"""What names a request, so that it is recognised when it is sent again?

A caller names it with an `Idempotency-Key`; SDKs that send none count their tries. A digest of
the path and the body shows whether a key was used for something else before. What becomes of a
request for a response is in `idempotency`. A request that changes the store in one step claims
its key in that same step (`ClaimRequest`): it was done under this key, or it was not.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping
from typing import Final

from antiphon.protocol.errors import CallerError, InvalidRequest
from antiphon.store.base import Claim, ClaimRequest

__all__ = [
    "KEY_SECONDS",
    "REPLAYED",
    "Mismatch",
    "check_same",
    "digest_of",
    "read_claim",
    "read_key",
    "read_retries",
]

KEY_SECONDS: Final = 86_400
"""How long a key stands for one request."""
REPLAYED: Final = "x-antiphon-replayed"
"""The header of an answer that was given before."""
_KEY_HEADER: Final = "idempotency-key"
_MAX_KEY: Final = 255
_HASH_ON_LOOP_BYTES: Final = 256 * 1024


class Mismatch(CallerError):
    """The key was used for another body."""

    status = 422
    code = "idempotency_mismatch"

    def __init__(self) -> None:
        super().__init__(
            "this Idempotency-Key was used for another body; use a new key for a new request",
            param="Idempotency-Key",
        )


def read_key(headers: Mapping[str, str]) -> str | None:
    """Return the caller's key, None without one. Raise InvalidRequest if it is invalid."""
    key = headers.get(_KEY_HEADER)
    if key is None:
        return None
    times = sum(name.lower() == _KEY_HEADER for name, _ in headers.items())
    if times > 1 or not 1 <= len(key) <= _MAX_KEY or not key.isprintable():
        raise InvalidRequest(
            f"Idempotency-Key must be given once, as 1 to {_MAX_KEY} printable characters",
            code="invalid_value",
            param="Idempotency-Key",
        )
    return key


def read_retries(headers: Mapping[str, str]) -> int | None:
    """Return how many tries an SDK has made before; None if it sends no count."""
    text = headers.get("x-stainless-retry-count")
    return int(text) if text and text.isdecimal() and len(text) <= 9 else None


async def digest_of(path: str, data: bytes) -> bytes:
    """Return what stands for a body that was posted to this path."""
    salted = hashlib.sha256(f"POST {path}\n".encode())
    if len(data) > _HASH_ON_LOOP_BYTES:
        await asyncio.to_thread(salted.update, data)
    else:
        salted.update(data)
    return salted.digest()


async def read_claim(
    headers: Mapping[str, str],
    path: str,
    data: bytes,
    now: int,
    resource: str = "conversations",
) -> ClaimRequest | None:
    """Return what to claim together with the change that this request makes, if it has a key.

    A key means one request for each `resource`.
    """
    key = read_key(headers)
    if key is None:
        return None
    digest = await digest_of(path, data)
    return ClaimRequest(f"{resource}:{key}", digest, now, now - KEY_SECONDS)


def check_same(once: ClaimRequest | None, claim: Claim) -> None:
    """Raise Mismatch if the key was used for another body or another path."""
    if once is not None and claim.digest != once.digest:
        raise Mismatch
