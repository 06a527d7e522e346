"""The memory store: bounded room."""

from __future__ import annotations

import asyncio

import pytest

from antiphon.protocol.errors import StoreUnavailable
from antiphon.store import MemoryStore
from antiphon.store.base import Conversation, Notice
from tests.store.file_samples import add_file
from tests.store.samples import OWNER, ids, message, opened, run_turn


async def test_the_oldest_response_makes_room() -> None:
    store = MemoryStore(max_responses=2)
    for name, parent in (("r1", None), ("r2", "r1"), ("r3", "r2")):
        await run_turn(store, name, parent)
    assert await store.get(OWNER, "r1") is None
    assert await store.find_item(OWNER, "in-r1") is None
    history = await store.history(OWNER, "r3")
    assert history is not None
    assert (ids(history.items)[:1], history.missing) == (["in-r2"], "r1")


async def test_a_turn_that_was_pushed_out_cannot_finish() -> None:
    store = MemoryStore(max_responses=1)
    await store.begin(OWNER, opened("r1"), [message("i1")])
    await store.begin(OWNER, opened("r2"), [])
    with pytest.raises(StoreUnavailable):
        await store.finish(OWNER, opened("r1", status="completed"))


async def test_the_oldest_conversation_that_nobody_writes_to_makes_room() -> None:
    store = MemoryStore(max_responses=2)
    for name in ("c1", "c2"):
        await store.conversations.create(OWNER, Conversation(name, 1), [message(f"in-{name}")])
    await store.conversations.lock(OWNER, "c1", "r1")
    await store.conversations.create(OWNER, Conversation("c3", 1), [])
    found = [await store.conversations.get(OWNER, name) is not None for name in ("c1", "c2", "c3")]
    assert found == [True, False, True]
    assert await store.find_item(OWNER, "in-c2") is None
    await store.conversations.lock(OWNER, "c3", "r2")
    with pytest.raises(StoreUnavailable, match="no room"):
        await store.conversations.create(OWNER, Conversation("c4", 1), [])


async def test_a_response_that_was_pushed_out_holds_no_lock() -> None:
    store = MemoryStore(max_responses=1)
    await store.conversations.create(OWNER, Conversation("c1", 1), [])
    await store.conversations.lock(OWNER, "c1", "r1")
    await store.begin(OWNER, opened("r1"), [])
    await store.begin(OWNER, opened("r2"), [])
    assert await store.conversations.lock(OWNER, "c1", "r2") == []


async def test_the_oldest_claims_and_notices_make_room() -> None:
    store = MemoryStore(max_responses=2)
    notices = [Notice(f"n{n}", OWNER, "r1", "x", n, "hook") for n in range(3)]
    for number in range(3):
        await store.claims.take(OWNER, f"t{number}", b"d", "r1", 1)
    await store.begin(OWNER, opened("r1"), [])
    await store.finish(OWNER, opened("r1", status="completed"), entries=notices)
    found = [await store.claims.find(OWNER, f"t{number}") is not None for number in range(3)]
    assert found == [False, True, True]
    assert [n.id for n in await store.notices.take("hook", 9, 10, 9)] == ["n1", "n2"]


async def test_close_lets_go_of_those_who_wait() -> None:
    store = MemoryStore()
    waiting = asyncio.create_task(store.wait("r1", 60))
    await asyncio.sleep(0)
    await store.close()
    await asyncio.wait_for(waiting, 60)


async def test_the_contents_of_files_are_bounded() -> None:
    store = MemoryStore(max_blob_bytes=100_000)
    kept = await add_file(store, "f1", bytes(60_000))
    writer = await store.blobs.create(OWNER)
    with pytest.raises(StoreUnavailable, match="no room left in memory"):
        await writer.write(bytes(50_000))
    await writer.abort()
    assert await store.files.remove(OWNER, kept.id)
    await add_file(store, "f2", bytes(90_000))
    with pytest.raises(StoreUnavailable, match="no room left in memory"):
        for number in range(100):
            await add_file(store, f"empty{number}", b"")
    await store.close()
