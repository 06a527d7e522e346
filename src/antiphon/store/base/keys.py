"""Facet `keys`: API keys, and the secrets that the gateway makes for itself."""

from __future__ import annotations

from typing import Protocol

import msgspec

__all__ = ["KeyRecord", "Keys"]


class KeyRecord(msgspec.Struct, frozen=True):
    """An API key as it is stored: never the secret, only its digest."""

    id: str
    owner: str
    digest: bytes
    created_at: int
    expires_at: int | None = None
    revoked_at: int | None = None
    name: str = ""


class Keys(Protocol):
    """Stores API keys of all owners."""

    async def secret(self, name: str, value: bytes) -> bytes:
        """Return the secret of this name; if there is none, store and return this value."""
        ...

    async def add_key(self, key: KeyRecord) -> None:
        """Store a new key. Raise ValueError if its id is taken."""
        ...

    async def find_key(self, key_id: str) -> KeyRecord | None:
        """Return the key with this id, revoked or not."""
        ...

    async def list_keys(self) -> list[KeyRecord]:
        """Return every key, oldest first."""
        ...

    async def revoke_key(self, key_id: str, now: int) -> bool:
        """Mark a key as revoked; return whether there was one in force."""
        ...
