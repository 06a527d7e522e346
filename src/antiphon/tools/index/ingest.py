"""How do attached files become searchable? Jobs of the store, done beside the requests.

    take a job -> read the document -> chunks, stored as they come (searchable by words)
               -> vectors of the stored chunks, if there are embeddings -> end of the job

A job is leased: it is renewed while it is worked on, and a process that dies only delays it until
the lease ends. What an earlier try has stored goes with the first chunks of the next one. So the
end is the same however often processes die. A job that was cancelled, removed or taken by another
process is dropped at the next step.

Few documents are read at the same time. Vectors take far longer than words, so they have a queue
of their own, where jobs take turns: the next file is searchable by words while others wait.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Final, Protocol

import msgspec

from antiphon.protocol.errors import LimitReached, StoreUnavailable
from antiphon.store.base.blobs import Blobs
from antiphon.store.base.files import Files, StoredFile
from antiphon.store.base.vector_stores import Chunk, Job, VectorStores
from antiphon.tools.documents.base import DocumentFailed, DocumentReader, Source
from antiphon.tools.index.chunk import Chunker
from antiphon.tools.index.embed import Embedder, EmbeddingFailed
from antiphon.transport.aside import aside_if

__all__ = ["FileStore", "Ingest", "IngestSettings"]

_CHUNKS: Final = 512  # stored at once: a busy database must be done with them in time
_LARGE: Final = 64 * 1024  # characters; larger pieces are cut beside the event loop
_log = logging.getLogger(__name__)


class FileStore(Protocol):
    """The facets of the store that are needed here."""

    @property
    def files(self) -> Files:
        """Uploaded files."""
        ...

    @property
    def blobs(self) -> Blobs:
        """Their contents."""
        ...

    @property
    def vector_stores(self) -> VectorStores:
        """Where they become searchable."""
        ...


class IngestSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How much is done at once, and how long things may take, in seconds."""

    at_once: int = 2
    """Documents that are read at the same time."""
    embed_at_once: int = 1
    """Batches of texts that are embedded at the same time."""
    held: int = 128
    """Jobs that this process has taken, those that wait for vectors included."""
    lease: float = 30.0
    poll: float = 2.0
    """How often to look for what other processes have left."""
    embed_tries: int = 6
    embed_wait: float = 1.0
    """Before the second try; each further one waits twice as long."""


class _Dropped(Exception):
    """The job was cancelled, removed, or taken by another process."""


class Ingest:
    """Indexes attached files in this process, while `running`."""

    def __init__(
        self,
        store: FileStore,
        reader: DocumentReader,
        embedder: Embedder | None = None,
        settings: IngestSettings | None = None,
        *,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._store = store
        self._reader = reader
        self._embedder = embedder
        self._settings = settings or IngestSettings()
        self._now = now
        self._holder = secrets.token_hex(8)
        self._reading = asyncio.Semaphore(self._settings.at_once)
        self._embedding = asyncio.Semaphore(self._settings.embed_at_once)
        self._held = asyncio.Semaphore(self._settings.held)
        self._woken = asyncio.Event()
        self._jobs: set[asyncio.Task[None]] = set()

    def wake(self) -> None:
        """Look for jobs now: a file was attached."""
        self._woken.set()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Index inside this context. At the end, jobs are given back to other processes."""
        taking = asyncio.create_task(self._take_jobs())
        try:
            yield
        finally:
            tasks = [taking, *self._jobs]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _take_jobs(self) -> None:
        is_well = True
        while True:
            self._woken.clear()
            try:
                while await self._take_job():
                    pass
                is_well = True
            except StoreUnavailable as error:
                if is_well:  # once is enough
                    _log.warning("no files can be indexed now: %s", error)
                is_well = False
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._settings.poll):
                    await self._woken.wait()

    async def _take_job(self) -> bool:
        """Take one job as soon as it can be begun; return whether there was one."""
        async with self._reading:
            pass  # a document can be read now
        await self._held.acquire()
        try:
            stores, lease = self._store.vector_stores, self._settings.lease
            job = await stores.take_job(self._holder, self._now(), lease)
        except BaseException:
            self._held.release()
            raise
        if job is None:
            self._held.release()
            return False
        # The task takes its place before the next job is looked for.
        begun = asyncio.Event()
        task = asyncio.create_task(self._do(job, begun))
        self._jobs.add(task)
        task.add_done_callback(self._forget)
        await begun.wait()
        return True

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._jobs.discard(task)
        self._held.release()

    # One job.

    async def _do(self, job: Job, begun: asyncio.Event) -> None:
        """Do a job, with its lease renewed meanwhile. The outermost frame of its task."""
        work = asyncio.current_task()
        assert work is not None
        renewing = asyncio.create_task(self._renew(job, work))
        try:
            await self._index(job, begun)
        except _Dropped:
            _log.info("indexing of %s was given up: it was cancelled or removed", job.file.file_id)
        except StoreUnavailable as error:
            _log.warning("indexing of %s is delayed: %s", job.file.file_id, error)
            await self._give_back(job, self._settings.poll)
        except asyncio.CancelledError:
            await self._give_back(job)
            raise
        finally:
            begun.set()
            renewing.cancel()

    async def _renew(self, job: Job, work: asyncio.Task[None]) -> None:
        """Keep the lease. Stop the work when it was lost."""
        while True:
            await asyncio.sleep(self._settings.lease / 3)
            try:
                is_ours = await self._store.vector_stores.renew_job(
                    job, self._now(), self._settings.lease
                )
            except StoreUnavailable:
                continue  # the lease lasts a while
            if not is_ours:
                work.cancel()
                return

    async def _give_back(self, job: Job, seconds: float = 0.0) -> None:
        """Let any process take the job again; if the store fails, when the lease is over."""
        until = self._now() + seconds if seconds else 0.0
        with contextlib.suppress(StoreUnavailable):
            await self._store.vector_stores.release_job(job, until=until)

    async def _index(self, job: Job, begun: asyncio.Event) -> None:
        code: str | None = None
        message: str | None = None
        try:
            async with self._reading:
                begun.set()
                await self._add_words(job)
            await self._add_vectors(job)
        except DocumentFailed as failure:
            code, message = failure.code, failure.message
        except EmbeddingFailed as failure:
            code, message = "server_error", str(failure)
        except (_Dropped, StoreUnavailable):
            raise
        except Exception:  # noqa: BLE001 - one file fails, and the others do not
            _log.exception("the file %s could not be indexed", job.file.file_id)
            code, message = "server_error", "the file could not be indexed"
        stores = self._store.vector_stores
        _check(await stores.end_job(job, error_code=code, error_message=message))

    async def _add_words(self, job: Job) -> None:
        """Store the chunks of the document as they come. While some are stored, more are read."""
        adding: asyncio.Task[None] | None = None
        try:
            async with aclosing(self._chunks(job)) as batches:
                async for texts in batches:
                    if adding is not None:
                        await adding
                    adding = asyncio.create_task(self._add(job, texts))
            if adding is None:
                raise DocumentFailed("invalid_file", "the file has no text in it")
            await adding
        finally:
            if adding is not None:
                adding.cancel()
                await asyncio.gather(adding, return_exceptions=True)

    async def _chunks(self, job: Job) -> AsyncGenerator[list[str], None]:
        """Yield the chunks of the document, many at a time."""
        file = await self._find(job)
        chunker = Chunker(job.file.chunk_tokens, job.file.overlap_tokens)
        waiting: list[str] = []
        async with aclosing(self._reader.read(self._source(job.owner, file))) as pieces:
            async for text in pieces:
                waiting += await aside_if(len(text) > _LARGE, chunker.feed, text)
                while len(waiting) >= _CHUNKS:
                    yield waiting[:_CHUNKS]
                    del waiting[:_CHUNKS]
        waiting += chunker.finish()
        if waiting:
            yield waiting

    async def _find(self, job: Job) -> StoredFile:
        file_id = job.file.file_id
        found = await self._store.files.find(job.owner, [file_id], int(self._now()))
        if file_id not in found:
            raise DocumentFailed("invalid_file", "the file was deleted or has expired")
        return found[file_id]

    def _source(self, owner: str, file: StoredFile) -> Source:
        async def read(offset: int, size: int) -> bytes:
            return await self._store.blobs.read(owner, file.blob.id, offset, size)

        return Source(file.filename, file.size, read)

    async def _add(self, job: Job, texts: list[str]) -> None:
        chunks = [Chunk(text) for text in texts]
        _check(await self._store.vector_stores.add_chunks(job, chunks))

    # Vectors.

    async def _add_vectors(self, job: Job) -> None:
        """Store a vector for each chunk. The texts are read from the store, never all at once."""
        embedder, stores = self._embedder, self._store.vector_stores
        if embedder is None:
            return
        place, file_id = 0, job.file.file_id
        while texts := await stores.chunks(
            job.owner, job.store_id, file_id, after=place - 1, limit=embedder.batch
        ):
            vectors = await self._embed(embedder, job.owner, texts)
            _check(await stores.add_vectors(job, place, vectors, embedding=embedder.kind))
            place += len(texts)

    async def _embed(self, embedder: Embedder, owner: str, texts: list[str]) -> list[bytes]:
        """Return the vectors; try again what may pass."""
        wait = self._settings.embed_wait
        for left in reversed(range(self._settings.embed_tries)):
            try:
                async with self._embedding:
                    return await _embed_paid(embedder, owner, texts)
            except EmbeddingFailed as failure:
                if not failure.may_pass or not left:
                    raise
                await asyncio.sleep(wait if failure.wait is None else failure.wait)
                wait *= 2
        raise AssertionError("there is at least one try")


async def _embed_paid(embedder: Embedder, owner: str, texts: list[str]) -> list[bytes]:
    """Return the vectors. To have no room in a budget is a failure like others."""
    try:
        return await embedder.embed(owner, texts)
    except LimitReached as limit:
        may_pass = limit.retry_after is not None
        raise EmbeddingFailed(str(limit), may_pass=may_pass, wait=limit.retry_after) from None


def _check(is_ours: bool) -> None:
    if not is_ours:
        raise _Dropped
