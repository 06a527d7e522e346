"""Facet `files` in SQLite and PostgreSQL. Uploads in parts are in `uploads`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import msgspec

from antiphon.store.base import Claim, ClaimRequest, StoredFile
from antiphon.store.sql.blobs import BLOB, drop_blobs, name_blobs, read_blob, remove_blobs, used
from antiphon.store.sql.claims import earlier_claim, note_claim
from antiphon.store.sql.pages import Listing, read_page
from antiphon.store.sql.steps import Row, Steps, Tables, ask, ask_in

__all__ = ["OnRemoval", "SqlFiles", "insert_file"]

OnRemoval = Callable[[str, Sequence[str]], Steps[None]]
"""Gets the owner and the ids of files that the same transaction removes."""

_COLUMNS: Final = f"files.id, files.purpose, files.created_at, files.expires_at, files.body, {BLOB}"
_SOURCE: Final = "files JOIN blobs ON blobs.id = files.blob"
_CURRENT: Final = "files.owner = $1 AND (files.expires_at IS NULL OR files.expires_at > $2)"
_LISTING: Final = Listing("files", _COLUMNS, _SOURCE, _CURRENT, 2)
_BY_PURPOSE: Final = _LISTING._replace(filter="files.purpose = $3")
_FIND: Final = f"SELECT {_COLUMNS} FROM {_SOURCE} WHERE {_CURRENT} AND files.id IN ({{}})"  # noqa: S608 # constants
_INSERT: Final = """
    INSERT INTO files (owner, id, purpose, created_at, expires_at, blob, body)
    VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (owner, id) DO NOTHING RETURNING id
"""
_BLOB_OF: Final = "SELECT blob FROM files WHERE owner = $1 AND id = $2"
_EXISTS: Final = f"""
    SELECT 1 FROM files WHERE {_CURRENT} AND files.id = $3
    UNION ALL SELECT 1 FROM uploads WHERE uploads.owner = $1 AND uploads.id = $3
"""  # noqa: S608 # constants
_REMOVE: Final = "DELETE FROM files WHERE owner = $1 AND id = $2 RETURNING blob"
_SWEEP: Final = """
    DELETE FROM files WHERE key IN (
        SELECT key FROM files WHERE expires_at <= $1 ORDER BY expires_at LIMIT $2
    ) RETURNING owner, id, blob
"""


class SqlFiles:
    """See `Files` for what the methods do.

    `on_removal` has the steps that remove from elsewhere what belongs to a file, and `clean_ups`
    what is to be done after the transaction of a removal or a sweep.
    """

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self.on_removal: list[OnRemoval] = []
        self.clean_ups: list[Callable[[], Awaitable[None]]] = []

    async def add(
        self, owner: str, file: StoredFile, once: ClaimRequest | None = None
    ) -> Claim | None:
        writer = await self._tables.sign() if once is not None else ""

        def run() -> Steps[Claim | None]:
            earlier = yield from self._earlier(owner, once)
            if earlier is not None and earlier.response_id != file.id:
                yield from drop_blobs(owner, [file.blob.id])
                return earlier
            yield from insert_file(owner, file)
            yield from note_claim(owner, once, file.id, writer)
            return None

        return await self._tables.change(run)

    async def claimed(self, owner: str, once: ClaimRequest) -> Claim | None:
        if not self._tables.is_text(once.token) or await self._tables.is_unused():
            return None
        return await self._tables.change(lambda: self._earlier(owner, once))

    async def find(self, owner: str, ids: Sequence[str], now: int) -> dict[str, StoredFile]:
        names = [name for name in dict.fromkeys(ids) if self._tables.is_text(name)]
        if not names or await self._tables.is_unused():
            return {}
        rows = await self._tables.read(lambda: ask_in(_FIND, (owner, now), names))
        found = {row[0]: _read(row) for row in rows}
        return {name: found[name] for name in names if name in found}

    async def page(
        self,
        owner: str,
        *,
        after: str | None = None,
        limit: int,
        is_descending: bool,
        purpose: str | None = None,
        now: int,
    ) -> list[StoredFile]:
        listing = _LISTING if purpose is None else _BY_PURPOSE
        values = (owner, now) if purpose is None else (owner, now, purpose)
        rows = await read_page(self._tables, listing, values, after, limit, is_descending)
        return [_read(row) for row in rows]

    async def remove(self, owner: str, file_id: str) -> bool:
        def run() -> Steps[bool]:
            rows = yield from ask(_REMOVE, owner, file_id)
            if not rows:
                return False
            yield from self._removed(owner, [file_id], [rows[0][0]])
            return True

        if not self._tables.is_text(file_id) or await self._tables.is_unused():
            return False
        is_removed = await self._tables.remove(run)
        if is_removed:
            await self._clean_up()
        return is_removed

    async def used_bytes(self, owner: str) -> int:
        if await self._tables.is_unused():
            return 0
        return await self._tables.read(lambda: used(owner))

    def sweep_files(self, now: int, limit: int) -> Steps[int]:
        """Remove files that have expired; return how many."""
        rows = yield from ask(_SWEEP, now, limit)
        for owner in {row[0] for row in rows}:
            own = [row for row in rows if row[0] == owner]
            yield from self._removed(owner, [row[1] for row in own], [row[2] for row in own])
        return len(rows)

    async def _clean_up(self) -> None:
        for clean_up in self.clean_ups:
            await clean_up()

    def _removed(self, owner: str, ids: Sequence[str], blobs: Sequence[str]) -> Steps[None]:
        yield from remove_blobs(owner, blobs)
        for react in self.on_removal:
            yield from react(owner, ids)

    def _earlier(self, owner: str, once: ClaimRequest | None) -> Steps[Claim | None]:
        earlier = yield from earlier_claim(owner, once)
        if once is None or earlier is None:
            return None
        found = yield from ask(_EXISTS, owner, once.now, earlier.response_id)
        return earlier if found else None


def insert_file(owner: str, file: StoredFile) -> Steps[None]:
    """Store a file with its blob. Raise ValueError if there is another one with its id."""
    body = msgspec.json.encode({"filename": file.filename})
    values = (owner, file.id, file.purpose, file.created_at, file.expires_at, file.blob.id, body)
    if (yield from ask(_INSERT, *values)):
        yield from name_blobs(owner, [file.blob.id])
        return
    found = yield from ask(_BLOB_OF, owner, file.id)
    if [tuple(row) for row in found] != [(file.blob.id,)]:
        raise ValueError(f"there already is a file {file.id!r}")


def _read(row: Row) -> StoredFile:
    file_id, purpose, created_at, expires_at, body = row[:5]
    return StoredFile(
        id=file_id,
        filename=msgspec.json.decode(body)["filename"],
        purpose=purpose,
        created_at=created_at,
        expires_at=expires_at,
        blob=read_blob(row),
    )
