"""How is an input stored that begins like one that was stored before?

An agent sends its whole context with each request, and only the end of it is new. A process knows
which items an earlier request had (`protocol.kept_inputs`): they are stored once, in `items` under
the negative key of a row of `inputs`, and each response that has them refers to that row. A row may
continue another one: its items come after those of `previous`, so a context that grows adds only
what is new. The last items of an input are always rows of their response.

A row of `inputs` lives as long as a response or another row refers to it. Its token is random: the
key that a process remembers may have been deleted and given again, or was never committed.

A function gets a connection inside a transaction, which the caller begins and commits.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from antiphon.protocol.thread import Thread
from antiphon.store.encoding import StoredItem, size_of
from antiphon.store.sqlite.migrations import SHARED_INPUTS

__all__ = [
    "COUNT_WHOLE",
    "WHOLE_ITEMS",
    "Place",
    "SharedInput",
    "add_input",
    "allows_sharing",
    "are_shared",
    "expand",
    "find_heads",
    "is_there",
    "release",
    "split",
    "write_out",
]

_TOKEN_BYTES: Final = 16
_INSERT: Final = "INSERT INTO inputs (owner, previous, items, token) VALUES (?, ?, ?, ?)"
_IS_THERE: Final = "SELECT 1 FROM inputs WHERE key = ? AND owner = ? AND token = ?"
_HEADS: Final = """
    SELECT responses.key, responses.input FROM json_each(?) AS turn
    CROSS JOIN responses ON responses.key = turn.value WHERE responses.input IS NOT NULL
"""
# From the row that a response refers to, to the one that begins. All in one row: at each row the
# thread releases the interpreter, and may get it back late.
_CHAIN: Final = """
    WITH RECURSIVE chain (key, previous) AS (
        SELECT key, previous FROM inputs WHERE key = ?
        UNION ALL
        SELECT inputs.key, inputs.previous FROM chain JOIN inputs ON inputs.key = chain.previous
    )
    SELECT json_group_array(key) FROM chain
"""
_IS_USED: Final = """
    SELECT EXISTS (SELECT 1 FROM responses WHERE input = :key)
        OR EXISTS (SELECT 1 FROM inputs WHERE previous = :key)
"""
# The items of a row are those of every response that refers to it, or to one that continues it.
_OF_RESPONSES: Final = """
    WITH RECURSIVE chain (response, input) AS (
        SELECT key, input FROM responses WHERE input IS NOT NULL
        UNION ALL
        SELECT chain.response, inputs.previous
        FROM chain JOIN inputs ON inputs.key = chain.input WHERE inputs.previous IS NOT NULL
    )
    SELECT chain.response, items.kind, items.position, items.owner, items.id, items.body
    FROM chain CROSS JOIN items ON items.response = -chain.input
"""
_COLUMNS: Final = "response, kind, position, owner, id, body"
_WRITE_OUT: Final = f"INSERT INTO items ({_COLUMNS}) {_OF_RESPONSES}"
WHOLE_ITEMS: Final = f"""(
    SELECT {_COLUMNS} FROM items WHERE response > 0 UNION ALL SELECT * FROM ({_OF_RESPONSES})
) AS items"""  # noqa: S608 # constants
"""A table of items in which every response has all of its own, as in a file that shares none."""
COUNT_WHOLE: Final = """
    SELECT (SELECT count(*) FROM items WHERE response > 0) + coalesce(sum(inputs.items), 0)
    FROM responses JOIN inputs ON inputs.key = responses.input WHERE responses.input IS NOT NULL
"""
"""How many rows that table has. To count them takes as long as to read them all."""


class Place(NamedTuple):
    """Where so many items are stored: the row of `inputs` that has the last of them."""

    key: int
    token: bytes
    items: int


class SharedInput(NamedTuple):
    """The beginning of an input, and where it was stored before, as far as that is known.

    `learn` receives where all of it is stored, in the writer's thread and before the commit: what
    it receives may never become true.
    """

    items: Sequence[StoredItem]
    place: Place | None
    learn: Callable[[Place], None]

    @property
    def size(self) -> int:
        """The bytes to write, if what was stored is still there."""
        return size_of(self.items[self.place.items if self.place else 0 :])


def split(
    store: object, thread: Sequence[object], items: Sequence[StoredItem]
) -> tuple[SharedInput | None, Sequence[StoredItem]]:
    """Return what is shared of these items, which are those of a thread, and the others.

    The thread remembers where its items are in each store.
    """
    if not isinstance(thread, Thread) or not thread.is_long:
        return None, items
    if not 0 < thread.lasting < len(items):
        return None, items
    key = (split, store)
    shared = SharedInput(
        items[: thread.lasting], thread.recall(key), lambda place: thread.learn(key, place)
    )
    return shared, items[thread.lasting :]


def allows_sharing(connection: sqlite3.Connection) -> bool:
    """Return whether every gateway that may use the file finds shared items."""
    return bool(connection.execute("PRAGMA user_version").fetchone()[0] >= SHARED_INPUTS)


def is_there(connection: sqlite3.Connection, owner: str, place: Place) -> bool:
    """Return whether the items are still at this place."""
    found = connection.execute(_IS_THERE, (place.key, owner, place.token)).fetchone()
    return found is not None


def add_input(
    connection: sqlite3.Connection, owner: str, previous: Place | None, count: int
) -> Place:
    """Insert a row that continues `previous`, for items up to this count."""
    token, before = os.urandom(_TOKEN_BYTES), None if previous is None else previous.key
    key = connection.execute(_INSERT, (owner, before, count, token)).lastrowid
    assert key is not None, "a row was inserted"
    return Place(key, token, count)


def expand(connection: sqlite3.Connection, keys: Sequence[int]) -> list[int]:
    """Return the keys under which the items of these turns are, in order.

    Negative ones are those of shared items, which come before the turn's own.
    """
    heads = find_heads(connection, keys)
    if not heads:
        return list(keys)
    found: list[int] = []
    for key in keys:
        if key in heads:
            (chain,) = connection.execute(_CHAIN, (heads[key],)).fetchone()
            found += (-earlier for earlier in reversed(json.loads(chain)))
        found.append(key)
    return found


def find_heads(connection: sqlite3.Connection, keys: Sequence[int]) -> dict[int, int]:
    """Return which rows of `inputs` these turns refer to, for those that do."""
    return dict(connection.execute(_HEADS, (json.dumps(keys),)))


def release(connection: sqlite3.Connection, heads: Iterable[int]) -> None:
    """Remove the rows to which nothing refers any more, with their items, and those before them."""
    for head in heads:
        key: int | None = head
        while key is not None and not connection.execute(_IS_USED, {"key": key}).fetchone()[0]:
            row = connection.execute("SELECT previous FROM inputs WHERE key = ?", (key,)).fetchone()
            connection.execute("DELETE FROM items WHERE response = ?", (-key,))
            connection.execute("DELETE FROM inputs WHERE key = ?", (key,))
            key = None if row is None else row[0]


def are_shared(connection: sqlite3.Connection) -> bool:
    """Return whether any items are."""
    return bool(connection.execute("SELECT EXISTS (SELECT 1 FROM inputs)").fetchone()[0])


def write_out(connection: sqlite3.Connection) -> None:
    """Give every response all of its items as rows of its own, and share none of them."""
    connection.execute(_WRITE_OUT)
    connection.execute("UPDATE responses SET input = NULL WHERE input IS NOT NULL")
    connection.execute("DELETE FROM items WHERE response < 0")
    connection.execute("DELETE FROM inputs")
