"""Facet `log` in PostgreSQL: the batches of running and of finished responses.

The batches of many turns are appended in one statement (see `flusher`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final, NamedTuple

from antiphon.protocol.errors import StoreUnavailable, TurnLost
from antiphon.store.base import Batch, Log
from antiphon.store.encoding import compress_log, end_log, expand_log
from antiphon.store.limits import MAX_NUMBER
from antiphon.store.postgres.database import Connection
from antiphon.store.postgres.facet import Facet
from antiphon.store.postgres.flusher import Kind
from antiphon.store.postgres.history import OUTPUT_COLUMN
from antiphon.store.postgres.node import LEASE
from antiphon.store.postgres.rows import columns, is_text, response_of
from antiphon.store.postgres.writers import explain_losses, read_open_logs

__all__ = ["PostgresLogs", "close_logs", "insert_batches"]

# How often to poll while no notifications arrive.
_POLL_SECONDS: Final = 0.25
# Bytes of logs from which on a thread compresses them.
_MUCH: Final = 256 * 1024
_INSERT_EVENTS: Final = """
    INSERT INTO log (response, first, last, body, owner)
    SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bytea[], $5::text[])
"""
_APPEND: Final = f"""
    WITH wanted AS (
        SELECT * FROM unnest(
            $2::text[], $3::text[], $4::bigint[], $5::bigint[], $6::bytea[], $7::text[]
        ) WITH ORDINALITY AS wanted (owner, id, first, last, body, status, place)
    ), held AS MATERIALIZED (
        SELECT wanted.place, wanted.owner, wanted.id, wanted.first, wanted.last, wanted.body,
            wanted.status, responses.key
        FROM wanted
        JOIN responses ON responses.owner = wanted.owner AND responses.id = wanted.id
        WHERE responses.writer = $1 AND {LEASE}
        ORDER BY responses.key
        FOR UPDATE OF responses
    ), added AS (
        INSERT INTO log (response, first, last, owner, body)
        SELECT key, first, last, owner, body FROM held
        {{on_conflict}}
    ), moved AS (
        UPDATE responses SET status = held.status FROM held
        WHERE responses.key = held.key AND held.status IS NOT NULL
    )
    SELECT place, EXISTS (
        SELECT FROM jobs WHERE jobs.response = held.key AND jobs.is_cancelled = 1
    ) AS is_cancelled FROM held
"""  # noqa: S608 # constants
_APPEND_ONCE: Final = _APPEND.format(on_conflict="")
_APPEND_AGAIN: Final = _APPEND.format(on_conflict="ON CONFLICT (response, first) DO NOTHING")
# Rows of a turn that has ended wait for their partition to be dropped, and are not read.
# Batches follow each other without a gap: the first one wanted is the last that begins early
# enough. This is found in the index, however long the log is.
_BEHIND: Final = """
    FROM log WHERE log.response = responses.key AND log.owner = $1 AND log.last > $3
        AND responses.writer IS NOT NULL
        AND log.first >= coalesce((
            SELECT max(early.first) FROM log AS early
            WHERE early.response = responses.key AND early.first <= $3 + 1
        ), 0)
    ORDER BY log.first
"""
_READ_LOG: Final = f"""
    SELECT status, body, {OUTPUT_COLUMN},
        (SELECT logs.body FROM logs WHERE logs.response = responses.key) AS whole,
        ARRAY(SELECT log.first {_BEHIND}) AS firsts,
        ARRAY(SELECT log.last {_BEHIND}) AS lasts,
        ARRAY(SELECT log.body {_BEHIND}) AS bodies,
        writer IS NOT NULL
            AND EXISTS (SELECT FROM log WHERE log.response = responses.key) AS is_open
    FROM responses WHERE owner = $1 AND id = $2
"""  # noqa: S608 # constants


_REMOVE_OLD_LOGS: Final = """
    WITH old AS MATERIALIZED (
        SELECT logs.response FROM logs JOIN responses ON responses.key = logs.response
        WHERE responses.created_at < $1 AND responses.writer IS NULL LIMIT $2
    ), live AS (
        DELETE FROM log WHERE response IN (SELECT response FROM old)
    )
    DELETE FROM logs WHERE response IN (SELECT response FROM old) RETURNING 1
"""


class _Append(NamedTuple):
    """More of the log of a turn."""

    writer: str
    owner: str
    id: str
    batch: Batch
    status: str | None


async def _append(
    connection: Connection, turns: Sequence[_Append], is_again: bool
) -> list[bool | TurnLost]:
    rows = [(t.owner, t.id, *t.batch, t.status) for t in turns]
    statement = _APPEND_AGAIN if is_again else _APPEND_ONCE
    found = await connection.fetch(statement, turns[0].writer, *columns(rows, 6))
    cancelled = {row["place"] - 1: row["is_cancelled"] for row in found}
    names = [(t.owner, t.id) for t in turns]
    lost = await explain_losses(connection, turns[0].writer, names, cancelled)
    return [lost[place] if place in lost else cancelled[place] for place in range(len(turns))]


_KIND: Final = Kind(_append, is_one_statement=True)


class PostgresLogs(Facet):
    """See `Logs` for what the methods do."""

    async def append(
        self, owner: str, response_id: str, batch: Batch, *, status: str | None = None
    ) -> bool:
        turn = _Append(await self._node.ensure(), owner, response_id, batch, status)
        is_cancelled: bool = await self._flusher.call(
            _KIND, (owner, response_id), turn, len(batch.body)
        )
        return is_cancelled

    async def read_log(self, owner: str, response_id: str, after: int = -1) -> Log | None:
        if not is_text(response_id):
            return None
        question = (_READ_LOG, owner, response_id, min(after, MAX_NUMBER))
        row = await self._database.ask(lambda connection: connection.fetchrow(*question))
        if row is None:
            return None
        if row["whole"] is not None:
            return Log(response_of(row), expand_log(row["whole"], after), is_kept=True)
        batches = list(map(Batch, row["firsts"], row["lasts"], row["bodies"]))
        return Log(response_of(row), batches, is_kept=row["is_open"])

    async def sweep_logs(self, before: int, limit: int) -> int:
        async def run(connection: Connection) -> int:
            found = await connection.fetch(_REMOVE_OLD_LOGS, float(before), limit)
            return len(found)

        return await self._database.change(run)

    async def wait(self, response_id: str, seconds: float) -> None:
        """Return when a notification for the response arrived, or the time is over."""
        if self._is_closed:
            raise StoreUnavailable("the store is closed")
        if not self._node.is_listening:
            seconds = min(seconds, _POLL_SECONDS)
        await self._waiters.wait(response_id, seconds)


async def insert_batches(connection: Connection, batches: Sequence[tuple[int, str, Batch]]) -> None:
    """Insert the first batches of turns, each given with the key and the owner of its turn."""
    if batches:
        rows = [(key, *batch, owner) for key, owner, batch in batches]
        await connection.execute(_INSERT_EVENTS, *columns(rows, 5))


async def close_logs(
    connection: Connection, ending: Sequence[tuple[int, str, Batch | None]]
) -> list[tuple[int, str, bytes]]:
    """Return the whole log of each turn that kept one, compressed, with key and owner.

    The turns are given by key, owner and last batch.
    """
    logs = await read_open_logs(connection, [key for key, _, _ in ending])
    for key, _, last in ending:
        logs[key] = end_log(logs[key], last)
    rows = [(key, owner, logs[key]) for key, owner, _ in ending if logs[key]]
    size = sum(len(batch.body) for batches in logs.values() for batch in batches)
    if size > _MUCH:
        return await asyncio.to_thread(_compress, rows)
    return _compress(rows)


def _compress(rows: list[tuple[int, str, list[Batch]]]) -> list[tuple[int, str, bytes]]:
    return [(key, owner, compress_log(batches)) for key, owner, batches in rows]
