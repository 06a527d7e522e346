"""Migrations on PostgreSQL: from any older version, by many at once, and never backwards."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from antiphon.protocol.errors import StoreUnavailable
from antiphon.store.base.ledger import Budget, Granted
from antiphon.store.copy_tables import LEDGER_TABLES
from antiphon.store.downgrade import LevelRefused, allow_older
from antiphon.store.postgres import PostgresStore
from antiphon.store.postgres.migrations import (
    ADDITIONS,
    MIGRATIONS,
    OLDEST_LEVEL,
    TakenNames,
    check_version,
    is_newest,
    migrate,
    read_level,
)
from antiphon.store.versions import NewerDatabase
from tests.postgres import fresh_database
from tests.store.ledger_samples import ending, wanted
from tests.store.samples import run_turn

LATER = (*MIGRATIONS, ("CREATE TABLE later (x INTEGER)", "INSERT INTO later VALUES (1)"))


@pytest.fixture
async def url() -> AsyncIterator[str]:
    async with fresh_database() as made:
        yield made


@pytest.fixture
async def connection(url: str) -> AsyncIterator[Any]:
    made = await asyncpg.connect(url)
    yield made
    await made.close()


async def test_an_empty_database_becomes_ours(connection: Any) -> None:
    await migrate(connection)
    await migrate(connection)
    rows = await connection.fetch(
        "SELECT number FROM antiphon_migrations UNION ALL SELECT number FROM antiphon_additions"
        " ORDER BY number"
    )
    assert [number for (number,) in rows] == list(range(1, len(MIGRATIONS) + 1))


async def test_an_older_database_gets_what_is_missing(connection: Any) -> None:
    await migrate(connection)
    await migrate(connection, LATER)
    assert await connection.fetchval("SELECT x FROM later") == 1


async def test_an_antiphon_that_does_not_know_of_it_counts_what_it_removes(
    url: str, connection: Any
) -> None:
    await migrate(connection, MIGRATIONS[:1])
    await migrate(connection)
    store = PostgresStore(url)
    await run_turn(store, "r1")
    before = await store.removals()
    schema = await connection.fetchval("SELECT current_schema()")
    await connection.execute("SET search_path TO pg_catalog")
    await connection.execute(f"DELETE FROM {schema}.responses")
    assert await store.removals() == before + 1
    await connection.execute(f"TRUNCATE {schema}.responses")
    assert await store.removals() == before + 2
    await store.close()


LEDGER_OF_ONE_TABLE = 12
"""The last version in which charges were one table."""


async def test_charges_of_one_table_are_divided_and_none_is_lost(connection: Any, url: str) -> None:
    async with fresh_database() as other:
        source = PostgresStore(other)
        await source.ledger.put_budget(Budget(id="b", scope="project", scope_id="p", ceiling=10**6))
        for name in ("r1", "r2", "r3"):
            await source.ledger.reserve(wanted(name))
        await source.ledger.settle([ending("r1"), ending("r2", outcome="released", cost=0)])
        charges = await source.ledger.charges()
        await source.close()
        await migrate(connection, MIGRATIONS[:LEDGER_OF_ONE_TABLE])
        await fill(other, connection)
    store = PostgresStore(url)
    assert await store.ledger.charges() == charges
    assert isinstance(await store.ledger.reserve(wanted("r3")), Granted)  # it is there already
    assert await store.ledger.settle_abandoned(10) == 1
    await store.ledger.reserve(wanted("r4"))
    await store.ledger.settle([ending("r4")])
    states = [one.state for one in await store.ledger.charges()]
    assert sorted(states) == ["released", "settled", "settled", "settled"]
    assert await store.ledger.check() == []
    await store.close()
    keys = await connection.fetch("SELECT key FROM charges ORDER BY key")
    assert [key for (key,) in keys] == [1, 2, 3, 4]


async def fill(source: str, target: Any) -> None:
    """Write the rows of a ledger into the tables of an older one."""
    connection = await asyncpg.connect(source)
    for table in LEDGER_TABLES:
        columns = ", ".join(table.columns)
        rows = await connection.fetch(f"SELECT {columns} FROM {table.name}")
        await target.copy_records_to_table(table.name, records=rows, columns=table.columns)
        if table.columns[0] == "key":
            await target.execute(
                f"SELECT setval(pg_get_serial_sequence('{table.name}', 'key'),"
                f" greatest(max(key), 1)) FROM {table.name}"
            )
    await connection.close()


async def test_many_may_migrate_at_once(url: str) -> None:
    async def one() -> None:
        connection = await asyncpg.connect(url)
        await migrate(connection, LATER)
        await connection.close()

    await asyncio.gather(*(one() for _ in range(6)))
    connection = await asyncpg.connect(url)
    assert await connection.fetchval("SELECT count(*) FROM later") == 1
    await connection.close()


async def test_a_newer_database_is_refused_untouched(url: str, connection: Any) -> None:
    await migrate(connection, LATER)
    store = PostgresStore(url)
    with pytest.raises(NewerDatabase, match="upgrade antiphon"):
        await store.list_keys()
    await store.close()
    assert await connection.fetchval("SELECT count(*) FROM nodes") == 0


async def test_a_database_with_more_additions_only_is_used(url: str, connection: Any) -> None:
    await migrate(connection, LATER, {*ADDITIONS, len(LATER)})
    store = PostgresStore(url)
    assert await store.list_keys() == []
    await store.close()
    with pytest.raises(NewerDatabase):  # a copy would lack what was added
        await check_version(connection)


async def test_an_older_one_is_allowed_to_start_and_nothing_is_migrated_twice(
    url: str, connection: Any
) -> None:
    await migrate(connection)
    old = MIGRATIONS[:OLDEST_LEVEL]
    with pytest.raises(NewerDatabase):
        await is_newest(connection, old)
    await allow_older(url, OLDEST_LEVEL)
    assert await is_newest(connection, old)
    await migrate(connection)
    assert await read_level(connection) == OLDEST_LEVEL
    with pytest.raises(LevelRefused, match=f"from {OLDEST_LEVEL} to {OLDEST_LEVEL}"):
        await allow_older(url, OLDEST_LEVEL - 1)


async def test_the_next_migration_refuses_older_ones_again(url: str, connection: Any) -> None:
    await migrate(connection)
    await allow_older(url, OLDEST_LEVEL)
    await migrate(connection, LATER)
    with pytest.raises(NewerDatabase):
        await is_newest(connection)


async def test_tables_of_another_program_are_left_alone(url: str, connection: Any) -> None:
    await connection.execute("CREATE TABLE keys (mine TEXT)")
    store = PostgresStore(url)
    with pytest.raises(TakenNames, match="of its own"):
        await store.ping()
    await store.close()
    tables = await connection.fetch(
        "SELECT table_name FROM information_schema.tables WHERE table_schema = current_schema()"
    )
    assert [name for (name,) in tables] == ["keys"]


async def test_a_migration_that_fails_leaves_the_old_version(connection: Any) -> None:
    await migrate(connection)
    with pytest.raises(asyncpg.PostgresError):
        await migrate(connection, (*MIGRATIONS, ("CREATE TABLE later (x INT)", "nonsense")))
    assert await connection.fetchval("SELECT to_regclass('later')") is None
    await migrate(connection)


async def test_a_user_without_rights_is_told_so(url: str, connection: Any) -> None:
    await migrate(connection)
    schema = await connection.fetchval("SELECT current_schema()")
    role = f"{schema}_reader"
    await connection.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'x'")
    await connection.execute(f"GRANT USAGE ON SCHEMA {schema} TO {role}")
    try:
        scheme, _, place = url.partition("://")
        store = PostgresStore(f"{scheme}://{role}:x@{place.partition('@')[2]}")
        with pytest.raises(StoreUnavailable, match="does not let this gateway's user do that"):
            await store.list_keys()
        await store.close()
    finally:
        await connection.execute(f"DROP OWNED BY {role}")
        await connection.execute(f"DROP ROLE {role}")
