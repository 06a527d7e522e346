"""After a removal no byte of the text is left in the files; and what a SQLite without FTS5 does."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from antiphon.protocol.errors import StoreUnavailable
from antiphon.store.base import StoredFile
from antiphon.store.base.vector_stores import Chunk, Search
from antiphon.store.sqlite import SqliteStore, vector_words
from tests.store.vector_samples import (
    OWNER,
    add_store,
    file,
    find_words,
    index_file,
    take,
    vector,
    vector_store,
)

SECRETS = ("xylophonist", "quizzaciously", "syzygy", "embezzlement of jabberwocky")
TEXT = "harmless words before " + " and ".join(SECRETS) + " harmless words after"
STAYS = "harmless words that stay with zephyr"


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    made = SqliteStore(tmp_path / "a.db")
    yield made
    await made.close()


@pytest.mark.parametrize("change", ["detach", "remove", "replace", "delete", "expire", "cancel"])
async def test_removed_text_is_in_no_file(store: SqliteStore, tmp_path: Path, change: str) -> None:
    await store.vector_stores.add(OWNER, vector_store(days=1))
    await add_store(store, name="vs_2")
    for number in range(20):
        await index_file(store, f"g{number}", *[f"{STAYS} {number} {n}" for n in range(30)],
                         store_id="vs_2")  # fmt: skip
    await index_file(store, "f2", STAYS)
    chunks = [Chunk(f"{TEXT} {n}", vector(3.25, 7.125, n)) for n in range(700)]
    await index_file(store, "f1", *chunks, embedding="e")
    assert _found(tmp_path, SECRETS[0])
    await _do(store, change)
    for secret in (*SECRETS, "xylophon", "quizzaci"):  # also their stems
        assert _found(tmp_path, secret) == []
    assert len(await find_words(store, "zephyr", store_ids=["vs_2"], limit=1000)) == 600
    with sqlite3.connect(tmp_path / "a.db-files") as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


async def test_a_clean_up_that_was_interrupted_is_completed_by_the_sweep(
    store: SqliteStore, tmp_path: Path
) -> None:
    await add_store(store)
    await index_file(store, "f2", STAYS)
    await index_file(store, "f1", *[f"{TEXT} {n}" for n in range(700)])
    impatient = SqliteStore(tmp_path / "a.db")
    impatient.vector_stores._patience = -1.0
    assert await impatient.vector_stores.detach(OWNER, "vs_1", "f1")
    await impatient.close()
    assert await find_words(store, "harmless", "syzygy") != []
    assert await find_words(store, "syzygy") == []
    assert _found(tmp_path, SECRETS[0])
    await store.files.sweep(10, 100)
    assert _found(tmp_path, SECRETS[0]) == []


async def test_a_sqlite_without_fts5_is_reported(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await add_store(store, file("f1"))
    job = await take(store)
    assert store.vector_stores.fault is None
    monkeypatch.setattr(vector_words, "_creation", lambda name: [f"CREATE VIRTUAL TABLE {name} USING fts6(text)"])  # fmt: skip # noqa: E501
    vector_words.has_fts5.cache_clear()
    try:
        assert "FTS5" in (store.vector_stores.fault or "")
        with pytest.raises(StoreUnavailable, match="FTS5"):
            await store.vector_stores.search(OWNER, Search(store_ids=[], words=[], limit=1))
        with pytest.raises(StoreUnavailable, match="FTS5"):
            await store.vector_stores.add(OWNER, vector_store("vs_2"))
        with pytest.raises(StoreUnavailable, match="FTS5"):
            await store.vector_stores.add_chunks(job, [])
        assert await store.files.find(OWNER, ["file_1"], 5) == {}
    finally:
        vector_words.has_fts5.cache_clear()


async def test_common_words_alone_rank_the_newest_chunks(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vector_words, "RANKED", 10)
    await add_store(store)
    await index_file(store, "f1", *[f"common text number{n}" for n in range(50)], "rare common")
    found = await find_words(store, "common", limit=50)
    assert {one.place for one in found} == set(range(41, 51))
    assert [one.place for one in await find_words(store, "common", "rare", limit=50)] == [50]


def _found(folder: Path, text: str) -> list[str]:
    return [
        path.name
        for path in folder.rglob("*")
        if path.is_file() and text.encode() in path.read_bytes()
    ]


async def _do(store: SqliteStore, change: str) -> None:
    stores = store.vector_stores
    if change == "detach":
        assert await stores.detach(OWNER, "vs_1", "f1")
    elif change == "remove":
        assert await stores.remove(OWNER, "vs_1")
    elif change == "replace":
        assert await stores.attach(OWNER, "vs_1", [file("f1")]) is True
    elif change == "delete":
        writer = await store.blobs.create(OWNER)
        await writer.write(TEXT.encode())
        blob = await writer.finish()
        made = StoredFile(id="f1", filename="a", purpose="assistants", created_at=1, blob=blob)
        await store.files.add(OWNER, made)
        assert await store.files.remove(OWNER, "f1")
    elif change == "expire":
        assert await stores.expire(10**6, 10) == 1
    else:
        job_file = file("f1")
        assert await stores.attach(OWNER, "vs_1", [job_file]) is True
        job = await take(store)
        assert await stores.add_chunks(job, [Chunk(TEXT)] * 50)
        assert await stores.end_job(job, error_code="invalid_file")
        await store.files.sweep(10, 10)
