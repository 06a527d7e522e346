"""Facet `claims` in PostgreSQL."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from antiphon.store.base import Claim, ClaimRequest
from antiphon.store.postgres.database import Connection, Database
from antiphon.store.postgres.rows import is_text

__all__ = ["PostgresClaims", "earlier_claim", "note_once"]

_HELD: Final = (
    "EXISTS (SELECT FROM nodes WHERE name = claims.writer AND lease_until > clock_timestamp())"
)
_NOTE: Final = """
    INSERT INTO claims (owner, token, digest, response, created_at, writer)
    VALUES ($1, $2, $3, $4, $5, $6)
    ON CONFLICT (owner, token) DO UPDATE SET digest = excluded.digest,
        response = excluded.response, created_at = excluded.created_at, writer = excluded.writer
"""
# A claim whose holder has died, and which led to no response, is replaced.
_TAKE: Final = f"""
    {_NOTE} WHERE NOT {_HELD} AND NOT EXISTS (
        SELECT FROM responses WHERE responses.owner = claims.owner AND id = claims.response
    )
    RETURNING TRUE
"""  # constants
# Another claim of the same token waits for this transaction, and then sees its result.
_QUEUE: Final = "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))"
_FIND: Final = f"""
    SELECT digest, response, created_at, {_HELD} FROM claims WHERE owner = $1 AND token = $2
"""  # noqa: S608 # constants
_SWEEP: Final = """
    WITH gone AS (
        DELETE FROM claims WHERE ctid = ANY(ARRAY(
            SELECT ctid FROM claims WHERE created_at < $1
            ORDER BY created_at LIMIT $2 FOR UPDATE SKIP LOCKED
        )) RETURNING TRUE
    ) SELECT count(*) FROM gone
"""


class PostgresClaims:
    """See `Claims` for what the methods do. `sign` returns the name of the live node."""

    def __init__(self, database: Database, sign: Callable[[], Awaitable[str]]) -> None:
        self._database = database
        self._sign = sign

    async def take(
        self, owner: str, token: str, digest: bytes, response_id: str, now: int
    ) -> Claim | None:
        writer = await self._sign()

        async def run(connection: Connection) -> Claim | None:
            values = (owner, token, digest, response_id, now, writer)
            found: Claim | None = None
            while found is None:
                if await connection.fetchval(_TAKE, *values):
                    return None
                # None: it was released in between, so try again.
                found = await _find(connection, owner, token)
            return found

        return await self._database.change(run)

    async def note(self, owner: str, token: str, digest: bytes, response_id: str, now: int) -> None:
        """Claim the token, in place of any older claim. Does not wait for the disk."""
        writer = await self._sign()

        async def run(connection: Connection) -> None:
            await connection.execute("SET LOCAL synchronous_commit = off")
            await connection.execute(_NOTE, owner, token, digest, response_id, now, writer)

        await self._database.change(run)

    async def find(self, owner: str, token: str) -> Claim | None:
        if not is_text(token):
            return None
        return await self._database.ask(lambda connection: _find(connection, owner, token))

    async def release(self, owner: str, token: str, response_id: str) -> None:
        statement = "DELETE FROM claims WHERE owner = $1 AND token = $2 AND response = $3"
        await self._database.ask_value(statement, owner, token, response_id)

    async def sweep(self, before: int, limit: int) -> int:
        """Remove the oldest claims made before this time, `limit` at most; return how many."""
        return int(
            await self._database.change(
                lambda connection: connection.fetchval(_SWEEP, before, limit)
            )
        )


async def earlier_claim(
    connection: Connection, owner: str, once: ClaimRequest | None
) -> Claim | None:
    """Return the claim on this token that exists already, if it still counts.

    Other callers with the same token wait until this transaction has ended.
    """
    if once is None:
        return None
    await connection.execute(_QUEUE, f"{owner}\n{once.token}")
    return once.earlier(await _find(connection, owner, once.token))


async def note_once(
    connection: Connection, owner: str, once: ClaimRequest | None, made: str, writer: str
) -> None:
    """Claim the token for what was made in this transaction, in place of any older claim."""
    if once is not None:
        await connection.execute(_NOTE, owner, once.token, once.digest, made, once.now, writer)


async def _find(connection: Connection, owner: str, token: str) -> Claim | None:
    row = await connection.fetchrow(_FIND, owner, token)
    return None if row is None else Claim(*row)
