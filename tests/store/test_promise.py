"""A promise is answered once, and its callbacks run at once."""

from __future__ import annotations

import asyncio

import pytest

from antiphon.protocol.errors import StoreUnavailable
from antiphon.store.promise import Promise


def promised() -> Promise[int]:
    return Promise(asyncio.get_running_loop())


async def test_whoever_asked_is_told_within_the_answer_and_in_order() -> None:
    promise, told = promised(), list[str]()
    promise.add_done_callback(lambda _: told.append("first"))
    promise.add_done_callback(lambda done: told.append(f"then {done.result()}"))
    assert not promise.done()

    promise.answer(7)

    assert promise.done()
    assert told == ["first", "then 7"]


async def test_whoever_asks_late_is_told_at_once() -> None:
    promise, told = promised(), list[int]()
    promise.answer(7)
    promise.add_done_callback(lambda done: told.append(done.result()))
    assert told == [7]


async def test_it_can_be_awaited_before_and_after_the_answer() -> None:
    promise = promised()
    waiting = [asyncio.ensure_future(promise) for _ in range(2)]
    await asyncio.sleep(0)
    promise.answer(7)
    assert await asyncio.gather(*waiting) == [7, 7]
    assert await promise == 7


async def test_an_error_is_raised_for_whoever_waits() -> None:
    promise = promised()
    waiting = asyncio.ensure_future(promise)
    await asyncio.sleep(0)
    promise.answer(StoreUnavailable("no room"))
    with pytest.raises(StoreUnavailable, match="no room"):
        await waiting
    with pytest.raises(StoreUnavailable, match="no room"):
        promise.result()


async def test_who_leaves_takes_nothing_along() -> None:
    promise = promised()
    left, stays = asyncio.ensure_future(promise), asyncio.ensure_future(promise)
    await asyncio.sleep(0)
    left.cancel()
    await asyncio.sleep(0)
    promise.answer(7)
    assert await stays == 7
    assert left.cancelled()


async def test_there_is_one_answer_and_none_before_it() -> None:
    promise = promised()
    with pytest.raises(asyncio.InvalidStateError):
        promise.result()
    promise.answer(7)
    with pytest.raises(asyncio.InvalidStateError):
        promise.answer(8)
    assert promise.result() == 7
