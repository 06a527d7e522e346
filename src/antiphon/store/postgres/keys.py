"""Facet `keys` in PostgreSQL: API keys of all owners, and the secrets of the gateway."""

from __future__ import annotations

from typing import Final

import msgspec

from antiphon.store.base import KeyRecord
from antiphon.store.postgres.database import Connection

__all__ = ["add_key", "find_key", "keep_secret", "list_keys", "revoke_key"]

_SELECT_KEYS: Final = "SELECT id, owner, digest, created_at, expires_at, revoked_at, name FROM keys"


async def add_key(connection: Connection, key: KeyRecord) -> bool:
    """Insert a key; False if its id is taken."""
    found = await connection.fetchval(
        "INSERT INTO keys (id, owner, digest, created_at, expires_at, revoked_at, name)"
        " VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (id) DO NOTHING RETURNING TRUE",
        *msgspec.structs.astuple(key),
    )
    return found is not None


async def find_key(connection: Connection, key_id: str) -> KeyRecord | None:
    """Return the key with this id."""
    row = await connection.fetchrow(f"{_SELECT_KEYS} WHERE id = $1", key_id)
    return None if row is None else KeyRecord(*row)


async def list_keys(connection: Connection) -> list[KeyRecord]:
    """Return every key, oldest first."""
    rows = await connection.fetch(f"{_SELECT_KEYS} ORDER BY created_at, number")
    return [KeyRecord(*row) for row in rows]


async def revoke_key(connection: Connection, key_id: str, now: int) -> bool:
    """Revoke a key that is in force; return whether there was one."""
    found = await connection.fetchval(
        "UPDATE keys SET revoked_at = $2 WHERE id = $1 AND revoked_at IS NULL"
        " AND (expires_at IS NULL OR expires_at > $2) RETURNING TRUE",
        key_id,
        now,
    )
    return found is not None


async def keep_secret(connection: Connection, name: str, value: bytes) -> bytes:
    """Return the secret of this name; if it is new, store this value first."""
    await connection.execute(
        "INSERT INTO secrets (name, value) VALUES ($1, $2) ON CONFLICT (name) DO NOTHING",
        name,
        value,
    )
    found: bytes = await connection.fetchval("SELECT value FROM secrets WHERE name = $1", name)
    return found
