"""What can this machine's PostgreSQL do? Figures for the model of `scale_model.py`.

Measures, each for a few seconds: one fsync, grouped appends of 1 to 256 batches in a commit,
commits with NOTIFY inside the transaction, outside of it and without it on 16 and 32
connections, and what is left to vacuum when logs are deleted by row or dropped as partitions.
It starts a server of its own with fsync on, as the tests do, or uses DATABASE_URL.

    python bench/pg_limits.py [--seconds 2] [--json FILE]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import asyncpg
from disk import sync_seconds
from processes import machine

__all__ = ["measure", "own_database"]

ROOT: Final = Path(__file__).resolve().parents[1]
_GROUPS: Final = (1, 4, 16, 64, 256)
_BODY: Final = b"x" * 120
_STREAMS: Final = 512
_NOTIFY_CONNECTIONS: Final = (16, 32)
_COALESCE_SECONDS: Final = 0.02

# The statement of the store (see `store/postgres/log.py`), without its lease.
_APPEND: Final = """
    WITH wanted AS (SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bytea[])
        AS wanted (response, first, body)),
    held AS MATERIALIZED (
        SELECT wanted.* FROM wanted JOIN turns ON turns.key = wanted.response
        ORDER BY turns.key FOR UPDATE OF turns)
    INSERT INTO {table} (response, first, last, owner, body)
    SELECT response, first, first, 'bench', body FROM held
"""
_LOG: Final = """
    CREATE TABLE {table} (response BIGINT NOT NULL, first BIGINT NOT NULL, last BIGINT NOT NULL,
        owner TEXT COLLATE "C" NOT NULL, body BYTEA NOT NULL, PRIMARY KEY (response, first)) {how}
"""


@asynccontextmanager
async def own_database() -> AsyncIterator[str]:
    """Yield the URL of an empty schema. A server of our own waits for the disk at every commit."""
    sys.path.insert(0, str(ROOT))
    from tests.postgres import fresh_database, server

    if server().is_ours:  # the tests run it without fsync
        connection = await asyncpg.connect(server().url)
        for setting in ("fsync = on", "max_wal_size = '4GB'", "checkpoint_timeout = '15min'"):
            await connection.execute(f"ALTER SYSTEM SET {setting}")
        await connection.execute("SELECT pg_reload_conf()")
        await connection.close()
    async with fresh_database() as url:
        yield url


async def _repeat(seconds: float, run: Callable[[], Awaitable[object]]) -> list[float]:
    """Return how long each run took."""
    took, end = [], time.perf_counter() + seconds
    while (start := time.perf_counter()) < end:
        await run()
        took.append(time.perf_counter() - start)
    return took


@asynccontextmanager
async def _connections(url: str, count: int) -> AsyncIterator[list[Any]]:
    made = [await asyncpg.connect(url) for _ in range(count)]
    try:
        yield made
    finally:
        for one in made:
            await one.close()


async def _wal(connection: Any) -> int:
    return int(await connection.fetchval("SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn"))


async def _tables(connection: Any) -> None:
    await connection.execute("CREATE TABLE turns (key BIGINT PRIMARY KEY)")
    await connection.execute(f"INSERT INTO turns SELECT generate_series(1, {_STREAMS})")
    await connection.execute(_LOG.format(table="plain", how=""))
    await connection.execute(_LOG.format(table="log", how="PARTITION BY RANGE (response)"))
    await connection.execute("CREATE TABLE log_1 PARTITION OF log FOR VALUES FROM (0) TO (1000000)")
    await connection.execute("CREATE TABLE segments (node BIGINT, number BIGINT, body BYTEA)")


class _Appender:
    """Appends one batch to each of the next streams, in one commit."""

    def __init__(self, connection: Any, table: str, group: int) -> None:
        self._connection = connection
        self._statement = _APPEND.format(table=table)
        self._group = group
        self._next = [0] * (_STREAMS + 1)
        self._at = 0

    async def __call__(self) -> None:
        streams = [(self._at + number) % _STREAMS + 1 for number in range(self._group)]
        self._at += self._group
        firsts = [self._next[stream] for stream in streams]
        for stream in streams:
            self._next[stream] += 1
        await self._connection.execute(self._statement, streams, firsts, [_BODY] * self._group)


async def groups(connection: Any, seconds: float) -> list[dict[str, float]]:
    """Return what a commit of each size takes, on one connection, with its WAL."""
    found = []
    for group in _GROUPS:
        await connection.execute("TRUNCATE log")
        append = _Appender(connection, "log", group)
        before = await _wal(connection)
        took = sorted(await _repeat(seconds, append))
        found.append(
            {
                "group": group,
                "median": statistics.median(took),
                "p99": took[int(len(took) * 0.99)],
                "per_second": group * len(took) / sum(took),
                "wal_bytes": (await _wal(connection) - before) / (group * len(took)),
            }
        )
    return found


async def segment(connection: Any, seconds: float, size: int = 100_000) -> dict[str, float]:
    """Return what a commit of one blob of this size takes."""
    body, before = os.urandom(size), await _wal(connection)
    insert = "INSERT INTO segments VALUES (1, 1, $1)"
    took = await _repeat(seconds, lambda: connection.execute(insert, body))
    wal = (await _wal(connection) - before) / len(took)
    return {"bytes": size, "median": statistics.median(took), "wal_bytes": wal}


async def notify(url: str, count: int, how: str, seconds: float) -> float:
    """Return commits per second of this many connections; `how` is none, inside or outside."""
    changed: set[str] = set()
    statement = "INSERT INTO plain VALUES ($1, $2, $2, 'bench', $3)"
    if how == "inside":
        statement = f"WITH a AS ({statement}) SELECT pg_notify('bench', $1::bigint::text)"
    is_over = False

    async def ring(connection: Any) -> None:
        while not is_over:
            await asyncio.sleep(_COALESCE_SECONDS)
            ids = list(changed)
            changed.clear()
            if ids:
                await connection.execute(
                    "SELECT pg_notify('bench', id) FROM unnest($1::text[]) AS id", ids
                )

    async with _connections(url, count + 1) as connections:
        await connections[0].execute("TRUNCATE plain")
        await connections[-1].execute("SET synchronous_commit = off")
        bell = asyncio.create_task(ring(connections[-1])) if how == "outside" else None

        async def write(number: int) -> int:
            place = 0

            async def one() -> None:
                nonlocal place
                place += 1
                await connections[number].execute(statement, number, place, _BODY)
                changed.add(str(number))

            return len(await _repeat(seconds, one))

        start = time.perf_counter()
        done = sum(await asyncio.gather(*(write(number) for number in range(count))))
        rate = done / (time.perf_counter() - start)
        is_over = True
        if bell is not None:
            await bell
    return rate


async def debt(connection: Any, table: str, turns: int = 200, batches: int = 40) -> dict[str, Any]:
    """Return what is left of turns that have ended: rows deleted, or their partition dropped."""
    await connection.execute("TRUNCATE plain, log")
    before, start = await _wal(connection), time.perf_counter()
    for place in range(batches):
        keys = list(range(1, turns + 1))
        await connection.execute(
            _APPEND.format(table=table), keys, [place] * turns, [_BODY] * turns
        )
    if table == "plain":
        for key in range(0, turns, 10):
            ended = list(range(key + 1, key + 11))
            await connection.execute("DELETE FROM plain WHERE response = ANY($1::bigint[])", ended)
        left = await connection.fetchval("SELECT pg_total_relation_size('plain')")
    else:
        await connection.execute("DROP TABLE log_1")
        left = await connection.fetchval(
            "SELECT sum(pg_total_relation_size(relid)) FROM pg_partition_tree('log')"
        )
    took = time.perf_counter() - start
    wal = (await _wal(connection) - before) / (turns * batches)
    return {"left_bytes": int(left or 0), "wal_bytes": wal, "per_second": turns * batches / took}


async def measure(url: str, seconds: float) -> dict[str, Any]:
    """Return all figures."""
    fsyncs = sync_seconds(Path(tempfile.gettempdir()))
    found: dict[str, Any] = {
        "machine": machine(),
        "fsync": {"median": statistics.median(fsyncs), "p99": fsyncs[int(len(fsyncs) * 0.99)]},
    }
    async with _connections(url, 1) as (connection,):
        await _tables(connection)
        found["groups"] = await groups(connection, seconds)
        found["segment"] = await segment(connection, seconds)
        found["notify"] = [
            {
                "connections": count,
                **{how: await notify(url, count, how, seconds) for how in _HOW},
            }
            for count in _NOTIFY_CONNECTIONS
        ]
        found["deleted"] = await debt(connection, "plain")
        found["dropped"] = await debt(connection, "log")
    return found


async def _measure_own(seconds: float) -> dict[str, Any]:
    async with own_database() as url:
        return await measure(url, seconds)


_HOW: Final = ("inside", "outside", "none")


def show(found: dict[str, Any]) -> None:
    """Print the figures."""
    print(f"PostgreSQL on this machine ({found['machine']})\n")
    fsync = found["fsync"]
    print(f"fsync of 8 KiB: median {fsync['median'] * 1e3:.2f} ms, p99 {fsync['p99'] * 1e3:.2f} ms")
    print("\nbatches in a commit   median, ms   p99, ms   batches/s   WAL bytes each")
    for one in found["groups"]:
        print(
            f"{one['group']:19}   {one['median'] * 1e3:10.2f}   {one['p99'] * 1e3:7.2f}"
            f"   {one['per_second']:9,.0f}   {one['wal_bytes']:14.0f}"
        )
    blob = found["segment"]
    print(
        f"a segment of {blob['bytes'] / 1e3:.0f} kB: {blob['median'] * 1e3:.2f} ms,"
        f" {blob['wal_bytes'] / 1e3:.0f} kB WAL"
    )
    print("\ncommits/s     NOTIFY inside   outside     none   outside to inside")
    for one in found["notify"]:
        print(
            f"{one['connections']:3} connections {one['inside']:11,.0f}{one['outside']:10,.0f}"
            f"{one['none']:9,.0f}   {one['outside'] / one['inside']:16.1f}x"
        )
    print("\nends of turns         left to vacuum   WAL bytes a batch   batches/s")
    for name in ("deleted", "dropped"):
        one = found[name]
        how = "rows deleted" if name == "deleted" else "partition dropped"
        print(
            f"{how:20} {one['left_bytes'] / 1e6:12.1f} MB   {one['wal_bytes']:17.0f}"
            f"   {one['per_second']:9,.0f}"
        )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="What can this machine's PostgreSQL do?")
    parser.add_argument("--seconds", type=float, default=2.0, help="for each figure")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures")
    given = parser.parse_args()
    found = asyncio.run(_measure_own(given.seconds))
    show(found)
    if given.json:
        given.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
