"""Several gateways on one PostgreSQL: who writes, who takes over, and what a restart does."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from antiphon.protocol.errors import ConversationLocked, StoreUnavailable, TurnLost
from antiphon.store.base import Batch, Conversation
from antiphon.store.postgres import PostgresStore
from antiphon.store.postgres import node as postgres_node
from antiphon.store.postgres.database import Database, UncertainCommit, in_transaction
from antiphon.store.postgres.migrations import ADDITIONS, MIGRATIONS
from antiphon.store.postgres.node import LEASE_SECONDS
from tests.postgres import CommitProxy, fresh_database, server
from tests.store.samples import OWNER, ids, message, opened, run_turn

FIRST = Batch(0, 0, b"a")


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
async def other(url: str) -> AsyncIterator[PostgresStore]:
    made = PostgresStore(url)
    yield made
    await made.close()


async def tell(url: str, statement: str) -> None:
    connection = await asyncpg.connect(url)
    await connection.execute(statement)
    await connection.close()


async def end_lease(url: str) -> None:
    """Let every lease expire, as if no node had renewed it for long."""
    await tell(url, "UPDATE nodes SET lease_until = clock_timestamp() - interval '1 second'")


async def ended(store: PostgresStore, response_id: str) -> None:
    await store.finish(OWNER, opened(response_id, status="completed"))


# Who writes


async def test_a_turn_is_its_own_nodes_to_write(store: PostgresStore, other: PostgresStore) -> None:
    await store.begin(OWNER, opened("r1"), [], batch=FIRST)
    with pytest.raises(TurnLost, match="another process"):
        await other.append(OWNER, "r1", Batch(1, 1, b"b"))
    with pytest.raises(TurnLost, match="another process"):
        await ended(other, "r1")
    await ended(store, "r1")


async def test_a_living_node_keeps_its_turns(store: PostgresStore, other: PostgresStore) -> None:
    await store.begin(OWNER, opened("r1"), [], batch=FIRST)
    assert await other.claim_orphans(10) == []
    assert await store.claim_orphans(10) == []


async def test_a_node_that_was_taken_for_dead_cannot_write(
    url: str, store: PostgresStore, other: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_node, "_STEADY_SECONDS", 0.0)
    await store.begin(OWNER, opened("r1"), [message("i1")], batch=FIRST, request=b"{}")
    await store.append(OWNER, "r1", Batch(1, 1, b"b"))
    await other.ping()
    await end_lease(url)
    [orphan] = await other.claim_orphans(10)
    assert (orphan.response.id, orphan.request) == ("r1", b"{}")
    assert orphan.batches == [FIRST, Batch(1, 1, b"b")]
    with pytest.raises(TurnLost, match="another process"):
        await store.append(OWNER, "r1", Batch(2, 2, b"late"))
    with pytest.raises(TurnLost, match="another process"):
        await ended(store, "r1")
    await other.append(OWNER, "r1", Batch(2, 2, b"c"))
    await ended(other, "r1")
    log = await store.read_log(OWNER, "r1")
    assert log is not None
    assert [batch.body for batch in log.batches] == [b"a", b"b", b"c"]


async def test_a_lease_that_ran_out_is_renewed_before_anything_is_added(
    url: str, store: PostgresStore
) -> None:
    await store.begin(OWNER, opened("r1"), [], batch=FIRST)
    await end_lease(url)
    await store.append(OWNER, "r1", Batch(1, 1, b"b"))
    await end_lease(url)
    await ended(store, "r1")
    connection = await asyncpg.connect(url)
    leases = await connection.fetch("SELECT lease_until > clock_timestamp() FROM nodes")
    await connection.close()
    assert [is_good for (is_good,) in leases] == [True]


async def test_no_two_nodes_claim_the_same_turn(url: str) -> None:
    dead = PostgresStore(url)
    for number in range(40):
        await dead.begin(OWNER, opened(f"r{number}"), [], batch=FIRST)
    await dead.close()
    nodes = [PostgresStore(url) for _ in range(4)]
    claimed = await asyncio.gather(*(node.claim_orphans(40) for node in nodes))
    names = [orphan.response.id for orphans in claimed for orphan in orphans]
    rest = await nodes[0].claim_orphans(40)
    names += [orphan.response.id for orphan in rest]
    assert sorted(names) == sorted(f"r{number}" for number in range(40))
    for node in nodes:
        await node.close()


async def test_a_store_that_closes_leaves_its_turns_at_once(url: str, other: PostgresStore) -> None:
    store = PostgresStore(url)
    await store.begin(OWNER, opened("r1"), [])
    await store.close()
    assert [orphan.response.id for orphan in await other.claim_orphans(10)] == ["r1"]


async def test_a_node_renews_its_lease_by_itself(url: str, store: PostgresStore) -> None:
    await store.ping()
    connection = await asyncpg.connect(url)
    question = "SELECT lease_until FROM nodes"
    first = await connection.fetchval(question)
    async with asyncio.timeout(LEASE_SECONDS):
        while await connection.fetchval(question) == first:  # noqa: ASYNC110 # another's doing
            await asyncio.sleep(0.05)
    await connection.close()


async def test_a_lock_of_a_node_that_is_gone_is_stale_unless_its_turn_is_left(
    url: str, other: PostgresStore
) -> None:
    store = PostgresStore(url)
    for name in ("c1", "c2"):
        await store.conversations.create(OWNER, Conversation(name, 1), [])
        await store.conversations.lock(OWNER, name, f"r-{name}")
    await store.begin(OWNER, opened("r-c2"), [])
    with pytest.raises(ConversationLocked):
        await other.conversations.lock(OWNER, "c1", "r9")
    await store.close()
    assert await other.conversations.lock(OWNER, "c1", "r9") == []
    with pytest.raises(ConversationLocked):
        await other.conversations.lock(OWNER, "c2", "r9")
    [orphan] = await other.claim_orphans(1)
    said = [message("said")]
    await other.finish(OWNER, opened(orphan.response.id, status="completed"), said=said)
    assert ids(await other.conversations.lock(OWNER, "c2", "r9")) == ["said"]


# What other nodes are notified of


async def test_another_node_hears_of_an_event_at_once(
    store: PostgresStore, other: PostgresStore
) -> None:
    await store.begin(OWNER, opened("r1"), [], batch=FIRST)
    await other.ping()
    waiting = asyncio.create_task(other.wait("r1", 60))
    await asyncio.sleep(0)
    async with asyncio.timeout(60):
        await store.append(OWNER, "r1", Batch(1, 1, b"b"))
        await waiting


@pytest.mark.parametrize("change", ["cancel", "delete", "finish"])
async def test_another_node_hears_of_every_change(
    change: str, store: PostgresStore, other: PostgresStore
) -> None:
    await store.begin(OWNER, opened("r1"), [], batch=FIRST)
    await other.ping()
    waiting = asyncio.create_task(other.wait("r1", 60))
    await asyncio.sleep(0)
    async with asyncio.timeout(60):
        match change:
            case "cancel":
                assert await store.ask_cancel(OWNER, "r1")
            case "delete":
                assert await store.delete(OWNER, "r1")
            case _:
                await ended(store, "r1")
        await waiting


async def test_changes_of_a_moment_are_notified_together_and_after_their_commit(
    store: PostgresStore, url: str
) -> None:
    heard: list[str] = []
    is_stored: list[bool] = []
    both = asyncio.Event()
    connection = await asyncpg.connect(url)
    reader = await asyncpg.connect(url)

    async def look(name: str) -> None:
        question = "SELECT count(*) FROM responses WHERE id = $1"
        async with reading:
            is_stored.append(await reader.fetchval(question, name) > 0)
        if {"r1", "r2"} <= set(heard):
            both.set()

    reading = asyncio.Lock()
    looks: list[asyncio.Task[None]] = []

    def note(_connection: object, _process: int, _channel: str, payload: object) -> None:
        heard.append(str(payload))
        looks.append(asyncio.create_task(look(str(payload))))

    try:
        await connection.add_listener("antiphon", note)
        for name in ("r1", "r2"):
            await store.begin(OWNER, opened(name), [], batch=FIRST)
        for number in range(1, 51):
            await store.append(OWNER, "r1", Batch(number, number, b"b"))
        async with asyncio.timeout(60):
            await both.wait()
        assert all(is_stored)
        assert len(heard) < 40  # 52 changes
    finally:
        await asyncio.gather(*looks)
        await connection.close()
        await reader.close()


async def test_whoever_cannot_hear_looks_often(store: PostgresStore) -> None:
    start = time.monotonic()
    await store.wait("r1", 60)
    assert time.monotonic() - start < 30


async def test_every_store_that_is_open_is_counted(
    store: PostgresStore, other: PostgresStore
) -> None:
    await other.count_alive()
    assert await store.count_alive() == 2


async def test_a_wish_to_cancel_reaches_the_writer_elsewhere(
    store: PostgresStore, other: PostgresStore
) -> None:
    await store.begin(OWNER, opened("r1"), [], batch=FIRST)
    assert await other.ask_cancel(OWNER, "r1")
    assert await store.asked_cancels() == [(OWNER, "r1")]
    assert await other.asked_cancels() == []
    assert await store.append(OWNER, "r1", Batch(1, 1, b"b")) is True
    await ended(store, "r1")
    assert await other.ask_cancel(OWNER, "r1") is False


async def test_a_deleted_turn_is_lost_to_its_writer_elsewhere(
    store: PostgresStore, other: PostgresStore
) -> None:
    await store.begin(OWNER, opened("r1"), [], batch=FIRST)
    assert await other.delete(OWNER, "r1")
    with pytest.raises(TurnLost, match="is not in the store"):
        await store.append(OWNER, "r1", Batch(1, 1, b"b"))


# Many at once


async def test_a_batch_that_cannot_be_stored_takes_no_other_with_it(store: PostgresStore) -> None:
    for number in range(20):
        await store.begin(OWNER, opened(f"r{number}"), [], batch=FIRST)
    # Number 7 repeats its first batch.
    batches = [Batch(0 if number == 7 else 1, 1, b"b") for number in range(20)]
    results = await asyncio.gather(
        *(store.append(OWNER, f"r{n}", batch) for n, batch in enumerate(batches)),
        return_exceptions=True,
    )
    assert [n for n, result in enumerate(results) if result is not False] == [7]
    assert isinstance(results[7], StoreUnavailable)
    for number in range(20):
        log = await store.read_log(OWNER, f"r{number}")
        assert log is not None
        assert len(log.batches) == (1 if number == 7 else 2)


async def test_a_lost_turn_takes_no_other_with_it(store: PostgresStore) -> None:
    for number in range(10):
        await store.begin(OWNER, opened(f"r{number}"), [], batch=FIRST)
    await store.delete(OWNER, "r3")
    results = await asyncio.gather(
        *(ended(store, f"r{n}") for n in range(10)), return_exceptions=True
    )
    assert [n for n, result in enumerate(results) if result is not None] == [3]
    assert isinstance(results[3], TurnLost)


async def test_a_big_log_is_compressed_and_read_back(store: PostgresStore) -> None:
    await store.begin(OWNER, opened("r1"), [], batch=FIRST)
    body = b"0123456789" * 50_000
    await store.append(OWNER, "r1", Batch(1, 1, body))
    await ended(store, "r1")
    log = await store.read_log(OWNER, "r1", 0)
    assert log is not None
    assert log.batches == [Batch(1, 1, body)]


# Deleted data, and faults


async def test_deleted_text_is_in_no_row(url: str, store: PostgresStore) -> None:
    secret = "kuckucksuhr"
    await store.begin(
        OWNER, opened("r1", instructions=secret), [message("i1", secret)], batch=FIRST
    )
    await store.append(OWNER, "r1", Batch(1, 1, secret.encode()))
    output = [message("o1", secret)]
    await store.finish(OWNER, opened("r1", status="completed", output=output))
    await store.begin(OWNER, opened("r2"), [message("i2", secret)], request=secret.encode())
    assert await store.delete(OWNER, "r1")
    assert await store.sweep(2_000, 0) == 1
    connection = await asyncpg.connect(url)
    tables = await connection.fetch(
        "SELECT table_name FROM information_schema.tables WHERE table_schema = current_schema()"
    )
    for (table,) in tables:
        count = await connection.fetchval(f"SELECT count(*) FROM {table}")
        expected = {"nodes": 1, "removals": 1, "removal_counts": 32}
        expected["antiphon_migrations"] = len(MIGRATIONS) - len(ADDITIONS)
        expected["antiphon_additions"] = len(ADDITIONS)
        assert count == expected.get(table, 0), table
    await connection.close()


async def test_a_server_that_is_not_there_is_a_sentence_without_secrets(tmp_path: Path) -> None:
    store = PostgresStore(f"postgresql://ada:hush@/db?host={tmp_path}", patience=2.0)
    calls = [
        store.get(OWNER, "r1"),
        store.begin(OWNER, opened("r1"), []),
        store.history(OWNER, "r1"),
        store.list_keys(),
        store.ping(),
        store.claim_orphans(1),
    ]
    async with asyncio.timeout(60):
        results = await asyncio.gather(*calls, return_exceptions=True)
        await store.close()
    for result in results:
        assert isinstance(result, StoreUnavailable)
        assert "cannot be reached" in str(result)
        assert "hush" not in str(result)
        assert "ada" not in str(result)


@pytest.mark.parametrize(
    "url", ["postgresql://host:nonsense/db", "postgresql://127.0.0.1:99999/db"]
)
async def test_a_url_that_makes_no_sense_is_a_sentence(url: str) -> None:
    store = PostgresStore(url)
    with pytest.raises(StoreUnavailable, match="the URL of the database cannot be used"):
        await store.list_keys()
    await store.close()


async def test_a_schema_that_is_not_there_is_a_sentence() -> None:
    store = PostgresStore(server().url_of("antiphon_nobody_made_this"))
    with pytest.raises(StoreUnavailable, match="make it with CREATE SCHEMA first"):
        await store.list_keys()
    await store.close()


async def test_a_database_that_is_missing_is_a_sentence(url: str) -> None:
    store = PostgresStore(url.replace("/postgres?", "/missing?"))
    if not server().is_ours:
        pytest.skip("the name of the database is not known")
    with pytest.raises(StoreUnavailable, match="no database of this name"):
        await store.list_keys()
    await store.close()


async def test_a_connection_that_was_cut_is_made_again(url: str, store: PostgresStore) -> None:
    await store.begin(OWNER, opened("r1"), [], batch=FIRST)
    await store.get(OWNER, "r1")
    await tell(
        url,
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE application_name = 'antiphon'",
    )
    results = await asyncio.gather(
        store.append(OWNER, "r1", Batch(1, 1, b"b")),
        store.get(OWNER, "r1"),
        store.conversations.create(OWNER, Conversation("c1", 1), []),
    )
    assert results[0] is False
    log = await store.read_log(OWNER, "r1")
    assert log is not None
    assert log.batches == [FIRST, Batch(1, 1, b"b")]


@pytest.fixture
async def proxy(url: str) -> AsyncIterator[CommitProxy]:
    async with CommitProxy(url) as made:
        yield made


@pytest.fixture
async def far(proxy: CommitProxy) -> AsyncIterator[PostgresStore]:
    """A store that loses its connection after a commit, when the test asks the proxy for it."""
    made = PostgresStore(proxy.url)
    yield made
    await made.close()


async def test_a_commit_without_an_answer_is_settled_by_looking(
    far: PostgresStore, proxy: CommitProxy
) -> None:
    """The end was stored, and the connection was lost before the answer."""
    await far.begin(OWNER, opened("r1"), [], batch=FIRST)
    proxy.lose_next_answer()
    await ended(far, "r1")
    assert proxy.lost == 1
    with pytest.raises(TurnLost, match="already ended as completed"):
        await ended(far, "r1")


async def test_a_conversation_whose_commit_got_no_answer_is_created_once(
    far: PostgresStore, proxy: CommitProxy
) -> None:
    await far.get(OWNER, "r1")  # so that the tables are there
    proxy.lose_next_answer()
    assert await far.conversations.create(OWNER, Conversation("c1", 1), [message("i1")]) is None
    assert proxy.lost == 1
    assert ids(await far.conversations.items(OWNER, "c1")) == ["i1"]


async def test_a_change_whose_commit_got_no_answer_is_not_repeated(
    far: PostgresStore, proxy: CommitProxy
) -> None:
    await far.conversations.create(OWNER, Conversation("c1", 1), [])
    proxy.lose_next_answer()
    with pytest.raises(UncertainCommit, match="not known whether this was stored"):
        await far.conversations.add(OWNER, "c1", [message("i1")])
    assert proxy.lost == 1
    assert ids(await far.conversations.items(OWNER, "c1")) == ["i1"]


async def test_orphans_whose_claim_got_no_answer_are_returned_by_the_next(
    store: PostgresStore, far: PostgresStore, proxy: CommitProxy
) -> None:
    assert await far.claim_orphans(10) == []
    await store.begin(OWNER, opened("r1"), [], batch=FIRST)
    await store.close()
    proxy.lose_next_answer()
    with pytest.raises(UncertainCommit):
        await far.claim_orphans(10)
    (orphan,) = await far.claim_orphans(10)
    assert (orphan.response.id, orphan.batches) == ("r1", [FIRST])
    assert await far.claim_orphans(10) == []
    await ended(far, "r1")


async def test_orphans_that_were_not_claimed_after_all_are_found_again(
    url: str, store: PostgresStore, far: PostgresStore, proxy: CommitProxy
) -> None:
    assert await far.claim_orphans(10) == []
    await store.begin(OWNER, opened("r1"), [], batch=FIRST)
    await store.close()
    proxy.lose_next_answer()
    with pytest.raises(UncertainCommit):
        await far.claim_orphans(10)
    await tell(url, "UPDATE responses SET writer = 'gone'")  # as it was before
    (orphan,) = await far.claim_orphans(10)
    assert orphan.response.id == "r1"


async def test_a_connection_lost_in_a_commit_leaves_it_open_what_was_stored(url: str) -> None:
    connection = await asyncpg.connect(url)

    async def cut(connection: Any) -> None:
        await tell(url, f"SELECT pg_terminate_backend({connection.get_server_pid()})")

    with pytest.raises(UncertainCommit, match="not known whether this was stored"):
        await in_transaction(connection, cut)


async def test_every_commit_waits_for_the_disk(url: str) -> None:
    database = Database(f"{url}&synchronous_commit=off", 5.0)
    ask = "SHOW synchronous_commit"
    assert await database.ask(lambda connection: connection.fetchval(ask)) == "on"
    await database.close()


async def test_nobody_waits_longer_for_a_lock_than_is_patient(url: str) -> None:
    store = PostgresStore(url, patience=2.0)
    await store.begin(OWNER, opened("r1"), [], batch=FIRST)
    connection = await asyncpg.connect(url)
    async with connection.transaction(), asyncio.timeout(60):
        await connection.execute("LOCK TABLE responses IN ACCESS EXCLUSIVE MODE")
        results = await asyncio.gather(
            store.append(OWNER, "r1", Batch(1, 1, b"b")),
            store.get(OWNER, "r1"),
            store.history(OWNER, "r1"),
            store.delete(OWNER, "r1"),
            return_exceptions=True,
        )
    for result in results:
        assert isinstance(result, StoreUnavailable)
        assert "did not answer in time" in str(result)
    await connection.close()
    assert await store.append(OWNER, "r1", Batch(1, 1, b"c")) is False
    log = await store.read_log(OWNER, "r1")
    assert log is not None
    assert log.batches == [FIRST, Batch(1, 1, b"c")]
    await store.close()


@pytest.mark.slow
async def test_a_restart_of_the_database_loses_nothing(store: PostgresStore) -> None:
    if not server().is_ours:
        pytest.skip("the server is not ours to stop")
    await store.begin(OWNER, opened("r1"), [], batch=FIRST)
    stored = [FIRST]
    stopping = asyncio.Event()

    async def write() -> None:
        number = 1
        while not stopping.is_set():
            batch = Batch(number, number, b"%d" % number)
            await store.append(OWNER, "r1", batch)
            stored.append(batch)
            number += 1

    writing = asyncio.create_task(write())
    for _ in range(3):
        await asyncio.to_thread(server().stop)
        await asyncio.to_thread(server().start)
        await run_turn(store, f"t{len(stored)}-{time.monotonic()}")
    stopping.set()
    await writing
    log = await store.read_log(OWNER, "r1")
    assert log is not None
    assert log.batches == stored
    await ended(store, "r1")


@pytest.mark.slow
async def test_nothing_is_acknowledged_while_the_database_is_away(url: str) -> None:
    if not server().is_ours:
        pytest.skip("the server is not ours to stop")
    store = PostgresStore(url, patience=2.0)
    await store.begin(OWNER, opened("r1"), [], batch=FIRST)
    await asyncio.to_thread(server().stop)
    try:
        async with asyncio.timeout(60):
            results = await asyncio.gather(
                store.append(OWNER, "r1", Batch(1, 1, b"b")),
                ended(store, "r1"),
                store.get(OWNER, "r1"),
                store.ping(),
                return_exceptions=True,
            )
            assert all(isinstance(result, StoreUnavailable) for result in results)
            await store.wait("r1", 60)
    finally:
        await asyncio.to_thread(server().start)
    async with asyncio.timeout(60):
        while True:
            try:
                await store.append(OWNER, "r1", Batch(1, 1, b"c"))
                break
            except TurnLost:
                raise
            except StoreUnavailable:
                await asyncio.sleep(0.05)
    log = await store.read_log(OWNER, "r1")
    assert log is not None
    assert log.batches == [FIRST, Batch(1, 1, b"c")]
    await store.close()


async def test_a_closed_store_says_so(url: str) -> None:
    store = PostgresStore(url)
    await store.begin(OWNER, opened("r1"), [])
    await store.close()
    for call in (store.get(OWNER, "r1"), store.append(OWNER, "r1", FIRST), store.wait("r1", 1)):
        with pytest.raises(StoreUnavailable, match="the store is closed"):
            await call
