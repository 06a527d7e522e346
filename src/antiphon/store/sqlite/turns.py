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
from collections.abc import Awaitable, Sequence
from functools import partial
from typing import Final

from antiphon.protocol.errors import AntiphonError, StoreUnavailable, TurnLost
from antiphon.protocol.items import Item
from antiphon.protocol.response import Response
from antiphon.store.base import Admit, Batch, Entry
from antiphon.store.encoding import are_short, is_storable
from antiphon.store.promise import Promise, kept
from antiphon.store.sqlite.busy_owners import BusyOwners
from antiphon.store.sqlite.connection import turns_of
from antiphon.store.sqlite.erasure import mark
from antiphon.store.sqlite.facet import do_nothing
from antiphon.store.sqlite.history import find_response, refuse_output, response_key
from antiphon.store.sqlite.ledger import SqliteLedger
from antiphon.store.sqlite.log import SqliteLogs, remove_own_rows, remove_rows
from antiphon.store.sqlite.open_turns import Name
from antiphon.store.sqlite.shared_inputs import SharedInput, find_heads, release, split
from antiphon.store.sqlite.tool_calls import remove_tool_calls
from antiphon.store.sqlite.turn_writing import KINDS, Begin, Finish
from antiphon.store.turns import (
    Beginning,
    encode_beginning,
    encode_ending,
    encode_short_beginning,
)

__all__ = ["SqliteTurns", "delete_turn", "forget_turn"]

# Reasons that are kept for turns which have not ended yet.
_MOST_LOST_BEGINNINGS: Final = 1000
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
        self._beginnings: dict[Name, Begin] = {}
        """Those that are queued and that no caller waits for, until they are written."""
        self._busy_owners = BusyOwners()

    def begin(
        self,
        owner: str,
        response: Response,
        items: Sequence[Item],
        *,
        batch: Batch | None = None,
        request: bytes | None = None,
    ) -> Awaitable[None]:
        """Queue the turn to be written, now if that takes no thread to encode its items."""
        name = self._presence.name
        if not are_short(items):
            return self._begin_long(name, owner, response, items, batch, request)
        return self._begin(encode_short_beginning(name, owner, response, items, batch, request))

    async def _begin_long(
        self,
        name: str,
        owner: str,
        response: Response,
        items: Sequence[Item],
        batch: Batch | None,
        request: bytes | None,
    ) -> None:
        turn = await encode_beginning(name, owner, response, items, batch, request)
        shared, own = split(self, items, turn.items)
        await self._begin(turn._replace(items=own), shared)

    def _begin(self, turn: Beginning, shared: SharedInput | None = None) -> Promise[None]:
        """Queue the turn. If the last write failed, it is awaited: an early 503 is better."""
        run = Begin(turn, self._beginnings, shared)
        if turn.batch is not None or self._writer.is_ailing:
            is_quiet = self._busy_owners.is_quiet(turn.owner, time.monotonic())
            write = self._writer.call_first if is_quiet else self._writer.call_or_share
            written = write(run, run.size)
            written.add_done_callback(lambda _: self._waiters.wake(turn.id))
            return written
        self._writer.post(run, run.size, on_failure=partial(self._note_lost_beginning, run))
        run.expect_end()
        return kept(None)

    def _note_lost_beginning(self, begin: Begin, fault: StoreUnavailable) -> None:
        """Remember why a turn could not begin, for its end. Runs in the writer's thread."""
        begin.decide()
        self._note_lost(begin.turn.id, fault)

    def _note_lost(self, response_id: str, fault: StoreUnavailable) -> None:
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
        write = self._writer.gather if batch is None else self._writer.call_or_share
        begin = None if batch else self._beginnings.pop((owner, response.id), None)
        run = Finish(turn, begin)
        writing = write(run, run.size)
        if begin is not None:
            begin.is_taken_along = True  # not before: the end may have been refused
        has_rows: bool
        try:
            has_rows = await writing
        except TurnLost as error:
            reason = self._lost_beginnings.pop(response.id, None)
            raise error if reason is None else TurnLost(reason) from error
        except StoreUnavailable as fault:
            if begin is not None and not begin.is_decided:
                self._note_lost(response.id, fault)
            raise
        self._waiters.wake(response.id)
        if has_rows:
            self._purge_later()

    async def get(
        self, owner: str, response_id: str, *, admit: Admit | None = None
    ) -> Response | None:
        def run(connection: sqlite3.Connection) -> Response | AntiphonError | None:
            key = None if admit is None else response_key(connection, owner, response_id)
            if key is not None:
                refusal = refuse_output(connection, owner, key, admit)
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
    heads = {*find_heads(connection, [key for key, *_ in turns]).values()}
    for table in ("items", "logs", "jobs"):
        connection.executemany(
            f"DELETE FROM {table} WHERE response = ? AND owner = ?",  # noqa: S608 # constants
            places,
        )
    connection.executemany("DELETE FROM responses WHERE key = ? AND owner = ?", places)
    release(connection, heads)
