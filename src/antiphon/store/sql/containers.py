"""Facet `containers` in SQLite and PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from antiphon.store.base import Claim, ClaimRequest, Container, ContainerFile
from antiphon.store.base.files import ENDED_SECONDS
from antiphon.store.sql.blobs import BLOB, drop_blobs, name_blobs, read_blob, remove_blobs
from antiphon.store.sql.claims import earlier_claim, note_claim
from antiphon.store.sql.pages import Listing, read_page
from antiphon.store.sql.steps import Lock, Row, Steps, Tables, ask

__all__ = ["SqlContainers"]

_COLUMNS: Final = "id, created_at, last_active_at, idle_seconds, generation, holder, body"
_LISTING: Final = Listing("containers", _COLUMNS, "containers", "owner = $1", 1)
_FIND: Final = f"SELECT {_COLUMNS} FROM containers WHERE owner = $1 AND id = $2"  # noqa: S608 # constants
_KEY: Final = "SELECT key FROM containers WHERE owner = $1 AND id = $2"
_INSERT: Final = """
    INSERT INTO containers
        (owner, id, created_at, last_active_at, idle_seconds, generation, holder, body)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT (owner, id) DO NOTHING RETURNING key
"""
_USED: Final = "last_active_at = CASE WHEN last_active_at < $3 THEN $3 ELSE last_active_at END"
_CURRENT: Final = "owner = $1 AND id = $2 AND last_active_at + idle_seconds > $3"
_USE: Final = f"UPDATE containers SET {_USED} WHERE {_CURRENT} RETURNING {_COLUMNS}"  # noqa: S608 # constants
_START: Final = f"""
    UPDATE containers SET {_USED}, generation = generation + 1, holder = $4
    WHERE {_CURRENT} RETURNING {_COLUMNS}
"""  # noqa: S608 # constants
_REMOVE: Final = "DELETE FROM containers WHERE key = $1 AND owner = $2"
_EXPIRED: Final = """
    SELECT owner, id, key FROM containers WHERE last_active_at + idle_seconds <= $1
        AND EXISTS (SELECT 1 FROM container_files WHERE container = containers.key)
    ORDER BY last_active_at + idle_seconds LIMIT $2
"""
_OLD: Final = """
    SELECT owner, id, key FROM containers WHERE last_active_at + idle_seconds <= $1
    ORDER BY last_active_at + idle_seconds LIMIT $2
"""

_FILE: Final = (
    "container_files.id, container_files.path, container_files.source,"
    f" container_files.created_at, {BLOB}"
)
_FILES: Final = (
    "containers JOIN container_files ON container_files.container = containers.key"
    " JOIN blobs ON blobs.id = container_files.blob"
)
_IN: Final = "containers.owner = $1 AND containers.id = $2"
_FILE_LISTING: Final = Listing("container_files", _FILE, _FILES, _IN, 2)
_FIND_FILE: Final = f"SELECT {_FILE} FROM {_FILES} WHERE {_IN} AND container_files.id = $3"  # noqa: S608 # constants
_AT_PATH: Final = "SELECT key, id, blob FROM container_files WHERE container = $1 AND path = $2"
_INSERT_FILE: Final = """
    INSERT INTO container_files (container, owner, id, path, source, created_at, blob)
    VALUES ($1, $2, $3, $4, $5, $6, $7)
"""
_REPLACE_FILE: Final = (
    "UPDATE container_files SET source = $1, created_at = $2, blob = $3 WHERE key = $4"
)
_REMOVE_FILE: Final = (
    "DELETE FROM container_files WHERE container = $1 AND owner = $2 AND id = $3 RETURNING blob"
)
_REMOVE_FILES: Final = (
    "DELETE FROM container_files WHERE container = $1 AND owner = $2 RETURNING blob"
)


class SqlContainers:
    """See `Containers` for what the methods do."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    async def add(
        self,
        owner: str,
        container: Container,
        files: Sequence[ContainerFile] = (),
        once: ClaimRequest | None = None,
    ) -> Claim | None:
        writer = await self._tables.sign() if once is not None else ""

        def run() -> Steps[Claim | None]:
            earlier = yield from _earlier(owner, once)
            if earlier is not None and earlier.response_id != container.id:
                yield from drop_blobs(owner, [file.blob.id for file in files])
                return earlier
            key = yield from _insert(owner, container)
            for file in files:
                yield from _put(owner, key, file)
            yield from note_claim(owner, once, container.id, writer)
            return None

        return await self._tables.change(run)

    async def claimed(self, owner: str, once: ClaimRequest) -> Claim | None:
        if not await self._may_have(once.token):
            return None
        return await self._tables.change(lambda: _earlier(owner, once))

    async def find(self, owner: str, container_id: str) -> Container | None:
        if not await self._may_have(container_id):
            return None
        rows = await self._tables.read(lambda: ask(_FIND, owner, container_id))
        return _read(rows[0]) if rows else None

    async def page(
        self, owner: str, *, after: str | None = None, limit: int, is_descending: bool
    ) -> list[Container]:
        rows = await read_page(self._tables, _LISTING, (owner,), after, limit, is_descending)
        return [_read(row) for row in rows]

    async def use(self, owner: str, container_id: str, now: int) -> Container | None:
        if not await self._may_have(container_id):
            return None
        rows = await self._tables.change(lambda: ask(_USE, owner, container_id, now))
        return _read(rows[0]) if rows else None

    async def start(self, owner: str, container_id: str, holder: str, now: int) -> Container | None:
        if not await self._may_have(container_id):
            return None
        rows = await self._tables.change(lambda: ask(_START, owner, container_id, now, holder))
        return _read(rows[0]) if rows else None

    async def remove(self, owner: str, container_id: str) -> bool:
        def run() -> Steps[bool]:
            key = yield from _hold(owner, container_id)
            if key is None:
                return False
            yield from _empty(owner, key)
            yield from ask(_REMOVE, key, owner)
            return True

        if not await self._may_have(container_id):
            return False
        return await self._tables.remove(run)

    async def put_file(
        self, owner: str, container_id: str, file: ContainerFile
    ) -> ContainerFile | None:
        def run() -> Steps[ContainerFile | None]:
            key = yield from _hold(owner, container_id)
            if key is None:
                yield from drop_blobs(owner, [file.blob.id])
                return None
            return (yield from _put(owner, key, file))

        if not self._tables.is_text(container_id):
            return None
        return await self._tables.change(run)

    async def files(
        self,
        owner: str,
        container_id: str,
        *,
        after: str | None = None,
        limit: int,
        is_descending: bool,
    ) -> list[ContainerFile]:
        values = (owner, container_id)
        rows = await read_page(self._tables, _FILE_LISTING, values, after, limit, is_descending)
        return [_read_file(row) for row in rows]

    async def find_file(self, owner: str, container_id: str, file_id: str) -> ContainerFile | None:
        if not (self._tables.is_text(file_id) and await self._may_have(container_id)):
            return None
        rows = await self._tables.read(lambda: ask(_FIND_FILE, owner, container_id, file_id))
        return _read_file(rows[0]) if rows else None

    async def remove_file(self, owner: str, container_id: str, file_id: str) -> bool:
        def run() -> Steps[bool]:
            key = yield from _hold(owner, container_id)
            rows = () if key is None else (yield from ask(_REMOVE_FILE, key, owner, file_id))
            yield from remove_blobs(owner, [row[0] for row in rows])
            return bool(rows)

        if not (self._tables.is_text(file_id) and await self._may_have(container_id)):
            return False
        return await self._tables.remove(run)

    def sweep_files(self, now: int, limit: int) -> Steps[int]:
        """Remove the files of containers that have expired; return how many were emptied."""
        expired = yield from ask(_EXPIRED, now, limit)
        for owner, container_id, key in expired:
            yield from _hold(owner, container_id)
            yield from _empty(owner, key)
        return len(expired)

    def sweep(self, now: int, limit: int) -> Steps[int]:
        """Remove containers that expired long ago; return how many."""
        old = yield from ask(_OLD, now - ENDED_SECONDS, limit)
        for owner, container_id, key in old:
            yield from _hold(owner, container_id)
            yield from _empty(owner, key)
            yield from ask(_REMOVE, key, owner)
        return len(old)

    async def _may_have(self, name: str) -> bool:
        return self._tables.is_text(name) and not await self._tables.is_unused()


def _earlier(owner: str, once: ClaimRequest | None) -> Steps[Claim | None]:
    earlier = yield from earlier_claim(owner, once)
    if earlier is None or not (yield from ask(_KEY, owner, earlier.response_id)):
        return None
    return earlier


def _hold(owner: str, container_id: str) -> Steps[int | None]:
    """Return the key of a container; no other transaction changes its files until this one ends."""
    yield Lock(f"container\n{owner}\n{container_id}")
    rows = yield from ask(_KEY, owner, container_id)
    return int(rows[0][0]) if rows else None


def _insert(owner: str, container: Container) -> Steps[int]:
    """Store a container; return its key. Raise ValueError if there is another one with its id."""
    body = msgspec.json.encode({"name": container.name, "settings": container.settings})
    rows = yield from ask(
        _INSERT,
        owner,
        container.id,
        container.created_at,
        container.last_active_at,
        container.idle_seconds,
        container.generation,
        container.holder,
        body,
    )
    if rows:
        return int(rows[0][0])
    found = yield from ask(_FIND, owner, container.id)
    if not found or _read(found[0]) != container:
        raise ValueError(f"there already is a container {container.id!r}")
    return int((yield from ask(_KEY, owner, container.id))[0][0])


def _put(owner: str, container: int, file: ContainerFile) -> Steps[ContainerFile]:
    """Store a file, in place of one with the same path, whose id it gets."""
    path = file.path.encode("utf-8", "surrogatepass")
    found = yield from ask(_AT_PATH, container, path)
    if not found:
        values = (container, owner, file.id, path, file.source, file.created_at, file.blob.id)
        yield from ask(_INSERT_FILE, *values)
        yield from name_blobs(owner, [file.blob.id])
        return file
    key, file_id, blob = found[0]
    if blob != file.blob.id:
        yield from name_blobs(owner, [file.blob.id])
        yield from ask(_REPLACE_FILE, file.source, file.created_at, file.blob.id, key)
        yield from remove_blobs(owner, [blob])
    return msgspec.structs.replace(file, id=file_id)


def _empty(owner: str, container: int) -> Steps[None]:
    rows = yield from ask(_REMOVE_FILES, container, owner)
    yield from remove_blobs(owner, [row[0] for row in rows])


def _read(row: Row) -> Container:
    container_id, created_at, last_active_at, idle_seconds, generation, holder, body = row
    fields: dict[str, Any] = msgspec.json.decode(body)  # Any: settings of callers
    return Container(
        id=container_id,
        name=fields["name"],
        created_at=created_at,
        last_active_at=last_active_at,
        idle_seconds=idle_seconds,
        settings=fields["settings"],
        generation=generation,
        holder=holder,
    )


def _read_file(row: Row) -> ContainerFile:
    file_id, path, source, created_at = row[:4]
    return ContainerFile(
        id=file_id,
        path=bytes(path).decode("utf-8", "surrogatepass"),
        source=source,
        created_at=created_at,
        blob=read_blob(row),
    )
