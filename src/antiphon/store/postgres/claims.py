"""Claims, notices, secrets and keys in PostgreSQL: what is one row each."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from antiphon.store.base import Claim, ClaimRequest, KeyRecord, Notice
from antiphon.store.postgres.database import Connection, Database
from antiphon.store.postgres.names import is_text

__all__ = [
    "SWEEP_SIZE",
    "PostgresClaims",
    "PostgresNotices",
    "add_key",
    "earlier_claim",
    "find_key",
    "keep_secret",
    "list_keys",
    "note_once",
    "revoke_key",
    "sweep_claims",
    "sweep_nodes",
    "sweep_notices",
]

# Rows removed in one transaction: it is over before anybody has waited for long.
SWEEP_SIZE: Final = 5_000

_HELD: Final = (
    "EXISTS (SELECT FROM nodes WHERE name = claims.writer AND lease_until > clock_timestamp())"
)
# A claim whose holder is gone, and which led to no response, gives way.
_TAKE: Final = f"""
    INSERT INTO claims (owner, token, digest, response, created_at, writer)
    VALUES ($1, $2, $3, $4, $5, $6)
    ON CONFLICT (owner, token) DO UPDATE SET digest = excluded.digest,
        response = excluded.response, created_at = excluded.created_at, writer = excluded.writer
    WHERE NOT {_HELD} AND NOT EXISTS (
        SELECT FROM responses WHERE responses.owner = claims.owner AND id = claims.response
    )
    RETURNING TRUE
"""  # noqa: S608 # constants
_NOTE: Final = """
    INSERT INTO claims (owner, token, digest, response, created_at, writer)
    VALUES ($1, $2, $3, $4, $5, $6)
    ON CONFLICT (owner, token) DO UPDATE SET digest = excluded.digest,
        response = excluded.response, created_at = excluded.created_at, writer = excluded.writer
"""
# Whoever claims the same token waits for this transaction, and then sees what it made.
_QUEUE: Final = "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))"
_FIND: Final = f"""
    SELECT digest, response, created_at, {_HELD} FROM claims WHERE owner = $1 AND token = $2
"""  # noqa: S608 # constants
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
_SWEEP_CLAIMS: Final = """
    WITH gone AS (
        DELETE FROM claims WHERE ctid = ANY(ARRAY(
            SELECT ctid FROM claims WHERE created_at < $1
            ORDER BY created_at LIMIT $2 FOR UPDATE SKIP LOCKED
        )) RETURNING TRUE
    ) SELECT count(*) FROM gone
"""
_SWEEP_NOTICES: Final = """
    WITH gone AS (
        DELETE FROM notices WHERE key = ANY(ARRAY(
            SELECT key FROM notices WHERE created_at < $1
            ORDER BY key LIMIT $2 FOR UPDATE SKIP LOCKED
        )) RETURNING TRUE
    ) SELECT count(*) FROM gone
"""
_SELECT_KEYS: Final = "SELECT id, owner, digest, created_at, expires_at, revoked_at, name FROM keys"


class PostgresClaims:
    """See `Claims` for what the methods do. `sign` returns the name of the live node."""

    def __init__(self, database: Database, sign: Callable[[], Awaitable[str]]) -> None:
        self._database = database
        self._sign = sign

    async def take(
        self, owner: str, token: str, digest: bytes, response_id: str, now: int
    ) -> Claim | None:
        """Claim the token; return None, or the claim that is there already."""
        writer = await self._sign()

        async def run(connection: Connection) -> Claim | None:
            values = (owner, token, digest, response_id, now, writer)
            found: Claim | None = None
            while found is None:
                if await connection.fetchval(_TAKE, *values):
                    return None
                # None: it was released in between, so it is ours to take.
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
        """Return the claim on this token."""
        if not is_text(token):
            return None
        return await self._database.ask(lambda connection: _find(connection, owner, token))

    async def release(self, owner: str, token: str, response_id: str) -> None:
        """Forget the claim if it leads to this response."""
        statement = "DELETE FROM claims WHERE owner = $1 AND token = $2 AND response = $3"
        await self._database.ask(
            lambda connection: connection.execute(statement, owner, token, response_id)
        )


async def earlier_claim(
    connection: Connection, owner: str, once: ClaimRequest | None
) -> Claim | None:
    """Return the claim on this token that is there already, if it still counts.

    Whoever asks for the same token meanwhile waits until this transaction has ended.
    """
    if once is None:
        return None
    await connection.execute(_QUEUE, f"{owner}\n{once.token}")
    found = await _find(connection, owner, once.token)
    return None if found is None or found.created_at < once.since else found


async def note_once(
    connection: Connection, owner: str, once: ClaimRequest | None, made: str, writer: str
) -> None:
    """Claim the token for what was made in this transaction, in place of any older claim."""
    if once is not None:
        await connection.execute(_NOTE, owner, once.token, once.digest, made, once.now, writer)


class PostgresNotices:
    """See `Notices` for what the methods do."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def take(self, endpoint: str, now: int, hide_until: int, limit: int) -> list[Notice]:
        """Return what is due, oldest first, and hide it; count the attempt."""
        rows = await self._database.change(
            lambda connection: connection.fetch(_DUE, endpoint, now, hide_until, limit)
        )
        return [Notice(*row) for row in rows]

    async def postpone(self, notice_id: str, until: int) -> None:
        """Be due again at this time."""
        statement = "UPDATE notices SET due_at = $1 WHERE id = $2"
        await self._database.ask(lambda connection: connection.execute(statement, until, notice_id))

    async def settle(self, notice_id: str) -> None:
        """Forget the notice."""
        statement = "DELETE FROM notices WHERE id = $1"
        await self._database.ask(lambda connection: connection.execute(statement, notice_id))


async def sweep_claims(connection: Connection, before: int) -> int:
    """Forget the oldest claims made before this time, SWEEP_SIZE at most; say how many."""
    return int(await connection.fetchval(_SWEEP_CLAIMS, before, SWEEP_SIZE))


async def sweep_notices(connection: Connection, before: int) -> int:
    """Forget the oldest notices made before this time, SWEEP_SIZE at most; say how many."""
    return int(await connection.fetchval(_SWEEP_NOTICES, before, SWEEP_SIZE))


async def sweep_nodes(connection: Connection) -> None:
    """Forget nodes long gone that left nothing behind."""
    await connection.execute(
        "DELETE FROM nodes WHERE lease_until < clock_timestamp() - interval '1 day'"
        " AND NOT EXISTS (SELECT FROM responses WHERE writer = nodes.name)"
    )


async def keep_secret(connection: Connection, name: str, value: bytes) -> bytes:
    """Return the secret of this name; keep this value if there is none."""
    await connection.execute(
        "INSERT INTO secrets (name, value) VALUES ($1, $2) ON CONFLICT (name) DO NOTHING",
        name,
        value,
    )
    found: bytes = await connection.fetchval("SELECT value FROM secrets WHERE name = $1", name)
    return found


async def add_key(connection: Connection, key: KeyRecord) -> bool:
    """Insert a key; False if its id is taken."""
    found = await connection.fetchval(
        "INSERT INTO keys (id, owner, digest, created_at, expires_at, revoked_at, name)"
        " VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (id) DO NOTHING RETURNING TRUE",
        *msgspec.structs.astuple(key),
    )
    return found is not None


async def find_key(connection: Connection, key_id: str) -> KeyRecord | None:
    """Return the key with this id."""
    row = await connection.fetchrow(f"{_SELECT_KEYS} WHERE id = $1", key_id)
    return None if row is None else KeyRecord(*row)


async def list_keys(connection: Connection) -> list[KeyRecord]:
    """Return every key, oldest first."""
    rows = await connection.fetch(f"{_SELECT_KEYS} ORDER BY created_at, number")
    return [KeyRecord(*row) for row in rows]


async def revoke_key(connection: Connection, key_id: str, now: int) -> bool:
    """Revoke a key that is in force; say whether there was one."""
    found = await connection.fetchval(
        "UPDATE keys SET revoked_at = $2 WHERE id = $1 AND revoked_at IS NULL"
        " AND (expires_at IS NULL OR expires_at > $2) RETURNING TRUE",
        key_id,
        now,
    )
    return found is not None


async def _find(connection: Connection, owner: str, token: str) -> Claim | None:
    row = await connection.fetchrow(_FIND, owner, token)
    return None if row is None else Claim(*row)
