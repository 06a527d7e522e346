"""How are the beginnings and the ends of turns written in SQLite, many in one transaction?

A function gets a connection inside a transaction, which the caller begins and commits. What must
not be done is returned as an error and nothing is changed: an error that is raised would undo
the work of others in the same transaction.

A turn that is not streamed begins and ends in one moment. Its end takes the beginning along, if
that is not written yet: the turn is then inserted whole, and turns that end together are inserted
with one statement for each table.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any, Final

from antiphon.protocol.errors import TurnLost
from antiphon.store.base import Entry, Notice, Settlement
from antiphon.store.base.entries import group_entries
from antiphon.store.base.rounds import KeptRound
from antiphon.store.sqlite.connection import LONG, turns_of
from antiphon.store.sqlite.conversations import release
from antiphon.store.sqlite.history import INPUT, OUTPUT, insert_item_rows, insert_items
from antiphon.store.sqlite.ledger_writing import settle_entries
from antiphon.store.sqlite.log import close_log, insert_batch
from antiphon.store.sqlite.notices import insert_notices
from antiphon.store.sqlite.open_turns import Name
from antiphon.store.sqlite.rounds import insert_rounds
from antiphon.store.sqlite.shared_inputs import SharedInput, add_input, allows_sharing, is_there
from antiphon.store.sqlite.writers import explain_loss, insert_job
from antiphon.store.turns import Beginning, Ending, lost_conversation

__all__ = ["KINDS", "Begin", "Finish", "begin_turn", "finish_turn"]

# Writes the entries of each kind (see `base.entries`). Any: of its own kind.
# They get the writer of the turn, whose fence was checked.
KINDS: Final[dict[type[Entry], Callable[[sqlite3.Connection, str, Sequence[Any]], None]]] = {
    Notice: insert_notices,
    Settlement: settle_entries,
    KeptRound: insert_rounds,
}
_OPEN: Final = """
    SELECT key, writer,
        EXISTS (SELECT 1 FROM jobs WHERE jobs.response = responses.key),
        (SELECT conversations.key FROM conversations
            WHERE conversations.owner = responses.owner AND locked_by = responses.id)
    FROM responses WHERE owner = ? AND id = ?
"""
_INTO: Final = "responses (owner, id, parent, status, writer, created_at, body)"
_ROW: Final = "(?, ?, ?, ?, ?, ?, ?)"
# Prepared for so many rows: each statement releases the interpreter, and may get it back late.
_INSERTS: Final = {
    1 << power: f"INSERT INTO {_INTO} VALUES {', '.join([_ROW] * (1 << power))}"  # noqa: S608 # constants
    for power in range(6)
}
_MOST_AT_ONCE: Final = max(_INSERTS)


class Begin:
    """The beginning of a turn. `waiting` has those whose end may take them along.

    One that is taken along is skipped here, unless it was written before. The event loop sets
    `is_taken_along`, the writing thread everything else.
    """

    __slots__ = ("_waiting", "is_decided", "is_taken_along", "shared", "size", "turn")

    def __init__(
        self, turn: Beginning, waiting: dict[Name, Begin], shared: SharedInput | None = None
    ) -> None:
        self.turn = turn
        self.shared = shared
        """The items of the input before those of `turn`, if others have them too."""
        self.size = turn.size + (0 if shared is None else shared.size)
        """The bytes to write."""
        self._waiting = waiting
        self.is_taken_along = False
        """Whether the end of the turn is queued, and has this with it."""
        self.is_decided = False
        """Whether this was written by itself, or could not be. That stays so if it is repeated."""

    def expect_end(self) -> None:
        """Let the end of the turn find this, unless it was written meanwhile."""
        name = (self.turn.owner, self.turn.id)
        self._waiting[name] = self
        if self.is_decided:
            self._waiting.pop(name, None)

    def decide(self) -> None:
        """Do not let the end take this along any more."""
        self.is_decided = True
        self._waiting.pop((self.turn.owner, self.turn.id), None)

    def __call__(self, connection: sqlite3.Connection) -> None:
        """Write it, unless its end does."""
        if self.is_taken_along and not self.is_decided:
            return
        self.decide()
        begin_turn(connection, self.turn, self.shared)


class Finish:
    """The end of a turn, perhaps with its beginning. Returns whether rows of its log are left."""

    __slots__ = ("begin", "size", "turn")

    def __init__(self, turn: Ending, begin: Begin | None = None) -> None:
        self.turn = turn
        self.begin = begin
        self.size = turn.size
        """The bytes to write, without the beginning and the entries."""

    def __call__(self, connection: sqlite3.Connection) -> bool | TurnLost:
        """Do it alone."""
        return self.together(connection, [self])[0]

    @property
    def whole(self) -> Begin | None:
        """The beginning, if it was not written."""
        return None if self.begin is None or self.begin.is_decided else self.begin

    @staticmethod
    def together(
        connection: sqlite3.Connection, jobs: Sequence[Finish]
    ) -> Sequence[bool | TurnLost]:
        """Do all of these with few statements; answer each, in their order.

        They are of one store, so they have one writer.
        """
        answers: list[bool | TurnLost] = [False] * len(jobs)
        plain: list[_Whole] = []
        for place, job in enumerate(jobs):
            begin, turn = job.whole, job.turn
            if begin is not None and _is_plain(begin, job):
                plain.append((place, begin, turn))
            else:
                answers[place] = _finish_one(connection, begin, turn)
        start = 0
        while left := len(plain) - start:
            count = 1 << (min(left, _MOST_AT_ONCE).bit_length() - 1)
            some = plain[start : start + count]
            if not _insert_whole(connection, some):
                for place, begin, turn in some:
                    answers[place] = _finish_one(connection, begin, turn)
            start += count
        ended = [
            job.turn.entries
            for job, answer in zip(jobs, answers, strict=True)
            if isinstance(answer, bool)
        ]
        for kind, alike in group_entries(chain.from_iterable(ended)).items():
            KINDS[kind](connection, jobs[0].turn.writer, alike)
        return answers


_Whole = tuple[int, Begin, Ending]
"""A turn to insert whole, and its place among those that end together."""


def _is_plain(begin: Begin, finish: Finish) -> bool:
    """Return whether a turn consists of its response and items, none of them very long."""
    turn = finish.turn
    return (
        not turn.has_conversation
        and turn.batch is None
        and begin.shared is None
        and begin.turn.request is None
        and begin.size + finish.size < LONG
    )


def _finish_one(
    connection: sqlite3.Connection, begin: Begin | None, turn: Ending
) -> bool | TurnLost:
    if begin is not None:
        begin_turn(connection, begin.turn, begin.shared)
    return finish_turn(connection, turn)


def _insert_whole(connection: sqlite3.Connection, turns: Sequence[_Whole]) -> bool:
    """Insert turns that have ended, with their items; there is a statement for this many.

    Return False if one of them exists: none was inserted then.
    """
    values: list[object] = []
    for _, begin, turn in turns:
        parent, created_at = begin.turn.parent, begin.turn.created_at
        values += (turn.owner, turn.id, parent, turn.status, None, created_at, turn.body)
    try:
        last = connection.execute(_INSERTS[len(turns)], values).lastrowid
    except sqlite3.IntegrityError:
        return False
    assert last is not None
    insert_item_rows(
        connection,
        [
            (key, kind, position, turn.owner, item.id, item.body)
            for key, (_, begin, turn) in enumerate(turns, last - len(turns) + 1)
            for kind, items in ((INPUT, begin.turn.items), (OUTPUT, turn.output))
            for position, item in enumerate(items)
        ],
    )
    return True


def begin_turn(
    connection: sqlite3.Connection, turn: Beginning, shared: SharedInput | None = None
) -> None:
    """Insert a turn that does not exist yet, with its input items."""
    cursor = connection.execute(
        f"INSERT OR IGNORE INTO {_INTO} VALUES {_ROW}",  # noqa: S608 # constants
        (turn.owner, turn.id, turn.parent, turn.status, turn.writer, turn.created_at, turn.body),
    )
    key = cursor.lastrowid
    if not cursor.rowcount or key is None:
        return
    first = 0 if shared is None else _share(connection, turn.owner, key, shared)
    insert_items(connection, turn.owner, key, INPUT, turn.items, first)
    known = turns_of(connection).begin(connection, turn.writer, (turn.owner, turn.id), key)
    if turn.batch is not None:
        insert_batch(connection, turn.owner, known, turn.batch)
    if turn.request is not None:
        insert_job(connection, turn.owner, key, turn.request)


def _share(connection: sqlite3.Connection, owner: str, key: int, shared: SharedInput) -> int:
    """Store what is not there yet of a shared input; return how many items it has."""
    items, place = shared.items, shared.place
    if not allows_sharing(connection):
        insert_items(connection, owner, key, INPUT, items)
        return len(items)
    if place is not None and not is_there(connection, owner, place):
        place = None
    if place is None or place.items < len(items):
        start = 0 if place is None else place.items
        place = add_input(connection, owner, place, len(items))
        insert_items(connection, owner, -place.key, INPUT, items[start:], start)
        shared.learn(place)
    connection.execute(
        "UPDATE responses SET input = ? WHERE key = ? AND owner = ?", (place.key, key, owner)
    )
    return len(items)


def finish_turn(connection: sqlite3.Connection, turn: Ending) -> bool | TurnLost:
    """End a turn that is open and its writer's; return an error if it is not.

    Return whether rows of its log are left to be purged. Its entries are not written here.
    """
    owner, name = turn.owner, (turn.owner, turn.id)
    row = connection.execute(_OPEN, name).fetchone()
    if row is None or row[1] != turn.writer:
        return explain_loss(connection, *name)
    key, _, has_job, conversation = row
    if turn.said and conversation is None:
        return lost_conversation(turn.id)
    connection.execute(
        "UPDATE responses SET status = ?, writer = NULL, body = ? WHERE key = ? AND owner = ?",
        (turn.status, turn.body, key, owner),
    )
    insert_items(connection, owner, key, OUTPUT, turn.output)
    has_rows = close_log(connection, turn.writer, name, key, turn.batch)
    if has_job:
        connection.execute("DELETE FROM jobs WHERE response = ? AND owner = ?", (key, owner))
    if conversation is not None:
        release(connection, owner, conversation, turn.said)
    return has_rows
