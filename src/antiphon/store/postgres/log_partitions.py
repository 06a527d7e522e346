"""How does the log of running responses stay small without deleting row by row?

`log` is partitioned by the key of the response. Keys are given in the order in which responses
start, and once an hour the sequence of the keys jumps to the next partition: so a partition holds
the responses that started within an hour. The end of a turn leaves its rows where they are. A
partition that is closed is dropped as a whole, and there is nothing to vacuum. Rules:

- Every key has a partition: all keys below the current partition belong to one or more closed
  ones, and the sequence jumps only to a partition that exists.
- Before closed partitions are dropped, the rows of responses that still run move to a new one
  with the same keys. Rows of responses that have ended, or were removed, do not move.
- To drop one, all of `log` is locked for some milliseconds. If another transaction uses it for
  longer, such as a backup, it stays until the next sweep: no append waits for a backup.

An antiphon that knows nothing of this reads, appends to and deletes from the same table `log`.
"""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple

import asyncpg

from antiphon.store.postgres.database import Connection
from antiphon.store.postgres.log_migrations import PARTITION_BITS, PARTITION_SETTINGS

__all__ = ["Partition", "close_hour", "cover", "drop_closed", "partitions"]

_LOCK_MILLISECONDS: Final = 200
# A partition is dropped when it was closed for so long: most of its responses have ended by then.
_REST_SECONDS: Final = 900

_LOCK: Final = "SELECT pg_try_advisory_xact_lock(hashtextextended('antiphon log partitions', 0))"
_PARTITIONS: Final = """
    SELECT relname AS name, pg_get_expr(relpartbound, pg_class.oid) AS bound
    FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid
    WHERE inhparent = to_regclass('log')
"""
_BOUND: Final = re.compile(r"FROM \((?:'?(\d+)'?|MINVALUE)\) TO \('?(\d+)'?\)")
_NEXT_KEY: Final = """
    SELECT nextval_of.last_value + nextval_of.is_called::int
    FROM {sequence} AS nextval_of
"""
_SEQUENCE: Final = "SELECT pg_get_serial_sequence('responses', 'key')"
# Seconds since the first response of these keys started, and whether that was in an earlier hour.
_AGE: Final = """
    SELECT extract(epoch FROM now()) - created_at AS seconds,
        floor(created_at / 3600) < floor(extract(epoch FROM now()) / 3600) AS is_over
    FROM responses WHERE key >= $1 ORDER BY key LIMIT 1
"""
_OPEN: Final = "SELECT key FROM responses WHERE writer IS NOT NULL AND key < $1"
_MOVE: Final = """
    INSERT INTO log_moved (key, response, first, last, owner, body)
    SELECT log.key, log.response, log.first, log.last, log.owner, log.body
    FROM unnest($1::bigint[]) AS running (response)
    JOIN log ON log.response = running.response AND log.first > coalesce(
        (SELECT max(first) FROM log_moved WHERE log_moved.response = running.response), -1
    )
"""
_UNMOVE: Final = "DELETE FROM log_moved WHERE response <> ALL($1::bigint[])"
_HAS_ENDED: Final = """
    SELECT EXISTS (SELECT FROM {name} AS past WHERE NOT EXISTS (
        SELECT FROM responses WHERE key = past.response AND writer IS NOT NULL
    ))
"""


class Partition(NamedTuple):
    """The log of the responses with keys from `first`, and below `end`."""

    first: int
    end: int
    name: str


async def partitions(connection: Connection) -> list[Partition]:
    """Return the partitions of the log in the order of their keys."""
    found: list[Partition] = []
    for row in await connection.fetch(_PARTITIONS):
        bound = _BOUND.search(row["bound"])
        assert bound is not None, row["bound"]
        found.append(Partition(int(bound[1] or 0), int(bound[2]), row["name"]))
    return sorted(found)


async def cover(connection: Connection, key: int) -> None:
    """Add a partition if the response of this key would have none."""
    last = (await partitions(connection))[-1]
    if key >= last.end:
        await _add(connection, last.end, ((key >> PARTITION_BITS) + 1) << PARTITION_BITS)


async def close_hour(connection: Connection) -> bool:
    """Give new responses the next partition, if the current one is of an earlier hour.

    In a transaction. Return whether that was done.
    """
    if not await connection.fetchval(_LOCK):
        return False
    sequence = await connection.fetchval(_SEQUENCE)
    key = await connection.fetchval(_NEXT_KEY.format(sequence=sequence))
    await cover(connection, key)
    current = next(one for one in await partitions(connection) if key < one.end)
    age = await connection.fetchrow(_AGE, current.first)
    if age is None or not age["is_over"]:
        return False
    await cover(connection, current.end)
    await connection.execute("SELECT setval($1::text::regclass, $2, FALSE)", sequence, current.end)
    return True


async def drop_closed(connection: Connection, rest: float = _REST_SECONDS) -> int:
    """Drop the partitions that were closed `rest` seconds ago; return how many.

    In a transaction. Rows of responses that still run are moved first. Nothing is dropped, and
    nothing waits, while another transaction uses the log for long.
    """
    if not await connection.fetchval(_LOCK):
        return 0
    key = await connection.fetchval(_NEXT_KEY.format(sequence=await connection.fetchval(_SEQUENCE)))
    found = await partitions(connection)
    current = next((one for one in found if key < one.end), None)
    closed = [one for one in found if current is not None and one.end <= current.first]
    if not closed or current is None or not await _is_worth_it(connection, closed):
        return 0
    age = await connection.fetchrow(_AGE, current.first)
    if age is not None and age["seconds"] < rest:
        return 0
    try:
        # A savepoint: what is left of it if `log` is in use.
        async with connection.transaction():
            await _replace(connection, closed)
    except asyncpg.LockNotAvailableError:
        return 0
    return len(closed)


async def _is_worth_it(connection: Connection, closed: list[Partition]) -> bool:
    if len(closed) > 1:
        return True
    return bool(await connection.fetchval(_HAS_ENDED.format(name=closed[0].name)))


async def _replace(connection: Connection, closed: list[Partition]) -> None:
    """Put one partition in place of all closed ones, with what is still needed of them."""
    end = closed[-1].end
    await connection.execute(
        f"CREATE TABLE log_moved (LIKE log INCLUDING ALL) {PARTITION_SETTINGS}"
    )
    await connection.execute(_MOVE, await _running(connection, end))
    await connection.execute(f"SET LOCAL lock_timeout = {_LOCK_MILLISECONDS}")
    await connection.execute("LOCK TABLE log IN ACCESS EXCLUSIVE MODE")
    # What was appended, what began and what ended while the rows were moved.
    running = await _running(connection, end)
    await connection.execute(_MOVE, running)
    await connection.execute(_UNMOVE, running)
    for one in closed:
        await connection.execute(f"DROP TABLE {one.name}")
    await connection.execute(f"ALTER TABLE log_moved RENAME TO log_until_{end}")
    await connection.execute(
        f"ALTER TABLE log ATTACH PARTITION log_until_{end} FOR VALUES FROM (MINVALUE) TO ({end})"
    )
    await connection.execute("SET LOCAL lock_timeout = DEFAULT")


async def _running(connection: Connection, end: int) -> list[Any]:
    return [key for (key,) in await connection.fetch(_OPEN, end)]


async def _add(connection: Connection, first: int, end: int) -> None:
    # Attached, not created as a partition: that would lock the log.
    name = f"log_from_{first}"
    await connection.execute(f"CREATE TABLE {name} (LIKE log INCLUDING ALL) {PARTITION_SETTINGS}")
    await connection.execute(
        f"ALTER TABLE log ATTACH PARTITION {name} FOR VALUES FROM ({first}) TO ({end})"
    )
