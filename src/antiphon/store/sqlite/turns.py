"""Facet `turns` in SQLite: a response from its beginning to its end.

A function gets a connection inside a transaction, which the caller begins and commits. It
never sees an event loop. What must not be done is returned as an error and nothing is changed:
an error that is raised would undo the work of others in the same transaction. Every WHERE has
the owner, except where all owners are concerned (sweep).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Final, NamedTuple

from antiphon.protocol.errors import AntiphonError, TurnLost
from antiphon.protocol.response import Response
from antiphon.store.base import Admit, Batch, Entry
from antiphon.store.encoding import StoredItem, lost_conversation
from antiphon.store.sqlite.connection import turns_of
from antiphon.store.sqlite.conversation_statements import release
from antiphon.store.sqlite.entries import write_entries
from antiphon.store.sqlite.erasure import mark
from antiphon.store.sqlite.history import (
    INPUT,
    OUTPUT,
    find_response,
    insert_items,
    refuse_items,
    response_key,
)
from antiphon.store.sqlite.log import close_log, insert_batch, remove_own_rows, remove_rows
from antiphon.store.sqlite.writers import explain_loss, insert_job

__all__ = [
    "SWEEP_SIZE",
    "Beginning",
    "Ending",
    "begin_turn",
    "delete_turn",
    "finish_turn",
    "forget_turn",
    "get_turn",
    "sweep_turns",
]

# Responses removed in one transaction: other writes run in between.
SWEEP_SIZE: Final = 500
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


class Beginning(NamedTuple):
    """A row of a turn that begins."""

    id: str
    parent: str | None
    status: str
    writer: str
    created_at: float
    body: bytes


class Ending(NamedTuple):
    """Everything that `finish` writes, in one transaction."""

    response_id: str
    status: str
    body: bytes
    output: Sequence[StoredItem]
    batch: Batch | None
    said: Sequence[StoredItem]
    entries: Sequence[Entry]


def begin_turn(
    connection: sqlite3.Connection,
    owner: str,
    response: Beginning,
    items: Sequence[StoredItem],
    batch: Batch | None,
    request: bytes | None,
) -> None:
    """Insert a turn that does not exist yet, with its input items."""
    cursor = connection.execute(
        "INSERT OR IGNORE INTO responses (owner, id, parent, status, writer, created_at, body)"
        " VALUES (?, ?, ?, ?, ?, ?, ?)",
        (owner, *response),
    )
    key = cursor.lastrowid
    if not cursor.rowcount or key is None:
        return
    insert_items(connection, owner, key, INPUT, items)
    name = (owner, response.id)
    turn = turns_of(connection).begin(connection, response.writer, name, key)
    if batch is not None:
        insert_batch(connection, owner, turn, batch)
    if request is not None:
        insert_job(connection, owner, key, request)


def finish_turn(
    connection: sqlite3.Connection, owner: str, writer: str, ending: Ending
) -> bool | TurnLost:
    """End a turn that is open and this writer's; return an error if it is not.

    Return whether rows of its log are left to be purged.
    """
    row = connection.execute(_OPEN, (owner, ending.response_id)).fetchone()
    if row is None or row[1] != writer:
        return explain_loss(connection, owner, ending.response_id)
    key, _, has_job, conversation = row
    if ending.said and conversation is None:
        return lost_conversation(ending.response_id)
    connection.execute(
        "UPDATE responses SET status = ?, writer = NULL, body = ? WHERE key = ? AND owner = ?",
        (ending.status, ending.body, key, owner),
    )
    insert_items(connection, owner, key, OUTPUT, ending.output)
    name = (owner, ending.response_id)
    has_rows = close_log(connection, writer, name, key, ending.batch)
    if has_job:
        connection.execute("DELETE FROM jobs WHERE response = ? AND owner = ?", (key, owner))
    if conversation is not None:
        release(connection, owner, conversation, ending.said)
    if ending.entries:
        write_entries(connection, ending.entries)
    return has_rows


def get_turn(
    connection: sqlite3.Connection, owner: str, response_id: str, admit: Admit | None = None
) -> Response | AntiphonError | None:
    """Return the response with its output, if that is admitted."""
    key = None if admit is None else response_key(connection, owner, response_id)
    if key is not None:
        refusal = refuse_items(connection, owner, key, OUTPUT, admit)
        if refusal is not None:
            return refusal
    found = find_response(connection, owner, response_id)
    return None if found is None else found[1]


def delete_turn(connection: sqlite3.Connection, owner: str, response_id: str) -> bool:
    """Remove a response and everything that belongs to it; return whether there was one."""
    key = response_key(connection, owner, response_id)
    if key is None:
        return False
    _remove(connection, [(key, owner, response_id)])
    return True


def forget_turn(connection: sqlite3.Connection, owner: str, writer: str, response_id: str) -> None:
    """Remove an unfinished response of this writer, if it exists."""
    row = connection.execute(
        "SELECT key FROM responses WHERE owner = ? AND id = ? AND writer = ?",
        (owner, response_id, writer),
    ).fetchone()
    if row is not None:
        mark(connection)
        remove_own_rows(connection, writer, (owner, response_id), row[0])
        _remove_rows(connection, [(row[0], owner, response_id)])


def sweep_turns(connection: sqlite3.Connection, before: int) -> int:
    """Remove the oldest responses created before this time, SWEEP_SIZE at most."""
    found = connection.execute(
        "SELECT key, owner, id FROM responses WHERE created_at < ? ORDER BY created_at LIMIT ?",
        (before, SWEEP_SIZE),
    ).fetchall()
    _remove(connection, found)
    return len(found)


def _remove(connection: sqlite3.Connection, turns: Sequence[tuple[int, str, str]]) -> None:
    """Remove turns (key, owner, id) from every table."""
    if turns:
        mark(connection)
        remove_rows(connection, [(key, owner) for key, owner, _ in turns])
        _remove_rows(connection, turns)


def _remove_rows(connection: sqlite3.Connection, turns: Sequence[tuple[int, str, str]]) -> None:
    """Remove turns whose rows in `log` were removed already."""
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
