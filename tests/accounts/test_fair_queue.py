"""Fair queue: which owner gets the next place."""

import asyncio

import pytest

from antiphon.accounts.fair_queue import FairQueue


async def _wait_in(queue: FairQueue, owner: str, entered: list[str]) -> None:
    await queue.enter(owner)
    entered.append(owner)


async def _settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_owners_get_free_places_in_turn() -> None:
    queue, entered = FairQueue(1), list[str]()
    queue.take("noisy")
    waiters = [
        asyncio.create_task(_wait_in(queue, owner, entered))
        for owner in ("noisy", "noisy", "noisy", "quiet", "other")
    ]
    await _settle()
    queue.leave("noisy")
    for _ in waiters:
        await _settle()
        queue.leave(entered[-1])
    assert entered == ["noisy", "quiet", "other", "noisy", "noisy"]
    assert (queue.count, queue.waiting) == (0, 0)


async def test_a_free_place_is_taken_at_once() -> None:
    queue = FairQueue(2)
    await queue.enter("a")
    await queue.enter("a")
    assert (queue.count, queue.taken_by("a"), queue.taken_by("b")) == (2, 2, 0)


async def test_a_waiter_that_gives_up_leaves_no_trace() -> None:
    queue, entered = FairQueue(1), list[str]()
    queue.take("a")
    first = asyncio.create_task(_wait_in(queue, "b", entered))
    second = asyncio.create_task(_wait_in(queue, "c", entered))
    await _settle()
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    assert queue.waiting == 1
    queue.leave("a")
    await second
    assert entered == ["c"]


async def test_a_place_that_comes_with_a_cancellation_is_given_to_the_next() -> None:
    queue, entered = FairQueue(1), list[str]()
    queue.take("a")
    first = asyncio.create_task(_wait_in(queue, "b", entered))
    second = asyncio.create_task(_wait_in(queue, "c", entered))
    await _settle()
    queue.leave("a")  # gives the place to the first
    first.cancel()
    await second
    assert entered == ["c"]
    assert queue.count == 1


async def test_more_places_wake_those_that_wait() -> None:
    queue, entered = FairQueue(0), list[str]()
    waiters = [asyncio.create_task(_wait_in(queue, "a", entered)) for _ in range(3)]
    await _settle()
    queue.places = 2
    queue.wake()
    await _settle()
    assert len(entered) == 2
    queue.leave("a")
    await asyncio.gather(*waiters)


async def test_a_place_is_never_given_to_one_that_was_cancelled_just_now() -> None:
    queue, entered = FairQueue(1), list[str]()
    queue.take("a")
    first = asyncio.create_task(_wait_in(queue, "b", entered))
    second = asyncio.create_task(_wait_in(queue, "b", entered))
    await _settle()
    first.cancel()
    queue.leave("a")  # before the first could notice
    await second
    assert (entered, queue.count, queue.waiting) == (["b"], 1, 0)
