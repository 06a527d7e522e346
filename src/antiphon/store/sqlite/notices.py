"""Facet `notices` in SQLite.

A function gets a connection inside a transaction, which the caller begins and commits.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from functools import partial
from typing import Final

from antiphon.store.base import Notice
from antiphon.store.sqlite.worker import Writer

__all__ = ["SqliteNotices", "insert_notices", "sweep_notices"]

_DUE: Final = (
    "SELECT key, id, owner, response, type, created_at, endpoint, attempts + 1 FROM notices"
    " WHERE endpoint = ? AND due_at <= ? ORDER BY created_at, key LIMIT ?"
)


class SqliteNotices:
    """See `Notices` for what the methods do."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    async def take(self, endpoint: str, now: int, hide_until: int, limit: int) -> list[Notice]:
        """Return notices of this endpoint that are due, oldest first, and hide them till then."""
        return await self._writer.call(
            partial(
                _take,
                endpoint=endpoint,
                now=now,
                hide_until=hide_until,
                limit=limit,
            )
        )

    async def postpone(self, notice_id: str, until: int) -> None:
        """Make the notice due again at this time."""
        await self._writer.call(partial(_postpone, notice_id=notice_id, until=until))

    async def settle(self, notice_id: str) -> None:
        """Remove the notice."""
        await self._writer.call(partial(_settle, notice_id=notice_id))


def insert_notices(connection: sqlite3.Connection, notices: Sequence[Notice]) -> None:
    """Store notices that are due at once."""
    connection.executemany(
        "INSERT OR IGNORE INTO notices"
        " (id, owner, response, type, created_at, endpoint, attempts, due_at)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, 0)",
        [
            (n.id, n.owner, n.response_id, n.type, n.created_at, n.endpoint, n.attempts)
            for n in notices
        ],
    )


def sweep_notices(connection: sqlite3.Connection, before: int) -> None:
    """Remove notices that were made before this time."""
    connection.execute("DELETE FROM notices WHERE created_at < ?", (before,))


def _take(
    connection: sqlite3.Connection, endpoint: str, now: int, hide_until: int, limit: int
) -> list[Notice]:
    """Return due notices, oldest first, and hide them; count the attempt."""
    rows = connection.execute(_DUE, (endpoint, now, limit)).fetchall()
    connection.executemany(
        "UPDATE notices SET attempts = attempts + 1, due_at = ? WHERE key = ?",
        [(hide_until, row[0]) for row in rows],
    )
    return [Notice(*row[1:]) for row in rows]


def _postpone(connection: sqlite3.Connection, notice_id: str, until: int) -> None:
    """Make a notice due again at this time."""
    connection.execute("UPDATE notices SET due_at = ? WHERE id = ?", (until, notice_id))


def _settle(connection: sqlite3.Connection, notice_id: str) -> None:
    """Remove a notice."""
    connection.execute("DELETE FROM notices WHERE id = ?", (notice_id,))
