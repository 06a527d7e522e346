"""The words of chunks in PostgreSQL: what waits, what is in blocks, and what a removal leaves."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from antiphon.store.base.vector_stores import FoundChunk
from antiphon.store.postgres import PostgresStore, vector_blocks
from antiphon.store.postgres.migrations import MIGRATIONS, migrate
from antiphon.store.vector_rows import chunk_keys, file_body, first_part, store_body
from tests.postgres import fresh_database
from tests.store.vector_samples import (
    OWNER,
    add_store,
    file,
    find_words,
    index_file,
    places,
    vector_store,
)

# The version with a row for each term and file.
BEFORE_BLOCKS = MIGRATIONS[:6]


@pytest.fixture
async def url() -> AsyncIterator[str]:
    async with fresh_database() as made:
        yield made


@pytest.fixture
async def connection(url: str) -> AsyncIterator[Any]:
    made = await asyncpg.connect(url)
    yield made
    await made.close()


@pytest.fixture
async def store(url: str) -> AsyncIterator[PostgresStore]:
    made = PostgresStore(url, patience=60.0)
    yield made
    await made.close()


async def _fill(store: PostgresStore) -> None:
    await add_store(store)
    for number in range(6):
        texts = [f"river number{number} place{place} " + "common " * place for place in range(5)]
        await index_file(store, f"f{number}", *texts, "Severn tide" if number == 3 else "other")


async def _ask(store: PostgresStore) -> list[FoundChunk]:
    return await find_words(store, "rivers", "number3", "tides", "common", limit=50)


async def _terms(connection: Any) -> set[str]:
    rows = await connection.fetch(
        'SELECT term FROM vector_blocks UNION SELECT unnest(terms) COLLATE "C" FROM vector_waiting'
    )
    return {row[0] for row in rows}


async def test_words_are_found_alike_before_and_after_they_become_blocks(
    store: PostgresStore, connection: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    await _fill(store)
    before = await _ask(store)
    assert places(before)[0] == ("f3", 5)
    assert await connection.fetchval("SELECT count(*) FROM vector_blocks") == 0
    monkeypatch.setattr(vector_blocks, "_MAX_POSTINGS", 1)
    await index_file(store, "f9", "unrelated")
    assert await connection.fetchval("SELECT count(*) FROM vector_waiting") == 0
    rows = await connection.fetch("SELECT chunks FROM vector_blocks WHERE term = 'river'")
    assert [row[0] for row in rows] == [30]
    assert await _ask(store) == before


async def test_many_chunks_become_blocks_at_once(store: PostgresStore, connection: Any) -> None:
    await add_store(store)
    await index_file(store, "f1", *(f"river number{place}" for place in range(400)))
    assert await connection.fetchval("SELECT count(*) FROM vector_waiting") == 0
    assert places(await find_words(store, "number399")) == [("f1", 399)]


@pytest.mark.parametrize("has_blocks", [False, True])
async def test_no_word_of_a_removed_file_is_left(
    store: PostgresStore, connection: Any, monkeypatch: pytest.MonkeyPatch, has_blocks: bool
) -> None:
    await _fill(store)
    if has_blocks:
        monkeypatch.setattr(vector_blocks, "_MAX_POSTINGS", 1)
        await index_file(store, "f9", "unrelated")
    assert {"severn", "tide", "number3"} <= await _terms(connection)
    assert await store.vector_stores.detach(OWNER, "vs_1", "f3")
    left = await _terms(connection)
    assert not {"severn", "tide", "number3"} & left
    assert {"river", "number2", "common"} <= left
    assert len(await find_words(store, "river", limit=50)) == 25
    count = await connection.fetchval("SELECT sum(chunks) FROM vector_blocks WHERE term = 'river'")
    assert count == (25 if has_blocks else None)
    assert await connection.fetchval("SELECT count(*) FROM vector_gone") == 0


@pytest.mark.parametrize("has_blocks", [False, True])
async def test_nothing_of_a_removed_vector_store_is_left(
    store: PostgresStore, connection: Any, monkeypatch: pytest.MonkeyPatch, has_blocks: bool
) -> None:
    await _fill(store)
    if has_blocks:
        monkeypatch.setattr(vector_blocks, "_MAX_POSTINGS", 1)
    await store.vector_stores.add(OWNER, vector_store("vs_2"))
    await index_file(store, "f9", "unrelated river", store_id="vs_2")
    assert await store.vector_stores.remove(OWNER, "vs_1")
    assert await _terms(connection) == {"unrel", "river"}
    assert await connection.fetchval("SELECT count(*) FROM vector_chunks") == 1
    assert places(await find_words(store, "rivers", store_ids=["vs_2"])) == [("f9", 0)]


async def test_words_of_an_older_database_are_found(url: str, connection: Any) -> None:
    await migrate(connection, BEFORE_BLOCKS)
    await connection.execute(
        "INSERT INTO vector_stores VALUES (7, $1, 'vs_1', 1, 1, NULL, NULL, 0, 2, $2)",
        OWNER,
        store_body(vector_store()),
    )
    for number in range(2):
        await _add_old_file(connection, first_part(7) + number, f"f{number}")
    store = PostgresStore(url)
    found = await find_words(store, "rivers")
    assert places(found) == [("f0", 1), ("f1", 1), ("f0", 0), ("f1", 0)]
    assert places(await find_words(store, "f1")) == [("f1", 0)]
    await store.close()


async def test_gateways_that_know_no_blocks_use_the_same_words(url: str, connection: Any) -> None:
    await migrate(connection)
    await connection.execute(
        "INSERT INTO vector_stores VALUES (7, $1, 'vs_1', 1, 1, NULL, NULL, 0, 2, $2)",
        OWNER,
        store_body(vector_store()),
    )
    await _add_old_file(connection, first_part(7), "f0")
    store = PostgresStore(url)
    await index_file(store, "f5", "a waiting river")
    assert places(await find_words(store, "rivers")) == [("f0", 1), ("f0", 0), ("f5", 0)]
    rows = await connection.fetch(
        "SELECT part, place, times, length FROM vector_terms,"
        " unnest(places, counts, lengths) AS found (place, times, length)"
        " WHERE store = 7 AND term = 'river' ORDER BY part, place"
    )
    other = await connection.fetchval("SELECT part FROM vector_files WHERE file = 'f5'")
    assert [tuple(row) for row in rows] == [
        (first_part(7), 0, 1, 2),
        (first_part(7), 1, 2, 2),
        (other, 0, 1, 2),
    ]
    for part in (first_part(7), other):
        await connection.execute("DELETE FROM vector_terms WHERE part = $1", part)
    assert await _terms(connection) == set()
    await store.close()


async def _add_old_file(connection: Any, part: int, name: str) -> None:
    """Store a file as it was stored before there were blocks."""
    await connection.execute(
        "INSERT INTO vector_files (store, owner, file, created_at, status, usage, part, chunks,"
        " lease, version, embedding, last_call, body)"
        " VALUES (7, $1, $2, 1, 'completed', 9, $3, 2, 1, 0, '', 1, $4)",
        OWNER,
        name,
        part,
        file_body(file(name)),
    )
    first = chunk_keys(part).start
    texts = [f"{name} and a river", "river river"]
    for place, text in enumerate(texts):
        await connection.execute(
            "INSERT INTO vector_chunks VALUES ($1, $2)", first + place, text.encode()
        )
    await connection.execute(
        "INSERT INTO vector_terms VALUES (7, 'river', $1, 2, '{0,1}', '{1,2}', '{2,2}'),"
        " (7, $2, $1, 1, '{0}', '{1}', '{2}')",
        part,
        name,
    )
    await connection.execute("INSERT INTO vector_lengths VALUES ($1, 4)", part)
