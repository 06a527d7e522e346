"""The queue of the writers: in order, safe when a holder dies, and never in the way."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

import pytest

from antiphon.store.copy import copy_store
from antiphon.store.sqlite import SqliteStore
from antiphon.store.sqlite.connection import connect, touch
from antiphon.store.sqlite.erasure import Progress
from antiphon.store.sqlite.queue import WriteQueue
from antiphon.store.sqlite.worker import Writer
from antiphon.store.trouble import Trouble
from tests.store.samples import OWNER, run_turn

if sys.platform == "win32":
    pytest.skip("there is no flock: writers poll, as SQLite does", allow_module_level=True)
import fcntl

LONG = 30.0


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.db"


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as made:
        yield made


@contextmanager
def turn_of(path: Path) -> Iterator[WriteQueue]:
    queue = WriteQueue(path)
    try:
        assert queue.enter(LONG)
        yield queue
    finally:
        queue.close()


def wait_for_waiter(path: Path) -> None:
    """Return when a writer is the next one in the queue."""
    deadline = time.monotonic() + LONG
    while time.monotonic() < deadline:
        with path.with_name(f"{path.name}-next").open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return
        time.sleep(0.001)
    raise AssertionError("no writer waits for its turn")


def test_a_writer_that_comes_back_does_not_overtake_the_one_that_waits(
    path: Path, pool: ThreadPoolExecutor
) -> None:
    with turn_of(path) as first, closing(WriteQueue(path)) as second:
        for _ in range(20):
            waiting = pool.submit(second.enter, LONG)
            wait_for_waiter(path)
            first.leave()
            back = pool.submit(first.enter, LONG)
            assert waiting.result(LONG) and second.is_ours
            assert not first.is_ours
            second.leave()
            assert back.result(LONG) and first.is_ours


def test_the_turn_of_a_writer_that_is_killed_goes_to_the_next(path: Path) -> None:
    code = (
        "import pathlib, sys, time\n"
        "from antiphon.store.sqlite.queue import WriteQueue\n"
        "queue = WriteQueue(pathlib.Path(sys.argv[1]))\n"
        "assert queue.enter(30)\n"
        "print('mine', flush=True)\n"
        "time.sleep(600)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "mine\n"
        with closing(WriteQueue(path)) as queue:
            assert not queue.enter(0.0)
            process.send_signal(signal.SIGKILL)
            assert queue.enter(LONG) and queue.is_ours


def test_a_wait_that_was_given_up_does_not_keep_the_turn(path: Path) -> None:
    with turn_of(path) as first, closing(WriteQueue(path)) as second:
        assert not second.enter(0.0)
        first.leave()
        with turn_of(path):
            assert not second.is_ours


def test_a_writer_that_gave_up_can_come_back(path: Path) -> None:
    with turn_of(path) as first, closing(WriteQueue(path)) as second:
        assert not second.enter(0.0)
        first.leave()
        assert second.enter(LONG) and second.is_ours


def test_the_last_writer_removes_the_files_and_nobody_minds(path: Path) -> None:
    with closing(WriteQueue(path)) as other:
        assert other.enter(LONG)
        other.leave()
        with turn_of(path):
            pass
        assert list(path.parent.iterdir()) == []
        assert other.enter(LONG) and other.is_ours
        assert {file.name for file in path.parent.iterdir()} == {"a.db-next", "a.db-turn"}
        with closing(WriteQueue(path)) as late:
            assert not late.enter(0.0)


def test_a_writer_that_comes_while_the_files_are_removed_queues_with_later_ones(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    last, early, late = WriteQueue(path), WriteQueue(path), WriteQueue(path)
    unlink = Path.unlink

    def unlink_and_let_in(file: Path, *, missing_ok: bool = False) -> None:
        unlink(file, missing_ok=missing_ok)
        monkeypatch.undo()
        early.enter(0.0)  # between the two files

    assert last.enter(LONG)
    monkeypatch.setattr(Path, "unlink", unlink_and_let_in)
    last.close()
    assert early.enter(LONG)
    assert not late.enter(0.0)
    early.leave()
    assert late.enter(LONG)
    early.close()
    late.close()
    assert list(path.parent.iterdir()) == []


def test_a_writer_without_file_descriptors_queues_again_when_there_are_some(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[int] = []
    open_file = os.open

    def open_one(name: Path, flags: int, mode: int) -> int:
        if opened:
            raise OSError(errno.EMFILE, "too many open files")
        opened.append(open_file(name, flags, mode))
        return opened[0]

    with closing(WriteQueue(path)) as queue:
        monkeypatch.setattr(os, "open", open_one)
        assert queue.enter(LONG) and not queue.is_ours
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(opened[0])
        monkeypatch.undo()
        assert queue.enter(LONG) and queue.is_ours


def test_without_flock_the_writers_do_without_a_queue(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(file: int, how: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    with closing(WriteQueue(path)) as queue:
        with monkeypatch.context() as patched:
            patched.setattr(fcntl, "flock", refuse)
            assert queue.enter(0.0)
        assert not queue.is_ours
        queue.leave()


async def test_a_queue_that_is_stuck_is_not_waited_for_longer_than_patience(path: Path) -> None:
    store = SqliteStore(path, patience=2.0)
    with turn_of(path):
        await run_turn(store, "r1")
        await store.ping()
    found = await store.get(OWNER, "r1")
    await store.close()

    assert found is not None and found.status == "completed"


async def test_a_database_that_others_lock_is_reported_by_those_who_queue_as_well(
    path: Path,
) -> None:
    first, second = SqliteStore(path, patience=2.0), SqliteStore(path, patience=2.0)
    with closing(sqlite3.connect(path, isolation_level=None)) as shell:
        shell.execute("BEGIN IMMEDIATE")
        results = await asyncio.gather(first.ping(), second.ping(), return_exceptions=True)
        shell.execute("ROLLBACK")
    await asyncio.gather(first.ping(), second.ping())
    for store in (first, second):
        await store.close()

    for result in results:
        assert "locked by another process" in str(result)


async def test_writes_of_a_store_wait_in_the_queue(path: Path) -> None:
    store = SqliteStore(path, patience=LONG)
    with turn_of(path) as other:
        writing = asyncio.create_task(run_turn(store, "r1"))
        await asyncio.to_thread(wait_for_waiter, path)
        assert not writing.done()
        other.leave()
        await writing
    await store.close()


class Noting(WriteQueue):
    """Stands for the queue, and for what erases: notes who does what."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def enter(self, seconds: float) -> bool:
        self.seen.append("enter")
        return True

    def leave(self) -> None:
        self.seen.append("leave")

    def close(self) -> None:
        self.seen.append("close")

    def is_due(self, connection: sqlite3.Connection) -> bool:
        return False

    def step(self, connection: sqlite3.Connection) -> Progress:
        self.seen.append("erase")
        return Progress.DONE


async def test_what_is_erased_is_erased_in_turn(path: Path) -> None:
    noting = Noting()
    connect(path, patience=LONG).close()
    open_file = partial(connect, path, patience=LONG)
    writer = Writer(open_file, LONG, lambda: None, Trouble("the file"), noting, noting)
    assert await writer.remove(lambda _: True)
    await writer.close()

    at = noting.seen.index("erase")
    assert noting.seen[at - 2 : at + 2] == ["leave", "enter", "erase", "leave"]
    assert noting.seen[-1] == "close"


async def commits_of_waiting_writes(path: Path) -> int:
    """Return how many commits four writes take that wait while another store has its turn."""
    said: list[str] = []

    def open_traced() -> sqlite3.Connection:
        connection = connect(path, patience=LONG)
        connection.set_trace_callback(said.append)
        return connection

    connect(path, patience=LONG).close()
    trouble, queue = Trouble("the file"), WriteQueue(path)
    writer = Writer(open_traced, LONG, lambda: None, trouble, Noting(), queue)
    await writer.call(touch)
    said.clear()
    with turn_of(path) as other:
        writing = [asyncio.create_task(writer.call(touch))]
        await asyncio.to_thread(wait_for_waiter, path)
        writing += [asyncio.create_task(writer.call(touch)) for _ in range(3)]
        await asyncio.sleep(0)  # each of them has asked
        other.leave()
        await asyncio.gather(*writing)
    await writer.close()

    assert said.count("BEGIN IMMEDIATE") == said.count("COMMIT")
    return said.count("COMMIT")


async def test_what_comes_while_a_store_waits_for_its_turn_shares_its_commit(path: Path) -> None:
    # On a busy machine the first of them may have begun before the others have asked.
    assert 1 in [await commits_of_waiting_writes(path) for _ in range(5)]


def test_a_migration_waits_in_the_queue(path: Path, pool: ThreadPoolExecutor) -> None:
    with turn_of(path) as other:
        opening = pool.submit(connect, path, patience=LONG)
        wait_for_waiter(path)
        assert not opening.done()
        other.leave()
        opening.result(LONG).close()


async def test_a_copy_waits_in_the_queue_of_its_target(path: Path, tmp_path: Path) -> None:
    source = SqliteStore(tmp_path / "source.db")
    await run_turn(source, "r1")
    await source.close()
    connect(path, patience=LONG).close()
    urls = f"sqlite:{tmp_path / 'source.db'}", f"sqlite:{path}"
    with turn_of(path) as other:
        copying = asyncio.create_task(
            asyncio.to_thread(asyncio.run, copy_store(*urls, lambda *_: None))
        )
        await asyncio.to_thread(wait_for_waiter, path)
        other.leave()
        counts = await copying
    assert counts["responses"] == 1


async def test_two_stores_that_write_all_the_time_get_about_as_many_turns(path: Path) -> None:
    stores = [SqliteStore(path, patience=LONG) for _ in range(2)]
    counts = [0, 0]

    async def write(number: int) -> None:
        while sum(counts) < 200:
            await stores[number].ping()
            counts[number] += 1

    await asyncio.gather(*(write(number) for number in (0, 1) for _ in range(4)))
    for store in stores:
        await store.close()
    assert min(counts) > 20
