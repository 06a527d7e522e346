"""Processes that are killed while they index: the end is that of an undisturbed run."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from antiphon.store.base import Store
from antiphon.store.open import open_store
from antiphon.tools.index.file_index import FileIndex
from antiphon.tools.index.search import FileQuery
from tests.postgres import fresh_database
from tests.tools.index.embeddings_upstream import EmbeddingsServer, embeddings_server
from tests.tools.index.filled import OWNER, STORE, add_file, attach, make_store, wait_until_done
from tests.tools.index.ingest_victim import SETTINGS

pytestmark = [pytest.mark.slow, pytest.mark.heavy]

# More than two batches of chunks, and more than two of vectors.
LONG = "\n\n".join(f"Paragraph{n} is about subject{n}. " + "filler " * 45 for n in range(1_200))
# Each pair of processes dies at these two moments, one after the other.
KILLS = [
    ("take_job:1:after", "add_chunks:1:before"),
    ("add_chunks:1:after", "add_chunks:2:after"),
    ("add_chunks:3:before", "add_vectors:1:before"),
    ("add_vectors:2:after", "add_chunks:2:before"),
    ("chunks:3:after", "add_vectors:3:before"),
    ("end_job:1:before", "end_job:1:after"),
]


@asynccontextmanager
async def place(kind: str, folder: Path) -> AsyncIterator[str]:
    """Yield the URL of an empty store."""
    if kind == "sqlite":
        yield f"sqlite:{folder / 'store.db'}"  # makes its folder
        return
    async with fresh_database() as url:
        yield url


async def prepare(store: Store) -> None:
    await make_store(store)
    await add_file(store, "long", LONG)
    await add_file(store, "short", "Bread is made of flour.")
    await attach(store, "long", chunk_tokens=100, overlap_tokens=0, is_auto=False)
    await attach(store, "short")


async def kill(url: str, server: EmbeddingsServer, moment: str) -> None:
    """Run a process that dies at this moment."""
    command = [sys.executable, "-m", "tests.tools.index.ingest_victim", url, server.url, moment]
    process = await asyncio.create_subprocess_exec(*command)
    try:
        async with asyncio.timeout(120):
            assert await process.wait() == -signal.SIGKILL, moment
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def state(store: Store, index: FileIndex) -> dict[str, Any]:
    """Return everything that callers see of the vector store."""
    found = (await store.vector_stores.find(OWNER, [STORE]))[STORE]
    texts = {
        name: await store.vector_stores.chunks(OWNER, STORE, name, limit=10_000)
        for name in ("long", "short")
    }
    results = []
    for text in ("subject77", "flour", texts["long"][5], texts["long"][-1]):
        asked = FileQuery(store_ids=[STORE], queries=[text])
        ranked = await index.searcher.search(OWNER, asked)
        best = [(one.score, one.chunk.file_id, one.chunk.place) for one in ranked[:3]]
        results.append((len(ranked), best, ranked[0].chunk.by_vector is not None))
    return {
        "counts": found.counts,
        "bytes": found.usage_bytes,
        "texts": texts,
        "results": results,
        "jobs": await store.vector_stores.jobs_waiting(),
    }


async def run(kind: str, folder: Path, kills: tuple[str, ...]) -> dict[str, Any]:
    """Index with processes that die, then with one that does not."""
    async with place(kind, folder) as url, embeddings_server() as server:
        store = open_store(url)
        await prepare(store)
        for moment in kills:
            await kill(url, server, moment)
        index = FileIndex(store, embedder=server.embedder(batch=256), settings=SETTINGS)
        async with index.running():
            await wait_until_done(store)
            found = await state(store, index)
        await store.close()
    return found


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_killed_processes_change_nothing_in_the_end(kind: str, tmp_path: Path) -> None:
    """All at once: most of their time, they wait for the lease of a process that is dead."""
    expected = await run(kind, tmp_path / "plain", ())
    assert expected["counts"].completed == 2
    assert expected["jobs"] == 0
    assert len(expected["texts"]["long"]) > 1_100
    runs = {kills: run(kind, tmp_path / "+".join(kills), kills) for kills in KILLS}
    found = dict(zip(runs, await asyncio.gather(*runs.values()), strict=True))
    assert [kills for kills in KILLS if found[kills] != expected] == []
