"""Facet `tool_calls` in SQLite."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Final

from antiphon.store.base.tool_calls import Intent
from antiphon.store.encoding import is_storable
from antiphon.store.sqlite.erasure import mark
from antiphon.store.sqlite.worker import Reader, Writer

__all__ = ["SqliteToolCalls", "remove_tool_calls"]

_INTEND: Final = """
    INSERT OR REPLACE INTO tool_calls (owner, response, call, kind, digest, created_at)
    VALUES (?, ?, ?, ?, ?, ?)
"""
_FIND: Final = """
    SELECT call, kind, digest FROM tool_calls WHERE owner = ? AND response = ? ORDER BY key
"""
_FORGET: Final = "DELETE FROM tool_calls WHERE owner = ? AND response = ?"
# The response that asked is found by the item, if it is stored.
_CLAIM: Final = """
    INSERT OR IGNORE INTO approvals (owner, request, response, asked_by, created_at)
    VALUES (:owner, :request, :response, (
        SELECT responses.id FROM items JOIN responses ON responses.key = items.response
        WHERE items.owner = :owner AND items.id = :request AND items.kind = 1 LIMIT 1
    ), :now)
"""
_CLAIMED: Final = "SELECT response FROM approvals WHERE owner = ? AND request = ?"
_RELEASE: Final = "DELETE FROM approvals WHERE owner = ? AND request = ? AND response = ?"
_SWEEP: Final = """
    DELETE FROM approvals WHERE (owner, request) IN (
        SELECT owner, request FROM approvals WHERE created_at < :before
        AND NOT EXISTS (SELECT 1 FROM responses
            WHERE responses.owner = approvals.owner AND responses.id = approvals.asked_by)
        LIMIT :most)
"""
_SWEEP_CALLS: Final = """
    DELETE FROM tool_calls WHERE key IN (
        SELECT key FROM tool_calls WHERE created_at < :before
        AND NOT EXISTS (SELECT 1 FROM responses
            WHERE responses.owner = tool_calls.owner AND responses.id = tool_calls.response)
        LIMIT :most)
"""


class SqliteToolCalls:
    """See `ToolCalls` for what the methods do."""

    def __init__(self, writer: Writer, reader: Reader) -> None:
        self._writer = writer
        self._reader = reader

    async def intend(
        self, owner: str, response_id: str, intents: Sequence[Intent], now: int
    ) -> None:
        rows = [(owner, response_id, one.call, one.kind, one.digest, now) for one in intents]
        await self._writer.call(lambda connection: connection.executemany(_INTEND, rows).rowcount)

    async def find(self, owner: str, response_id: str) -> list[Intent]:
        def run(connection: sqlite3.Connection) -> list[Intent]:
            return [Intent(*row) for row in connection.execute(_FIND, (owner, response_id))]

        return await self._reader.call(run)

    async def forget(self, owner: str, response_id: str) -> None:
        await self._writer.execute(_FORGET, (owner, response_id))

    async def claim_approval(self, owner: str, request_id: str, response_id: str, now: int) -> bool:
        if not is_storable(request_id):
            return False
        values = {"owner": owner, "request": request_id, "response": response_id, "now": now}

        def run(connection: sqlite3.Connection) -> bool:
            connection.execute(_CLAIM, values)
            (found,) = connection.execute(_CLAIMED, (owner, request_id)).fetchone()
            return bool(found == response_id)

        return await self._writer.call(run)

    async def approval_holder(self, owner: str, request_id: str) -> str | None:
        if not is_storable(request_id):
            return None

        def run(connection: sqlite3.Connection) -> str | None:
            found = connection.execute(_CLAIMED, (owner, request_id)).fetchone()
            return None if found is None else str(found[0])

        return await self._writer.call(run)

    async def release_approval(self, owner: str, request_id: str, response_id: str) -> None:
        if is_storable(request_id):
            await self._writer.execute(_RELEASE, (owner, request_id, response_id))

    async def sweep(self, before: int, limit: int) -> int:
        """Remove what is older and belongs to no response, `limit` of each; return how many."""
        values = {"before": before, "most": limit}

        def run(connection: sqlite3.Connection) -> int:
            removed = [connection.execute(one, values).rowcount for one in (_SWEEP, _SWEEP_CALLS)]
            if any(removed):
                mark(connection)
            return max(removed)

        return await self._writer.call(run)


def remove_tool_calls(connection: sqlite3.Connection, names: Sequence[tuple[str, str]]) -> None:
    """Remove what belongs to these responses (owner, id)."""
    connection.executemany(_FORGET, names)
    connection.executemany("DELETE FROM approvals WHERE owner = ? AND asked_by = ?", names)
