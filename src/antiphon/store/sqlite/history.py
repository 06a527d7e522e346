"""Facet `history` in SQLite: the items of turns, and of chains of turns.

A function gets a connection inside a transaction, which the caller begins and commits.
A refusal by `admit` is returned, not raised.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from itertools import chain
from typing import Final

import msgspec

from antiphon.protocol.errors import AntiphonError
from antiphon.protocol.items import Item
from antiphon.protocol.response import Response
from antiphon.store.base import MAX_DEPTH, Admit, History
from antiphon.store.encoding import StoredItem, decode_aside, decode_item, decode_turn, refusal_of
from antiphon.store.sqlite.connection import LONG, insert_row
from antiphon.store.sqlite.facet import Facet
from antiphon.store.sqlite.shared_inputs import expand

__all__ = [
    "FIND_ITEM",
    "INPUT",
    "OUTPUT",
    "SqliteHistories",
    "find_response",
    "insert_item_rows",
    "insert_items",
    "refuse_output",
    "response_key",
]

# Turns whose items are read in one go. Of more, what SQLite joins is so long that its memory comes
# from the kernel each time.
_TURNS_AT_ONCE: Final = 32
INPUT: Final = 0
OUTPUT: Final = 1
_STATUS: Final = "SELECT status FROM responses WHERE owner = ? AND id = ?"
# All in one row: at each row the thread releases the interpreter, and may get it back late. A walk
# goes from child to parent.
_WALK: Final = f"""
    WITH RECURSIVE chain (key, parent, input) AS (
        SELECT key, parent, input FROM responses WHERE owner = :owner AND id = :id
        UNION ALL
        SELECT older.key, older.parent, older.input
        FROM chain JOIN responses AS older ON older.owner = :owner AND older.id = chain.parent
        LIMIT {MAX_DEPTH}
    )
    SELECT json_group_array(key), count(input) FROM chain
"""  # noqa: S608 # a constant
_PARENT: Final = "SELECT parent FROM responses WHERE key = ?"
# One question for many turns is four times as fast. They come in order without being sorted:
# json_each gives the turns in order, a CROSS JOIN keeps it, and the items are found by the primary
# key, because no other index can be used with `+`.
_FROM_TURNS: Final = """
    FROM json_each(?) AS turn CROSS JOIN items ON items.response = turn.value AND +items.owner = ?
"""
_ITEMS: Final = f"SELECT items.body {_FROM_TURNS}"
_JOINED_ITEMS: Final = f"SELECT CAST(group_concat(items.body, ',') AS BLOB) {_FROM_TURNS}"
# The length of a body is stored in front of it: no page of a long one is read for this.
_SIZE: Final = f"SELECT count(*), coalesce(sum(length(items.body)), 0) {_FROM_TURNS}"
_SIZE_OF_KIND: Final = (
    "SELECT count(*), coalesce(sum(length(body)), 0) FROM items"
    " WHERE response = ? AND kind = ? AND owner = ?"
)
_ITEMS_OF_KIND: Final = (
    "SELECT body FROM items WHERE response = ? AND kind = ? AND owner = ? ORDER BY position"
)
_INPUT_FROM: Final = f"{_FROM_TURNS} AND items.kind = {INPUT}"
_INPUT: Final = f"SELECT items.body {_INPUT_FROM}"
_SIZE_OF_INPUT: Final = f"SELECT count(*), coalesce(sum(length(items.body)), 0) {_INPUT_FROM}"
_INTO: Final = "items (response, kind, position, owner, id, body)"
# Prepared for so many rows: each statement releases the interpreter, and may get it back late.
_INSERTS: Final = {
    1 << power: f"INSERT INTO {_INTO} VALUES {', '.join(['(?, ?, ?, ?, ?, ?)'] * (1 << power))}"  # noqa: S608 # constants
    for power in range(7)
}
_MOST_AT_ONCE: Final = max(_INSERTS)
_read_keys = msgspec.json.Decoder(list[int]).decode
_encode = msgspec.json.Encoder().encode
# Of the turn that began last, and there the last; else of the conversation that was made last. A
# shared item belongs to all turns that refer to its row of `inputs`, or to one that continues it.
# Each row of `inputs` is visited once, however many items have the id.
FIND_ITEM: Final = """
    WITH RECURSIVE named (response) AS (
        SELECT DISTINCT response FROM items WHERE owner = :owner AND id = :id
    ), later (key) AS (
        SELECT -response FROM named WHERE response < 0
        UNION
        SELECT inputs.key FROM later JOIN inputs ON inputs.previous = later.key
    ), newest (key) AS (
        SELECT max(key) FROM (
            SELECT response AS key FROM named WHERE response > 0
            UNION ALL
            SELECT (SELECT max(key) FROM responses WHERE input = later.key) FROM later
        )
    ), its_inputs (key) AS (
        SELECT input FROM newest JOIN responses ON responses.key = newest.key
        UNION ALL
        SELECT previous FROM its_inputs JOIN inputs ON inputs.key = its_inputs.key
    )
    SELECT coalesce((
        SELECT body FROM items WHERE owner = :owner AND id = :id
        AND +response IN (SELECT key FROM newest UNION ALL SELECT -key FROM its_inputs)
        ORDER BY kind DESC, position DESC LIMIT 1
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
            question = {"owner": owner, "id": response_id}
            found, shared = connection.execute(_WALK, question).fetchone()
            keys = _read_keys(found)[::-1]
            (missing,) = connection.execute(_PARENT, keys[:1]).fetchone()
            steps = _steps(expand(connection, keys) if shared else keys)
            sizes = [connection.execute(_SIZE, (step, owner)).fetchone() for step in steps]
            count, weight = map(sum, zip(*sizes, strict=True))
            if (refusal := refusal_of(admit, count, weight)) is not None:
                return refusal
            bodies: list[bytes] = []
            for step, (items, size) in zip(steps, sizes, strict=True):
                bodies += _read_step(connection, step, owner, is_short=items > 0 and size < LONG)
            removed = _read_removals(connection)
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
            keys = _write_keys(expand(connection, [key]))
            size = connection.execute(_SIZE_OF_INPUT, (keys, owner)).fetchone()
            return refusal_of(admit, *size) or _bodies(connection, _INPUT, (keys, owner))

        bodies = await self._read(response_id, run)
        return None if bodies is None else await decode_aside(bodies)

    async def find_item(self, owner: str, item_id: str) -> Item | None:
        def run(connection: sqlite3.Connection) -> Item | None:
            question = {"owner": owner, "id": item_id}
            (body,) = connection.execute(FIND_ITEM, question).fetchone()
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
    first: int = 0,
) -> None:
    """Insert items of a turn, or shared ones under their negative key, from a position on."""
    places = enumerate(items, first)
    rows = [(key, kind, position, owner, item.id, item.body) for position, item in places]
    if any(len(item.body) >= LONG for item in items):
        for row in rows:
            insert_row(connection, _INTO, row)
    else:
        insert_item_rows(connection, rows)


def insert_item_rows(connection: sqlite3.Connection, rows: Sequence[tuple[object, ...]]) -> None:
    """Insert items as rows of response, kind, position, owner, id and body, none of them long."""
    start = 0
    while left := len(rows) - start:
        count = 1 << (min(left, _MOST_AT_ONCE).bit_length() - 1)
        some = rows[start : start + count]
        connection.execute(_INSERTS[count], list(chain.from_iterable(some)))
        start += count


def refuse_output(
    connection: sqlite3.Connection, owner: str, key: int, admit: Admit | None
) -> AntiphonError | None:
    """Return the error with which `admit` refuses the output of a turn, if it does."""
    size = connection.execute(_SIZE_OF_KIND, (key, OUTPUT, owner)).fetchone()
    return refusal_of(admit, *size)


def _steps(keys: Sequence[int]) -> list[str]:
    """Return the keys of turns, oldest first, as lists of some turns."""
    starts = range(0, len(keys), _TURNS_AT_ONCE)
    return [_write_keys(keys[start : start + _TURNS_AT_ONCE]) for start in starts]


def _write_keys(keys: Sequence[int]) -> str:
    """Return the keys as `json_each` takes them: as text, not as bytes."""
    return _encode(keys).decode()


def _read_step(
    connection: sqlite3.Connection, step: str, owner: str, *, is_short: bool
) -> list[bytes]:
    """Return the items of some turns, as one list if they are short."""
    if not is_short:
        return _bodies(connection, _ITEMS, (step, owner))
    (joined,) = connection.execute(_JOINED_ITEMS, (step, owner)).fetchone()
    return [b"[%b]" % joined]


def _bodies(
    connection: sqlite3.Connection, question: str, values: tuple[int | str, ...]
) -> list[bytes]:
    return [body for (body,) in connection.execute(question, values)]
