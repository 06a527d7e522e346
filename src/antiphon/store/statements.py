"""The questions and changes we put to the database, one function each.

A function gets a connection inside a transaction, which somebody else begins and commits.
It never sees an event loop. Every WHERE has the owner, except where the question is about
all owners (recover, sweep, keys).
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from antiphon.protocol.items import Item
from antiphon.protocol.response import Failure, Response
from antiphon.store.base import MAX_DEPTH, History, KeyRecord
from antiphon.store.encoding import StoredItem, decode_item, decode_turn, fail_turn
from antiphon.store.migrations import APPLICATION_ID

__all__ = [
    "SWEEP_SIZE",
    "add_key",
    "begin",
    "delete",
    "find_item",
    "find_key",
    "finish",
    "get",
    "history",
    "input_items",
    "list_keys",
    "look",
    "recover",
    "revoke_key",
    "sweep",
    "touch",
]

_NOT_THERE: Final = "is not in the store: its beginning could not be written, or it was deleted"

# Responses removed in one transaction: other writes get their turn in between.
SWEEP_SIZE: Final = 500

# Turns whose items are read, and put in order, in one go.
_TURNS_AT_ONCE: Final = 100

_INPUT: Final = 0
_OUTPUT: Final = 1

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
_ITEMS_OF_KIND: Final = (
    "SELECT body FROM items WHERE response = ? AND kind = ? AND owner = ? ORDER BY position"
)
_SELECT_KEYS: Final = "SELECT id, owner, digest, created_at, expires_at, revoked_at, name FROM keys"


def begin(
    connection: sqlite3.Connection,
    owner: str,
    response: tuple[str, str | None, str, str, float, bytes],
    items: Sequence[StoredItem],
) -> None:
    """Insert a turn: id, parent, status, writer, created_at, body; and its input items."""
    cursor = connection.execute(
        "INSERT OR IGNORE INTO responses (owner, id, parent, status, writer, created_at, body)"
        " VALUES (?, ?, ?, ?, ?, ?, ?)",
        (owner, *response),
    )
    if cursor.rowcount:
        _insert_items(connection, owner, cursor.lastrowid, _INPUT, items)


def finish(
    connection: sqlite3.Connection,
    owner: str,
    response_id: str,
    status: str,
    body: bytes,
    items: Sequence[StoredItem],
) -> str | None:
    """End a turn that is open; return None if that was done, else why not."""
    row = connection.execute(
        "SELECT key, status, writer FROM responses WHERE owner = ? AND id = ?",
        (owner, response_id),
    ).fetchone()
    if row is None:
        return _NOT_THERE
    key, found, writer = row
    if writer is None:
        return f"has already ended as {found}"
    connection.execute(
        "UPDATE responses SET status = ?, writer = NULL, body = ? WHERE key = ? AND owner = ?",
        (status, body, key, owner),
    )
    _insert_items(connection, owner, key, _OUTPUT, items)
    return None


def get(connection: sqlite3.Connection, owner: str, response_id: str) -> Response | None:
    """Return the response with its output."""
    row = connection.execute(
        "SELECT key, body FROM responses WHERE owner = ? AND id = ?", (owner, response_id)
    ).fetchone()
    if row is None:
        return None
    return decode_turn(row[1], _items(connection, _ITEMS_OF_KIND, (row[0], _OUTPUT, owner)))


def delete(connection: sqlite3.Connection, owner: str, response_id: str) -> bool:
    """Remove a response and its items; say whether there was one."""
    key = _key(connection, owner, response_id)
    if key is None:
        return False
    connection.execute("DELETE FROM items WHERE response = ? AND owner = ?", (key, owner))
    connection.execute("DELETE FROM responses WHERE key = ? AND owner = ?", (key, owner))
    return True


def history(connection: sqlite3.Connection, owner: str, response_id: str) -> History | None:
    """Walk from the head to the root, then read the items the other way."""
    head = connection.execute(
        "SELECT status FROM responses WHERE owner = ? AND id = ?", (owner, response_id)
    ).fetchone()
    if head is None:
        return None
    chain = connection.execute(_WALK, {"owner": owner, "id": response_id}).fetchall()
    keys = [key for key, _ in reversed(chain)]
    items: list[Item] = []
    for start in range(0, len(keys), _TURNS_AT_ONCE):
        some = json.dumps(keys[start : start + _TURNS_AT_ONCE])
        items += _items(connection, _ITEMS, (some, owner))
    return History(items, head[0], chain[-1][1])


def input_items(connection: sqlite3.Connection, owner: str, response_id: str) -> list[Item] | None:
    """Return the turn's own input items in order."""
    key = _key(connection, owner, response_id)
    return None if key is None else _items(connection, _ITEMS_OF_KIND, (key, _INPUT, owner))


def find_item(connection: sqlite3.Connection, owner: str, item_id: str) -> Item | None:
    """Return the newest item with this id: of the turn that began last, and there the last."""
    row = connection.execute(
        "SELECT body FROM items WHERE owner = ? AND id = ?"
        " ORDER BY response DESC, kind DESC, position DESC LIMIT 1",
        (owner, item_id),
    ).fetchone()
    return None if row is None else decode_item(row[0])


def recover(
    connection: sqlite3.Connection, is_alive: Callable[[str], bool], failure: Failure
) -> int:
    """End as failed the turns of all writers that are gone; return how many."""
    writers = connection.execute(
        "SELECT DISTINCT writer FROM responses WHERE writer IS NOT NULL"
    ).fetchall()
    keys = [
        key
        for (writer,) in writers
        if not is_alive(writer)
        for (key,) in connection.execute("SELECT key FROM responses WHERE writer = ?", (writer,))
    ]
    for key in keys:
        body = connection.execute("SELECT body FROM responses WHERE key = ?", (key,)).fetchone()[0]
        connection.execute(
            "UPDATE responses SET status = 'failed', writer = NULL, body = ? WHERE key = ?",
            (fail_turn(body, failure), key),
        )
    return len(keys)


def sweep(connection: sqlite3.Connection, before: int) -> int:
    """Remove the oldest responses created before this time, SWEEP_SIZE at most."""
    keys = connection.execute(
        "SELECT key FROM responses WHERE created_at < ? ORDER BY created_at LIMIT ?",
        (before, SWEEP_SIZE),
    ).fetchall()
    connection.executemany("DELETE FROM items WHERE response = ?", keys)
    connection.executemany("DELETE FROM responses WHERE key = ?", keys)
    return len(keys)


def add_key(connection: sqlite3.Connection, key: KeyRecord) -> bool:
    """Insert a key; False if its id is taken."""
    cursor = connection.execute(
        "INSERT OR IGNORE INTO keys"
        " (id, owner, digest, created_at, expires_at, revoked_at, name)"
        " VALUES (:id, :owner, :digest, :created_at, :expires_at, :revoked_at, :name)",
        msgspec.structs.asdict(key),
    )
    return cursor.rowcount == 1


def find_key(connection: sqlite3.Connection, key_id: str) -> KeyRecord | None:
    """Return the key with this id."""
    row = connection.execute(f"{_SELECT_KEYS} WHERE id = ?", (key_id,)).fetchone()
    return None if row is None else KeyRecord(*row)


def list_keys(connection: sqlite3.Connection) -> list[KeyRecord]:
    """Return every key, oldest first."""
    rows = connection.execute(f"{_SELECT_KEYS} ORDER BY created_at, rowid")
    return [KeyRecord(*row) for row in rows]


def revoke_key(connection: sqlite3.Connection, key_id: str, now: int) -> bool:
    """Revoke a key that is in force; say whether there was one."""
    cursor = connection.execute(
        "UPDATE keys SET revoked_at = :now WHERE id = :id AND revoked_at IS NULL"
        " AND (expires_at IS NULL OR expires_at > :now)",
        {"id": key_id, "now": now},
    )
    return cursor.rowcount == 1


def look(connection: sqlite3.Connection) -> None:
    """Read something, to see whether reading works."""
    connection.execute("SELECT key FROM responses LIMIT 1").fetchone()


def touch(connection: sqlite3.Connection) -> None:
    """Write something that changes nothing, to see whether writing works."""
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")


def _key(connection: sqlite3.Connection, owner: str, response_id: str) -> int | None:
    row = connection.execute(
        "SELECT key FROM responses WHERE owner = ? AND id = ?", (owner, response_id)
    ).fetchone()
    return None if row is None else int(row[0])


def _items(
    connection: sqlite3.Connection, question: str, values: tuple[int | str, ...]
) -> list[Item]:
    return [decode_item(body) for (body,) in connection.execute(question, values)]


def _insert_items(
    connection: sqlite3.Connection,
    owner: str,
    key: int | None,
    kind: int,
    items: Sequence[StoredItem],
) -> None:
    connection.executemany(
        "INSERT INTO items (response, kind, position, owner, id, body) VALUES (?, ?, ?, ?, ?, ?)",
        [(key, kind, position, owner, item.id, item.body) for position, item in enumerate(items)],
    )
