"""Logs and their writers behave the same in every store."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Sequence
from typing import Any

import pytest

from antiphon.protocol.errors import StoreUnavailable, TurnLost
from antiphon.store.base import Batch, Log, Orphan, Store
from tests.store.conftest import Database
from tests.store.samples import FAILURE, OWNER, ids, message, opened, run_turn

STRANGER = "mallory"
FIRST, SECOND, THIRD = Batch(0, 1, b"one"), Batch(2, 2, b"two"), Batch(3, 7, b"three")


async def begin_logged(store: Store, response_id: str, **more: Any) -> None:
    await store.begin(
        OWNER, opened(response_id, **more), [message(f"in-{response_id}")], batch=FIRST
    )


async def finish_logged(store: Store, response_id: str, batch: Batch | None = THIRD) -> None:
    ended = opened(response_id, status="completed", output=[message(f"out-{response_id}")])
    await store.finish(OWNER, ended, batch=batch)


async def batches(store: Store, response_id: str, after: int = -1) -> Sequence[Batch]:
    log = await store.read_log(OWNER, response_id, after)
    assert log is not None
    assert log.is_kept
    return log.batches


# The log of a response


async def test_a_log_is_read_as_it_was_written(store: Store) -> None:
    await begin_logged(store, "r1")
    assert await store.read_log(OWNER, "r1") == Log(opened("r1"), [FIRST], is_kept=True)
    assert await store.append(OWNER, "r1", SECOND) is False
    assert await batches(store, "r1") == [FIRST, SECOND]
    await finish_logged(store, "r1")
    ended = await store.get(OWNER, "r1")
    assert ended is not None
    assert ended.status == "completed"
    assert await store.read_log(OWNER, "r1") == Log(ended, [FIRST, SECOND, THIRD], is_kept=True)


async def test_what_many_turns_append_at_once_is_answered_one_by_one(store: Store) -> None:
    names = [f"r{number}" for number in range(12)]
    await asyncio.gather(*(begin_logged(store, name) for name in names))
    await store.begin(STRANGER, opened("r0"), [], batch=FIRST)
    assert await store.ask_cancel(OWNER, "r3")
    assert await store.delete(OWNER, "r5")

    async def append(owner: str, name: str) -> bool:
        return await store.append(owner, name, Batch(2, 2, f"{owner} {name}".encode()))

    answers = await asyncio.gather(
        *(append(OWNER, name) for name in names),
        append(STRANGER, "r0"),
        append(STRANGER, "r1"),
        return_exceptions=True,
    )

    lost = [place for place, answer in enumerate(answers) if isinstance(answer, TurnLost)]
    assert lost == [5, 13]
    assert [answer for answer in answers if not isinstance(answer, TurnLost)] == [
        place == 3 for place in (*range(5), *range(6, 13))
    ]
    for name in (*names[:5], *names[6:]):
        assert (await batches(store, name))[1:] == [Batch(2, 2, f"{OWNER} {name}".encode())]
    others = await store.read_log(STRANGER, "r0")
    assert others is not None
    assert others.batches[1:] == [Batch(2, 2, f"{STRANGER} r0".encode())]


@pytest.mark.parametrize("is_finished", [False, True])
@pytest.mark.parametrize(
    ("after", "expected"),
    [
        (-5, [FIRST, SECOND, THIRD]),
        (-1, [FIRST, SECOND, THIRD]),
        (0, [FIRST, SECOND, THIRD]),
        (1, [SECOND, THIRD]),
        (2, [THIRD]),
        (3, [THIRD]),
        (6, [THIRD]),
        (7, []),
        (8, []),
        (2**70, []),
    ],
)
async def test_what_lies_behind_a_number_is_every_batch_that_reaches_beyond_it(
    store: Store, after: int, expected: list[Batch], is_finished: bool
) -> None:
    await begin_logged(store, "r1")
    await store.append(OWNER, "r1", SECOND)
    if is_finished:
        await finish_logged(store, "r1", THIRD)
    else:
        await store.append(OWNER, "r1", THIRD)
    assert await batches(store, "r1", after) == expected


async def test_a_turn_that_was_not_streamed_keeps_no_log(store: Store) -> None:
    await store.begin(OWNER, opened("r1"), [])
    assert await store.read_log(OWNER, "r1") == Log(opened("r1"), [], is_kept=False)
    ended = opened("r1", status="completed")
    await store.finish(OWNER, ended)
    assert await store.read_log(OWNER, "r1") == Log(ended, [], is_kept=False)


async def test_a_log_may_end_without_a_last_batch(store: Store) -> None:
    await begin_logged(store, "r1")
    await finish_logged(store, "r1", None)
    assert await batches(store, "r1") == [FIRST]


async def test_a_log_may_be_one_batch_at_the_end(store: Store) -> None:
    await store.begin(OWNER, opened("r1"), [])
    await finish_logged(store, "r1", Batch(0, 9, b"all"))
    assert await batches(store, "r1") == [Batch(0, 9, b"all")]


async def test_a_log_may_begin_after_its_turn(store: Store) -> None:
    await store.begin(OWNER, opened("r1"), [])
    await store.append(OWNER, "r1", FIRST)
    assert await batches(store, "r1") == [FIRST]


async def test_any_bytes_survive_in_a_log(store: Store) -> None:
    odd = [bytes(range(256)), b"", zlib.compress(b"x" * 999), "é👩‍👧\x00".encode(), b"x" * 300_000]
    await begin_logged(store, "r1")
    written = [Batch(2 + n, 2 + n, body) for n, body in enumerate(odd)]
    for batch in written[:-1]:
        await store.append(OWNER, "r1", batch)
    await finish_logged(store, "r1", written[-1])
    assert await batches(store, "r1") == [FIRST, *written]


async def test_a_long_log_is_read_from_any_place(store: Store) -> None:
    await begin_logged(store, "r1")
    written = [Batch(2 + 3 * n, 4 + 3 * n, b"%d" % n) for n in range(300)]
    for batch in written:
        await store.append(OWNER, "r1", batch)
    for after in (1, 2, 4, 5, 450, 451, 452, 901):
        expected = [batch for batch in written if batch.last > after]
        assert await batches(store, "r1", after) == expected
    await finish_logged(store, "r1", None)
    assert await batches(store, "r1", 452) == [batch for batch in written if batch.last > 452]


async def test_a_change_of_status_is_seen(store: Store) -> None:
    await store.begin(OWNER, opened("r1", status="queued"), [message("i1")], batch=FIRST)
    history = await store.history(OWNER, "r1")
    assert history is not None
    assert history.status == "queued"
    await store.append(OWNER, "r1", SECOND, status="in_progress")
    assert await store.get(OWNER, "r1") == opened("r1", status="in_progress")
    log = await store.read_log(OWNER, "r1")
    assert log is not None
    assert log.response == opened("r1", status="in_progress")
    history = await store.history(OWNER, "r1")
    assert history is not None
    assert history.status == "in_progress"


async def test_a_second_begin_adds_nothing_to_a_log(store: Store) -> None:
    await begin_logged(store, "r1")
    await store.append(OWNER, "r1", SECOND)
    await begin_logged(store, "r1")
    assert await batches(store, "r1") == [FIRST, SECOND]
    await finish_logged(store, "r1")
    await begin_logged(store, "r1")
    assert await batches(store, "r1") == [FIRST, SECOND, THIRD]


async def test_logs_stay_apart(store: Store) -> None:
    async def write(name: str) -> None:
        await begin_logged(store, name)
        for number in range(2, 12):
            await store.append(OWNER, name, Batch(number, number, f"{name}-{number}".encode()))

    names = [f"r{number}" for number in range(20)]
    await asyncio.gather(*map(write, names))
    for name in names:
        bodies = [batch.body for batch in await batches(store, name, 1)]
        assert bodies == [f"{name}-{number}".encode() for number in range(2, 12)]


# Whose it is


async def test_a_log_is_for_its_owner(store: Store) -> None:
    await begin_logged(store, "r1")
    assert await store.read_log(STRANGER, "r1") is None
    with pytest.raises(TurnLost):
        await store.append(STRANGER, "r1", SECOND)
    assert await store.ask_cancel(STRANGER, "r1") is False
    assert await batches(store, "r1") == [FIRST]


async def test_what_is_not_there_has_no_log(store: Store) -> None:
    assert await store.read_log(OWNER, "r1") is None
    assert await store.read_log(OWNER, "\ud83d") is None
    assert await store.ask_cancel(OWNER, "\ud83d") is False
    with pytest.raises(TurnLost, match="is not in the store"):
        await store.append(OWNER, "r1", FIRST)


async def test_nothing_is_added_behind_an_end(store: Store) -> None:
    await begin_logged(store, "r1")
    await finish_logged(store, "r1", SECOND)
    with pytest.raises(TurnLost, match="already ended as completed"):
        await store.append(OWNER, "r1", THIRD)
    with pytest.raises(TurnLost, match="already ended as completed"):
        await finish_logged(store, "r1", THIRD)
    assert await batches(store, "r1") == [FIRST, SECOND]


async def test_the_writer_of_a_deleted_response_has_lost_it(store: Store) -> None:
    await begin_logged(store, "r1")
    assert await store.delete(OWNER, "r1") is True
    with pytest.raises(TurnLost, match="nothing was stored"):
        await store.append(OWNER, "r1", SECOND)
    with pytest.raises(TurnLost, match="nothing was stored"):
        await finish_logged(store, "r1")
    assert await store.read_log(OWNER, "r1") is None


@pytest.mark.parametrize("is_finished", [False, True])
async def test_a_log_goes_with_its_response(store: Store, is_finished: bool) -> None:
    await begin_logged(store, "r1")
    await store.ask_cancel(OWNER, "r1")
    if is_finished:
        await finish_logged(store, "r1")
    await store.delete(OWNER, "r1")
    await store.begin(OWNER, opened("r1"), [])
    assert await store.read_log(OWNER, "r1") == Log(opened("r1"), [], is_kept=False)
    assert await store.asked_cancels() == []


async def test_a_sweep_takes_logs_with_it(store: Store) -> None:
    for number in range(4):
        await begin_logged(store, f"r{number}", created_at=10 + number)
    await finish_logged(store, "r0")
    await finish_logged(store, "r3")
    assert await store.sweep(12, 0) == 2
    found = [await store.read_log(OWNER, f"r{number}") for number in range(4)]
    assert [log is not None and log.is_kept for log in found] == [False, False, True, True]


# Waiting


async def test_who_waits_is_woken_by_an_append(store: Store) -> None:
    await begin_logged(store, "r1")
    waiting = asyncio.create_task(store.wait("r1", 60))
    await asyncio.sleep(0)
    await store.append(OWNER, "r1", SECOND)
    await asyncio.wait_for(waiting, 60)


async def test_waiting_ends_without_news(store: Store) -> None:
    await asyncio.wait_for(store.wait("nothing", 0.01), 60)
    await asyncio.wait_for(store.wait("nothing", 0), 60)


async def test_a_follower_sees_every_batch_once(store: Store) -> None:
    await begin_logged(store, "r1")

    async def follow() -> list[int]:
        seen: list[int] = []
        while True:
            log = await store.read_log(OWNER, "r1", seen[-1] if seen else -1)
            assert log is not None
            for batch in log.batches:
                seen += range(batch.first, batch.last + 1)
            if log.response.status == "completed":
                return seen
            if not log.batches:
                await store.wait("r1", 5)

    followers = [asyncio.create_task(follow()) for _ in range(5)]
    for number in range(2, 30):
        await store.append(OWNER, "r1", Batch(number, number, b"x"))
    await finish_logged(store, "r1", Batch(30, 31, b"end"))
    for seen in await asyncio.gather(*followers):
        assert seen == list(range(32))


async def test_a_store_that_is_open_is_counted_as_alive(store: Store) -> None:
    assert await store.count_alive() == 1


# Cancelling


async def test_the_writer_hears_of_a_wish_to_cancel(store: Store) -> None:
    await begin_logged(store, "r1")
    await begin_logged(store, "r2")
    assert await store.asked_cancels() == []
    assert await store.ask_cancel(OWNER, "r1") is True
    assert await store.ask_cancel(OWNER, "r1") is True
    assert await store.asked_cancels() == [(OWNER, "r1")]
    assert await store.append(OWNER, "r1", SECOND) is True
    assert await store.append(OWNER, "r2", SECOND) is False
    await store.finish(OWNER, opened("r1", status="cancelled"), batch=THIRD)
    assert await store.asked_cancels() == []


async def test_a_turn_without_a_log_can_be_cancelled_too(store: Store) -> None:
    await store.begin(OWNER, opened("r1"), [], request=b"body")
    assert await store.ask_cancel(OWNER, "r1") is True
    assert await store.asked_cancels() == [(OWNER, "r1")]


async def test_what_has_ended_cannot_be_cancelled(store: Store) -> None:
    await run_turn(store, "r1")
    assert await store.ask_cancel(OWNER, "r1") is False
    assert await store.ask_cancel(OWNER, "none") is False
    assert await store.asked_cancels() == []


# Orphans


async def test_the_turns_of_the_living_are_left_alone(store: Store) -> None:
    await begin_logged(store, "r1")
    assert await store.claim_orphans(10) == []
    await finish_logged(store, "r1")


async def test_another_living_store_keeps_its_turns(pair: tuple[Store, Store]) -> None:
    one, other = pair
    await begin_logged(one, "r1")
    assert await other.claim_orphans(10) == []
    with pytest.raises(TurnLost, match="another process"):
        await other.append(OWNER, "r1", SECOND)
    with pytest.raises(TurnLost, match="another process"):
        await finish_logged(other, "r1")
    assert await other.ask_cancel(OWNER, "r1") is True
    assert await other.asked_cancels() == []
    assert await one.append(OWNER, "r1", SECOND) is True
    assert await other.read_log(OWNER, "r1") == await one.read_log(OWNER, "r1")
    await finish_logged(one, "r1")


async def test_what_a_store_leaves_is_claimed_whole(pair: tuple[Store, Store]) -> None:
    gone, heir = pair
    await gone.begin(
        OWNER, opened("r2", status="queued", created_at=20), [], batch=FIRST, request=b"body"
    )
    await gone.begin(STRANGER, opened("r1", created_at=10), [message("i1")])
    await gone.append(OWNER, "r2", SECOND, status="in_progress")
    await gone.ask_cancel(OWNER, "r2")
    await run_turn(gone, "done")
    await gone.close()
    assert await heir.claim_orphans(10) == [
        Orphan(STRANGER, opened("r1", created_at=10), []),
        Orphan(
            OWNER,
            opened("r2", status="in_progress", created_at=20),
            [FIRST, SECOND],
            b"body",
            is_cancelled=True,
        ),
    ]
    assert await heir.asked_cancels() == [(OWNER, "r2")]
    assert await heir.append(OWNER, "r2", THIRD) is True
    await heir.finish(OWNER, opened("r2", status="cancelled"), batch=Batch(8, 8, b"end"))
    await heir.finish(STRANGER, opened("r1", status="failed", error=FAILURE))
    assert [batch.first for batch in await batches(heir, "r2")] == [0, 2, 3, 8]
    assert await heir.claim_orphans(10) == []


async def test_orphans_are_claimed_in_portions_and_by_one(
    database: Database, pair: tuple[Store, Store]
) -> None:
    gone, one = pair
    other = await database.open()
    for number in range(30):
        await gone.begin(OWNER, opened(f"r{number:02}", created_at=number), [])
    await gone.ping()
    await gone.close()
    first = await one.claim_orphans(2)
    assert [orphan.response.id for orphan in first] == ["r00", "r01"]
    claimed = await asyncio.gather(*(s.claim_orphans(5) for s in (one, other) * 5))
    names = [orphan.response.id for orphans in claimed for orphan in orphans]
    assert sorted(names) == [f"r{number:02}" for number in range(2, 30)]


async def test_a_store_that_lost_its_turns_cannot_write_them(
    database: Database, pair: tuple[Store, Store]
) -> None:
    """Two heirs in turn: the first has lost what the second claimed from it."""
    gone, heir = pair
    await begin_logged(gone, "r1")
    await gone.close()
    assert ids([{"id": o.response.id} for o in await heir.claim_orphans(1)]) == ["r1"]
    await heir.close()
    last = await database.open()
    assert [orphan.response.id for orphan in await last.claim_orphans(1)] == ["r1"]
    await finish_logged(last, "r1", SECOND)
    assert await batches(last, "r1") == [FIRST, SECOND]


async def test_a_wish_of_another_store_reaches_the_writer(pair: tuple[Store, Store]) -> None:
    one, other = pair
    await begin_logged(one, "r1")
    assert await other.ask_cancel(OWNER, "r1") is True
    assert await one.asked_cancels() == [(OWNER, "r1")]


async def test_deleting_in_another_store_takes_the_turn_from_its_writer(
    pair: tuple[Store, Store],
) -> None:
    one, other = pair
    await begin_logged(one, "r1")
    assert await other.delete(OWNER, "r1") is True
    with pytest.raises(TurnLost):
        await one.append(OWNER, "r1", SECOND)


async def test_another_store_follows_a_log(pair: tuple[Store, Store]) -> None:
    one, other = pair
    await begin_logged(one, "r1")

    async def follow() -> int:
        last = -1
        async with asyncio.timeout(60):
            while last < 20:
                for batch in await batches(other, "r1", last):
                    assert batch.first == last + 1
                    last = batch.last
                await other.wait("r1", 1)
        return last

    follower = asyncio.create_task(follow())
    for number in range(2, 21):
        await one.append(OWNER, "r1", Batch(number, number, b"x"))
    assert await follower == 20


async def test_a_closed_store_keeps_no_log(store: Store) -> None:
    await begin_logged(store, "r1")
    await store.close()
    with pytest.raises(StoreUnavailable, match="closed"):
        await store.append(OWNER, "r1", SECOND)
    with pytest.raises(StoreUnavailable, match="closed"):
        await store.read_log(OWNER, "r1")


# A beginning that was never shown to a client


async def test_a_beginning_is_undone_as_if_it_had_never_been(store: Store) -> None:
    await begin_logged(store, "r1")
    await store.forget(OWNER, "r1")

    assert await store.get(OWNER, "r1") is None
    assert await store.read_log(OWNER, "r1") is None
    assert await store.history(OWNER, "r1") is None
    assert await store.input_items(OWNER, "r1") is None
    assert await store.find_item(OWNER, "in-r1") is None
    with pytest.raises(TurnLost):
        await store.append(OWNER, "r1", SECOND)


async def test_after_it_was_undone_a_turn_of_that_name_begins_anew(store: Store) -> None:
    await begin_logged(store, "r1")
    await store.forget(OWNER, "r1")
    await store.begin(OWNER, opened("r1"), [message("other")], batch=Batch(0, 3, b"other"))
    await store.append(OWNER, "r1", Batch(4, 4, b"more"))

    assert await batches(store, "r1") == [Batch(0, 3, b"other"), Batch(4, 4, b"more")]
    items = await store.input_items(OWNER, "r1")
    assert items is not None
    assert ids(items) == ["other"]


async def test_only_an_unfinished_turn_of_its_owner_is_undone(store: Store) -> None:
    await begin_logged(store, "r1")
    await begin_logged(store, "r2")
    await finish_logged(store, "r2")

    await store.forget(STRANGER, "r1")
    await store.forget(OWNER, "r2")
    await store.forget(OWNER, "nowhere")

    assert await batches(store, "r1") == [FIRST]
    assert await batches(store, "r2") == [FIRST, THIRD]
