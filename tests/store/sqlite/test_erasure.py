"""Erasing: zeros into the gaps of pages and nowhere else, only while no other process writes."""

from __future__ import annotations

import os
import random
import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from antiphon.store.sqlite import erasure
from antiphon.store.sqlite.connection import connect
from antiphon.store.sqlite.erasure import Eraser, Progress, find_gaps, mark

PAGE = 4_096


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.db"


@pytest.fixture
def opened(path: Path) -> Iterator[Callable[[], sqlite3.Connection]]:
    made: list[sqlite3.Connection] = []

    def open_one() -> sqlite3.Connection:
        made.append(connect(path, patience=0))
        return made[-1]

    yield open_one
    for connection in made:
        connection.close()


def fill(connection: sqlite3.Connection, seed: int) -> None:
    """Insert, change and delete rows of many sizes, so that pages split and join."""
    dice = random.Random(seed)
    connection.execute("BEGIN")
    for number in range(400):
        size = dice.choice([10, 100, 900, 3_000])
        connection.execute(
            "INSERT INTO items VALUES (?, 0, 0, 'alice', ?, ?)",
            (dice.randrange(10**9), f"i{number}", os.urandom(size)),
        )
        connection.execute("DELETE FROM items WHERE id = ?", (f"i{dice.randrange(number + 1)}",))
    mark(connection)
    connection.execute("COMMIT")


def rows(connection: sqlite3.Connection) -> list[tuple[object, ...]]:
    return connection.execute("SELECT * FROM items ORDER BY response").fetchall()


def look_at(connection: sqlite3.Connection, statement: str) -> None:
    """Fill the cache of a connection when another one is about to take the lock."""
    if statement == "BEGIN IMMEDIATE":
        rows(connection)


def leaf(cells: int, content: int, filling: bytes = b"\xff") -> bytes:
    """Return a page whose gap and rows are made of one byte."""
    head = bytes([13, 0, 0]) + cells.to_bytes(2) + content.to_bytes(2) + b"\x00"
    return (head + bytes(2 * cells)).ljust(PAGE, filling)


@pytest.mark.parametrize(
    ("page", "gaps"),
    [
        (leaf(3, 4_000), [(14, 4_000)]),
        (leaf(3, 4_000, b"\x00"), []),
        (leaf(3, 14), []),
        (leaf(0, PAGE), [(8, PAGE)]),
        (b"\x05" + leaf(3, 4_000)[1:], [(18, 4_000)]),
        (b"\x00" + leaf(3, 4_000)[1:], []),
        (leaf(3, 5_000), []),
        (leaf(3, 4_000)[:2_000], []),
    ],
)
def test_a_gap_lies_between_directory_and_rows(page: bytes, gaps: list[tuple[int, int]]) -> None:
    assert list(find_gaps(page, PAGE, is_first=False)) == gaps


def test_every_page_has_a_gap_of_its_own() -> None:
    pages = bytes(PAGE) + leaf(1, 100) + leaf(2, 200)
    assert list(find_gaps(pages, PAGE, is_first=False)) == [
        (PAGE + 10, PAGE + 100),
        (2 * PAGE + 12, 2 * PAGE + 200),
    ]


def test_the_first_page_begins_with_the_header_of_the_file() -> None:
    page = bytes(100) + leaf(1, 3_000)[: PAGE - 100]
    assert list(find_gaps(page, PAGE, is_first=True)) == [(110, 3_000)]


@pytest.mark.parametrize("seed", range(3))
def test_gaps_are_cleared_and_every_row_stays(
    path: Path,
    opened: Callable[[], sqlite3.Connection],
    seed: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(erasure, "_BYTES_AT_ONCE", 16 * PAGE)
    one, other = opened(), opened()
    fill(one, seed)
    before = rows(other)
    eraser = Eraser(path)
    steps = [eraser.step(opened())]
    while steps[-1] is Progress.MORE:
        steps.append(eraser.step(opened()))
    assert len(steps) > 3
    assert steps[-1] is Progress.DONE
    assert rows(other) == before
    assert one.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    eraser.close()


def test_nobody_writes_an_old_page_back(path: Path) -> None:
    """What another connection has in its cache is not what is in the file."""
    with closing(connect(path, patience=0)) as connection:
        fill(connection, 1)
    assert list(find_gaps(path.read_bytes(), PAGE, is_first=True))
    eraser = Eraser(path)
    with closing(connect(path, patience=0)) as one:
        with closing(connect(path, patience=0)) as other:
            # After the journal was emptied: that alone would make the others read again.
            other.set_trace_callback(lambda statement: look_at(one, statement))
            assert eraser.step(other) is Progress.DONE
        one.execute("UPDATE items SET body = zeroblob(length(body))")
    eraser.close()
    assert list(find_gaps(path.read_bytes(), PAGE, is_first=True)) == []


def test_no_gap_is_left_in_the_file(path: Path) -> None:
    with closing(connect(path, patience=0)) as connection:
        fill(connection, 1)
    assert list(find_gaps(path.read_bytes(), PAGE, is_first=True))
    eraser = Eraser(path)
    with closing(connect(path, patience=0)) as connection:
        assert eraser.step(connection) is Progress.DONE
    eraser.close()
    assert list(find_gaps(path.read_bytes(), PAGE, is_first=True)) == []


def test_a_reader_or_a_writer_is_in_the_way(
    path: Path, opened: Callable[[], sqlite3.Connection]
) -> None:
    one = opened()
    eraser = Eraser(path)
    fill(one, 1)
    one.execute("BEGIN")
    rows(one)
    assert eraser.step(opened()) is Progress.BLOCKED
    one.execute("COMMIT")
    one.execute("BEGIN IMMEDIATE")
    assert eraser.step(opened()) is Progress.BLOCKED
    one.execute("ROLLBACK")
    assert eraser.step(opened()) is Progress.DONE
    eraser.close()


def test_somebody_who_writes_in_between_is_in_the_way(
    path: Path, opened: Callable[[], sqlite3.Connection]
) -> None:
    """After the journal was emptied, and before we have the lock."""
    one, other = opened(), opened()
    fill(one, 1)
    eraser = Eraser(path)

    def write(statement: str) -> None:
        if statement == "BEGIN IMMEDIATE":
            one.execute("DELETE FROM items WHERE response % 2")

    other.set_trace_callback(write)
    # The callback runs when the statement begins: SQLite has not taken the lock yet.
    assert eraser.step(other) is Progress.BLOCKED
    other.close()
    assert eraser.step(opened()) is Progress.DONE
    eraser.close()


def test_other_errors_are_raised(path: Path, opened: Callable[[], sqlite3.Connection]) -> None:
    fill(opened(), 1)
    eraser = Eraser(path)
    connection = opened()
    connection.close()
    with pytest.raises(sqlite3.ProgrammingError):
        eraser.step(connection)
    broken = opened()
    broken.set_trace_callback(lambda sql: broken.interrupt() if "checkpoint" in sql else None)
    with pytest.raises(sqlite3.OperationalError, match="interrupted"):
        eraser.step(broken)
    eraser.close()


@pytest.mark.skipif(sys.platform == "win32", reason="there, closing a file drops no locks")
def test_the_file_is_closed_with_the_last_store_on_it(
    path: Path, opened: Callable[[], sqlite3.Connection]
) -> None:
    opened()
    erasers = [Eraser(path), Eraser(path)]
    for eraser in erasers:
        mark(opened())
        assert eraser.step(opened()) is Progress.DONE
    files = [eraser._file for eraser in erasers]
    erasers[0].close()
    erasers[0].close()
    assert [file is not None and file.closed for file in files] == [False, False]
    erasers[1].close()
    assert [file is not None and file.closed for file in files] == [True, True]


def test_a_file_that_is_too_large_to_tell_pages_apart_is_left(
    path: Path, opened: Callable[[], sqlite3.Connection], monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(connect(path, patience=0)) as connection:
        fill(connection, 1)
    before = list(find_gaps(path.read_bytes(), PAGE, is_first=True))
    monkeypatch.setattr(erasure, "_MAX_PAGES", 1)
    eraser = Eraser(path)
    with closing(connect(path, patience=0)) as connection:
        assert eraser.step(connection) is Progress.DONE
    eraser.close()
    assert list(find_gaps(path.read_bytes(), PAGE, is_first=True)) == before != []


# What is due


def finish(eraser: Eraser, opened: Callable[[], sqlite3.Connection]) -> int:
    """Do all steps of a pass; return how many there were."""
    steps = 1
    while eraser.step(opened()) is Progress.MORE:
        steps += 1
    return steps


def test_nothing_is_due_in_a_new_file(path: Path, opened: Callable[[], sqlite3.Connection]) -> None:
    connection = opened()
    eraser = Eraser(path)
    before = connection.execute("PRAGMA data_version").fetchone()
    assert not eraser.is_due(connection)
    assert eraser.step(opened()) is Progress.DONE
    assert connection.execute("PRAGMA data_version").fetchone() == before
    eraser.close()


def test_what_was_due_is_done_after_the_last_step(
    path: Path, opened: Callable[[], sqlite3.Connection], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(erasure, "_BYTES_AT_ONCE", 16 * PAGE)
    connection = opened()
    fill(connection, 1)
    eraser = Eraser(path)
    while eraser.step(opened()) is Progress.MORE:
        assert eraser.is_due(connection)
    assert not eraser.is_due(connection)
    eraser.close()


def test_what_is_removed_during_a_pass_stays_due(
    path: Path, opened: Callable[[], sqlite3.Connection], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(erasure, "_BYTES_AT_ONCE", 16 * PAGE)
    connection = opened()
    fill(connection, 1)
    eraser = Eraser(path)
    assert eraser.step(opened()) is Progress.MORE
    mark(connection)
    finish(eraser, opened)
    assert eraser.is_due(connection)
    assert finish(eraser, opened) > 1
    assert not eraser.is_due(connection)
    eraser.close()


def test_what_another_process_has_done_is_not_done_again(
    path: Path, opened: Callable[[], sqlite3.Connection], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(erasure, "_BYTES_AT_ONCE", 16 * PAGE)
    connection = opened()
    fill(connection, 1)
    one, other = Eraser(path), Eraser(path)
    assert one.step(opened()) is Progress.MORE
    mark(connection)
    assert finish(other, opened) > 2
    assert one.step(opened()) is Progress.DONE
    assert not one.is_due(connection)
    mark(connection)
    assert finish(one, opened) > 2
    one.close()
    other.close()


def test_a_slow_pass_does_not_take_back_what_another_has_done(
    path: Path, opened: Callable[[], sqlite3.Connection]
) -> None:
    connection = opened()
    fill(connection, 1)
    slow, quick = Eraser(path), Eraser(path)
    last = opened()

    def overtake(statement: str) -> None:
        if statement.startswith("PRAGMA wal_checkpoint"):
            mark(connection)
            assert finish(quick, opened) == 1

    last.set_trace_callback(overtake)
    assert slow.step(last) is Progress.DONE
    assert not slow.is_due(connection)
    slow.close()
    quick.close()


def test_a_step_that_is_not_committed_is_done_again(
    path: Path, opened: Callable[[], sqlite3.Connection]
) -> None:
    connection = opened()
    fill(connection, 1)
    eraser = Eraser(path)
    broken = opened()

    def refuse(action: int, first: str | None, *_: object) -> int:
        is_commit = action == sqlite3.SQLITE_TRANSACTION and first == "COMMIT"
        return sqlite3.SQLITE_DENY if is_commit else sqlite3.SQLITE_OK

    broken.set_authorizer(refuse)
    with pytest.raises(sqlite3.DatabaseError):
        eraser.step(broken)
    broken.close()
    assert eraser.is_due(connection)
    assert eraser.step(opened()) is Progress.DONE
    assert not eraser.is_due(connection)
    eraser.close()
