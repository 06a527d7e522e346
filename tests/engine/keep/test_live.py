"""The newest events of running turns, for whoever listens in this process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from antiphon.engine.keep.live import Channel, Live
from antiphon.protocol.events import Event, OutputTextDelta, sequence_of


def deltas(first: int, count: int) -> list[Event]:
    return [
        OutputTextDelta(
            sequence_number=number, item_id="msg_1", output_index=0, content_index=0, delta="a"
        )
        for number in range(first, first + count)
    ]


def numbers(events: list[Event] | None) -> list[int] | None:
    return None if events is None else [sequence_of(event) for event in events]


def test_without_a_listener_nothing_is_kept() -> None:
    channel = Channel()
    channel.publish(deltas(0, 3))

    assert channel.after(2) == []
    assert channel.after(0) is None


def test_a_listener_gets_what_came_since_it_began() -> None:
    channel = Channel()
    channel.publish(deltas(0, 3))
    with channel.listening():
        channel.publish(deltas(3, 2))
        assert numbers(channel.after(2)) == [3, 4]
        assert numbers(channel.after(3)) == [4]
        assert numbers(channel.after(4)) == []
        assert channel.after(1) is None
    assert channel.after(2) is None


def test_a_listener_that_falls_behind_must_ask_the_store() -> None:
    channel = Channel()
    with channel.listening():
        channel.publish(deltas(0, 5000))
        assert channel.after(-1) is None
        assert numbers(channel.after(4990)) == list(range(4991, 5000))


async def test_waiting_ends_with_the_next_event_and_with_the_turn() -> None:
    channel = Channel()
    actions: list[Callable[[], None]] = [lambda: channel.publish(deltas(0, 1)), channel.close]
    with channel.listening():
        for action in actions:
            waiting = asyncio.create_task(channel.wait(0, 60.0))
            await asyncio.sleep(0)
            action()
            assert await waiting
    assert await channel.wait(0, 60.0)


async def test_waiting_has_an_end_of_its_own() -> None:
    assert not await Channel().wait(-1, 0.001)


async def test_nobody_waits_for_what_is_there_already() -> None:
    channel = Channel()
    channel.publish(deltas(0, 3))
    assert await channel.wait(1, 60.0)


def test_a_channel_is_found_while_its_turn_runs() -> None:
    live = Live()
    channel = live.open("ada", "resp_1")

    assert live.find("ada", "resp_1") is channel
    assert live.find("bob", "resp_1") is None
    live.close("ada", "resp_1")
    live.close("ada", "resp_1")
    assert live.find("ada", "resp_1") is None
    assert not channel.is_open
