"""Facet `blobs` in PostgreSQL: the contents are rows of at most a megabyte each.

A blob has a row from its beginning, so that the sweep finds what a node that died has left.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from contextlib import suppress
from typing import Final

from antiphon.protocol.errors import StoreUnavailable
from antiphon.store.base.blobs import PIECE_BYTES, Blob, BlobGone, BlobWriter
from antiphon.store.postgres.database import Connection, Database, UncertainCommit
from antiphon.store.postgres.rows import is_text
from antiphon.store.postgres.tables import delete_blobs
from antiphon.transport.aside import aside_if

__all__ = ["PostgresBlobs"]

_CREATE: Final = """
    INSERT INTO blobs (owner, id, size, sha256, created_at, state) VALUES ($1, $2, 0, $3, $4, 0)
    ON CONFLICT (id) DO NOTHING
"""
_WRITE: Final = """
    INSERT INTO blob_pieces (blob, position, body)
    SELECT key, $2, $3 FROM blobs WHERE id = $1 AND state = 0
    ON CONFLICT (blob, position) DO NOTHING
"""
_FINISH: Final = """
    UPDATE blobs SET size = $2, sha256 = $3
    WHERE id = $1 AND state = 0
        AND $4 = (SELECT count(*) FROM blob_pieces WHERE blob = blobs.key)
    RETURNING TRUE
"""
_ABORT: Final = "UPDATE blobs SET state = 2 WHERE id = $1 AND state = 0"
_READ: Final = f"""
    SELECT substring(body FROM greatest($3 - position * {PIECE_BYTES}, 0)::int + 1 FOR $6)
    FROM blobs JOIN blob_pieces ON blob = key
    WHERE owner = $1 AND id = $2 AND state < 2 AND position BETWEEN $4 AND $5
    ORDER BY position
"""  # noqa: S608 # constants


class PostgresBlobs:
    """See `Blobs` for what the methods do."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def create(self, owner: str) -> BlobWriter:
        blob = secrets.token_hex(16)
        await self._database.ask_value(_CREATE, owner, blob, b"", int(time.time()))
        return _Writer(self._database, blob)

    async def read(self, owner: str, blob: str, offset: int, size: int) -> bytes:
        if size <= 0 or not is_text(blob):
            return b""
        first, last = offset // PIECE_BYTES, (offset + size - 1) // PIECE_BYTES
        most = min(size, PIECE_BYTES)
        rows = await self._database.ask_rows(_READ, owner, blob, offset, first, last, most)
        return b"".join(row[0] for row in rows)[:size]


class _Writer:
    """Writes one blob, a megabyte at a time."""

    def __init__(self, database: Database, blob: str) -> None:
        self._database = database
        self._blob = blob
        self._rest = bytearray()
        self._size = 0
        self._count = 0
        self._hash = hashlib.sha256()
        self._is_ended = False

    async def write(self, data: bytes) -> None:
        self._rest += data
        await aside_if(len(data) > PIECE_BYTES, self._hash.update, data)
        while len(self._rest) >= PIECE_BYTES:
            await self._flush(PIECE_BYTES)

    async def finish(self) -> Blob:
        if self._rest:
            await self._flush(len(self._rest))
        digest = self._hash.digest()
        values = (self._blob, self._size, digest, self._count)
        if self._is_ended or not await self._database.ask_value(_FINISH, *values):
            raise BlobGone
        self._is_ended = True
        return Blob(self._blob, self._size, digest)

    async def abort(self) -> None:
        if self._is_ended:
            return
        self._is_ended = True
        with suppress(StoreUnavailable):  # then it is swept
            await self._database.ask_value(_ABORT, self._blob)
            await delete_blobs(self._database, [self._blob])

    async def _flush(self, size: int) -> None:
        piece = bytes(self._rest[:size])
        del self._rest[:size]
        place, self._count = self._count, self._count + 1
        self._size += len(piece)

        async def run(connection: Connection) -> None:
            await connection.execute(_WRITE, self._blob, place, piece)

        try:
            await self._database.change(run)
        except UncertainCommit:
            await self._database.change(run)
