"""Turns and keys behave the same in every store: the same tests run against each."""

from __future__ import annotations

import asyncio
import threading

import msgspec
import pytest

from antiphon.protocol.codec import encode_item
from antiphon.protocol.errors import ContextTooLarge, StoreUnavailable
from antiphon.protocol.items import Item
from antiphon.protocol.response import Failure, Notes, Response, Usage
from antiphon.store import encoding
from antiphon.store.base import Conversation, Size, Store
from antiphon.store.postgres import PostgresStore
from tests.store.samples import FAILURE, OWNER, ids, key, message, opened, run_turn

STRANGER = "mallory"


# Responses


async def test_a_finished_response_comes_back_whole(store: Store) -> None:
    ended = await run_turn(store, "r1", usage=Usage(input_tokens=3, total_tokens=3))
    assert await store.get(OWNER, "r1") == ended


async def test_a_response_can_be_read_while_it_is_in_progress(store: Store) -> None:
    begun = opened("r1")
    await store.begin(OWNER, begun, [message("i1")])
    assert await store.get(OWNER, "r1") == begun
    assert ids(await store.input_items(OWNER, "r1")) == ["i1"]
    assert await store.find_item(OWNER, "i1") == message("i1")


async def test_the_history_of_an_open_response_says_so(store: Store) -> None:
    await store.begin(OWNER, opened("r1"), [message("i1")])
    history = await store.history(OWNER, "r1")
    assert history is not None
    assert (ids(history.items), history.status) == (["i1"], "in_progress")


async def test_what_is_not_there_is_none(store: Store) -> None:
    assert await store.get(OWNER, "r1") is None
    assert await store.history(OWNER, "r1") is None
    assert await store.input_items(OWNER, "r1") is None
    assert await store.find_item(OWNER, "i1") is None
    assert await store.delete(OWNER, "r1") is False


async def test_half_a_surrogate_pair_names_nothing(store: Store) -> None:
    assert await store.get(OWNER, "\ud83d") is None
    assert await store.find_item(OWNER, "\ud83d") is None
    assert await store.delete(OWNER, "\ud83d") is False
    assert await store.find_key("\ud83d") is None
    assert await store.revoke_key("\ud83d", now=1) is False


async def test_a_response_that_was_not_begun_cannot_be_finished(store: Store) -> None:
    with pytest.raises(StoreUnavailable, match="is not in the store"):
        await store.finish(OWNER, opened("r1", status="completed"))
    assert await store.get(OWNER, "r1") is None


async def test_an_end_is_never_overwritten(store: Store) -> None:
    ended = await run_turn(store, "r1", status="cancelled")
    with pytest.raises(StoreUnavailable, match="already ended as cancelled"):
        await store.finish(OWNER, opened("r1", status="completed", output=[message("late")]))
    assert await store.get(OWNER, "r1") == ended
    assert await store.find_item(OWNER, "late") is None


async def test_a_response_cannot_finish_in_the_middle(store: Store) -> None:
    await store.begin(OWNER, opened("r1"), [])
    with pytest.raises(ValueError, match="cannot finish as 'in_progress'"):
        await store.finish(OWNER, opened("r1"))


async def test_a_second_begin_changes_nothing(store: Store) -> None:
    ended = await run_turn(store, "r1")
    await store.begin(OWNER, opened("r1", model="other"), [message("other")])
    assert await store.find_item(OWNER, "other") is None
    assert await store.get(OWNER, "r1") == ended


async def test_a_turn_without_items_is_a_turn(store: Store) -> None:
    await store.begin(OWNER, opened("r1"), [])
    await store.finish(OWNER, opened("r1", status="failed", error=FAILURE))
    history = await store.history(OWNER, "r1")
    assert history is not None
    assert (history.items, history.status, history.missing) == ([], "failed", None)
    assert await store.input_items(OWNER, "r1") == []


async def test_nothing_is_shared_with_the_caller(store: Store) -> None:
    item, ended = message("i1"), opened("r1", status="completed", output=[message("o1")])
    await store.begin(OWNER, opened("r1"), [item])
    item["content"][0]["text"] = "changed"
    await store.finish(OWNER, ended)
    ended.output[0]["content"][0]["text"] = "changed"
    first = await store.history(OWNER, "r1")
    assert first is not None
    assert first.items == [message("i1"), message("o1")]
    first.items[0]["content"][0]["text"] = "changed"
    again = await store.history(OWNER, "r1")
    assert again is not None
    assert again.items == [message("i1"), message("o1")]


# What was removed


async def test_a_history_tells_how_much_it_is(store: Store) -> None:
    await run_turn(store, "r1")
    await run_turn(store, "r2", "r1")
    history = await store.history(OWNER, "r2")
    assert history is not None
    assert history.turns == 2
    assert history.weight == sum(len(encode_item(item)) for item in history.items)


async def test_only_what_removes_raises_the_count_of_removals(store: Store) -> None:
    before = await store.removals()
    await run_turn(store, "r1")
    await run_turn(store, "r2", "r1", status="failed")
    await store.begin(OWNER, opened("r3"), [])
    assert await store.delete(OWNER, "r4") is False
    assert await store.delete(STRANGER, "r1") is False
    assert await store.sweep(1_000, 0) == 0
    assert await store.removals() == before
    history = await store.history(OWNER, "r2")
    assert history is not None
    assert history.removals == before


async def test_each_removal_is_counted(store: Store) -> None:
    counts = [await store.removals()]
    for name in ("r1", "r2", "r3"):
        await run_turn(store, name)
    assert await store.delete(OWNER, "r1")
    counts.append(await store.removals())
    assert await store.delete(OWNER, "r2")
    counts.append(await store.removals())
    assert await store.sweep(2_000, 0) == 1
    counts.append(await store.removals())
    assert sorted(set(counts)) == counts


async def test_a_removal_is_counted_for_all(pair: tuple[Store, Store]) -> None:
    one, other = pair
    await run_turn(one, "r1")
    await run_turn(one, "r2", "r1")
    history = await one.history(OWNER, "r2")
    assert history is not None
    assert await other.removals() == history.removals
    assert await other.delete(OWNER, "r1")
    assert await one.removals() > history.removals


# Fidelity


@pytest.mark.parametrize(
    "text",
    ["", "\x00", "a\x00b", "👩‍👩‍👧 \U0010ffff", "\u2028\u2029\x85\r\n", "ÅÅ", '"\\/'],
)
async def test_text_survives_as_it_is(store: Store, text: str) -> None:
    # We make owners and ids of responses ourselves; PostgreSQL's text cannot hold a NUL.
    ours = text.replace("\x00", "") if isinstance(store, PostgresStore) else text
    await store.begin(ours, opened(f"r{ours}"), [message(f"i{text}", text)])
    await store.finish(ours, opened(f"r{ours}", status="completed", metadata={text: text}))
    assert await store.find_item(ours, f"i{text}") == message(f"i{text}", text)
    found = await store.get(ours, f"r{ours}")
    assert found is not None
    assert found.metadata == {text: text}


async def test_unknown_items_and_fields_survive(store: Store) -> None:
    odd = {"type": "x:odd", "id": "o1", "nested": {"deep": [None, 1.5, 2**53, True]}}
    ended = opened(
        "r1",
        status="completed",
        output=[odd],
        extra={"x_new": {"a": [1]}},
        antiphon=Notes(degraded=("seed",), usage="estimated"),
    )
    await store.begin(OWNER, opened("r1"), [message("i1", x_new="kept")])
    await store.finish(OWNER, ended)
    assert await store.get(OWNER, "r1") == ended
    assert await store.find_item(OWNER, "i1") == message("i1", x_new="kept")


async def test_a_large_item_survives(store: Store) -> None:
    await store.begin(OWNER, opened("r1"), [message("i1", "é" * 1_000_000)])
    assert await store.find_item(OWNER, "i1") == message("i1", "é" * 1_000_000)


# Owners


async def test_owners_never_see_each_other(store: Store) -> None:
    await run_turn(store, "r1")
    assert await store.get(STRANGER, "r1") is None
    assert await store.history(STRANGER, "r1") is None
    assert await store.input_items(STRANGER, "r1") is None
    assert await store.find_item(STRANGER, "in-r1") is None
    assert await store.delete(STRANGER, "r1") is False
    with pytest.raises(StoreUnavailable):
        await store.finish(STRANGER, opened("r1", status="failed"))
    assert await store.get(OWNER, "r1") is not None


async def test_two_owners_may_use_the_same_ids(store: Store) -> None:
    mine = await run_turn(store, "r1", model="mine")
    theirs = await run_turn(store, "r1", owner=STRANGER, model="theirs")
    assert await store.get(OWNER, "r1") == mine
    assert await store.delete(OWNER, "r1") is True
    assert await store.get(STRANGER, "r1") == theirs
    assert await store.find_item(STRANGER, "in-r1") is not None


async def test_a_chain_does_not_run_through_a_stranger(store: Store) -> None:
    await run_turn(store, "r1", owner=STRANGER)
    await run_turn(store, "r2", "r1")
    history = await store.history(OWNER, "r2")
    assert history is not None
    assert (ids(history.items), history.missing) == (["in-r2", "out-r2"], "r1")


# Chains


async def test_a_chain_of_a_hundred_turns_is_in_order(store: Store) -> None:
    for turn in range(101):
        await run_turn(store, f"r{turn}", f"r{turn - 1}" if turn else None)
    history = await store.history(OWNER, "r100")
    assert history is not None
    expected = [f"{side}-r{turn}" for turn in range(101) for side in ("in", "out")]
    assert (ids(history.items), history.missing) == (expected, None)


async def test_items_of_a_turn_keep_their_order(store: Store) -> None:
    names = [f"{number}" for number in range(25)]
    await store.begin(OWNER, opened("r1"), [message(f"i{name}") for name in names])
    output = [message(f"o{name}") for name in names]
    await store.finish(OWNER, opened("r1", status="completed", output=output))
    history = await store.history(OWNER, "r1")
    assert history is not None
    assert ids(history.items) == [f"i{name}" for name in names] + [f"o{name}" for name in names]
    assert ids(await store.input_items(OWNER, "r1")) == [f"i{name}" for name in names]


async def test_a_history_of_short_and_long_turns_comes_in_order(store: Store) -> None:
    said: list[Item] = []
    for turn in range(130):
        text = "\u00e4" * (2_000_000 if turn == 60 else turn)
        own = [message(f"b{turn}", text), message(f"a{turn}")] if turn else []
        response = opened(f"r{turn}", f"r{turn - 1}" if turn else None)
        await store.begin(OWNER, response, own)
        output = [message(f"out{turn}")]
        ended = msgspec.structs.replace(response, status="completed", output=output)
        await store.finish(OWNER, ended)
        said += [*own, *output]
    history = await store.history(OWNER, "r129")
    assert history is not None
    assert (history.turns, history.items == said) == (130, True)


async def test_branches_of_one_parent_stay_apart(store: Store) -> None:
    await run_turn(store, "root")
    await run_turn(store, "left", "root")
    await run_turn(store, "right", "root")
    left, right = await store.history(OWNER, "left"), await store.history(OWNER, "right")
    assert left is not None
    assert right is not None
    assert ids(left.items) == ["in-root", "out-root", "in-left", "out-left"]
    assert ids(right.items) == ["in-root", "out-root", "in-right", "out-right"]


@pytest.mark.parametrize("status", ["completed", "incomplete", "failed", "cancelled"])
async def test_a_history_says_how_its_head_stands(store: Store, status: str) -> None:
    await run_turn(store, "r1")
    await run_turn(store, "r2", "r1", status=status)
    history = await store.history(OWNER, "r2")
    assert history is not None
    assert history.status == status


async def test_a_deleted_ancestor_is_missing(store: Store) -> None:
    for name, parent in (("r1", None), ("r2", "r1"), ("r3", "r2"), ("r4", "r3")):
        await run_turn(store, name, parent)
    assert await store.delete(OWNER, "r2") is True
    history = await store.history(OWNER, "r4")
    assert history is not None
    assert ids(history.items) == ["in-r3", "out-r3", "in-r4", "out-r4"]
    assert history.missing == "r2"
    assert await store.get(OWNER, "r1") is not None


async def test_a_chain_that_bites_its_tail_ends(store: Store) -> None:
    await run_turn(store, "r1", "r2")
    await run_turn(store, "r2", "r1")
    history = await store.history(OWNER, "r2")
    assert history is not None
    assert history.missing is not None


# Deletion and items


async def test_delete_removes_the_response_and_its_items(store: Store) -> None:
    await run_turn(store, "r1")
    assert await store.delete(OWNER, "r1") is True
    assert await store.get(OWNER, "r1") is None
    assert await store.find_item(OWNER, "in-r1") is None
    assert await store.find_item(OWNER, "out-r1") is None
    assert await store.delete(OWNER, "r1") is False


async def test_a_response_deleted_in_mid_turn_stays_deleted(store: Store) -> None:
    await store.begin(OWNER, opened("r1"), [message("i1")])
    assert await store.delete(OWNER, "r1") is True
    with pytest.raises(StoreUnavailable):
        await store.finish(OWNER, opened("r1", status="completed", output=[message("o1")]))
    assert await store.find_item(OWNER, "o1") is None


async def test_the_newest_of_equal_item_ids_is_found(store: Store) -> None:
    await store.begin(OWNER, opened("r1"), [message("same", "oldest")])
    await store.begin(OWNER, opened("r2"), [message("same", "older")])
    output = [message("same", "newer"), message("same", "newest")]
    await store.finish(OWNER, opened("r2", status="completed", output=output))
    await store.finish(
        OWNER, opened("r1", status="completed", output=[message("same", "ended later")])
    )
    assert await store.find_item(OWNER, "same") == message("same", "newest")
    await store.delete(OWNER, "r2")
    assert await store.find_item(OWNER, "same") == message("same", "ended later")


# Upkeep


async def test_sweep_removes_what_is_older(store: Store) -> None:
    for number in range(4):
        await run_turn(store, f"r{number}", created_at=100 + number)
    await run_turn(store, "r0", owner=STRANGER, created_at=0.5)
    assert await store.sweep(102, 0) == 3
    assert [await store.get(OWNER, f"r{n}") is not None for n in range(4)] == [
        False,
        False,
        True,
        True,
    ]
    assert await store.get(STRANGER, "r0") is None
    assert await store.find_item(OWNER, "in-r0") is None
    assert await store.sweep(102, 0) == 0


async def test_a_long_sweep_removes_everything(store: Store) -> None:
    for number in range(1_001):
        await store.begin(OWNER, opened(f"r{number}", created_at=1), [])
    assert await store.sweep(2, 0) == 1_001


async def test_ping_returns(store: Store) -> None:
    await store.ping()


async def test_a_closed_store_says_so(store: Store) -> None:
    await store.close()
    await store.close()
    with pytest.raises(StoreUnavailable, match="closed"):
        await store.begin(OWNER, opened("r1"), [])
    with pytest.raises(StoreUnavailable, match="closed"):
        await store.get(OWNER, "r1")
    with pytest.raises(StoreUnavailable, match="closed"):
        await store.ping()


# Keys


async def test_keys_are_kept_in_order_of_age(store: Store) -> None:
    old = key("k2", created_at=1, expires_at=9, name="laptop 💻")
    new = key("k1", created_at=2, owner=STRANGER)
    await store.add_key(new)
    await store.add_key(old)
    assert await store.list_keys() == [old, new]
    assert await store.find_key("k2") == old
    assert await store.find_key("k3") is None


async def test_a_key_id_is_taken_once(store: Store) -> None:
    await store.add_key(key("k1"))
    with pytest.raises(ValueError, match="already is a key 'k1'"):
        await store.add_key(key("k1", digest=b"other"))
    assert await store.find_key("k1") == key("k1")


async def test_a_key_is_revoked_once(store: Store) -> None:
    await store.add_key(key("k1", expires_at=20))
    await store.add_key(key("gone", expires_at=5))
    assert await store.revoke_key("k1", now=10) is True
    assert await store.revoke_key("k1", now=11) is False
    assert await store.revoke_key("gone", now=10) is False
    assert await store.revoke_key("none", now=10) is False
    assert await store.find_key("k1") == key("k1", expires_at=20, revoked_at=10)


# Many at once


async def test_many_turns_at_once_do_not_disturb_each_other(store: Store) -> None:
    async def converse(talk: int) -> list[str]:
        parent = None
        for turn in range(5):
            name = f"t{talk}-{turn}"
            await run_turn(store, name, parent, owner=f"owner{talk % 3}")
            assert await store.get(f"owner{talk % 3}", name) is not None
            parent = name
        history = await store.history(f"owner{talk % 3}", f"t{talk}-4")
        assert history is not None
        return ids(history.items)

    for talk, found in enumerate(await asyncio.gather(*(converse(talk) for talk in range(60)))):
        assert found == [f"{side}-t{talk}-{turn}" for turn in range(5) for side in ("in", "out")]


async def test_of_many_finishes_one_wins(store: Store) -> None:
    await store.begin(OWNER, opened("r1"), [])

    async def finish(number: int) -> int | None:
        try:
            await store.finish(OWNER, opened("r1", status="completed", model=f"{number}"))
        except StoreUnavailable:
            return None
        return number

    winners = [n for n in await asyncio.gather(*map(finish, range(20))) if n is not None]
    found: Response | None = await store.get(OWNER, "r1")
    assert found is not None
    assert [found.model] == [f"{number}" for number in winners]


async def test_a_caller_who_leaves_does_not_disturb_the_others(store: Store) -> None:
    tasks = [asyncio.ensure_future(run_turn(store, f"r{number}")) for number in range(20)]
    await asyncio.sleep(0)
    for task in tasks[::2]:
        task.cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert not any(isinstance(result, Exception) for result in results)
    for number in range(1, 20, 2):
        assert await store.get(OWNER, f"r{number}") == results[number]


async def test_a_failure_keeps_its_reason(store: Store) -> None:
    ended = await run_turn(store, "r1", status="failed", error=Failure("upstream_closed", "gone"))
    assert await store.get(OWNER, "r1") == ended


async def test_a_history_asks_with_its_size_before_it_is_read(store: Store) -> None:
    await run_turn(store, "r1")
    await run_turn(store, "r2", "r1")
    asked: list[Size] = []
    found = await store.history(OWNER, "r2", admit=asked.append)
    assert found is not None
    assert asked == [Size(len(found.items), found.weight)]


async def test_many_items_are_decoded_beside_the_event_loop(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    many = [message(f"i{number}") for number in range(1000)]
    await store.begin(OWNER, opened("r1"), many)
    await store.conversations.create(OWNER, Conversation("c1", 1), many)
    threads, decode = set[int](), encoding._decode_object

    def decode_and_note(body: bytes) -> Item:
        threads.add(threading.get_ident())
        return decode(body)

    monkeypatch.setattr(encoding, "_decode_object", decode_and_note)
    history = await store.history(OWNER, "r1")
    own = await store.input_items(OWNER, "r1")
    held = await store.conversations.items(OWNER, "c1")
    locked = await store.conversations.lock(OWNER, "c1", "r1")
    assert history is not None
    assert history.items == own == held == locked == many
    assert threads
    assert threading.get_ident() not in threads


async def test_a_history_that_is_not_admitted_is_refused_and_the_store_goes_on(
    store: Store,
) -> None:
    def refuse(_: Size) -> None:
        raise ContextTooLarge("too large")

    await run_turn(store, "r1")
    with pytest.raises(ContextTooLarge):
        await store.history(OWNER, "r1", admit=refuse)
    with pytest.raises(ContextTooLarge):
        await store.input_items(OWNER, "r1", admit=refuse)
    asked: list[Size] = []
    own = await store.input_items(OWNER, "r1", admit=asked.append)
    assert own is not None
    assert asked == [Size(1, len(encode_item(own[0])))]
    assert await store.history(OWNER, "r1") is not None


async def test_a_response_whose_output_is_not_admitted_is_refused_and_the_store_goes_on(
    store: Store,
) -> None:
    def refuse(_: Size) -> None:
        raise ContextTooLarge("too large")

    await run_turn(store, "r1")
    with pytest.raises(ContextTooLarge):
        await store.get(OWNER, "r1", admit=refuse)
    asked: list[Size] = []
    found = await store.get(OWNER, "r1", admit=asked.append)
    assert found is not None
    assert asked == [Size(len(found.output), sum(len(encode_item(i)) for i in found.output))]
    assert await store.get(OWNER, "r2", admit=asked.append) is None
