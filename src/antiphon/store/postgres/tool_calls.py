"""Facet `tool_calls` in PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from antiphon.store.base.tool_calls import Intent
from antiphon.store.postgres.database import Connection, Database
from antiphon.store.postgres.rows import columns, is_text

__all__ = ["PostgresToolCalls"]

_INTEND: Final = """
    INSERT INTO tool_calls (owner, response, call, kind, digest, created_at)
    SELECT $1, $2, call, kind, digest, $3 FROM unnest($4::text[], $5::text[], $6::bytea[])
        WITH ORDINALITY AS wanted (call, kind, digest, place)
    ORDER BY place
    ON CONFLICT (owner, response, call) DO NOTHING
"""
_FIND: Final = """
    SELECT call, kind, digest FROM tool_calls WHERE owner = $1 AND response = $2 ORDER BY key
"""
_FORGET: Final = "DELETE FROM tool_calls WHERE owner = $1 AND response = $2"
# The response that asked is found by the item, if it is stored.
_CLAIM: Final = """
    INSERT INTO approvals (owner, request, response, asked_by, created_at)
    VALUES ($1::text, $2, $3, (
        SELECT responses.id FROM items JOIN responses ON responses.key = items.response
        WHERE items.owner = $1::text AND sha256(items.id) = sha256($5) AND items.kind = 1 LIMIT 1
    ), $4)
    ON CONFLICT (owner, request) DO NOTHING
"""
_CLAIMED: Final = "SELECT response FROM approvals WHERE owner = $1 AND request = $2"
_RELEASE: Final = "DELETE FROM approvals WHERE owner = $1 AND request = $2 AND response = $3"
_SWEEP: Final = """
    WITH used AS (
        DELETE FROM approvals WHERE ctid = ANY(ARRAY(
            SELECT ctid FROM approvals WHERE created_at < $1 AND NOT EXISTS (
                SELECT FROM responses WHERE responses.owner = approvals.owner
                AND responses.id = approvals.asked_by
            ) LIMIT $2 FOR UPDATE SKIP LOCKED
        )) RETURNING TRUE
    ), made AS (
        DELETE FROM tool_calls WHERE ctid = ANY(ARRAY(
            SELECT ctid FROM tool_calls WHERE created_at < $1 AND NOT EXISTS (
                SELECT FROM responses WHERE responses.owner = tool_calls.owner
                AND responses.id = tool_calls.response
            ) LIMIT $2 FOR UPDATE SKIP LOCKED
        )) RETURNING TRUE
    ) SELECT greatest((SELECT count(*) FROM used), (SELECT count(*) FROM made))
"""


class PostgresToolCalls:
    """See `ToolCalls` for what the methods do."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def intend(
        self, owner: str, response_id: str, intents: Sequence[Intent], now: int
    ) -> None:
        calls = columns([(one.call, one.kind, one.digest) for one in intents], 3)

        async def run(connection: Connection) -> None:
            await connection.execute(_INTEND, owner, response_id, now, *calls)

        await self._database.change(run)

    async def find(self, owner: str, response_id: str) -> list[Intent]:
        rows = await self._database.ask(
            lambda connection: connection.fetch(_FIND, owner, response_id)
        )
        return [Intent(*row) for row in rows]

    async def forget(self, owner: str, response_id: str) -> None:
        await self._database.ask_value(_FORGET, owner, response_id)

    async def claim_approval(self, owner: str, request_id: str, response_id: str, now: int) -> bool:
        if not is_text(request_id):
            return False

        async def run(connection: Connection) -> bool:
            # A transaction that inserts the same key is waited for, and its row is seen then.
            item = request_id.encode()
            await connection.execute(_CLAIM, owner, request_id, response_id, now, item)
            found = await connection.fetchval(_CLAIMED, owner, request_id)
            return bool(found == response_id)

        return await self._database.change(run)

    async def approval_holder(self, owner: str, request_id: str) -> str | None:
        if not is_text(request_id):
            return None
        found = await self._database.ask_value(_CLAIMED, owner, request_id)
        return None if found is None else str(found)

    async def release_approval(self, owner: str, request_id: str, response_id: str) -> None:
        if is_text(request_id):
            await self._database.ask_value(_RELEASE, owner, request_id, response_id)

    async def sweep(self, before: int, limit: int) -> int:
        """Remove what is older and belongs to no response, `limit` of each; return how many."""
        return int(await self._database.ask_value(_SWEEP, before, limit) or 0)
