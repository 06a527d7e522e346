"""The partitions of the log: an hour each, dropped as a whole, and no open turn is lost."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from antiphon.store.base import Batch
from antiphon.store.copy import copy_store
from antiphon.store.postgres import PostgresStore
from antiphon.store.postgres.log_migrations import LOG_PARTITIONS
from antiphon.store.postgres.log_partitions import close_hour, drop_closed, partitions
from antiphon.store.postgres.migrations import MIGRATIONS, migrate
from tests.postgres import fresh_database
from tests.store.samples import OWNER, opened

HOUR = 3600


@pytest.fixture
async def url() -> AsyncIterator[str]:
    async with fresh_database() as made:
        yield made


@pytest.fixture
async def store(url: str) -> AsyncIterator[PostgresStore]:
    made = PostgresStore(url)
    yield made
    await made.close()


@pytest.fixture
async def connection(url: str, store: PostgresStore) -> AsyncIterator[Any]:
    await store.ping()
    made = await asyncpg.connect(url)
    yield made
    await made.close()


async def _begin(store: PostgresStore, name: str) -> None:
    response = opened(name, created_at=int(time.time()))
    await store.begin(OWNER, response, [], batch=Batch(0, 0, name.encode()))


async def _end(store: PostgresStore, name: str, last: int) -> None:
    end = Batch(last, last, f"end of {name}".encode())
    await store.finish(OWNER, opened(name, status="completed"), batch=end)


async def _pass_an_hour(connection: Any) -> bool:
    """Make everything that was stored an hour older, and close the partition."""
    await connection.execute("UPDATE responses SET created_at = created_at - $1", HOUR)
    async with connection.transaction():
        return await close_hour(connection)


async def _drop(connection: Any, rest: float = 900) -> int:
    async with connection.transaction():
        return await drop_closed(connection, rest)


async def _bodies(store: PostgresStore, name: str) -> list[bytes]:
    log = await store.read_log(OWNER, name)
    assert log is not None
    return [batch.body for batch in log.batches]


async def test_the_end_of_a_turn_deletes_no_row(store: PostgresStore, connection: Any) -> None:
    await _begin(store, "r1")
    await _end(store, "r1", 1)
    assert await connection.fetchval("SELECT count(*) FROM log") == 1
    assert await _bodies(store, "r1") == [b"r1", b"end of r1"]


async def test_responses_of_another_hour_have_another_partition(
    store: PostgresStore, connection: Any
) -> None:
    await _begin(store, "r1")
    async with connection.transaction():
        assert not await close_hour(connection)
    assert await _pass_an_hour(connection)
    assert not await _pass_an_hour(connection)  # it is empty
    await _begin(store, "r2")
    rows = await connection.fetch("SELECT tableoid, response FROM log ORDER BY response")
    assert len({table for table, _ in rows}) == 2


async def test_a_partition_is_dropped_and_running_turns_go_on(
    store: PostgresStore, connection: Any
) -> None:
    for name in ("r1", "r2"):
        await _begin(store, name)
    await _end(store, "r1", 1)
    before = {one.name for one in await partitions(connection)}
    await _pass_an_hour(connection)
    assert await _drop(connection) == 2
    assert not before & {one.name for one in await partitions(connection)}
    assert await connection.fetchval("SELECT count(*) FROM log") == 1
    assert await store.append(OWNER, "r2", Batch(1, 1, b"more")) is False
    assert await _bodies(store, "r2") == [b"r2", b"more"]
    await _end(store, "r2", 2)
    assert await _bodies(store, "r2") == [b"r2", b"more", b"end of r2"]
    assert await _bodies(store, "r1") == [b"r1", b"end of r1"]
    assert await _drop(connection) == 1  # the one with what was moved
    assert await connection.fetchval("SELECT count(*) FROM log") == 0
    assert await _drop(connection) == 0


async def test_a_partition_that_was_just_closed_is_not_dropped(
    store: PostgresStore, connection: Any
) -> None:
    await _begin(store, "r1")
    await connection.execute("UPDATE responses SET created_at = extract(epoch FROM now()) - 3600")
    async with connection.transaction():
        assert await close_hour(connection)
    await _begin(store, "r2")
    assert await _drop(connection) == 0


async def test_a_deleted_response_leaves_no_row_in_any_partition(
    store: PostgresStore, connection: Any
) -> None:
    for name in ("r1", "r2"):
        await _begin(store, name)
        await _end(store, name, 1)
        await _pass_an_hour(connection)
    assert await store.delete(OWNER, "r1")
    assert await connection.fetchval("SELECT count(*) FROM log") == 1
    assert await store.delete(OWNER, "r2")
    tables = [one.name for one in await partitions(connection)]
    for table in tables:
        assert await connection.fetchval(f"SELECT count(*) FROM {table}") == 0


async def test_nothing_waits_for_a_transaction_that_reads_the_log_for_long(
    url: str, store: PostgresStore, connection: Any
) -> None:
    await _begin(store, "r1")
    await _pass_an_hour(connection)
    backup = await asyncpg.connect(url)
    await backup.execute("BEGIN; LOCK TABLE log IN ACCESS SHARE MODE")
    assert await _drop(connection) == 0
    assert await store.append(OWNER, "r1", Batch(1, 1, b"more")) is False
    await backup.execute("COMMIT")
    await backup.close()
    assert await _drop(connection) == 2
    assert await _bodies(store, "r1") == [b"r1", b"more"]


async def test_turns_are_whole_while_partitions_come_and_go(
    store: PostgresStore, connection: Any
) -> None:
    is_over = asyncio.Event()
    done = [0] * 8

    async def turns(number: int) -> None:
        while not is_over.is_set():
            name = f"r{number}_{done[number]}"
            await _begin(store, name)
            for place in range(1, 6):
                await store.append(OWNER, name, Batch(place, place, str(place).encode()))
            await _end(store, name, 6)
            expected = [name, "1", "2", "3", "4", "5", f"end of {name}"]
            assert await _bodies(store, name) == [one.encode() for one in expected]
            done[number] += 1

    running = [asyncio.create_task(turns(number)) for number in range(len(done))]
    dropped = 0
    async with asyncio.timeout(120):
        while dropped < 6 or min(done) < 2:
            # Only what has ended: the others are locked again and again.
            await connection.execute(
                "UPDATE responses SET created_at = created_at - 3600 WHERE writer IS NULL"
            )
            async with connection.transaction():
                await close_hour(connection)
            dropped += await _drop(connection, 0)
    is_over.set()
    await asyncio.gather(*running)


async def test_the_sweep_closes_and_drops(store: PostgresStore, connection: Any) -> None:
    await _begin(store, "r1")
    await _end(store, "r1", 1)
    await connection.execute("UPDATE responses SET created_at = extract(epoch FROM now()) - 3600")
    await store.sweep(0, 0)
    await store.sweep(0, 0)
    assert await connection.fetchval("SELECT count(*) FROM log") == 0
    assert await _bodies(store, "r1") == [b"r1", b"end of r1"]


async def test_copied_keys_have_a_partition(
    url: str, store: PostgresStore, connection: Any
) -> None:
    """Keys of the source can be greater than any that the target has a partition for."""
    for number in range(3):
        await _begin(store, f"r{number}")
        await _pass_an_hour(connection)
    await _begin(store, "last")
    await _end(store, "r0", 1)
    await store.close()
    async with fresh_database() as target:
        counts = await copy_store(url, target, lambda *_: None)
        assert counts["log"] == 3
        copied = PostgresStore(target)
        orphans = await copied.claim_orphans(10)
        assert sorted(orphan.response.id for orphan in orphans) == ["last", "r1", "r2"]
        await _begin(copied, "new")
        assert await _bodies(copied, "new") == [b"new"]
        await copied.close()


_OLD_APPEND = """
    INSERT INTO log (response, first, last, owner, body) SELECT key, $1, $1, owner, 'old'
    FROM responses WHERE id = $2 ON CONFLICT (response, first) DO NOTHING
"""


async def test_statements_of_the_version_before_work_through_the_migration(url: str) -> None:
    """A gateway that is one version behind holds prepared statements, and goes on."""
    old, new = await asyncpg.connect(url), await asyncpg.connect(url)
    await migrate(old, MIGRATIONS[: MIGRATIONS.index(LOG_PARTITIONS)])
    begin = await old.prepare(
        "INSERT INTO responses (owner, id, status, writer, created_at, body)"
        " VALUES ('ann', $1, 'in_progress', 'old', 1, '') RETURNING key"
    )
    append = await old.prepare(_OLD_APPEND)
    read = await old.prepare("SELECT first FROM log WHERE response = $1 ORDER BY first")
    end = await old.prepare("DELETE FROM log WHERE response = ANY($1::bigint[])")
    removals = await old.prepare("SELECT count FROM removals")
    first = await begin.fetchval("r1")
    await append.fetch(0, "r1")
    assert await removals.fetchval() == 0
    await migrate(new)
    second = await begin.fetchval("r2")
    for name in ("r1", "r2"):
        await append.fetch(1, name)
        await append.fetch(1, name)
    assert [row[0] for row in await read.fetch(first)] == [0, 1]
    assert [row[0] for row in await read.fetch(second)] == [1]
    await end.fetch([first, second])
    assert await read.fetch(first) == []
    await old.execute("DELETE FROM responses")
    assert await removals.fetchval() == 1
    assert second > first
    await old.close()
    await new.close()


async def test_removals_of_two_gateways_do_not_wait_for_each_other(url: str, store: Any) -> None:
    for number in range(2):
        await _begin(store, f"r{number}")
    connections = [await asyncpg.connect(url) for _ in range(2)]
    parts = [await one.fetchval("SELECT pg_backend_pid() % 32") for one in connections]
    while parts[0] == parts[1]:
        connections.append(await asyncpg.connect(url))
        connections[1] = connections[-1]
        parts[1] = await connections[1].fetchval("SELECT pg_backend_pid() % 32")
    transactions = [one.transaction() for one in connections[:2]]
    for number, transaction in enumerate(transactions):
        await transaction.start()
        async with asyncio.timeout(30):
            await connections[number].execute("DELETE FROM responses WHERE id = $1", f"r{number}")
    assert await store.removals() == 0
    for transaction in transactions:
        await transaction.commit()
    assert await store.removals() == 2
    for one in connections:
        await one.close()
