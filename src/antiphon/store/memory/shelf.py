"""What the facet `vector_stores` keeps in memory, and the changes that touch several parts of it.

A job is a part of its file: `KeptFile.is_job` is true while the file must still be indexed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import msgspec

from antiphon.store.base.vector_stores import (
    AttachedFile,
    Chunk,
    FileBatch,
    FileCounts,
    VectorStore,
)
from antiphon.store.made import Made
from antiphon.store.memory.ranking import Indexed, count_terms
from antiphon.store.vector_rows import clean_text

__all__ = ["Kept", "KeptFile", "Shelf"]

_replace = msgspec.structs.replace


@dataclass(slots=True, eq=False)
class KeptFile:
    """An attached file with its chunks, and the lease of its job."""

    owner: str
    store_id: str
    file: AttachedFile
    number: int
    is_job: bool = True
    lease: int = 0
    leased_until: float = 0.0
    tries: int = 0
    chunks_lease: int = 0
    embedding: str = ""
    texts: list[str] = field(default_factory=list)
    indexed: list[Indexed] = field(default_factory=list)

    def add_chunks(self, chunks: Iterable[Chunk]) -> None:
        """Add chunks at the end."""
        for chunk in chunks:
            text = clean_text(chunk.text)
            self.texts.append(text)
            self.indexed.append(count_terms(text, chunk.vector))
            self._grow(len(text.encode()) + len(chunk.vector or b""))

    def add_vectors(self, first: int, vectors: Sequence[bytes]) -> None:
        """Set the vectors of chunks that are there."""
        for place, vector in enumerate(vectors, first):
            known = self.indexed[place]
            self.indexed[place] = known._replace(vector=vector)
            self._grow(len(vector) - len(known.vector or b""))

    def drop_chunks(self) -> None:
        """Remove all chunks."""
        self.texts, self.indexed, self.embedding = [], [], ""
        self.file = _replace(self.file, usage_bytes=0)

    def end(self, status: str, code: str | None = None, message: str | None = None) -> None:
        """End the job. Only a completed file keeps its chunks."""
        self.is_job = False
        self.file = _replace(self.file, status=status, error_code=code, error_message=message)
        if status != "completed":
            self.drop_chunks()

    def _grow(self, size: int) -> None:
        self.file = _replace(self.file, usage_bytes=self.file.usage_bytes + size)


@dataclass(slots=True, eq=False)
class Kept:
    """A vector store with its files, in the order they were attached, and its batches."""

    owner: str
    store: VectorStore
    is_emptied: bool = False
    files: dict[str, KeptFile] = field(default_factory=dict)
    batches: dict[str, FileBatch] = field(default_factory=dict)

    def shown(self) -> VectorStore:
        """Return it with its counts."""
        files = [one.file for one in self.files.values()]
        used = sum(file.usage_bytes for file in files)
        return _replace(
            self.store,
            metadata=dict(self.store.metadata),
            counts=_count(files),
            usage_bytes=used,
        )

    def shown_batch(self, batch_id: str) -> FileBatch | None:
        """Return a batch with its counts."""
        batch = self.batches.get(batch_id)
        if batch is None:
            return None
        files = (one.file for one in self.files.values())
        return _replace(batch, counts=_count(file for file in files if file.batch_id == batch_id))

    def has_expired(self, now: int) -> bool:
        """Return whether nobody used it for too long."""
        return self.store.expires_at is not None and self.store.expires_at <= now

    def must_be_emptied(self, now: int) -> bool:
        """Return whether it has expired and still has chunks or jobs."""
        return not self.is_emptied and self.has_expired(now)


class Shelf:
    """All vector stores."""

    def __init__(self) -> None:
        self.stores: dict[tuple[str, str], Kept] = {}
        self._count = 0

    def attach(
        self, kept: Kept, files: Sequence[AttachedFile], batch: FileBatch | None = None
    ) -> None:
        """Attach files, with jobs. One that is attached already is replaced."""
        for file in files:
            self._count += 1
            kept.files.pop(file.file_id, None)
            new = _replace(
                file,
                attributes=dict(file.attributes),
                batch_id=None if batch is None else batch.id,
                status="in_progress",
                error_code=None,
                error_message=None,
                usage_bytes=0,
            )
            kept.files[file.file_id] = KeptFile(kept.owner, kept.store.id, new, self._count)

    def detach(self, kept: Kept, file_id: str) -> bool:
        """Remove a file; return whether there was one."""
        found = kept.files.pop(file_id, None)
        if found is not None:
            found.is_job = False
        return found is not None

    def remove(self, owner: str, store_id: str) -> bool:
        """Remove a vector store; return whether there was one."""
        return self.stores.pop((owner, store_id), None) is not None

    def cancel(self, files: Iterable[KeptFile]) -> None:
        """Cancel those that are in progress."""
        for one in files:
            if one.is_job:
                one.end("cancelled")

    def empty(self, kept: Kept) -> None:
        """Remove chunks and jobs."""
        kept.is_emptied = True
        self.cancel(kept.files.values())
        for one in kept.files.values():
            one.drop_chunks()

    def jobs(self) -> Iterator[KeptFile]:
        """Yield the files that must still be indexed, the oldest first."""
        files = (one for kept in self.stores.values() for one in kept.files.values() if one.is_job)
        return iter(sorted(files, key=lambda one: one.number))

    def find(self, owner: str, store_id: str, file_id: str) -> KeptFile | None:
        """Return an attached file."""
        kept = self.stores.get((owner, store_id))
        return None if kept is None else kept.files.get(file_id)

    def has(self, owner: str, made: Made) -> bool:
        """Return whether what a claim names still exists."""
        kept = self.stores.get((owner, made.store_id))
        if kept is None or made.inside is None:
            return kept is not None
        return made.inside in kept.files or made.inside in kept.batches

    def clear(self) -> None:
        """Remove everything."""
        self.stores.clear()


def _count(files: Iterable[AttachedFile]) -> FileCounts:
    return FileCounts(**Counter(file.status for file in files))
