"""Runs the operations of `store.sql` in PostgreSQL, each in a transaction.

What two nodes must not do at once is locked by name until the transaction has ended. The contents
of removed blobs are deleted after it, some at a time, and the next sweep completes that if the
node dies.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final, TypeVar

from antiphon.store.postgres.database import Connection, Database, UncertainCommit
from antiphon.store.postgres.rows import is_text
from antiphon.store.sql.steps import Alive, Each, Gone, Lock, Operation, Row, Sql, Step

__all__ = ["PostgresTables", "delete_blobs", "drive"]

_T = TypeVar("_T")

_LOCK: Final = "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))"
_ALIVE: Final = (
    "SELECT EXISTS (SELECT FROM nodes WHERE name = $1 AND lease_until > clock_timestamp())"
)
# Deleted in one statement: it ends long before the time of a statement is over.
_PIECES_AT_ONCE: Final = 64
_DELETE_PIECES: Final = """
    WITH gone AS (
        DELETE FROM blob_pieces WHERE ctid = ANY(ARRAY(
            SELECT blob_pieces.ctid FROM blobs JOIN blob_pieces ON blob = key
            WHERE id = ANY($1::text[]) AND state = 2 LIMIT $2
        )) RETURNING TRUE
    ) SELECT count(*) FROM gone
"""
_DELETE: Final = "DELETE FROM blobs WHERE id = ANY($1::text[]) AND state = 2"


class PostgresTables:
    """See `Tables` for what the methods do. `sign` returns the name of the live node."""

    def __init__(self, database: Database, sign: Callable[[], Awaitable[str]]) -> None:
        self._database = database
        self._sign = sign

    async def read(self, operation: Operation[_T]) -> _T:
        return await self._database.view(partial(drive, operation, []))

    async def change(self, operation: Operation[_T]) -> _T:
        gone: list[str] = []
        again: list[str] = []
        try:
            result = await self._database.change(partial(drive, operation, gone))
        except UncertainCommit:
            result = await self._database.change(partial(drive, operation, again))
        await self._clean_up([*gone, *again])
        return result

    async def remove(self, operation: Operation[bool]) -> bool:
        gone: list[str] = []
        result = await self._database.change(partial(drive, operation, gone))
        await self._clean_up(gone)
        return result

    async def sign(self) -> str:
        return await self._sign()

    async def is_unused(self) -> bool:
        return False

    def is_text(self, name: str) -> bool:
        return is_text(name)

    async def _clean_up(self, gone: Sequence[str]) -> None:
        if gone:
            # Also if the caller is cancelled now: what it wanted is done.
            await asyncio.shield(delete_blobs(self._database, gone))


async def delete_blobs(database: Database, gone: Sequence[str]) -> None:
    """Delete removed blobs with their contents."""
    found = _PIECES_AT_ONCE
    while found == _PIECES_AT_ONCE:
        found = await database.ask_value(_DELETE_PIECES, list(gone), _PIECES_AT_ONCE)
    await database.ask_value(_DELETE, list(gone))


async def drive(operation: Operation[_T], gone: list[str], connection: Connection) -> _T:
    """Do the steps on a connection and return their result; set `gone` to the removed blobs."""
    gone.clear()  # a transaction that failed is tried again
    steps = operation()
    try:
        step = next(steps)
        while True:
            step = steps.send(await _do(step, gone, connection))
    except StopIteration as end:
        result: _T = end.value
        return result


async def _do(step: Step, gone: list[str], connection: Connection) -> Sequence[Row]:
    match step:
        case Sql(statement, values):
            rows: Sequence[Row] = await connection.fetch(statement, *values)
            return rows
        case Each(statement, every):
            await connection.executemany(statement, every)
        case Lock(name):
            await connection.execute(_LOCK, name)
        case Alive(writer):
            return [(await connection.fetchval(_ALIVE, writer),)]
        case Gone(blobs):
            gone += blobs
    return ()
