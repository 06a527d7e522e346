"""The threads behind the SQLite store: one bad job harms no other, and everything has a cap."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from antiphon.protocol.errors import StoreUnavailable
from antiphon.store import worker
from antiphon.store.worker import Reader, Writer


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
    made = Writer(connect, patience=1.0)
    yield made
    await made.close()


def note(text: str) -> Callable[[sqlite3.Connection], str]:
    def run(connection: sqlite3.Connection) -> str:
        connection.execute("INSERT INTO notes VALUES (?)", (text,))
        return text

    return run


def notes(connection: sqlite3.Connection) -> list[str]:
    return [text for (text,) in connection.execute("SELECT text FROM notes ORDER BY rowid")]


class Gate:
    """A job that holds the thread until the gate is opened."""

    def __init__(self) -> None:
        self.is_reached = threading.Event()
        self.open = threading.Event()

    def __call__(self, connection: sqlite3.Connection) -> None:
        self.is_reached.set()
        assert self.open.wait(10)


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
    reader = Reader(connect, patience=1.0)
    assert task.done() == (await reader.call(notes) == ["a"])
    gate.open.set()
    await asyncio.gather(task, second)
    assert await reader.call(notes) == ["a"]
    await reader.close()


async def test_a_connection_that_cannot_be_opened_is_tried_again(
    connect: Callable[[], sqlite3.Connection],
) -> None:
    obstacles = [OSError("no such disk"), sqlite3.OperationalError("unable to open")]

    def sometimes() -> sqlite3.Connection:
        if obstacles:
            raise obstacles.pop()
        return connect()

    for kind in (Writer, Reader):
        obstacles[:] = [OSError("no such disk"), sqlite3.OperationalError("unable to open")]
        made = kind(sometimes, patience=1.0)
        for _ in range(2):
            with pytest.raises(StoreUnavailable, match="nothing was stored"):
                await made.call(notes)
        assert await made.call(notes) == []
        await made.close()


async def test_a_connection_that_broke_is_replaced(
    writer: Writer, connect: Callable[[], sqlite3.Connection]
) -> None:
    reader = Reader(connect, patience=1.0)
    for made in (writer, reader):
        with pytest.raises(StoreUnavailable):
            await made.call(lambda connection: connection.close())
        assert await made.call(notes) == []
    await reader.close()


async def test_the_backlog_is_bounded(writer: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "MAX_WAITING", 2)
    monkeypatch.setattr(worker, "MAX_WAITING_BYTES", 100)
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
    reader = Reader(connect, patience=1.0)
    async with asyncio.timeout(5):
        while await reader.call(notes) != ["a"]:
            pass
    await reader.close()


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
    reader = Reader(connect, patience=1.0)
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
