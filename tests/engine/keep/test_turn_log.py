"""What a turn says is in the log before anybody sees it, however fast it comes."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from antiphon.accounts.loop_share import LoopShare
from antiphon.accounts.principal import Principal
from antiphon.engine.keep.live import Live
from antiphon.engine.keep.turn_log import Phase, StoragePolicy, TurnLog
from antiphon.engine.run.sinks import ReaderGone
from antiphon.protocol.errors import StoreUnavailable
from antiphon.protocol.events import (
    ContentPartDone,
    Event,
    OutputTextDelta,
    OutputTextDone,
    ResponseCompleted,
    ResponseCreated,
    sequence_of,
)
from antiphon.protocol.machines.log import packed_at, unpack_events
from antiphon.protocol.response import Response
from antiphon.store.base import Batch
from antiphon.store.memory import MemoryStore
from antiphon.store.promise import Promise

OWNER = "ada"
RESPONSE = Response(id="resp_1", model="m")


class HeldStore(MemoryStore):
    """A store whose log is written when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting: list[tuple[Batch, asyncio.Future[bool]]] = []

    def append(  # type: ignore[override] # an awaitable is an awaitable
        self, owner: str, response_id: str, batch: Batch, *, status: str | None = None
    ) -> asyncio.Future[bool]:
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self.waiting.append((batch, future))
        return future

    async def write(self, error: Exception | None = None) -> None:
        """Write what waits for it, or fail to."""
        batch, future = self.waiting.pop(0)
        if error is None:
            future.set_result(await super().append(OWNER, RESPONSE.id, batch))
        else:
            future.set_exception(error)
        await asyncio.sleep(0)  # whoever was called back has run


class Reader:
    """Sees what it is shown, and may be slow."""

    def __init__(self) -> None:
        self.seen: list[int] = []
        self.keeps_up = True
        self.has_seen = asyncio.Event()

    def show(self, events: list[Event]) -> bool:
        self.has_seen.set()
        self.seen += [sequence_of(event) for event in events]
        return self.keeps_up

    async def drained(self) -> None:
        return


def delta(number: int) -> Event:
    return OutputTextDelta(
        sequence_number=number, item_id="m", output_index=0, content_index=0, delta="x"
    )


OPENING: Event = ResponseCreated(sequence_number=0, response=RESPONSE)


def new(store: MemoryStore, *, stored: bool = True) -> TurnLog:
    policy = StoragePolicy(principal=Principal(OWNER), items=[], is_stored=stored, is_logged=stored)
    return TurnLog(store, Live(), policy, RESPONSE, lambda pay, *, is_in_doubt=False: None)


async def begun(
    store: MemoryStore, reader: Reader | None = None, *, stored: bool = True
) -> TurnLog:
    log = new(store, stored=stored)
    log.post([OPENING])
    await log.settled()
    log.sink = reader or Reader()
    return log


def keeps_up(log: TurnLog) -> bool:
    """Ask, and do not think that it stays so."""
    return log.post([])


async def logged(store: MemoryStore) -> list[int]:
    log = await store.read_log(OWNER, RESPONSE.id)
    assert log is not None
    events = [event for batch in log.batches for event in unpack_events(batch.body, log.response)]
    return [sequence_of(event) for event in events]


async def test_nothing_is_shown_before_it_is_in_the_log() -> None:
    store, reader = HeldStore(), Reader()
    log = await begun(store, reader)

    log.post([delta(1)])
    assert keeps_up(log)
    assert reader.seen == []
    await store.write()

    assert reader.seen == [1]
    assert await logged(store) == [0, 1]


@pytest.mark.parametrize("stored", [True, False])
async def test_the_first_events_are_shown_when_the_turn_has_begun(stored: bool) -> None:
    store, reader = MemoryStore(), Reader()
    log = new(store, stored=stored)
    log.sink = reader

    assert not log.post([OPENING, delta(1)])
    assert (log.phase, reader.seen) == (Phase.NEW, [])
    await log.settled()

    assert reader.seen == [0, 1]
    assert not stored or await logged(store) == [0, 1]
    assert keeps_up(log)


async def test_a_beginning_that_was_stored_early_is_shown_before_what_follows_it() -> None:
    store, reader = HeldStore(), Reader()
    log = new(store)
    log.sink = reader
    log.begin_early([OPENING])

    assert not log.post([OPENING, delta(1)])
    await log.settled()
    assert reader.seen == [0]
    assert [(batch.first, batch.last) for batch, _ in store.waiting] == [(1, 1)]
    await store.write()

    assert reader.seen == [0, 1]
    assert await logged(store) == [0, 1]


class PromisingStore(MemoryStore):
    """A store that begins a turn when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.begun: list[Promise[None]] = []

    def begin(self, *_: object, **__: object) -> Promise[None]:  # type: ignore[override] # a promise is an awaitable
        self.begun.append(Promise(asyncio.get_running_loop()))
        return self.begun[0]


async def test_the_beginning_is_stored_early_in_the_next_pass() -> None:
    store = PromisingStore()
    log = new(store)
    log.begin_early([OPENING])
    assert not store.begun  # the request to the model goes out first
    await asyncio.sleep(0)
    assert store.begun


async def test_right_of_way_costs_one_pass_of_the_loop_to_the_first_event() -> None:
    store, reader = PromisingStore(), Reader()
    log = new(store)
    log.sink, log.way = reader, LoopShare().open_way()

    log.begin_early([OPENING])
    assert store.begun
    log.post([OPENING])
    waiting = asyncio.create_task(log.settled())
    await asyncio.sleep(0)
    store.begun[0].answer(None)
    await asyncio.sleep(0)

    assert reader.seen == [0]
    await waiting


async def test_a_turn_that_begins_otherwise_than_it_was_stored_early_is_stored_again() -> None:
    store, reader = MemoryStore(), Reader()
    log = new(store)
    log.sink = reader
    other = msgspec.structs.replace(RESPONSE, service_tier="flex")
    log.begin_early([OPENING])

    log.post([ResponseCreated(sequence_number=0, response=other), delta(1)])
    await log.settled()

    assert reader.seen == [0, 1]
    assert await logged(store) == [0, 1]


async def test_a_reader_that_has_left_is_found_out_when_the_turn_waits_for_it() -> None:
    class Gone(Reader):
        async def drained(self) -> None:
            raise ConnectionError("closed")

    log = new(MemoryStore())
    log.sink = Gone()
    log.post([OPENING])
    with pytest.raises(ReaderGone):
        await log.settled()
    assert log.has_begun


async def test_what_comes_while_the_log_is_written_is_written_together_and_in_order() -> None:
    store, reader = HeldStore(), Reader()
    log = await begun(store, reader)

    for number in range(1, 5):
        log.post([delta(number)])
    assert [batch.last for batch, _ in store.waiting] == [1]
    await store.write()
    assert (reader.seen, [(b.first, b.last) for b, _ in store.waiting]) == ([1], [(2, 4)])
    await store.write()

    assert reader.seen == [1, 2, 3, 4]
    assert await logged(store) == [0, 1, 2, 3, 4]


async def test_the_end_waits_for_what_is_on_its_way_and_takes_the_rest_along() -> None:
    store, reader = HeldStore(), Reader()
    log = await begun(store, reader)
    log.post([delta(1)])
    log.post([delta(2)])
    done = Response(id=RESPONSE.id, model="m", status="completed")

    ending = asyncio.create_task(log.finish([delta(3)], done))
    await asyncio.sleep(0)
    assert not ending.done()
    await store.write()

    assert [sequence_of(event) for event in await ending] == [2, 3]
    assert reader.seen == [1]
    assert await logged(store) == [0, 1, 2, 3]


async def test_a_log_that_cannot_be_written_is_told_and_loses_nothing() -> None:
    store, reader = HeldStore(), Reader()
    log = await begun(store, reader)
    log.post([delta(1)])
    await store.write(StoreUnavailable("no room"))

    assert not keeps_up(log)
    log.post([delta(2)])
    with pytest.raises(StoreUnavailable, match="no room"):
        await log.settled()
    assert [sequence_of(event) for event in log.unshown()] == [1, 2]
    assert reader.seen == []


async def test_an_end_that_can_be_written_makes_up_for_a_log_that_could_not() -> None:
    store, reader = HeldStore(), Reader()
    log = await begun(store, reader)
    log.post([delta(1)])
    await store.write(StoreUnavailable("no room"))

    done = Response(id=RESPONSE.id, model="m", status="completed")
    assert [sequence_of(event) for event in await log.finish([delta(2)], done)] == [1, 2]
    assert await logged(store) == [0, 1, 2]


@pytest.mark.parametrize("stored", [True, False])
async def test_a_reader_that_falls_behind_holds_the_turn_back_until_it_settles(
    stored: bool,
) -> None:
    store, reader = MemoryStore(), Reader()
    log = await begun(store, reader, stored=stored)
    reader.keeps_up = False

    log.post([delta(1)])
    await reader.has_seen.wait()
    assert not keeps_up(log)
    reader.keeps_up = True
    await log.settled()

    assert keeps_up(log)
    log.post([delta(2)])
    await log.settled()
    assert keeps_up(log)
    assert reader.seen == [1, 2]


async def test_a_store_that_is_far_behind_holds_the_turn_back() -> None:
    store, reader = HeldStore(), Reader()
    log = await begun(store, reader)

    posted = 0
    while keeps_up(log):
        posted += 1
        log.post([delta(posted)])

    assert 10 < posted < 1000
    settling = asyncio.create_task(log.settled())
    await store.write()
    await store.write()
    await settling
    assert keeps_up(log)
    assert reader.seen == list(range(1, posted + 1))


async def test_a_turn_that_is_to_be_cancelled_takes_no_more() -> None:
    store, reader = HeldStore(), Reader()
    log = await begun(store, reader)
    log.post([delta(1)])

    await store.ask_cancel(OWNER, RESPONSE.id)
    await store.write()

    assert log.is_cancelled
    assert not keeps_up(log)


async def test_a_promise_is_kept_like_a_future() -> None:
    promise: Promise[bool] = Promise(asyncio.get_running_loop())

    class Promising(MemoryStore):
        def append(self, *args: object, **more: object) -> Promise[bool]:  # type: ignore[override] # an awaitable is an awaitable
            return promise

    reader = Reader()
    log = await begun(Promising(), reader)
    log.post([delta(1)])
    assert reader.seen == []
    promise.answer(False)

    assert reader.seen == [1]


async def test_what_breaks_while_showing_is_raised_and_not_swallowed() -> None:
    store = HeldStore()
    log = await begun(store)

    class Broken(Reader):
        def show(self, events: list[Event]) -> bool:
            raise ZeroDivisionError

    log.sink = Broken()
    log.post([delta(1)])
    await store.write()
    with pytest.raises(ZeroDivisionError):
        await log.settled()


async def test_what_broke_is_raised_once_and_does_not_stand_in_the_way_of_an_end() -> None:
    store, reader = HeldStore(), Reader()
    log = await begun(store, reader)
    log.post([delta(1)])
    await store.write(ZeroDivisionError())

    with pytest.raises(ZeroDivisionError):
        await log.stop()
    failed = Response(id=RESPONSE.id, model="m", status="failed")
    assert [sequence_of(event) for event in await log.finish([delta(2)], failed)] == [1, 2]
    assert await logged(store) == [0, 1, 2]


async def test_a_log_whose_writing_was_cancelled_is_not_shown_as_written() -> None:
    store, reader = HeldStore(), Reader()
    log = await begun(store, reader)
    log.post([delta(1)])

    store.waiting[0][1].cancel()
    with pytest.raises(StoreUnavailable):
        await log.settled()
    assert reader.seen == []
    assert [sequence_of(event) for event in log.unshown()] == [1]


async def test_a_store_that_refuses_at_once_sounds_the_alarm_for_a_turn_that_sleeps() -> None:
    class Full(MemoryStore):
        def append(self, *args: object, **more: object) -> Any:
            raise StoreUnavailable("too much is waiting")

    heard: list[Exception] = []
    log = await begun(Full())
    log.alarm = heard.append
    log.post([delta(1)])
    await asyncio.sleep(0)

    assert [str(error) for error in heard] == ["too much is waiting"]
    assert not keeps_up(log)


async def test_a_reader_that_keeps_up_is_sent_more_at_once_until_it_falls_behind() -> None:
    store, reader = HeldStore(), Reader()
    log = await begun(store, reader)

    async def post_until_held_back() -> int:
        first = count = sum(len(range(b.first, b.last + 1)) for b, _ in store.waiting)
        while keeps_up(log):
            count += 1
            log.post([delta(count)])
        while store.waiting:
            await store.write()
        await log.settled()
        return count - first

    counts = [await post_until_held_back() for _ in range(20)]
    assert counts == sorted(counts)
    assert counts[-1] > 4 * counts[0]
    reader.keeps_up = False
    for _ in range(8):
        log.post([delta(1)])
        await store.write()
        await log.settled()
    reader.keeps_up = True
    assert await post_until_held_back() <= counts[0]


async def test_the_end_of_a_long_answer_is_logged_piece_by_piece_and_whole() -> None:
    store, text = MemoryStore(), "word " * 300_000
    log = await begun(store)
    part = {"type": "output_text", "text": text}
    place: dict[str, Any] = {"item_id": "m", "output_index": 0, "content_index": 0}
    done = Response(id=RESPONSE.id, model="m", status="completed")
    events = [
        delta(1),
        OutputTextDone(sequence_number=2, text=text, **place),
        ContentPartDone(sequence_number=3, part=part, **place),
        ResponseCompleted(sequence_number=4, response=done),
    ]

    shown = await log.finish(events, done)

    stored = await store.read_log(OWNER, RESPONSE.id)
    assert stored is not None
    assert [(b.first, b.last) for b in stored.batches] == [(n, n) for n in range(5)]
    assert await logged(store) == [0, 1, 2, 3, 4]
    assert shown == events


async def test_each_batch_of_the_log_has_its_time_since_the_response_began() -> None:
    store, times = MemoryStore(), iter((100.25, 100.5, 101.75, 99.0))
    policy = StoragePolicy(principal=Principal(OWNER), items=[], is_stored=True, is_logged=True)
    response = msgspec.structs.replace(RESPONSE, created_at=100)
    log = TurnLog(
        store,
        Live(),
        policy,
        response,
        lambda pay, *, is_in_doubt=False: None,
        clock=times.__next__,
    )
    log.post([ResponseCreated(sequence_number=0, response=response)])
    await log.settled()
    for number in (1, 2, 3):
        log.post([delta(number)])
        await log.settled()

    stored = await store.read_log(OWNER, RESPONSE.id)
    assert stored is not None
    # A clock may be set back while a turn runs.
    assert [packed_at(batch.body) for batch in stored.batches] == [0, 250, 1500, 0]
