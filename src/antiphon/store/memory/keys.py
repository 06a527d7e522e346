"""Facet `keys` in memory."""

from __future__ import annotations

import msgspec

from antiphon.store.base import KeyRecord

__all__ = ["MemoryKeys"]


class MemoryKeys:
    """API keys by id."""

    def __init__(self) -> None:
        self._keys: dict[str, KeyRecord] = {}

    def add(self, key: KeyRecord) -> None:
        """Store a new key. Raise ValueError if its id is taken."""
        if key.id in self._keys:
            raise ValueError(f"there already is a key {key.id!r}")
        self._keys[key.id] = key

    def find(self, key_id: str) -> KeyRecord | None:
        """Return the key with this id, revoked or not."""
        return self._keys.get(key_id)

    def all(self) -> list[KeyRecord]:
        """Return every key, oldest first."""
        return sorted(self._keys.values(), key=lambda key: key.created_at)

    def revoke(self, key_id: str, now: int) -> bool:
        """Mark a key as revoked; return whether there was one in force."""
        key = self._keys.get(key_id)
        if key is None or key.revoked_at is not None:
            return False
        if key.expires_at is not None and key.expires_at <= now:
            return False
        self._keys[key_id] = msgspec.structs.replace(key, revoked_at=now)
        return True

    def clear(self) -> None:
        """Remove everything."""
        self._keys.clear()
