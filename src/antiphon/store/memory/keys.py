"""Facet `keys` in memory: API keys of all owners, and the secrets of the gateway."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

import msgspec

from antiphon.store.base import Access, AuditRecord, KeyChange, KeyRecord
from antiphon.store.base.projects import Project
from antiphon.store.key_rules import access_of, apply_change, is_in_force, rotate
from antiphon.store.memory.audit import MemoryAudit

__all__ = ["MemoryKeys"]


class MemoryKeys:
    """See `Keys` for what the methods do.

    `project_of` returns the project of an owner if it has a row of its own.
    """

    def __init__(
        self,
        check_open: Callable[[], None],
        audit: MemoryAudit,
        project_of: Callable[[str], Project | None],
    ) -> None:
        self._check_keys = check_open
        self._key_audit = audit
        self._project_of = project_of
        self._keys: dict[str, KeyRecord] = {}
        self._secrets: dict[str, bytes] = {}

    async def secret(self, name: str, value: bytes) -> bytes:
        self._check_keys()
        return self._secrets.setdefault(name, value)

    async def add_key(self, key: KeyRecord, *, audit: AuditRecord | None = None) -> None:
        self._check_keys()
        if key.id in self._keys:
            raise ValueError(f"there already is a key {key.id!r}")
        self._keys[key.id] = key
        self._key_audit.add_if(audit)

    async def find_key(self, key_id: str) -> KeyRecord | None:
        self._check_keys()
        return self._keys.get(key_id)

    async def find_accesses(self, key_ids: Collection[str]) -> dict[str, Access]:
        self._check_keys()
        found = (self._keys[key_id] for key_id in key_ids if key_id in self._keys)
        return {key.id: access_of(key, self._project_of(key.owner)) for key in found}

    async def list_keys(self, owner: str | None = None) -> list[KeyRecord]:
        self._check_keys()
        return sorted(self.keys_of(owner), key=lambda key: key.created_at)

    async def update_key(
        self, key_id: str, change: KeyChange, *, audit: AuditRecord | None = None
    ) -> KeyRecord | None:
        key = await self.find_key(key_id)
        return None if key is None else self._put(apply_change(key, change), audit)

    async def rotate_key(
        self,
        key_id: str,
        digest: bytes,
        hint: str,
        *,
        now: int,
        until: int,
        audit: AuditRecord | None = None,
    ) -> KeyRecord | None:
        key = await self.find_key(key_id)
        rotated = rotate(key, digest, hint, now, until)
        if rotated is None or rotated is key:
            return rotated
        return self._put(rotated, audit)

    async def revoke_key(self, key_id: str, now: int, *, audit: AuditRecord | None = None) -> bool:
        key = await self.find_key(key_id)
        if key is None or not is_in_force(key, now):
            return False
        self._put(msgspec.structs.replace(key, revoked_at=now), audit)
        return True

    async def note_uses(self, times: Mapping[str, int]) -> None:
        self._check_keys()
        for key_id, time in times.items():
            key = self._keys.get(key_id)
            if key is not None and (key.last_used_at is None or key.last_used_at < time):
                self._keys[key_id] = msgspec.structs.replace(key, last_used_at=time)

    def keys_of(self, owner: str | None = None) -> list[KeyRecord]:
        """Return all keys, or those of an owner."""
        return [key for key in self._keys.values() if owner in (None, key.owner)]

    def count_of(self, owner: str) -> dict[str, int]:
        """Return how many keys an owner has."""
        return {"keys": len(self.keys_of(owner))}

    def forget_owner(self, owner: str) -> None:
        """Remove the keys of an owner."""
        self._keys = {name: key for name, key in self._keys.items() if key.owner != owner}

    def clear_keys(self) -> None:
        """Remove everything."""
        self._keys.clear()
        self._secrets.clear()

    def _put(self, key: KeyRecord, audit: AuditRecord | None) -> KeyRecord:
        self._keys[key.id] = key
        self._key_audit.add_if(audit)
        return key
