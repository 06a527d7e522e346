"""What an event may cost, counted in steps of Python: a regression is seen on any machine.

A whole gateway, with its SQLite store and its threads, lives twice: for a short stream and for a
longer one. The difference, by the events between them, is the cost of one; everything that is
done once cancels out. Repeats differ by a hundredth at most.

Each limit is about a seventh above what was counted with Python 3.11. To see what is counted
now, and where:

    pytest -s tests/speed

Whoever makes something dearer for a good reason raises the limit, and whoever makes it cheaper
lowers it.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from antiphon.backends.chat import ChatBackend
from antiphon.client.client import AsyncClient
from antiphon.client.sync import Client
from antiphon.gateway.assemble import ServerSettings
from antiphon.store.sqlite import SqliteStore
from antiphon.testing.gateway import serve_gateway
from tests.speed.counting import Steps
from tests.speed.partner import Address, Partner

# Other versions of Python have other instructions, a few more or fewer for the same line.
_SLACK: Final = 1.0 if sys.version_info[:2] == (3, 11) else 1.3
_SHOWN: Final = 12
_TRIES: Final = 4
_PATIENCE: Final = 60.0
_PLAIN: Final = ServerSettings()
_KEPT: Final = ServerSettings(keep_upstream_requests=True)

Live = Callable[[int], Steps]


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Write no lines to a log that a test before this one may have left open."""
    root = logging.getLogger()
    before = root.level
    root.setLevel(logging.WARNING)
    yield
    root.setLevel(before)


async def _serve(partner: Partner, path: Path, settings: ServerSettings) -> None:
    store = SqliteStore(path)
    backends = {"test": ChatBackend(partner.base_url)}
    async with serve_gateway(backends, store=store, settings=settings) as gateway:
        over = partner.start(gateway.address)
        await asyncio.wait_for(asyncio.wrap_future(over), _PATIENCE)
    await store.close()


def count_gateway(
    play: Callable[[Partner, Address], None],
    folder: Path,
    steps: Steps,
    settings: ServerSettings = _PLAIN,
) -> Steps:
    """Count the life of a gateway that its partner plays with."""
    path = folder / f"{len(list(folder.glob('*.db')))}.db"
    partner = Partner(play)
    with steps.counted():
        asyncio.run(_serve(partner, path, settings))
    return steps


def check(what: str, live: Live, limit: int, *, lives: tuple[int, int], each: int = 1) -> None:
    """Compare a short and a longer life, in which `each` as many events happen.

    On a busy machine a thread that waits may be woken more often, which takes steps too. So what
    is over the limit is counted again: code that takes too many steps always does.
    """
    short, long = lives
    live(short)  # what is only done once in a process
    times = (long - short) * each
    for _ in range(_TRIES):
        before, after = live(short).by_file(), live(long).by_file()
        after.subtract(before)
        cost = after.total() / times
        print(f"\n{what}: {cost:,.0f} steps, of {limit:,} at most")
        if 0 < cost <= limit * _SLACK:
            return
    for line in _most(after, times):
        print(line)
    raise AssertionError(f"{what} takes {cost:,.0f} steps, more than {limit:,}")


def _most(steps: Counter[str], times: int) -> list[str]:
    return [
        f"{count / times:10,.1f}  {'/'.join(Path(file).parts[-3:])}"
        for file, count in steps.most_common(_SHOWN)
    ]


@pytest.mark.parametrize(("words", "limit"), [(1, 3150), (16, 470)])
def test_a_streamed_delta(words: int, limit: int, tmp_path: Path) -> None:
    def live(reads: int) -> Steps:
        return count_gateway(lambda it, at: it.stream(at, reads, words), tmp_path, Steps())

    check(f"a delta, {words} to a read", live, limit, lives=(5, 25), each=words)


@pytest.mark.parametrize("door", ["chat", "messages"])
@pytest.mark.parametrize(("words", "limit"), [(1, 3150), (16, 560)])
def test_a_delta_streamed_through_another_door(
    words: int, limit: int, door: str, tmp_path: Path
) -> None:
    def live(reads: int) -> Steps:
        def play(partner: Partner, at: Address) -> None:
            partner.stream(at, reads, words, door)

        return count_gateway(play, tmp_path, Steps())

    check(f"a delta of {door}, {words} to a read", live, limit, lives=(5, 25), each=words)


@pytest.mark.parametrize(("settings", "limit"), [(_PLAIN, 26_500), (_KEPT, 27_200)])
def test_a_stored_request(settings: ServerSettings, limit: int, tmp_path: Path) -> None:
    def live(turns: int) -> Steps:
        def play(partner: Partner, at: Address) -> None:
            for _ in range(turns):
                partner.turn(at)

        return count_gateway(play, tmp_path, Steps(), settings)

    kept = ", what was sent is kept" if settings.keep_upstream_requests else ""
    check(f"a stored request{kept}", live, limit, lives=(2, 12))


def test_a_toolbox_sent_again_costs_little(tmp_path: Path) -> None:
    schema = {"type": "object", "properties": {"path": {"type": "string", "minLength": 1}}}
    tools = [
        {"type": "function", "name": f"tool_{index}", "parameters": schema, "description": "Does."}
        for index in range(24)
    ]
    counts = [_count_turns(sent, tmp_path) for sent in ((), tools)]
    ratio = counts[1].total() / counts[0].total()
    print(f"\na request with 24 tools: {ratio:.2f} times the steps of one without")
    counts[1].subtract(counts[0])
    for line in _most(counts[1], 10):
        print(line)
    assert 0 < ratio <= 1.3


def test_a_long_request_of_an_agent_costs_less_than_two_short_ones(tmp_path: Path) -> None:
    counts = [_count_streams(more, tmp_path) for more in ({}, _long_request())]
    ratio = counts[1].total() / counts[0].total()
    print(f"\na request with 24 tools and 8 messages: {ratio:.2f} times the steps of a short one")
    counts[1].subtract(counts[0])
    for line in _most(counts[1], 10):
        print(line)
    assert 1 < ratio <= 1.9


def _long_request() -> dict[str, Any]:
    """Return the fields of a Messages request as agents send it."""
    field = {"type": "string", "description": "What it is for. " * 4}
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": {f"field_{number}": field for number in range(6)},
    }
    about = "Does one thing with the files of the workspace. " * 20
    messages: list[Any] = [{"role": "user", "content": [{"type": "text", "text": "Go on."}]}]
    for number in range(3):
        call = {"type": "tool_use", "id": f"toolu_{number}", "name": "tool_1", "input": {}}
        result = {"type": "tool_result", "tool_use_id": f"toolu_{number}", "content": "x" * 1000}
        said = {"type": "text", "text": "I look."}
        messages += [
            {"role": "assistant", "content": [said, call]},
            {"role": "user", "content": [result]},
        ]
    return {
        "system": [{"type": "text", "text": "Work carefully. " * 300}] * 3,
        "tools": [
            {"name": f"tool_{number}", "description": about, "input_schema": schema}
            for number in range(24)
        ],
        "messages": [*messages, {"role": "user", "content": "And now?"}],
    }


def _count_streams(more: dict[str, Any], folder: Path) -> Counter[str]:
    """Count ten streams of Messages that are not stored, after some that were not counted."""

    def ask(partner: Partner, at: Address) -> None:
        partner.stream(at, 1, 16, "messages", store=False, **more)

    return _count_ten(ask, folder)


def _count_turns(tools: Sequence[Any], folder: Path) -> Counter[str]:
    """Count ten requests with these tools, after some that were not counted."""
    return _count_ten(lambda partner, at: partner.turn(at, tools=tools), folder)


def _count_ten(ask: Callable[[Partner, Address], object], folder: Path) -> Counter[str]:
    steps = Steps()

    def play(partner: Partner, at: Address) -> None:
        for turn in range(15):
            steps.is_paused = turn < 5
            ask(partner, at)

    return count_gateway(play, folder, steps).by_file()


def test_a_late_turn_costs_what_an_early_one_does(tmp_path: Path) -> None:
    steps, counts = Steps(), list[Counter[str]]()

    def play(partner: Partner, at: Address) -> None:
        previous = None
        for turn in range(200):
            steps.is_paused = not (5 <= turn < 10 or turn >= 195)
            counts.append(steps.by_file())
            previous = partner.turn(at, previous)
        counts.append(steps.by_file())

    count_gateway(play, tmp_path, steps)
    early, late = counts[10] - counts[5], counts[200] - counts[195]
    ratio = late.total() / early.total()
    print(f"\nturn 200: {late.total() / 5:,.0f} steps, {ratio:.2f} times as many as turn 10")
    for line in _most(late, 5):
        print(line)
    assert 0 < ratio <= 1.15


@pytest.mark.parametrize(("events", "limit"), [(1, 1100), (16, 148)])
def test_an_event_read_by_the_client(events: int, limit: int) -> None:
    async def read(partner: Partner) -> None:
        async with AsyncClient(base_url=partner.base_url, api_key="k") as client:
            over = partner.start()
            async with client.stream(model="m", input="Say a word") as stream:
                async for _ in stream:
                    partner.note_heard()
            await asyncio.wait_for(asyncio.wrap_future(over), _PATIENCE)

    def live(reads: int) -> Steps:
        steps, partner = Steps(), Partner(lambda it, at: it.speak(reads, events))
        with steps.counted():
            asyncio.run(read(partner))
        return steps

    check(f"an event of AsyncClient, {events} to a read", live, limit, lives=(5, 25), each=events)


# The two threads of this client wake each other more often when each has a core: 1,070 to 1,190.
@pytest.mark.parametrize(("events", "limit"), [(1, 1300), (16, 148)])
def test_an_event_read_by_the_client_without_a_loop(events: int, limit: int) -> None:
    def live(reads: int) -> Steps:
        steps, partner = Steps(), Partner(lambda it, at: it.speak(reads, events))
        with steps.counted(), Client(base_url=partner.base_url, api_key="k") as client:
            over = partner.start()
            with client.stream(model="m", input="Say a word") as stream:
                for _ in stream:
                    partner.note_heard()
            over.result(_PATIENCE)
        return steps

    check(f"an event of Client, {events} to a read", live, limit, lives=(5, 25), each=events)
