"""Facet `history` in SQLite: the items of turns, and of chains of turns.

A function gets a connection inside a transaction, which the caller begins and commits.
It runs in a thread and never sees an event loop. A refusal by `admit` is returned, not raised.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from typing import Final

from antiphon.protocol.errors import AntiphonError
from antiphon.protocol.items import Item
from antiphon.protocol.response import Response
from antiphon.store.base import MAX_DEPTH, Admit, History
from antiphon.store.encoding import StoredItem, decode_item, decode_turn, refusal_of
from antiphon.store.sqlite.connection import LONG, insert_row
from antiphon.store.sqlite.conversation_statements import find_anywhere

__all__ = [
    "INPUT",
    "OUTPUT",
    "find_item",
    "find_response",
    "insert_items",
    "read_history",
    "read_input_items",
    "read_removals",
    "refuse_items",
    "response_key",
]

# Turns whose items are read, and put in order, in one go.
_TURNS_AT_ONCE: Final = 100
INPUT: Final = 0
OUTPUT: Final = 1
_WALK: Final = f"""
    WITH RECURSIVE chain (depth, key, parent) AS (
        SELECT 1, key, parent FROM responses WHERE owner = :owner AND id = :id
        UNION ALL
        SELECT chain.depth + 1, older.key, older.parent
        FROM chain JOIN responses AS older ON older.owner = :owner AND older.id = chain.parent
        WHERE chain.depth < {MAX_DEPTH}
    )
    SELECT key, parent FROM chain
"""  # noqa: S608 # a constant
# json_each gives the turns in order, and one question for many turns is four times as fast.
_ITEMS: Final = """
    SELECT items.body FROM json_each(?) AS turn
    CROSS JOIN items ON items.response = turn.value AND items.owner = ?
    ORDER BY turn.key, items.kind, items.position
"""
# The length of a body is stored in front of it: no page of a long one is read for this.
_SIZE: Final = """
    SELECT count(*), coalesce(sum(length(items.body)), 0) FROM json_each(?) AS turn
    CROSS JOIN items ON items.response = turn.value AND items.owner = ?
"""
_SIZE_OF_KIND: Final = (
    "SELECT count(*), coalesce(sum(length(body)), 0) FROM items"
    " WHERE response = ? AND kind = ? AND owner = ?"
)
_ITEMS_OF_KIND: Final = (
    "SELECT body FROM items WHERE response = ? AND kind = ? AND owner = ? ORDER BY position"
)


def read_history(
    connection: sqlite3.Connection, owner: str, response_id: str, admit: Admit | None = None
) -> tuple[History, list[bytes]] | AntiphonError | None:
    """Walk from the head to the root, then read the items the other way, if they are admitted.

    The items are returned beside the history, encoded: decoding them would block the thread.
    """
    head = connection.execute(
        "SELECT status FROM responses WHERE owner = ? AND id = ?", (owner, response_id)
    ).fetchone()
    if head is None:
        return None
    chain = connection.execute(_WALK, {"owner": owner, "id": response_id}).fetchall()
    keys = [key for key, _ in reversed(chain)]
    steps = [
        json.dumps(keys[start : start + _TURNS_AT_ONCE])
        for start in range(0, len(keys), _TURNS_AT_ONCE)
    ]
    sizes = [connection.execute(_SIZE, (step, owner)).fetchone() for step in steps]
    count, weight = map(sum, zip(*sizes, strict=True))
    refusal = refusal_of(admit, count, weight)
    if refusal is not None:
        return refusal
    bodies = [body for step in steps for body in _bodies(connection, _ITEMS, (step, owner))]
    removed, missing = read_removals(connection), chain[-1][1]
    return History([], head[0], missing, weight, len(keys), removed), bodies


def read_removals(connection: sqlite3.Connection) -> int:
    """Return how often something was removed: every removal is counted."""
    return int(connection.execute("SELECT due FROM erasure").fetchone()[0])


def read_input_items(
    connection: sqlite3.Connection, owner: str, response_id: str, admit: Admit | None = None
) -> list[bytes] | AntiphonError | None:
    """Return the turn's own input items in order, as they are stored, if they are admitted."""
    key = response_key(connection, owner, response_id)
    if key is None:
        return None
    refusal = refuse_items(connection, owner, key, INPUT, admit)
    return refusal or _bodies(connection, _ITEMS_OF_KIND, (key, INPUT, owner))


def find_item(connection: sqlite3.Connection, owner: str, item_id: str) -> Item | None:
    """Return the last item with this id of the turn that began last, else of a conversation."""
    row = connection.execute(
        "SELECT body FROM items WHERE owner = ? AND id = ?"
        " ORDER BY response DESC, kind DESC, position DESC LIMIT 1",
        (owner, item_id),
    ).fetchone()
    if row is None:
        return find_anywhere(connection, owner, item_id)
    return decode_item(row[0])


def find_response(
    connection: sqlite3.Connection, owner: str, response_id: str
) -> tuple[int, Response] | None:
    row = connection.execute(
        "SELECT key, status, body FROM responses WHERE owner = ? AND id = ?", (owner, response_id)
    ).fetchone()
    if row is None:
        return None
    key, status, body = row
    bodies = _bodies(connection, _ITEMS_OF_KIND, (key, OUTPUT, owner))
    return key, decode_turn(body, [decode_item(item) for item in bodies], status)


def response_key(connection: sqlite3.Connection, owner: str, response_id: str) -> int | None:
    row = connection.execute(
        "SELECT key FROM responses WHERE owner = ? AND id = ?", (owner, response_id)
    ).fetchone()
    return None if row is None else int(row[0])


def insert_items(
    connection: sqlite3.Connection,
    owner: str,
    key: int | None,
    kind: int,
    items: Sequence[StoredItem],
) -> None:
    into = "items (response, kind, position, owner, id, body)"
    rows = [(key, kind, position, owner, item.id, item.body) for position, item in enumerate(items)]
    if any(len(item.body) >= LONG for item in items):
        for row in rows:
            insert_row(connection, into, row)
    else:
        connection.executemany(
            f"INSERT INTO {into} VALUES (?, ?, ?, ?, ?, ?)",  # noqa: S608 # constants
            rows,
        )


def refuse_items(
    connection: sqlite3.Connection, owner: str, key: int, kind: int, admit: Admit | None
) -> AntiphonError | None:
    """Return the error with which `admit` refuses the items of this kind, if it does."""
    size = connection.execute(_SIZE_OF_KIND, (key, kind, owner)).fetchone()
    return refusal_of(admit, *size)


def _bodies(
    connection: sqlite3.Connection, question: str, values: tuple[int | str, ...]
) -> list[bytes]:
    return [body for (body,) in connection.execute(question, values)]
