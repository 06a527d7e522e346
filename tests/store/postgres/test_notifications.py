"""No commit of a turn holds the lock of NOTIFY: notifications are transactions of their own.

The statements are read from the wire between the store and the database, so that it does not
matter which module sends them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import asyncpg
import pytest

from antiphon.store.base import Batch
from antiphon.store.postgres import PostgresStore
from tests.postgres import StatementProxy, fresh_database
from tests.store.samples import OWNER, opened

_TURNS = 8


@pytest.fixture
async def url() -> AsyncIterator[str]:
    async with fresh_database() as made:
        yield made


def _noisy(transactions: list[list[str]]) -> list[list[str]]:
    """Return the transactions that notify and write."""
    return [
        one
        for one in transactions
        if "pg_notify(" in (whole := " ".join(one)) and ("INSERT" in whole or "UPDATE" in whole)
    ]


async def _turn(store: PostgresStore, name: str) -> None:
    await store.begin(OWNER, opened(name), [], batch=Batch(0, 0, b"a"), request=b"{}")
    for number in range(1, 4):
        await store.append(OWNER, name, Batch(number, number, b"b"), status="in_progress")
    await store.ask_cancel(OWNER, name)
    await store.finish(OWNER, opened(name, status="completed"), batch=Batch(4, 4, b"c"))


async def test_no_transaction_of_a_turn_notifies(url: str) -> None:
    async with StatementProxy(url) as proxy:
        store = PostgresStore(proxy.url)
        await asyncio.gather(*(_turn(store, f"r{number}") for number in range(_TURNS)))
        await store.delete(OWNER, "r0")
        await store.sweep(2**31, 0)
        await store.close()
    everything = proxy.transactions
    assert any("INSERT INTO log" in " ".join(one) for one in everything)
    assert any("UPDATE responses" in " ".join(one) for one in everything)
    assert any("pg_notify(" in " ".join(one) for one in everything)
    assert _noisy(everything) == []
    connection = await asyncpg.connect(url)
    in_functions = await connection.fetch(
        "SELECT proname FROM pg_proc"
        " WHERE pronamespace = current_schema()::regnamespace AND prosrc ILIKE '%notify%'"
    )
    await connection.close()
    assert in_functions == []


@pytest.mark.parametrize("in_one", [True, False])
async def test_a_transaction_that_notifies_is_noticed(url: str, in_one: bool) -> None:
    """A planted bug: the test above can fail."""
    async with StatementProxy(url) as proxy:
        connection = await asyncpg.connect(proxy.url)
        await connection.execute("CREATE TABLE t (x TEXT)")
        if in_one:
            insert = "WITH a AS (INSERT INTO t VALUES ($1)) SELECT pg_notify('antiphon', $1)"
            await connection.fetch(insert, "x")
        else:
            async with connection.transaction():
                await connection.execute("INSERT INTO t VALUES ($1)", "x")
                await connection.execute("SELECT pg_notify('antiphon', $1)", "x")
        await connection.execute("SELECT pg_notify('antiphon', $1)", "x")
        await connection.close()
    assert len(_noisy(proxy.transactions)) == 1
