"""The search behaves the same in every store: words, vectors, filters."""

from __future__ import annotations

import pytest

from antiphon.store.base import Store
from antiphon.store.base.vector_stores import Chunk, Filter, FoundChunk, Search
from antiphon.store.postgres import vector_stores as postgres_search
from antiphon.store.postgres.database import Database
from antiphon.store.sqlite import vector_search as sqlite_search
from antiphon.store.vectors import VectorCache
from tests.store.vector_samples import (
    OWNER,
    STRANGER,
    add_store,
    find_words,
    index_file,
    places,
    vector,
    vector_store,
)


async def test_rare_words_count_more_than_common_ones(store: Store) -> None:
    await add_store(store)
    await index_file(store, "f1", *(f"common filler number{n}" for n in range(9)))
    await index_file(store, "f2", "common rare filler", "common common common other")
    found = await find_words(store, "common", "rare")
    assert places(found)[0] == ("f2", 0)
    assert [one.by_words for one in found] == list(range(len(found)))


async def test_words_are_found_by_their_stem_and_without_case(store: Store) -> None:
    await add_store(store)
    await index_file(store, "f1", "The Connected engines were RUNNING.", "nothing of it")
    for word in ("connection", "engine", "Run", "running"):
        assert places(await find_words(store, word)) == [("f1", 0)], word


@pytest.mark.parametrize(
    "word",
    ['"', "'", "*", "alpha*", "NOT", "alpha NOT beta", "NEAR(alpha beta)", "text:alpha", "^alpha",
     "a\0lpha", "(", "alpha)", "-", "\ud800", "", "{text} : alpha", "alpha:*", "!alpha", "\\", "%"],
)  # fmt: skip
async def test_words_are_no_query_language(store: Store, word: str) -> None:
    await add_store(store)
    await index_file(store, "f1", "alpha beta", "gamma")
    found = places(await find_words(store, word))
    assert found in ([], [("f1", 0)])
    assert places(await find_words(store, word, "gamma"))[0] in (("f1", 1), ("f1", 0))


async def test_another_owner_finds_nothing(store: Store) -> None:
    await add_store(store)
    await store.vector_stores.add(STRANGER, vector_store("vs_2"))
    await index_file(store, "f1", "secret words")
    assert await find_words(store, "secret", owner=STRANGER) == []
    assert await find_words(store, "secret", owner=STRANGER, store_ids=["vs_2", "vs_1"]) == []
    assert await find_words(store, "secret", store_ids=["vs_9", "\ud800"]) == []


async def test_several_vector_stores_are_searched_together(store: Store) -> None:
    await add_store(store)
    await add_store(store, name="vs_2")
    await index_file(store, "f1", "some words", "filler", "filler")
    await index_file(store, "f1", "words words words", "filler", "filler", store_id="vs_2")
    found = await find_words(store, "words", store_ids=["vs_1", "vs_2", "vs_1"])
    assert {one.store_id for one in found} == {"vs_1", "vs_2"}
    assert [one.by_words for one in found] == [0, 1]
    assert len(await find_words(store, "words", store_ids=["vs_1", "vs_2"], limit=1)) == 1


async def test_a_found_chunk_has_all_of_its_file(store: Store) -> None:
    await add_store(store)
    await index_file(store, "f1", "zero", "one\0 ünd", attributes={"a": True, "b": 2, "c": "x\0"})
    assert await find_words(store, "one") == [
        FoundChunk(
            store_id="vs_1",
            file_id="f1",
            filename="f1.txt",
            attributes={"a": True, "b": 2, "c": "x\0"},
            place=1,
            text="one\0 ünd",
            by_words=0,
        )
    ]


async def test_vectors_are_ranked_by_their_cosine(store: Store) -> None:
    await add_store(store)
    chunks = [Chunk("a", vector(1, 0)), Chunk("b", vector(3, 3)), Chunk("c", vector(-1, 0))]
    await index_file(store, "f1", *chunks, Chunk("d"), embedding="e")
    found = await _nearest(store, vector(2, 0))
    assert places(found) == [("f1", 0), ("f1", 1), ("f1", 2)]
    assert [one.similarity for one in found] == pytest.approx([1, 0.5**0.5, -1], abs=1e-6)
    assert places(await _nearest(store, vector(2, 0), limit=1)) == [("f1", 0)]


async def test_only_vectors_of_the_same_kind_are_compared(store: Store) -> None:
    await add_store(store)
    await index_file(store, "f1", Chunk("a", vector(1, 0)), embedding="old")
    await index_file(store, "f2", Chunk("b", vector(1, 0)), embedding="new")
    await index_file(store, "f3", Chunk("c", vector(1, 0, 0)), embedding="new")
    assert places(await _nearest(store, vector(1, 0), embedding="new")) == [("f2", 0)]
    assert places(await _nearest(store, vector(1, 0, 0), embedding="new")) == [("f3", 0)]
    assert await _nearest(store, vector(1, 0), embedding="none") == []


async def test_both_rankings_name_a_chunk_once(store: Store) -> None:
    await add_store(store)
    chunks = [Chunk("red words", vector(1, 0)), Chunk("blue", vector(0.9, 0.1)), Chunk("words")]
    await index_file(store, "f1", *chunks, "filler", "filler", embedding="e")
    search = Search(
        store_ids=["vs_1"], words=["words"], vector=vector(1, 0), embedding="e", limit=5
    )
    found = {one.place: one for one in await store.vector_stores.search(OWNER, search)}
    assert found.keys() == {0, 1, 2}
    assert (found[0].by_vector, found[1].by_vector, found[2].by_vector) == (0, 1, None)
    assert (found[1].by_words, {found[0].by_words, found[2].by_words}) == (None, {0, 1})


async def test_a_filter_comes_before_the_ranking(store: Store) -> None:
    await add_store(store)
    near, far = Chunk("words words", vector(1, 0)), Chunk("words here", vector(0, 1))
    for number in range(4):
        await index_file(store, f"f{number}", near, attributes={"n": number}, embedding="e")
    await index_file(store, "f4", far, "filler", attributes={"n": 4}, embedding="e")
    where = Filter("gt", "n", 3)
    assert places(await find_words(store, "words", where=where, limit=2)) == [("f4", 0)]
    assert places(await _nearest(store, vector(1, 0), where=where, limit=2)) == [("f4", 0)]


async def test_vectors_follow_every_change(store: Store) -> None:
    await add_store(store)
    await index_file(store, "f1", Chunk("a", vector(1, 0)), embedding="e")
    await index_file(store, "f2", Chunk("b", vector(0, 1)), embedding="e")
    assert places(await _nearest(store, vector(1, 0))) == [("f1", 0), ("f2", 0)]
    await index_file(store, "f1", Chunk("a", vector(-1, 0)), embedding="e")
    assert places(await _nearest(store, vector(1, 0))) == [("f2", 0), ("f1", 0)]
    await store.vector_stores.detach(OWNER, "vs_1", "f2")
    assert places(await _nearest(store, vector(1, 0))) == [("f1", 0)]
    await store.vector_stores.set_attributes(OWNER, "vs_1", "f1", {"a": 1})
    assert await _nearest(store, vector(1, 0), where=Filter("eq", "a", 2)) == []


async def test_a_change_of_another_process_is_seen(pair: tuple[Store, Store]) -> None:
    first, second = pair
    await add_store(first)
    await index_file(first, "f1", Chunk("words", vector(1, 0)), embedding="e")
    assert places(await _nearest(second, vector(1, 0))) == [("f1", 0)]
    await index_file(first, "f1", Chunk("words", vector(0, 1)), embedding="e")
    assert [one.similarity for one in await _nearest(second, vector(1, 0))] == [0]
    await first.vector_stores.detach(OWNER, "vs_1", "f1")
    assert await _nearest(second, vector(1, 0)) == []
    assert await find_words(second, "words") == []


@pytest.mark.parametrize("what", ["no room", "no numpy"])
async def test_vectors_are_found_without_the_cache(
    store: Store, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (sqlite_search, postgres_search):
        monkeypatch.setattr(module, "has_numpy", lambda: what == "no room")
    monkeypatch.setattr(VectorCache, "has_room", lambda *_: False)
    monkeypatch.setattr(Database, "pgvector", None)
    await add_store(store)
    for number in range(3):
        chunk = Chunk("a", vector(1, number))
        await index_file(store, f"f{number}", chunk, Chunk("b", vector(1)), embedding="e")
    assert places(await _nearest(store, vector(1, 2), limit=2)) == [("f2", 0), ("f1", 0)]


async def test_a_huge_text_can_be_stored_and_found(store: Store) -> None:
    await add_store(store)
    text = "needle " + "x" * 3_000_000 + " " + "word " * 100_000
    await index_file(store, "f1", text)
    found = await find_words(store, "needle")
    assert [one.text == text for one in found] == [True]


async def test_text_that_is_no_unicode_is_repaired(store: Store) -> None:
    await add_store(store)
    await index_file(store, "f1", "broken \ud800 word")
    assert [one.text for one in await find_words(store, "broken")] == ["broken ? word"]


async def _nearest(
    store: Store,
    wanted: bytes,
    *,
    embedding: str = "e",
    where: Filter | None = None,
    limit: int = 10,
) -> list[FoundChunk]:
    search = Search(
        store_ids=["vs_1"],
        words=[],
        vector=wanted,
        embedding=embedding,
        filter=where,
        limit=limit,
    )
    found = await store.vector_stores.search(OWNER, search)
    return sorted(found, key=lambda one: one.by_vector or 0)
