"""Responses and keys in one SQLite file, which several processes may share.

One thread writes, all that is waiting in one durable transaction; another reads and never
waits for it. A turn can be read as soon as `begin` has returned: a miss while writes are
under way is asked again behind them. This module joins the parts; the SQL is in `statements`,
the threads are in `worker`, the shape of the file is in `migrations`.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from antiphon.protocol.errors import StoreUnavailable
from antiphon.protocol.items import Item
from antiphon.protocol.response import Failure, Response
from antiphon.store import statements
from antiphon.store.base import History, KeyRecord
from antiphon.store.connection import connect, unavailable
from antiphon.store.encoding import StoredItem, check_final, encode_items, encode_turn
from antiphon.store.presence import Presence
from antiphon.store.worker import Reader, Writer

__all__ = ["SqliteStore"]

# SQLite itself waits this long for a lock; the writer asks again until `patience` is over.
_LOCK_WAIT: Final = 0.1

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
        except (sqlite3.Error, OSError, StoreUnavailable) as error:
            raise StoreUnavailable(f"{self.path}: {unavailable(error).message}") from error
        lock_wait = min(_LOCK_WAIT, patience)
        self._writer = Writer(
            partial(connect, self.path, patience=lock_wait, max_bytes=max_bytes), patience
        )
        self._reader = Reader(partial(connect, self.path, patience=patience), patience)

    async def begin(self, owner: str, response: Response, items: Sequence[Item]) -> None:
        """Queue the turn to be written. If writing failed last, wait: better a 503 now."""
        body, rows = encode_turn(response), encode_items(items)
        row = (
            response.id,
            response.previous_response_id,
            response.status,
            self._presence.name,
            response.created_at,
            body,
        )
        run = partial(statements.begin, owner=owner, response=row, items=rows)
        if self._writer.is_ailing:
            await self._writer.call(run, _size(body, rows))
        else:
            self._writer.post(run, _size(body, rows))

    async def finish(self, owner: str, response: Response) -> None:
        """Return when the final state is on the disk."""
        check_final(response)
        body, rows = encode_turn(response), encode_items(response.output)
        run = partial(
            statements.finish,
            owner=owner,
            response_id=response.id,
            status=response.status,
            body=body,
            items=rows,
        )
        obstacle = await self._writer.call(run, _size(body, rows))
        if obstacle is not None:
            raise StoreUnavailable(f"response {response.id!r} {obstacle}; nothing was stored")

    async def get(self, owner: str, response_id: str) -> Response | None:
        """Return a response with its output, finished or not."""
        return await self._read(statements.get, owner, response_id)

    async def delete(self, owner: str, response_id: str) -> bool:
        """Remove a response and its items from the file; say whether there was one."""
        if not _is_storable(response_id):
            return False
        return await self._writer.call(
            partial(statements.delete, owner=owner, response_id=response_id)
        )

    async def history(self, owner: str, response_id: str) -> History | None:
        """Return the items of the whole chain that ends in this response."""
        return await self._read(statements.history, owner, response_id)

    async def input_items(self, owner: str, response_id: str) -> list[Item] | None:
        """Return the turn's own input items in order."""
        return await self._read(statements.input_items, owner, response_id)

    async def find_item(self, owner: str, item_id: str) -> Item | None:
        """Return the newest item with this id that is on the disk."""
        return await self._read(statements.find_item, owner, item_id)

    async def recover(self, failure: Failure, now: int) -> int:
        """End as failed what stores on this file left unfinished that are gone; count them."""
        self._presence.clean()
        return await self._writer.call(
            partial(statements.recover, is_alive=self._presence.is_alive, failure=failure)
        )

    async def sweep(self, before: int) -> int:
        """Remove responses created before this time, in steps that let others write."""
        removed = step = await self._writer.call(partial(statements.sweep, before=before))
        while step == statements.SWEEP_SIZE:
            step = await self._writer.call(partial(statements.sweep, before=before))
            removed += step
        return removed

    async def add_key(self, key: KeyRecord) -> None:
        """Keep a new key. Raise ValueError if its id is taken."""
        if not await self._writer.call(partial(statements.add_key, key=key)):
            raise ValueError(f"there already is a key {key.id!r}")

    async def find_key(self, key_id: str) -> KeyRecord | None:
        """Return the key with this id, revoked or not."""
        if not _is_storable(key_id):
            return None
        return await self._reader.call(partial(statements.find_key, key_id=key_id))

    async def list_keys(self) -> list[KeyRecord]:
        """Return every key, oldest first."""
        return await self._reader.call(statements.list_keys)

    async def revoke_key(self, key_id: str, now: int) -> bool:
        """Mark a key as revoked; False if there is none, or it was revoked or had expired."""
        if not _is_storable(key_id):
            return False
        return await self._writer.call(partial(statements.revoke_key, key_id=key_id, now=now))

    async def ping(self) -> None:
        """Return if the file can be read and written now."""
        await self._writer.call(statements.touch)
        await self._reader.call(statements.look)

    async def close(self) -> None:
        """Write what is queued and let go of files and threads."""
        await self._reader.close()
        await self._writer.close()
        self._presence.close()

    async def _read(
        self, ask: Callable[[sqlite3.Connection, str, str], _T | None], owner: str, name: str
    ) -> _T | None:
        if not _is_storable(name):
            return None

        def run(connection: sqlite3.Connection) -> _T | None:
            return ask(connection, owner, name)

        # Asked first: what was queued may be written while we read, and still be missed.
        is_writing = self._writer.is_busy
        found = await self._reader.call(run)
        if found is None and is_writing:
            await self._writer.call(_do_nothing)
            found = await self._reader.call(run)
        return found


def _size(body: bytes, items: list[StoredItem]) -> int:
    return len(body) + sum(len(item.body) for item in items)


def _is_storable(name: str) -> bool:
    """Say whether a name can be in the file: half a surrogate pair cannot (nor be in UTF-8)."""
    return name.isascii() or not any("\ud800" <= char <= "\udfff" for char in name)


def _do_nothing(_: sqlite3.Connection) -> None:
    """Wait for the transaction that everything queued before is part of."""
