"""Facet `claims` in SQLite. A claim is held while the store that took it is alive.

A function gets a connection inside a transaction, which the caller begins and commits.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Final

from antiphon.store.base import Claim, ClaimRequest
from antiphon.store.encoding import is_storable
from antiphon.store.sqlite.presence import Presence
from antiphon.store.sqlite.worker import Reader, Writer

__all__ = ["SqliteClaims", "earlier_claim", "note_once"]

_IsAlive = Callable[[str], bool]

# In place of any older claim.
_NOTE: Final = """
    INSERT OR REPLACE INTO claims (owner, token, digest, response, created_at, writer)
    VALUES (?, ?, ?, ?, ?, ?)
"""
_SWEEP: Final = """
    DELETE FROM claims WHERE (owner, token) IN (
        SELECT owner, token FROM claims WHERE created_at < ? ORDER BY created_at LIMIT ?)
"""


class SqliteClaims:
    """See `Claims` for what the methods do."""

    def __init__(self, writer: Writer, reader: Reader, presence: Presence) -> None:
        self._writer = writer
        self._reader = reader
        self._presence = presence

    async def take(
        self, owner: str, token: str, digest: bytes, response_id: str, now: int
    ) -> Claim | None:
        def run(connection: sqlite3.Connection) -> Claim | None:
            found = _find(connection, owner, token, self._presence.is_alive)
            if found is not None and (found.is_held or _led(connection, owner, found.response_id)):
                return found
            values = (owner, token, digest, response_id, now, self._presence.name)
            connection.execute(_NOTE, values)
            return None

        return await self._writer.call(run)

    async def note(self, owner: str, token: str, digest: bytes, response_id: str, now: int) -> None:
        """Queue the claim to be written, in place of any older one."""
        values = (owner, token, digest, response_id, now, self._presence.name)
        self._writer.post(
            lambda connection: connection.execute(_NOTE, values).rowcount,
            len(token) + len(digest),
        )

    async def find(self, owner: str, token: str) -> Claim | None:
        """Return the claim on this token, also if it is still queued."""
        if not is_storable(token):
            return None
        worker = self._writer if self._writer.is_busy else self._reader
        return await worker.call(
            lambda connection: _find(connection, owner, token, self._presence.is_alive)
        )

    async def release(self, owner: str, token: str, response_id: str) -> None:
        statement = "DELETE FROM claims WHERE owner = ? AND token = ? AND response = ?"
        await self._writer.execute(statement, (owner, token, response_id))

    async def sweep(self, before: int, limit: int) -> int:
        """Remove the oldest claims made before this time, `limit` at most; return how many."""
        return await self._writer.execute(_SWEEP, (before, limit))


def earlier_claim(
    connection: sqlite3.Connection, owner: str, once: ClaimRequest | None, is_alive: _IsAlive
) -> Claim | None:
    """Return the claim on this token that exists already, if it still counts."""
    if once is None:
        return None
    return once.earlier(_find(connection, owner, once.token, is_alive))


def note_once(
    connection: sqlite3.Connection, owner: str, once: ClaimRequest | None, made: str, writer: str
) -> None:
    """Claim the token for what was made in this transaction, in place of any older claim."""
    if once is not None:
        values = (owner, once.token, once.digest, made, once.now, writer)
        connection.execute(_NOTE, values)


def _find(
    connection: sqlite3.Connection, owner: str, token: str, is_alive: _IsAlive
) -> Claim | None:
    """Return the claim on this token; it is held for as long as its writer is alive."""
    row = connection.execute(
        "SELECT digest, response, created_at, writer FROM claims WHERE owner = ? AND token = ?",
        (owner, token),
    ).fetchone()
    if row is None:
        return None
    digest, response_id, created_at, writer = row
    return Claim(digest, response_id, created_at, is_held=is_alive(writer))


def _led(connection: sqlite3.Connection, owner: str, response_id: str) -> bool:
    row = connection.execute(
        "SELECT 1 FROM responses WHERE owner = ? AND id = ?", (owner, response_id)
    ).fetchone()
    return row is not None
