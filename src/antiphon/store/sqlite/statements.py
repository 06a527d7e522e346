"""The questions and changes we put to the database, one function each.

A function gets a connection inside a transaction, which somebody else begins and commits.
It never sees an event loop. What must not be done is returned as an error: one that is raised
would undo the work of others in the same transaction. Every WHERE has the owner, except where
the question is about all owners (sweep, keys). Logs, conversations and claims have modules of
their own; a turn that begins, ends or is removed changes them from here.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from antiphon.protocol.errors import AntiphonError, TurnLost
from antiphon.protocol.items import Item
from antiphon.protocol.response import DONE_STATUSES, Response
from antiphon.store.base import MAX_DEPTH, Admit, Batch, History, KeyRecord, Log, Notice
from antiphon.store.encoding import (
    StoredItem,
    decode_item,
    decode_turn,
    lost_conversation,
    refusal_of,
)
from antiphon.store.sqlite import claim_statements, conversation_statements, log_statements
from antiphon.store.sqlite.connection import LONG, insert_row, turns_of
from antiphon.store.sqlite.erasure import mark
from antiphon.store.sqlite.migrations import APPLICATION_ID

__all__ = [
    "SWEEP_SIZE",
    "Beginning",
    "Ending",
    "add_key",
    "begin",
    "delete",
    "find_item",
    "find_key",
    "finish",
    "forget",
    "get",
    "history",
    "input_items",
    "list_keys",
    "look",
    "read_log",
    "removals",
    "revoke_key",
    "sweep",
    "touch",
]

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
# The length of a body stands in front of it: no page of a long one is read for this.
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
_OPEN: Final = """
    SELECT key, writer,
        EXISTS (SELECT 1 FROM jobs WHERE jobs.response = responses.key),
        (SELECT conversations.key FROM conversations
            WHERE conversations.owner = responses.owner AND locked_by = responses.id)
    FROM responses WHERE owner = ? AND id = ?
"""
_UNLOCK: Final = (
    "UPDATE conversations SET locked_by = NULL, writer = NULL WHERE owner = ? AND locked_by = ?"
)
_SELECT_KEYS: Final = "SELECT id, owner, digest, created_at, expires_at, revoked_at, name FROM keys"


class Beginning(NamedTuple):
    """A row of a turn that begins."""

    id: str
    parent: str | None
    status: str
    writer: str
    created_at: float
    body: bytes


class Ending(NamedTuple):
    """What `finish` puts into the database, all at once."""

    response_id: str
    status: str
    body: bytes
    output: Sequence[StoredItem]
    batch: Batch | None
    said: Sequence[StoredItem]
    notices: Sequence[Notice]


def begin(
    connection: sqlite3.Connection,
    owner: str,
    response: Beginning,
    items: Sequence[StoredItem],
    batch: Batch | None,
    request: bytes | None,
) -> None:
    """Insert a turn that is not there yet, with its input items."""
    cursor = connection.execute(
        "INSERT OR IGNORE INTO responses (owner, id, parent, status, writer, created_at, body)"
        " VALUES (?, ?, ?, ?, ?, ?, ?)",
        (owner, *response),
    )
    key = cursor.lastrowid
    if not cursor.rowcount or key is None:
        return
    _insert_items(connection, owner, key, _INPUT, items)
    name = (owner, response.id)
    turn = turns_of(connection).begin(connection, response.writer, name, key)
    if batch is not None:
        log_statements.insert_batch(connection, owner, turn, batch)
    if request is not None:
        log_statements.insert_job(connection, owner, key, request)


def finish(
    connection: sqlite3.Connection, owner: str, writer: str, ending: Ending
) -> bool | TurnLost:
    """End a turn that is open and this writer's; return an error if it is not.

    Return whether rows of its log are left to be purged.
    """
    row = connection.execute(_OPEN, (owner, ending.response_id)).fetchone()
    if row is None or row[1] != writer:
        return log_statements.lost(connection, owner, ending.response_id)
    key, _, has_job, conversation = row
    if ending.said and conversation is None:
        return lost_conversation(ending.response_id)
    connection.execute(
        "UPDATE responses SET status = ?, writer = NULL, body = ? WHERE key = ? AND owner = ?",
        (ending.status, ending.body, key, owner),
    )
    _insert_items(connection, owner, key, _OUTPUT, ending.output)
    name = (owner, ending.response_id)
    has_rows = log_statements.close_log(connection, writer, name, key, ending.batch)
    if has_job:
        connection.execute("DELETE FROM jobs WHERE response = ? AND owner = ?", (key, owner))
    if conversation is not None:
        conversation_statements.release(connection, owner, conversation, ending.said)
    if ending.notices:
        claim_statements.insert_notices(connection, ending.notices)
    return has_rows


def get(
    connection: sqlite3.Connection, owner: str, response_id: str, admit: Admit | None = None
) -> Response | AntiphonError | None:
    """Return the response with its output, if that is admitted."""
    key = None if admit is None else _key(connection, owner, response_id)
    if key is not None:
        place = (key, _OUTPUT, owner)
        refusal = refusal_of(admit, *connection.execute(_SIZE_OF_KIND, place).fetchone())
        if refusal is not None:
            return refusal
    found = _find(connection, owner, response_id)
    return None if found is None else found[1]


def read_log(
    connection: sqlite3.Connection, owner: str, response_id: str, after: int
) -> Log | None:
    """Return the response and every batch of its log behind this number."""
    found = _find(connection, owner, response_id)
    if found is None:
        return None
    key, response = found
    is_open = response.status not in DONE_STATUSES
    batches = log_statements.read_batches(connection, owner, key, after, is_open=is_open)
    return Log(response, batches or [], is_kept=batches is not None)


def delete(connection: sqlite3.Connection, owner: str, response_id: str) -> bool:
    """Remove a response and all that belongs to it; say whether there was one."""
    key = _key(connection, owner, response_id)
    if key is None:
        return False
    _remove(connection, [(key, owner, response_id)])
    return True


def forget(connection: sqlite3.Connection, owner: str, writer: str, response_id: str) -> None:
    """Take out an unfinished response of this writer, as if it had never been, if there is one."""
    row = connection.execute(
        "SELECT key FROM responses WHERE owner = ? AND id = ? AND writer = ?",
        (owner, response_id, writer),
    ).fetchone()
    if row is not None:
        mark(connection)
        log_statements.remove_own_rows(connection, writer, (owner, response_id), row[0])
        _take_out(connection, [(row[0], owner, response_id)])


def history(
    connection: sqlite3.Connection, owner: str, response_id: str, admit: Admit | None = None
) -> tuple[History, list[bytes]] | AntiphonError | None:
    """Walk from the head to the root, then read the items the other way, if they are admitted.

    They come beside the history, as they are stored: decoding them would hold up the thread.
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
    removed, missing = removals(connection), chain[-1][1]
    return History([], head[0], missing, weight, len(keys), removed), bodies


def removals(connection: sqlite3.Connection) -> int:
    """Return how often something was removed: all who do it mark it."""
    return int(connection.execute("SELECT due FROM erasure").fetchone()[0])


def input_items(
    connection: sqlite3.Connection, owner: str, response_id: str, admit: Admit | None = None
) -> list[bytes] | AntiphonError | None:
    """Return the turn's own input items in order, as they are stored, if they are admitted."""
    key = _key(connection, owner, response_id)
    if key is None:
        return None
    place = (key, _INPUT, owner)
    refusal = refusal_of(admit, *connection.execute(_SIZE_OF_KIND, place).fetchone())
    return refusal or _bodies(connection, _ITEMS_OF_KIND, place)


def find_item(connection: sqlite3.Connection, owner: str, item_id: str) -> Item | None:
    """Return the last item with this id of the turn that began last, else of a conversation."""
    row = connection.execute(
        "SELECT body FROM items WHERE owner = ? AND id = ?"
        " ORDER BY response DESC, kind DESC, position DESC LIMIT 1",
        (owner, item_id),
    ).fetchone()
    if row is None:
        return conversation_statements.find_anywhere(connection, owner, item_id)
    return decode_item(row[0])


def sweep(connection: sqlite3.Connection, before: int) -> int:
    """Remove the oldest responses created before this time, SWEEP_SIZE at most."""
    found = connection.execute(
        "SELECT key, owner, id FROM responses WHERE created_at < ? ORDER BY created_at LIMIT ?",
        (before, SWEEP_SIZE),
    ).fetchall()
    _remove(connection, found)
    return len(found)


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


def _find(
    connection: sqlite3.Connection, owner: str, response_id: str
) -> tuple[int, Response] | None:
    row = connection.execute(
        "SELECT key, status, body FROM responses WHERE owner = ? AND id = ?", (owner, response_id)
    ).fetchone()
    if row is None:
        return None
    key, status, body = row
    bodies = _bodies(connection, _ITEMS_OF_KIND, (key, _OUTPUT, owner))
    return key, decode_turn(body, [decode_item(item) for item in bodies], status)


def _remove(connection: sqlite3.Connection, turns: Sequence[tuple[int, str, str]]) -> None:
    """Remove turns (key, owner, id) from every table. Nobody hears from them again."""
    if turns:
        mark(connection)
        log_statements.remove_rows(connection, [(key, owner) for key, owner, _ in turns])
        _take_out(connection, turns)


def _take_out(connection: sqlite3.Connection, turns: Sequence[tuple[int, str, str]]) -> None:
    """Remove turns whose rows in `log` are gone already."""
    names = [(owner, response_id) for _, owner, response_id in turns]
    for name in names:
        turns_of(connection).forget(name)
    connection.executemany(_UNLOCK, names)
    connection.executemany("DELETE FROM claims WHERE owner = ? AND response = ?", names)
    places = [(key, owner) for key, owner, _ in turns]
    for table in ("items", "logs", "jobs"):
        connection.executemany(
            f"DELETE FROM {table} WHERE response = ? AND owner = ?",  # noqa: S608 # constants
            places,
        )
    connection.executemany("DELETE FROM responses WHERE key = ? AND owner = ?", places)


def _key(connection: sqlite3.Connection, owner: str, response_id: str) -> int | None:
    row = connection.execute(
        "SELECT key FROM responses WHERE owner = ? AND id = ?", (owner, response_id)
    ).fetchone()
    return None if row is None else int(row[0])


def _bodies(
    connection: sqlite3.Connection, question: str, values: tuple[int | str, ...]
) -> list[bytes]:
    return [body for (body,) in connection.execute(question, values)]


def _insert_items(
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
