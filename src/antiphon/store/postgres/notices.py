"""Facet `notices` in PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from antiphon.store.base import Notice
from antiphon.store.postgres.database import Connection, Database
from antiphon.store.postgres.rows import columns

__all__ = ["PostgresNotices", "insert_notices"]

_DUE: Final = """
    WITH due AS (
        SELECT key FROM notices WHERE endpoint = $1 AND due_at <= $2
        ORDER BY created_at, key LIMIT $4 FOR UPDATE SKIP LOCKED
    ), taken AS (
        UPDATE notices SET attempts = attempts + 1, due_at = $3 FROM due
        WHERE notices.key = due.key
        RETURNING notices.key, id, owner, response, type, created_at, endpoint, attempts
    )
    SELECT id, owner, response, type, created_at, endpoint, attempts FROM taken
    ORDER BY created_at, key
"""
_SWEEP: Final = """
    WITH gone AS (
        DELETE FROM notices WHERE key = ANY(ARRAY(
            SELECT key FROM notices WHERE created_at < $1
            ORDER BY key LIMIT $2 FOR UPDATE SKIP LOCKED
        )) RETURNING TRUE
    ) SELECT count(*) FROM gone
"""
_INSERT_NOTICES: Final = """
    INSERT INTO notices (id, owner, response, type, created_at, endpoint, attempts, due_at)
    SELECT id, owner, response, type, created_at, endpoint, attempts, 0 FROM unnest(
        $1::text[], $2::text[], $3::text[], $4::text[], $5::bigint[], $6::text[], $7::bigint[]
    ) WITH ORDINALITY AS wanted (
        id, owner, response, type, created_at, endpoint, attempts, place
    )
    ORDER BY place
    ON CONFLICT (id) DO NOTHING
"""

_MARK: Final = """
    INSERT INTO ledger_marks VALUES ($1, $2) ON CONFLICT (name) DO UPDATE
        SET value = excluded.value WHERE ledger_marks.value < excluded.value
    RETURNING TRUE
"""


class PostgresNotices:
    """See `Notices` for what the methods do."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def take(self, endpoint: str, now: int, hide_until: int, limit: int) -> list[Notice]:
        rows = await self._database.change(
            lambda connection: connection.fetch(_DUE, endpoint, now, hide_until, limit)
        )
        return [Notice(*row) for row in rows]

    async def add_once(self, mark: str, value: int, notices: Sequence[Notice]) -> bool:
        async def run(connection: Connection) -> bool:
            if not await connection.fetchval(_MARK, mark, value):
                return False
            await insert_notices(connection, notices)
            return True

        return await self._database.change(run)

    async def postpone(self, notice_id: str, until: int) -> None:
        statement = "UPDATE notices SET due_at = $1 WHERE id = $2"
        await self._database.ask_value(statement, until, notice_id)

    async def settle(self, notice_id: str) -> None:
        await self._database.ask_value("DELETE FROM notices WHERE id = $1", notice_id)

    async def sweep(self, before: int, limit: int) -> int:
        """Remove the oldest notices made before this time, `limit` at most; return how many."""
        return int(
            await self._database.change(
                lambda connection: connection.fetchval(_SWEEP, before, limit)
            )
        )


async def insert_notices(connection: Connection, notices: Sequence[Notice]) -> None:
    """Store notices that are due at once."""
    rows = [
        (n.id, n.owner, n.response_id, n.type, n.created_at, n.endpoint, n.attempts)
        for n in notices
    ]
    await connection.execute(_INSERT_NOTICES, *columns(rows, 7))
