"""Indexing: jobs of the store become chunks and vectors, whatever happens meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator

import pytest

from antiphon.store.base.vector_stores import AttachedFile
from antiphon.store.memory import MemoryStore
from antiphon.tools.documents.base import Source
from antiphon.tools.index.embed import EmbeddingFailed
from antiphon.tools.index.file_index import FileIndex
from antiphon.tools.index.ingest import IngestSettings
from antiphon.tools.index.search import FileQuery
from tests.tools.index.embeddings_upstream import EmbeddingsServer, embeddings_server
from tests.tools.index.filled import (
    OWNER,
    STORE,
    add_file,
    attach,
    fill,
    make_store,
    wait_until_done,
)

LONG = "\n\n".join(f"Paragraph {n} is about subject{n}. It has words." * 8 for n in range(200))


@pytest.fixture
async def store() -> AsyncIterator[MemoryStore]:
    made = MemoryStore()
    yield made
    await made.close()


@pytest.fixture
async def server() -> AsyncIterator[EmbeddingsServer]:
    async with embeddings_server() as running:
        yield running


async def file_of(store: MemoryStore, file_id: str = "f") -> AttachedFile:
    found = await store.vector_stores.find_file(OWNER, STORE, file_id)
    assert found is not None
    return found


async def find(index: FileIndex, query: str) -> list[str]:
    asked = FileQuery(store_ids=[STORE], queries=[query])
    return [one.chunk.file_id for one in await index.searcher.search(OWNER, asked)]


async def until_found(index: FileIndex, query: str) -> None:
    async with asyncio.timeout(60):
        while True:
            if await find(index, query):
                return
            await asyncio.sleep(0.01)


async def texts_of(store: MemoryStore, file_id: str = "f") -> list[str]:
    return await store.vector_stores.chunks(OWNER, STORE, file_id, limit=10_000)


async def test_an_attached_file_is_indexed_and_found(store: MemoryStore) -> None:
    index = FileIndex(store)
    await fill(store, {"f": LONG, "g": "Nothing of that."}, index=index)
    assert (await file_of(store)).status == "completed"
    assert (await find(index, "subject77"))[0] == "f"
    assert len(await texts_of(store)) > 20


async def test_the_sizes_of_chunks_are_those_of_the_file(store: MemoryStore) -> None:
    await make_store(store)
    await add_file(store, "f", LONG)
    await attach(store, "f", chunk_tokens=100, overlap_tokens=0, is_auto=False)
    async with FileIndex(store).running():
        await wait_until_done(store)
    assert max(map(len, await texts_of(store))) <= 400


async def test_waking_starts_at_once(store: MemoryStore) -> None:
    index = FileIndex(store, settings=IngestSettings(poll=3_600.0))
    await make_store(store)
    await add_file(store, "f", "Some words.")
    async with index.running():
        await asyncio.sleep(0)  # it looks, and finds nothing
        await attach(store, "f")
        index.wake()
        await wait_until_done(store)


async def test_polling_finds_what_others_attached(store: MemoryStore) -> None:
    await make_store(store)
    await add_file(store, "f", "Some words.")
    async with FileIndex(store, settings=IngestSettings(poll=0.01)).running():
        await attach(store, "f")
        await wait_until_done(store)


@pytest.mark.parametrize(
    ("content", "filename", "code"),
    [
        (b"\x00\x01\x02\x03" * 100, "f.bin", "unsupported_file"),
        (b"not a zip", "f.docx", "invalid_file"),
        (b" \n\n ", "f.txt", "invalid_file"),
        (b"", "f.txt", "invalid_file"),
    ],
)
async def test_a_file_that_cannot_be_read_fails_and_the_next_one_does_not(
    content: bytes, filename: str, code: str, store: MemoryStore
) -> None:
    await make_store(store)
    await add_file(store, "f", content, filename)
    await add_file(store, "g", "Some words.")
    await attach(store, "f")
    await attach(store, "g")
    async with FileIndex(store).running():
        counts = (await wait_until_done(store)).counts
    failed = await file_of(store)
    assert (counts.failed, counts.completed) == (1, 1)
    assert failed.status == "failed"
    assert failed.error_code == code
    assert failed.error_message
    assert await texts_of(store) == []


async def test_a_reader_that_breaks_fails_the_file(
    store: MemoryStore, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken:
        async def read(self, source: Source) -> AsyncGenerator[str, None]:
            yield "one"
            raise RuntimeError("secret")

        async def close(self) -> None:
            pass

    await fill(store, {"f": "x"}, index=FileIndex(store, reader=Broken()))
    failed = await file_of(store)
    assert failed.error_code == "server_error"
    assert failed.error_message == "the file could not be indexed"
    assert "secret" in caplog.text


async def test_a_file_that_was_deleted_is_not_indexed(store: MemoryStore) -> None:
    class Waiting:
        def __init__(self) -> None:
            self.is_reading = asyncio.Event()
            self.may_end = asyncio.Event()

        async def read(self, source: Source) -> AsyncGenerator[str, None]:
            yield "words " * 5_000
            self.is_reading.set()
            await self.may_end.wait()
            yield "more"

        async def close(self) -> None:
            pass

    reader = Waiting()
    index = FileIndex(store, reader=reader)
    await make_store(store)
    await add_file(store, "f", "x")
    await attach(store, "f")
    async with index.running():
        await reader.is_reading.wait()
        assert await store.files.remove(OWNER, "f")
        reader.may_end.set()
        await add_file(store, "g", "y")
        await attach(store, "g")
        index.wake()
        await wait_until_done(store)
    assert await store.vector_stores.find_file(OWNER, STORE, "f") is None
    assert await find(index, "words") == ["g"] * len(await texts_of(store, "g"))


async def test_a_lease_that_was_lost_stops_the_work(store: MemoryStore) -> None:
    class Endless:
        is_reading = asyncio.Event()
        is_over = asyncio.Event()

        async def read(self, source: Source) -> AsyncGenerator[str, None]:
            try:
                yield "words"
                self.is_reading.set()
                await asyncio.Event().wait()
            finally:
                self.is_over.set()

        async def close(self) -> None:
            pass

    reader = Endless()
    index = FileIndex(store, reader=reader, settings=IngestSettings(lease=0.1, poll=3_600.0))
    await make_store(store)
    await add_file(store, "f", "x")
    await attach(store, "f")
    async with index.running():
        async with asyncio.timeout(60):
            await reader.is_reading.wait()
        assert await store.vector_stores.detach(OWNER, STORE, "f")
        async with asyncio.timeout(60):
            await reader.is_over.wait()


async def test_ending_gives_the_job_back_and_another_process_ends_it(store: MemoryStore) -> None:
    class Stuck:
        is_reading = asyncio.Event()

        async def read(self, source: Source) -> AsyncGenerator[str, None]:
            yield LONG
            self.is_reading.set()
            await asyncio.Event().wait()

        async def close(self) -> None:
            pass

    await make_store(store)
    await add_file(store, "f", LONG)
    await attach(store, "f")
    reader = Stuck()
    async with FileIndex(store, reader=reader).running():
        await reader.is_reading.wait()
    async with FileIndex(store).running():
        await wait_until_done(store)
    found = await texts_of(store)
    assert len(found) == len(set(found))
    assert (await file_of(store)).status == "completed"


# Vectors.


async def test_words_are_searchable_before_the_vectors_are_there(
    store: MemoryStore, server: EmbeddingsServer
) -> None:
    index = FileIndex(store, embedder=server.embedder())
    by_words = FileIndex(store)
    await make_store(store)
    await add_file(store, "f", "The bore of the Severn.")
    await attach(store, "f")
    server.may_answer.clear()
    async with index.running():
        async with asyncio.timeout(60):
            await server.asked.wait()
        assert await find(by_words, "severn") == ["f"]
        assert (await file_of(store)).status == "in_progress"
        server.may_answer.set()
        await wait_until_done(store)
    found = await store.vector_stores.find(OWNER, [STORE])
    assert found[STORE].counts.completed == 1


async def test_every_chunk_gets_its_own_vector(
    store: MemoryStore, server: EmbeddingsServer
) -> None:
    index = FileIndex(store, embedder=server.embedder(batch=7))
    await fill(store, {"f": LONG, "g": "Bread."}, index=index)
    assert len(await texts_of(store)) > 14
    asked = [text for body in server.bodies for text in body["input"]]
    assert sorted(asked) == sorted([*await texts_of(store), "Bread."])
    assert max(len(body["input"]) for body in server.bodies) == 7
    for text in (await texts_of(store))[::9]:
        query = FileQuery(store_ids=[STORE], queries=[text])
        best = (await index.searcher.search(OWNER, query))[0]
        assert best.chunk.text == text
        assert best.chunk.by_vector == 0
        assert best.chunk.similarity == pytest.approx(1.0, abs=1e-4)


async def test_a_failure_that_may_pass_is_tried_again(
    store: MemoryStore, server: EmbeddingsServer
) -> None:
    server.statuses = [503, 429]
    await fill(store, {"f": "Bread."}, index=FileIndex(store, embedder=server.embedder()))
    assert (await file_of(store)).status == "completed"
    assert len(server.bodies) == 3


@pytest.mark.parametrize("statuses", [[400], [503] * 6])
async def test_a_failure_that_stays_fails_the_file_with_its_reason(
    statuses: list[int], store: MemoryStore, server: EmbeddingsServer
) -> None:
    server.statuses = list(statuses)
    await fill(store, {"f": "Bread."}, index=FileIndex(store, embedder=server.embedder()))
    failed = await file_of(store)
    assert failed.status == "failed"
    assert failed.error_code == "server_error"
    assert f"HTTP {statuses[0]}" in (failed.error_message or "")
    assert len(server.bodies) == len(statuses)


async def test_files_that_wait_for_vectors_do_not_delay_words_of_others(
    store: MemoryStore, server: EmbeddingsServer
) -> None:
    index = FileIndex(store, embedder=server.embedder(), settings=IngestSettings(at_once=1))
    server.may_answer.clear()
    await make_store(store)
    by_words = FileIndex(store)
    async with index.running():
        for n in range(5):
            await add_file(store, f"f{n}", f"number{n}")
            await attach(store, f"f{n}")
            index.wake()
            await until_found(by_words, f"number{n}")
        server.may_answer.set()
        counts = (await wait_until_done(store)).counts
    assert counts.completed == 5


async def test_a_query_whose_vector_cannot_be_made_fails(
    store: MemoryStore, server: EmbeddingsServer
) -> None:
    index = FileIndex(store, embedder=server.embedder())
    await fill(store, {"f": "Bread."}, index=index)
    server.statuses = [503]
    with pytest.raises(EmbeddingFailed):
        await find(index, "bread")
