"""Files and vector stores through both clients."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from antiphon.backends.scripted import ScriptedBackend
from antiphon.client import BatchObject, FileObject, FoundText, VectorStoreObject, errors
from antiphon.client.resources import Deleted
from antiphon.store.memory import MemoryStore
from antiphon.testing import serve_gateway
from tests.client.calling import KINDS, Caller, calling
from tests.client.native import Answer, error, native

BIG = bytes(range(256)) * 80_000  # 20 MB: three parts


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
async def caller(kind: str, store: MemoryStore) -> AsyncIterator[Caller]:
    async with (
        serve_gateway(ScriptedBackend(models=["echo"]), store=store) as gateway,
        calling(kind, gateway.base_url) as caller,
    ):
        yield caller


async def upload(caller: Caller, content: Any, **options: Any) -> FileObject:
    made: FileObject = await caller.call(lambda client: client.files.upload(content, **options))
    return made


async def test_a_file_is_stored_read_and_deleted(caller: Caller) -> None:
    made = await upload(caller, b"hello", filename="a b.txt", expires_after=3600)
    assert (made.filename, made.bytes, made.purpose) == ("a b.txt", 5, "user_data")
    assert made.expires_at == made.created_at + 3600
    assert await caller.call(lambda client: client.files.retrieve(made.id)) == made
    assert await caller.call(lambda client: client.files.content(made.id)) == b"hello"
    deleted = await caller.call(lambda client: client.files.delete(made.id))
    assert deleted == Deleted(made.id, True)
    with pytest.raises(errors.ResourceNotFound, match="No such File object"):
        await caller.call(lambda client: client.files.retrieve(made.id))


async def test_large_files_are_sent_in_parts_and_received_in_pieces(
    caller: Caller, tmp_path: Path
) -> None:
    path, seen = tmp_path / "big.bin", list[tuple[int, int]]()
    path.write_bytes(BIG)
    made = await upload(caller, path, progress=lambda *state: seen.append(state))
    assert (made.filename, made.bytes) == ("big.bin", len(BIG))
    assert [done for done, _ in seen] == [8 << 20, 16 << 20, len(BIG)]
    into, got = io.BytesIO(), list[tuple[int, int]]()
    size = await caller.call(
        lambda client: client.files.download(
            made.id, into, progress=lambda *state: got.append(state)
        )
    )
    assert size == len(BIG)
    assert into.getvalue() == BIG
    assert got[-1] == (len(BIG), len(BIG))


async def test_lists_have_all_pages(caller: Caller) -> None:
    made = [(await upload(caller, b"x", filename=f"{n}.txt")).id for n in range(3)]
    page = await caller.call(lambda client: client.files.page(limit=2, order="asc"))
    assert ([file.id for file in page.objects], page.has_more) == (made[:2], True)
    assert page.last_id == made[1]
    found = await caller.call(lambda client: client.files.iterate(order="asc"))
    assert [file.id for file in found] == made


@pytest.mark.parametrize("content", [b"x", "/nowhere/a.txt"])
async def test_what_cannot_be_uploaded_is_refused_here(caller: Caller, content: Any) -> None:
    with pytest.raises(errors.BadCall):
        await upload(caller, content)


async def test_a_refused_part_cancels_the_upload(
    kind: str, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("antiphon.server.api.uploads.MAX_PART", 1000)
    async with (
        serve_gateway(ScriptedBackend(), store=store) as gateway,
        calling(kind, gateway.base_url) as caller,
    ):
        with pytest.raises(errors.ClientError, match="larger than 1000 bytes"):
            await upload(caller, BIG, filename="a")
    assert await store.files.used_bytes("local") == 0


async def test_vector_stores_are_filled_and_searched(caller: Caller) -> None:
    made: VectorStoreObject = await caller.call(
        lambda client: client.vector_stores.create(
            name="s", metadata={"a": "b"}, expires_after_days=3
        )
    )
    assert (made.name, made.metadata) == ("s", {"a": "b"})
    assert made.expires_after is not None and made.expires_after.days == 3
    ids = [
        (await upload(caller, text, filename=f"{n}.txt")).id
        for n, text in enumerate([b"Apples are red.", b"Bears eat honey.", b"\x00\x01"])
    ]
    batch: BatchObject = await caller.call(
        lambda client: client.vector_stores.attach(
            made.id, [ids[0], {"file_id": ids[1], "attributes": {"kind": "animal"}}, ids[2]]
        )
    )
    seen: list[BatchObject] = []
    batch = await caller.call(
        lambda client: client.vector_stores.wait(made.id, batch.id, progress=seen.append)
    )
    assert (batch.status, batch.file_counts.total) == ("completed", 3)
    assert seen[-1] == batch
    found: list[FoundText] = await caller.call(
        lambda client: client.vector_stores.search(made.id, "who eats honey", max_num_results=1)
    )
    assert [(one.file_id, one.attributes) for one in found] == [(ids[1], {"kind": "animal"})]
    nothing = await caller.call(
        lambda client: client.vector_stores.search(
            made.id, "apples", filters={"type": "eq", "key": "kind", "value": "animal"}
        )
    )
    assert nothing == []
    files = await caller.call(
        lambda client: client.vector_stores.iterate_files(made.id, batch_id=batch.id, order="asc")
    )
    assert [file.id for file in files] == ids
    await caller.call(lambda client: client.vector_stores.detach(made.id, ids[0]))
    page = await caller.call(lambda client: client.vector_stores.files_page(made.id, limit=9))
    assert {file.id for file in page.objects} == set(ids[1:])
    listed = await caller.call(lambda client: client.vector_stores.iterate())
    assert [store.id for store in listed] == [made.id]
    shown = await caller.call(lambda client: client.vector_stores.retrieve(made.id))
    assert shown.file_counts.total == 2
    await caller.call(lambda client: client.vector_stores.delete(made.id))
    with pytest.raises(errors.ResourceNotFound):
        await caller.call(lambda client: client.vector_stores.batch(made.id, batch.id))


@pytest.mark.parametrize(
    "body", [b"[]", b"{}", b'{"id": 5}', b'{"data": {}}', b'{"data": [{"id": 1}]}']
)
async def test_answers_that_are_something_else_are_reported(kind: str, body: bytes) -> None:
    answer = Answer(pieces=[body], content_type="application/json")
    async with native(answer) as server, calling(kind, server.base_url) as caller:
        with pytest.raises(errors.InvalidAnswer):
            await caller.call(lambda client: client.files.page())
        with pytest.raises(errors.InvalidAnswer):
            await caller.call(lambda client: client.files.retrieve("file-1"))


async def test_an_upload_that_is_sent_again_carries_the_same_key(kind: str) -> None:
    made = (
        b'{"id": "file-1", "object": "file", "bytes": 1, "created_at": 1,'
        b' "filename": "a", "purpose": "user_data"}'
    )
    answers = [error(503), Answer(pieces=[made], content_type="application/json")]
    async with native(*answers) as server, calling(kind, server.base_url) as caller:
        await upload(caller, b"x", filename="a")
    keys = [request.headers["idempotency-key"] for request in server.requests]
    assert len(keys) == 2 and keys[0] == keys[1]
