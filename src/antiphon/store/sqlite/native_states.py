"""Facet `native_states` in SQLite."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from typing import Final

from antiphon.store.base.native_states import MAX_STATE_BYTES, MAX_STATES, key_of_call
from antiphon.store.sqlite.erasure import mark
from antiphon.store.sqlite.worker import Reader, Writer

__all__ = ["SqliteNativeStates"]

# A row that is replaced gets a new key: the greatest is the newest.
_KEEP: Final = """
    INSERT OR REPLACE INTO native_states (owner, call, response, created_at, body)
    VALUES (?, ?, ?, ?, ?)
"""
_FIND: Final = "SELECT body FROM native_states WHERE owner = ? AND call = ? AND created_at >= ?"
_MAKE_ROOM: Final = """
    DELETE FROM native_states WHERE owner = :owner AND key <= (
        SELECT max(key) FROM (
            SELECT key, count(*) OVER newest AS states, sum(length(body)) OVER newest AS size
            FROM native_states WHERE owner = :owner WINDOW newest AS (ORDER BY key DESC)
        ) WHERE states > :states OR size > :size
    )
"""


class SqliteNativeStates:
    """See `NativeStates` for what the methods do."""

    def __init__(self, writer: Writer, reader: Reader) -> None:
        self._writer = writer
        self._reader = reader

    async def keep(
        self, owner: str, response_id: str, states: Mapping[str, bytes], now: int
    ) -> None:
        rows = [
            (owner, key_of_call(call_id), response_id, now, body)
            for call_id, body in states.items()
        ]
        room = {"owner": owner, "states": MAX_STATES, "size": MAX_STATE_BYTES}

        def run(connection: sqlite3.Connection) -> None:
            connection.executemany(_KEEP, rows)
            if connection.execute(_MAKE_ROOM, room).rowcount:
                mark(connection)

        await self._writer.call(run)

    async def find(self, owner: str, call_ids: Sequence[str], since: int) -> dict[str, bytes]:
        def run(connection: sqlite3.Connection) -> dict[str, bytes]:
            found: dict[str, bytes] = {}
            for call_id in call_ids:
                values = (owner, key_of_call(call_id), since)
                row = connection.execute(_FIND, values).fetchone()
                if row is not None:
                    found[call_id] = row[0]
            return found

        return await self._reader.call(run)

    async def expire(self, before: int) -> None:
        def run(connection: sqlite3.Connection) -> None:
            statement = "DELETE FROM native_states WHERE created_at < ?"
            if connection.execute(statement, (before,)).rowcount:
                mark(connection)

        await self._writer.call(run)
