"""What a sweep removes from PostgreSQL: in steps, and past what others have locked."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from antiphon.store.base import Notice
from antiphon.store.postgres import PostgresStore
from antiphon.store.postgres import store as postgres_store
from tests.postgres import fresh_database
from tests.store.samples import OWNER, opened, run_turn


@pytest.fixture
async def url() -> AsyncIterator[str]:
    async with fresh_database() as made:
        yield made


@pytest.fixture
async def connection(url: str) -> AsyncIterator[Any]:
    made = await asyncpg.connect(url)
    yield made
    await made.close()


@pytest.fixture
async def store(url: str) -> AsyncIterator[PostgresStore]:
    made = PostgresStore(url, patience=30.0)
    yield made
    await made.close()


async def fill(store: PostgresStore, count: int) -> None:
    await run_turn(store, "r1", created_at=1)
    await store.begin(OWNER, opened("r2", created_at=1), [])
    hook = "https://example.test/hook"
    notices = [Notice(f"n{n}", OWNER, "r2", "x", 1, hook) for n in range(count)]
    ended = opened("r2", created_at=1, status="completed")
    await store.finish(OWNER, ended, entries=notices)
    for number in range(count):
        await store.claims.take(OWNER, f"t{number}", b"d", f"r-{number}", number)


async def test_claims_and_notices_go_in_steps(
    store: PostgresStore, connection: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_store, "_ROWS_AT_ONCE", 10)
    await fill(store, 35)
    assert await store.sweep(1_000, 33) == 2
    tokens = await connection.fetch("SELECT token FROM claims ORDER BY created_at")
    assert [token for (token,) in tokens] == ["t33", "t34"]
    assert await connection.fetchval("SELECT count(*) FROM notices") == 0


async def test_a_claim_that_somebody_holds_stays_and_stops_nothing(
    store: PostgresStore, connection: Any
) -> None:
    await fill(store, 3)
    async with connection.transaction():
        await connection.execute("SELECT FROM claims WHERE token = 't1' FOR UPDATE")
        assert await store.sweep(1_000, 1_000) == 2
        left = await connection.fetch("SELECT token FROM claims")
    assert [token for (token,) in left] == ["t1"]


async def test_a_node_long_gone_is_forgotten_when_it_has_left_nothing(
    store: PostgresStore, connection: Any
) -> None:
    await store.begin(OWNER, opened("r1"), [])
    await connection.execute("UPDATE responses SET writer = 'left'")
    await connection.execute(
        "INSERT INTO nodes SELECT name, clock_timestamp() - interval '2 days'"
        " FROM unnest(ARRAY['left', 'gone']) AS name"
    )
    await store.sweep(0, 0)
    names = await connection.fetch("SELECT name FROM nodes WHERE length(name) = 4")
    assert [name for (name,) in names] == ["left"]
