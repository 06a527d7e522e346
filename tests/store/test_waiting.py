"""Waiters: woken from any thread, bounded in time and number."""

from __future__ import annotations

import asyncio

import pytest

from antiphon.store import waiting
from antiphon.store.waiting import Waiters


async def test_those_who_wait_for_one_response_are_woken_together() -> None:
    waiters = Waiters()
    tasks = [asyncio.create_task(waiters.wait("r1", 60)) for _ in range(3)]
    other = asyncio.create_task(waiters.wait("r2", 60))
    await asyncio.sleep(0)
    waiters.wake("r1")
    await asyncio.wait_for(asyncio.gather(*tasks), 60)
    assert not other.done()
    waiters.wake_all()
    await asyncio.wait_for(other, 60)


async def test_another_thread_may_wake() -> None:
    waiters = Waiters()
    task = asyncio.create_task(waiters.wait("r1", 60))
    await asyncio.sleep(0)
    await asyncio.to_thread(waiters.wake, "r1")
    await asyncio.wait_for(task, 60)


async def test_nobody_is_left_behind_in_the_books() -> None:
    waiters = Waiters()
    await waiters.wait("r1", 0.001)
    task = asyncio.create_task(waiters.wait("r1", 60))
    second = asyncio.create_task(waiters.wait("r1", 60))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    waiters.wake("r1")
    waiters.wake("nobody")
    await asyncio.wait_for(second, 60)
    assert (waiters._waiting, waiters._count) == ({}, 0)


async def test_who_left_before_being_woken_disturbs_nobody() -> None:
    waiters = Waiters()
    task = asyncio.create_task(waiters.wait("r1", 60))
    await asyncio.sleep(0)
    waiters.wake("r1")
    task.cancel()
    assert (await asyncio.gather(task, return_exceptions=True))[0] is not None
    assert waiters._count == 0


async def test_a_loop_that_was_closed_is_passed_over() -> None:
    waiters = Waiters()

    def leave() -> None:
        loop = asyncio.new_event_loop()
        future: asyncio.Future[None] = loop.create_future()
        waiters._add("r1", future)
        loop.close()

    await asyncio.to_thread(leave)
    waiters.wake("r1")
    assert waiters._count == 0


async def test_waiters_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "MAX_WAITERS", 1)
    waiters = Waiters()
    first = asyncio.create_task(waiters.wait("r1", 60))
    await asyncio.sleep(0)
    await asyncio.wait_for(waiters.wait("r1", 0.001), 60)
    assert not first.done()
    waiters.wake("r1")
    await asyncio.wait_for(first, 60)
