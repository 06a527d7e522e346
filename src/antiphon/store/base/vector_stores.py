"""Facet `vector_stores`: files made searchable, the work of making them so, and the search.

    vector store  <-  attached file  <-  chunks (text, place, vector)
                            ^
                          job: leased, so that a crash only delays it

Attaching a file makes a job in the same step. A process takes a job for some seconds, renews the
lease while it works, and stores the chunks and the end of the job in one step, which checks that
the lease is still its own. The text is searchable from `add_chunks` on; vectors may follow.
Filters are applied before anything is ranked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

import msgspec

from antiphon.store.base.claims import Claim, ClaimRequest

__all__ = [
    "MAX_TRIES",
    "AttachedFile",
    "Attributes",
    "Chunk",
    "FileBatch",
    "FileCounts",
    "Filter",
    "FoundChunk",
    "Job",
    "Search",
    "VectorStore",
    "VectorStores",
]

MAX_TRIES: Final = 3
"""A file over which so many processes have died fails."""

Attributes = dict[str, str | float | bool]


class Filter(msgspec.Struct, frozen=True):
    """A condition on attributes, checked when it was read.

    `op` is eq, ne, gt, gte, lt, lte, in or nin, with `key` and `value`; or `and`, `or` with
    `filters`. A file without the attribute fulfils only `ne` and `nin`. Values of different types
    are never equal and have no order: a number is not a text, and true is not 1.
    """

    op: str
    key: str = ""
    value: str | float | bool | list[str | float | bool] = ""
    filters: tuple[Filter, ...] = ()


class FileCounts(msgspec.Struct, frozen=True, kw_only=True):
    """How many of the attached files have which status."""

    in_progress: int = 0
    completed: int = 0
    failed: int = 0
    cancelled: int = 0

    @property
    def total(self) -> int:
        """All of them."""
        return self.in_progress + self.completed + self.failed + self.cancelled


class VectorStore(msgspec.Struct, frozen=True, kw_only=True):
    """A vector store. It expires `expires_after_days` after it was last used."""

    id: str
    name: str | None = None
    description: str | None = None
    metadata: dict[str, str] = {}
    created_at: int
    last_active_at: int
    expires_after_days: int | None = None
    counts: FileCounts = FileCounts()
    usage_bytes: int = 0

    @property
    def expires_at(self) -> int | None:
        """When it expires, if nobody uses it until then."""
        if self.expires_after_days is None:
            return None
        return self.last_active_at + self.expires_after_days * 86_400


class AttachedFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file in a vector store. `status`: in_progress, completed, failed, cancelled."""

    file_id: str
    filename: str
    created_at: int
    attributes: Attributes = {}
    chunk_tokens: int = 800
    overlap_tokens: int = 400
    is_auto: bool = True
    """Whether the caller left the size of the chunks to us."""
    batch_id: str | None = None
    status: str = "in_progress"
    error_code: str | None = None
    """server_error, unsupported_file or invalid_file."""
    error_message: str | None = None
    usage_bytes: int = 0


class FileBatch(msgspec.Struct, frozen=True, kw_only=True):
    """Files that were attached together. `status` follows from the counts."""

    id: str
    created_at: int
    is_cancelled: bool = False
    counts: FileCounts = FileCounts()

    @property
    def status(self) -> str:
        """in_progress, completed or cancelled."""
        if self.is_cancelled:
            return "cancelled"
        return "in_progress" if self.counts.in_progress else "completed"


class Chunk(msgspec.Struct, frozen=True):
    """A piece of a file's text, in order. `vector` has float32 numbers, little endian."""

    text: str
    vector: bytes | None = None


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """A file to be indexed, leased to one process. No other lease ever has the same number."""

    owner: str
    store_id: str
    file: AttachedFile
    lease: int
    tries: int
    """How often it was taken before and not given back: that process died over it."""


class Search(msgspec.Struct, frozen=True, kw_only=True):
    """A question to some vector stores of one owner."""

    store_ids: Sequence[str]
    words: Sequence[str]
    """The words to look for, any of them. Never a query language: every word is literal."""
    vector: bytes | None = None
    embedding: str = ""
    """What made the vectors. Only those of the same kind are compared."""
    filter: Filter | None = None
    limit: int
    """How many chunks of each ranking are returned."""


class FoundChunk(msgspec.Struct, frozen=True, kw_only=True):
    """A chunk that was found, with its place in each ranking, from 0; None if it is not in it."""

    store_id: str
    file_id: str
    filename: str
    attributes: Attributes
    place: int
    """Which chunk of the file it is."""
    text: str
    by_words: int | None = None
    by_vector: int | None = None
    similarity: float | None = None
    """The cosine, if it was found by its vector."""


class VectorStores(Protocol):
    """The vector stores of all owners. An expired one is found: callers see its status."""

    @property
    def fault(self) -> str | None:
        """Why files cannot be searched here; None if they can. Changes raise it, too."""
        ...

    async def engine(self) -> str:
        """Return what compares vectors here, for a report to the operator."""
        ...

    async def add(
        self,
        owner: str,
        store: VectorStore,
        files: Sequence[AttachedFile] = (),
        once: ClaimRequest | None = None,
    ) -> Claim | None:
        """Store a new one with its first files and their jobs. `once` as in `Files.add`."""
        ...

    async def claimed(self, owner: str, once: ClaimRequest) -> Claim | None:
        """Return the claim that counts on this token, if what was made under it still exists."""
        ...

    async def find(self, owner: str, ids: Sequence[str]) -> dict[str, VectorStore]:
        """Return those of these vector stores that exist, by id."""
        ...

    async def page(
        self, owner: str, *, after: str | None = None, limit: int, is_descending: bool
    ) -> list[VectorStore]:
        """Return vector stores by time of creation. Raise KeyError if there is none `after`."""
        ...

    async def change(self, owner: str, store: VectorStore) -> VectorStore | None:
        """Replace name, description, metadata and expiry; None if there is none with its id.

        One that `expire` has emptied stays expired.
        """
        ...

    async def touch(self, owner: str, ids: Sequence[str], now: int) -> None:
        """Note that these were used now, unless they have expired. Need not be durable."""
        ...

    async def remove(self, owner: str, store_id: str) -> bool:
        """Remove it with all chunks and jobs; the files stay. Return whether there was one."""
        ...

    # Files in a vector store.

    async def attach(
        self,
        owner: str,
        store_id: str,
        files: Sequence[AttachedFile],
        batch: FileBatch | None = None,
        once: ClaimRequest | None = None,
    ) -> Claim | bool:
        """Attach files and make their jobs, in one step; False if there is no such vector store.

        False also if it has expired and is emptied. A file that is attached already is replaced,
        and indexed again. With `once` as in
        `Files.add`; what was made is the batch, or the first file.
        """
        ...

    async def find_file(self, owner: str, store_id: str, file_id: str) -> AttachedFile | None:
        """Return an attached file."""
        ...

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
        """Return files in the order they were attached, or the other way round.

        `before` alone returns those next to it. Raise KeyError for a wrong cursor.
        """
        ...

    async def set_attributes(
        self, owner: str, store_id: str, file_id: str, attributes: Attributes
    ) -> AttachedFile | None:
        """Replace the attributes of a file, and with them what filters see."""
        ...

    async def detach(self, owner: str, store_id: str, file_id: str) -> bool:
        """Remove a file with its chunks and its job from a vector store."""
        ...

    async def find_batch(self, owner: str, store_id: str, batch_id: str) -> FileBatch | None:
        """Return the batch with its counts."""
        ...

    async def cancel_batch(self, owner: str, store_id: str, batch_id: str) -> FileBatch | None:
        """Cancel what of it is in progress. A batch without such a file stays as it is."""
        ...

    async def chunks(
        self, owner: str, store_id: str, file_id: str, *, after: int = -1, limit: int
    ) -> list[str]:
        """Return the texts of a file's chunks in order, from the one behind `after` on."""
        ...

    # Indexing.

    async def take_job(self, holder: str, now: float, seconds: float) -> Job | None:
        """Take the oldest job that is free, or whose lease is over; None if there is none.

        One of an owner that has fewer jobs running comes first. A file whose job was taken
        MAX_TRIES times without an end fails instead.
        """
        ...

    async def renew_job(self, job: Job, now: float, seconds: float) -> bool:
        """Keep a job; False if it was cancelled, removed, or taken by another."""
        ...

    async def add_chunks(self, job: Job, chunks: Sequence[Chunk], *, embedding: str = "") -> bool:
        """Add chunks at the end; searchable on return. False, and nothing added, as in renew.

        What an earlier try has left is removed with the first chunks of a lease.
        """
        ...

    async def add_vectors(
        self, job: Job, first: int, vectors: Sequence[bytes], *, embedding: str
    ) -> bool:
        """Store the vectors of chunks from the place `first` on. False as in `renew_job`."""
        ...

    async def end_job(
        self, job: Job, *, error_code: str | None = None, error_message: str | None = None
    ) -> bool:
        """End a job: the file is completed, or failed. A failed one keeps no chunks."""
        ...

    async def release_job(self, job: Job, *, until: float = 0.0) -> bool:
        """Give a job back, to be taken again from that time on. It does not count as a try."""
        ...

    async def jobs_waiting(self) -> int:
        """Return how many jobs are not done."""
        ...

    # Search.

    async def search(self, owner: str, search: Search) -> list[FoundChunk]:
        """Return the best chunks of both rankings, each chunk once, in no particular order."""
        ...

    async def expire(self, now: int, limit: int) -> int:
        """Empty vector stores that have expired; return how many.

        Chunks and jobs are removed, files in progress are cancelled.
        """
        ...
