"""Facet `turns` in SQLite: a response from its beginning to its end.

A function gets a connection inside a transaction, which the caller begins and commits. It
never sees an event loop. What must not be done is returned as an error and nothing is changed:
an error that is raised would undo the work of others in the same transaction. Every WHERE has
the owner, except where all owners are concerned (sweep).
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from antiphon.protocol.errors import AntiphonError, StoreUnavailable, TurnLost
from antiphon.protocol.items import Item
from antiphon.protocol.response import Response
from antiphon.store.base import Admit, Batch, Entry, Notice, Settlement
from antiphon.store.base.entries import group_entries
from antiphon.store.base.rounds import KeptRound
from antiphon.store.encoding import is_storable
from antiphon.store.sqlite.busy_owners import BusyOwners
from antiphon.store.sqlite.connection import turns_of
from antiphon.store.sqlite.conversations import release
from antiphon.store.sqlite.erasure import mark
from antiphon.store.sqlite.facet import do_nothing
from antiphon.store.sqlite.history import (
    INPUT,
    OUTPUT,
    find_response,
    insert_items,
    refuse_items,
    response_key,
)
from antiphon.store.sqlite.ledger import SqliteLedger
from antiphon.store.sqlite.ledger_writing import settle_entries
from antiphon.store.sqlite.log import (
    SqliteLogs,
    close_log,
    insert_batch,
    remove_own_rows,
    remove_rows,
)
from antiphon.store.sqlite.notices import insert_notices
from antiphon.store.sqlite.rounds import insert_rounds
from antiphon.store.sqlite.tool_calls import remove_tool_calls
from antiphon.store.sqlite.writers import explain_loss, insert_job
from antiphon.store.turns import (
    Beginning,
    Ending,
    encode_beginning,
    encode_ending,
    lost_conversation,
)

__all__ = [
    "KINDS",
    "SqliteTurns",
    "begin_turn",
    "delete_turn",
    "finish_turn",
    "forget_turn",
]

# Writes the entries of each kind (see `base.entries`). Any: of its own kind.
# They get the writer of the turn, whose fence was checked.
KINDS: Final[dict[type[Entry], Callable[[sqlite3.Connection, str, Sequence[Any]], None]]] = {
    Notice: insert_notices,
    Settlement: settle_entries,
    KeptRound: insert_rounds,
}
# Reasons that are kept for turns which have not ended yet.
_MOST_LOST_BEGINNINGS: Final = 1000
_OPEN: Final = """
    SELECT key, writer,
        EXISTS (SELECT 1 FROM jobs WHERE jobs.response = responses.key),
        (SELECT conversations.key FROM conversations
            WHERE conversations.owner = responses.owner AND locked_by = responses.id)
    FROM responses WHERE owner = ? AND id = ?
"""
_OLDEST: Final = (
    "SELECT key, owner, id FROM responses WHERE created_at < ? ORDER BY created_at LIMIT ?"
)
_REMOVE_OLD_LOGS: Final = """
    DELETE FROM logs WHERE response IN (
        SELECT logs.response FROM logs JOIN responses ON responses.key = logs.response
        WHERE responses.created_at < ? AND responses.writer IS NULL LIMIT ?
    )
"""
_OF_OWNER: Final = "SELECT key, owner, id FROM responses WHERE owner = ? LIMIT ?"
_UNLOCK: Final = (
    "UPDATE conversations SET locked_by = NULL, writer = NULL WHERE owner = ? AND locked_by = ?"
)


class SqliteTurns(SqliteLogs):
    """See `Turns` for what the methods do. The end of a turn closes its log."""

    def __init__(
        self, path: str | os.PathLike[str], patience: float, max_bytes: int | None
    ) -> None:
        super().__init__(path, patience, max_bytes)
        self.ledger = SqliteLedger(self.path, self._writer, self._reader, self._presence)
        self._lost_beginnings: OrderedDict[str, str] = OrderedDict()
        """Why the beginnings of turns could not be written, by the ids of their responses."""
        self._busy_owners = BusyOwners()

    async def begin(
        self,
        owner: str,
        response: Response,
        items: Sequence[Item],
        *,
        batch: Batch | None = None,
        request: bytes | None = None,
    ) -> None:
        """Queue the turn to be written. If the last write failed, wait: an early 503 is better."""
        turn = await encode_beginning(self._presence.name, owner, response, items, batch, request)
        run = partial(begin_turn, turn=turn)
        if batch is not None or self._writer.is_ailing:
            is_quiet = self._busy_owners.is_quiet(owner, time.monotonic())
            write = self._writer.call_first if is_quiet else self._writer.call_or_share
            await write(run, turn.size)
            self._waiters.wake(response.id)
        else:
            note = partial(self._note_lost_beginning, response.id)
            self._writer.post(run, turn.size, on_failure=note)

    def _note_lost_beginning(self, response_id: str, fault: StoreUnavailable) -> None:
        """Remember why a turn could not begin, for its end. Runs in the writer's thread."""
        self._lost_beginnings[response_id] = fault.message
        while len(self._lost_beginnings) > _MOST_LOST_BEGINNINGS:
            self._lost_beginnings.popitem(last=False)

    async def forget(self, owner: str, response_id: str) -> None:
        """Undo a beginning that this store has made; its content is erased a little later."""
        writer = self._presence.name
        await self._writer.call_or_share(
            lambda connection: forget_turn(connection, owner, writer, response_id), 0
        )
        self._writer.post(do_nothing, 0, is_removal=True)

    async def finish(
        self,
        owner: str,
        response: Response,
        *,
        batch: Batch | None = None,
        said: Sequence[Item] = (),
        entries: Sequence[Entry] = (),
    ) -> None:
        writer = self._presence.name
        turn = await encode_ending(writer, owner, response, batch, said, entries, KINDS)
        self.ledger.retry_lost()
        write = self._writer.call if batch is None else self._writer.call_or_share
        has_rows: bool
        try:
            has_rows = await write(partial(finish_turn, turn=turn), turn.size)
        except TurnLost as error:
            reason = self._lost_beginnings.pop(response.id, None)
            raise error if reason is None else TurnLost(reason) from error
        self._waiters.wake(response.id)
        if has_rows:
            self._purge_later()

    async def get(
        self, owner: str, response_id: str, *, admit: Admit | None = None
    ) -> Response | None:
        def run(connection: sqlite3.Connection) -> Response | AntiphonError | None:
            key = None if admit is None else response_key(connection, owner, response_id)
            if key is not None:
                refusal = refuse_items(connection, owner, key, OUTPUT, admit)
                if refusal is not None:
                    return refusal
            found = find_response(connection, owner, response_id)
            return None if found is None else found[1]

        return await self._read(response_id, run)

    async def delete(self, owner: str, response_id: str) -> bool:
        if not is_storable(response_id):
            return False
        found = await self._writer.remove(
            lambda connection: delete_turn(connection, owner, response_id)
        )
        self._waiters.wake(response_id)
        return found

    async def _sweep_turns(self, before: int, limit: int) -> int:
        """Remove the oldest responses created before this time, `limit` at most."""

        def run(connection: sqlite3.Connection) -> int:
            found = connection.execute(_OLDEST, (before, limit)).fetchall()
            _remove(connection, found)
            return len(found)

        return await self._writer.call(run)

    async def sweep_logs(self, before: int, limit: int) -> int:
        await self._purge()  # what is left of them row by row is found by the whole logs

        def run(connection: sqlite3.Connection) -> int:
            return connection.execute(_REMOVE_OLD_LOGS, (before, limit)).rowcount

        removed = await self._writer.call(run)
        if removed:
            await self._writer.remove(do_nothing)
        return removed

    async def _remove_turns(self, owner: str, limit: int) -> int:
        """Remove responses of an owner, `limit` at most; return how many."""

        def run(connection: sqlite3.Connection) -> list[str]:
            found = connection.execute(_OF_OWNER, (owner, limit)).fetchall()
            _remove(connection, found)
            return [row[2] for row in found]

        removed = await self._writer.call(run)
        for name in removed:
            self._waiters.wake(name)
        return len(removed)


def begin_turn(connection: sqlite3.Connection, turn: Beginning) -> None:
    """Insert a turn that does not exist yet, with its input items."""
    cursor = connection.execute(
        "INSERT OR IGNORE INTO responses (owner, id, parent, status, writer, created_at, body)"
        " VALUES (?, ?, ?, ?, ?, ?, ?)",
        (turn.owner, turn.id, turn.parent, turn.status, turn.writer, turn.created_at, turn.body),
    )
    key = cursor.lastrowid
    if not cursor.rowcount or key is None:
        return
    insert_items(connection, turn.owner, key, INPUT, turn.items)
    known = turns_of(connection).begin(connection, turn.writer, (turn.owner, turn.id), key)
    if turn.batch is not None:
        insert_batch(connection, turn.owner, known, turn.batch)
    if turn.request is not None:
        insert_job(connection, turn.owner, key, turn.request)


def finish_turn(connection: sqlite3.Connection, turn: Ending) -> bool | TurnLost:
    """End a turn that is open and its writer's; return an error if it is not.

    Return whether rows of its log are left to be purged.
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
    for kind, entries in group_entries(turn.entries).items():
        KINDS[kind](connection, turn.writer, entries)
    return has_rows


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
    for table in ("claims", "native_states", "rounds"):
        connection.executemany(
            f"DELETE FROM {table} WHERE owner = ? AND response = ?",  # noqa: S608 # constants
            names,
        )
    remove_tool_calls(connection, names)
    places = [(key, owner) for key, owner, _ in turns]
    for table in ("items", "logs", "jobs"):
        connection.executemany(
            f"DELETE FROM {table} WHERE response = ? AND owner = ?",  # noqa: S608 # constants
            places,
        )
    connection.executemany("DELETE FROM responses WHERE key = ? AND owner = ?", places)
