"""Room for turns: how owners share it."""

import asyncio
import time
from contextlib import AsyncExitStack

import pytest

from antiphon.protocol.errors import Overloaded
from antiphon.server.turn_room import TurnRoom


def _room(most: int) -> tuple[TurnRoom, list[int]]:
    counts: list[int] = []
    return TurnRoom(most, counts.append), counts


async def test_an_owner_that_is_alone_gets_every_place_and_is_then_refused() -> None:
    room, counts = _room(3)
    async with AsyncExitStack() as stack:
        for _ in range(3):
            await stack.enter_async_context(room.place("a"))
        with pytest.raises(Overloaded, match="3 turns are running"):
            await room.enter("a")
    assert counts == [1, 2, 3, 2, 1, 0]


async def test_when_all_places_are_taken_an_owner_with_less_than_its_share_waits_for_one() -> None:
    room, _ = _room(2)
    await room.enter("noisy")
    await room.enter("noisy")
    waiting = asyncio.create_task(room.enter("quiet"))
    await asyncio.sleep(0)
    assert not waiting.done()
    with pytest.raises(Overloaded):
        await room.enter("noisy")  # it has its share
    room.leave("noisy")
    await waiting
    room.leave("noisy")
    room.leave("quiet")


async def test_nothing_waits_for_ever() -> None:
    room, _ = _room(1)
    await room.enter("noisy")
    began = time.monotonic()
    with pytest.raises(Overloaded, match="others wait as well"):
        await room.enter("quiet")
    assert time.monotonic() - began >= 1.9
    room.leave("noisy")


async def test_turns_that_wait_for_a_model_do_not_keep_others_of_their_owner_out() -> None:
    room, counts = _room(1000)
    for _ in range(400):
        await room.enter("noisy")
    await room.enter("quiet")
    for _ in range(40):
        time.sleep(0.01)  # noqa: ASYNC251 # the event loop is late
        await asyncio.sleep(0)
    await asyncio.wait_for(room.enter("noisy"), 30)
    assert counts[-1] == 402


async def test_a_room_that_is_closed_takes_nothing_new() -> None:
    room, _ = _room(5)
    room.is_closed = True
    with pytest.raises(Overloaded, match="going away"):
        await room.enter("a")
