"""/v1/vector_stores through the official client, on every kind of store."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import openai
import pytest

from antiphon.testing.gateway import Gateway
from tests.server.api.filing import key_of, sdk_of, upload

APPLES = b"Apples are red or green fruits that grow on trees."
BEARS = b"Bears are large animals that eat honey and fish."
CARS = b"Cars are machines on four wheels; the fast ones are red."


async def filled(sdk: openai.AsyncOpenAI, **contents: bytes) -> tuple[str, dict[str, str]]:
    """Return a vector store with these files, indexed, and the ids of the files."""
    ids = {name: await upload(sdk, text, f"{name}.txt") for name, text in contents.items()}
    store = await sdk.vector_stores.create(name="things")
    batch = await sdk.vector_stores.file_batches.create_and_poll(
        store.id,
        files=[
            {"file_id": file, "attributes": {"name": name, "size": len(name)}}
            for name, file in ids.items()
        ],
        poll_interval_ms=50,
    )
    assert batch.status == "completed"
    assert batch.file_counts.completed == batch.file_counts.total == len(ids)
    return store.id, ids


async def names_of(sdk: openai.AsyncOpenAI, store: str, query: Any, **asked: Any) -> list[str]:
    found = await sdk.vector_stores.search(store, query=query, **asked)
    return [one.filename.removesuffix(".txt") for one in found.data]


async def test_a_vector_store_is_made_changed_and_deleted(sdk: openai.AsyncOpenAI) -> None:
    made = await sdk.vector_stores.create(
        name="things",
        metadata={"a": "b"},
        expires_after={"anchor": "last_active_at", "days": 2},
    )
    assert made.id.startswith("vs_")
    assert (made.name, made.metadata, made.status) == ("things", {"a": "b"}, "completed")
    assert (made.usage_bytes, made.file_counts.total) == (0, 0)
    assert made.last_active_at is not None
    assert made.expires_at == made.last_active_at + 2 * 86_400
    assert await sdk.vector_stores.retrieve(made.id) == made
    changed = await sdk.vector_stores.update(made.id, name="new")
    assert (changed.name, changed.metadata) == ("new", {"a": "b"})
    changed = await sdk.vector_stores.update(made.id, expires_after=None, metadata=None)
    assert (changed.name, changed.metadata, changed.expires_at) == ("new", {}, None)
    gone = await sdk.vector_stores.delete(made.id)
    assert (gone.id, gone.object, gone.deleted) == (made.id, "vector_store.deleted", True)
    with pytest.raises(openai.NotFoundError, match=f"Vector store '{made.id}' not found"):
        await sdk.vector_stores.retrieve(made.id)


async def test_lists_have_pages_in_both_directions(sdk: openai.AsyncOpenAI) -> None:
    ids = [(await sdk.vector_stores.create(name=str(n))).id for n in range(5)]
    assert [one.id async for one in sdk.vector_stores.list(limit=2, order="asc")] == ids
    assert [one.id async for one in sdk.vector_stores.list(limit=2)] == ids[::-1]
    page = await sdk.vector_stores.list(limit=2, order="asc", before=ids[3])
    assert [one.id for one in page.data] == ids[1:3]
    assert page.has_more
    page = await sdk.vector_stores.list(limit=2, order="desc", before=ids[3])
    assert [one.id for one in page.data] == ids[4:]
    for name in ("after", "before"):
        with pytest.raises(openai.BadRequestError) as caught:
            await sdk.vector_stores.list(**{name: "vs_0"})  # type: ignore[arg-type]
        assert caught.value.param == name


async def test_files_are_attached_indexed_and_searched(sdk: openai.AsyncOpenAI) -> None:
    store, ids = await filled(sdk, apples=APPLES, bears=BEARS, cars=CARS)
    shown = await sdk.vector_stores.retrieve(store)
    assert (shown.status, shown.file_counts.completed) == ("completed", 3)
    assert shown.usage_bytes > 0
    found = await sdk.vector_stores.search(store, query="who eats honey?", max_num_results=1)
    (best,) = found.data
    assert (best.file_id, best.filename) == (ids["bears"], "bears.txt")
    assert 0 < best.score <= 1
    assert best.attributes == {"name": "bears", "size": 5}
    assert [part.text for part in best.content] == [BEARS.decode()]
    assert sorted(await names_of(sdk, store, "red")) == ["apples", "cars"]
    assert sorted(await names_of(sdk, store, ["honey", "trees"])) == ["apples", "bears"]
    assert await names_of(sdk, store, "red", ranking_options={"score_threshold": 1.0}) != []
    assert await names_of(sdk, store, "unheard") == []


async def test_filters_choose_before_the_search(sdk: openai.AsyncOpenAI) -> None:
    store, ids = await filled(sdk, apples=APPLES, bears=BEARS, cars=CARS)

    async def red(filters: Any) -> list[str]:
        return sorted(await names_of(sdk, store, "apples bears cars", filters=filters))

    assert await red({"type": "eq", "key": "name", "value": "cars"}) == ["cars"]
    assert await red({"type": "gte", "key": "size", "value": 5}) == ["apples", "bears"]
    assert await red({"type": "in", "key": "name", "value": ["cars", "bears"]}) == ["bears", "cars"]
    both = [
        {"type": "ne", "key": "name", "value": "apples"},
        {"type": "lt", "key": "size", "value": 5},
    ]
    assert await red({"type": "and", "filters": both}) == ["cars"]
    assert await red({"type": "or", "filters": both}) == ["bears", "cars"]
    changed = await sdk.vector_stores.files.update(
        ids["cars"], vector_store_id=store, attributes={"name": "wagons", "fast": True}
    )
    assert changed.attributes == {"name": "wagons", "fast": True}
    assert await red({"type": "eq", "key": "name", "value": "cars"}) == []
    assert await red({"type": "eq", "key": "fast", "value": True}) == ["cars"]


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"query": None}, "query"),
        ({"query": []}, "query"),
        ({"max_num_results": 51}, "max_num_results"),
        ({"max_num_results": 0}, "max_num_results"),
        ({"filters": {"type": "like", "key": "a", "value": "b"}}, "filters.type"),
        (
            {"filters": {"type": "and", "filters": [{"type": "eq", "value": 1}]}},
            "filters.filters[0].key",
        ),
        ({"ranking_options": {"score_threshold": 2}}, "ranking_options.score_threshold"),
        ({"ranking_options": {"ranker": "best"}}, "ranking_options.ranker"),
        ({"unknown": 1}, "unknown"),
    ],
)
async def test_wrong_searches_are_refused(
    sdk: openai.AsyncOpenAI, change: dict[str, Any], param: str
) -> None:
    store = (await sdk.vector_stores.create()).id
    body = {"query": "x"} | change
    with pytest.raises(openai.BadRequestError) as caught:
        await sdk.post(f"/vector_stores/{store}/search", body=body, cast_to=object)
    assert caught.value.param == param


async def test_a_query_that_is_not_rewritten_is_reported(sdk: openai.AsyncOpenAI) -> None:
    store = (await sdk.vector_stores.create()).id
    answer = await sdk.vector_stores.with_raw_response.search(store, query="x", rewrite_query=True)
    assert answer.headers["x-antiphon-degraded"].startswith("rewrite_query")


async def test_files_of_a_vector_store(sdk: openai.AsyncOpenAI) -> None:
    store = (await sdk.vector_stores.create(name="s")).id
    ids = [await upload(sdk, f"text number {n}".encode(), f"{n}.txt") for n in range(5)]
    for name in ids:
        made = await sdk.vector_stores.files.create_and_poll(
            name, vector_store_id=store, poll_interval_ms=50
        )
        assert (made.id, made.status, made.last_error) == (name, "completed", None)
    files = sdk.vector_stores.files
    assert [one.id async for one in files.list(store, order="asc", limit=2)] == ids
    page = await files.list(store, order="asc", limit=2, before=ids[3])
    assert ([one.id for one in page.data], page.has_more) == (ids[1:3], True)
    assert not (await files.list(store, filter="failed")).data
    content = await files.content(ids[0], vector_store_id=store)
    assert [part.text for part in content.data] == ["text number 0"]
    gone = await files.delete(ids[0], vector_store_id=store)
    assert (gone.id, gone.object) == (ids[0], "vector_store.file.deleted")
    assert (await sdk.files.retrieve(ids[0])).id == ids[0]
    await sdk.files.delete(ids[1])
    assert [one.id async for one in files.list(store, order="asc")] == ids[2:]
    assert sorted(await names_of(sdk, store, "text number", max_num_results=50)) == ["2", "3", "4"]
    for wrong in (ids[0], ids[1], "file-0"):
        with pytest.raises(openai.NotFoundError):
            await files.retrieve(wrong, vector_store_id=store)


async def test_upload_helpers_of_the_client(sdk: openai.AsyncOpenAI) -> None:
    store = (await sdk.vector_stores.create(name="s")).id
    one = await sdk.vector_stores.files.upload_and_poll(
        vector_store_id=store, file=("a.md", b"# Title\n\nSome words."), poll_interval_ms=50
    )
    assert one.status == "completed"
    batch = await sdk.vector_stores.file_batches.upload_and_poll(
        store, files=[(f"{n}.txt", b"words") for n in range(12)], poll_interval_ms=50
    )
    assert (batch.status, batch.file_counts.completed) == ("completed", 12)
    listed = [
        file.id
        async for file in sdk.vector_stores.file_batches.list_files(
            batch.id, vector_store_id=store, limit=5
        )
    ]
    assert len(set(listed)) == 12
    assert one.id not in listed


async def test_the_synchronous_client_works_too(shelf: Gateway) -> None:
    key = await key_of(shelf, "alice")

    def work() -> list[str]:
        with openai.OpenAI(base_url=shelf.base_url, api_key=key, max_retries=0) as client:
            file = client.files.create(file=("a.txt", APPLES), purpose="assistants")
            store = client.vector_stores.create(name="s", file_ids=[file.id])
            client.vector_stores.files.poll(file.id, vector_store_id=store.id, poll_interval_ms=50)
            return [one.filename for one in client.vector_stores.search(store.id, query="apples")]

    assert await asyncio.to_thread(work) == ["a.txt"]


async def test_files_that_cannot_be_read_fail_with_a_reason(sdk: openai.AsyncOpenAI) -> None:
    store = (await sdk.vector_stores.create(name="s")).id
    name = await upload(sdk, b"\x00\x01\x02" * 100, "x.docx")
    made = await sdk.vector_stores.files.create_and_poll(
        name, vector_store_id=store, poll_interval_ms=50
    )
    assert made.status == "failed"
    assert made.last_error is not None
    assert made.last_error.code in ("invalid_file", "unsupported_file")
    assert (await sdk.vector_stores.retrieve(store)).file_counts.failed == 1
    with pytest.raises(openai.BadRequestError, match="the file is failed"):
        await sdk.vector_stores.files.content(name, vector_store_id=store)


async def test_chunks_have_the_size_that_was_asked_for(sdk: openai.AsyncOpenAI) -> None:
    store = (await sdk.vector_stores.create(name="s")).id
    text = " ".join(f"word{n}" for n in range(3000)).encode()
    counts = []
    for tokens, overlap in ((100, 0), (400, 200)):
        name = await upload(sdk, text)
        made = await sdk.vector_stores.files.create_and_poll(
            name,
            vector_store_id=store,
            chunking_strategy={
                "type": "static",
                "static": {"max_chunk_size_tokens": tokens, "chunk_overlap_tokens": overlap},
            },
            poll_interval_ms=50,
        )
        assert made.chunking_strategy is not None
        assert made.chunking_strategy.to_dict() == {
            "type": "static",
            "static": {"max_chunk_size_tokens": tokens, "chunk_overlap_tokens": overlap},
        }
        content = await sdk.vector_stores.files.content(name, vector_store_id=store)
        counts.append(len(content.data))
    assert counts[0] > counts[1] > 3


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"file_id": 5}, "file_id"),
        ({"attributes": {"a": None}}, "attributes"),
        ({"attributes": {"a" * 65: 1}}, "attributes"),
        ({"attributes": {"a": "x" * 513}}, "attributes"),
        ({"attributes": {str(n): n for n in range(17)}}, "attributes"),
        ({"chunking_strategy": {"type": "other"}}, "chunking_strategy.type"),
        ({"chunking_strategy": {"type": "static"}}, "chunking_strategy.static"),
        (
            {
                "chunking_strategy": {
                    "type": "static",
                    "static": {"max_chunk_size_tokens": 99, "chunk_overlap_tokens": 0},
                }
            },
            "chunking_strategy.static.max_chunk_size_tokens",
        ),
        (
            {
                "chunking_strategy": {
                    "type": "static",
                    "static": {"max_chunk_size_tokens": 100, "chunk_overlap_tokens": 51},
                }
            },
            "chunking_strategy.static.chunk_overlap_tokens",
        ),
    ],
)
async def test_wrong_attachments_are_refused(
    sdk: openai.AsyncOpenAI, change: dict[str, Any], param: str
) -> None:
    store = (await sdk.vector_stores.create()).id
    body = {"file_id": await upload(sdk, b"x")} | change
    with pytest.raises(openai.BadRequestError) as caught:
        await sdk.post(f"/vector_stores/{store}/files", body=body, cast_to=object)
    assert (caught.value.param or "").startswith(param)
    assert not (await sdk.vector_stores.files.list(store)).data


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "file_ids"),
        ({"file_ids": []}, "file_ids"),
        ({"files": []}, "files"),
        ({"file_ids": ["ID"], "files": [{"file_id": "ID"}]}, "file_ids"),
        ({"files": [{"file_id": "ID"}, {"file_id": "ID"}]}, "files"),
        ({"files": [{"attributes": {}}]}, "files[0].file_id"),
        ({"file_ids": ["ID"] * 2001}, "file_ids"),
    ],
)
async def test_wrong_batches_are_refused(
    sdk: openai.AsyncOpenAI, body: dict[str, Any], param: str
) -> None:
    store, file = (await sdk.vector_stores.create()).id, await upload(sdk, b"x")
    text = json.dumps(body).replace("ID", file)
    with pytest.raises(openai.BadRequestError) as caught:
        await sdk.post(
            f"/vector_stores/{store}/file_batches",
            body=json.loads(text),
            cast_to=object,
        )
    assert caught.value.param == param


async def test_missing_files_are_named_and_nothing_is_attached(sdk: openai.AsyncOpenAI) -> None:
    store, file = (await sdk.vector_stores.create()).id, await upload(sdk, b"x")
    for use, param in (
        (sdk.vector_stores.files.create(store, file_id="file-0"), "file_id"),
        (sdk.vector_stores.file_batches.create(store, file_ids=[file, "file-0"]), "file_ids[1]"),
        (sdk.vector_stores.create(file_ids=["file-0"]), "file_ids[0]"),
    ):
        with pytest.raises(openai.NotFoundError) as caught:
            await use
        assert caught.value.param == param
        assert "No such File object: file-0" in caught.value.message
    assert not (await sdk.vector_stores.files.list(store)).data


async def test_expired_vector_stores_can_only_be_looked_at(
    shelf: Gateway, sdk: openai.AsyncOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, ids = await filled(sdk, apples=APPLES)
    await sdk.vector_stores.update(store, expires_after={"anchor": "last_active_at", "days": 1})
    now = shelf.app.engine.now
    monkeypatch.setattr(shelf.app.engine, "now", lambda: now() + 86_401)
    assert (await sdk.vector_stores.retrieve(store)).status == "expired"
    for use in (
        sdk.vector_stores.search(store, query="apples"),
        sdk.vector_stores.files.create(store, file_id=ids["apples"]),
    ):
        with pytest.raises(openai.BadRequestError) as caught:
            await use
        assert caught.value.code == "vector_store_expired"
    await sdk.vector_stores.delete(store)


async def test_batches_can_be_cancelled(shelf: Gateway, sdk: openai.AsyncOpenAI) -> None:
    store = (await sdk.vector_stores.create(name="s")).id
    ids = [await upload(sdk, b"words " * 20_000, f"{n}.txt") for n in range(8)]
    batch = await sdk.vector_stores.file_batches.create(store, file_ids=ids)
    cancelled = await sdk.vector_stores.file_batches.cancel(batch.id, vector_store_id=store)
    counts = cancelled.file_counts
    assert counts.in_progress == 0
    assert counts.cancelled + counts.completed == counts.total == 8
    shown = await sdk.vector_stores.file_batches.retrieve(batch.id, vector_store_id=store)
    assert shown.file_counts == counts


async def test_racing_keys_make_one_thing_each(sdk: openai.AsyncOpenAI) -> None:
    file = await upload(sdk, b"words")

    async def race(number: int) -> str:
        named = {"Idempotency-Key": f"k{number}"}
        made = await asyncio.gather(
            *(sdk.vector_stores.create(name="s", extra_headers=named) for _ in range(2))
        )
        assert made[0].id == made[1].id
        store = made[0].id
        batches = await asyncio.gather(
            *(
                sdk.vector_stores.file_batches.create(
                    store, file_ids=[file], extra_headers={"Idempotency-Key": f"b{number}"}
                )
                for _ in range(2)
            )
        )
        assert batches[0].id == batches[1].id
        files = await asyncio.gather(
            *(
                sdk.vector_stores.files.create(
                    store,
                    file_id=file,
                    extra_headers={"Idempotency-Key": f"f{number}"},
                )
                for _ in range(2)
            )
        )
        assert files[0].id == files[1].id == file
        with pytest.raises(openai.UnprocessableEntityError):
            await sdk.vector_stores.create(name="other", extra_headers=named)
        return store

    stores = [await race(number) for number in range(10)]
    assert [one.id async for one in sdk.vector_stores.list(order="asc")] == stores


async def test_owners_do_not_see_each_other(shelf: Gateway, sdk: openai.AsyncOpenAI) -> None:
    store, ids = await filled(sdk, apples=APPLES)
    async with await sdk_of(shelf, "bob") as bob:
        assert not (await bob.vector_stores.list()).data
        own = (await bob.vector_stores.create(name="mine")).id
        with pytest.raises(openai.NotFoundError):
            await bob.vector_stores.search(store, query="apples")
        with pytest.raises(openai.NotFoundError):
            await bob.vector_stores.files.create(own, file_id=ids["apples"])
