"""Turns that begin and end in one moment are written with few statements, and written once."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from antiphon.protocol.errors import TurnLost
from antiphon.store.encoding import StoredItem
from antiphon.store.sqlite.connection import connect
from antiphon.store.sqlite.turn_writing import Begin, Finish, begin_turn
from antiphon.store.turns import Beginning, Ending
from tests.store.samples import OWNER

ME = "me"


@pytest.fixture
def connection(path: Path) -> Iterator[sqlite3.Connection]:
    with closing(connect(path, patience=1)) as made:
        yield made


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.db"


def turn(name: str, *, has_conversation: bool = False) -> Finish:
    """Return the end of a turn that takes its beginning along."""
    given, made = (StoredItem(f"{word}-{name}", b"{}") for word in ("in", "out"))
    beginning = Beginning(ME, OWNER, name, None, "in_progress", 1_000, b"{}", [given])
    ending = Ending(ME, OWNER, name, "completed", b'{"a":1}', [made])
    begin = Begin(beginning, {})
    begin.is_taken_along = True
    return Finish(ending._replace(has_conversation=has_conversation), begin)


def rows(connection: sqlite3.Connection) -> list[tuple[object, ...]]:
    """Return the turns as they are stored, each with the ids of its items."""
    return connection.execute(
        "SELECT responses.id, status, writer, responses.body, group_concat(items.id, ' ')"
        " FROM responses JOIN items ON items.response = key GROUP BY key ORDER BY key"
    ).fetchall()


def whole(name: str) -> tuple[object, ...]:
    return name, "completed", None, b'{"a":1}', f"in-{name} out-{name}"


def test_turns_that_end_together_are_inserted_with_one_statement_for_each_table(
    connection: sqlite3.Connection,
) -> None:
    statements: list[str] = []
    names = [f"r{number}" for number in range(32)]
    connection.set_trace_callback(statements.append)
    assert Finish.together(connection, [turn(name) for name in names]) == [False] * 32
    connection.set_trace_callback(None)
    assert len(statements) == 2
    assert rows(connection) == [whole(name) for name in names]


@pytest.mark.parametrize("count", [1, 2, 3, 7, 33, 100])
def test_any_number_of_turns_is_stored_whole(connection: sqlite3.Connection, count: int) -> None:
    names = [f"r{number}" for number in range(count)]
    Finish.together(connection, [turn(name) for name in names])
    assert rows(connection) == [whole(name) for name in names]


def test_turns_of_all_kinds_may_end_together(connection: sqlite3.Connection) -> None:
    written, talking, lost = turn("r1"), turn("r2", has_conversation=True), turn("r3")
    for job in (written, lost):
        assert job.begin is not None
        job.begin.decide()
    assert written.begin is not None
    begin_turn(connection, written.begin.turn)
    answers = Finish.together(connection, [written, talking, lost, turn("r4")])
    assert [isinstance(answer, TurnLost) for answer in answers] == [False, False, True, False]
    assert rows(connection) == [whole(name) for name in ("r1", "r2", "r4")]


def test_a_turn_that_exists_is_lost_and_the_others_are_stored(
    connection: sqlite3.Connection,
) -> None:
    assert turn("r1")(connection) is False
    answers = Finish.together(connection, [turn("r1"), turn("r2")])
    assert [isinstance(answer, TurnLost) for answer in answers] == [True, False]
    assert isinstance(turn("r1")(connection), TurnLost)
    assert rows(connection) == [whole("r1"), whole("r2")]


def test_a_beginning_that_is_taken_along_is_not_written_twice(
    connection: sqlite3.Connection,
) -> None:
    job = turn("r1")
    assert job.begin is not None
    job.begin(connection)
    assert not rows(connection)
    assert job(connection) is False
    assert rows(connection) == [whole("r1")]


def test_a_beginning_that_was_written_once_is_written_again_after_a_rollback(
    connection: sqlite3.Connection,
) -> None:
    job = turn("r1")
    assert job.begin is not None
    job.begin.is_taken_along = False
    connection.execute("BEGIN")
    job.begin(connection)
    connection.execute("ROLLBACK")
    job.begin.is_taken_along = True
    job.begin(connection)
    assert job.whole is None
    assert rows(connection)[0][1:3] == ("in_progress", ME)


def test_a_beginning_is_found_until_it_is_written(connection: sqlite3.Connection) -> None:
    waiting: dict[tuple[str, str], Begin] = {}
    job = turn("r1")
    assert job.begin is not None
    begin = Begin(job.begin.turn, waiting)
    begin.expect_end()
    assert waiting == {(OWNER, "r1"): begin}
    begin(connection)
    assert not waiting
    begin.expect_end()
    assert not waiting
