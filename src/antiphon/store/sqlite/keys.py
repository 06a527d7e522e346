"""Facet `keys` in SQLite: API keys of all owners, and the secrets of the gateway.

A function gets a connection inside a transaction, which the caller begins and commits.
"""

from __future__ import annotations

import sqlite3
from typing import Final

import msgspec

from antiphon.store.base import KeyRecord

__all__ = ["add_key", "find_key", "keep_secret", "list_keys", "revoke_key"]

_SELECT_KEYS: Final = "SELECT id, owner, digest, created_at, expires_at, revoked_at, name FROM keys"


def add_key(connection: sqlite3.Connection, key: KeyRecord) -> bool:
    """Insert a key; False if its id is taken."""
    cursor = connection.execute(
        "INSERT OR IGNORE INTO keys"
        " (id, owner, digest, created_at, expires_at, revoked_at, name)"
        " VALUES (:id, :owner, :digest, :created_at, :expires_at, :revoked_at, :name)",
        msgspec.structs.asdict(key),
    )
    return cursor.rowcount == 1


def find_key(connection: sqlite3.Connection, key_id: str) -> KeyRecord | None:
    """Return the key with this id."""
    row = connection.execute(f"{_SELECT_KEYS} WHERE id = ?", (key_id,)).fetchone()
    return None if row is None else KeyRecord(*row)


def list_keys(connection: sqlite3.Connection) -> list[KeyRecord]:
    """Return every key, oldest first."""
    rows = connection.execute(f"{_SELECT_KEYS} ORDER BY created_at, rowid")
    return [KeyRecord(*row) for row in rows]


def revoke_key(connection: sqlite3.Connection, key_id: str, now: int) -> bool:
    """Revoke a key that is in force; return whether there was one."""
    cursor = connection.execute(
        "UPDATE keys SET revoked_at = :now WHERE id = :id AND revoked_at IS NULL"
        " AND (expires_at IS NULL OR expires_at > :now)",
        {"id": key_id, "now": now},
    )
    return cursor.rowcount == 1


def keep_secret(connection: sqlite3.Connection, name: str, value: bytes) -> bytes:
    """Return the secret of this name; if it is new, store this value first."""
    connection.execute("INSERT OR IGNORE INTO secrets (name, value) VALUES (?, ?)", (name, value))
    row = connection.execute("SELECT value FROM secrets WHERE name = ?", (name,)).fetchone()
    return bytes(row[0])
