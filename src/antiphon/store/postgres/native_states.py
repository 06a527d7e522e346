"""Facet `native_states` in PostgreSQL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from antiphon.store.base.native_states import MAX_STATE_BYTES, MAX_STATES, key_of_call
from antiphon.store.postgres.database import Connection, Database
from antiphon.store.postgres.rows import columns

__all__ = ["PostgresNativeStates"]

# One transaction at a time changes the states of an owner: two would wait for each other's rows.
_QUEUE: Final = "SELECT pg_advisory_xact_lock(hashtextextended('native_states ' || $1, 0))"
_REPLACE: Final = "DELETE FROM native_states WHERE owner = $1 AND call = ANY($2::bytea[])"
_KEEP: Final = """
    INSERT INTO native_states (owner, call, response, created_at, body)
    SELECT $1, call, $2, $3, body FROM unnest($4::bytea[], $5::bytea[])
        WITH ORDINALITY AS wanted (call, body, place)
    ORDER BY place
"""
_MAKE_ROOM: Final = """
    DELETE FROM native_states WHERE owner = $1 AND key <= (
        SELECT max(key) FROM (
            SELECT key, count(*) OVER newest AS states, sum(length(body)) OVER newest AS size
            FROM native_states WHERE owner = $1 WINDOW newest AS (ORDER BY key DESC)
        ) AS counted WHERE states > $2 OR size > $3
    )
"""
_FIND: Final = """
    SELECT call, body FROM native_states
    WHERE owner = $1 AND call = ANY($2::bytea[]) AND created_at >= $3
"""


class PostgresNativeStates:
    """See `NativeStates` for what the methods do."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def keep(
        self, owner: str, response_id: str, states: Mapping[str, bytes], now: int
    ) -> None:
        rows = [(key_of_call(call_id), body) for call_id, body in states.items()]
        calls, bodies = columns(rows, 2)

        async def run(connection: Connection) -> None:
            await connection.execute(_QUEUE, owner)
            await connection.execute(_REPLACE, owner, calls)
            await connection.execute(_KEEP, owner, response_id, now, calls, bodies)
            await connection.execute(_MAKE_ROOM, owner, MAX_STATES, MAX_STATE_BYTES)

        await self._database.change(run)

    async def find(self, owner: str, call_ids: Sequence[str], since: int) -> dict[str, bytes]:
        names = {key_of_call(call_id): call_id for call_id in call_ids}
        rows = await self._database.ask(
            lambda connection: connection.fetch(_FIND, owner, list(names), since)
        )
        return {names[call]: body for call, body in rows}

    async def expire(self, before: int) -> None:
        statement = "DELETE FROM native_states WHERE created_at < $1"
        await self._database.ask_value(statement, before)
