"""Conversations behave the same in every store."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest

from antiphon.protocol.codec import encode_item
from antiphon.protocol.errors import ContextTooLarge, ConversationLocked, StoreUnavailable, TurnLost
from antiphon.store.base import Batch, Claim, ClaimRequest, Conversation, Size, Store
from tests.store.conftest import Database
from tests.store.samples import OWNER, ids, message, opened

STRANGER = "mallory"


async def converse(store: Store, *names: str, name: str = "c1", owner: str = OWNER) -> None:
    """Create a conversation with items of these names."""
    await store.conversations.create(
        owner, Conversation(name, created_at=7, metadata={"a": "b"}), [message(n) for n in names]
    )


async def items(store: Store, name: str = "c1") -> list[str]:
    return ids(await store.conversations.items(OWNER, name))


async def end_turn(store: Store, response_id: str, *said: str, **more: Any) -> None:
    ended = opened(response_id, status="completed", **more)
    await store.finish(OWNER, ended, said=[message(name) for name in said])


# What is done once


ONCE = ClaimRequest("key:1", b"digest", now=100, since=50)
LATER = ClaimRequest("key:1", b"other", now=200, since=150)


async def test_a_conversation_is_created_once_for_a_token(store: Store) -> None:
    talks = store.conversations
    assert await talks.create(OWNER, Conversation("c1", 1), [message("i1")], ONCE) is None
    found = await talks.create(OWNER, Conversation("c2", 1), [message("i2")], ONCE)
    assert found is not None
    assert (found.digest, found.response_id, found.created_at) == (b"digest", "c1", 100)
    assert await talks.get(OWNER, "c2") is None
    assert await store.claims.find(OWNER, "key:1") == found
    assert await talks.create(STRANGER, Conversation("c2", 1), [], ONCE) is None


async def test_items_are_added_once_for_a_token_also_if_the_conversation_is_locked(
    store: Store,
) -> None:
    await converse(store)
    assert await store.conversations.add(OWNER, "c1", [message("i1"), message("i2")], ONCE) is True
    await store.conversations.lock(OWNER, "c1", "r1")
    found = await store.conversations.add(OWNER, "c1", [message("i3")], ONCE)
    assert isinstance(found, Claim) and found.response_id == '["i1", "i2"]'
    assert await items(store) == ["i1", "i2"]
    assert await store.conversations.add(OWNER, "none", [message("i3")], ONCE) is False


async def test_a_claim_that_is_too_old_or_whose_conversation_is_gone_does_not_count(
    store: Store,
) -> None:
    talks = store.conversations
    await talks.create(OWNER, Conversation("c1", 1), [], ONCE)
    assert await talks.create(OWNER, Conversation("c2", 1), [], LATER) is None
    assert await talks.add(OWNER, "c1", [message("i1")], LATER) is not True
    await talks.delete(OWNER, "c2")
    assert await talks.create(OWNER, Conversation("c3", 1), [], LATER) is None
    found = await store.claims.find(OWNER, "key:1")
    assert found is not None and (found.response_id, found.digest) == ("c3", b"other")


async def test_what_could_not_be_added_claims_nothing(store: Store) -> None:
    await converse(store, "i1")
    with pytest.raises(ValueError, match="already has an item"):
        await store.conversations.add(OWNER, "c1", [message("i1")], ONCE)
    await store.conversations.lock(OWNER, "c1", "r1")
    with pytest.raises(ConversationLocked):
        await store.conversations.add(OWNER, "c1", [message("i2")], ONCE)
    with pytest.raises(ValueError, match="there already is"):
        await store.conversations.create(OWNER, Conversation("c1", 1), [], ONCE)
    assert await store.claims.find(OWNER, "key:1") is None


async def test_of_two_stores_one_creates_the_conversation_of_a_token(
    pair: tuple[Store, Store],
) -> None:
    made = await asyncio.gather(
        *(
            pair[n % 2].conversations.create(OWNER, Conversation(f"c{n}", 1), [], ONCE)
            for n in range(6)
        )
    )
    assert made.count(None) == 1
    assert {found.response_id for found in made if found} == {f"c{made.index(None)}"}


# The conversation


async def test_a_conversation_comes_back_whole(store: Store) -> None:
    await converse(store, "i1", "i2")
    found = await store.conversations.get(OWNER, "c1")
    assert found == Conversation("c1", created_at=7, metadata={"a": "b"})
    assert await store.conversations.items(OWNER, "c1") == [message("i1"), message("i2")]


async def test_an_empty_conversation_is_one(store: Store) -> None:
    await converse(store)
    assert await store.conversations.items(OWNER, "c1") == []
    assert await store.conversations.lock(OWNER, "c1", "r1") == []


async def test_a_conversation_is_created_once(store: Store) -> None:
    await converse(store, "i1")
    with pytest.raises(ValueError, match="already is a conversation 'c1'"):
        await converse(store, "i2")
    assert await items(store) == ["i1"]


@pytest.mark.parametrize("names", [("i1", "i1"), ("i1", "i2", "i1")])
async def test_a_conversation_does_not_begin_with_one_id_twice(
    store: Store, names: tuple[str, ...]
) -> None:
    with pytest.raises(ValueError, match="already has an item 'i1'"):
        await converse(store, *names)
    assert await store.conversations.get(OWNER, "c1") is None


async def test_an_item_needs_an_id(store: Store) -> None:
    with pytest.raises(ValueError, match="needs an id"):
        await store.conversations.create(OWNER, Conversation("c1", 1), [{"type": "message"}])


async def test_metadata_is_replaced(store: Store) -> None:
    await converse(store, "i1")
    changed = Conversation("c1", created_at=7, metadata={"é": "\x00"})
    assert await store.conversations.update(OWNER, "c1", {"é": "\x00"}) == changed
    assert await store.conversations.get(OWNER, "c1") == changed
    assert await items(store) == ["i1"]
    assert await store.conversations.update(OWNER, "none", {}) is None


async def test_a_deleted_conversation_is_gone(store: Store) -> None:
    await converse(store, "i1")
    await converse(store, "i1", "i2", name="c2")
    assert await store.conversations.delete(OWNER, "c1") is True
    assert await store.conversations.delete(OWNER, "c1") is False
    assert await store.conversations.get(OWNER, "c1") is None
    assert await store.conversations.items(OWNER, "c1") is None
    assert await store.conversations.find(OWNER, "c1", "i1") is None
    assert await items(store, "c2") == ["i1", "i2"]
    await converse(store)
    assert await items(store) == []


async def test_what_is_not_there_is_nothing(store: Store) -> None:
    talks = store.conversations
    for name in ("c1", "\ud83d"):
        assert await talks.get(OWNER, name) is None
        assert await talks.update(OWNER, name, {}) is None
        assert await talks.items(OWNER, name) is None
        assert await talks.page(OWNER, name, after=None, limit=1, is_descending=True) is None
        assert await talks.add(OWNER, name, [message("i1")]) is False
        assert await talks.find(OWNER, name, "i1") is None
        assert await talks.remove(OWNER, name, "i1") is False
        assert await talks.delete(OWNER, name) is False
        assert await talks.lock(OWNER, name, "r1") is None
        assert await talks.unlock(OWNER, name, "r1") is False


async def test_a_conversation_is_its_owners(store: Store) -> None:
    await converse(store, "i1")
    talks = store.conversations
    assert await talks.get(STRANGER, "c1") is None
    assert await talks.update(STRANGER, "c1", {}) is None
    assert await talks.items(STRANGER, "c1") is None
    assert await talks.page(STRANGER, "c1", after=None, limit=1, is_descending=True) is None
    assert await talks.add(STRANGER, "c1", [message("i2")]) is False
    assert await talks.find(STRANGER, "c1", "i1") is None
    assert await talks.remove(STRANGER, "c1", "i1") is False
    assert await talks.delete(STRANGER, "c1") is False
    assert await talks.lock(STRANGER, "c1", "r1") is None
    assert await talks.unlock(STRANGER, "c1", "r1") is False
    assert await store.find_item(STRANGER, "i1") is None
    await converse(store, "other", owner=STRANGER)
    assert await items(store) == ["i1"]


async def test_nothing_is_shared_with_the_caller(store: Store) -> None:
    metadata, item = {"a": "b"}, message("i1")
    await store.conversations.create(OWNER, Conversation("c1", 1, metadata), [item])
    metadata["a"] = item["role"] = "changed"
    found = await store.conversations.get(OWNER, "c1")
    assert found is not None
    assert found.metadata == {"a": "b"}
    assert await store.conversations.items(OWNER, "c1") == [message("i1")]


# Items


async def test_items_are_added_at_the_end(store: Store) -> None:
    await converse(store, "i1")
    assert await store.conversations.add(OWNER, "c1", [message("i2"), message("i3")]) is True
    assert await store.conversations.add(OWNER, "c1", []) is True
    assert await store.conversations.add(OWNER, "c1", [message("i0")]) is True
    assert await items(store) == ["i1", "i2", "i3", "i0"]
    assert await store.conversations.find(OWNER, "c1", "i3") == message("i3")


@pytest.mark.parametrize("names", [("new", "i1"), ("new", "new")])
async def test_an_id_is_there_once_and_nothing_is_added(
    store: Store, names: tuple[str, str]
) -> None:
    await converse(store, "i1")
    with pytest.raises(ValueError, match="already has an item"):
        await store.conversations.add(OWNER, "c1", [message(name) for name in names])
    assert await items(store) == ["i1"]


async def test_a_removed_item_is_gone_and_may_come_again(store: Store) -> None:
    await converse(store, "i1", "i2", "i3")
    assert await store.conversations.remove(OWNER, "c1", "i2") is True
    assert await store.conversations.remove(OWNER, "c1", "i2") is False
    assert await store.conversations.remove(OWNER, "c1", "\ud83d") is False
    assert await store.conversations.find(OWNER, "c1", "i2") is None
    assert await store.conversations.find(OWNER, "c1", "\ud83d") is None
    assert await store.conversations.remove(OWNER, "c1", "i3") is True
    assert await store.conversations.add(OWNER, "c1", [message("i4"), message("i2")]) is True
    assert await items(store) == ["i1", "i4", "i2"]


async def test_an_item_of_a_conversation_can_be_referred_to(store: Store) -> None:
    await converse(store, "i1")
    await store.conversations.create(OWNER, Conversation("c2", 8), [message("i1", "newer")])
    assert await store.find_item(OWNER, "i1") == message("i1", "newer")
    await store.conversations.delete(OWNER, "c2")
    assert await store.find_item(OWNER, "i1") == message("i1")
    await store.conversations.remove(OWNER, "c1", "i1")
    assert await store.find_item(OWNER, "i1") is None


async def test_an_item_of_a_response_comes_before_one_of_a_conversation(store: Store) -> None:
    await store.begin(OWNER, opened("r1"), [message("i1", "of the response")])
    await converse(store, "i1")
    assert await store.find_item(OWNER, "i1") == message("i1", "of the response")


# Pages


@pytest.mark.parametrize(
    ("after", "limit", "is_descending", "expected", "has_more"),
    [
        (None, 2, False, ["i0", "i1"], True),
        (None, 5, False, ["i0", "i1", "i2", "i3", "i4"], False),
        (None, 9, True, ["i4", "i3", "i2", "i1", "i0"], False),
        (None, 4, True, ["i4", "i3", "i2", "i1"], True),
        ("i1", 2, False, ["i2", "i3"], True),
        ("i2", 2, False, ["i3", "i4"], False),
        ("i4", 2, False, [], False),
        ("i2", 2, True, ["i1", "i0"], False),
        ("i3", 2, True, ["i2", "i1"], True),
        ("i0", 1, True, [], False),
    ],
)
async def test_a_page_is_a_piece_of_the_list(
    store: Store,
    after: str | None,
    limit: int,
    is_descending: bool,
    expected: list[str],
    has_more: bool,
) -> None:
    await converse(store, *(f"i{number}" for number in range(5)))
    found = await store.conversations.page(
        OWNER, "c1", after=after, limit=limit, is_descending=is_descending
    )
    assert found is not None
    assert (ids(found.items), found.has_more) == (expected, has_more)


@pytest.mark.parametrize("after", ["none", "\ud83d"])
async def test_a_page_behind_an_unknown_item_is_refused(store: Store, after: str) -> None:
    await converse(store, "i1")
    await converse(store, "none", name="c2")
    with pytest.raises(KeyError):
        await store.conversations.page(OWNER, "c1", after=after, limit=1, is_descending=False)


async def test_pages_follow_each_other_without_a_gap(store: Store) -> None:
    names = [f"i{number}" for number in range(23)]
    await converse(store, *names)
    await store.conversations.remove(OWNER, "c1", "i7")
    names.remove("i7")
    seen: list[str] = []
    after: str | None = None
    while True:
        found = await store.conversations.page(
            OWNER, "c1", after=after, limit=5, is_descending=False
        )
        assert found is not None
        seen += ids(found.items)
        if not found.has_more:
            break
        after = seen[-1]
    assert seen == names


# One writer at a time


async def test_a_turn_adds_to_the_conversation_it_has_locked(store: Store) -> None:
    await converse(store, "i1")
    assert await store.conversations.lock(OWNER, "c1", "r1") == [message("i1")]
    await store.begin(OWNER, opened("r1"), [message("in")])
    await end_turn(store, "r1", "in", "out", output=[message("out")])
    assert await items(store) == ["i1", "in", "out"]
    assert await store.conversations.lock(OWNER, "c1", "r2") is not None


async def test_a_turn_that_says_nothing_ends_its_lock(store: Store) -> None:
    await converse(store, "i1")
    await store.conversations.lock(OWNER, "c1", "r1")
    talk = {"id": "c1"}
    await store.begin(OWNER, opened("r1", conversation=talk), [message("in")])
    await store.finish(OWNER, opened("r1", status="failed", conversation=talk))
    assert await items(store) == ["i1"]
    assert await store.conversations.add(OWNER, "c1", [message("i2")]) is True


async def test_nobody_else_writes_to_a_locked_conversation(store: Store) -> None:
    await converse(store, "i1")
    talks = store.conversations
    await talks.lock(OWNER, "c1", "r1")
    with pytest.raises(ConversationLocked, match="c1"):
        await talks.lock(OWNER, "c1", "r2")
    with pytest.raises(ConversationLocked):
        await talks.add(OWNER, "c1", [message("i2")])
    with pytest.raises(ConversationLocked):
        await talks.remove(OWNER, "c1", "i1")
    with pytest.raises(ConversationLocked):
        await talks.delete(OWNER, "c1")
    assert await talks.unlock(OWNER, "c1", "r2", [message("foreign")]) is False
    with pytest.raises(ConversationLocked):
        await talks.lock(OWNER, "c1", "r2")
    assert await items(store) == ["i1"]
    assert await talks.update(OWNER, "c1", {"may": "change"}) is not None


async def test_a_lock_may_be_taken_again_by_its_holder(store: Store) -> None:
    await converse(store, "i1")
    await store.conversations.lock(OWNER, "c1", "r1")
    assert await store.conversations.lock(OWNER, "c1", "r1") == [message("i1")]


async def test_unlock_lets_go_and_adds_what_was_said(store: Store) -> None:
    await converse(store, "i1")
    talks = store.conversations
    await talks.lock(OWNER, "c1", "r1")
    assert await talks.unlock(OWNER, "c1", "r1", [message("in"), message("out")]) is True
    assert await talks.unlock(OWNER, "c1", "r1", [message("again")]) is False
    assert await items(store) == ["i1", "in", "out"]
    assert await talks.lock(OWNER, "c1", "r2") is not None


async def test_what_is_said_twice_is_kept_once(store: Store) -> None:
    """A caller may send an item back that the conversation has; the turn has run, and counts."""
    await converse(store, "i1", "i2")
    await store.conversations.lock(OWNER, "c1", "r1")
    await store.begin(OWNER, opened("r1"), [message("i1")])
    await end_turn(store, "r1", "i1", "out")
    assert await items(store) == ["i1", "i2", "out"]


async def test_only_who_has_locked_may_say_something(store: Store) -> None:
    await converse(store, "i1")
    await store.begin(OWNER, opened("r1"), [], batch=Batch(0, 0, b"x"))
    with pytest.raises(TurnLost, match="has locked no conversation"):
        await end_turn(store, "r1", "out")
    found = await store.get(OWNER, "r1")
    assert found is not None
    assert found.status == "in_progress"
    await end_turn(store, "r1")


async def test_a_lost_turn_says_nothing(store: Store) -> None:
    await converse(store, "i1")
    await store.conversations.lock(OWNER, "c1", "r1")
    with pytest.raises(TurnLost):
        await end_turn(store, "r1", "out")
    assert await items(store) == ["i1"]
    with pytest.raises(ConversationLocked):
        await store.conversations.add(OWNER, "c1", [message("i2")])


@pytest.mark.parametrize("is_swept", [False, True])
async def test_a_response_that_is_removed_holds_no_lock(store: Store, is_swept: bool) -> None:
    await converse(store)
    await store.conversations.lock(OWNER, "c1", "r1")
    await store.begin(OWNER, opened("r1"), [])
    if is_swept:
        assert await store.sweep(2_000, 0) == 1
    else:
        assert await store.delete(OWNER, "r1") is True
    assert await store.conversations.lock(OWNER, "c1", "r2") == []


async def test_a_sweep_leaves_conversations(store: Store) -> None:
    await converse(store, "i1")
    await store.sweep(2_000, 2_000)
    assert await items(store) == ["i1"]


async def test_of_many_one_gets_the_lock(store: Store) -> None:
    await converse(store)

    async def lock(number: int) -> int | None:
        try:
            await store.conversations.lock(OWNER, "c1", f"r{number}")
        except ConversationLocked:
            return None
        return number

    winners = [n for n in await asyncio.gather(*map(lock, range(20))) if n is not None]
    assert len(winners) == 1


async def test_many_who_add_lose_nothing(store: Store) -> None:
    await converse(store)

    async def add(writer: int) -> None:
        for number in range(5):
            pieces = [message(f"{writer}-{number}-{half}") for half in "ab"]
            assert await store.conversations.add(OWNER, "c1", pieces) is True

    await asyncio.gather(*map(add, range(10)))
    found = await items(store)
    assert len(found) == 100
    for writer in range(10):
        mine = [name for name in found if name.startswith(f"{writer}-")]
        assert mine == [f"{writer}-{number}-{half}" for number in range(5) for half in "ab"]
    assert [name[-1] for name in found] == ["a", "b"] * 50


# Several stores


async def test_a_lock_is_seen_by_every_store(pair: tuple[Store, Store]) -> None:
    one, other = pair
    await converse(one, "i1")
    await one.conversations.lock(OWNER, "c1", "r1")
    with pytest.raises(ConversationLocked):
        await other.conversations.lock(OWNER, "c1", "r2")
    await one.begin(OWNER, opened("r1"), [])
    await end_turn(one, "r1", "out")
    assert ids(await other.conversations.lock(OWNER, "c1", "r2")) == ["i1", "out"]


async def test_a_lock_whose_response_never_began_ends_with_its_store(
    pair: tuple[Store, Store],
) -> None:
    gone, heir = pair
    await converse(gone, "i1")
    await gone.conversations.lock(OWNER, "c1", "r1")
    with pytest.raises(ConversationLocked):
        await heir.conversations.add(OWNER, "c1", [message("i2")])
    await gone.close()
    assert await heir.conversations.add(OWNER, "c1", [message("i2")]) is True
    assert ids(await heir.conversations.lock(OWNER, "c1", "r2")) == ["i1", "i2"]


async def test_the_lock_of_an_orphan_waits_for_its_heir(pair: tuple[Store, Store]) -> None:
    gone, heir = pair
    await converse(gone, "i1")
    await gone.conversations.lock(OWNER, "c1", "r1")
    await gone.begin(OWNER, opened("r1"), [message("in")])
    await gone.close()
    with pytest.raises(ConversationLocked):
        await heir.conversations.lock(OWNER, "c1", "r2")
    assert len(await heir.claim_orphans(1)) == 1
    with pytest.raises(ConversationLocked):
        await heir.conversations.lock(OWNER, "c1", "r2")
    await heir.finish(OWNER, opened("r1", status="failed"))
    assert ids(await heir.conversations.lock(OWNER, "c1", "r2")) == ["i1"]


async def test_an_heir_may_say_what_the_orphan_said(
    database: Database, pair: tuple[Store, Store]
) -> None:
    gone, heir = pair
    await converse(gone, "i1")
    await gone.conversations.lock(OWNER, "c1", "r1")
    await gone.begin(OWNER, opened("r1"), [message("in")])
    await gone.close()
    await heir.claim_orphans(1)
    await end_turn(heir, "r1", "in", "out")
    assert await items(await database.open()) == ["i1", "in", "out"]


async def test_a_closed_store_has_no_conversations(store: Store) -> None:
    await store.close()
    with pytest.raises(StoreUnavailable, match="closed"):
        await converse(store)
    with pytest.raises(StoreUnavailable, match="closed"):
        await store.conversations.get(OWNER, "c1")


async def test_a_conversation_that_is_not_admitted_is_not_locked(store: Store) -> None:
    asked: list[Size] = []

    def refuse(size: Size) -> None:
        asked.append(size)
        raise ContextTooLarge("too large")

    await converse(store, "i1", "i2")
    with pytest.raises(ContextTooLarge):
        await store.conversations.lock(OWNER, "c1", "r1", admit=refuse)
    with pytest.raises(ContextTooLarge):
        await store.conversations.items(OWNER, "c1", admit=refuse)
    assert {size.items for size in asked} == {2}
    assert ids(await store.conversations.lock(OWNER, "c1", "r2")) == ["i1", "i2"]


async def test_a_response_that_is_not_admitted_again_keeps_its_lock(store: Store) -> None:
    def refuse(_: Size) -> None:
        raise ContextTooLarge("too large")

    await converse(store, "i1")
    assert ids(await store.conversations.lock(OWNER, "c1", "r1")) == ["i1"]
    with pytest.raises(ContextTooLarge):
        await store.conversations.lock(OWNER, "c1", "r1", admit=refuse)
    with pytest.raises(ConversationLocked):
        await store.conversations.lock(OWNER, "c1", "r2")
    assert ids(await store.conversations.lock(OWNER, "c1", "r1")) == ["i1"]


@pytest.mark.parametrize("is_descending", [False, True])
async def test_a_page_that_is_not_admitted_is_refused_and_the_store_goes_on(
    store: Store, is_descending: bool
) -> None:
    def refuse(_: Size) -> None:
        raise ContextTooLarge("too large")

    await converse(store, "i1", "i2", "i3", "i4")
    page = partial(
        store.conversations.page,
        OWNER,
        "c1",
        after="i3" if is_descending else "i2",
        limit=1,
        is_descending=is_descending,
    )
    with pytest.raises(ContextTooLarge):
        await page(admit=refuse)
    asked: list[Size] = []
    found = await page(admit=asked.append)
    assert found is not None
    assert ids(found.items) == ["i2" if is_descending else "i3"]
    assert [size.items for size in asked] in (
        [1],
        [2],
    )  # with the one that shows that there are more
    assert asked[0].bytes >= len(encode_item(found.items[0]))
