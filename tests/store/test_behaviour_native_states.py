"""States of calls behave the same in every store."""

from __future__ import annotations

import asyncio

import pytest

from antiphon.protocol.errors import StoreUnavailable
from antiphon.store.base import Store
from antiphon.store.base.native_states import MAX_STATE_BYTES, MAX_STATES
from tests.store.samples import OWNER, run_turn

STRANGER = "mallory"


async def test_states_are_found_by_the_ids_of_their_calls(store: Store) -> None:
    await store.native_states.keep(OWNER, "r1", {"a": b"\x00\xff", "b": b"2"}, 5)
    found = await store.native_states.find(OWNER, ["a", "none", "b"], 0)
    assert found == {"a": b"\x00\xff", "b": b"2"}
    assert await store.native_states.find(OWNER, [], 0) == {}


async def test_states_are_their_owners(store: Store) -> None:
    await store.native_states.keep(OWNER, "r1", {"a": b"mine"}, 5)
    await store.native_states.keep(STRANGER, "r2", {"a": b"other"}, 5)
    assert await store.native_states.find(OWNER, ["a"], 0) == {"a": b"mine"}
    assert await store.native_states.find(STRANGER, ["a"], 0) == {"a": b"other"}
    assert await store.native_states.find("nobody", ["a"], 0) == {}


@pytest.mark.parametrize("call_id", ["", "\ud83d", "a\0b", "functions.Bash:0", "x" * 5_000])
async def test_any_call_id_can_be_kept(store: Store, call_id: str) -> None:
    await store.native_states.keep(OWNER, "r1", {call_id: b"s"}, 5)
    assert await store.native_states.find(OWNER, [call_id], 0) == {call_id: b"s"}


async def test_a_newer_state_takes_the_place_of_an_older_one(store: Store) -> None:
    await store.native_states.keep(OWNER, "r1", {"a": b"1", "b": b"1"}, 5)
    await store.native_states.keep(OWNER, "r2", {"a": b"2"}, 6)
    assert await store.native_states.find(OWNER, ["a", "b"], 0) == {"a": b"2", "b": b"1"}


async def test_old_states_are_not_found_and_are_removed(store: Store) -> None:
    await store.native_states.keep(OWNER, "r1", {"old": b"1"}, 5)
    await store.native_states.keep(OWNER, "r2", {"new": b"2"}, 6)
    assert await store.native_states.find(OWNER, ["old", "new"], 6) == {"new": b"2"}
    await store.native_states.expire(6)
    assert await store.native_states.find(OWNER, ["old", "new"], 0) == {"new": b"2"}


async def test_the_oldest_go_when_an_owner_has_too_many(store: Store) -> None:
    await store.native_states.keep(STRANGER, "r0", {"c": b"x"}, 1)
    await store.native_states.keep(OWNER, "r1", {"again": b"1", "first": b"1"}, 1)
    await store.native_states.keep(OWNER, "r2", {"again": b"2"}, 1)
    many = {f"c{number}": b"" for number in range(MAX_STATES - 1)}
    await store.native_states.keep(OWNER, "r3", many, 1)
    names = ["first", "again", *many]
    assert await store.native_states.find(OWNER, names, 0) == {"again": b"2", **many}
    assert await store.native_states.find(STRANGER, ["c"], 0) == {"c": b"x"}


async def test_the_oldest_go_when_an_owner_takes_too_much_room(store: Store) -> None:
    third = bytes(MAX_STATE_BYTES // 3)
    for name in ("a", "b", "c", "d"):
        await store.native_states.keep(OWNER, "r1", {name: third}, 1)
    found = await store.native_states.find(OWNER, ["a", "b", "c", "d"], 0)
    assert found.keys() == {"b", "c", "d"}


async def test_a_deleted_response_takes_its_states_along(store: Store) -> None:
    for name in ("r1", "r2"):
        await run_turn(store, name)
        await store.native_states.keep(OWNER, name, {f"call_{name}": b"s"}, 5)
    await store.native_states.keep(STRANGER, "r1", {"call_r1": b"s"}, 5)
    await store.delete(OWNER, "r1")
    names = ["call_r1", "call_r2"]
    assert await store.native_states.find(OWNER, names, 0) == {"call_r2": b"s"}
    assert await store.native_states.find(STRANGER, names, 0) == {"call_r1": b"s"}


async def test_a_swept_response_takes_its_states_along(store: Store) -> None:
    await run_turn(store, "r1")
    await store.native_states.keep(OWNER, "r1", {"a": b"s"}, 5_000)
    await store.sweep(2_000, 0)
    assert await store.native_states.find(OWNER, ["a"], 0) == {}


async def test_another_store_on_the_same_data_finds_them(pair: tuple[Store, Store]) -> None:
    await pair[0].native_states.keep(OWNER, "r1", {"a": b"s"}, 5)
    assert await pair[1].native_states.find(OWNER, ["a"], 0) == {"a": b"s"}


async def test_many_may_keep_the_same_calls_at_once(store: Store) -> None:
    async def keep(number: int) -> None:
        names = sorted(("a", "b"), reverse=number % 2 == 0)
        states = dict.fromkeys(names, b"%d" % number)
        await store.native_states.keep(OWNER, f"r{number}", states, number)

    await asyncio.gather(*map(keep, range(20)))
    found = await store.native_states.find(OWNER, ["a", "b"], 0)
    assert found["a"] == found["b"]


async def test_a_closed_store_keeps_no_states(store: Store) -> None:
    await store.close()
    with pytest.raises(StoreUnavailable):
        await store.native_states.keep(OWNER, "r1", {"a": b"s"}, 5)
    with pytest.raises(StoreUnavailable):
        await store.native_states.find(OWNER, ["a"], 0)
    with pytest.raises(StoreUnavailable):
        await store.native_states.expire(5)
