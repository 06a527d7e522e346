"""Vector stores, files and chunks for tests."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from antiphon.store.base import ClaimRequest, Store
from antiphon.store.base.vector_stores import (
    AttachedFile,
    Attributes,
    Chunk,
    Filter,
    FoundChunk,
    Job,
    Search,
    VectorStore,
)

__all__ = [
    "DAY",
    "OWNER",
    "STRANGER",
    "add_store",
    "file",
    "find_words",
    "index",
    "index_file",
    "once",
    "places",
    "take",
    "vector",
    "vector_store",
]

OWNER = "alice"
STRANGER = "mallory"
DAY = 86_400


def vector_store(name: str = "vs_1", *, at: int = 100, days: int | None = None) -> VectorStore:
    return VectorStore(id=name, created_at=at, last_active_at=at, expires_after_days=days)


def file(name: str, **attributes: str | float | bool) -> AttachedFile:
    return AttachedFile(
        file_id=name, filename=f"{name}.txt", created_at=100, attributes=dict(attributes)
    )


def vector(*numbers: float) -> bytes:
    return array("f", numbers).tobytes()


def once(token: str = "token", *, now: int = 100, since: int = 0) -> ClaimRequest:
    return ClaimRequest(token, b"digest", now, since)


async def add_store(store: Store, *files: AttachedFile, name: str = "vs_1") -> None:
    assert await store.vector_stores.add(OWNER, vector_store(name), files) is None


async def take(store: Store, now: float = 1000.0, seconds: float = 60.0) -> Job:
    job = await store.vector_stores.take_job("process", now, seconds)
    assert job is not None
    return job


async def index(store: Store, job: Job, *chunks: Chunk | str, embedding: str = "") -> None:
    pieces = [Chunk(one) if isinstance(one, str) else one for one in chunks]
    assert await store.vector_stores.add_chunks(job, pieces, embedding=embedding)
    assert await store.vector_stores.end_job(job)


async def index_file(
    store: Store,
    name: str,
    *chunks: Chunk | str,
    attributes: Attributes | None = None,
    store_id: str = "vs_1",
    owner: str = OWNER,
    embedding: str = "",
) -> None:
    """Attach a file and index it at once; no other job may be waiting."""
    attached = file(name, **(attributes or {}))
    assert await store.vector_stores.attach(owner, store_id, [attached]) is True
    await index(store, await take(store), *chunks, embedding=embedding)


async def find_words(
    store: Store,
    *words: str,
    owner: str = OWNER,
    store_ids: Sequence[str] = ("vs_1",),
    where: Filter | None = None,
    limit: int = 10,
) -> list[FoundChunk]:
    """Return what the words find, the best first."""
    search = Search(store_ids=store_ids, words=words, filter=where, limit=limit)
    found = await store.vector_stores.search(owner, search)
    return sorted(found, key=lambda chunk: chunk.by_words or 0)


def places(found: Sequence[FoundChunk]) -> list[tuple[str, int]]:
    return [(chunk.file_id, chunk.place) for chunk in found]
