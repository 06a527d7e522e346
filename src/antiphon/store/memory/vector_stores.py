"""Facet `vector_stores` in memory: the vector stores and their files.

Bounded: beyond `room` vector stores, the one that was made first is removed. Jobs and the search
are in modules of their own; all of them share `Shelf`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec

from antiphon.store.base import Claim, ClaimRequest
from antiphon.store.base.vector_stores import (
    AttachedFile,
    Attributes,
    FileBatch,
    FoundChunk,
    Search,
    VectorStore,
)
from antiphon.store.made import Made, as_shown, name_made, read_made
from antiphon.store.memory.claims import MemoryClaims
from antiphon.store.memory.shelf import Kept, KeptFile, Shelf
from antiphon.store.memory.vector_jobs import MemoryVectorJobs
from antiphon.store.memory.vector_search import search_stores

__all__ = ["MemoryVectorStores"]

_T = TypeVar("_T")
_replace = msgspec.structs.replace


class MemoryVectorStores(MemoryVectorJobs):
    """See `VectorStores` for what the methods do."""

    def __init__(
        self, check_open: Callable[[], None], claims: MemoryClaims, room: int = 10_000
    ) -> None:
        super().__init__(check_open, Shelf())
        self._claims = claims
        self._room = room
        self.fault: str | None = None

    async def engine(self) -> str:
        return "Python, exact, in memory"

    async def add(
        self,
        owner: str,
        store: VectorStore,
        files: Sequence[AttachedFile] = (),
        once: ClaimRequest | None = None,
    ) -> Claim | None:
        earlier = await self.claimed(owner, once)
        if earlier is not None:
            return earlier
        if (owner, store.id) in self._shelf.stores:
            raise ValueError(f"there already is a vector store {store.id!r}")
        while len(self._shelf.stores) >= self._room:
            self._shelf.remove(*next(iter(self._shelf.stores)))
        kept = self._shelf.stores[owner, store.id] = Kept(owner, store)
        self._shelf.attach(kept, files)
        self._claims.note_once(owner, once, store.id)
        return None

    async def claimed(self, owner: str, once: ClaimRequest | None) -> Claim | None:
        self._check_open()
        earlier = self._claims.earlier(owner, once)
        if earlier is None or not self._shelf.has(owner, read_made(earlier.response_id)):
            return None
        return as_shown(earlier)

    async def find(self, owner: str, ids: Sequence[str]) -> dict[str, VectorStore]:
        self._check_open()
        found = ((name, self._shelf.stores.get((owner, name))) for name in ids)
        return {name: kept.shown() for name, kept in found if kept is not None}

    async def page(
        self, owner: str, *, after: str | None = None, limit: int, is_descending: bool
    ) -> list[VectorStore]:
        self._check_open()
        mine = [kept for kept in self._shelf.stores.values() if kept.owner == owner]
        mine.sort(key=lambda kept: kept.store.created_at)
        if is_descending:
            mine.reverse()
        return [kept.shown() for kept in _cut([k.store.id for k in mine], mine, after, None, limit)]

    async def change(self, owner: str, store: VectorStore) -> VectorStore | None:
        kept = self._find(owner, store.id)
        if kept is None:
            return None
        days = kept.store.expires_after_days if kept.is_emptied else store.expires_after_days
        kept.store = _replace(
            kept.store,
            name=store.name,
            description=store.description,
            metadata=dict(store.metadata),
            expires_after_days=days,
        )
        return kept.shown()

    async def touch(self, owner: str, ids: Sequence[str], now: int) -> None:
        self._check_open()
        for name in ids:
            kept = self._shelf.stores.get((owner, name))
            if kept is not None and not kept.has_expired(now):
                active = max(now, kept.store.last_active_at)
                kept.store = _replace(kept.store, last_active_at=active)

    async def remove(self, owner: str, store_id: str) -> bool:
        self._check_open()
        return self._shelf.remove(owner, store_id)

    async def attach(
        self,
        owner: str,
        store_id: str,
        files: Sequence[AttachedFile],
        batch: FileBatch | None = None,
        once: ClaimRequest | None = None,
    ) -> Claim | bool:
        earlier = await self.claimed(owner, once)
        if earlier is not None:
            return earlier
        kept = self._find(owner, store_id)
        if kept is None or kept.is_emptied:
            return False
        if batch is not None:
            kept.batches[batch.id] = batch
        self._shelf.attach(kept, files, batch)
        made = batch.id if batch is not None else files[0].file_id
        self._claims.note_once(owner, once, name_made(Made(store_id, made)))
        return True

    async def find_file(self, owner: str, store_id: str, file_id: str) -> AttachedFile | None:
        found = self._find_file(owner, store_id, file_id)
        return None if found is None else found.file

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
        kept = self._find(owner, store_id)
        every = [] if kept is None else [one.file for one in kept.files.values()]
        if is_descending:
            every.reverse()
        wanted = [
            file
            for file in _cut([file.file_id for file in every], every, after, before)
            if batch_id in (None, file.batch_id) and status in (None, file.status)
        ]
        is_backwards = before is not None and after is None
        return wanted[max(len(wanted) - limit, 0) :] if is_backwards else wanted[:limit]

    async def set_attributes(
        self, owner: str, store_id: str, file_id: str, attributes: Attributes
    ) -> AttachedFile | None:
        found = self._find_file(owner, store_id, file_id)
        if found is None:
            return None
        found.file = _replace(found.file, attributes=dict(attributes))
        return found.file

    async def detach(self, owner: str, store_id: str, file_id: str) -> bool:
        kept = self._find(owner, store_id)
        return kept is not None and self._shelf.detach(kept, file_id)

    async def find_batch(self, owner: str, store_id: str, batch_id: str) -> FileBatch | None:
        kept = self._find(owner, store_id)
        return None if kept is None else kept.shown_batch(batch_id)

    async def cancel_batch(self, owner: str, store_id: str, batch_id: str) -> FileBatch | None:
        kept = self._find(owner, store_id)
        batch = None if kept is None else kept.shown_batch(batch_id)
        if kept is None or batch is None:
            return None
        if batch.counts.in_progress:
            kept.batches[batch_id] = _replace(batch, is_cancelled=True)
            self._shelf.cancel(one for one in kept.files.values() if one.file.batch_id == batch_id)
        return kept.shown_batch(batch_id)

    async def chunks(
        self, owner: str, store_id: str, file_id: str, *, after: int = -1, limit: int
    ) -> list[str]:
        found = self._find_file(owner, store_id, file_id)
        return [] if found is None else found.texts[after + 1 : after + 1 + limit]

    async def search(self, owner: str, search: Search) -> list[FoundChunk]:
        found = (self._find(owner, name) for name in dict.fromkeys(search.store_ids))
        return search_stores([kept for kept in found if kept is not None], search)

    async def expire(self, now: int, limit: int) -> int:
        self._check_open()
        return self.sweep(now, limit)

    def sweep(self, now: int, limit: int) -> int:
        """Empty those that have expired."""
        old = [kept for kept in self._shelf.stores.values() if kept.must_be_emptied(now)][:limit]
        for kept in old:
            self._shelf.empty(kept)
        return len(old)

    def forget_file(self, owner: str, file_id: str) -> None:
        """Remove a file that is deleted from every vector store of its owner."""
        for kept in self._shelf.stores.values():
            if kept.owner == owner:
                self._shelf.detach(kept, file_id)

    def count_of(self, owner: str) -> dict[str, int]:
        """Return how many rows an owner has, by table."""
        mine = [kept for kept in self._shelf.stores.values() if kept.owner == owner]
        files = [file for kept in mine for file in kept.files.values()]
        return {
            "vector_stores": len(mine),
            "vector_files": len(files),
            "vector_batches": sum(len(kept.batches) for kept in mine),
            "vector_jobs": sum(file.is_job for file in files),
            "vector_chunks": sum(len(file.texts) for file in files),
        }

    def forget_owner(self, owner: str) -> None:
        """Remove all rows of an owner."""
        for key in [key for key in self._shelf.stores if key[0] == owner]:
            self._shelf.remove(*key)

    def clear(self) -> None:
        """Remove everything."""
        self._shelf.clear()

    def _find(self, owner: str, store_id: str) -> Kept | None:
        self._check_open()
        return self._shelf.stores.get((owner, store_id))

    def _find_file(self, owner: str, store_id: str, file_id: str) -> KeptFile | None:
        kept = self._find(owner, store_id)
        return None if kept is None else kept.files.get(file_id)


def _cut(
    names: list[str],
    rows: list[_T],
    after: str | None,
    before: str | None,
    limit: int | None = None,
) -> list[_T]:
    """Return the rows between two cursors. Raise KeyError if one of them is not there."""
    for cursor in (after, before):
        if cursor is not None and cursor not in names:
            raise KeyError(cursor)
    begin = 0 if after is None else names.index(after) + 1
    end = len(rows) if before is None else names.index(before)
    found = rows[begin:end]
    return found if limit is None else found[:limit]
