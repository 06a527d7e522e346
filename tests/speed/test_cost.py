"""What an event may cost, counted in steps of Python: a regression is seen on any machine.

A whole gateway, with its SQLite store and its threads, lives twice: for a short stream and for a
longer one. The difference, by the events between them, is the cost of one; everything that is
done once cancels out. Repeats differ by a hundredth at most. Calls and blocks of memory are
counted the same way (see `counting`), and for contexts the longer life has the longer requests.

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
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from antiphon.backends.chat import ChatBackend
from antiphon.client.client import AsyncClient
from antiphon.client.sync import Client
from antiphon.gateway.assemble import ServerSettings
from antiphon.store.base import Batch
from antiphon.store.sqlite import SqliteStore
from antiphon.testing.gateway import serve_gateway
from tests.speed.counting import Blocks, Calls, Steps
from tests.speed.partner import Address, Partner
from tests.store.samples import message, opened

# Other versions of Python have other instructions, a few more or fewer for the same line.
_SLACK: Final = 1.0 if sys.version_info[:2] == (3, 11) else 1.3
_SHOWN: Final = 12
_TRIES: Final = 4
_PATIENCE: Final = 600.0
_AGAIN: Final = 3
_LONG: Final = 100  # KiB: what is longer is worked on in a thread that nobody counts
_PLAIN: Final = ServerSettings()
_KEPT: Final = ServerSettings(keep_upstream_requests=True)
_TOGETHER: Final = 25

_SCHEMA: Final = {"type": "object", "properties": {"path": {"type": "string", "minLength": 1}}}
_TOOLS: Final = [
    {"type": "function", "name": f"tool_{index}", "parameters": _SCHEMA, "description": "Does."}
    for index in range(24)
]

Live = Callable[[int], Steps]


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Write no lines to a log that a test before this one may have left open."""
    root = logging.getLogger()
    before = root.level
    root.setLevel(logging.WARNING)
    yield
    root.setLevel(before)


@pytest.fixture(scope="module", autouse=True)
def _warm(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Import what a turn needs before anything is counted.

    To count the blocks of an import takes longer than a gateway keeps an idle connection.
    """

    def play(partner: Partner, at: Address) -> None:
        partner.stream(at, 1, 1)
        partner.turn(at)

    asyncio.run(_serve(Partner(play), _new_file(tmp_path_factory.mktemp("warm")), _KEPT))


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
    partner = Partner(play)
    with steps.counted():
        asyncio.run(_serve(partner, _new_file(folder), settings))
    return steps


def _new_file(folder: Path) -> Path:
    return folder / f"{len(list(folder.glob('*.db')))}.db"


def check(what: str, live: Live, limit: float, *, lives: tuple[int, int], each: int = 1) -> None:
    """Compare a short and a longer life, in which `each` as many events happen.

    On a busy machine a thread that waits may be woken more often, which takes steps too. So what
    is over the limit is counted again: code that takes too many steps always does.
    """
    short, long = lives
    unit = live(short).unit  # what is only done once in a process is done now
    times = (long - short) * each
    for _ in range(_TRIES):
        before, after = live(short).by_file(), live(long).by_file()
        after.subtract(before)
        cost = after.total() / times
        print(f"\n{what}: {cost:,.1f} {unit}, of {limit:,} at most")
        if 0 < cost <= limit * _SLACK:
            return
    for line in _most(after, times):
        print(line)
    raise AssertionError(f"{what} takes {cost:,.1f} {unit}, more than {limit:,}")


def _most(steps: Counter[str], times: int) -> list[str]:
    return [
        f"{count / times:10,.1f}  {'/'.join(Path(file).parts[-3:])}"
        for file, count in steps.most_common(_SHOWN)
    ]


@pytest.mark.parametrize(("words", "limit"), [(1, 2780), (16, 465)])
def test_a_streamed_delta(words: int, limit: int, tmp_path: Path) -> None:
    def live(reads: int) -> Steps:
        return count_gateway(lambda it, at: it.stream(at, reads, words), tmp_path, Steps())

    check(f"a delta, {words} to a read", live, limit, lives=(5, 25), each=words)


def test_the_beginning_and_the_end_of_a_stream_with_tools(tmp_path: Path) -> None:
    """With two deltas between them."""

    def live(streams: int) -> Steps:
        def play(partner: Partner, at: Address) -> None:
            for _ in range(streams):
                partner.stream(at, 1, 1, tools=_TOOLS)

        return count_gateway(play, tmp_path, Steps())

    check("a stream of two deltas with 24 tools", live, 42_000, lives=(2, 12))


@pytest.mark.parametrize("door", ["chat", "messages"])
@pytest.mark.parametrize(("words", "limit"), [(1, 2780), (16, 560)])
def test_a_delta_streamed_through_another_door(
    words: int, limit: int, door: str, tmp_path: Path
) -> None:
    def live(reads: int) -> Steps:
        def play(partner: Partner, at: Address) -> None:
            partner.stream(at, reads, words, door)

        return count_gateway(play, tmp_path, Steps())

    check(f"a delta of {door}, {words} to a read", live, limit, lives=(5, 25), each=words)


@pytest.mark.parametrize(("settings", "limit"), [(_PLAIN, 25_800), (_KEPT, 26_400)])
def test_a_stored_request(settings: ServerSettings, limit: int, tmp_path: Path) -> None:
    def live(turns: int) -> Steps:
        def play(partner: Partner, at: Address) -> None:
            for _ in range(turns):
                partner.turn(at)

        return count_gateway(play, tmp_path, Steps(), settings)

    kept = ", what was sent is kept" if settings.keep_upstream_requests else ""
    check(f"a stored request{kept}", live, limit, lives=(2, 12))


@pytest.mark.parametrize(
    ("counter", "words", "limit"),
    [
        (Calls, 1, 88),
        (Calls, 16, 10.7),
        pytest.param(Blocks, 1, 460, marks=pytest.mark.slow),
        pytest.param(Blocks, 16, 62, marks=pytest.mark.slow),
    ],
)
def test_the_calls_and_blocks_of_a_delta(
    counter: type[Steps], words: int, limit: float, tmp_path: Path
) -> None:
    def live(reads: int) -> Steps:
        return count_gateway(lambda it, at: it.stream(at, reads, words), tmp_path, counter())

    check(f"a delta, {words} to a read", live, limit, lives=(5, 25), each=words)


@pytest.mark.parametrize(("counter", "limit"), [(Steps, 530), (Calls, 14.7)])
def test_a_batch_that_shares_its_commit_with_24_others(
    counter: type[Steps], limit: float, tmp_path: Path
) -> None:
    """From the call of the store to its answer, with a share of the commit."""

    def live(commits: int) -> Steps:
        steps = counter()
        with steps.counted():
            asyncio.run(_append_together(_new_file(tmp_path), commits))
        return steps

    check("a batch of 25 in a commit", live, limit, lives=(5, 45), each=_TOGETHER)


async def _append_together(path: Path, commits: int) -> None:
    """Append one batch to each of some turns, so many times."""
    store = SqliteStore(path)
    names = [f"resp_{number}" for number in range(_TOGETHER)]
    for name in names:
        await store.begin("alice", opened(name), [], batch=Batch(0, 1, b"x"))
    body = b'[1,[["text",1,"msg_0123456789",0,0,[" word"]]]]'
    for number in range(2, commits + 2):
        appends = [store.append("alice", name, Batch(number, number, body)) for name in names]
        for append in appends:
            await append
    await store.close()


@pytest.mark.parametrize(
    ("counter", "limit"), [(Calls, 1130), pytest.param(Blocks, 4900, marks=pytest.mark.slow)]
)
def test_the_calls_and_blocks_of_a_stored_request(
    counter: type[Steps], limit: float, tmp_path: Path
) -> None:
    def live(turns: int) -> Steps:
        def play(partner: Partner, at: Address) -> None:
            for _ in range(turns):
                partner.turn(at)

        return count_gateway(play, tmp_path, counter())

    check("a stored request", live, limit, lives=(2, 12))


@pytest.mark.parametrize(
    ("counter", "is_stored", "limit"),
    [
        (Steps, False, 2430),
        (Steps, True, 2850),
        (Calls, False, 90),
        (Calls, True, 103),
        pytest.param(Blocks, False, 430, marks=pytest.mark.slow),
        pytest.param(Blocks, True, 500, marks=pytest.mark.slow),
    ],
)
def test_a_kib_of_context(
    counter: type[Steps], is_stored: bool, limit: float, tmp_path: Path
) -> None:
    """What an agent sends again with each request, and a last message that is new."""

    def live(kib: int) -> Steps:
        history = _history(kib)

        def play(partner: Partner, at: Address) -> None:
            for turn in range(_AGAIN):
                new = {"role": "user", "content": f"And now {turn}?"}
                partner.stream(at, 1, 1, input=[*history, new], store=is_stored)

        return count_gateway(play, tmp_path, counter())

    how = "stored" if is_stored else "not stored"
    check(f"a KiB of context, {how}", live, limit, lives=(8, 24), each=_AGAIN)


@pytest.mark.parametrize(
    ("counter", "is_stored", "limit"),
    [
        (Steps, False, 425),
        (Steps, True, 590),
        (Calls, False, 20),
        (Calls, True, 28),
    ],
)
def test_a_kib_of_context_that_was_sent_before(
    counter: type[Steps], is_stored: bool, limit: float, tmp_path: Path
) -> None:
    """A long context, of which only the last message is new."""
    history = _history(_LONG)

    def live(times: int) -> Steps:
        def play(partner: Partner, at: Address) -> None:
            for turn in range(times):
                new = {"role": "user", "content": f"And now {turn}?"}
                partner.stream(at, 1, 1, input=[*history, new], store=is_stored)

        return count_gateway(play, tmp_path, counter())

    how = "stored" if is_stored else "not stored"
    check(f"a KiB of context sent again, {how}", live, limit, lives=(2, 6), each=_LONG)


def _history(kib: int) -> list[dict[str, Any]]:
    """Return calls and their outputs, of a KiB together each."""
    items: list[dict[str, Any]] = []
    for number in range(kib):
        call = {"call_id": f"call_{number}", "name": "read", "arguments": f'{{"line":{number}}}'}
        seen = {"call_id": f"call_{number}", "output": f"{number} " + "line of a file " * 57}
        items += [{"type": "function_call", **call}, {"type": "function_call_output", **seen}]
    return items


def test_a_toolbox_sent_again_costs_little(tmp_path: Path) -> None:
    counts = [_count_turns(sent, tmp_path) for sent in ((), _TOOLS)]
    ratio = counts[1].total() / counts[0].total()
    print(f"\na request with 24 tools: {ratio:.2f} times the steps of one without")
    counts[1].subtract(counts[0])
    for line in _most(counts[1], 10):
        print(line)
    assert 0 < ratio <= 1.2


def test_a_long_request_of_an_agent_costs_less_than_two_short_ones(tmp_path: Path) -> None:
    counts = [_count_streams(more, tmp_path) for more in ({}, _long_request())]
    ratio = counts[1].total() / counts[0].total()
    print(f"\na request with 24 tools and 8 messages: {ratio:.2f} times the steps of a short one")
    counts[1].subtract(counts[0])
    for line in _most(counts[1], 10):
        print(line)
    assert 1 < ratio <= 1.9


@pytest.mark.parametrize(("is_stored", "limit"), [(False, 1580), (True, 1840)])
def test_an_item_of_a_context_that_is_sent_whole(
    is_stored: bool, limit: int, tmp_path: Path
) -> None:
    def live(steps: int) -> Steps:
        def play(partner: Partner, at: Address) -> None:
            partner.stream(at, 1, 16, input=_agent_history(steps), store=is_stored)

        return count_gateway(play, tmp_path, Steps())

    kept = ", stored" if is_stored else ""
    check(f"an item of a context{kept}", live, limit, lives=(60, 120), each=3)


def _agent_history(steps: int) -> list[Any]:
    """Return what an agent has thought, called and seen, three items to a step."""
    items: list[Any] = []
    for step in range(steps):
        thought = {"type": "reasoning", "id": f"rs_{step}", "encrypted_content": "gAAAAAB" * 9}
        summary = {"summary": [{"type": "summary_text", "text": "I look at the next file."}]}
        call = {"type": "function_call", "id": f"fc_{step}", "call_id": f"call_{step}"}
        asked = {"name": "read_file", "arguments": '{"path": "a/b.py"}'}
        seen = {"type": "function_call_output", "call_id": f"call_{step}", "output": "x" * 500}
        items += [thought | summary, call | asked, seen]
    return items


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


@pytest.mark.parametrize(("counter", "limit"), [(Steps, 30), (Calls, 2)])
def test_a_turn_of_a_conversation_that_is_read_again(
    counter: type[Steps], limit: int, tmp_path: Path
) -> None:
    """What a gateway does for each earlier turn, which ended in another process."""

    def live(turns: int) -> Steps:
        def play(partner: Partner, at: Address) -> None:
            partner.turn(at)
            partner.turn(at, f"r{turns - 1}")

        path, steps = _new_file(tmp_path), counter()
        asyncio.run(_fill(path, turns))
        partner = Partner(play)
        with steps.counted():
            asyncio.run(_serve(partner, path, _PLAIN))
        return steps

    # Plain messages are written 64 at a time: both conversations have as many beyond that.
    check("a turn that is read again", live, limit, lives=(48, 240))


async def _fill(path: Path, turns: int) -> None:
    """Store a conversation of so many turns, each of two items."""
    store, said = SqliteStore(path), "What did the keeper of the lighthouse do after that? "
    for turn in range(turns):
        parent = f"r{turn - 1}" if turn else None
        response = opened(f"r{turn}", parent, created_at=int(time.time()))
        await store.begin("local", response, [message(f"in{turn}", said * 4)])
        answer = message(f"out{turn}", said * 8, role="assistant")
        ended = msgspec.structs.replace(response, status="completed", output=[answer])
        await store.finish("local", ended)
    await store.close()


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
