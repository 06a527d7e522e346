"""Vectors in PostgreSQL: the extension ranks exactly as the gateway does, and may be missing."""

from __future__ import annotations

import os
import random
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import pytest

from antiphon.store.base.vector_stores import Chunk, Filter, FoundChunk, Search
from antiphon.store.postgres import PostgresStore
from antiphon.store.postgres.database import Database
from antiphon.store.vectors import nearest_plain
from tests.postgres import fresh_database, server
from tests.store.vector_samples import OWNER, add_store, file, index_file, take, vector

WIDTH = 24
FILES = 12
CHUNKS = 30


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
    engine = await made.vector_stores.engine()
    if "pgvector" not in engine and os.environ.get("ANTIPHON_NEEDS_POSTGRES") != "1":
        await made.close()
        pytest.skip(f"this PostgreSQL has no pgvector: {engine}")
    assert engine.startswith("pgvector ")
    yield made
    await made.close()


def _draw(seed: int) -> list[list[bytes]]:
    """Return vectors for the chunks of each file; one is twice there, one has no length."""
    rng = random.Random(seed)
    files = [
        [vector(*(rng.gauss(0, 1) for _ in range(WIDTH))) for _ in range(CHUNKS)]
        for _ in range(FILES)
    ]
    files[4][7] = files[2][3]
    files[5][0] = vector(*[0.0] * WIDTH)
    return files


async def _fill(store: PostgresStore, files: list[list[bytes]]) -> None:
    await add_store(store)
    for number, vectors in enumerate(files):
        chunks = [Chunk(f"text {place}", one) for place, one in enumerate(vectors)]
        await index_file(store, f"f{number}", *chunks, attributes={"number": number}, embedding="e")
    await index_file(store, "short", Chunk("short", vector(1, 2)), embedding="e")


async def _search(
    store: PostgresStore, wanted: bytes, where: Filter | None = None, limit: int = 25
) -> list[FoundChunk]:
    search = Search(
        store_ids=["vs_1"], words=[], vector=wanted, embedding="e", filter=where, limit=limit
    )
    found = await store.vector_stores.search(OWNER, search)
    return sorted(found, key=lambda one: one.by_vector or 0)


def _expected(
    files: list[list[bytes]], wanted: bytes, numbers: range, limit: int = 25
) -> list[tuple[str, int]]:
    rows = [
        (number * CHUNKS + place, one)
        for number in numbers
        for place, one in enumerate(files[number])
    ]
    near = nearest_plain(wanted, rows, limit)
    return [(f"f{key // CHUNKS}", key % CHUNKS) for key, _ in near]


async def _dense(connection: Any) -> int:
    return int(await connection.fetchval("SELECT count(*) FROM vector_dense"))


@pytest.mark.parametrize("limit", [1, 25, 1000])
async def test_the_ranking_is_the_exact_one_under_every_filter(
    store: PostgresStore, connection: Any, limit: int
) -> None:
    files = _draw(1)
    await _fill(store, files)
    assert await _dense(connection) == FILES * CHUNKS + 1
    for wanted in (files[2][3], vector(*range(1, WIDTH + 1))):
        for first, last in ((0, FILES), (3, 6), (7, 8)):
            where = Filter(
                "and", filters=(Filter("gte", "number", first), Filter("lt", "number", last))
            )
            found = await _search(store, wanted, where, limit)
            expected = _expected(files, wanted, range(first, last), limit)
            assert [(one.file_id, one.place) for one in found] == expected


async def test_both_ways_give_the_same_places_and_cosines(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = _draw(2)
    await _fill(store, files)
    wanted = vector(*range(WIDTH, 0, -1))
    by_database = await _search(store, wanted)
    monkeypatch.setattr(Database, "pgvector", None)
    by_gateway = await _search(store, wanted)
    assert [(one.file_id, one.place, one.by_vector) for one in by_database] == [
        (one.file_id, one.place, one.by_vector) for one in by_gateway
    ]
    for one, other in zip(by_database, by_gateway, strict=True):
        assert one.similarity == pytest.approx(other.similarity, abs=1e-5)


async def test_a_vector_of_no_length_has_the_cosine_0(store: PostgresStore) -> None:
    await add_store(store)
    chunks = [Chunk("a", vector(0, 0)), Chunk("b", vector(1, 0)), Chunk("c", vector(-1, 0))]
    await index_file(store, "f1", *chunks, embedding="e")
    found = await _search(store, vector(2, 0))
    assert [(one.place, one.similarity) for one in found] == [(1, 1.0), (0, 0.0), (2, -1.0)]


async def test_vectors_stored_without_the_extension_are_found_and_follow_in_the_sweep(
    store: PostgresStore, connection: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = _draw(3)
    with monkeypatch.context() as without:
        without.setattr(Database, "pgvector", None)
        await _fill(store, files)
    assert await _dense(connection) == 0
    await index_file(store, "new", Chunk("new", files[0][0]), embedding="e")
    expected = _expected(files, files[0][0], range(FILES), 24)
    for count in (1, FILES * CHUNKS + 2):
        assert await _dense(connection) == count
        found = [(one.file_id, one.place) for one in await _search(store, files[0][0])]
        assert sorted(found[:2]) == [("f0", 0), ("new", 0)]
        assert [one for one in found if one[0] != "new"] == expected
        await store.sweep(0, 0)


@pytest.mark.parametrize("is_used", [True, False])
async def test_vectors_that_change_are_compared_as_they_are_now(
    store: PostgresStore, url: str, monkeypatch: pytest.MonkeyPatch, is_used: bool
) -> None:
    if not is_used:
        monkeypatch.setattr(Database, "pgvector", None)
    await add_store(store)
    other = PostgresStore(url)
    await store.vector_stores.attach(OWNER, "vs_1", [file("f1")])
    job = await take(store)
    assert await store.vector_stores.add_chunks(job, [Chunk("a"), Chunk("b")])
    for first, second in ((vector(1, 0), vector(0, 1)), (vector(0, 1), vector(1, 0))):
        for place, one in enumerate((first, second)):
            assert await store.vector_stores.add_vectors(job, place, [one], embedding="e")
        found = await _search(other, vector(1, 0))
        assert [one.place for one in found] == ([0, 1] if first == vector(1, 0) else [1, 0])
    await other.close()


async def test_vectors_of_a_removed_file_leave_the_database(
    store: PostgresStore, connection: Any
) -> None:
    await _fill(store, _draw(4))
    before = await _dense(connection)
    assert await store.vector_stores.detach(OWNER, "vs_1", "f3")
    assert await _dense(connection) == before - CHUNKS
    loaded = await connection.fetchval("SELECT count(*) FROM vector_loaded")
    assert loaded == FILES


async def test_a_dropped_extension_is_survived(
    store: PostgresStore, connection: Any, url: str
) -> None:
    files = _draw(5)
    await _fill(store, files)
    await store.close()
    await connection.execute("ALTER TABLE vector_dense DROP COLUMN vector")
    again = PostgresStore(url, patience=60.0)
    found = await _search(again, files[1][1], limit=5)
    assert [(one.file_id, one.place) for one in found] == _expected(
        files, files[1][1], range(FILES), 5
    )
    assert await _dense(connection) == 0
    await again.sweep(0, 0)
    assert await _dense(connection) == FILES * CHUNKS + 1
    await again.close()


async def test_a_role_that_may_not_create_the_extension_is_served(store: PostgresStore) -> None:
    if not server().is_ours:
        pytest.skip("roles are made on a server of our own only")
    admin = await asyncpg.connect(server().url)
    await admin.execute("CREATE ROLE modest LOGIN")
    await admin.execute("CREATE DATABASE modest")
    parts = urlsplit(server().url)
    place = urlunsplit(parts._replace(path="/modest")).replace(":/modest", ":///modest")
    owner = await asyncpg.connect(place)
    await owner.execute("CREATE SCHEMA modest AUTHORIZATION modest")
    modest = PostgresStore(_as_role(place, "modest"), patience=60.0)
    engine = await modest.vector_stores.engine()
    assert engine.startswith("numpy, exact, in memory; the extension `vector` cannot be used: ")
    await add_store(modest)
    await index_file(modest, "f1", Chunk("a", vector(1, 0)), embedding="e")
    assert [one.file_id for one in await _search(modest, vector(1, 0))] == ["f1"]
    await modest.close()
    # As soon as somebody has created it, the same role uses it.
    await owner.execute("CREATE EXTENSION vector")
    modest = PostgresStore(_as_role(place, "modest"), patience=60.0)
    assert (await modest.vector_stores.engine()).startswith("pgvector ")
    assert [one.file_id for one in await _search(modest, vector(1, 0))] == ["f1"]
    await modest.close()
    await owner.close()
    await admin.execute("DROP DATABASE modest")
    await admin.execute("DROP ROLE modest")
    await admin.close()


def _as_role(url: str, role: str) -> str:
    parts = urlsplit(url)
    query = f"{parts.query}&user={role}&search_path={role}".lstrip("&")
    return f"{parts.scheme}://{parts.path}?{query}"
