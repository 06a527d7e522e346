"""The threads behind the SQLite store: one bad job harms no other, and everything has a cap."""

from __future__ import annotations

import asyncio
import gc
import sqlite3
import threading
import time
import weakref
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import closing, suppress
from pathlib import Path

import pytest

from antiphon.protocol.errors import StoreUnavailable
from antiphon.store.sqlite import backlog, pace, worker
from antiphon.store.sqlite.backlog import Job
from antiphon.store.sqlite.erasure import Progress
from antiphon.store.sqlite.queue import WriteQueue
from antiphon.store.sqlite.worker import Reader, Writer
from antiphon.store.trouble import Trouble


class Erasing:
    """An eraser that returns the given results, and repeats the last one."""

    def __init__(self, *answers: Progress | Exception) -> None:
        self.answers = list(answers)
        self.count = 0
        self.is_called = threading.Event()
        self.left: list[bool | Exception] = []
        self.has_looked = threading.Event()

    def is_due(self, connection: sqlite3.Connection) -> bool:
        """Return the next value of `left`, False at its end."""
        assert not connection.in_transaction
        answer = self.left.pop(0) if self.left else False
        self.has_looked.set()
        if isinstance(answer, Exception):
            raise answer
        return answer

    def step(self, connection: sqlite3.Connection) -> Progress:
        assert not connection.in_transaction
        answer = self.answers[min(self.count, len(self.answers) - 1)]
        self.count += 1
        self.is_called.set()
        if isinstance(answer, Exception):
            raise answer
        return answer


class Alone(WriteQueue):
    """The queue of a writer that shares its database with no other."""

    def __init__(self) -> None: ...

    def enter(self, seconds: float) -> bool:
        return True

    def leave(self) -> None: ...

    def close(self) -> None: ...


def writer_on(
    connect: Callable[[], sqlite3.Connection], patience: float, erasing: Erasing | None = None
) -> Writer:
    """Return a writer on a database that no other process uses."""
    trouble = Trouble("the database")
    return Writer(connect, patience, lambda: None, trouble, erasing or Erasing(), Alone())


def reader_on(connect: Callable[[], sqlite3.Connection], patience: float) -> Reader:
    return Reader(connect, patience, lambda: None, Trouble("the database"))


@pytest.fixture
def connect(tmp_path: Path) -> Callable[[], sqlite3.Connection]:
    def connect() -> sqlite3.Connection:
        connection = sqlite3.connect(
            tmp_path / "a.db", timeout=0.1, isolation_level=None, check_same_thread=False
        )
        connection.execute("CREATE TABLE IF NOT EXISTS notes (text TEXT UNIQUE)")
        return connection

    return connect


@pytest.fixture
async def writer(connect: Callable[[], sqlite3.Connection]) -> AsyncIterator[Writer]:
    made = writer_on(connect, 1.0)
    yield made
    await made.close()


def note(text: str) -> Callable[[sqlite3.Connection], str]:
    def run(connection: sqlite3.Connection) -> str:
        connection.execute("INSERT INTO notes VALUES (?)", (text,))
        return text

    return run


def share_for(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Let every commit of shared jobs be followed by a wait of this long."""
    for name in ("_EACH", "_SHORT", "_LONG"):
        monkeypatch.setattr(pace, name, seconds)
    monkeypatch.setattr(pace, "_MANY", 1)


def notes(connection: sqlite3.Connection) -> list[str]:
    return [text for (text,) in connection.execute("SELECT text FROM notes ORDER BY rowid")]


class Gate:
    """A job that holds the thread until the gate is opened."""

    def __init__(self) -> None:
        self.is_reached = threading.Event()
        self.open = threading.Event()

    def __call__(self, connection: sqlite3.Connection) -> None:
        self.is_reached.set()
        assert self.open.wait(60)


async def held(writer: Writer) -> tuple[Gate, asyncio.Task[None]]:
    gate = Gate()
    task = asyncio.create_task(writer.call(gate))
    await asyncio.to_thread(gate.is_reached.wait, 10)
    return gate, task


async def test_what_waits_together_is_one_transaction(writer: Writer) -> None:
    gate, first = await held(writer)
    changes: list[bool] = []

    def look(connection: sqlite3.Connection) -> None:
        changes.append(connection.in_transaction)
        changes.append(notes(connection) == ["a", "b"])

    tasks = [asyncio.create_task(writer.call(run)) for run in (note("a"), note("b"), look)]
    await asyncio.sleep(0)
    gate.open.set()
    await asyncio.gather(first, *tasks)
    assert changes == [True, True]


@pytest.mark.parametrize("bad", [0, 1, 3, 6])
async def test_a_bad_job_fails_alone_and_order_is_kept(writer: Writer, bad: int) -> None:
    gate, first = await held(writer)
    names = [f"{number}" for number in range(7)]
    jobs = [note(name) for name in names]
    jobs[bad] = note("\ud83d")
    tasks = [asyncio.create_task(writer.call(job)) for job in jobs]
    await asyncio.sleep(0)
    gate.open.set()
    await first
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert isinstance(results.pop(bad), StoreUnavailable)
    del names[bad]
    assert results == names
    assert await writer.call(notes) == names


async def test_nothing_is_acknowledged_before_the_commit(
    writer: Writer, connect: Callable[[], sqlite3.Connection]
) -> None:
    task = asyncio.create_task(writer.call(note("a")))
    await asyncio.sleep(0)
    gate = Gate()
    second = asyncio.create_task(writer.call(gate))
    await asyncio.to_thread(gate.is_reached.wait, 10)
    reader = reader_on(connect, 1.0)
    assert task.done() == (await reader.call(notes) == ["a"])
    gate.open.set()
    await asyncio.gather(task, second)
    assert await reader.call(notes) == ["a"]
    await reader.close()


async def test_a_connection_that_cannot_be_opened_is_tried_again(
    connect: Callable[[], sqlite3.Connection],
) -> None:
    obstacles: list[Exception] = []

    def sometimes() -> sqlite3.Connection:
        if obstacles:
            raise obstacles[0]
        return connect()

    for make in (writer_on, reader_on):
        obstacles[:] = [OSError("no such disk"), sqlite3.OperationalError("unable to open")]
        made = make(sometimes, 1.0)
        while obstacles:
            with pytest.raises(StoreUnavailable, match="nothing was stored"):
                await made.call(notes)
            del obstacles[0]
        assert await made.call(notes) == []
        await made.close()


async def test_a_connection_that_broke_is_replaced(
    writer: Writer, connect: Callable[[], sqlite3.Connection]
) -> None:
    reader = reader_on(connect, 1.0)
    for made in (writer, reader):
        with pytest.raises(StoreUnavailable):
            await made.call(lambda connection: connection.close())
        assert await made.call(notes) == []
    await reader.close()


async def test_the_backlog_is_bounded(writer: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backlog, "MAX_WAITING", 2)
    monkeypatch.setattr(backlog, "MAX_WAITING_BYTES", 100)
    gate, first = await held(writer)
    writer.post(note("a"), size=60)
    with pytest.raises(StoreUnavailable, match="too much is waiting"):
        writer.post(note("b"), size=60)
    writer.post(note("c"), size=40)
    with pytest.raises(StoreUnavailable, match="too much is waiting"):
        await writer.call(notes)
    gate.open.set()
    await first
    while writer.is_busy:  # noqa: ASYNC110 # the thread has no event to offer
        await asyncio.sleep(0.01)
    assert await writer.call(notes) == ["a", "c"]
    writer.post(note("d"), size=60)
    assert await writer.call(notes) == ["a", "c", "d"]


async def test_a_posted_job_is_done_without_being_asked_for(
    writer: Writer, connect: Callable[[], sqlite3.Connection]
) -> None:
    writer.post(note("a"), size=1)
    reader = reader_on(connect, 1.0)
    async with asyncio.timeout(60):
        while await reader.call(notes) != ["a"]:
            pass
    await reader.close()


async def test_a_posted_job_that_was_taken_along_does_not_wake_the_thread_again(
    connect: Callable[[], sqlite3.Connection],
) -> None:
    class Counting(Alone):
        left = 0

        def leave(self) -> None:
            self.left += 1

    queue, rung = Counting(), asyncio.Event()
    writer = Writer(connect, 1.0, lambda: None, Trouble("the database"), Erasing(), queue)
    await writer.call(note("a"))
    before = queue.left
    writer.post(note("b"), size=1)
    # Set by a timer that fires after the one of the posted job.
    asyncio.get_running_loop().call_later(2 * worker._LINGER, rung.set)
    await writer.call(note("c"))
    await rung.wait()
    await writer.close()

    assert queue.left == before + 1


async def test_close_does_what_is_waiting(
    writer: Writer, connect: Callable[[], sqlite3.Connection]
) -> None:
    gate, first = await held(writer)
    task = asyncio.create_task(writer.call(note("a")))
    await asyncio.sleep(0)
    writer.post(note("b"), size=1)
    gate.open.set()
    await writer.close()
    await first
    assert await task == "a"
    reader = reader_on(connect, 1.0)
    assert await reader.call(notes) == ["a", "b"]
    await reader.close()
    with pytest.raises(StoreUnavailable, match="closed"):
        writer.post(note("c"), size=1)


async def test_a_loop_that_went_away_disturbs_nobody(writer: Writer) -> None:
    gate, first = await held(writer)

    def leave() -> None:
        loop = asyncio.new_event_loop()
        task = loop.create_task(writer.call(note("left")))
        loop.call_later(0.05, task.cancel)
        with pytest.raises(asyncio.CancelledError):
            loop.run_until_complete(task)
        loop.close()

    await asyncio.to_thread(leave)
    gate.open.set()
    await first
    assert await writer.call(notes) == ["left"]


async def test_an_error_that_is_returned_is_raised_and_undoes_nothing(writer: Writer) -> None:
    gate, first = await held(writer)

    def refuse(_: sqlite3.Connection) -> str | KeyError:
        return KeyError("no")

    runs = (note("a"), refuse, note("b"))
    tasks = [asyncio.create_task(writer.call(run)) for run in runs]
    await asyncio.sleep(0)
    gate.open.set()
    await first
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert [results[0], results[2]] == ["a", "b"]
    assert isinstance(results[1], KeyError)
    assert await writer.call(notes) == ["a", "b"]


# Shared commits


def commits(writer: Writer, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that gets the number of jobs of every commit."""
    sizes: list[int] = []
    commit = writer._commit

    def count(connection: sqlite3.Connection, jobs: list[Job]) -> None:
        sizes.append(len(jobs))
        commit(connection, jobs)

    monkeypatch.setattr(writer, "_commit", count)
    return sizes


async def test_jobs_that_come_often_share_commits(
    writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    share_for(monkeypatch, 0.2)
    sizes = commits(writer, monkeypatch)
    assert await writer.share(note("first"), 1) == "first"
    names = [f"{number}" for number in range(50)]
    assert await asyncio.gather(*(writer.share(note(name), 1) for name in names)) == names
    assert sizes == [1, 50]
    assert await writer.call(notes) == ["first", *names]


async def test_what_a_commit_has_done_is_reported_once_and_before_the_answers(
    writer: Writer, connect: Callable[[], sqlite3.Connection]
) -> None:
    gate, first = await held(writer)
    tasks = [asyncio.ensure_future(writer.share(note(f"{n}"), 1)) for n in range(5)]
    seen: list[tuple[int, list[str], bool]] = []

    def look(jobs: list[Job]) -> None:
        with closing(connect()) as other:
            seen.append((len(jobs), notes(other), any(job.done() for job in jobs)))

    gate.open.set()
    await first
    writer.on_commit = look
    await asyncio.gather(*tasks)
    assert [size for size, _, _ in seen] == [5]
    assert seen[0][1:] == ([f"{n}" for n in range(5)], False)


async def test_a_shared_job_does_not_wait_without_need(
    writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    share_for(monkeypatch, 600.0)
    async with asyncio.timeout(60):
        assert await writer.share(note("a"), 1) == "a"


async def test_a_call_takes_the_shared_jobs_along(
    writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    share_for(monkeypatch, 600.0)
    await writer.call(notes)
    waiting = asyncio.ensure_future(writer.share(note("a"), 1))
    await asyncio.sleep(0)
    async with asyncio.timeout(60):
        assert await writer.call(notes) == ["a"]
        assert await waiting == "a"


async def test_a_shared_job_waits_while_a_commit_is_under_way(
    writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = commits(writer, monkeypatch)
    gate, first = await held(writer)
    tasks = [asyncio.ensure_future(writer.share(note(f"{n}"), 1)) for n in range(5)]
    await asyncio.sleep(0)
    gate.open.set()
    await asyncio.gather(first, *tasks)
    assert sizes == [1, 5]


async def two_callers(writer: Writer) -> None:
    """Let two callers share a commit."""
    gate, first = await held(writer)
    tasks = [asyncio.ensure_future(writer.call(note(name), 1)) for name in ("a", "b")]
    await asyncio.sleep(0)
    gate.open.set()
    await asyncio.gather(first, *tasks)


async def test_gathered_jobs_wait_for_others_after_a_shared_commit(
    writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    share_for(monkeypatch, 60.0)
    monkeypatch.setattr(worker, "_GATHER_EACH", 0.3)
    monkeypatch.setattr(worker, "_GATHER", 0.3)
    sizes = commits(writer, monkeypatch)
    await two_callers(writer)
    waiting = [writer.gather(note("c"), 1)]
    await asyncio.sleep(0.01)  # long enough for a commit, which must not come
    waiting.append(writer.gather(note("d"), 1))
    assert await asyncio.gather(*waiting) == ["c", "d"]
    assert sizes == [1, 2, 2]


async def test_a_gathered_job_does_not_wait_after_a_commit_of_one_caller(
    writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    share_for(monkeypatch, 600.0)
    monkeypatch.setattr(worker, "_GATHER_EACH", 600.0)
    monkeypatch.setattr(worker, "_GATHER", 600.0)
    async with asyncio.timeout(60):
        assert await writer.gather(note("a"), 1) == "a"
        writer.post(note("b"), 1)
        assert await writer.gather(note("c"), 1) == "c"
        assert await writer.gather(note("d"), 1) == "d"


class Counted:
    """A job that notes that it was done, and may hold the thread."""

    def __init__(self, done: list[str], name: str, gate: Gate | None = None) -> None:
        self.done, self.name, self.gate = done, name, gate

    def __call__(self, connection: sqlite3.Connection) -> str:
        if self.gate is not None:
            self.gate(connection)
        self.done.append(self.name)
        return note(self.name)(connection)


async def test_an_urgent_job_ends_the_transaction_that_is_under_way(
    connect: Callable[[], sqlite3.Connection], writer: Writer
) -> None:
    done, gate, other = list[str](), Gate(), Gate()
    blocker, blocked = await held(writer)
    names = [f"noisy {number}" for number in range(40)]
    gates = {"noisy 2": gate, "noisy 3": other}
    jobs = [asyncio.ensure_future(writer.call(Counted(done, n, gates.get(n)))) for n in names]
    await asyncio.sleep(0)
    blocker.open.set()
    await asyncio.to_thread(gate.is_reached.wait, 30)
    urgent = asyncio.ensure_future(writer.call_first(Counted(done, "quiet"), 0))
    await asyncio.sleep(0)
    gate.open.set()
    assert await urgent == "quiet"  # while the fourth job holds the thread
    assert done[:4] == ["noisy 0", "noisy 1", "noisy 2", "quiet"]
    other.open.set()
    assert await asyncio.gather(*jobs) == names
    await blocked
    assert [name for name in done if name != "quiet"] == names
    assert sorted(notes(connect())) == sorted([*names, "quiet"])


async def test_an_urgent_job_that_waits_with_others_goes_first(writer: Writer) -> None:
    done = list[str]()
    gate, first = await held(writer)
    jobs = [asyncio.ensure_future(writer.call(Counted(done, f"noisy {n}"))) for n in range(20)]
    await asyncio.sleep(0)
    urgent = asyncio.ensure_future(writer.call_first(Counted(done, "quiet"), 0))
    await asyncio.sleep(0)
    gate.open.set()
    await asyncio.gather(first, urgent, *jobs)
    assert done[0] == "quiet"
    assert len(done) == 21


async def test_a_second_urgent_job_waits_for_a_few_others_only(writer: Writer) -> None:
    done, gate, other = list[str](), Gate(), Gate()
    blocker, blocked = await held(writer)
    names = [f"noisy {number}" for number in range(40)]
    gates = {"noisy 2": gate, "noisy 4": other}
    jobs = [asyncio.ensure_future(writer.call(Counted(done, n, gates.get(n)))) for n in names]
    await asyncio.sleep(0)
    blocker.open.set()
    await asyncio.to_thread(gate.is_reached.wait, 30)
    first = asyncio.ensure_future(writer.call_first(Counted(done, "quiet 1"), 0))
    await asyncio.sleep(0)
    gate.open.set()
    await asyncio.to_thread(other.is_reached.wait, 30)
    second = asyncio.ensure_future(writer.call_first(Counted(done, "quiet 2"), 0))
    await asyncio.sleep(0)
    other.open.set()
    assert await asyncio.gather(first, second, *jobs) == ["quiet 1", "quiet 2", *names]
    await blocked
    assert done.index("quiet 2") - done.index("quiet 1") == 9  # some that were left come between
    assert [name for name in done if name.startswith("noisy")] == names


class Alike(Counted):
    """A job that is done together with others of its kind."""

    @staticmethod
    def together(connection: sqlite3.Connection, jobs: Sequence[Alike]) -> list[str]:
        return [job(connection) for job in jobs]


@pytest.mark.parametrize("count", [20, 200])
async def test_an_urgent_job_waits_for_a_few_of_those_that_are_done_together(
    writer: Writer, count: int
) -> None:
    done, gate = list[str](), Gate()
    await writer.call_first(Counted([], "another"), 0)  # from then on, groups are small
    blocker, blocked = await held(writer)
    names = [f"noisy {number}" for number in range(count)]
    jobs = [
        asyncio.ensure_future(writer.call(Alike(done, n, gate if n == "noisy 0" else None)))
        for n in names
    ]
    await asyncio.sleep(0)
    blocker.open.set()
    await asyncio.to_thread(gate.is_reached.wait, 30)
    urgent = asyncio.ensure_future(writer.call_first(Counted(done, "quiet"), 0))
    await asyncio.sleep(0)
    gate.open.set()
    assert await asyncio.gather(urgent, *jobs) == ["quiet", *names]
    await blocked
    assert done.index("quiet") == 16  # of those that were begun together
    assert [name for name in done if name != "quiet"] == names


async def test_urgent_jobs_cannot_stop_all_others(writer: Writer) -> None:
    done = list[str]()
    jobs = [asyncio.ensure_future(writer.call(Counted(done, f"noisy {n}"))) for n in range(50)]
    more = 0
    while not all(job.done() for job in jobs):
        await writer.call_first(Counted(done, f"quiet {more}"), 0)
        more += 1
        assert more <= 2 * len(jobs) + 2, "urgent jobs stop all others"
    await asyncio.gather(*jobs)


async def test_a_bad_urgent_job_fails_alone(writer: Writer) -> None:
    done, gate = list[str](), Gate()
    blocker, blocked = await held(writer)
    names = [f"noisy {number}" for number in range(10)]
    jobs = [
        asyncio.ensure_future(writer.call(Counted(done, n, gate if n == "noisy 2" else None)))
        for n in names
    ]
    await asyncio.sleep(0)
    blocker.open.set()
    await asyncio.to_thread(gate.is_reached.wait, 30)
    bad = asyncio.ensure_future(writer.call_first(lambda it: it.execute("nonsense"), 0))
    await asyncio.sleep(0)
    gate.open.set()
    assert await asyncio.gather(*jobs) == names
    with pytest.raises(StoreUnavailable):
        await bad
    await blocked


async def test_close_does_what_was_put_back_for_an_urgent_job(
    connect: Callable[[], sqlite3.Connection],
) -> None:
    writer, done, gate = writer_on(connect, 1.0), list[str](), Gate()
    jobs = [
        asyncio.ensure_future(writer.call(Counted(done, f"noisy {n}", None if n else gate)))
        for n in range(10)
    ]
    await asyncio.to_thread(gate.is_reached.wait, 30)
    urgent = asyncio.ensure_future(writer.call_first(Counted(done, "quiet"), 0))
    closing = asyncio.create_task(writer.close())
    await asyncio.sleep(0.01)
    gate.open.set()
    await asyncio.wait_for(closing, 60)
    await asyncio.gather(urgent, *jobs)
    assert len(notes(connect())) == 11


async def test_callers_of_one_commit_are_answered_in_several_passes(writer: Writer) -> None:
    gate, first = await held(writer)
    passes, answered = 0, list[int]()

    async def ask(number: int) -> None:
        await writer.call(note(str(number)))
        answered.append(passes)

    jobs = [asyncio.create_task(ask(number)) for number in range(40)]
    await asyncio.sleep(0)
    gate.open.set()
    while len(answered) < len(jobs):
        passes += 1
        await asyncio.sleep(0)
    await asyncio.gather(first, *jobs)
    assert max(answered.count(number) for number in answered) <= 4


async def test_a_timer_of_a_loop_that_went_away_is_not_relied_on(
    writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    share_for(monkeypatch, 0.3)
    await writer.call(notes)

    async def share(name: str) -> str:
        return await writer.share(note(name), 1)

    def leave() -> None:
        loop = asyncio.new_event_loop()
        task = loop.create_task(share("left"))
        loop.call_later(0.01, task.cancel)
        with pytest.raises(asyncio.CancelledError):
            loop.run_until_complete(task)
        loop.close()

    await asyncio.to_thread(leave)
    async with asyncio.timeout(60):
        assert await writer.share(note("stayed"), 1) == "stayed"
    assert await writer.call(notes) == ["left", "stayed"]


async def test_what_is_posted_behind_a_commit_is_done_soon(writer: Writer) -> None:
    is_done = threading.Event()
    await writer.call(note("a"))
    writer.post(lambda _: is_done.set(), size=1)
    assert await asyncio.to_thread(is_done.wait, 10)


@pytest.mark.parametrize("pause", [0.0, 0.009, 0.01, 0.011])
async def test_no_shared_job_is_forgotten_when_the_thread_falls_asleep(
    writer: Writer, pause: float
) -> None:
    async with asyncio.timeout(30):
        for number in range(50):
            assert await writer.share(note(f"{number}"), 1) == f"{number}"
            await asyncio.sleep(pause)


# Answers that do not come


async def test_callers_give_up_in_the_order_they_came(
    connect: Callable[[], sqlite3.Connection], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "_GRACE", 0.1)
    writer = writer_on(connect, 0.2)
    gate, first = await held(writer)
    second = asyncio.create_task(writer.call(note("a")))
    left = asyncio.create_task(writer.call(note("b")))
    await asyncio.sleep(0.05)
    left.cancel()
    third = asyncio.create_task(writer.call(note("c")))
    for task in (first, second, third):
        with pytest.raises(StoreUnavailable, match="in time"):
            await asyncio.wait_for(task, 60)
        if task is second:
            assert not third.done()
    gate.open.set()
    assert await writer.call(notes) == ["a", "b", "c"]
    gate, first = await held(writer)
    with pytest.raises(StoreUnavailable, match="in time"):
        await first
    gate.open.set()
    await writer.close()


async def test_loops_that_went_away_are_forgotten(writer: Writer) -> None:
    for _ in range(5):
        await asyncio.to_thread(asyncio.run, writer.call(notes))
    assert len(writer._watches) == 1


# Erasing


def removed(_: sqlite3.Connection) -> bool:
    return True


@pytest.mark.parametrize(
    "answers",
    [
        [Progress.DONE],
        [Progress.MORE, Progress.MORE, Progress.DONE],
        [Progress.BLOCKED, Progress.BLOCKED, Progress.MORE, Progress.DONE],
        [sqlite3.OperationalError("disk"), OSError("disk"), Progress.DONE],
        [ValueError("a bug of ours"), Progress.DONE],
    ],
)
async def test_a_removal_waits_until_it_is_erased(
    connect: Callable[[], sqlite3.Connection], answers: list[Progress | Exception]
) -> None:
    erasing = Erasing(*answers)
    writer = writer_on(connect, 60.0, erasing)
    assert await writer.remove(removed) is True
    assert erasing.count == len(answers)
    assert await writer.remove(lambda _: False) is False
    assert await writer.call(note("a")) == "a"
    assert erasing.count == len(answers)
    await writer.close()


async def test_a_removal_does_not_wait_for_ever(connect: Callable[[], sqlite3.Connection]) -> None:
    erasing = Erasing(Progress.BLOCKED)
    writer = writer_on(connect, 0.2, erasing)
    async with asyncio.timeout(60):
        assert await writer.remove(removed) is True
    erasing.answers = [Progress.DONE]
    count = erasing.count
    erasing.is_called.clear()
    assert await asyncio.to_thread(erasing.is_called.wait, 10)
    assert erasing.count == count + 1
    await writer.close()


async def test_a_removal_does_not_wait_for_the_rest_after_a_long_pass(
    connect: Callable[[], sqlite3.Connection],
) -> None:
    writer = writer_on(connect, 0.2, Erasing(Progress.DONE))
    assert await writer.remove(removed) is True
    writer._next_step = time.monotonic() + 3600  # as after a pass that took long
    async with asyncio.timeout(60):
        assert await writer.remove(removed) is True
    writer._next_step = 0.0
    await writer.close()


async def test_what_is_removed_meanwhile_is_erased_after_that(
    connect: Callable[[], sqlite3.Connection],
) -> None:
    erasing = Erasing(Progress.BLOCKED)
    writer = writer_on(connect, 60.0, erasing)
    first = asyncio.create_task(writer.remove(removed))
    await asyncio.to_thread(erasing.is_called.wait, 10)
    second = asyncio.create_task(writer.remove(removed))
    await asyncio.sleep(0)
    assert await writer.call(note("a")) == "a"
    erasing.answers, erasing.count = [Progress.MORE, Progress.DONE], 0
    assert all(await asyncio.gather(first, second))
    assert erasing.count == 3
    await writer.close()


@pytest.mark.parametrize(
    ("last", "steps"), [(Progress.BLOCKED, 1), (Progress.DONE, 2), (Progress.MORE, None)]
)
async def test_close_erases_what_it_can(
    connect: Callable[[], sqlite3.Connection], last: Progress, steps: int | None
) -> None:
    erasing = Erasing(Progress.BLOCKED)
    writer = writer_on(connect, 0.5 if last is Progress.MORE else 60.0, erasing)
    first = asyncio.create_task(writer.remove(removed))
    await asyncio.to_thread(erasing.is_called.wait, 10)
    second = asyncio.create_task(writer.remove(removed))
    await asyncio.sleep(0)
    assert await writer.call(note("a")) == "a"
    erasing.answers, erasing.count = [last], 0
    async with asyncio.timeout(60):
        await writer.close()
        assert all(await asyncio.gather(first, second))
    assert erasing.count >= 1 if steps is None else erasing.count <= steps + 1


async def test_what_is_removed_meanwhile_is_erased_even_if_nobody_waits_any_more(
    connect: Callable[[], sqlite3.Connection],
) -> None:
    erasing = Erasing(Progress.BLOCKED)
    writer = writer_on(connect, 0.2, erasing)
    first = asyncio.create_task(writer.remove(removed))
    await asyncio.to_thread(erasing.is_called.wait, 10)
    assert await writer.remove(removed) is True
    assert await first is True
    erasing.answers, erasing.count = [Progress.MORE, Progress.DONE], 0
    async with asyncio.timeout(60):
        while erasing.count < 3:
            erasing.is_called.clear()
            await asyncio.to_thread(erasing.is_called.wait, 10)
    await writer.close()


async def test_what_another_process_left_is_erased_at_opening(
    connect: Callable[[], sqlite3.Connection],
) -> None:
    erasing = Erasing(Progress.BLOCKED, Progress.MORE, Progress.DONE)
    erasing.left = [True]
    writer = writer_on(connect, 60.0, erasing)
    async with asyncio.timeout(60):
        while erasing.count < 3:
            erasing.is_called.clear()
            await asyncio.to_thread(erasing.is_called.wait, 10)
    await writer.close()
    assert erasing.count == 3


async def test_what_another_process_leaves_is_looked_for_again_and_again(
    connect: Callable[[], sqlite3.Connection], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "_LOOK", 0.01)
    erasing = Erasing(Progress.DONE)
    erasing.left = [False, False, sqlite3.OperationalError("disk"), True]
    writer = writer_on(connect, 60.0, erasing)
    assert await asyncio.to_thread(erasing.is_called.wait, 20)
    assert erasing.left == []
    await writer.close()


async def test_a_removal_does_not_wait_for_the_next_attempt_of_an_idle_thread(
    connect: Callable[[], sqlite3.Connection], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "_FIRST_PAUSE", 0.0)
    monkeypatch.setattr(worker, "_LAST_PAUSE", 0.0)
    erasing = Erasing(Progress.BLOCKED)
    writer = writer_on(connect, 60.0, erasing)
    assert await asyncio.to_thread(erasing.has_looked.wait, 10)
    # As after many attempts to erase what another process left.
    monkeypatch.setattr(writer, "_is_erasing", True)
    monkeypatch.setattr(writer, "_pause", 600.0)
    monkeypatch.setattr(writer, "_next_step", time.monotonic() + 600.0)
    erasing.answers = [Progress.DONE]
    async with asyncio.timeout(60):
        assert await writer.remove(removed) is True
    assert erasing.count == 2
    await writer.close()


async def test_close_leaves_to_others_what_it_cannot_erase(
    connect: Callable[[], sqlite3.Connection],
) -> None:
    erasing = Erasing(Progress.BLOCKED)
    erasing.left = [True]
    writer = writer_on(connect, 60.0, erasing)
    assert await asyncio.to_thread(erasing.is_called.wait, 10)
    async with asyncio.timeout(60):
        await writer.close()


async def test_whoever_breaks_when_told_keeps_nobody_else_from_being_told(writer: Writer) -> None:
    loop, reported = asyncio.get_running_loop(), list[object]()
    loop.set_exception_handler(lambda _, context: reported.append(context["exception"]))
    broken, others = writer.share(note("a"), 1), [writer.share(note(name), 1) for name in "bc"]

    def burst(_: object) -> None:
        raise ZeroDivisionError

    broken.add_done_callback(burst)
    assert await asyncio.gather(*others) == ["b", "c"]
    loop.set_exception_handler(None)
    assert [type(error) for error in reported] == [ZeroDivisionError]


@pytest.mark.parametrize("make", [writer_on, reader_on])
async def test_a_thread_that_waits_keeps_nothing_of_what_it_has_done(
    connect: Callable[[], sqlite3.Connection], make: Callable[..., Writer | Reader]
) -> None:
    class Work:
        def __call__(self, connection: sqlite3.Connection) -> str:
            return "done"

    worker = make(connect, 1.0)
    work = Work()
    left = weakref.ref(work)
    assert await worker.call(work, 0) == "done"
    del work
    async with asyncio.timeout(30):
        while left() is not None:  # noqa: ASYNC110 # no event shows when the thread waits again
            await asyncio.sleep(0.001)
    await worker.close()


async def test_a_job_that_failed_is_freed_with_its_error(writer: Writer) -> None:
    class Work:
        def __call__(self, connection: sqlite3.Connection) -> StoreUnavailable:
            return StoreUnavailable("no")

    work = Work()
    left = weakref.ref(work)
    gc.disable()  # what is in a cycle would wait for it, megabytes of it
    try:
        with suppress(StoreUnavailable):
            await writer.call(work, 0)
        del work
        async with asyncio.timeout(30):
            while left() is not None:  # noqa: ASYNC110 # no event shows when the thread waits again
                await asyncio.sleep(0.001)
    finally:
        gc.enable()
