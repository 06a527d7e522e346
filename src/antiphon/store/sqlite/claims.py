"""Facet `claims` in SQLite. A claim is held while the store that took it is alive.

A function gets a connection inside a transaction, which the caller begins and commits.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from functools import partial

from antiphon.store.base import Claim, ClaimRequest
from antiphon.store.encoding import is_storable
from antiphon.store.sqlite.presence import Presence
from antiphon.store.sqlite.worker import Reader, Writer

__all__ = ["SqliteClaims", "earlier_claim", "note_once", "sweep_claims"]

_IsAlive = Callable[[str], bool]


class SqliteClaims:
    """See `Claims` for what the methods do."""

    def __init__(self, writer: Writer, reader: Reader, presence: Presence) -> None:
        self._writer = writer
        self._reader = reader
        self._presence = presence

    async def take(
        self, owner: str, token: str, digest: bytes, response_id: str, now: int
    ) -> Claim | None:
        """Claim the token; return None, or the claim that is there already."""
        return await self._writer.call(
            partial(
                _take,
                owner=owner,
                token=token,
                claim=Claim(digest, response_id, now, is_held=True),
                writer=self._presence.name,
                is_alive=self._presence.is_alive,
            )
        )

    async def note(self, owner: str, token: str, digest: bytes, response_id: str, now: int) -> None:
        """Queue the claim to be written, in place of any older one."""
        run = partial(
            _note,
            owner=owner,
            token=token,
            claim=Claim(digest, response_id, now, is_held=True),
            writer=self._presence.name,
        )
        self._writer.post(run, len(token) + len(digest))

    async def find(self, owner: str, token: str) -> Claim | None:
        """Return the claim on this token, also if it is still queued."""
        if not is_storable(token):
            return None
        run = partial(_find, owner=owner, token=token, is_alive=self._presence.is_alive)
        worker = self._writer if self._writer.is_busy else self._reader
        return await worker.call(run)

    async def release(self, owner: str, token: str, response_id: str) -> None:
        """Remove the claim if it leads to this response."""
        await self._writer.call(
            partial(_release, owner=owner, token=token, response_id=response_id)
        )


def earlier_claim(
    connection: sqlite3.Connection, owner: str, once: ClaimRequest | None, is_alive: _IsAlive
) -> Claim | None:
    """Return the claim on this token that exists already, if it still counts."""
    found = None if once is None else _find(connection, owner, once.token, is_alive)
    return None if once is None or found is None or found.created_at < once.since else found


def note_once(
    connection: sqlite3.Connection, owner: str, once: ClaimRequest | None, made: str, writer: str
) -> None:
    """Claim the token for what was made in this transaction, in place of any older claim."""
    if once is not None:
        claim = Claim(once.digest, made, once.now, is_held=True)
        _note(connection, owner, once.token, claim, writer)


def sweep_claims(connection: sqlite3.Connection, before: int, limit: int) -> int:
    """Remove the oldest claims that were made before this time, `limit` at most."""
    cursor = connection.execute(
        "DELETE FROM claims WHERE (owner, token) IN ("
        " SELECT owner, token FROM claims WHERE created_at < ? ORDER BY created_at LIMIT ?)",
        (before, limit),
    )
    return cursor.rowcount


def _take(
    connection: sqlite3.Connection,
    owner: str,
    token: str,
    claim: Claim,
    writer: str,
    is_alive: _IsAlive,
) -> Claim | None:
    """Claim the token unless it is claimed; return the claim that exists already."""
    found = _find(connection, owner, token, is_alive)
    if found is not None and (found.is_held or _led(connection, owner, found.response_id)):
        return found
    _note(connection, owner, token, claim, writer)
    return None


def _note(
    connection: sqlite3.Connection, owner: str, token: str, claim: Claim, writer: str
) -> None:
    """Claim the token, in place of any older claim."""
    connection.execute(
        "INSERT OR REPLACE INTO claims (owner, token, digest, response, created_at, writer)"
        " VALUES (?, ?, ?, ?, ?, ?)",
        (owner, token, claim.digest, claim.response_id, claim.created_at, writer),
    )


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


def _release(connection: sqlite3.Connection, owner: str, token: str, response_id: str) -> None:
    """Remove the claim if it leads to this response."""
    connection.execute(
        "DELETE FROM claims WHERE owner = ? AND token = ? AND response = ?",
        (owner, token, response_id),
    )


def _led(connection: sqlite3.Connection, owner: str, response_id: str) -> bool:
    row = connection.execute(
        "SELECT 1 FROM responses WHERE owner = ? AND id = ?", (owner, response_id)
    ).fetchone()
    return row is not None
