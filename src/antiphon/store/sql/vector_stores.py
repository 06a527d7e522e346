"""Facet `vector_stores` in SQLite and PostgreSQL, without the words and the search.

Removed text is erased before the caller of a removal is answered, where the database can do that
(see `clean_up`).
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from antiphon.store.base import Claim, ClaimRequest
from antiphon.store.base.vector_stores import (
    AttachedFile,
    Attributes,
    Chunk,
    FileBatch,
    Job,
    VectorStore,
)
from antiphon.store.made import Made, as_shown, name_made, read_made
from antiphon.store.sql import vector_files, vector_jobs
from antiphon.store.sql.claims import earlier_claim, note_claim
from antiphon.store.sql.pages import Listing, read_page
from antiphon.store.sql.steps import Steps, Tables, ask
from antiphon.store.sql.vector_jobs import ChunkTables
from antiphon.store.sql.vector_lists import list_files, list_texts
from antiphon.store.vector_rows import store_body

__all__ = ["SqlVectorStores"]

_T = TypeVar("_T")
_LISTING: Final = Listing("vector_stores", vector_files.STORE, "vector_stores", "owner = $1", 1)
_TOUCH: Final = """
    UPDATE vector_stores SET last_active_at = $1, expires_at = $1 + expires_after_days * 86400
    WHERE owner = $2 AND id = $3 AND last_active_at < $1
        AND (expires_at IS NULL OR expires_at > $1)
"""
_CHANGE: Final = "UPDATE vector_stores SET body = $1 WHERE owner = $2 AND id = $3"
_EXPIRY: Final = """
    UPDATE vector_stores SET expires_after_days = $1, expires_at = last_active_at + $2
    WHERE owner = $3 AND id = $4 AND is_emptied = 0
"""
_BATCH: Final = """
    INSERT INTO vector_batches (store, id, created_at, is_cancelled) VALUES ($1, $2, $3, 0)
    ON CONFLICT (store, id) DO NOTHING
"""
_IS_EMPTIED: Final = "SELECT is_emptied FROM vector_stores WHERE key = $1"
_IS_INSIDE: Final = """
    SELECT 1 FROM vector_files WHERE store = $1 AND file = $2
    UNION ALL SELECT 1 FROM vector_batches WHERE store = $1 AND id = $2
"""
_DAY: Final = 86_400


class SqlVectorStores:
    """See `VectorStores` for what the methods do."""

    def __init__(self, tables: Tables, chunks: ChunkTables) -> None:
        self._tables = tables
        self._chunks = chunks

    async def add(
        self,
        owner: str,
        store: VectorStore,
        files: Sequence[AttachedFile] = (),
        once: ClaimRequest | None = None,
    ) -> Claim | None:
        writer = await self._tables.sign()

        def run() -> Steps[Claim | None]:
            earlier = yield from _earlier(owner, once)
            if earlier is not None and earlier.response_id != store.id:
                return earlier
            found = yield from vector_files.lock_store(owner, store.id)
            if found is not None:
                if earlier is not None:
                    return None  # the answer to our commit was lost
                raise ValueError(f"there already is a vector store {store.id!r}")
            key = yield from vector_files.insert_store(owner, store)
            for file in files:
                yield from vector_files.attach_file(owner, key, file)
            yield from note_claim(owner, once, store.id, writer)
            return None

        return await self._tables.change(run)

    async def claimed(self, owner: str, once: ClaimRequest) -> Claim | None:
        if not self._tables.is_text(once.token) or await self._tables.is_unused():
            return None
        return await self._tables.change(lambda: _earlier(owner, once))

    async def find(self, owner: str, ids: Sequence[str]) -> dict[str, VectorStore]:
        names = [name for name in dict.fromkeys(ids) if self._tables.is_text(name)]
        if not names or await self._tables.is_unused():
            return {}

        def run() -> Steps[dict[str, VectorStore]]:
            found: dict[str, VectorStore] = {}
            for name in names:
                store = yield from vector_files.find_store(owner, name)
                if store is not None:
                    found[name] = store
            return found

        return await self._tables.read(run)

    async def page(
        self, owner: str, *, after: str | None = None, limit: int, is_descending: bool
    ) -> list[VectorStore]:
        rows = await read_page(self._tables, _LISTING, (owner,), after, limit, is_descending)

        def run() -> Steps[list[VectorStore]]:
            stores: list[VectorStore] = []
            for row in rows:
                stores.append((yield from vector_files.show_store(row)))
            return stores

        return await self._tables.read(run)

    async def change(self, owner: str, store: VectorStore) -> VectorStore | None:
        days = store.expires_after_days
        seconds = None if days is None else days * _DAY

        def run() -> Steps[VectorStore | None]:
            yield from vector_files.lock_store(owner, store.id)
            yield from ask(_CHANGE, store_body(store), owner, store.id)
            yield from ask(_EXPIRY, days, seconds, owner, store.id)
            return (yield from vector_files.find_store(owner, store.id))

        return await self._tables.change(run) if self._tables.is_text(store.id) else None

    async def touch(self, owner: str, ids: Sequence[str], now: int) -> None:
        names = [name for name in ids if self._tables.is_text(name)]
        if await self._tables.is_unused():
            return

        def run() -> Steps[None]:
            for name in sorted(names):
                yield from ask(_TOUCH, now, owner, name)

        await self._tables.change(run)

    async def remove(self, owner: str, store_id: str) -> bool:
        return self._tables.is_text(store_id) and await self._remove(
            lambda: vector_files.remove_store(owner, store_id)
        )

    async def attach(
        self,
        owner: str,
        store_id: str,
        files: Sequence[AttachedFile],
        batch: FileBatch | None = None,
        once: ClaimRequest | None = None,
    ) -> Claim | bool:
        writer = await self._tables.sign()
        made = Made(store_id, files[0].file_id if batch is None else batch.id)

        def run() -> Steps[Claim | bool]:
            earlier = yield from _earlier(owner, once)
            if earlier is not None:
                return earlier
            store = yield from vector_files.lock_store(owner, store_id)
            if store is None or (yield from ask(_IS_EMPTIED, store))[0][0]:
                return False
            yield from _attach(owner, store, files, batch)
            yield from note_claim(owner, once, name_made(made), writer)
            return True

        if not self._tables.is_text(store_id):
            return False
        result = await self._tables.change(run)
        if result is True:
            await self.clean_up()
        return result

    async def find_file(self, owner: str, store_id: str, file_id: str) -> AttachedFile | None:
        return await self._inside(
            owner, [store_id, file_id], lambda store: vector_files.show_file(store, file_id), None
        )

    async def files(
        self,
        owner: str,
        store_id: str,
        *,
        batch_id: str | None = None,
        status: str | None = None,
        after: str | None = None,
        before: str | None = None,
        limit: int,
        is_descending: bool,
    ) -> list[AttachedFile]:
        for cursor in (after, before):
            if cursor is not None and not self._tables.is_text(cursor):
                raise KeyError(cursor)

        def run(store: int) -> Steps[list[AttachedFile]]:
            return list_files(
                store,
                batch_id=batch_id,
                status=status,
                after=after,
                before=before,
                limit=limit,
                is_descending=is_descending,
            )

        return await self._inside(owner, [store_id, batch_id or "", status or ""], run, [])

    async def set_attributes(
        self, owner: str, store_id: str, file_id: str, attributes: Attributes
    ) -> AttachedFile | None:
        return await self._change_inside(
            owner,
            [store_id, file_id],
            lambda store: vector_files.set_attributes(store, file_id, attributes),
        )

    async def detach(self, owner: str, store_id: str, file_id: str) -> bool:
        def run() -> Steps[bool]:
            store = yield from vector_files.lock_store(owner, store_id)
            return store is not None and (yield from vector_files.detach_file(store, file_id))

        is_text = self._tables.is_text(store_id) and self._tables.is_text(file_id)
        return is_text and await self._remove(run)

    async def find_batch(self, owner: str, store_id: str, batch_id: str) -> FileBatch | None:
        return await self._inside(
            owner,
            [store_id, batch_id],
            lambda store: vector_files.show_batch(store, batch_id),
            None,
        )

    async def cancel_batch(self, owner: str, store_id: str, batch_id: str) -> FileBatch | None:
        def run(store: int) -> Steps[FileBatch | None]:
            yield from vector_files.cancel_files(store, batch_id)
            return (yield from vector_files.show_batch(store, batch_id))

        found = await self._change_inside(owner, [store_id, batch_id], run)
        await self.clean_up()
        return found

    async def chunks(
        self, owner: str, store_id: str, file_id: str, *, after: int = -1, limit: int
    ) -> list[str]:
        absent: list[str | bytes] = []
        texts = await self._inside(
            owner,
            [store_id, file_id],
            lambda store: list_texts(store, file_id, after, limit),
            absent,
        )
        return [text if isinstance(text, str) else text.decode() for text in texts]

    async def take_job(self, holder: str, now: float, seconds: float) -> Job | None:
        # Read first: where nothing is to be done, nothing is written.
        if not await self.jobs_waiting():
            return None
        lease = secrets.randbits(62) | 1
        return await self._tables.change(lambda: vector_jobs.take_job(lease, now, seconds))

    async def renew_job(self, job: Job, now: float, seconds: float) -> bool:
        return await self._tables.change(lambda: vector_jobs.renew_job(job, now + seconds))

    async def add_chunks(self, job: Job, chunks: Sequence[Chunk], *, embedding: str = "") -> bool:
        call = secrets.randbits(62) | 1
        return await self._tables.change(
            lambda: vector_jobs.add_chunks(self._chunks, job, chunks, embedding, call)
        )

    async def add_vectors(
        self, job: Job, first: int, vectors: Sequence[bytes], *, embedding: str
    ) -> bool:
        return await self._tables.change(
            lambda: vector_jobs.add_vectors(self._chunks, job, first, vectors, embedding)
        )

    async def end_job(
        self, job: Job, *, error_code: str | None = None, error_message: str | None = None
    ) -> bool:
        return await self._tables.change(
            lambda: vector_jobs.end_job(job, error_code, error_message)
        )

    async def release_job(self, job: Job, *, until: float = 0.0) -> bool:
        return await self._tables.change(lambda: vector_jobs.release_job(job, until))

    async def jobs_waiting(self) -> int:
        if await self._tables.is_unused():
            return 0
        ((count,),) = await self._tables.read(lambda: ask("SELECT count(*) FROM vector_jobs"))
        return int(count)

    async def expire(self, now: int, limit: int) -> int:
        if await self._tables.is_unused():
            return 0
        count = await self._tables.change(lambda: vector_files.empty_expired(now, limit))
        await self.clean_up()
        return count

    async def clean_up(self) -> None:
        """Erase the chunks that no file has any more, for as long as a caller waits."""
        raise NotImplementedError

    async def _remove(self, run: Callable[[], Steps[bool]]) -> bool:
        is_removed = not await self._tables.is_unused() and await self._tables.change(run)
        if is_removed:
            await self.clean_up()
        return is_removed

    async def _inside(
        self, owner: str, names: Sequence[str], run: Callable[[int], Steps[_T]], absent: _T
    ) -> _T:
        """Read something in the vector store that is named first."""

        def find() -> Steps[_T]:
            store = yield from vector_files.find_key(owner, names[0])
            return absent if store is None else (yield from run(store))

        if not all(map(self._tables.is_text, names)) or await self._tables.is_unused():
            return absent
        return await self._tables.read(find)

    async def _change_inside(
        self, owner: str, names: Sequence[str], run: Callable[[int], Steps[_T | None]]
    ) -> _T | None:
        """Change something in the vector store that is named first."""

        def change() -> Steps[_T | None]:
            store = yield from vector_files.lock_store(owner, names[0])
            return None if store is None else (yield from run(store))

        return await self._tables.change(change) if all(map(self._tables.is_text, names)) else None


def _attach(
    owner: str, store: int, files: Sequence[AttachedFile], batch: FileBatch | None
) -> Steps[None]:
    batch_id = None if batch is None else batch.id
    if batch is not None:
        yield from ask(_BATCH, store, batch.id, batch.created_at)
    for file in files:
        yield from vector_files.attach_file(owner, store, file, batch_id)


def _earlier(owner: str, once: ClaimRequest | None) -> Steps[Claim | None]:
    """Return the claim that counts on this token, if what was made still exists."""
    claim = yield from earlier_claim(owner, once)
    if claim is None:
        return None
    made = read_made(claim.response_id)
    store = yield from vector_files.find_key(owner, made.store_id)
    if store is None:
        return None
    if made.inside is not None and not (yield from ask(_IS_INSIDE, store, made.inside)):
        return None
    return as_shown(claim)
