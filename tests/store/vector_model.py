"""A model of vector stores in plain Python, and a player that compares a store with it.

`play` makes a sequence of random changes in a store and in the model, from a seed, and asserts
after each that answers, listings, counts and searches agree. It knows nothing of any store.
"""

from __future__ import annotations

import math
import random
from array import array
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from antiphon.store.base import Store
from antiphon.store.base.vector_stores import (
    MAX_TRIES,
    Chunk,
    FileBatch,
    FileCounts,
    Filter,
    Job,
    Search,
)
from tests.store.vector_samples import file, vector, vector_store

__all__ = ["play"]

OWNERS = ("alice", "mallory")
STORES = ("vs_1", "vs_2")
FILES = ("f1", "f2", "f3")
BATCHES = ("vsfb_1", "vsfb_2")
WORDS = ("alpha", "beta", "gamma")
ACTIONS = (
    ("add_store", 3), ("remove_store", 1), ("attach", 8), ("detach", 2), ("cancel", 2),
    ("set_attributes", 3), ("take", 10), ("renew", 3), ("add_chunks", 12), ("add_vectors", 5),
    ("end", 7), ("release", 2), ("wait", 6),
)  # fmt: skip


@dataclass
class _File:
    number: int
    attributes: dict[str, float]
    batch: str | None
    status: str = "in_progress"
    lease: int = 0
    until: float = 0.0
    tries: int = 0
    chunks_lease: int = 0
    chunks: list[tuple[str, bytes | None]] = field(default_factory=list)

    def end(self, status: str) -> None:
        self.status = status
        if status != "completed":
            self.chunks = []


@dataclass
class _Store:
    files: dict[str, _File] = field(default_factory=dict)
    batches: dict[str, bool] = field(default_factory=dict)


class _Player:
    def __init__(self, store: Store, seed: int) -> None:
        self.facet = store.vector_stores
        self.random = random.Random(seed)
        self.stores: dict[tuple[str, str], _Store] = {}
        self.jobs: list[Job] = []
        self.now = 1000.0
        self.count = 0

    async def play(self, steps: int) -> None:
        names, weights = zip(*ACTIONS, strict=True)
        for _ in range(steps):
            (action,) = self.random.choices(names, weights)
            await getattr(self, f"_{action}")()
            await self._compare()

    # Changes.

    async def _add_store(self) -> None:
        owner, name = self._place()
        if (owner, name) not in self.stores:
            assert await self.facet.add(owner, vector_store(name)) is None
            self.stores[owner, name] = _Store()

    async def _remove_store(self) -> None:
        owner, name = self._place()
        known = self.stores.pop((owner, name), None)
        assert await self.facet.remove(owner, name) == (known is not None)

    async def _attach(self) -> None:
        owner, name = self._place()
        names = self.random.sample(FILES, self.random.randint(1, 2))
        batch_id = self.random.choice((*BATCHES, None))
        number = self.random.randint(0, 2)
        batch = None if batch_id is None else FileBatch(id=batch_id, created_at=1)
        known = self.stores.get((owner, name))
        if known is not None and batch_id in known.batches:
            return  # ids of batches are never used twice
        files = [file(one, n=number) for one in names]
        assert await self.facet.attach(owner, name, files, batch) is (known is not None)
        if known is None:
            return
        if batch_id is not None:
            known.batches[batch_id] = False
        for one in names:
            self.count += 1
            known.files.pop(one, None)
            known.files[one] = _File(self.count, {"n": number}, batch_id)

    async def _detach(self) -> None:
        owner, name = self._place()
        one = self.random.choice(FILES)
        known = self.stores.get((owner, name), _Store())
        assert await self.facet.detach(owner, name, one) == (one in known.files)
        known.files.pop(one, None)

    async def _cancel(self) -> None:
        owner, name = self._place()
        batch = self.random.choice(BATCHES)
        known = self.stores.get((owner, name), _Store())
        found = await self.facet.cancel_batch(owner, name, batch)
        assert (found is not None) == (batch in known.batches)
        for one in known.files.values():
            if one.batch == batch and one.status == "in_progress":
                one.end("cancelled")
                known.batches[batch] = True

    async def _set_attributes(self) -> None:
        owner, name = self._place()
        one, number = self.random.choice(FILES), self.random.randint(0, 2)
        known = self.stores.get((owner, name), _Store()).files.get(one)
        found = await self.facet.set_attributes(owner, name, one, {"n": number})
        assert (found is not None) == (known is not None)
        if known is not None:
            known.attributes = {"n": number}

    async def _wait(self) -> None:
        self.now += self.random.choice((1, 20))

    async def _take(self) -> None:
        seconds = self.random.choice((1, 10, 100))
        wanted = self._next()
        job = await self.facet.take_job("process", self.now, seconds)
        if wanted is None:
            assert job is None
            return
        owner, name, one, known = wanted
        assert job is not None
        assert (job.owner, job.store_id, job.file.file_id) == (owner, name, one)
        assert job.tries == known.tries
        assert all(job.lease != other.lease for other in self.jobs)
        known.lease, known.until, known.tries = job.lease, self.now + seconds, known.tries + 1
        self.jobs.append(job)

    def _next(self) -> tuple[str, str, str, _File] | None:
        """Return what must be taken; fail the files that were tried too often."""
        while True:
            jobs = [
                (owner, name, one, known)
                for (owner, name), kept in self.stores.items()
                for one, known in kept.files.items()
                if known.status == "in_progress"
            ]
            running = Counter(
                owner for owner, _, _, known in jobs if known.lease and known.until > self.now
            )
            free = [job for job in jobs if job[3].until <= self.now]
            if not free:
                return None
            best = min(free, key=lambda job: (running[job[0]], job[3].number))
            if best[3].tries < MAX_TRIES:
                return best
            best[3].end("failed")

    async def _renew(self) -> None:
        if job := self._job():
            known = self._held(job)
            assert await self.facet.renew_job(job, self.now, 30) == (known is not None)
            if known is not None:
                known.until = self.now + 30

    async def _release(self) -> None:
        if job := self._job():
            known = self._held(job)
            until = self.now + self.random.choice((0, 5))
            assert await self.facet.release_job(job, until=until) == (known is not None)
            if known is not None:
                known.lease, known.until, known.tries = 0, until, known.tries - 1

    async def _add_chunks(self) -> None:
        if not (job := self._job()):
            return
        chunks = [self._chunk() for _ in range(self.random.randint(0, 3))]
        known = self._held(job)
        added = await self.facet.add_chunks(job, chunks, embedding="e")
        assert added == (known is not None)
        if known is not None:
            if known.chunks_lease != job.lease:
                known.chunks_lease, known.chunks = job.lease, []
            known.chunks += [(chunk.text, chunk.vector) for chunk in chunks]

    async def _add_vectors(self) -> None:
        if not (job := self._job()):
            return
        known = self._held(job)
        if known is None:
            assert not await self.facet.add_vectors(job, 0, [self._vector()], embedding="e")
        elif known.chunks_lease == job.lease and known.chunks:
            place, new = self.random.randrange(len(known.chunks)), self._vector()
            assert await self.facet.add_vectors(job, place, [new], embedding="e")
            known.chunks[place] = (known.chunks[place][0], new)

    async def _end(self) -> None:
        if not (job := self._job()):
            return
        code = self.random.choice((None, None, "invalid_file"))
        known = self._held(job)
        ended = await self.facet.end_job(job, error_code=code)
        if known is None:
            # A lease that has ended the job itself may be told so again.
            assert not ended or self._has_ended(job)
            return
        assert ended
        if known.chunks_lease != job.lease:
            known.chunks_lease, known.chunks = job.lease, []
        known.end("completed" if code is None else "failed")

    # What is compared.

    async def _compare(self) -> None:
        owner, name = self._place()
        known = self.stores.get((owner, name))
        shown = (await self.facet.find(owner, [name])).get(name)
        assert (shown is not None) == (known is not None)
        kept = known or _Store()
        if shown is not None:
            assert shown.counts == _counts(kept.files.values())
            assert shown.usage_bytes == sum(_size(one) for one in kept.files.values())
        listed = await self.facet.files(owner, name, limit=9, is_descending=False)
        assert [(one.file_id, one.status, one.batch_id, one.attributes) for one in listed] == [
            (one, file.status, file.batch, file.attributes) for one, file in kept.files.items()
        ]
        for batch in BATCHES:
            found = await self.facet.find_batch(owner, name, batch)
            assert (found is not None) == (batch in kept.batches)
            if found is not None:
                mine = [one for one in kept.files.values() if one.batch == batch]
                assert found.counts == _counts(mine)
                assert found.is_cancelled == kept.batches[batch]
        waiting = [f for s in self.stores.values() for f in s.files.values()]
        count = sum(one.status == "in_progress" for one in waiting)
        assert await self.facet.jobs_waiting() == count
        await self._compare_search(owner, kept, name)

    async def _compare_search(self, owner: str, kept: _Store, name: str) -> None:
        word, number = self.random.choice(WORDS), self.random.randint(0, 2)
        limit = self.random.choice((1, 3))
        wanted = self._vector()
        search = Search(
            store_ids=[name],
            words=[word],
            vector=wanted,
            embedding="e",
            filter=self.random.choice((None, Filter("eq", "n", number))),
            limit=limit,
        )
        found = await self.facet.search(owner, search)
        chunks = {
            (one, place): chunk
            for one, file in kept.files.items()
            if search.filter is None or file.attributes["n"] == number
            for place, chunk in enumerate(file.chunks)
        }
        matching = {key for key, (text, _) in chunks.items() if word in text.split()}
        by_words = {(one.file_id, one.place) for one in found if one.by_words is not None}
        assert by_words <= matching
        assert len(by_words) == min(limit, len(matching))
        near = sorted((_cosine(wanted, one) for _, one in chunks.values() if one), reverse=True)
        got = sorted(
            (one for one in found if one.by_vector is not None), key=lambda one: one.by_vector or 0
        )
        scores = [one.similarity or 0.0 for one in got]
        assert len(scores) == min(limit, len(near))
        assert all(
            math.isclose(a, b, abs_tol=1e-5) for a, b in zip(scores, near[:limit], strict=True)
        )
        for one in found:
            assert chunks[one.file_id, one.place][0] == one.text

    # Choices.

    def _place(self) -> tuple[str, str]:
        return self.random.choice(OWNERS), self.random.choice(STORES)

    def _job(self) -> Job | None:
        return self.random.choice(self.jobs[-6:]) if self.jobs else None

    def _held(self, job: Job) -> _File | None:
        known = self.stores.get((job.owner, job.store_id), _Store()).files.get(job.file.file_id)
        is_held = known is not None and known.status == "in_progress" and known.lease == job.lease
        return known if is_held else None

    def _has_ended(self, job: Job) -> bool:
        known = self.stores.get((job.owner, job.store_id), _Store()).files.get(job.file.file_id)
        return (
            known is not None
            and known.chunks_lease == job.lease
            and known.status in ("completed", "failed")
        )

    def _chunk(self) -> Chunk:
        text = " ".join(self.random.sample(WORDS, self.random.randint(1, 2)))
        return Chunk(f"{text} {self.random.random()}", self.random.choice((None, self._vector())))

    def _vector(self) -> bytes:
        return vector(self.random.uniform(-1, 1), self.random.uniform(-1, 1), 0.5)


async def play(store: Store, seed: int, steps: int = 40) -> None:
    """Make random changes; raise if the store does not do what the model does."""
    await _Player(store, seed).play(steps)


def _counts(files: Iterable[_File]) -> FileCounts:
    return FileCounts(**Counter(one.status for one in files))


def _size(known: _File) -> int:
    return sum(len(text.encode()) + len(one or b"") for text, one in known.chunks)


def _cosine(one: bytes, other: bytes) -> float:
    a, b = array("f", one), array("f", other)
    product = sum(x * y for x, y in zip(a, b, strict=True))
    return product / math.sqrt(sum(x * x for x in a) * sum(x * x for x in b))
