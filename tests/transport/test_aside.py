"""Large work beside the loop: one thread, in which owners take turns."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from antiphon.transport.aside import aside, aside_if, work_for, works_for

PATIENCE = 60.0


@asynccontextmanager
async def busy() -> AsyncIterator[None]:
    """Keep the thread busy, so that all that comes has to wait."""
    has_begun, may_end = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def hold() -> None:
        loop.call_soon_threadsafe(has_begun.set)
        may_end.wait(PATIENCE)

    holding = asyncio.create_task(aside(hold))
    await asyncio.wait_for(has_begun.wait(), PATIENCE)
    try:
        yield
    finally:
        may_end.set()
        await holding


async def queue(owner: str, names: str, done: list[str]) -> list[asyncio.Task[None]]:
    """Queue a job for each of these names, in this order."""
    work_for(owner)
    tasks = [asyncio.create_task(aside(done.append, name)) for name in names]
    await asyncio.sleep(0)  # each of them runs until it waits
    return tasks


async def test_what_one_owner_has_queued_does_not_come_before_all_of_another() -> None:
    done: list[str] = []
    async with busy():
        tasks = await asyncio.create_task(queue("a", "ABCDE", done))
        tasks += await asyncio.create_task(queue("b", "x", done))
        tasks += await asyncio.create_task(queue("c", "yz", done))
    await asyncio.gather(*tasks)

    assert done == ["A", "x", "y", "B", "z", "C", "D", "E"]


async def test_work_that_was_cancelled_before_it_began_is_not_done() -> None:
    done: list[str] = []
    async with busy():
        first, second = await asyncio.create_task(queue("a", "AB", done))
        first.cancel()
        await asyncio.wait({first}, timeout=PATIENCE)
    await second

    assert first.cancelled()
    assert done == ["B"]


async def test_what_work_raises_is_raised_and_the_next_is_done() -> None:
    with pytest.raises(ZeroDivisionError):
        await aside(divmod, 1, 0)

    assert await aside(divmod, 7, 2) == (3, 1)


async def test_only_large_work_is_done_in_another_thread() -> None:
    here = threading.get_ident()

    assert await aside_if(False, threading.get_ident) == here
    assert await aside_if(True, threading.get_ident) != here


async def test_a_task_works_for_the_owner_of_the_task_that_started_it() -> None:
    async def owner() -> str:
        return works_for()

    async def start(name: str) -> str:
        work_for(name)
        return await asyncio.create_task(owner())

    found = await asyncio.gather(*(asyncio.create_task(start(name)) for name in "ab"))

    assert (found, works_for()) == (["a", "b"], "")
