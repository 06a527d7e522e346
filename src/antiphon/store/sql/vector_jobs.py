"""The jobs of the facet `vector_stores`: leases, and what they may change.

Every change of a job checks its lease in the same transaction, and locks its row. A change may be
run again if the answer to its commit was lost; so a lease is drawn by the caller, `last_call`
names the call that added the last chunks, and a job that this lease has ended counts as its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

from antiphon.protocol.errors import StoreUnavailable
from antiphon.store.base.vector_stores import MAX_TRIES, Chunk, Job
from antiphon.store.sql.steps import Lock, Steps, ask
from antiphon.store.sql.vector_files import FILE, drop_chunks, end_file, lock_store, new_part
from antiphon.store.vector_rows import MAX_CHUNKS, chunk_keys, clean_text, read_file

__all__ = [
    "ChunkTables",
    "add_chunks",
    "add_vectors",
    "end_job",
    "release_job",
    "renew_job",
    "take_job",
]

# The owners of jobs, each found by the index; and for each its oldest job that is free.
_NEXT: Final = """
    WITH RECURSIVE owners (owner) AS (
        SELECT min(owner) FROM vector_jobs
        UNION ALL
        SELECT (SELECT min(jobs.owner) FROM vector_jobs AS jobs WHERE jobs.owner > owners.owner)
        FROM owners WHERE owners.owner IS NOT NULL),
    free (key, running) AS (
        SELECT
            (SELECT jobs.key FROM vector_jobs AS jobs
             WHERE jobs.owner = owners.owner AND jobs.until <= $1 ORDER BY jobs.key LIMIT 1),
            (SELECT count(*) FROM vector_jobs AS jobs
             WHERE jobs.until > 0 AND jobs.until > $1 AND jobs.owner = owners.owner
                AND jobs.lease <> 0)
        FROM owners WHERE owners.owner IS NOT NULL)
    SELECT key FROM free WHERE key IS NOT NULL ORDER BY running, key LIMIT 1
"""
_LEASE: Final = """
    UPDATE vector_jobs SET lease = $1, until = $2, tries = tries + 1
    WHERE key = $3 AND until <= $4
"""
_LEASED: Final = f"""
    SELECT jobs.file, jobs.tries, jobs.owner,
        (SELECT id FROM vector_stores WHERE vector_stores.key = files.store),
        {", ".join(f"files.{column}" for column in FILE.split(", "))}
    FROM vector_jobs AS jobs JOIN vector_files AS files ON files.key = jobs.file
    WHERE jobs.lease = $1
"""  # noqa: S608 # constants
_HELD: Final = """
    UPDATE vector_jobs SET lease = lease WHERE lease = $3 AND file =
        (SELECT key FROM vector_files WHERE store = $1 AND file = $2)
    RETURNING file, key
"""
_FILE: Final = "SELECT part, chunks, lease, last_call FROM vector_files WHERE key = $1"
_ENDED: Final = """
    SELECT 1 FROM vector_files
    WHERE store = $1 AND file = $2 AND lease = $3 AND status IN ('completed', 'failed')
"""
_BEGUN: Final = "UPDATE vector_files SET part = $1, lease = $2 WHERE key = $3"
_GROWN: Final = """
    UPDATE vector_files SET chunks = chunks + $1, usage = usage + $2, version = version + $3,
        last_call = $4
    WHERE key = $5
"""
_EMBEDDED: Final = "UPDATE vector_files SET embedding = $1 WHERE key = $2"
_OLD_VECTORS: Final = """
    SELECT CAST(coalesce(sum(length(vector)), 0) AS BIGINT) FROM vector_vectors
    WHERE key >= $1 AND key < $2
"""


class ChunkTables(Protocol):
    """Where a database keeps the texts of chunks, their words and their vectors."""

    def add_texts(self, store: int, rows: Sequence[tuple[int, str]]) -> Steps[None]:
        """Add chunks, and make their words searchable."""
        ...

    def put_vectors(self, rows: Sequence[tuple[int, bytes]]) -> Steps[None]:
        """Add vectors, in place of those that are there."""
        ...


class _Held(NamedTuple):
    """The file of a job that a lease still holds. `lease` is the one that wrote the chunks."""

    key: int
    store: int
    job: int
    part: int | None
    chunks: int
    lease: int
    last_call: int


def take_job(lease: int, now: float, seconds: float) -> Steps[Job | None]:
    """Lease the next job under this number."""
    yield Lock("vector jobs")
    if not (yield from ask("SELECT 1 FROM vector_jobs LIMIT 1")):
        return None
    while not (found := (yield from ask(_LEASED, lease))):
        free = yield from ask(_NEXT, now)
        if not free:
            return None
        yield from ask(_LEASE, lease, now + seconds, free[0][0], now)
        found = yield from ask(_LEASED, lease)
        if found and found[0][1] > MAX_TRIES:
            reason = f"indexing it failed {MAX_TRIES} times"
            yield from end_file(found[0][0], "failed", "server_error", reason)
    _, tries, owner, store_id, *file = found[0]
    return Job(owner=owner, store_id=store_id, file=read_file(*file), lease=lease, tries=tries - 1)


def renew_job(job: Job, until: float) -> Steps[bool]:
    """Make the lease longer."""
    held = yield from _held(job)
    if held is not None:
        yield from ask("UPDATE vector_jobs SET until = $1 WHERE key = $2", until, held.job)
    return held is not None


def release_job(job: Job, until: float) -> Steps[bool]:
    """Give the job back."""
    held = yield from _held(job)
    if held is not None:
        yield from ask(
            "UPDATE vector_jobs SET lease = 0, until = $1, tries = tries - 1 WHERE key = $2",
            until,
            held.job,
        )
    return held is not None


def add_chunks(
    tables: ChunkTables, job: Job, chunks: Sequence[Chunk], embedding: str, call: int
) -> Steps[bool]:
    """Add chunks at the end of the file. `call` is a number of this call alone."""
    held = yield from _held(job)
    if held is None or held.last_call == call:
        return held is not None
    held = yield from _begin(held, job)
    if held.chunks + len(chunks) > MAX_CHUNKS:
        raise ValueError(f"a file can have {MAX_CHUNKS} chunks at most")
    first = chunk_keys(held.part or 0).start + held.chunks
    texts = [(first + at, clean_text(chunk.text)) for at, chunk in enumerate(chunks)]
    vectors = [
        (first + at, chunk.vector) for at, chunk in enumerate(chunks) if chunk.vector is not None
    ]
    yield from tables.add_texts(held.store, texts)
    yield from tables.put_vectors(vectors)
    size = sum(len(text.encode()) for _, text in texts) + sum(len(one) for _, one in vectors)
    yield from ask(_GROWN, len(texts), size, int(bool(vectors)), call, held.key)
    if embedding:
        yield from ask(_EMBEDDED, embedding, held.key)
    return True


def add_vectors(
    tables: ChunkTables, job: Job, first: int, vectors: Sequence[bytes], embedding: str
) -> Steps[bool]:
    """Store the vectors of chunks that this lease has added."""
    held = yield from _held(job)
    if held is None:
        return False
    has_chunks = held.lease == job.lease and 0 <= first <= held.chunks - len(vectors)
    if held.part is None or not has_chunks:
        raise ValueError("there are vectors without a chunk")
    begin = chunk_keys(held.part).start + first
    ((old,),) = yield from ask(_OLD_VECTORS, begin, begin + len(vectors))
    yield from tables.put_vectors(list(enumerate(vectors, begin)))
    size = sum(map(len, vectors)) - old
    yield from ask(_GROWN, 0, size, 1, held.last_call, held.key)
    yield from ask(_EMBEDDED, embedding, held.key)
    return True


def end_job(job: Job, code: str | None, message: str | None) -> Steps[bool]:
    """End the job: the file is completed, or failed."""
    held = yield from _held(job)
    if held is None:
        store = yield from lock_store(job.owner, job.store_id)
        return bool((yield from ask(_ENDED, store, job.file.file_id, job.lease)))
    if held.lease != job.lease:
        yield from drop_chunks(held.key)
        yield from ask(_BEGUN, None, job.lease, held.key)
    yield from end_file(held.key, "completed" if code is None else "failed", code, message)
    return True


def _held(job: Job) -> Steps[_Held | None]:
    store = yield from lock_store(job.owner, job.store_id)
    if store is None:
        return None
    rows = yield from ask(_HELD, store, job.file.file_id, job.lease)
    if not rows:
        return None
    key, number = rows[0]
    ((part, chunks, lease, last_call),) = yield from ask(_FILE, key)
    return _Held(key, store, number, part, chunks, lease, last_call)


def _begin(held: _Held, job: Job) -> Steps[_Held]:
    """Give the file a new part, once for each lease, and drop what an earlier try has left."""
    if held.lease == job.lease and held.part is not None:
        return held
    part = yield from new_part(held.store)
    if part is None:
        raise StoreUnavailable("this vector store has had too many files; make a new one")
    yield from drop_chunks(held.key)
    yield from ask(_BEGUN, part, job.lease, held.key)
    return held._replace(part=part, chunks=0, lease=job.lease)
