"""Facet `notices` in SQLite."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Final

from antiphon.store.base import Notice
from antiphon.store.sqlite.worker import Writer

__all__ = ["SqliteNotices", "insert_notices"]

_DUE: Final = (
    "SELECT key, id, owner, response, type, created_at, endpoint, attempts + 1 FROM notices"
    " WHERE endpoint = ? AND due_at <= ? ORDER BY created_at, key LIMIT ?"
)

_MARK: Final = (
    "INSERT INTO ledger_marks VALUES (?, ?)"
    " ON CONFLICT (name) DO UPDATE SET value = excluded.value WHERE value < excluded.value"
)


class SqliteNotices:
    """See `Notices` for what the methods do."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    async def take(self, endpoint: str, now: int, hide_until: int, limit: int) -> list[Notice]:
        def run(connection: sqlite3.Connection) -> list[Notice]:
            rows = connection.execute(_DUE, (endpoint, now, limit)).fetchall()
            connection.executemany(
                "UPDATE notices SET attempts = attempts + 1, due_at = ? WHERE key = ?",
                [(hide_until, row[0]) for row in rows],
            )
            return [Notice(*row[1:]) for row in rows]

        return await self._writer.call(run)

    async def add_once(self, mark: str, value: int, notices: Sequence[Notice]) -> bool:
        def run(connection: sqlite3.Connection) -> bool:
            if not connection.execute(_MARK, (mark, value)).rowcount:
                return False
            insert_notices(connection, "", notices)
            return True

        return await self._writer.call(run)

    async def postpone(self, notice_id: str, until: int) -> None:
        await self._writer.execute("UPDATE notices SET due_at = ? WHERE id = ?", (until, notice_id))

    async def settle(self, notice_id: str) -> None:
        await self._writer.execute("DELETE FROM notices WHERE id = ?", (notice_id,))

    async def sweep(self, before: int) -> None:
        """Remove notices that were made before this time."""
        await self._writer.execute("DELETE FROM notices WHERE created_at < ?", (before,))


def insert_notices(connection: sqlite3.Connection, _writer: str, notices: Sequence[Notice]) -> None:
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
