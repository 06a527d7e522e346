"""The jobs of the facet `vector_stores` in memory: leases, and what they may change."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from antiphon.store.base.vector_stores import MAX_TRIES, Chunk, Job
from antiphon.store.memory.shelf import KeptFile, Shelf

__all__ = ["MemoryVectorJobs"]


class MemoryVectorJobs:
    """See `VectorStores` for what the methods do."""

    def __init__(self, check_open: Callable[[], None], shelf: Shelf) -> None:
        self._check_open = check_open
        self._shelf = shelf
        self._leases = 0

    async def take_job(self, holder: str, now: float, seconds: float) -> Job | None:
        self._check_open()
        jobs = list(self._shelf.jobs())
        running = Counter(one.owner for one in jobs if one.lease and one.leased_until > now)
        free = [one for one in jobs if one.leased_until <= now]
        free.sort(key=lambda one: running[one.owner])  # stable: the oldest of them comes first
        for one in free:
            if one.tries < MAX_TRIES:
                return self._lease(one, now + seconds)
            one.end("failed", "server_error", f"indexing it failed {MAX_TRIES} times")
        return None

    async def renew_job(self, job: Job, now: float, seconds: float) -> bool:
        found = self._held(job)
        if found is not None:
            found.leased_until = now + seconds
        return found is not None

    async def add_chunks(self, job: Job, chunks: Sequence[Chunk], *, embedding: str = "") -> bool:
        found = self._held(job)
        if found is None:
            return False
        self._begin_chunks(found)
        found.embedding = embedding or found.embedding
        found.add_chunks(chunks)
        return True

    async def add_vectors(
        self, job: Job, first: int, vectors: Sequence[bytes], *, embedding: str
    ) -> bool:
        found = self._held(job)
        if found is None:
            return False
        self._begin_chunks(found)
        if first < 0 or first + len(vectors) > len(found.texts):
            raise ValueError("there are vectors without a chunk")
        found.embedding = embedding
        found.add_vectors(first, vectors)
        return True

    async def end_job(
        self, job: Job, *, error_code: str | None = None, error_message: str | None = None
    ) -> bool:
        found = self._held(job)
        if found is None:
            return False
        self._begin_chunks(found)
        found.end("completed" if error_code is None else "failed", error_code, error_message)
        return True

    async def release_job(self, job: Job, *, until: float = 0.0) -> bool:
        found = self._held(job)
        if found is None:
            return False
        found.lease, found.leased_until, found.tries = 0, until, found.tries - 1
        return True

    async def jobs_waiting(self) -> int:
        self._check_open()
        return sum(1 for _ in self._shelf.jobs())

    def _lease(self, one: KeptFile, until: float) -> Job:
        self._leases += 1
        one.lease, one.leased_until, one.tries = self._leases, until, one.tries + 1
        return Job(
            owner=one.owner,
            store_id=one.store_id,
            file=one.file,
            lease=one.lease,
            tries=one.tries - 1,
        )

    def _held(self, job: Job) -> KeptFile | None:
        """Return the file of a job that this lease still holds."""
        self._check_open()
        found = self._shelf.find(job.owner, job.store_id, job.file.file_id)
        is_held = found is not None and found.is_job and found.lease == job.lease
        return found if is_held else None

    def _begin_chunks(self, found: KeptFile) -> None:
        """Remove what an earlier try has left, once for each lease."""
        if found.chunks_lease != found.lease:
            found.chunks_lease = found.lease
            found.drop_chunks()
