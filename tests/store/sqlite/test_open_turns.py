"""What a connection knows of its turns is right, or it is asked for again."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from antiphon.protocol.errors import TurnLost
from antiphon.store.base import Batch
from antiphon.store.sqlite import log as log_rows
from antiphon.store.sqlite import open_turns, turn_writing, turns, writers
from antiphon.store.sqlite.connection import LONG, Connection, connect, turns_of
from antiphon.store.sqlite.log import Append
from antiphon.store.sqlite.open_turns import OpenTurn
from antiphon.store.turns import Beginning, Ending
from tests.store.samples import OWNER

ME, YOU = "me", "you"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.db"


@pytest.fixture
def mine(path: Path) -> Iterator[sqlite3.Connection]:
    with closing(connect(path, patience=1)) as made:
        yield made


@pytest.fixture
def yours(path: Path) -> Iterator[sqlite3.Connection]:
    with closing(connect(path, patience=1)) as made:
        yield made


def begin(
    connection: sqlite3.Connection, name: str, writer: str = ME, body: bytes | None = b"0"
) -> None:
    batch = None if body is None else Batch(0, 0, body)
    state = b'{"id":"%b"}' % name.encode()
    turn = Beginning(writer, OWNER, name, None, "in_progress", 1_000, state, batch=batch)
    turn_writing.begin_turn(connection, turn)


def add(
    connection: sqlite3.Connection, *names: str, number: int = 1, writer: str = ME
) -> list[str]:
    """Append a batch to each; return the answers."""
    appends = [
        Append(OWNER, name, writer, Batch(number, number, b"%d" % number), None) for name in names
    ]
    answers = Append.together(connection, appends)
    return ["lost" if isinstance(a, TurnLost) else "cancel" if a else "ok" for a in answers]


def finish(connection: sqlite3.Connection, name: str, writer: str = ME) -> bool | TurnLost:
    ending = Ending(writer, OWNER, name, "completed", b'{"status":"completed"}')
    return turn_writing.finish_turn(connection, ending)


def bodies(connection: sqlite3.Connection, name: str) -> list[bytes]:
    log = log_rows.read_log(connection, OWNER, name, -1)
    assert log is not None
    return [batch.body for batch in log.batches]


def known(connection: sqlite3.Connection, name: str) -> OpenTurn:
    turn = turns_of(connection).known(connection, ME, (OWNER, name))
    assert turn is not None
    return turn


def statements_of(connection: sqlite3.Connection, *names: str, number: int) -> list[str]:
    """Append, and return what the database was asked for it, by the first words."""
    asked: list[str] = []
    connection.set_trace_callback(asked.append)
    assert add(connection, *names, number=number) == ["ok"] * len(names)
    connection.set_trace_callback(None)
    return [" ".join(statement.split()[:3]) for statement in asked]


# What an append asks


def test_while_nobody_else_writes_an_append_asks_the_tables_nothing(
    mine: sqlite3.Connection,
) -> None:
    names = [f"r{number}" for number in range(70)]
    for name in names:
        begin(mine, name)
    asked = statements_of(mine, *names, number=1)
    assert asked == ["PRAGMA data_version", *["INSERT INTO log"] * 2]
    assert all(bodies(mine, name) == [b"0", b"1"] for name in names)


def test_after_somebody_else_wrote_each_turn_is_asked_for_once(
    mine: sqlite3.Connection, yours: sqlite3.Connection
) -> None:
    begin(mine, "r1")
    begin(mine, "r2")
    begin(yours, "other", YOU)
    assert "SELECT json_group_array(json_array( responses.owner," in statements_of(
        mine, "r1", "r2", number=1
    )
    assert statements_of(mine, "r1", "r2", number=2) == [
        "PRAGMA data_version",
        *["INSERT INTO log"],
    ]


# Others


def test_a_turn_that_was_claimed_is_lost(
    mine: sqlite3.Connection, yours: sqlite3.Connection
) -> None:
    begin(mine, "r1")
    begin(mine, "r2")
    orphans = writers.claim_orphans(yours, YOU, lambda name: name == YOU, 1)
    assert [(orphan.response.id, [b.body for b in orphan.batches]) for orphan in orphans] == [
        ("r1", [b"0"])
    ]
    assert add(mine, "r1", "r2") == ["lost", "ok"]
    assert add(yours, "r1", number=7, writer=YOU) == ["ok"]
    assert isinstance(finish(mine, "r1"), TurnLost)
    assert finish(yours, "r1", YOU) is True
    assert bodies(mine, "r1") == [b"0", b"7"]


def test_a_turn_that_comes_back_is_read_with_what_others_added(
    mine: sqlite3.Connection, yours: sqlite3.Connection
) -> None:
    begin(mine, "r1")
    writers.claim_orphans(yours, YOU, lambda name: name == YOU, 1)
    add(yours, "r1", number=1, writer=YOU)
    writers.claim_orphans(mine, ME, lambda name: name == ME, 1)
    add(mine, "r1", number=2)
    assert finish(mine, "r1") is True
    assert bodies(mine, "r1") == [b"0", b"1", b"2"]


def test_the_key_of_a_deleted_turn_does_not_stand_for_another(
    mine: sqlite3.Connection, yours: sqlite3.Connection
) -> None:
    begin(mine, "old")
    assert turns.delete_turn(yours, OWNER, "old") is True
    begin(mine, "new")
    assert mine.execute("SELECT key FROM responses").fetchall() == [(1,)]
    assert add(mine, "old", "new") == ["lost", "ok"]
    finish(mine, "new")
    assert bodies(mine, "new") == [b"0", b"1"]


@pytest.mark.parametrize("is_mine", [True, False])
def test_a_wish_to_cancel_is_heard(
    mine: sqlite3.Connection, yours: sqlite3.Connection, is_mine: bool
) -> None:
    begin(mine, "r1")
    begin(mine, "r2")
    assert add(mine, "r1", "r2") == ["ok", "ok"]
    writers.ask_cancel(mine if is_mine else yours, OWNER, "r1")
    assert add(mine, "r1", "r2", number=2) == ["cancel", "ok"]
    assert add(mine, "r1", "r2", number=3) == ["cancel", "ok"]


@pytest.mark.parametrize("is_mine", [True, False])
def test_a_deleted_turn_is_lost_and_begins_anew(
    mine: sqlite3.Connection, yours: sqlite3.Connection, is_mine: bool
) -> None:
    begin(mine, "r1")
    turns.delete_turn(mine if is_mine else yours, OWNER, "r1")
    assert add(mine, "r1") == ["lost"]
    begin(mine, "r1", body=b"new")
    assert add(mine, "r1", "r1") == ["ok", "ok"]
    finish(mine, "r1")
    assert bodies(mine, "r1") == [b"new", b"1", b"1"]


def test_a_turn_that_has_ended_is_forgotten(mine: sqlite3.Connection) -> None:
    begin(mine, "r1")
    finish(mine, "r1")
    assert turns_of(mine).known(mine, ME, (OWNER, "r1")) is None
    assert add(mine, "r1") == ["lost"]


def test_a_turn_whose_end_is_refused_is_forgotten(
    mine: sqlite3.Connection, yours: sqlite3.Connection
) -> None:
    begin(mine, "r1")
    writers.claim_orphans(yours, YOU, lambda name: name == YOU, 1)
    assert isinstance(finish(mine, "r1"), TurnLost)
    assert turns_of(mine).known(mine, ME, (OWNER, "r1")) is None


@pytest.mark.parametrize("is_known", [True, False])
def test_a_beginning_that_is_undone_leaves_no_rows(
    mine: sqlite3.Connection, is_known: bool
) -> None:
    begin(mine, "r1")
    begin(mine, "r2")
    add(mine, "r1", "r2")
    if not is_known:
        turns_of(mine).forget((OWNER, "r1"))
    turns.forget_turn(mine, OWNER, ME, "r1")
    assert mine.execute("SELECT response, first FROM log").fetchall() == [(2, 0), (2, 1)]
    assert add(mine, "r1", "r2", number=2) == ["lost", "ok"]


# Knowing nothing, or something wrong


def test_a_new_connection_finds_the_rows_of_its_turns(
    path: Path, mine: sqlite3.Connection, yours: sqlite3.Connection
) -> None:
    for name in ("r1", "r2", "r3"):
        begin(mine, name)
    begin(mine, "other", YOU)
    for number in range(1, 5):
        add(mine, "r3", "r1", number=number)
    writers.ask_cancel(mine, OWNER, "r2")
    with closing(connect(path, patience=1)) as next_one:
        assert add(next_one, "r1", "r2", number=5) == ["ok", "cancel"]
        assert add(next_one, "other", number=5) == ["lost"]
        assert [finish(next_one, name) for name in ("r1", "r2", "r3")] == [True] * 3
        assert bodies(next_one, "r1") == [b"0", b"1", b"2", b"3", b"4", b"5"]
        assert bodies(next_one, "r2") == [b"0", b"5"]
        assert bodies(next_one, "r3") == [b"0", b"1", b"2", b"3", b"4"]
        assert bodies(next_one, "other") == [b"0"]


def test_a_connection_that_knows_nothing_does_the_same(path: Path) -> None:
    with closing(connect(path, patience=1)):
        pass
    with closing(sqlite3.connect(path, isolation_level=None)) as plain:
        begin(plain, "r1")
        assert add(plain, "r1", "r2") == ["ok", "lost"]
        assert bodies(plain, "r1") == [b"0", b"1"]
        assert finish(plain, "r1") is True
        assert bodies(plain, "r1") == [b"0", b"1"]


@pytest.mark.parametrize("wrong", [[1, 2], [1, 2, 3, 4], [2, 3, 999], [4, 5, 6]])
def test_keys_are_not_trusted(mine: sqlite3.Connection, wrong: list[int]) -> None:
    begin(mine, "r1")
    begin(mine, "r2")
    for number in (1, 2):
        add(mine, "r1", "r2", number=number)
    turn = known(mine, "r1")
    assert turn.rows.tolist() == [1, 3, 5]
    turn.batches = None
    turn.rows[:] = type(turn.rows)("q", wrong)
    finish(mine, "r1")
    assert bodies(mine, "r1") == [b"0", b"1", b"2"]


# What is kept in memory


@pytest.mark.parametrize("limit", [0, 400, 10_000])
def test_a_log_is_whole_whether_or_not_it_was_kept(
    mine: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    monkeypatch.setattr(open_turns, "MAX_KEPT", limit)
    begin(mine, "r1")
    begin(mine, "r2")
    for number in range(1, 6):
        add(mine, "r1", "r2", number=number)
    kept = [known(mine, name).batches is not None for name in ("r1", "r2")]
    assert kept == [limit > 400] * 2
    finish(mine, "r1")
    finish(mine, "r2")
    expected = [b"%d" % number for number in range(6)]
    assert (bodies(mine, "r1"), bodies(mine, "r2")) == (expected, expected)


@pytest.mark.parametrize("again", [False, True])
def test_a_long_log_is_closed_row_by_row_and_whole(mine: sqlite3.Connection, again: bool) -> None:
    short, long = b"short", b"x" * LONG
    begin(mine, "r1")
    for number, body in enumerate((long, short, long), 1):
        batch = Batch(number, number, body)
        Append.together(mine, [Append(OWNER, "r1", ME, batch, None)])
    assert known(mine, "r1").batches is None
    # The last batch may repeat what an append that was reported as failed has written.
    last = Batch(3 if again else 4, 4, b"end")
    ending = Ending(ME, OWNER, "r1", "completed", b'{"status":"completed"}', batch=last)
    assert turn_writing.finish_turn(mine, ending) is True
    expected = [b"0", long, short, b"end"] if again else [b"0", long, short, long, b"end"]
    assert bodies(mine, "r1") == expected


def test_room_is_given_back(mine: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_turns, "MAX_KEPT", 1000)
    for number in range(20):
        begin(mine, f"r{number}", body=b"x" * 700)
        assert known(mine, f"r{number}").batches is not None
        if number % 2:
            finish(mine, f"r{number}")
        else:
            turns.delete_turn(mine, OWNER, f"r{number}")


# Following


def test_who_follows_looks_at_new_rows_only(
    mine: sqlite3.Connection, yours: sqlite3.Connection
) -> None:
    assert isinstance(yours, Connection)
    begin(mine, "r1")
    begin(mine, "r2")
    assert follow(yours, "r1", -1) == [b"0"]
    assert yours.looks[1] == (0, 2, 1)
    for number in range(1, 4):
        add(mine, "r2", number=number)
    assert follow(yours, "r1", 0) == []
    assert yours.looks[1] == (0, 5, 1)
    add(mine, "r1", number=1)
    add(mine, "r1", number=2)
    assert follow(yours, "r1", 0) == [b"1", b"2"]
    assert follow(yours, "r1", 2) == []
    assert follow(yours, "r1", 1) == [b"2"]
    assert follow(yours, "r1", -1) == [b"0", b"1", b"2"]
    assert follow(yours, "r1", 2**70) == []
    add(mine, "r1", number=3)
    assert follow(yours, "r1", 2) == [b"3"]
    finish(mine, "r1")
    assert follow(yours, "r1", 2) == [b"3"]
    assert yours.looks == {}


def test_rows_that_are_purged_do_not_hide_later_ones(
    mine: sqlite3.Connection, yours: sqlite3.Connection
) -> None:
    """A key that was given to a row of another turn is never given again."""
    begin(mine, "r1")
    begin(mine, "r2")
    add(mine, "r2", "r2", "r2")
    assert follow(yours, "r1", -1) == [b"0"]
    finish(mine, "r2")
    assert log_rows.purge(mine, 0) is None
    assert mine.execute("SELECT key FROM log").fetchall() == [(1,)]
    add(mine, "r1", number=1)
    assert follow(yours, "r1", 0) == [b"1"]


@pytest.mark.parametrize("has_log", [True, False])
def test_a_log_that_was_followed_is_not_that_of_a_later_turn(
    mine: sqlite3.Connection, yours: sqlite3.Connection, has_log: bool
) -> None:
    begin(mine, "r1")
    assert follow(yours, "r1", -1) == [b"0"]
    turns.delete_turn(mine, OWNER, "r1")
    begin(mine, "r1", body=b"new" if has_log else None)
    assert mine.execute("SELECT key FROM responses").fetchall() == [(1,)]
    for after in (0, -1):
        log = log_rows.read_log(yours, OWNER, "r1", after)
        assert log is not None
        assert log.is_kept is has_log
        assert [batch.body for batch in log.batches] == ([b"new"] if has_log and after else [])


def test_a_turn_that_ended_without_a_log_is_not_looked_for(mine: sqlite3.Connection) -> None:
    assert isinstance(mine, Connection)
    begin(mine, "r1", body=None)
    assert finish(mine, "r1") is False
    log = log_rows.read_log(mine, OWNER, "r1", -1)
    assert log is not None
    assert (log.is_kept, mine.looks) == (False, {})


def test_how_far_logs_were_read_is_remembered_of_some(
    mine: sqlite3.Connection, yours: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert isinstance(yours, Connection)
    monkeypatch.setattr(log_rows, "_MAX_LOOKS", 2)
    for name in ("r1", "r2", "r3"):
        begin(mine, name)
    for _ in range(2):
        assert [follow(yours, name, -1) for name in ("r1", "r2", "r3")] == [[b"0"]] * 3
        assert list(yours.looks) == [2, 3]


def follow(connection: sqlite3.Connection, name: str, after: int) -> list[bytes]:
    log = log_rows.read_log(connection, OWNER, name, after)
    assert log is not None
    assert log.is_kept
    return [batch.body for batch in log.batches]


# The table is not read through where that would be done often


def steps_of(connection: sqlite3.Connection, act: Callable[[], object]) -> int:
    """Return how many steps SQLite's machine takes."""
    count = 0

    def step() -> None:
        nonlocal count
        count += 1

    connection.set_progress_handler(step, 1)
    act()
    connection.set_progress_handler(None, 1)
    return count


def test_an_end_and_a_look_cost_the_same_however_long_other_logs_are(
    mine: sqlite3.Connection, yours: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_turns, "MAX_KEPT", 0)
    monkeypatch.setattr(log_rows, "_ROWS_AT_ONCE", 10)
    ends, looks, purges, undone = [], [], [], []
    for number, length in enumerate((1, 2000)):
        begin(mine, f"long{number}")
        mine.execute("BEGIN")
        for _ in range(length // 50 + 1):
            add(mine, *[f"long{number}"] * 50)
        mine.execute("COMMIT")
        name = f"r{number}"
        begin(mine, name)
        add(mine, name)
        follow(yours, name, -1)
        looks.append(steps_of(yours, partial(follow, yours, name, 1)))
        ends.append(steps_of(mine, partial(finish, mine, name)))
        purges.append(steps_of(mine, partial(log_rows.purge, mine, 0)))
        begin(mine, name := f"undone{number}")
        add(mine, name)
        undone.append(steps_of(mine, partial(turns.forget_turn, mine, OWNER, ME, name)))
    for first, second in (looks, ends, purges, undone):
        assert second < 1.2 * first
