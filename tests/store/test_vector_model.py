"""Every store does what the model of vector stores does, and planted bugs are found."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from antiphon.store import MemoryStore, SqliteStore
from antiphon.store.base.filters import fulfils
from antiphon.store.postgres import PostgresStore
from antiphon.store.sql import vector_files, vector_jobs
from antiphon.store.sqlite import vector_stores as sqlite_facet
from antiphon.store.vectors import VectorCache
from tests.postgres import fresh_database
from tests.store.vector_model import play

_FAST: Final = Path("/dev/shm")  # commits need no disk here
_SETTINGS: Final = settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
_Patch = Callable[[pytest.MonkeyPatch], None]
seeds = st.integers(0, 2**32)


@_SETTINGS
@given(seed=seeds)
async def test_memory_does_what_the_model_does(seed: int) -> None:
    await play(MemoryStore(), seed, steps=80)


@_SETTINGS
@given(seed=seeds)
async def test_sqlite_does_what_the_model_does(seed: int) -> None:
    await _play_sqlite(seed, steps=60)


@settings(_SETTINGS, max_examples=5)
@given(seed=seeds)
async def test_postgres_does_what_the_model_does(seed: int) -> None:
    async with fresh_database() as url:
        store = PostgresStore(url)
        try:
            await play(store, seed, steps=60)
        finally:
            await store.close()


def _without(module: Any, name: str, old: str, new: str) -> _Patch:
    """A bug in a statement."""

    def plant(monkeypatch: pytest.MonkeyPatch) -> None:
        statement = getattr(module, name)
        assert old in statement
        monkeypatch.setattr(module, name, statement.replace(old, new))

    return plant


def _chunks_of_an_earlier_try_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    original = vector_jobs._begin

    def begin(held: Any, job: Any) -> Any:
        if held.part is not None:
            return held
        return (yield from original(held, job))

    monkeypatch.setattr(vector_jobs, "_begin", begin)


def _filter_after_ranking(monkeypatch: pytest.MonkeyPatch) -> None:
    original = sqlite_facet.search_stores

    def search(connection: Any, cache: Any, owner: str, search: Any) -> Any:
        every = original(connection, cache, owner, msgspec.structs.replace(search, filter=None))
        return [one for one in every if fulfils(one.attributes, search.filter)]

    monkeypatch.setattr(sqlite_facet, "search_stores", search)


def _cancelled_keeps_its_job(monkeypatch: pytest.MonkeyPatch) -> None:
    original = vector_files.end_file

    def end(key: int, status: str, code: Any = None, message: Any = None) -> Any:
        if status == "cancelled":
            yield from vector_files.ask(vector_files._END, status, code, None, key)
            return
        yield from original(key, status, code, message)

    monkeypatch.setattr(vector_files, "end_file", end)


def _versions_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(self: Any, kind: Any, parts: Any) -> list[int]:
        matrix = self._matrices.get(kind)
        return [part for part in parts if matrix is None or part not in matrix.versions]

    monkeypatch.setattr(VectorCache, "missing", missing)


def _gone_parts_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vector_files, "_GONE", "SELECT $1")


def _attributes_for_filters_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    def insert(store: int, key: int, attributes: Any) -> Iterator[Any]:
        if attributes:
            yield vector_files.Lock("nothing")

    monkeypatch.setattr(vector_files, "_insert_attributes", insert)


_PLANTS: Final[dict[str, _Patch]] = {
    "settle without fence": _without(vector_jobs, "_HELD", "lease = $3", "$3 = $3"),
    "chunks of an earlier try stay": _chunks_of_an_earlier_try_stay,
    "filter after ranking": _filter_after_ranking,
    "foreign owner": _without(vector_files, "_FIND", "owner = $1", "$1 = $1"),
    "cancelled file completes": _cancelled_keeps_its_job,
    "counts of all files": _without(vector_files, "_COUNTS", "store = $1", "$1 = $1"),
    "tries are not counted": _without(vector_jobs, "_LEASE", "tries + 1", "tries"),
    "unfair to owners": _without(vector_jobs, "_NEXT", "ORDER BY running, key", "ORDER BY key"),
    "leases never end": _without(vector_jobs, "_NEXT", "jobs.until <= $1", "jobs.until = $1 - $1"),
    "stale vectors": _versions_are_ignored,
    "removed chunks are found": _gone_parts_are_found,
    "attributes for filters stay": _attributes_for_filters_stay,
    "failed file keeps its bytes": _without(vector_files, "_DROP", "usage = 0", "usage = usage"),
}


@pytest.mark.parametrize("name", _PLANTS)
async def test_a_planted_bug_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _PLANTS[name](monkeypatch)
    for seed in range(30):
        try:
            await _play_sqlite(seed, steps=80)
        except Exception:  # noqa: BLE001 # a bug may show in any way
            return
    pytest.fail("no sequence found it")


async def _play_sqlite(seed: int, steps: int) -> None:
    with tempfile.TemporaryDirectory(dir=_FAST if _FAST.is_dir() else None) as folder:
        store = SqliteStore(Path(folder) / "a.db")
        try:
            await play(store, seed, steps)
        finally:
            await store.close()
