"""The end of a turn on PostgreSQL whose conversation is another's by now."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import asyncpg
import pytest

from antiphon.protocol.errors import ConversationLocked, TurnLost
from antiphon.store.base import Batch, Conversation
from antiphon.store.postgres import PostgresStore
from tests.postgres import fresh_database
from tests.store.samples import OWNER, ids, message, opened

FIRST = Batch(0, 0, b"a")


@pytest.fixture
async def url() -> AsyncIterator[str]:
    async with fresh_database() as made:
        yield made


@pytest.fixture
async def stores(url: str) -> AsyncIterator[list[PostgresStore]]:
    made = [PostgresStore(url), PostgresStore(url)]
    yield made
    for store in made:
        await store.close()


async def test_a_lock_that_was_taken_over_loses_the_turn_and_stays_the_others(
    url: str, stores: list[PostgresStore]
) -> None:
    store, other = stores
    for number in range(3):
        await store.conversations.create(OWNER, Conversation(f"c{number}", 1), [])
        await store.conversations.lock(OWNER, f"c{number}", f"r{number}")
    connection = await asyncpg.connect(url)
    await connection.execute("UPDATE nodes SET lease_until = clock_timestamp()")
    await connection.close()
    await other.ping()
    assert await other.conversations.lock(OWNER, "c1", "r9") == []
    for number in range(3):
        await store.begin(OWNER, opened(f"r{number}"), [], batch=FIRST)
    results = await asyncio.gather(
        *(
            store.finish(OWNER, opened(f"r{n}", status="completed"), said=[message(f"said{n}")])
            for n in range(3)
        ),
        return_exceptions=True,
    )
    assert [type(result) for result in results] == [type(None), TurnLost, type(None)]
    assert "its lock was taken over" in str(results[1])
    assert ids(await store.conversations.items(OWNER, "c0")) == ["said0"]
    assert ids(await store.conversations.items(OWNER, "c1")) == []
    with pytest.raises(ConversationLocked):
        await store.conversations.lock(OWNER, "c1", "r8")
    assert await store.conversations.lock(OWNER, "c0", "r8") is not None


async def test_a_lock_that_is_taken_over_just_now_loses_the_turn_too(
    url: str, stores: list[PostgresStore]
) -> None:
    store, _ = stores
    await store.conversations.create(OWNER, Conversation("c1", 1), [])
    await store.conversations.lock(OWNER, "c1", "r1")
    await store.begin(OWNER, opened("r1"), [], batch=FIRST)
    connection = await asyncpg.connect(url)
    async with asyncio.timeout(60):
        async with connection.transaction():
            await connection.execute("UPDATE conversations SET locked_by = 'r9'")
            ending = asyncio.create_task(
                store.finish(OWNER, opened("r1", status="completed"), said=[message("said")])
            )
            while not await connection.fetchval(  # noqa: ASYNC110 # the server's doing
                "SELECT count(*) FROM pg_stat_activity"
                " WHERE wait_event_type = 'Lock' AND application_name = 'antiphon'"
            ):
                await asyncio.sleep(0.01)
        with pytest.raises(TurnLost, match="its lock was taken over"):
            await ending
    assert ids(await store.conversations.items(OWNER, "c1")) == []
    assert await connection.fetchval("SELECT locked_by FROM conversations") == "r9"
    await connection.close()
