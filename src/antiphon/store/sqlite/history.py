"""Facet `history` in SQLite: the items of turns, and of chains of turns.

A function gets a connection inside a transaction, which the caller begins and commits.
A refusal by `admit` is returned, not raised.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from typing import Final

import msgspec

from antiphon.protocol.errors import AntiphonError
from antiphon.protocol.items import Item
from antiphon.protocol.response import Response
from antiphon.store.base import MAX_DEPTH, Admit, History
from antiphon.store.encoding import StoredItem, decode_aside, decode_item, decode_turn, refusal_of
from antiphon.store.sqlite.connection import LONG, insert_row
from antiphon.store.sqlite.facet import Facet

__all__ = [
    "INPUT",
    "OUTPUT",
    "SqliteHistories",
    "find_response",
    "insert_items",
    "refuse_items",
    "response_key",
]

# Turns whose items are read, and put in order, in one go.
_TURNS_AT_ONCE: Final = 100
INPUT: Final = 0
OUTPUT: Final = 1
_STATUS: Final = "SELECT status FROM responses WHERE owner = ? AND id = ?"
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
# Of the turn that began last, and there the last; else of the conversation that was made last.
_FIND_ITEM: Final = """
    SELECT coalesce((
        SELECT body FROM items WHERE owner = :owner AND id = :id
        ORDER BY response DESC, kind DESC, position DESC LIMIT 1
    ), (
        SELECT body FROM conversation_items WHERE owner = :owner AND id = :id
        ORDER BY conversation DESC LIMIT 1
    ))
"""


class SqliteHistories(Facet):
    """See `Histories` for what the methods do.

    Items are decoded outside of the reading thread: decoding would block it.
    """

    async def history(
        self, owner: str, response_id: str, *, admit: Admit | None = None
    ) -> History | None:
        """Walk from the head to the root, then read the items the other way."""

        def run(
            connection: sqlite3.Connection,
        ) -> tuple[History, list[bytes]] | AntiphonError | None:
            head = connection.execute(_STATUS, (owner, response_id)).fetchone()
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
            if (refusal := refusal_of(admit, count, weight)) is not None:
                return refusal
            bodies = [body for step in steps for body in _bodies(connection, _ITEMS, (step, owner))]
            removed, missing = _read_removals(connection), chain[-1][1]
            return History([], head[0], missing, weight, len(keys), removed), bodies

        read = await self._read(response_id, run)
        if read is None:
            return None
        history, bodies = read
        return msgspec.structs.replace(history, items=await decode_aside(bodies))

    async def removals(self) -> int:
        """Return how often something was removed from the file, by any process."""
        return await self._reader.call(_read_removals)

    async def input_items(
        self, owner: str, response_id: str, *, admit: Admit | None = None
    ) -> list[Item] | None:
        def run(connection: sqlite3.Connection) -> list[bytes] | AntiphonError | None:
            key = response_key(connection, owner, response_id)
            if key is None:
                return None
            refusal = refuse_items(connection, owner, key, INPUT, admit)
            return refusal or _bodies(connection, _ITEMS_OF_KIND, (key, INPUT, owner))

        bodies = await self._read(response_id, run)
        return None if bodies is None else await decode_aside(bodies)

    async def find_item(self, owner: str, item_id: str) -> Item | None:
        def run(connection: sqlite3.Connection) -> Item | None:
            question = {"owner": owner, "id": item_id}
            (body,) = connection.execute(_FIND_ITEM, question).fetchone()
            return None if body is None else decode_item(body)

        return await self._read(item_id, run)


def _read_removals(connection: sqlite3.Connection) -> int:
    """Return how often something was removed: every removal is counted."""
    return int(connection.execute("SELECT due FROM erasure").fetchone()[0])


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
