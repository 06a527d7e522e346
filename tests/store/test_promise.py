"""A promise is answered once, and its callbacks run at once."""

from __future__ import annotations

import asyncio
import gc
import weakref

import pytest

from antiphon.protocol.errors import StoreUnavailable
from antiphon.store.promise import Promise, kept, promised, promised_soon


def unanswered() -> Promise[int]:
    return Promise(asyncio.get_running_loop())


async def test_whoever_asked_is_told_within_the_answer_and_in_order() -> None:
    promise, told = unanswered(), list[str]()
    promise.add_done_callback(lambda _: told.append("first"))
    promise.add_done_callback(lambda done: told.append(f"then {done.result()}"))
    assert not promise.done()

    promise.answer(7)

    assert promise.done()
    assert told == ["first", "then 7"]


async def test_whoever_asks_late_is_told_at_once() -> None:
    promise, told = unanswered(), list[int]()
    promise.answer(7)
    promise.add_done_callback(lambda done: told.append(done.result()))
    assert told == [7]


async def test_it_can_be_awaited_before_and_after_the_answer() -> None:
    promise = unanswered()
    waiting = [asyncio.ensure_future(promise) for _ in range(2)]
    await asyncio.sleep(0)
    promise.answer(7)
    assert await asyncio.gather(*waiting) == [7, 7]
    assert await promise == 7


async def test_an_error_is_raised_for_whoever_waits() -> None:
    promise = unanswered()
    waiting = asyncio.ensure_future(promise)
    await asyncio.sleep(0)
    promise.answer(StoreUnavailable("no room"))
    with pytest.raises(StoreUnavailable, match="no room"):
        await waiting
    with pytest.raises(StoreUnavailable, match="no room"):
        promise.result()


async def test_who_leaves_takes_nothing_along() -> None:
    promise = unanswered()
    left, stays = asyncio.ensure_future(promise), asyncio.ensure_future(promise)
    await asyncio.sleep(0)
    left.cancel()
    await asyncio.sleep(0)
    promise.answer(7)
    assert await stays == 7
    assert left.cancelled()


async def test_there_is_one_answer_and_none_before_it() -> None:
    promise = unanswered()
    with pytest.raises(asyncio.InvalidStateError):
        promise.result()
    promise.answer(7)
    with pytest.raises(asyncio.InvalidStateError):
        promise.answer(8)
    assert promise.result() == 7


async def test_one_can_wait_for_the_answer_whatever_it_is() -> None:
    promise = unanswered()
    waiting = asyncio.ensure_future(promise.arrived())
    await asyncio.sleep(0)
    assert promise.error is None
    promise.answer(StoreUnavailable("no room"))
    await waiting
    await promise.arrived()
    assert isinstance(promise.error, StoreUnavailable)


async def test_a_kept_promise_has_its_answer() -> None:
    assert kept(7).result() == 7


async def fail() -> int:
    raise StoreUnavailable("no room")


def fail_at_once() -> Promise[int]:
    raise StoreUnavailable("no room")


async def seven() -> int:
    return 7


async def test_any_answer_can_be_promised() -> None:
    assert await promised(lambda: kept(7)) == 7
    assert await promised(seven) == 7
    for failing in (fail, fail_at_once):
        with pytest.raises(StoreUnavailable, match="no room"):
            await promised(failing)


async def test_an_error_that_was_passed_on_goes_without_the_garbage_collector() -> None:
    gc.collect()
    gc.disable()
    try:
        for failing in (fail, fail_at_once):
            for promising in (promised, promised_soon):
                promise = promising(failing)
                await promise.arrived()
                error = weakref.ref(promise.error or promise)
                del promise
                await asyncio.sleep(0)
                assert error() is None
    finally:
        gc.enable()


async def test_the_answer_of_a_promise_is_passed_on_within_it() -> None:
    first = unanswered()
    assert promised(lambda: first) is first
    second = promised_soon(lambda: first)
    await asyncio.sleep(0)
    first.answer(7)
    assert second.result() == 7


async def test_what_is_promised_soon_is_called_in_the_next_pass() -> None:
    called = list[str]()

    def call() -> Promise[None]:
        called.append("called")
        return kept(None)

    promise = promised_soon(call)
    assert not called
    await asyncio.sleep(0)
    assert called and promise.done()


async def test_a_task_that_is_cancelled_answers_what_it_was_promised_for() -> None:
    started = list[asyncio.Task[None] | None]()

    async def wait() -> None:
        started.append(asyncio.current_task())
        await asyncio.Event().wait()

    promise = promised(wait)
    await asyncio.sleep(0)
    assert started[0] is not None
    started[0].cancel()
    with pytest.raises(StoreUnavailable):
        await promise
