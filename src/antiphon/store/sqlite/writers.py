"""Facet `writers` in SQLite: cancellations, and the turns of processes that have died.

The column `responses.writer` names the store that may write a turn; NULL means finished.
`jobs` holds what is needed to run a turn again elsewhere, and the request to cancel it.
A function gets a connection inside a transaction, which the caller begins and commits.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Callable
from typing import Final

from antiphon.protocol.errors import TurnLost
from antiphon.store.base import Batch, Orphan
from antiphon.store.encoding import decode_turn, is_storable
from antiphon.store.sqlite.connection import turns_of
from antiphon.store.sqlite.facet import Facet
from antiphon.store.sqlite.ledger_abandoned import claim_charges
from antiphon.store.turns import lost_turn

__all__ = ["SqliteWriters", "ask_cancel", "claim_orphans", "explain_loss", "insert_job"]

_OF_ALL: Final = """
    SELECT response, first, last, body FROM log
    WHERE response IN (SELECT value FROM json_each(?)) ORDER BY key
"""
_ASKED_CANCELS: Final = """
    SELECT responses.owner, responses.id FROM jobs
    CROSS JOIN responses ON responses.key = jobs.response
    WHERE jobs.is_cancelled AND responses.writer = ?
"""
_ORPHANS: Final = """
    SELECT responses.key, responses.id, responses.owner, responses.status, responses.body,
        jobs.request, coalesce(jobs.is_cancelled, 0)
    FROM responses LEFT JOIN jobs ON jobs.response = responses.key
    WHERE responses.writer IN (SELECT value FROM json_each(?))
    ORDER BY responses.created_at, responses.key LIMIT ?
"""


def insert_job(connection: sqlite3.Connection, owner: str, key: int, request: bytes) -> None:
    """Store what is needed to run the turn again."""
    connection.execute(
        "INSERT INTO jobs (response, owner, is_cancelled, request) VALUES (?, ?, 0, ?)",
        (key, owner, request),
    )


def explain_loss(connection: sqlite3.Connection, owner: str, response_id: str) -> TurnLost:
    """Return the reason why the calling store is not the writer of this response."""
    turns_of(connection).forget((owner, response_id))
    row = connection.execute(
        "SELECT status, writer FROM responses WHERE owner = ? AND id = ?", (owner, response_id)
    ).fetchone()
    return lost_turn(response_id, row)


class SqliteWriters(Facet):
    """See `Writers` for what the methods do."""

    async def ask_cancel(self, owner: str, response_id: str) -> bool:
        if not is_storable(response_id):
            return False
        found = await self._writer.call(
            lambda connection: ask_cancel(connection, owner, response_id)
        )
        self._waiters.wake(response_id)
        return found

    async def asked_cancels(self) -> list[tuple[str, str]]:
        return await self._reader.fetch(_ASKED_CANCELS, (self._presence.name,))

    async def count_alive(self) -> int:
        return await asyncio.to_thread(self._presence.count_alive)

    async def claim_orphans(self, limit: int) -> list[Orphan]:
        writer, is_alive = self._presence.name, self._presence.is_alive
        # Called often, and mostly without result: reading does not delay writers.
        if await self._reader.call(lambda connection: all(map(is_alive, _writers(connection)))):
            return []
        return await self._writer.call(
            lambda connection: claim_orphans(connection, writer, is_alive, limit)
        )


def ask_cancel(connection: sqlite3.Connection, owner: str, response_id: str) -> bool:
    """Record that an unfinished response shall be cancelled; return whether there is one."""
    cursor = connection.execute(
        "INSERT INTO jobs (response, owner, is_cancelled)"
        " SELECT key, owner, 1 FROM responses"
        " WHERE owner = ? AND id = ? AND writer IS NOT NULL"
        " ON CONFLICT (response) DO UPDATE SET is_cancelled = 1",
        (owner, response_id),
    )
    turns_of(connection).doubt((owner, response_id))
    return cursor.rowcount == 1


def claim_orphans(
    connection: sqlite3.Connection, writer: str, is_alive: Callable[[str], bool], limit: int
) -> list[Orphan]:
    """Make this the writer of unfinished responses whose writer has died."""
    gone = [name for name in _writers(connection) if not is_alive(name)]
    rows = connection.execute(_ORPHANS, (json.dumps(gone), limit)).fetchall()
    connection.executemany(
        "UPDATE responses SET writer = ? WHERE key = ?", [(writer, row[0]) for row in rows]
    )
    turns_of(connection).forget_all()
    claim_charges(connection, writer, [row[1] for row in rows])
    batches: dict[int, list[Batch]] = {row[0]: [] for row in rows}
    for key, *batch in connection.execute(_OF_ALL, (json.dumps(list(batches)),)):
        batches[key].append(Batch(*batch))
    return [
        Orphan(owner, decode_turn(body, [], status), batches[key], request, bool(is_cancelled))
        for key, _, owner, status, body, request, is_cancelled in rows
    ]


def _writers(connection: sqlite3.Connection) -> list[str]:
    """Return the writers of all unfinished responses."""
    rows = connection.execute("SELECT DISTINCT writer FROM responses WHERE writer IS NOT NULL")
    return [writer for (writer,) in rows]
