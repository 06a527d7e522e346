"""Files and blobs, the same in every kind of store."""

from __future__ import annotations

import asyncio
import hashlib
import os
import time

import pytest

from antiphon.protocol.errors import StoreUnavailable
from antiphon.store.base import BlobGone, Store
from antiphon.store.base.blobs import PIECE_BYTES, UNNAMED_SECONDS
from antiphon.store.base.store import sweep_in_steps
from tests.store.conftest import Database
from tests.store.file_samples import NOW, add_file, content, file, once, write
from tests.store.samples import OWNER

# Blobs have the time of the clock.
LONG_AFTER = int(time.time()) + 10 * UNNAMED_SECONDS


async def ids_of(
    store: Store, *, is_descending: bool = False, limit: int = 100, **more: object
) -> list[str]:
    found = await store.files.page(
        OWNER,
        limit=limit,
        is_descending=is_descending,
        now=NOW,
        **more,  # type: ignore[arg-type] # purpose, after
    )
    return [one.id for one in found]


# Blobs


async def test_a_blob_is_read_as_it_was_written(store: Store) -> None:
    pieces = [b"a", b"", os.urandom(PIECE_BYTES - 1), os.urandom(3 * PIECE_BYTES), b"end"]
    whole = b"".join(pieces)
    blob = await write(store, *pieces)
    assert (blob.size, blob.sha256) == (len(whole), hashlib.sha256(whole).digest())
    assert await content(store, blob) == whole
    assert await content(store, blob, step=300_000) == whole
    for offset, size in ((0, 1), (PIECE_BYTES - 1, 2), (len(whole) - 1, 9), (5, 2 * PIECE_BYTES)):
        found = await store.blobs.read(OWNER, blob.id, offset, size)
        assert found == whole[offset : offset + size]


async def test_there_is_nothing_behind_the_end_of_a_blob(store: Store) -> None:
    blob, empty = await write(store, b"abc"), await write(store)
    assert await store.blobs.read(OWNER, blob.id, 3, 10) == b""
    assert await store.blobs.read(OWNER, blob.id, 2**40, 10) == b""
    assert await store.blobs.read(OWNER, blob.id, 0, 0) == b""
    assert empty.size == 0
    assert await content(store, empty) == b""


async def test_a_blob_is_read_by_its_owner_only(store: Store) -> None:
    blob = await write(store, b"abc")
    assert await store.blobs.read("bob", blob.id, 0, 10) == b""
    assert await store.blobs.read(OWNER, "nothing", 0, 10) == b""
    assert await store.blobs.read(OWNER, "../a.db", 0, 10) == b""
    assert await store.blobs.read(OWNER, "\ud800", 0, 10) == b""


async def test_an_aborted_blob_leaves_nothing(store: Store) -> None:
    writer = await store.blobs.create(OWNER)
    await writer.write(bytes(2 * PIECE_BYTES))
    await writer.abort()
    await writer.abort()
    with pytest.raises(StoreUnavailable):
        await writer.finish()
    assert await store.files.used_bytes(OWNER) == 0


async def test_abort_after_finish_does_nothing(store: Store) -> None:
    writer = await store.blobs.create(OWNER)
    await writer.write(b"abc")
    blob = await writer.finish()
    await writer.abort()
    assert await content(store, blob) == b"abc"


async def test_a_blob_without_a_row_is_swept_after_a_day(store: Store) -> None:
    blob = await write(store, b"abc")
    named = await add_file(store, "f1", b"named")
    assert await store.files.sweep(int(time.time()), 10) == 0
    assert await content(store, blob) == b"abc"
    assert await store.files.sweep(LONG_AFTER, 10) == 1
    assert await content(store, blob) == b""
    assert await content(store, named.blob) == b"named"
    with pytest.raises(BlobGone):
        await store.files.add(OWNER, file("f2", blob))


# Files


async def test_a_file_is_found_as_it_was_stored(store: Store) -> None:
    made = await add_file(
        store, "f1", b"hello", filename="ü \x00.txt", purpose="assistants", expires_at=NOW + 5
    )
    assert await store.files.find(OWNER, ["f1", "f2", "f1"], NOW) == {"f1": made}
    assert made.size == 5
    assert await content(store, made.blob) == b"hello"


async def test_many_files_are_found_at_once(store: Store) -> None:
    for number in range(3):
        await add_file(store, f"f{number}")
    wanted = [f"f{number}" for number in range(250)]
    assert list(await store.files.find(OWNER, wanted, NOW)) == ["f0", "f1", "f2"]


async def test_files_of_others_do_not_exist(store: Store) -> None:
    made = await add_file(store, "f1")
    assert await store.files.find("bob", ["f1"], NOW) == {}
    assert await store.files.page("bob", limit=9, is_descending=False, now=NOW) == []
    with pytest.raises(KeyError):
        await store.files.page("bob", after="f1", limit=9, is_descending=False, now=NOW)
    assert not await store.files.remove("bob", "f1")
    assert await store.files.used_bytes("bob") == 0
    with pytest.raises(BlobGone):
        await store.files.add("bob", file("f2", await write(store, b"mine")))
    assert await store.files.find(OWNER, ["f1"], NOW) == {"f1": made}
    assert await content(store, made.blob) == b"text"


@pytest.mark.parametrize("name", ["\ud800", "a\x00b", "", "x" * 10_000])
async def test_no_file_has_an_odd_id(store: Store, name: str) -> None:
    await add_file(store, "f1")
    assert await store.files.find(OWNER, [name], NOW) == {}
    assert not await store.files.remove(OWNER, name)
    assert await ids_of(store, purpose=name) == []
    with pytest.raises(KeyError):
        await ids_of(store, after=name)


async def test_an_id_is_given_once(store: Store) -> None:
    made = await add_file(store, "f1")
    with pytest.raises(ValueError, match="there already is a file 'f1'"):
        await store.files.add(OWNER, file("f1", await write(store, b"other")))
    assert await store.files.find(OWNER, ["f1"], NOW) == {"f1": made}


async def test_a_blob_belongs_to_one_row(store: Store) -> None:
    made = await add_file(store, "f1")
    with pytest.raises(BlobGone):
        await store.files.add(OWNER, file("f2", made.blob))
    assert await store.files.find(OWNER, ["f1", "f2"], NOW) == {"f1": made}
    assert await content(store, made.blob) == b"text"


async def test_pages_in_both_directions_with_equal_times(store: Store) -> None:
    for number, at in enumerate([5, 3, 5, 4, 5, 5]):
        await add_file(store, f"f{number}", created_at=at)
    order = ["f1", "f3", "f0", "f2", "f4", "f5"]
    assert await ids_of(store) == order
    assert await ids_of(store, is_descending=True) == order[::-1]
    for limit in (1, 2, 4):
        for is_descending in (False, True):
            found: list[str] = []
            after: str | None = None
            while some := await ids_of(
                store, is_descending=is_descending, limit=limit, after=after
            ):
                found += some
                after = found[-1]
            assert found == (order[::-1] if is_descending else order)


async def test_a_page_of_one_purpose(store: Store) -> None:
    for number in range(6):
        await add_file(store, f"f{number}", purpose="vision" if number % 2 else "user_data")
    assert await ids_of(store, purpose="vision") == ["f1", "f3", "f5"]
    assert await ids_of(store, purpose="vision", after="f2", limit=1) == ["f3"]
    assert await ids_of(store, purpose="other") == []


async def test_an_expired_file_is_not_found_and_then_swept(store: Store) -> None:
    gone = await add_file(store, "f1", expires_at=NOW)
    await add_file(store, "f2", expires_at=NOW + 1)
    assert await ids_of(store) == ["f2"]
    assert list(await store.files.find(OWNER, ["f1", "f2"], NOW)) == ["f2"]
    with pytest.raises(KeyError):
        await ids_of(store, after="f1")
    assert await store.files.sweep(NOW, 10) == 1
    assert await content(store, gone.blob) == b""
    assert await store.files.find(OWNER, ["f1"], 0) == {}
    assert await store.files.used_bytes(OWNER) == 4


async def test_a_sweep_in_steps_removes_everything(store: Store) -> None:
    for number in range(7):
        await add_file(store, f"f{number}", expires_at=5)
    assert await sweep_in_steps(store.files.sweep, NOW, 3) >= 7
    assert await store.files.used_bytes(OWNER) == 0


async def test_a_sweep_finds_nothing_in_a_new_store(store: Store) -> None:
    assert await store.files.sweep(NOW, 10) == 0
    assert await store.files.used_bytes(OWNER) == 0
    assert await store.files.find(OWNER, ["f1"], NOW) == {}
    assert await ids_of(store) == []
    await store.sweep(NOW, NOW)


async def test_a_removed_file_is_gone_with_its_content(store: Store) -> None:
    made = await add_file(store, "f1", b"content")
    assert await store.files.used_bytes(OWNER) == 7
    assert await store.files.remove(OWNER, "f1")
    assert not await store.files.remove(OWNER, "f1")
    assert await store.files.find(OWNER, ["f1"], NOW) == {}
    assert await content(store, made.blob) == b""
    assert await store.files.used_bytes(OWNER) == 0


async def test_what_is_stored_is_there_after_a_restart(database: Database) -> None:
    if not database.is_shared:
        pytest.skip("memory ends with its store")
    first = await database.open()
    made = await add_file(first, "f1", os.urandom(3_000_000))
    whole = await content(first, made.blob)
    await first.close()
    second = await database.open()
    assert await second.files.find(OWNER, ["f1"], NOW) == {"f1": made}
    assert await content(second, made.blob) == whole


async def test_a_closed_store_refuses(store: Store) -> None:
    made = await add_file(store, "f1")
    writer = await store.blobs.create(OWNER)
    await writer.write(b"x")
    await store.close()
    with pytest.raises(StoreUnavailable):
        await store.files.find(OWNER, ["f1"], NOW)
    with pytest.raises(StoreUnavailable):
        await store.blobs.read(OWNER, made.blob.id, 0, 1)
    with pytest.raises(StoreUnavailable):
        await store.blobs.create(OWNER)
    with pytest.raises(StoreUnavailable):
        await writer.finish()
    await writer.abort()


# Once


async def test_a_request_that_is_repeated_makes_one_file(store: Store) -> None:
    first, second = await write(store, b"one"), await write(store, b"two")
    assert await store.files.claimed(OWNER, once()) is None
    assert await store.files.add(OWNER, file("f1", first), once()) is None
    claim = await store.files.add(OWNER, file("f2", second), once(now=NOW + 1))
    assert claim is not None
    assert (claim.response_id, claim.digest, claim.created_at) == ("f1", b"d", NOW)
    assert claim.is_held
    assert await store.files.claimed(OWNER, once()) == claim
    assert await ids_of(store) == ["f1"]
    assert await content(store, second) == b""
    assert await store.files.claimed("bob", once()) is None


async def test_a_claim_ends_with_its_file(store: Store) -> None:
    assert await store.files.add(OWNER, file("f1", await write(store)), once()) is None
    await store.files.remove(OWNER, "f1")
    assert await store.files.claimed(OWNER, once()) is None
    assert await store.files.add(OWNER, file("f2", await write(store)), once()) is None


async def test_a_claim_ends_when_its_file_expires(store: Store) -> None:
    blob = await write(store)
    assert await store.files.add(OWNER, file("f1", blob, expires_at=NOW + 9), once()) is None
    assert await store.files.claimed(OWNER, once(now=NOW + 9)) is None


async def test_an_old_claim_does_not_count_and_is_swept(store: Store) -> None:
    assert await store.files.add(OWNER, file("f1", await write(store)), once()) is None
    assert await store.files.claimed(OWNER, once(since=NOW + 1)) is None
    again = file("f2", await write(store))
    assert await store.files.add(OWNER, again, once(now=NOW + 2, since=NOW + 1)) is None
    await store.sweep(0, NOW + 3)
    assert await store.files.claimed(OWNER, once()) is None
    assert await ids_of(store) == ["f1", "f2"]


async def test_racing_requests_make_one_file(database: Database) -> None:
    stores = [await database.open() for _ in range(3)]
    for turn in range(5):
        token = f"t{turn}"
        blobs = [await write(store, b"abc") for store in stores for _ in range(4)]
        claims = await asyncio.gather(
            *(
                stores[place % 3].files.add(OWNER, file(f"{token}-{place}", blob), once(token))
                for place, blob in enumerate(blobs)
            )
        )
        winners = [place for place, claim in enumerate(claims) if claim is None]
        assert len(winners) == 1
        made = {claim.response_id for claim in claims if claim is not None}
        assert made == {f"{token}-{winners[0]}"}
    assert await stores[0].files.used_bytes(OWNER) == 5 * 3


async def test_what_one_store_does_the_others_see(pair: tuple[Store, Store]) -> None:
    one, other = pair
    made = await add_file(one, "f1", b"shared")
    assert await other.files.find(OWNER, ["f1"], NOW) == {"f1": made}
    assert await content(other, made.blob) == b"shared"
    assert await other.files.remove(OWNER, "f1")
    assert await one.files.find(OWNER, ["f1"], NOW) == {}
    assert await content(one, made.blob) == b""
