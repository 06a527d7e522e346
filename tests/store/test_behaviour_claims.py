"""Claims, notices and secrets behave the same in every store."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from antiphon.protocol.errors import StoreUnavailable
from antiphon.store.base import Claim, Notice, Store
from tests.store.conftest import Database
from tests.store.samples import OWNER, opened, run_turn

STRANGER = "mallory"


def claim(response_id: str, digest: bytes = b"d", now: int = 5, *, is_held: bool = True) -> Claim:
    return Claim(digest, response_id, now, is_held)


def notice(name: str, **more: Any) -> Notice:
    fields: dict[str, Any] = {
        "owner": OWNER,
        "response_id": "r1",
        "type": "response.completed",
        "created_at": 10,
        "endpoint": "hook",
        **more,
    }
    return Notice(id=name, **fields)


async def end_turn(store: Store, response_id: str, *notices: Notice) -> None:
    await store.begin(OWNER, opened(response_id), [])
    await store.finish(OWNER, opened(response_id, status="completed"), entries=notices)


async def due(store: Store, now: int, hide_until: int = 1_000, limit: int = 10) -> list[str]:
    taken = await store.notices.take("hook", now, hide_until, limit)
    return [f"{found.id}/{found.attempts}" for found in taken]


# Claims


async def test_a_token_is_claimed_once(store: Store) -> None:
    assert await store.claims.take(OWNER, "t", b"d", "r1", 5) is None
    assert await store.claims.take(OWNER, "t", b"other", "r2", 6) == claim("r1")
    assert await store.claims.find(OWNER, "t") == claim("r1")
    assert await store.claims.find(OWNER, "none") is None
    assert await store.claims.find(OWNER, "\ud83d") is None


async def test_a_claim_is_its_owners(store: Store) -> None:
    await store.claims.take(OWNER, "t", b"d", "r1", 5)
    assert await store.claims.find(STRANGER, "t") is None
    assert await store.claims.take(STRANGER, "t", b"x", "r2", 6) is None
    await store.claims.release(STRANGER, "t", "r1")
    assert await store.claims.find(OWNER, "t") == claim("r1")


async def test_a_note_takes_the_place_of_an_older_claim(store: Store) -> None:
    await store.claims.take(OWNER, "t", b"d", "r1", 5)
    await store.claims.note(OWNER, "t", b"e", "r2", 6)
    assert await store.claims.find(OWNER, "t") == claim("r2", b"e", 6)
    await store.claims.note(OWNER, "u", b"e", "r2", 6)
    assert await store.claims.find(OWNER, "u") == claim("r2", b"e", 6)
    assert await store.claims.take(OWNER, "u", b"d", "r3", 7) == claim("r2", b"e", 6)


async def test_a_released_claim_is_free(store: Store) -> None:
    await store.claims.take(OWNER, "t", b"d", "r1", 5)
    await store.claims.release(OWNER, "t", "other")
    assert await store.claims.find(OWNER, "t") == claim("r1")
    await store.claims.release(OWNER, "t", "r1")
    await store.claims.release(OWNER, "t", "r1")
    assert await store.claims.take(OWNER, "t", b"d", "r2", 6) is None


async def test_of_many_one_gets_the_claim(store: Store) -> None:
    async def take(number: int) -> Claim | None:
        return await store.claims.take(OWNER, "t", b"d", f"r{number}", 5)

    answers = await asyncio.gather(*map(take, range(20)))
    assert answers.count(None) == 1
    winner = answers.index(None)
    assert all(found == claim(f"r{winner}") for found in answers if found is not None)


async def test_a_deleted_response_takes_its_claims_with_it(store: Store) -> None:
    await store.claims.take(OWNER, "t", b"d", "r1", 5)
    await store.claims.note(OWNER, "u", b"d", "r1", 5)
    await store.claims.take(OWNER, "v", b"d", "r2", 5)
    await run_turn(store, "r1")
    await store.delete(OWNER, "r1")
    found = [await store.claims.find(OWNER, token) for token in "tuv"]
    assert found == [None, None, claim("r2")]


async def test_a_sweep_forgets_old_claims(store: Store) -> None:
    for number in range(4):
        await store.claims.take(OWNER, f"t{number}", b"d", "r1", 10 + number)
    assert await store.sweep(0, 12) == 0
    found = [await store.claims.find(OWNER, f"t{number}") is not None for number in range(4)]
    assert found == [False, False, True, True]


async def test_a_long_sweep_forgets_every_old_claim(store: Store) -> None:
    for number in range(1_001):
        await store.claims.note(OWNER, f"t{number}", b"d", "r1", 1)
    await store.sweep(0, 2)
    for number in (0, 500, 1_000):
        assert await store.claims.find(OWNER, f"t{number}") is None


async def test_a_claim_of_another_store_is_held_while_it_lives(pair: tuple[Store, Store]) -> None:
    one, other = pair
    await one.claims.take(OWNER, "t", b"d", "r1", 5)
    assert await other.claims.take(OWNER, "t", b"d", "r2", 6) == claim("r1")
    assert await other.claims.find(OWNER, "t") == claim("r1")


async def test_a_claim_that_led_nowhere_gives_way_when_its_store_is_gone(
    pair: tuple[Store, Store],
) -> None:
    gone, heir = pair
    await gone.claims.take(OWNER, "t", b"d", "r1", 5)
    await gone.close()
    assert await heir.claims.find(OWNER, "t") == claim("r1", is_held=False)
    assert await heir.claims.take(OWNER, "t", b"d", "r2", 6) is None
    assert await heir.claims.find(OWNER, "t") == claim("r2", now=6)


async def test_a_claim_that_led_to_a_response_stays(pair: tuple[Store, Store]) -> None:
    gone, heir = pair
    await gone.claims.take(OWNER, "t", b"d", "r1", 5)
    await run_turn(gone, "r1")
    await gone.close()
    assert await heir.claims.take(OWNER, "t", b"d", "r2", 6) == claim("r1", is_held=False)


# Notices


async def test_a_notice_is_due_at_once_and_to_one_alone(store: Store) -> None:
    await end_turn(store, "r1", notice("n1"))
    assert await store.notices.take("hook", 10, 20, 5) == [notice("n1", attempts=1)]
    assert await due(store, 19) == []
    assert await due(store, 20) == ["n1/2"]


async def test_notices_are_taken_oldest_first_and_some_at_a_time(store: Store) -> None:
    await end_turn(store, "r1", notice("n3", created_at=12), notice("n1", created_at=10))
    await end_turn(store, "r2", notice("n2", created_at=11), notice("n4", created_at=12))
    assert await due(store, 12, limit=3) == ["n1/1", "n2/1", "n3/1"]
    assert await due(store, 12, limit=3) == ["n4/1"]


async def test_notices_under_a_mark_are_stored_once_for_each_higher_value(store: Store) -> None:
    notices = store.notices
    assert await notices.add_once("mark", 5, [notice("n1"), notice("n2", endpoint="other")])
    assert not await notices.add_once("mark", 5, [notice("n3")])
    assert not await notices.add_once("mark", 4, [notice("n4")])
    assert await notices.add_once("mark", 6, [notice("n5")])
    assert await notices.add_once("another", 1, [notice("n6")])
    assert await due(store, 10) == ["n1/1", "n5/1", "n6/1"]


async def test_of_many_at_once_one_stores_its_notices(store: Store) -> None:
    tries = (store.notices.add_once("mark", 5, [notice(f"n{number}")]) for number in range(8))
    assert sorted(await asyncio.gather(*tries)) == [False] * 7 + [True]
    assert len(await due(store, 10)) == 1


async def test_each_endpoint_has_notices_of_its_own(store: Store) -> None:
    await end_turn(store, "r1", notice("n1"), notice("n2", endpoint="other"))
    assert await due(store, 10) == ["n1/1"]
    assert await store.notices.take("other", 10, 20, 5) == [
        notice("n2", endpoint="other", attempts=1)
    ]
    assert await store.notices.take("nobody", 10, 20, 5) == []


async def test_a_postponed_notice_comes_again(store: Store) -> None:
    await end_turn(store, "r1", notice("n1"))
    await due(store, 10)
    await store.notices.postpone("n1", 15)
    await store.notices.postpone("none", 15)
    assert await due(store, 14) == []
    assert await due(store, 15) == ["n1/2"]


async def test_a_settled_notice_is_gone(store: Store) -> None:
    await end_turn(store, "r1", notice("n1"), notice("n2"))
    await store.notices.settle("n1")
    await store.notices.settle("none")
    assert await due(store, 10) == ["n2/1"]


async def test_a_turn_that_does_not_end_leaves_no_notice(store: Store) -> None:
    await end_turn(store, "r1")
    with pytest.raises(StoreUnavailable):
        await store.finish(OWNER, opened("r1", status="failed"), entries=[notice("n1")])
    assert await due(store, 10) == []


async def test_a_notice_outlives_its_response_but_not_the_sweep(store: Store) -> None:
    await end_turn(store, "r1", notice("n1", created_at=10), notice("n2", created_at=11))
    await store.delete(OWNER, "r1")
    assert await due(store, 11, hide_until=12) == ["n1/1", "n2/1"]
    await store.sweep(11, 0)
    assert await due(store, 12) == ["n2/2"]


async def test_of_many_one_gets_a_notice(store: Store) -> None:
    await end_turn(store, "r1", *(notice(f"n{number:02}") for number in range(20)))
    taken = await asyncio.gather(*(due(store, 10, limit=3) for _ in range(10)))
    assert sorted(name for names in taken for name in names) == [f"n{n:02}/1" for n in range(20)]


async def test_any_store_takes_a_notice_once(pair: tuple[Store, Store]) -> None:
    one, other = pair
    await end_turn(one, "r1", notice("n1"))
    await one.close()
    assert await due(other, 10) == ["n1/1"]
    assert await due(other, 10) == []


# Secrets


async def test_the_first_secret_of_a_name_stays(database: Database) -> None:
    store = await database.open()
    assert await store.secret("a", b"\x00\xff") == b"\x00\xff"
    assert await store.secret("a", b"other") == b"\x00\xff"
    assert await store.secret("b", b"") == b""
    assert await (await database.open()).secret("a", b"third") == b"\x00\xff"


async def test_a_closed_store_has_no_claims(store: Store) -> None:
    await store.close()
    for ask in (
        store.claims.find(OWNER, "t"),
        store.claims.take(OWNER, "t", b"d", "r1", 1),
        store.claims.note(OWNER, "t", b"d", "r1", 1),
        store.notices.take("hook", 1, 2, 3),
        store.notices.settle("n1"),
        store.secret("a", b"b"),
    ):
        with pytest.raises(StoreUnavailable, match="closed"):
            await ask
