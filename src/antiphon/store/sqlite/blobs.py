"""Facet `blobs` in SQLite: rows in the second database, contents in files (see `folder`).

A row is stored before the content gets its final name, and removed after it was deleted. So there
is no content without a row, except for what a crash left in `new/`, which the sweep deletes.
"""

from __future__ import annotations

import asyncio
import secrets
import sqlite3
import time
from contextlib import suppress
from typing import Final

from antiphon.protocol.errors import StoreUnavailable
from antiphon.store.base.blobs import PIECE_BYTES, UNNAMED_SECONDS, Blob, BlobWriter
from antiphon.store.encoding import is_storable
from antiphon.store.sqlite.files_database import FilesDatabase, Gone
from antiphon.store.sqlite.folder import Draft

__all__ = ["SqliteBlobs"]

_INSERT: Final = """
    INSERT INTO blobs (owner, id, size, sha256, created_at, state)
    SELECT :owner, :id, :size, :sha256, :now, 0
    WHERE :most IS NULL OR (SELECT coalesce(sum(size), 0) FROM blobs) + :size <= :most
"""
_DROP: Final = "UPDATE blobs SET state = 2 WHERE id = ? AND state = 0"
_FIND: Final = "SELECT 1 FROM blobs WHERE id = ? AND owner = ? AND state < 2"


class SqliteBlobs:
    """See `Blobs` for what the methods do."""

    def __init__(self, database: FilesDatabase) -> None:
        self._database = database

    async def create(self, owner: str) -> BlobWriter:
        blob = secrets.token_hex(16)
        return _Writer(self._database, owner, blob, await self._database.folder.begin(blob))

    async def read(self, owner: str, blob: str, offset: int, size: int) -> bytes:
        if not is_storable(blob) or size <= 0 or not await self._has(owner, blob):
            return b""
        found = await self._database.folder.read(blob, offset, size)
        if found is None and await self._has(owner, blob):
            raise StoreUnavailable(
                "the content of a file is missing in the folder of the store: restore the folder"
                " from the same backup as the database"
            )
        return found or b""

    async def sweep(self, now: int, limit: int) -> int:
        """Delete what was begun long ago and never completed; return how much."""
        return await self._database.folder.sweep(now - UNNAMED_SECONDS, limit)

    async def _has(self, owner: str, blob: str) -> bool:
        if not await self._database.exists():
            return False
        return await self._database.read(
            lambda connection: connection.execute(_FIND, (blob, owner)).fetchone() is not None
        )


class _Writer:
    """Writes one blob, a megabyte at a time."""

    def __init__(self, database: FilesDatabase, owner: str, blob: str, draft: Draft) -> None:
        self._database = database
        self._owner = owner
        self._blob = blob
        self._draft = draft
        self._rest = bytearray()
        self._size = 0
        self._is_ended = False
        # Whether there may be a row of it.
        self._is_stored = False

    async def write(self, data: bytes) -> None:
        self._rest += data
        self._size += len(data)
        if len(self._rest) >= PIECE_BYTES:
            await self._flush()

    async def finish(self) -> Blob:
        await self._flush()
        digest = await self._database.folder.run(self._draft.sync)
        if self._is_ended or self._draft.size != self._size:
            raise StoreUnavailable("a piece of the content was not stored; send it again")
        blob = Blob(self._blob, self._size, digest)
        self._is_stored = True
        await self._database.write(lambda connection: self._insert(connection, blob))
        await self._database.folder.publish(self._draft)
        self._is_ended = True
        return blob

    async def abort(self) -> None:
        if self._is_ended:
            return
        self._is_ended = True
        with suppress(OSError, StoreUnavailable):  # then it is swept
            await asyncio.to_thread(self._draft.discard)  # also when the store is closed
            if self._is_stored:
                await self._database.change(self._remove)

    async def _flush(self) -> None:
        data, self._rest = bytes(self._rest), bytearray()
        await self._database.folder.run(self._draft.write, data)

    def _insert(self, connection: sqlite3.Connection, blob: Blob) -> StoreUnavailable | None:
        values = {"owner": self._owner, "id": blob.id, "size": blob.size, "sha256": blob.sha256}
        more = {"now": int(time.time()), "most": self._database.max_bytes}
        if connection.execute(_INSERT, values | more).rowcount:
            return None
        return StoreUnavailable(
            "there is no room left for files in the store; nothing was stored: free some"
        )

    def _remove(self, connection: sqlite3.Connection, gone: Gone) -> bool:
        if connection.execute(_DROP, (self._blob,)).rowcount:
            gone.append(self._blob)
        return True
