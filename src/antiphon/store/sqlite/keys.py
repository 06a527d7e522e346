"""Facet `keys` in SQLite: API keys of all owners, and the secrets of the gateway."""

from __future__ import annotations

import sqlite3
from typing import Final

import msgspec

from antiphon.store.base import KeyRecord
from antiphon.store.encoding import is_storable
from antiphon.store.sqlite.facet import Facet

__all__ = ["SqliteKeys"]

_SELECT_KEYS: Final = "SELECT id, owner, digest, created_at, expires_at, revoked_at, name FROM keys"
_INSERT_KEY: Final = """
    INSERT OR IGNORE INTO keys (id, owner, digest, created_at, expires_at, revoked_at, name)
    VALUES (:id, :owner, :digest, :created_at, :expires_at, :revoked_at, :name)
"""
_REVOKE_KEY: Final = """
    UPDATE keys SET revoked_at = :now WHERE id = :id AND revoked_at IS NULL
        AND (expires_at IS NULL OR expires_at > :now)
"""


class SqliteKeys(Facet):
    """See `Keys` for what the methods do."""

    async def secret(self, name: str, value: bytes) -> bytes:
        def run(connection: sqlite3.Connection) -> bytes:
            connection.execute(
                "INSERT OR IGNORE INTO secrets (name, value) VALUES (?, ?)", (name, value)
            )
            row = connection.execute("SELECT value FROM secrets WHERE name = ?", (name,)).fetchone()
            return bytes(row[0])

        return await self._writer.call(run)

    async def add_key(self, key: KeyRecord) -> None:
        if not await self._writer.execute(_INSERT_KEY, msgspec.structs.asdict(key)):
            raise ValueError(f"there already is a key {key.id!r}")

    async def find_key(self, key_id: str) -> KeyRecord | None:
        if not is_storable(key_id):
            return None
        rows = await self._reader.fetch(f"{_SELECT_KEYS} WHERE id = ?", (key_id,))
        return KeyRecord(*rows[0]) if rows else None

    async def list_keys(self) -> list[KeyRecord]:
        rows = await self._reader.fetch(f"{_SELECT_KEYS} ORDER BY created_at, rowid")
        return [KeyRecord(*row) for row in rows]

    async def revoke_key(self, key_id: str, now: int) -> bool:
        if not is_storable(key_id):
            return False
        return await self._writer.execute(_REVOKE_KEY, {"id": key_id, "now": now}) == 1
