"""A store in one SQLite file, which several processes may share.

One thread writes all waiting changes in one durable transaction; another reads and never waits
for it. A turn can be read as soon as `begin` has returned: a query that finds nothing while
writes are in progress is repeated after them. Appends of other processes are found by polling.
This module joins the parts. Each facet has a module with its SQL; the threads are in `worker`,
the tables in `migrations`, and `presence` knows which stores are alive.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from antiphon.protocol.errors import AntiphonError, StoreUnavailable, TurnLost
from antiphon.protocol.items import Item
from antiphon.protocol.response import Response
from antiphon.store.base import Admit, Batch, Entry, History, KeyRecord, Log, Notice, Orphan
from antiphon.store.base.entries import check_entries
from antiphon.store.encoding import (
    StoredItem,
    check_final,
    decode_aside,
    encode_aside,
    encode_items,
    encode_turn,
    is_storable,
)
from antiphon.store.promise import Promise
from antiphon.store.sqlite.backlog import Run
from antiphon.store.sqlite.claims import SqliteClaims, sweep_claims
from antiphon.store.sqlite.connection import SameFile, connect, look, touch, unavailable
from antiphon.store.sqlite.conversations import SqliteConversations
from antiphon.store.sqlite.entries import KINDS
from antiphon.store.sqlite.erasure import Eraser
from antiphon.store.sqlite.history import find_item, read_history, read_input_items, read_removals
from antiphon.store.sqlite.keys import add_key, find_key, keep_secret, list_keys, revoke_key
from antiphon.store.sqlite.log import Append, purge, read_log
from antiphon.store.sqlite.notices import SqliteNotices, sweep_notices
from antiphon.store.sqlite.presence import Presence
from antiphon.store.sqlite.queue import WriteQueue
from antiphon.store.sqlite.turns import (
    SWEEP_SIZE,
    Beginning,
    Ending,
    begin_turn,
    delete_turn,
    finish_turn,
    forget_turn,
    get_turn,
    sweep_turns,
)
from antiphon.store.sqlite.worker import Reader, Writer
from antiphon.store.sqlite.writers import ask_cancel, asked_cancels, claim_orphans, has_orphans
from antiphon.store.trouble import Trouble
from antiphon.store.waiting import Waiters

__all__ = ["SqliteStore"]

# SQLite itself waits this long for a lock; the writer tries again until `patience` is over.
_LOCK_WAIT: Final = 0.1
# How often to check what another process did to a response.
_LOOK_AGAIN: Final = 0.1
# Closed logs whose rows are removed together, and how long the first of them waits for others.
_PURGE_AT_ONCE: Final = 100
_PURGE_SECONDS: Final = 5.0
# Reasons that are kept for turns which have not ended yet.
_MOST_LOST_BEGINNINGS: Final = 1000

_T = TypeVar("_T")


class SqliteStore:
    """A store in a file. See `Store` for what the methods do.

    `patience` is how long a caller waits for a database that another process has locked.
    `max_bytes` caps the size of the file; over it, writes fail as on a full disk.
    Raises StoreUnavailable if the file cannot be opened or belongs to a newer antiphon.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, patience: float = 5.0, max_bytes: int | None = None
    ) -> None:
        self.path = Path(path).absolute()
        try:
            connect(self.path, patience=patience).close()
            self._presence = Presence(self.path)
            self._presence.clean()
            self._eraser = Eraser(self.path)
            check, trouble = SameFile(self.path).check, Trouble(str(self.path))
        except (sqlite3.Error, OSError, StoreUnavailable) as error:
            raise StoreUnavailable(f"{self.path}: {unavailable(error).message}") from error
        lock_wait = min(_LOCK_WAIT, patience)
        self._writer = Writer(
            partial(connect, self.path, patience=lock_wait, max_bytes=max_bytes),
            patience,
            self._eraser,
            WriteQueue(self.path),
            check,
            trouble,
        )
        self._reader = Reader(
            partial(connect, self.path, patience=patience), patience, check, trouble
        )
        self._waiters = Waiters()
        # How many closed logs are still in the file row by row as well.
        self._closed = 0
        self._purging: asyncio.Task[None] | None = None
        self.conversations = SqliteConversations(self._writer, self._reader, self._presence)
        self.claims = SqliteClaims(self._writer, self._reader, self._presence)
        self.notices = SqliteNotices(self._writer)
        self._lost_beginnings: OrderedDict[str, str] = OrderedDict()
        """Why the beginnings of turns could not be written, by the ids of their responses."""

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
        body, rows = encode_turn(response), await encode_aside(items)
        row = Beginning(
            response.id,
            response.previous_response_id,
            response.status,
            self._presence.name,
            response.created_at,
            body,
        )
        run = partial(
            begin_turn, owner=owner, response=row, items=rows, batch=batch, request=request
        )
        size = len(body) + _size(rows) + _weigh(batch) + len(request or b"")
        if batch is not None or self._writer.is_ailing:
            await self._writer.call_or_share(run, size)
            self._waiters.wake(response.id)
        else:
            note = partial(self._note_lost_beginning, response.id)
            self._writer.post(run, size, on_failure=note)

    def _note_lost_beginning(self, response_id: str, fault: StoreUnavailable) -> None:
        """Remember why a turn could not begin, for its end. Runs in the writer's thread."""
        self._lost_beginnings[response_id] = fault.message
        while len(self._lost_beginnings) > _MOST_LOST_BEGINNINGS:
            self._lost_beginnings.popitem(last=False)

    async def forget(self, owner: str, response_id: str) -> None:
        """Undo a beginning that this store has made; its content is erased a little later."""
        run = partial(forget_turn, owner=owner, writer=self._presence.name, response_id=response_id)
        await self._writer.call_or_share(run, 0)
        self._writer.post(_do_nothing, 0, is_removal=True)

    def append(
        self, owner: str, response_id: str, batch: Batch, *, status: str | None = None
    ) -> Promise[bool]:
        """Return a promise that is done when the batch is on the disk. Streams share commits."""
        run: Run[bool] = Append(owner, response_id, self._presence.name, batch, status)
        appended = self._writer.share(run, len(batch.body))
        appended.add_done_callback(lambda _: self._waiters.wake(response_id))
        return appended

    async def finish(
        self,
        owner: str,
        response: Response,
        *,
        batch: Batch | None = None,
        said: Sequence[Item] = (),
        notices: Sequence[Notice] = (),
        entries: Sequence[Entry] = (),
    ) -> None:
        """Return when the final state and everything that belongs to it is on the disk."""
        check_final(response)
        kept = (*notices, *entries)
        check_entries(kept, KINDS)
        added = await encode_aside(said)
        ending = Ending(
            response.id,
            response.status,
            encode_turn(response),
            encode_items(response.output),
            batch,
            added,
            kept,
        )
        run = partial(finish_turn, owner=owner, writer=self._presence.name, ending=ending)
        size = len(ending.body) + _size(ending.output) + _size(ending.said) + _weigh(batch)
        write = self._writer.call if batch is None else self._writer.call_or_share
        has_rows: bool
        try:
            has_rows = await write(run, size)
        except TurnLost as error:
            reason = self._lost_beginnings.pop(response.id, None)
            raise error if reason is None else TurnLost(reason) from error
        self._waiters.wake(response.id)
        if has_rows:
            self._purge_later()

    async def get(
        self, owner: str, response_id: str, *, admit: Admit | None = None
    ) -> Response | None:
        """Return a response with its output, finished or not."""
        return await self._read(partial(get_turn, admit=admit), owner, response_id)

    async def read_log(self, owner: str, response_id: str, after: int = -1) -> Log | None:
        """Return every batch that has an event after the sequence number `after`."""
        return await self._read(partial(read_log, after=after), owner, response_id)

    async def wait(self, response_id: str, seconds: float) -> None:
        """Return when this process changed the response, or it is time to check again."""
        await self._waiters.wait(response_id, min(seconds, _LOOK_AGAIN))

    async def delete(self, owner: str, response_id: str) -> bool:
        """Remove a response, its items and its log from the file; return whether there was one."""
        if not is_storable(response_id):
            return False
        found = await self._writer.remove(
            partial(delete_turn, owner=owner, response_id=response_id)
        )
        self._waiters.wake(response_id)
        return found

    async def history(
        self, owner: str, response_id: str, *, admit: Admit | None = None
    ) -> History | None:
        """Return the items of the whole chain that ends in this response."""
        read = await self._read(partial(read_history, admit=admit), owner, response_id)
        if read is None:
            return None
        history, bodies = read
        return msgspec.structs.replace(history, items=await decode_aside(bodies))

    async def removals(self) -> int:
        """Return how often something was removed from the file, by any process."""
        return await self._reader.call(read_removals)

    async def input_items(
        self, owner: str, response_id: str, *, admit: Admit | None = None
    ) -> list[Item] | None:
        """Return the turn's own input items in order."""
        read = partial(read_input_items, admit=admit)
        bodies = await self._read(read, owner, response_id)
        return None if bodies is None else await decode_aside(bodies)

    async def find_item(self, owner: str, item_id: str) -> Item | None:
        """Return the newest item with this id that is on the disk."""
        return await self._read(find_item, owner, item_id)

    async def ask_cancel(self, owner: str, response_id: str) -> bool:
        """Ask the writer of an unfinished response to cancel it; return whether there is one."""
        if not is_storable(response_id):
            return False
        found = await self._writer.call(partial(ask_cancel, owner=owner, response_id=response_id))
        self._waiters.wake(response_id)
        return found

    async def asked_cancels(self) -> list[tuple[str, str]]:
        """Return owner and id of the responses of this store that it was asked to cancel."""
        return await self._reader.call(partial(asked_cancels, writer=self._presence.name))

    async def claim_orphans(self, limit: int) -> list[Orphan]:
        """Become the writer of unfinished responses whose writer has died, oldest first."""
        # Called often, and mostly without result: reading does not delay writers.
        is_alive = self._presence.is_alive
        if not await self._reader.call(partial(has_orphans, is_alive=is_alive)):
            return []
        claim = partial(
            claim_orphans,
            writer=self._presence.name,
            is_alive=is_alive,
            limit=limit,
        )
        return await self._writer.call(claim)

    async def sweep(self, before: int, claims_before: int) -> int:
        """Remove old responses, notices and claims, in steps between which others write."""
        await self._purge()
        removed = await self._in_steps(partial(sweep_turns, before=before))
        await self._writer.call(partial(sweep_notices, before=before))
        limit = SWEEP_SIZE
        await self._in_steps(partial(sweep_claims, before=claims_before, limit=limit))
        if removed:
            await self._writer.remove(_do_nothing)
        return removed

    async def secret(self, name: str, value: bytes) -> bytes:
        """Return the secret of this name; if it is new, store and return this value."""
        return await self._writer.call(partial(keep_secret, name=name, value=value))

    async def add_key(self, key: KeyRecord) -> None:
        """Store a new key. Raise ValueError if its id is taken."""
        if not await self._writer.call(partial(add_key, key=key)):
            raise ValueError(f"there already is a key {key.id!r}")

    async def find_key(self, key_id: str) -> KeyRecord | None:
        """Return the key with this id, revoked or not."""
        if not is_storable(key_id):
            return None
        return await self._reader.call(partial(find_key, key_id=key_id))

    async def list_keys(self) -> list[KeyRecord]:
        """Return every key, oldest first."""
        return await self._reader.call(list_keys)

    async def revoke_key(self, key_id: str, now: int) -> bool:
        """Mark a key as revoked; False if it does not exist, was revoked or has expired."""
        if not is_storable(key_id):
            return False
        return await self._writer.call(partial(revoke_key, key_id=key_id, now=now))

    async def ping(self) -> None:
        """Return if the file can be read and written now."""
        await self._writer.call(touch)
        await self._reader.call(look)

    async def close(self) -> None:
        """Write what is queued, and close files and threads."""
        if self._purging is not None:
            self._purging.cancel()
        is_left = self._closed > 0 or self._purging is not None
        self._closed = 0  # a timer that is set will find nothing to do
        if is_left:
            await self._try_to_purge()
        await self._reader.close()
        await self._writer.close()
        self._eraser.close()
        self._presence.close()

    def _purge_later(self) -> None:
        """Remove the rows of a closed log together with those of others."""
        self._closed += 1
        if self._closed >= _PURGE_AT_ONCE:
            self._begin_purge()
        elif self._closed == 1:
            asyncio.get_running_loop().call_later(_PURGE_SECONDS, self._begin_purge)

    def _begin_purge(self) -> None:
        if self._closed and (self._purging is None or self._purging.done()):
            self._closed = 0
            self._purging = asyncio.get_running_loop().create_task(self._try_to_purge())

    async def _try_to_purge(self) -> None:
        with suppress(StoreUnavailable):  # closed, or not working: the next sweep does it
            await self._purge()
        if self._closed:  # since
            asyncio.get_running_loop().call_later(_PURGE_SECONDS, self._begin_purge)

    async def _purge(self) -> None:
        """Remove the rows of all closed logs, in steps between which others write."""
        place: int | None = 0
        while place is not None:
            place = await self._writer.share(partial(purge, start=place), 0)

    async def _in_steps(self, remove: Callable[[sqlite3.Connection], int]) -> int:
        removed = step = await self._writer.call(remove)
        while step == SWEEP_SIZE:
            step = await self._writer.call(remove)
            removed += step
        return removed

    async def _read(
        self,
        ask: Callable[[sqlite3.Connection, str, str], _T | AntiphonError | None],
        owner: str,
        name: str,
    ) -> _T | None:
        if not is_storable(name):
            return None

        def run(connection: sqlite3.Connection) -> _T | AntiphonError | None:
            return ask(connection, owner, name)

        # Checked first: what was queued may be written while we read, and still be missed.
        is_writing = self._writer.is_busy
        found = await self._reader.call(run)
        if found is None and is_writing:
            await self._writer.call(_do_nothing)
            found = await self._reader.call(run)
        return found


def _size(items: Sequence[StoredItem]) -> int:
    return sum(len(item.body) for item in items)


def _weigh(batch: Batch | None) -> int:
    return 0 if batch is None else len(batch.body)


def _do_nothing(_: sqlite3.Connection) -> bool:
    """Do nothing: the caller waits for the transaction of all jobs before this one."""
    return True
