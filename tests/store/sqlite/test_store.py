"""The SQLite store: durable, shared, and truthful when the disk or a lock fails."""

from __future__ import annotations

import asyncio
import random
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest

from antiphon.protocol.errors import StoreUnavailable
from antiphon.store.base import Batch, Conversation, Orphan
from antiphon.store.promise import Promise
from antiphon.store.sqlite import SqliteStore
from antiphon.store.sqlite import log as log_rows
from antiphon.store.sqlite.notices import SqliteNotices
from tests import clock
from tests.store.samples import FAILURE, OWNER, ids, key, message, opened, run_turn

ROOT = Path(__file__).parents[3]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.db"


@asynccontextmanager
async def open_at(
    path: Path, *, patience: float = 5.0, max_bytes: int | None = None
) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(path, patience=patience, max_bytes=max_bytes)
    try:
        yield store
    finally:
        await store.close()


def start(script: str, path: Path) -> subprocess.Popen[str]:
    """Run a script in a process of its own; `sys.argv[1]` is the path."""
    return subprocess.Popen(
        [sys.executable, "-c", script, str(path)], stdout=subprocess.PIPE, text=True, cwd=ROOT
    )


def names_in(directory: Path) -> list[str]:
    return [file.name for file in directory.iterdir()]


# Durability


async def test_everything_is_there_after_reopening(path: Path) -> None:
    async with open_at(path) as store:
        ended = await run_turn(store, "r1")
        await store.add_key(key("k1"))
    async with open_at(path) as store:
        assert await store.get(OWNER, "r1") == ended
        assert await store.find_key("k1") == key("k1")


async def test_close_writes_what_is_queued(path: Path) -> None:
    async with open_at(path) as store:
        await store.begin(OWNER, opened("r1"), [message("i1")])
    async with open_at(path) as store:
        assert ids(await store.input_items(OWNER, "r1")) == ["i1"]


WRITE_FOREVER = """
import asyncio, itertools, sys
from antiphon.store import SqliteStore
from tests.store.samples import run_turn

async def write(store, worker):
    for number in itertools.count():
        await run_turn(store, f"r{worker}-{number}")
        print(f"r{worker}-{number}", flush=True)

async def main():
    store = SqliteStore(sys.argv[1])
    await asyncio.gather(*(write(store, worker) for worker in range(8)))

asyncio.run(main())
"""


async def test_what_was_acknowledged_survives_a_kill(path: Path) -> None:
    with start(WRITE_FOREVER, path) as process:
        assert process.stdout is not None
        acknowledged = [process.stdout.readline() for _ in range(300)]
        process.send_signal(signal.SIGKILL)
        acknowledged += process.stdout.readlines()
    names = [line.strip() for line in acknowledged if line.endswith("\n")]
    assert len(names) >= 300
    async with open_at(path) as store:
        for name in names:
            history = await store.history(OWNER, name)
            assert history is not None
            assert (ids(history.items), history.status) == (
                [f"in-{name}", f"out-{name}"],
                "completed",
            )


DIE_IN_MID_TURN = """
import asyncio, os, signal, sys
from antiphon.store import SqliteStore
from tests.store.samples import message, opened

async def main():
    store = SqliteStore(sys.argv[1])
    await store.begin("alice", opened("r1"), [message("i1")])
    await store.ping()
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


async def test_what_a_dead_process_left_open_is_claimed(path: Path) -> None:
    start(DIE_IN_MID_TURN, path).communicate()
    async with open_at(path) as store:
        await store.begin(OWNER, opened("mine"), [])
        assert await store.claim_orphans(10) == [Orphan(OWNER, opened("r1"), [])]
        ended = opened("r1", status="failed", error=FAILURE)
        await store.finish(OWNER, ended)
        assert await store.get(OWNER, "r1") == ended
        assert ids(await store.input_items(OWNER, "r1")) == ["i1"]
        assert await store.claim_orphans(10) == []
        await store.finish(OWNER, opened("mine", status="completed"))
    assert names_in(path.parent) == ["a.db"]


async def test_a_store_that_was_closed_in_mid_turn_counts_as_gone(path: Path) -> None:
    async with open_at(path) as store:
        await store.begin(OWNER, opened("r1"), [])
    async with open_at(path) as store:
        assert [orphan.response.id for orphan in await store.claim_orphans(10)] == ["r1"]


# Sharing


async def test_two_stores_on_one_file_see_each_other(path: Path) -> None:
    async with open_at(path) as one, open_at(path) as other:
        ended = await run_turn(one, "r1")
        assert await other.get(OWNER, "r1") == ended
        await run_turn(other, "r2", "r1")
        history = await one.history(OWNER, "r2")
        assert history is not None
        assert ids(history.items) == ["in-r1", "out-r1", "in-r2", "out-r2"]


async def test_two_stores_write_at_once(path: Path) -> None:
    async with open_at(path) as one, open_at(path) as other:
        await asyncio.gather(
            *(run_turn((one, other)[number % 2], f"r{number}") for number in range(100))
        )
        for number in range(100):
            assert await one.get(OWNER, f"r{number}") is not None


async def test_one_store_serves_several_event_loops(path: Path) -> None:
    async with open_at(path) as store:
        await asyncio.gather(
            *(asyncio.to_thread(asyncio.run, run_turn(store, f"r{n}")) for n in range(4))
        )
        assert [await store.get(OWNER, f"r{n}") is not None for n in range(4)] == [True] * 4


async def test_a_closed_store_begins_no_more_work(path: Path) -> None:
    async with open_at(path) as store:
        await store.begin(OWNER, opened("r1"), [], batch=Batch(0, 0, b"a"))
        await store.append(OWNER, "r1", Batch(1, 1, b"b"))
        await store.finish(OWNER, opened("r1", status="completed"))
    clock.skip(60)
    for _ in range(3):
        await asyncio.sleep(0)  # timers that the store has left would fire
        assert asyncio.all_tasks() == {asyncio.current_task()}


# Trouble


async def test_a_locked_database_fails_in_time_and_recovers(path: Path) -> None:
    async with open_at(path, patience=2.0) as store:
        ended = await run_turn(store, "r1")
        with closing(sqlite3.connect(path, isolation_level=None)) as thief:
            thief.execute("BEGIN EXCLUSIVE")
            async with asyncio.timeout(60):
                calls = (run_turn(store, "r2"), store.ping())
                results = await asyncio.gather(*calls, return_exceptions=True)
            for result in results:
                assert isinstance(result, StoreUnavailable)
                assert "locked by another process" in str(result)
            assert await store.get(OWNER, "r1") == ended
            thief.execute("ROLLBACK")
        assert await store.get(OWNER, "r2") is None
        await run_turn(store, "r3")


async def test_a_caller_who_comes_late_to_a_lock_waits_no_longer(path: Path) -> None:
    async with open_at(path, patience=3.0) as store:
        with closing(sqlite3.connect(path, isolation_level=None)) as thief:
            thief.execute("BEGIN IMMEDIATE")

            async def wait() -> float:
                began = time.monotonic()
                with pytest.raises(StoreUnavailable):
                    await store.delete(OWNER, "r1")
                return time.monotonic() - began

            first = asyncio.create_task(wait())
            await asyncio.sleep(0.25)
            waits = [await wait(), await first]
        # Those who wait one after the other would wait for nearly six seconds.
        assert all(2.9 < waited < 5.5 for waited in waits)


async def test_a_lock_that_is_released_in_time_is_not_noticed(path: Path) -> None:
    async with open_at(path) as store:
        with closing(sqlite3.connect(path, isolation_level=None)) as thief:
            thief.execute("BEGIN IMMEDIATE")
            turn = asyncio.create_task(run_turn(store, "r1"))
            await asyncio.sleep(0.3)
            thief.execute("ROLLBACK")
            await turn
        assert await store.get(OWNER, "r1") is not None


async def test_after_a_failed_write_begin_waits_for_the_disk(path: Path) -> None:
    async with open_at(path, patience=2.0) as store:
        with closing(sqlite3.connect(path, isolation_level=None)) as thief:
            thief.execute("BEGIN IMMEDIATE")
            with pytest.raises(StoreUnavailable):
                await store.ping()
            with pytest.raises(StoreUnavailable, match="locked"):
                await store.begin(OWNER, opened("r1"), [])
            thief.execute("ROLLBACK")
        await store.begin(OWNER, opened("r1"), [])
        await store.finish(OWNER, opened("r1", status="completed"))


async def test_a_turn_whose_begin_was_lost_cannot_be_finished(path: Path) -> None:
    async with open_at(path, patience=2.0) as store:
        with closing(sqlite3.connect(path, isolation_level=None)) as thief:
            thief.execute("BEGIN IMMEDIATE")
            await store.begin(OWNER, opened("r1"), [])
            with pytest.raises(StoreUnavailable, match="locked"):
                await store.ping()
            thief.execute("ROLLBACK")
        with pytest.raises(StoreUnavailable, match="locked"):
            await store.finish(OWNER, opened("r1", status="completed"))


async def test_a_full_disk_acknowledges_nothing_and_recovers(path: Path) -> None:
    async with open_at(path, max_bytes=300_000) as store:
        await run_turn(store, "r1")
        # No caller waits for the beginning of a turn: its end reports that it did not fit.
        with pytest.raises(StoreUnavailable, match="no room left"):
            for number in range(100):
                await run_turn(store, f"big{number}", metadata={"fill": "x" * 10_000})
        assert await store.get(OWNER, "r1") is not None
        left = await store.get(OWNER, f"big{number}")
        assert left is None or left.status == "in_progress"
        assert await store.delete(OWNER, "big0") is True
        await run_turn(store, "r2")


async def test_a_full_disk_is_not_said_to_work_again_when_nothing_was_written(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_at(path, max_bytes=300_000) as store:
        await run_turn(store, "r1")
        with pytest.raises(StoreUnavailable, match="no room left"):
            await run_turn(store, "big", metadata={"fill": "x" * 300_000})
        assert [record.levelname for record in caplog.records] == ["ERROR"]
        await run_turn(store, "r2")
    assert caplog.messages[-1].endswith("the store works again")


async def test_only_the_one_that_does_not_fit_fails(path: Path) -> None:
    async with open_at(path, max_bytes=300_000) as store:
        sizes = [10, 1_000_000, 20, 30, 2_000_000, 40]
        results = await asyncio.gather(
            *(run_turn(store, f"r{n}", metadata={"fill": "x" * n}) for n in sizes),
            return_exceptions=True,
        )
        assert [isinstance(result, StoreUnavailable) for result in results] == [
            size > 300_000 for size in sizes
        ]
        for size in sizes:
            assert (await store.get(OWNER, f"r{size}") is not None) == (size < 300_000)


WRITE_INTO_A_WALL = """
import asyncio, resource, sys
from antiphon.protocol.errors import StoreUnavailable
from antiphon.store import SqliteStore
from tests.store.samples import run_turn

async def main():
    store = SqliteStore(sys.argv[1])
    await run_turn(store, "r1")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    try:
        await run_turn(store, "r2", metadata={"fill": "x" * 1_000_000})
    except StoreUnavailable as error:
        print(error)
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    await run_turn(store, "r3")
    print([await store.get("alice", name) is not None for name in ("r1", "r2", "r3")])
    await store.close()

asyncio.run(main())
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs rlimits")
def test_a_write_error_of_the_system_acknowledges_nothing_and_recovers(path: Path) -> None:
    process = start(WRITE_INTO_A_WALL, path)
    answer, _ = process.communicate()
    assert process.returncode == 0
    assert "nothing was stored" in answer
    assert answer.endswith("[True, False, True]\n")


def test_a_file_that_is_no_database_is_refused(path: Path) -> None:
    path.write_bytes(b"not a database, certainly " * 100)
    with pytest.raises(StoreUnavailable, match="not a database"):
        SqliteStore(path)


def test_a_place_that_cannot_be_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreUnavailable, match=r"file/a\.db"):
        SqliteStore(tmp_path / "file" / "a.db")


# The file


async def test_the_file_is_for_us_alone(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "room" / "a.db"
    async with open_at(path) as store:
        await run_turn(store, "r1")
        files = list(path.parent.iterdir())
        # The database, its journal and index, our sign of life, and the queue of the writers.
        assert len(files) == 6
        assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def found_in_files(directory: Path, text: str) -> list[str]:
    """Return the names of the files that hold this text, as another process sees them.

    This process must not open and close them: that would drop the locks of SQLite.
    """
    look = (
        "import pathlib, sys\n"
        "for file in pathlib.Path(sys.argv[1]).iterdir():\n"
        f"    if {text.encode()!r} in file.read_bytes(): print(file.name)\n"
    )
    with start(look, directory) as process:
        output, _ = process.communicate()
    return output.split()


async def is_found_in_files(directory: Path, text: str) -> bool:
    return bool(await asyncio.to_thread(found_in_files, directory, text))


async def tell_secret(store: SqliteStore, name: str, *, is_logged: bool = True) -> None:
    """Store a turn that contains SECRET everywhere."""
    secret = "SECRET" * 1_000
    batch = Batch(0, 0, secret.encode()) if is_logged else None
    begun = opened(name, metadata={"a": "SECRET"}, status="queued")
    await store.begin(
        OWNER, begun, [message(f"in-{name}", secret)], batch=batch, request=secret.encode()
    )
    for number in range(1, 30 if is_logged else 0):
        await store.append(OWNER, name, Batch(number, number, b"SECRET" * number))
    output = [message(f"out-{name}", "SECRET")]
    ended = opened(name, status="completed", metadata={"b": "SECRET"}, output=output)
    await store.finish(OWNER, ended, batch=Batch(30, 30, b"SECRET") if is_logged else None)


@pytest.mark.parametrize("is_logged", [False, True])
async def test_what_was_deleted_is_in_no_file(path: Path, is_logged: bool) -> None:
    async with open_at(path) as store:
        await run_turn(store, "other")
        await tell_secret(store, "r1", is_logged=is_logged)
        assert await asyncio.to_thread(found_in_files, path.parent, "SECRET")
        assert await store.delete(OWNER, "r1") is True
        assert await asyncio.to_thread(found_in_files, path.parent, "SECRET") == []
        assert await store.get(OWNER, "other") is not None


async def test_a_stream_that_was_deleted_in_the_middle_is_in_no_file(path: Path) -> None:
    async with open_at(path) as store:
        await store.begin(OWNER, opened("r1"), [], batch=Batch(0, 0, b"SECRET"))
        await store.append(OWNER, "r1", Batch(1, 1, b"SECRET"))
        assert await store.delete(OWNER, "r1") is True
        assert await asyncio.to_thread(found_in_files, path.parent, "SECRET") == []


async def test_what_was_swept_is_in_no_file(path: Path) -> None:
    async with open_at(path) as store:
        await asyncio.gather(*(tell_secret(store, f"r{number}") for number in range(20)))
        assert await store.sweep(2_000, 0) == 20
        assert await asyncio.to_thread(found_in_files, path.parent, "SECRET") == []


async def test_what_left_a_conversation_is_in_no_file(path: Path) -> None:
    async with open_at(path) as store:
        talks = store.conversations
        secret = Conversation("c1", 1, {"a": "SECRET"})
        await talks.create(OWNER, secret, [message("i1", "SECRET")])
        await talks.create(OWNER, Conversation("c2", 1), [message("i1", "HIDDEN"), message("i2")])
        assert await talks.delete(OWNER, "c1") is True
        assert await asyncio.to_thread(found_in_files, path.parent, "SECRET") == []
        assert await talks.remove(OWNER, "c2", "i1") is True
        assert await asyncio.to_thread(found_in_files, path.parent, "HIDDEN") == []


async def test_no_page_keeps_a_copy_of_a_row_that_moved(path: Path) -> None:
    """Rows move as pages fill and empty, and SQLite clears what is deleted, but no old places."""
    dice = random.Random(1)
    texts = {True: "SECRET", False: "public"}

    async def turn(store: SqliteStore, number: int) -> None:
        is_secret = number % 2 == 0
        name, text = f"r{number}", texts[is_secret]
        sizes = [dice.choice([1, 20, 100, 400]) for _ in range(12)]
        time = 1 if is_secret else 5
        await store.begin(
            OWNER,
            opened(name, created_at=time),
            [message("i", text * sizes[0])],
            batch=Batch(0, 0, b""),
        )
        for place, size in enumerate(sizes[1:], 1):
            await store.append(OWNER, name, Batch(place, place, text.encode() * size))
        await store.conversations.add(OWNER, "c1", [message(name, text * sizes[1])])
        output = [message("o", text * size) for size in sizes[:2]]
        if number % 5:
            ended = opened(name, status="completed", output=output, created_at=time)
            await store.finish(OWNER, ended)

    async with open_at(path) as store:
        await store.conversations.create(OWNER, Conversation("c1", 1), [])
        await asyncio.gather(*(turn(store, number) for number in range(100)))
        for number in range(0, 100, 2):
            await store.conversations.remove(OWNER, "c1", f"r{number}")
        for number in range(0, 50, 2):
            assert await store.delete(OWNER, f"r{number}") is True
        assert await store.sweep(2, 0) == 25
        assert await asyncio.to_thread(found_in_files, path.parent, "SECRET") == []
        assert await asyncio.to_thread(found_in_files, path.parent, "public")
        for number in range(1, 100, 2):
            assert await store.find_item(OWNER, "i") is not None
            assert await store.get(OWNER, f"r{number}") is not None
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


async def test_a_reader_in_the_way_delays_erasing_but_not_for_ever(path: Path) -> None:
    async with open_at(path, patience=2.0) as store:
        await tell_secret(store, "r1")
        with closing(sqlite3.connect(path, isolation_level=None)) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT * FROM responses").fetchall()
            assert await store.delete(OWNER, "r1") is True
            assert await store.get(OWNER, "r1") is None
            await run_turn(store, "r2")
            assert await asyncio.to_thread(found_in_files, path.parent, "SECRET")
            reader.execute("COMMIT")
            async with asyncio.timeout(60):
                while await asyncio.to_thread(found_in_files, path.parent, "SECRET"):
                    await store.wait("r1", 0.1)


DIE_BEFORE_ERASING = """
import asyncio, os, signal, sqlite3, sys
from antiphon.store import SqliteStore
from antiphon.store.base import Conversation
from tests.store.samples import OWNER, message
from tests.store.sqlite.test_store import tell_secret

async def main():
    store = SqliteStore(sys.argv[1], patience=0.2)
    await tell_secret(store, "r1")
    talk = Conversation("c1", 1, {"a": "SECRET"})
    await store.conversations.create(OWNER, talk, [message("i1", "SECRET")])
    reader = sqlite3.connect(sys.argv[1], isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT * FROM responses").fetchall()
    assert await store.delete(OWNER, "r1")
    assert await store.conversations.remove(OWNER, "c1", "i1")
    assert await store.conversations.delete(OWNER, "c1")
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


@pytest.mark.parametrize("is_left", [False, True])
async def test_what_a_dead_process_removed_is_erased_by_the_next(path: Path, is_left: bool) -> None:
    start(DIE_BEFORE_ERASING, path).communicate()
    assert found_in_files(path.parent, "SECRET")
    async with open_at(path) as store, asyncio.timeout(60):
        while not is_left and await is_found_in_files(path.parent, "SECRET"):
            await store.wait("r1", 0.1)
    assert found_in_files(path.parent, "SECRET") == []


async def test_what_was_swept_is_erased_even_if_a_later_step_fails(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object) -> None:
        raise StoreUnavailable("the disk is gone")

    async with open_at(path) as store:
        await tell_secret(store, "r1")
        with monkeypatch.context() as patch:
            patch.setattr(SqliteNotices, "sweep", fail)
            with pytest.raises(StoreUnavailable):
                await store.sweep(2_000, 0)
    async with open_at(path):
        pass
    assert found_in_files(path.parent, "SECRET") == []


async def test_the_names_of_strange_files_are_no_patterns(tmp_path: Path) -> None:
    start(DIE_IN_MID_TURN, tmp_path / "[a]?*.db").communicate()
    async with open_at(tmp_path / "[a]?*.db") as store:
        assert len(await store.claim_orphans(10)) == 1
    assert names_in(tmp_path) == ["[a]?*.db"]


async def test_a_conversation_grows_by_what_is_new(path: Path) -> None:
    sizes = []
    async with open_at(path) as store:
        for turn in range(301):
            await run_turn(store, f"r{turn:04}", f"r{turn - 1:04}" if turn else None)
            if turn in {100, 200, 300}:
                with closing(sqlite3.connect(path)) as connection:
                    sizes.append(_bytes_and_rows(connection))
    (bytes_1, rows_1), (bytes_2, rows_2), (bytes_3, rows_3) = sizes
    assert rows_2 - rows_1 == rows_3 - rows_2 == 300
    assert bytes_3 - bytes_2 == pytest.approx(bytes_2 - bytes_1, rel=0.2)  # whole pages
    assert (bytes_3 - bytes_2) / 100 < 4_000


def _bytes_and_rows(connection: sqlite3.Connection) -> tuple[int, int]:
    def number(question: str) -> int:
        return int(connection.execute(question).fetchone()[0])

    pages = number("PRAGMA page_count") - number("PRAGMA freelist_count")
    rows = number("SELECT count(*) FROM responses") + number("SELECT count(*) FROM items")
    return pages * number("PRAGMA page_size"), rows


async def test_another_process_that_comes_and_goes_takes_nothing_with_it(path: Path) -> None:
    """A second opening of the file used to drop the writer's locks: the journal was deleted."""
    visit = (
        "import sqlite3, sys; db = sqlite3.connect(sys.argv[1]);"
        "db.execute('PRAGMA journal_mode = WAL');"
        "print(db.execute(\"select count(*) from responses where status = 'completed'\")"
        ".fetchone()[0]); db.close()"
    )

    def visitors_count() -> int:
        with start(visit, path) as process:
            output, _ = process.communicate()
            return int(output)

    async with open_at(path) as store:
        await run_turn(store, "resp_0")
        # Reading opens the second connection.
        assert await store.history(OWNER, "resp_0") is not None
        for number in range(1, 4):
            assert await asyncio.to_thread(visitors_count) == number
            await run_turn(store, f"resp_{number}")
        assert await asyncio.to_thread(visitors_count) == 4


async def test_the_rows_of_closed_logs_go_in_steps_and_those_of_open_ones_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_rows, "_ROWS_AT_ONCE", 3)
    store = SqliteStore(tmp_path / "a.db")
    names = [f"r{number}" for number in range(4)]
    for name in names:
        await store.begin(OWNER, opened(name), [], batch=Batch(0, 0, b"first"))
    for number in (1, 2, 3):
        for name in names:
            await store.append(OWNER, name, Batch(number, number, b"more"))
    for name in names[:3]:
        await store.finish(OWNER, opened(name, status="completed"), batch=Batch(4, 4, b"last"))

    await store.sweep(0, 0)

    with closing(sqlite3.connect(tmp_path / "a.db")) as file:
        rows = file.execute(
            "SELECT responses.id, count(*) FROM log"
            " JOIN responses ON responses.key = log.response GROUP BY 1"
        ).fetchall()
    assert rows == [("r3", 4)]
    for name, count in (("r0", 5), ("r2", 5), ("r3", 4)):
        log = await store.read_log(OWNER, name)
        assert log is not None
        assert [batch.first for batch in log.batches] == list(range(count))
    await store.close()


async def test_what_a_closing_store_leaves_of_closed_logs_is_nothing(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "a.db")
    await store.begin(OWNER, opened("r1"), [], batch=Batch(0, 0, b"first"))
    await store.finish(OWNER, opened("r1", status="completed"), batch=Batch(1, 1, b"last"))
    await store.close()

    with closing(sqlite3.connect(tmp_path / "a.db")) as file:
        assert file.execute("SELECT count(*) FROM log").fetchone() == (0,)


async def logged(store: SqliteStore, name: str, numbers: range) -> None:
    """Begin a turn, or go on with it."""
    for number in numbers:
        batch = Batch(number, number, f"{name} {number}".encode())
        if number:
            await store.append(OWNER, name, batch)
        else:
            await store.begin(OWNER, opened(name), [], batch=batch)


async def bodies_of(store: SqliteStore, name: str) -> list[str]:
    log = await store.read_log(OWNER, name)
    assert log is not None
    return [batch.body.decode() for batch in log.batches]


async def test_a_log_is_whole_although_erasing_took_the_connection(path: Path) -> None:
    async with open_at(path) as store:
        for name in ("r1", "r2", "gone"):
            await logged(store, name, range(3))
        assert await store.delete(OWNER, "gone")
        await logged(store, "r1", range(3, 6))
        for name, count in (("r1", 6), ("r2", 3)):
            await store.finish(OWNER, opened(name, status="completed"))
            assert await bodies_of(store, name) == [f"{name} {n}" for n in range(count)]


async def test_a_batch_whose_transaction_failed_is_in_the_log_once(path: Path) -> None:
    def hold(_: sqlite3.Connection) -> None:
        loop.call_soon_threadsafe(held.set)
        assert gate.wait(60)

    def fail(connection: sqlite3.Connection) -> None:
        connection.execute("SELECT * FROM nothing")

    gate, held, loop = threading.Event(), asyncio.Event(), asyncio.get_running_loop()
    async with open_at(path) as store:
        for name in ("r1", "r2"):
            await logged(store, name, range(2))
        holding = asyncio.create_task(store._writer.call(hold))
        await held.wait()
        together = [
            asyncio.ensure_future(job)
            for job in (
                store.append(OWNER, "r1", Batch(2, 2, b"r1 2")),
                store._writer.call(fail),
                store.append(OWNER, "r2", Batch(2, 2, b"r2 2")),
            )
        ]
        await asyncio.sleep(0)
        gate.set()
        await holding
        one, failed, other = await asyncio.gather(*together, return_exceptions=True)
        assert (one, type(failed), other) == (False, StoreUnavailable, False)
        for name in ("r1", "r2"):
            assert await bodies_of(store, name) == [f"{name} {n}" for n in range(3)]
            await store.finish(OWNER, opened(name, status="completed"))
            assert await bodies_of(store, name) == [f"{name} {n}" for n in range(3)]


async def test_every_store_that_is_open_is_counted(tmp_path: Path) -> None:
    first, second = SqliteStore(tmp_path / "a.db"), SqliteStore(tmp_path / "a.db")
    assert (await first.count_alive(), await second.count_alive()) == (2, 2)
    await second.close()
    assert await first.count_alive() == 1
    await first.close()


async def test_a_turn_without_a_log_is_queued_when_begin_returns(path: Path) -> None:
    async with open_at(path) as store:
        begun = store.begin(OWNER, opened("r1"), [message("in")])
        assert isinstance(begun, Promise)
        assert begun.done()
        await store.finish(OWNER, opened("r1", status="completed", output=[message("out")]))
        history = await store.history(OWNER, "r1")
        assert history is not None
        assert ids(history.items) == ["in", "out"]
