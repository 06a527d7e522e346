"""The journal of hosted calls behaves the same in every store."""

from __future__ import annotations

import asyncio

import pytest

from antiphon.protocol.errors import StoreUnavailable
from antiphon.protocol.items import Item
from antiphon.store.base import Intent, Store
from tests.store.samples import OWNER, opened, run_turn

STRANGER = "mallory"
FIRST, SECOND = Intent("a", "mcp", b"\x00\xff"), Intent("b", "code_interpreter", b"2")
REQUEST: Item = {
    "type": "mcp_approval_request",
    "id": "mcpr_1",
    "server_label": "files",
    "name": "write",
    "arguments": "{}",
}


async def test_intents_are_found_by_their_response_and_their_owner(store: Store) -> None:
    await store.tool_calls.intend(OWNER, "r1", [FIRST], 5)
    await store.tool_calls.intend(OWNER, "r1", [SECOND], 6)
    assert await store.tool_calls.find(OWNER, "r1") == [FIRST, SECOND]
    assert await store.tool_calls.find(STRANGER, "r1") == []
    assert await store.tool_calls.find(OWNER, "r2") == []


async def test_intents_of_a_response_that_is_not_stored_are_forgotten(store: Store) -> None:
    await store.tool_calls.intend(OWNER, "r1", [FIRST], 5)
    await store.tool_calls.intend(STRANGER, "r1", [FIRST], 5)
    await store.tool_calls.forget(OWNER, "r1")
    assert await store.tool_calls.find(OWNER, "r1") == []
    assert await store.tool_calls.find(STRANGER, "r1") == [FIRST]


async def test_an_approval_serves_one_response(store: Store) -> None:
    claim = store.tool_calls.claim_approval
    assert await claim(OWNER, "mcpr_1", "r1", 5)
    assert not await claim(OWNER, "mcpr_1", "r2", 5)
    assert await claim(OWNER, "mcpr_1", "r1", 5)  # it was queued, and is taken up again
    assert await claim(STRANGER, "mcpr_1", "r2", 5)


async def test_the_holder_of_an_approval_is_known_to_its_owner(store: Store) -> None:
    calls = store.tool_calls
    assert await calls.approval_holder(OWNER, "mcpr_1") is None
    await calls.claim_approval(OWNER, "mcpr_1", "r1", 5)
    assert await calls.approval_holder(OWNER, "mcpr_1") == "r1"
    assert await calls.approval_holder(STRANGER, "mcpr_1") is None
    await calls.release_approval(OWNER, "mcpr_1", "r1")
    assert await calls.approval_holder(OWNER, "mcpr_1") is None
    assert await calls.approval_holder(OWNER, "\udc80") is None


async def test_of_many_racing_claims_one_gets_the_approval(store: Store) -> None:
    claims = [store.tool_calls.claim_approval(OWNER, "mcpr_1", f"r{n}", 5) for n in range(50)]
    assert sum(await asyncio.gather(*claims)) == 1


async def test_only_its_holder_can_release_an_approval(store: Store) -> None:
    calls = store.tool_calls
    assert await calls.claim_approval(OWNER, "mcpr_1", "r1", 5)
    await calls.release_approval(OWNER, "mcpr_1", "r2")
    await calls.release_approval(STRANGER, "mcpr_1", "r1")
    assert not await calls.claim_approval(OWNER, "mcpr_1", "r2", 5)
    await calls.release_approval(OWNER, "mcpr_1", "r1")
    assert await calls.claim_approval(OWNER, "mcpr_1", "r2", 5)


@pytest.mark.parametrize("name", ["\ud83d", "a\0b"])
async def test_an_id_that_no_item_can_have_cannot_be_claimed_twice(store: Store, name: str) -> None:
    first = await store.tool_calls.claim_approval(OWNER, name, "r1", 5)
    second = await store.tool_calls.claim_approval(OWNER, name, "r2", 5)
    assert not (first and second)
    await store.tool_calls.release_approval(OWNER, name, "r1")


async def test_what_belongs_to_a_response_goes_with_it(store: Store) -> None:
    await _asking_turn(store, "resp_1")
    await store.tool_calls.intend(OWNER, "resp_1", [FIRST], 5)
    assert await store.tool_calls.claim_approval(OWNER, "mcpr_1", "resp_2", 5)
    assert await store.delete(OWNER, "resp_1")
    assert await store.tool_calls.find(OWNER, "resp_1") == []
    assert await store.tool_calls.claim_approval(OWNER, "mcpr_1", "resp_3", 5)


async def test_an_approval_outlives_the_response_that_used_it(store: Store) -> None:
    await _asking_turn(store, "resp_1")
    await run_turn(store, "resp_2")
    assert await store.tool_calls.claim_approval(OWNER, "mcpr_1", "resp_2", 5)
    assert await store.delete(OWNER, "resp_2")
    assert not await store.tool_calls.claim_approval(OWNER, "mcpr_1", "resp_3", 5)


async def test_a_sweep_keeps_what_belongs_to_a_response_that_stays(store: Store) -> None:
    await _asking_turn(store, "resp_1")
    await store.tool_calls.intend(OWNER, "resp_1", [FIRST], 5)
    await store.tool_calls.intend(OWNER, "gone", [FIRST], 5)
    assert await store.tool_calls.claim_approval(OWNER, "mcpr_1", "resp_2", 5)
    assert await store.tool_calls.claim_approval(OWNER, "unstored", "resp_2", 5)
    await store.sweep(10, 10)
    assert await store.tool_calls.find(OWNER, "gone") == []
    assert await store.tool_calls.claim_approval(OWNER, "unstored", "resp_3", 50)
    assert await store.tool_calls.find(OWNER, "resp_1") == [FIRST]
    assert not await store.tool_calls.claim_approval(OWNER, "mcpr_1", "resp_3", 50)


async def test_a_closed_store_keeps_no_journal(store: Store) -> None:
    await store.close()
    with pytest.raises(StoreUnavailable):
        await store.tool_calls.intend(OWNER, "r1", [FIRST], 5)
    with pytest.raises(StoreUnavailable):
        await store.tool_calls.claim_approval(OWNER, "mcpr_1", "r1", 5)


async def _asking_turn(store: Store, response_id: str) -> None:
    await store.begin(OWNER, opened(response_id), [])
    await store.finish(OWNER, opened(response_id, status="completed", output=[REQUEST]))
