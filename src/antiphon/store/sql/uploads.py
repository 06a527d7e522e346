"""Uploads in parts, in SQLite and PostgreSQL: the rest of the facet `files`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from antiphon.store.base import Claim, ClaimRequest, StoredFile, Upload, UploadPart
from antiphon.store.base.files import ENDED_SECONDS
from antiphon.store.sql.blobs import (
    BLOB,
    drop_blobs,
    name_blobs,
    read_blob,
    remove_blobs,
    sweep_blobs,
)
from antiphon.store.sql.claims import note_claim, sweep_claims
from antiphon.store.sql.files import SqlFiles, insert_file
from antiphon.store.sql.steps import Lock, Row, Steps, Tables, ask

__all__ = ["SqlUploads", "Sweep"]

Sweep = Callable[[int, int], Steps[int]]
"""Removes what has expired at this time, so many at most; returns how many."""

_COLUMNS: Final = "key, status, file, body"
_FIND: Final = f"SELECT {_COLUMNS} FROM uploads WHERE owner = $1 AND id = $2"  # noqa: S608 # constants
_INSERT: Final = """
    INSERT INTO uploads (owner, id, expires_at, status, file, body)
    VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (owner, id) DO NOTHING RETURNING id
"""
_END: Final = "UPDATE uploads SET status = $1, file = $2 WHERE key = $3"
_ADD_PART: Final = """
    INSERT INTO upload_parts (upload, owner, id, created_at, blob) VALUES ($1, $2, $3, $4, $5)
"""
_HAS_PART: Final = "SELECT 1 FROM upload_parts WHERE upload = $1 AND owner = $2 AND id = $3"
_PARTS: Final = f"""
    SELECT upload_parts.id, upload_parts.created_at, {BLOB} FROM uploads
    JOIN upload_parts ON upload_parts.upload = uploads.key
    JOIN blobs ON blobs.id = upload_parts.blob
    WHERE uploads.owner = $1 AND uploads.id = $2 ORDER BY upload_parts.key
"""  # noqa: S608 # constants
_REMOVE_PARTS: Final = "DELETE FROM upload_parts WHERE upload = $1 AND owner = $2 RETURNING blob"
_LATE: Final = """
    SELECT owner, id FROM uploads WHERE status = 'pending' AND expires_at <= $1 LIMIT $2
"""
_SWEEP: Final = """
    DELETE FROM uploads WHERE key IN (
        SELECT key FROM uploads WHERE status IN ('completed', 'cancelled', 'expired')
            AND expires_at <= $1 LIMIT $2
    ) RETURNING 1
"""


class SqlUploads(SqlFiles):
    """See `Files` for what the methods do. `sweeps` has what other facets remove in a sweep."""

    def __init__(self, tables: Tables) -> None:
        super().__init__(tables)
        self.sweeps: list[Sweep] = [self.sweep_files, self._expire, _sweep_ended, sweep_blobs]

    async def begin_upload(
        self, owner: str, upload: Upload, once: ClaimRequest | None = None
    ) -> Claim | None:
        writer = await self._tables.sign() if once is not None else ""

        def run() -> Steps[Claim | None]:
            earlier = yield from self._earlier(owner, once)
            if earlier is not None and earlier.response_id != upload.id:
                return earlier
            yield from _insert(owner, upload)
            yield from note_claim(owner, once, upload.id, writer)
            return None

        return await self._tables.change(run)

    async def find_upload(self, owner: str, upload_id: str, now: int) -> Upload | None:
        if not await self._may_have(upload_id):
            return None
        rows = await self._tables.read(lambda: ask(_FIND, owner, upload_id))
        return _read(rows[0], now) if rows else None

    async def add_part(self, owner: str, upload_id: str, part: UploadPart, now: int) -> bool:
        def run() -> Steps[bool]:
            found = yield from _hold(owner, upload_id)
            if found is None or _read(found, now).status != "pending":
                yield from drop_blobs(owner, [part.blob.id])
                return False
            if not (yield from ask(_HAS_PART, found[0], owner, part.id)):
                values = (found[0], owner, part.id, part.created_at, part.blob.id)
                yield from ask(_ADD_PART, *values)
                yield from name_blobs(owner, [part.blob.id])
            return True

        if not self._tables.is_text(upload_id):
            return False
        return await self._tables.change(run)

    async def parts(self, owner: str, upload_id: str) -> list[UploadPart]:
        if not await self._may_have(upload_id):
            return []
        rows = await self._tables.read(lambda: ask(_PARTS, owner, upload_id))
        return [UploadPart(id=row[0], created_at=row[1], blob=read_blob(row)) for row in rows]

    async def complete_upload(
        self, owner: str, upload_id: str, file: StoredFile, now: int
    ) -> Upload | None:
        def run() -> Steps[Upload | None]:
            found = yield from _hold(owner, upload_id)
            if found is not None and found[2] == file.id:
                return _read(found, now)  # this very call has completed it
            if found is None or _read(found, now).status != "pending":
                yield from drop_blobs(owner, [file.blob.id])
                return None
            yield from insert_file(owner, file)
            return (yield from _end(owner, found, "completed", now, file.id))

        if not self._tables.is_text(upload_id):
            return None
        return await self._tables.change(run)

    async def cancel_upload(self, owner: str, upload_id: str, now: int) -> Upload | None:
        def run() -> Steps[Upload | None]:
            found = yield from _hold(owner, upload_id)
            if found is None or _read(found, now).status != "pending":
                return None
            return (yield from _end(owner, found, "cancelled", now))

        if not await self._may_have(upload_id):
            return None
        return await self._tables.change(run)

    async def sweep(self, now: int, limit: int) -> int:
        if await self._tables.is_unused():
            return 0
        count = max([await self._sweep(sweep, now, limit) for sweep in self.sweeps])
        await self._clean_up()
        return count

    async def sweep_claims(self, before: int, limit: int) -> int:
        """Remove the oldest claims made before this time, `limit` at most; return how many."""
        if await self._tables.is_unused():
            return 0
        return await self._tables.change(lambda: sweep_claims(before, limit))

    async def _sweep(self, sweep: Sweep, now: int, limit: int) -> int:
        return await self._tables.change(lambda: sweep(now, limit))

    def _expire(self, now: int, limit: int) -> Steps[int]:
        """Note which uploads were pending for too long, and remove their parts."""
        late = yield from ask(_LATE, now, limit)
        for owner, upload_id in late:
            found = yield from _hold(owner, upload_id)
            if found is not None and found[1] == "pending":
                yield from _end(owner, found, "expired", now)
        return len(late)

    async def _may_have(self, upload_id: str) -> bool:
        return self._tables.is_text(upload_id) and not await self._tables.is_unused()


def _sweep_ended(now: int, limit: int) -> Steps[int]:
    return len((yield from ask(_SWEEP, now - ENDED_SECONDS, limit)))


def _insert(owner: str, upload: Upload) -> Steps[None]:
    """Store an upload. Raise ValueError if there is another one with its id."""
    body = msgspec.json.encode(upload)
    values = (owner, upload.id, upload.expires_at, upload.status, upload.file_id, body)
    if (yield from ask(_INSERT, *values)):
        return
    found = yield from ask(_FIND, owner, upload.id)
    if not found or bytes(found[0][3]) != body:
        raise ValueError(f"there already is an upload {upload.id!r}")


def _hold(owner: str, upload_id: str) -> Steps[Row | None]:
    """Return the row of an upload that no other transaction changes until this one has ended."""
    yield Lock(f"upload\n{owner}\n{upload_id}")
    rows = yield from ask(_FIND, owner, upload_id)
    return rows[0] if rows else None


def _end(owner: str, found: Row, status: str, now: int, file: str | None = None) -> Steps[Upload]:
    yield from ask(_END, status, file, found[0])
    parts = yield from ask(_REMOVE_PARTS, found[0], owner)
    yield from remove_blobs(owner, [row[0] for row in parts])
    return msgspec.structs.replace(_read(found, now), status=status, file_id=file)


def _read(row: Row, now: int) -> Upload:
    """Return the upload as it is now: expired, if it was pending for too long."""
    _, status, file, body = row
    upload = msgspec.json.decode(body, type=Upload)
    if status == "pending" and upload.expires_at <= now:
        status = "expired"
    return msgspec.structs.replace(upload, status=status, file_id=file)
