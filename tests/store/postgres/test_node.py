"""The lease of a node: when it is good, and when a node may judge others by theirs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace

import asyncpg
import pytest

from antiphon.protocol.errors import StoreUnavailable
from antiphon.store.base import Orphan
from antiphon.store.postgres import PostgresStore
from antiphon.store.postgres import node as postgres_node
from antiphon.store.postgres.database import Database
from antiphon.store.postgres.node import LEASE_SECONDS, Node
from antiphon.store.waiting import Waiters
from tests.postgres import fresh_database, server
from tests.store.samples import OWNER


class Clock:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(postgres_node, "time", SimpleNamespace(monotonic=made.monotonic))
    return made


@pytest.fixture
async def url() -> AsyncIterator[str]:
    async with fresh_database() as made:
        yield made


@pytest.fixture
async def node(url: str, clock: Clock) -> AsyncIterator[Node]:
    database = Database(url, 60.0)
    made = Node(database, Waiters(), 60.0)
    yield made
    await made.close()
    await database.close()


async def tell(url: str, *statements: str) -> None:
    connection = await asyncpg.connect(url)
    for statement in statements:
        await connection.execute(statement)
    await connection.close()


async def renew_for(node: Node, clock: Clock, seconds: int) -> None:
    """Renew once a second for so long."""
    await node.renew()
    for _ in range(seconds):
        clock.now += 1
        await node.renew()


async def test_a_node_is_steady_when_it_has_renewed_for_the_time_of_a_lease(
    node: Node, clock: Clock
) -> None:
    assert not node.is_steady
    await renew_for(node, clock, int(LEASE_SECONDS) - 1)
    assert not node.is_steady
    await renew_for(node, clock, 1)
    assert node.is_steady


async def test_a_node_that_renewed_late_begins_anew(node: Node, clock: Clock) -> None:
    """Its own lease held, by a hair. That of another, who was cut off with it, may not have."""
    await renew_for(node, clock, 6)
    clock.now += LEASE_SECONDS - 0.5
    await node.renew()
    assert not node.is_steady
    await renew_for(node, clock, 5)
    assert node.is_steady


async def test_a_node_that_was_cut_off_begins_anew(url: str, node: Node, clock: Clock) -> None:
    await renew_for(node, clock, 6)
    await tell(
        url,
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE application_name = 'antiphon'",
    )
    async with asyncio.timeout(60):
        while node.is_steady or not node.is_listening:  # noqa: ASYNC110 # the node's own doing
            await asyncio.sleep(0.02)
    clock.now += 1
    await node.renew()
    assert not node.is_steady


async def test_a_node_whose_lease_has_run_out_is_not_steady(node: Node, clock: Clock) -> None:
    await renew_for(node, clock, 6)
    clock.now += LEASE_SECONDS
    assert not node.is_steady


async def test_turns_of_a_node_that_was_killed_are_claimed_by_a_fresh_one_in_time(url: str) -> None:
    """Not at once: all leases expire when the database is unreachable, yet no node died."""
    store = PostgresStore(url)
    await store.ping()
    await tell(
        url,
        "INSERT INTO nodes VALUES ('killed', clock_timestamp())",
        "INSERT INTO responses (owner, id, status, writer, created_at, body) VALUES"
        f" ('{OWNER}', 'r1', 'in_progress', 'killed', 1, '{{\"id\":\"r1\",\"created_at\":1}}')",
    )
    assert await store.claim_orphans(10) == []
    found: list[Orphan] = []
    async with asyncio.timeout(60):
        while not found:
            await asyncio.sleep(0.1)
            found = await store.claim_orphans(10)
    assert [orphan.response.id for orphan in found] == ["r1"]
    await store.close()


async def test_a_node_that_was_closed_does_not_beat_again(url: str, node: Node) -> None:
    await node.renew()
    await node.close()
    with pytest.raises(StoreUnavailable):
        await node.renew()
    connection = await asyncpg.connect(url)
    leases = await connection.fetchval("SELECT count(*) FROM nodes")
    await connection.close()

    assert leases == 0


@pytest.mark.slow
async def test_a_database_that_was_away_for_longer_than_a_lease_is_waited_for(
    node: Node, clock: Clock
) -> None:
    if not server().is_ours:
        pytest.skip("the server is not ours to stop")
    await node.ensure()
    await asyncio.to_thread(server().stop)
    try:
        clock.now += LEASE_SECONDS + 1
        ensuring = asyncio.create_task(node.ensure())
        await asyncio.sleep(0)
        # After this, the other has tried and failed too: they take turns.
        with pytest.raises(StoreUnavailable, match="nothing was stored, try again"):
            await node.renew()
    finally:
        await asyncio.to_thread(server().start)
    async with asyncio.timeout(60):
        assert await ensuring == node.name


@pytest.mark.slow
async def test_a_database_that_has_been_away_for_long_is_not_waited_for(
    node: Node, clock: Clock
) -> None:
    if not server().is_ours:
        pytest.skip("the server is not ours to stop")
    await node.ensure()
    await asyncio.to_thread(server().stop)
    try:
        clock.now += LEASE_SECONDS + 1
        waiting = asyncio.create_task(node.ensure())
        await asyncio.sleep(0)
        with pytest.raises(StoreUnavailable):
            await node.renew()
        waiting.cancel()
        await asyncio.wait({waiting})
        clock.now += 61  # more than its patience
        async with asyncio.timeout(30):
            with pytest.raises(StoreUnavailable):
                await node.ensure()
    finally:
        await asyncio.to_thread(server().start)
