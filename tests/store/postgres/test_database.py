"""Connections to PostgreSQL: what they are set to, who has to wait, and for how long."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from functools import partial

import asyncpg
import pytest

from antiphon.protocol.errors import StoreUnavailable
from antiphon.store.base import Batch, Conversation
from antiphon.store.postgres import PostgresStore, log, writers
from antiphon.store.postgres import database as postgres_database
from antiphon.store.postgres.database import Database
from antiphon.store.postgres.migrations import MIGRATIONS, migrate
from tests.postgres import fresh_database
from tests.store.samples import OWNER, message, opened, run_turn

FIRST = Batch(0, 0, b"a")


@pytest.fixture
async def url() -> AsyncIterator[str]:
    async with fresh_database() as made:
        yield made


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("enable_seqscan", "off"),
        ("jit", "off"),
        ("statement_timeout", "1min"),
        ("idle_in_transaction_session_timeout", "1min"),
        ("default_transaction_isolation", "read committed"),
    ],
)
async def test_every_connection_is_set_to_what_we_need(url: str, setting: str, value: str) -> None:
    """Also one that was lent before, and those beside the pool."""
    database = Database(f"{url}&default_transaction_isolation=serializable", 60.0)
    for _ in range(2):
        found = await database.ask(lambda connection: connection.fetchval(f"SHOW {setting}"))
        assert found == value
    connection = await database.connect()
    assert await connection.fetchval(f"SHOW {setting}") == value
    await connection.close()
    await database.close()


@pytest.mark.parametrize(
    ("question", "values"),
    [(log._READ_LOG, (OWNER, "r1", 5)), (writers._ORPHANS, ("me", 100, True))],
)
async def test_plans_made_for_empty_tables_do_for_full_ones(
    url: str, question: str, values: tuple[object, ...]
) -> None:
    """A plan is kept for as long as the connection, and a table may fill up in a minute."""
    database = Database(url, 60.0)
    for prepare in ("SELECT 1", "ANALYZE"):
        await database.ask(lambda connection, prepare=prepare: connection.execute(prepare))  # type: ignore[misc] # bound
        rows = await database.ask(
            lambda connection: connection.fetch(f"EXPLAIN {question}", *values)
        )
        plan = "\n".join(line for (line,) in rows)
        assert "Index" in plan
        assert "Seq Scan" not in plan
        assert "responses_by_time" not in plan
    await database.close()


async def test_changes_that_wait_for_a_row_hold_up_no_stream(url: str) -> None:
    store = PostgresStore(url)
    await store.conversations.create(OWNER, Conversation("c1", 1), [])
    await store.begin(OWNER, opened("r1"), [], batch=FIRST)
    connection = await asyncpg.connect(url)
    async with connection.transaction():
        await connection.execute("SELECT FROM conversations FOR UPDATE")
        adding = [
            asyncio.create_task(store.conversations.add(OWNER, "c1", [message(f"i{n}")]))
            for n in range(20)
        ]
        async with asyncio.timeout(60):
            while not await connection.fetchval(  # noqa: ASYNC110 # the server's doing
                "SELECT count(*) FROM pg_stat_activity"
                " WHERE wait_event_type = 'Lock' AND application_name = 'antiphon'"
            ):
                await asyncio.sleep(0.01)
            await store.append(OWNER, "r1", Batch(1, 1, b"b"))
            log = await store.read_log(OWNER, "r1")
        assert log is not None
        assert len(log.batches) == 2
        assert not any(task.done() for task in adding)
    assert all(await asyncio.gather(*adding))
    await connection.close()
    await store.close()


async def test_a_first_turn_waits_for_a_migration_as_long_as_its_caller(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = (*MIGRATIONS, ("SELECT pg_sleep(3)",))
    monkeypatch.setattr(postgres_database, "migrate", partial(migrate, migrations=slow))
    store = PostgresStore(url, patience=60.0)
    await run_turn(store, "r1")
    await store.close()


async def test_a_migration_may_take_longer_than_a_caller_waits(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    patience = 0.3
    slow = (*MIGRATIONS, (f"SELECT pg_sleep({3 * patience})",))
    monkeypatch.setattr(postgres_database, "migrate", partial(migrate, migrations=slow))
    database = Database(url, patience)
    with pytest.raises(StoreUnavailable, match="did not answer in time"):
        await database.ask(lambda connection: connection.fetchval("SELECT 1"))
    found = None
    async with asyncio.timeout(60):
        while found is None:
            with suppress(StoreUnavailable):
                found = await database.ask(lambda connection: connection.fetchval("SELECT 1"))
    connection = await asyncpg.connect(url)
    assert await connection.fetchval("SELECT max(number) FROM antiphon_migrations") == len(slow)
    await connection.close()
    await database.close()
