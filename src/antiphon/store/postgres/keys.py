"""Facet `keys` in PostgreSQL: API keys of all owners, and the secrets of the gateway."""

from __future__ import annotations

from typing import Final

import msgspec

from antiphon.store.base import KeyRecord
from antiphon.store.postgres.database import Connection
from antiphon.store.postgres.facet import Facet
from antiphon.store.postgres.rows import is_text

__all__ = ["PostgresKeys"]

_SELECT_KEYS: Final = "SELECT id, owner, digest, created_at, expires_at, revoked_at, name FROM keys"
_INSERT_KEY: Final = """
    INSERT INTO keys (id, owner, digest, created_at, expires_at, revoked_at, name)
    VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (id) DO NOTHING RETURNING TRUE
"""
_REVOKE_KEY: Final = """
    UPDATE keys SET revoked_at = $2 WHERE id = $1 AND revoked_at IS NULL
        AND (expires_at IS NULL OR expires_at > $2) RETURNING TRUE
"""


class PostgresKeys(Facet):
    """See `Keys` for what the methods do."""

    async def secret(self, name: str, value: bytes) -> bytes:
        async def run(connection: Connection) -> bytes:
            await connection.execute(
                "INSERT INTO secrets (name, value) VALUES ($1, $2) ON CONFLICT (name) DO NOTHING",
                name,
                value,
            )
            found: bytes = await connection.fetchval(
                "SELECT value FROM secrets WHERE name = $1", name
            )
            return found

        return await self._database.change(run)

    async def add_key(self, key: KeyRecord) -> None:
        values = msgspec.structs.astuple(key)
        if not await self._database.change(
            lambda connection: connection.fetchval(_INSERT_KEY, *values)
        ):
            raise ValueError(f"there already is a key {key.id!r}")

    async def find_key(self, key_id: str) -> KeyRecord | None:
        if not is_text(key_id):
            return None
        rows = await self._database.ask_rows(f"{_SELECT_KEYS} WHERE id = $1", key_id)
        return KeyRecord(*rows[0]) if rows else None

    async def list_keys(self) -> list[KeyRecord]:
        rows = await self._database.ask_rows(f"{_SELECT_KEYS} ORDER BY created_at, number")
        return [KeyRecord(*row) for row in rows]

    async def revoke_key(self, key_id: str, now: int) -> bool:
        if not is_text(key_id):
            return False
        found = await self._database.change(
            lambda connection: connection.fetchval(_REVOKE_KEY, key_id, now)
        )
        return found is not None
