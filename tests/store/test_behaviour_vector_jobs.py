"""Jobs that index files behave the same in every store."""

from __future__ import annotations

import asyncio

import pytest

from antiphon.store.base import Store, StoredFile
from antiphon.store.base.vector_stores import MAX_TRIES, AttachedFile, Chunk, FileBatch, Job
from tests.store.vector_samples import (
    OWNER,
    STRANGER,
    add_store,
    file,
    find_words,
    index,
    index_file,
    take,
    vector,
    vector_store,
)


async def test_text_is_searchable_before_the_job_ends(store: Store) -> None:
    await add_store(store, file("f1"))
    job = await take(store)
    assert (job.owner, job.store_id, job.file.file_id, job.tries) == (OWNER, "vs_1", "f1", 0)
    assert await store.vector_stores.add_chunks(job, [Chunk("first words")])
    assert await store.vector_stores.add_chunks(job, [Chunk("other words")])
    assert {one.place for one in await find_words(store, "words")} == {0, 1}
    assert await store.vector_stores.end_job(job)
    assert await _status(store, "f1") == "completed"
    assert await store.vector_stores.chunks(OWNER, "vs_1", "f1", limit=9) == [
        "first words",
        "other words",
    ]
    assert await store.vector_stores.chunks(OWNER, "vs_1", "f1", after=0, limit=1) == [
        "other words"
    ]
    assert await store.vector_stores.chunks(STRANGER, "vs_1", "f1", limit=9) == []


async def test_a_job_is_taken_by_one(store: Store) -> None:
    await add_store(store, *(file(f"f{number}") for number in range(5)))
    calls = (store.vector_stores.take_job("process", 1000.0, 60.0) for _ in range(9))
    taken = [job.file.file_id for job in await asyncio.gather(*calls) if job is not None]
    assert sorted(taken) == [f"f{number}" for number in range(5)]


async def test_two_stores_share_the_jobs(pair: tuple[Store, Store]) -> None:
    first, second = pair
    await add_store(first, *(file(f"f{number}") for number in range(20)))
    calls = [
        store.vector_stores.take_job("process", 1000.0, 60.0)
        for _ in range(12)
        for store in (first, second)
    ]
    taken = [job.file.file_id for job in await asyncio.gather(*calls) if job is not None]
    assert sorted(taken) == sorted(f"f{number}" for number in range(20))


async def test_a_lease_ends_unless_it_is_renewed(store: Store) -> None:
    await add_store(store, file("f1"))
    job = await take(store, now=1000, seconds=10)
    assert await store.vector_stores.take_job("other", 1009, 10) is None
    assert await store.vector_stores.renew_job(job, 1009, 10)
    assert await store.vector_stores.take_job("other", 1018, 10) is None
    again = await take(store, now=1019, seconds=10)
    assert (again.file.file_id, again.tries) == ("f1", 1)
    assert not await store.vector_stores.renew_job(job, 1019, 10)


async def test_a_lost_lease_changes_nothing(store: Store) -> None:
    await add_store(store, file("f1"))
    old = await take(store, now=1000, seconds=10)
    new = await take(store, now=1010, seconds=10)
    assert not await store.vector_stores.add_chunks(old, [Chunk("old words")])
    assert not await store.vector_stores.add_vectors(old, 0, [vector(1)], embedding="e")
    assert not await store.vector_stores.end_job(old, error_code="invalid_file")
    assert not await store.vector_stores.release_job(old)
    await index(store, new, "new words")
    assert [one.text for one in await find_words(store, "words")] == ["new words"]


async def test_chunks_of_an_earlier_try_are_replaced(store: Store) -> None:
    await add_store(store, file("f1"))
    old = await take(store, now=1000, seconds=10)
    await store.vector_stores.add_chunks(old, [Chunk("old words"), Chunk("more words")])
    new = await take(store, now=1010, seconds=10)
    assert len(await find_words(store, "words")) == 2
    await index(store, new, "new words")
    assert [(one.text, one.place) for one in await find_words(store, "words")] == [("new words", 0)]


async def test_a_file_without_text_keeps_no_chunks_of_an_earlier_try(store: Store) -> None:
    await add_store(store, file("f1"))
    old = await take(store, now=1000, seconds=10)
    await store.vector_stores.add_chunks(old, [Chunk("old words")])
    new = await take(store, now=1010, seconds=10)
    assert await store.vector_stores.end_job(new)
    assert await find_words(store, "words") == []
    assert (await _file(store, "f1")).usage_bytes == 0


async def test_a_file_over_which_processes_die_fails(store: Store) -> None:
    await add_store(store, file("f1"), file("f2"))
    for number in range(MAX_TRIES):
        job = await take(store, now=1000 + number, seconds=1)
        assert (job.file.file_id, job.tries) == ("f1", number)
        await store.vector_stores.add_chunks(job, [Chunk("some words")])
    assert (await take(store, now=1000 + MAX_TRIES)).file.file_id == "f2"
    failed = await _file(store, "f1")
    assert (failed.status, failed.error_code) == ("failed", "server_error")
    assert await find_words(store, "words") == []


async def test_a_job_that_is_given_back_counts_no_try(store: Store) -> None:
    await add_store(store, file("f1"))
    for _ in range(MAX_TRIES + 1):
        job = await take(store)
        assert job.tries == 0
        assert await store.vector_stores.release_job(job)
        assert not await store.vector_stores.end_job(job)
    assert await store.vector_stores.release_job(await take(store), until=2000)
    assert await store.vector_stores.take_job("process", 1999, 10) is None
    assert (await take(store, now=2000)).tries == 0


async def test_an_owner_with_fewer_running_jobs_comes_first(store: Store) -> None:
    await add_store(store, *(file(f"f{number}") for number in range(4)))
    await store.vector_stores.add(STRANGER, vector_store("vs_2"), [file("g1"), file("g2")])
    taken = [(await take(store)).file.file_id for _ in range(6)]
    assert taken == ["f0", "g1", "f1", "g2", "f2", "f3"]


async def test_a_failed_file_keeps_no_chunks(store: Store) -> None:
    await add_store(store, file("f1"))
    job = await take(store)
    await store.vector_stores.add_chunks(job, [Chunk("some words")])
    assert await store.vector_stores.end_job(
        job, error_code="invalid_file", error_message="bröken\0"
    )
    found = await _file(store, "f1")
    assert (found.status, found.error_code, found.error_message, found.usage_bytes) == (
        "failed",
        "invalid_file",
        "bröken\0",
        0,
    )
    assert await find_words(store, "words") == []
    assert await store.vector_stores.jobs_waiting() == 0


@pytest.mark.parametrize("change", ["detach", "remove", "replace", "cancel"])
async def test_a_job_whose_file_is_gone_cannot_go_on(store: Store, change: str) -> None:
    batch = FileBatch(id="vsfb_1", created_at=100)
    await add_store(store)
    await store.vector_stores.attach(OWNER, "vs_1", [file("f1")], batch)
    job = await take(store)
    await store.vector_stores.add_chunks(job, [Chunk("some words")])
    await _change(store, change)
    assert not await store.vector_stores.renew_job(job, 1000, 10)
    assert not await store.vector_stores.add_chunks(job, [Chunk("more words")])
    assert not await store.vector_stores.end_job(job)
    assert await find_words(store, "words") == []
    if change == "cancel":
        assert await _status(store, "f1") == "cancelled"


async def test_a_file_attached_again_is_not_settled_by_the_old_lease(store: Store) -> None:
    await add_store(store, file("f1"))
    old = await take(store)
    await store.vector_stores.detach(OWNER, "vs_1", "f1")
    await store.vector_stores.attach(OWNER, "vs_1", [file("f1")])
    new = await take(store)
    assert not await store.vector_stores.end_job(old)
    assert await _status(store, "f1") == "in_progress"
    assert await store.vector_stores.end_job(new)


async def test_a_job_of_another_owner_is_not_ours(store: Store) -> None:
    await add_store(store, file("f1"))
    job = await take(store)
    forged = Job(owner=STRANGER, store_id="vs_1", file=job.file, lease=job.lease, tries=job.tries)
    assert not await store.vector_stores.add_chunks(forged, [Chunk("some words")])
    assert not await store.vector_stores.end_job(forged)


async def test_vectors_need_chunks(store: Store) -> None:
    await add_store(store, file("f1"))
    job = await take(store)
    await store.vector_stores.add_chunks(job, [Chunk("some words")])
    for first in (-1, 1):
        with pytest.raises(ValueError, match="without a chunk"):
            await store.vector_stores.add_vectors(job, first, [vector(1)], embedding="e")
    assert await store.vector_stores.add_vectors(job, 0, [vector(1)], embedding="e")
    assert await store.vector_stores.add_vectors(job, 0, [vector(2)], embedding="e")
    assert (await _file(store, "f1")).usage_bytes == len("some words") + 4


async def test_a_file_that_is_deleted_leaves_every_vector_store(store: Store) -> None:
    await add_store(store)
    await add_store(store, name="vs_2")
    for store_id in ("vs_1", "vs_2"):
        await index_file(store, "f1", "some words", store_id=store_id)
    await _store_file(store, "f1")
    assert await store.files.remove(OWNER, "f1")
    assert await find_words(store, "words", store_ids=["vs_1", "vs_2"]) == []
    assert await store.vector_stores.find_file(OWNER, "vs_1", "f1") is None


async def _store_file(store: Store, name: str) -> None:
    writer = await store.blobs.create(OWNER)
    await writer.write(b"some words")
    blob = await writer.finish()
    stored = StoredFile(id=name, filename="a.txt", purpose="assistants", created_at=1, blob=blob)
    await store.files.add(OWNER, stored)


async def _change(store: Store, change: str) -> None:
    stores = store.vector_stores
    if change == "detach":
        assert await stores.detach(OWNER, "vs_1", "f1")
    elif change == "remove":
        assert await stores.remove(OWNER, "vs_1")
    elif change == "replace":
        assert await stores.attach(OWNER, "vs_1", [file("f1")]) is True
    else:
        assert await stores.cancel_batch(OWNER, "vs_1", "vsfb_1") is not None


async def _file(store: Store, name: str) -> AttachedFile:
    found = await store.vector_stores.find_file(OWNER, "vs_1", name)
    assert found is not None
    return found


async def _status(store: Store, name: str) -> str:
    return (await _file(store, name)).status
