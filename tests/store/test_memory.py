"""The memory store: bounded room."""

from __future__ import annotations

import pytest

from antiphon.protocol.errors import StoreUnavailable
from antiphon.store import MemoryStore
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
