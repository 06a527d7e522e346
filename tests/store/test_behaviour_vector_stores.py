"""Vector stores and their files behave the same in every store."""

from __future__ import annotations

import msgspec
import pytest

from antiphon.protocol.errors import StoreUnavailable
from antiphon.store.base import Claim, Store
from antiphon.store.base.vector_stores import Attributes, FileBatch, FileCounts
from tests.store.vector_samples import (
    DAY,
    OWNER,
    STRANGER,
    add_store,
    file,
    find_words,
    index,
    index_file,
    once,
    take,
    vector_store,
)

BATCH = FileBatch(id="vsfb_1", created_at=100)


async def test_a_vector_store_is_found_by_its_owner_alone(store: Store) -> None:
    made = msgspec.structs.replace(
        vector_store(days=3), name="Näme\0", description="about", metadata={"a": "b\0"}
    )
    assert await store.vector_stores.add(OWNER, made) is None
    assert await store.vector_stores.find(OWNER, ["vs_1", "vs_2"]) == {"vs_1": made}
    assert await store.vector_stores.find(STRANGER, ["vs_1"]) == {}
    assert await store.vector_stores.find(OWNER, ["\ud800"]) == {}


async def test_pages_follow_the_time_of_creation(store: Store) -> None:
    for number in range(5):
        await store.vector_stores.add(OWNER, vector_store(f"vs_{number}", at=100 + number // 2))
    await store.vector_stores.add(STRANGER, vector_store("vs_9"))
    up = await store.vector_stores.page(OWNER, limit=10, is_descending=False)
    assert [one.id for one in up] == [f"vs_{number}" for number in range(5)]
    down = await store.vector_stores.page(OWNER, after="vs_3", limit=2, is_descending=True)
    assert [one.id for one in down] == ["vs_2", "vs_1"]
    with pytest.raises(KeyError):
        await store.vector_stores.page(OWNER, after="vs_9", limit=2, is_descending=True)


async def test_a_change_keeps_what_is_not_the_callers(store: Store) -> None:
    await add_store(store, file("f1"))
    wanted = msgspec.structs.replace(
        vector_store(at=7, days=2), name="new", description="d", metadata={"k": "v"}
    )
    changed = await store.vector_stores.change(OWNER, wanted)
    assert changed is not None
    assert (changed.name, changed.description, changed.metadata) == ("new", "d", {"k": "v"})
    assert (changed.created_at, changed.expires_after_days) == (100, 2)
    assert changed.counts == FileCounts(in_progress=1)
    assert await store.vector_stores.change(STRANGER, wanted) is None
    assert await store.vector_stores.find(OWNER, ["vs_1"]) == {"vs_1": changed}


async def test_one_token_makes_one_vector_store(store: Store) -> None:
    stores = store.vector_stores
    assert await stores.add(OWNER, vector_store(), once=once()) is None
    assert await stores.add(OWNER, vector_store("vs_2"), once=once()) == Claim(
        b"digest", "vs_1", 100, is_held=True
    )
    assert (await stores.find(OWNER, ["vs_2"])) == {}
    claim = await stores.claimed(OWNER, once())
    assert claim is not None and claim.response_id == "vs_1"
    assert await stores.claimed(STRANGER, once()) is None
    assert await stores.claimed(OWNER, once(since=101)) is None
    assert await stores.remove(OWNER, "vs_1")
    assert await stores.claimed(OWNER, once()) is None
    assert await stores.add(OWNER, vector_store("vs_2"), once=once()) is None


async def test_one_token_attaches_once(store: Store) -> None:
    await add_store(store)
    stores = store.vector_stores
    assert await stores.attach(OWNER, "vs_1", [file("f1")], BATCH, once("t")) is True
    again = await stores.attach(OWNER, "vs_1", [file("f2")], BATCH, once("t"))
    assert isinstance(again, Claim) and again.response_id == BATCH.id
    assert await stores.find_file(OWNER, "vs_1", "f2") is None
    assert await stores.attach(OWNER, "vs_1", [file("f3")], None, once("u")) is True
    alone = await stores.claimed(OWNER, once("u"))
    assert alone is not None and alone.response_id == "f3"
    assert await stores.detach(OWNER, "vs_1", "f3")
    assert await stores.claimed(OWNER, once("u")) is None


async def test_files_are_listed_in_the_order_they_were_attached(store: Store) -> None:
    await add_store(store, *(file(f"f{number}") for number in range(5)))
    names = await _names(store, limit=3)
    assert names == ["f0", "f1", "f2"]
    assert await _names(store, after="f2") == ["f3", "f4"]
    assert await _names(store, after="f3", is_descending=True) == ["f2", "f1", "f0"]
    assert await _names(store, before="f3", limit=2) == ["f1", "f2"]
    assert await _names(store, before="f1", limit=2, is_descending=True) == ["f3", "f2"]
    assert await _names(store, after="f0", before="f4", limit=2) == ["f1", "f2"]
    with pytest.raises(KeyError):
        await _names(store, after="f9")
    with pytest.raises(KeyError):
        await _names(store, before="f9")
    assert await _names(store, owner=STRANGER) == []


async def test_files_can_be_listed_by_status_and_batch(store: Store) -> None:
    await add_store(store, file("f0"), file("f1"))
    await store.vector_stores.attach(OWNER, "vs_1", [file("f2"), file("f3")], BATCH)
    await index(store, await take(store), "text")
    assert await _names(store, status="completed") == ["f0"]
    assert await _names(store, status="in_progress") == ["f1", "f2", "f3"]
    assert await _names(store, batch_id=BATCH.id, status="in_progress") == ["f2", "f3"]
    assert await _names(store, after="f0", batch_id=BATCH.id, limit=1) == ["f2"]


async def test_a_file_attached_again_is_replaced(store: Store) -> None:
    await add_store(store)
    await index_file(store, "f1", "first words", attributes={"a": 1})
    await store.vector_stores.attach(OWNER, "vs_1", [file("f1", b=2)], BATCH)
    found = await store.vector_stores.find_file(OWNER, "vs_1", "f1")
    assert found is not None
    assert (found.status, found.attributes, found.batch_id) == ("in_progress", {"b": 2}, BATCH.id)
    assert await find_words(store, "first") == []
    await index(store, await take(store), "second words")
    assert [one.text for one in await find_words(store, "words")] == ["second words"]


async def test_nothing_is_attached_to_a_vector_store_of_another(store: Store) -> None:
    await add_store(store)
    assert await store.vector_stores.attach(STRANGER, "vs_1", [file("f1")]) is False
    assert await store.vector_stores.attach(OWNER, "vs_2", [file("f1")]) is False
    assert await store.vector_stores.jobs_waiting() == 0


async def test_attributes_are_replaced_as_a_whole(store: Store) -> None:
    values: Attributes = {
        "text": "t\0é",
        "whole": 3,
        "broken": 2.5,
        "yes": True,
        "käy\0": "\U0001f600",
    }
    await add_store(store, file("f1", old="x"))
    changed = await store.vector_stores.set_attributes(OWNER, "vs_1", "f1", values)
    assert changed is not None and changed.attributes == values
    found = await store.vector_stores.find_file(OWNER, "vs_1", "f1")
    assert found == changed
    assert found is not None and found.attributes["yes"] is True
    assert await store.vector_stores.set_attributes(STRANGER, "vs_1", "f1", {}) is None
    assert await store.vector_stores.set_attributes(OWNER, "vs_1", "f2", {}) is None


async def test_a_detached_file_is_not_found_any_more(store: Store) -> None:
    await add_store(store)
    await index_file(store, "f1", "some words")
    assert not await store.vector_stores.detach(STRANGER, "vs_1", "f1")
    assert await store.vector_stores.detach(OWNER, "vs_1", "f1")
    assert not await store.vector_stores.detach(OWNER, "vs_1", "f1")
    assert await find_words(store, "words") == []
    assert await store.vector_stores.chunks(OWNER, "vs_1", "f1", limit=5) == []


async def test_counts_and_bytes_follow_the_files(store: Store) -> None:
    await add_store(store, file("f1"), file("f2"), file("f3"))
    await index(store, await take(store), "ünd")
    await store.vector_stores.end_job(await take(store), error_code="invalid_file")
    shown = (await store.vector_stores.find(OWNER, ["vs_1"]))["vs_1"]
    assert shown.counts == FileCounts(in_progress=1, completed=1, failed=1)
    assert shown.usage_bytes == 4
    assert shown.counts.total == 3


async def test_a_removed_vector_store_takes_its_chunks_along(store: Store) -> None:
    await add_store(store, file("f0"))
    await index(store, await take(store), "some words")
    await store.vector_stores.attach(OWNER, "vs_1", [file("f1")], BATCH)
    assert not await store.vector_stores.remove(STRANGER, "vs_1")
    assert await store.vector_stores.remove(OWNER, "vs_1")
    assert not await store.vector_stores.remove(OWNER, "vs_1")
    assert await store.vector_stores.jobs_waiting() == 0
    await add_store(store)
    assert await find_words(store, "words") == []
    assert await _names(store) == []
    assert await store.vector_stores.find_batch(OWNER, "vs_1", BATCH.id) is None


async def test_a_cancelled_batch_keeps_what_was_completed(store: Store) -> None:
    await add_store(store)
    await store.vector_stores.attach(OWNER, "vs_1", [file("f1"), file("f2"), file("f3")], BATCH)
    await index(store, await take(store), "some words")
    running = await take(store)
    assert await store.vector_stores.add_chunks(running, [])
    assert await store.vector_stores.cancel_batch(STRANGER, "vs_1", BATCH.id) is None
    cancelled = await store.vector_stores.cancel_batch(OWNER, "vs_1", BATCH.id)
    assert cancelled is not None
    assert (cancelled.status, cancelled.counts) == (
        "cancelled",
        FileCounts(completed=1, cancelled=2),
    )
    assert not await store.vector_stores.end_job(running)
    assert await store.vector_stores.jobs_waiting() == 0
    assert await store.vector_stores.find_batch(OWNER, "vs_1", BATCH.id) == cancelled


async def test_a_completed_batch_cannot_be_cancelled(store: Store) -> None:
    await add_store(store)
    await store.vector_stores.attach(OWNER, "vs_1", [file("f1")], BATCH)
    await index(store, await take(store), "some words")
    found = await store.vector_stores.cancel_batch(OWNER, "vs_1", BATCH.id)
    assert found is not None and found.status == "completed"
    assert await store.vector_stores.cancel_batch(OWNER, "vs_1", "vsfb_9") is None


async def test_a_vector_store_expires_after_it_was_last_used(store: Store) -> None:
    await store.vector_stores.add(OWNER, vector_store(days=1), [file("f0")])
    await index(store, await take(store), "some words")
    await store.vector_stores.attach(OWNER, "vs_1", [file("f1")])
    await store.vector_stores.touch(OWNER, ["vs_1", "vs_2"], 200)
    await store.vector_stores.touch(STRANGER, ["vs_1"], 500)
    assert await store.vector_stores.expire(199 + DAY, 10) == 0
    assert await store.vector_stores.expire(200 + DAY, 10) == 1
    assert await store.vector_stores.expire(200 + DAY, 10) == 0
    shown = (await store.vector_stores.find(OWNER, ["vs_1"]))["vs_1"]
    assert shown.counts == FileCounts(completed=1, cancelled=1)
    assert (shown.usage_bytes, shown.expires_at) == (0, 200 + DAY)
    assert await find_words(store, "words") == []
    assert await store.vector_stores.jobs_waiting() == 0


async def test_an_expired_vector_store_does_not_come_back(store: Store) -> None:
    await store.vector_stores.add(OWNER, vector_store(days=1))
    await store.vector_stores.touch(OWNER, ["vs_1"], 101 + DAY)
    assert await store.vector_stores.expire(101 + DAY, 10) == 1
    changed = await store.vector_stores.change(OWNER, vector_store(days=None))
    assert changed is not None and changed.expires_at == 100 + DAY
    assert await store.vector_stores.attach(OWNER, "vs_1", [file("f1")]) is False


async def test_expiry_goes_on_in_steps(store: Store) -> None:
    for number in range(3):
        await store.vector_stores.add(OWNER, vector_store(f"vs_{number}", days=1))
    assert await store.vector_stores.expire(100 + DAY, 2) == 2
    assert await store.vector_stores.expire(100 + DAY, 2) == 1


async def test_a_closed_store_has_no_vector_stores(store: Store) -> None:
    await add_store(store, file("f1"))
    await store.close()
    with pytest.raises(StoreUnavailable):
        await store.vector_stores.find(OWNER, ["vs_1"])
    with pytest.raises(StoreUnavailable):
        await store.vector_stores.take_job("process", 0, 1)


async def _names(
    store: Store,
    *,
    owner: str = OWNER,
    limit: int = 10,
    is_descending: bool = False,
    **wanted: str,
) -> list[str]:
    found = await store.vector_stores.files(
        owner,
        "vs_1",
        batch_id=wanted.get("batch_id"),
        status=wanted.get("status"),
        after=wanted.get("after"),
        before=wanted.get("before"),
        limit=limit,
        is_descending=is_descending,
    )
    return [one.file_id for one in found]
