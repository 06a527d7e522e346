"""Uploads in parts, the same in every kind of store."""

from __future__ import annotations

import asyncio

import msgspec

from antiphon.store.base import Store, Upload
from antiphon.store.base.files import ENDED_SECONDS
from tests.store.conftest import Database
from tests.store.file_samples import NOW, content, file, once, part, upload, write
from tests.store.samples import OWNER


async def begun(store: Store, *parts: bytes, **more: object) -> Upload:
    """Begin an upload with these parts."""
    made = upload("u1", **more)
    assert await store.files.begin_upload(OWNER, made) is None
    for number, data in enumerate(parts):
        one = part(f"p{number}", await write(store, data))
        assert await store.files.add_part(OWNER, "u1", one, NOW)
    return made


async def test_an_upload_is_found_as_it_was_begun(store: Store) -> None:
    made = await begun(store, file_expires_after=77)
    assert await store.files.find_upload(OWNER, "u1", NOW) == made
    assert await store.files.find_upload("bob", "u1", NOW) is None
    assert await store.files.find_upload(OWNER, "u2", NOW) is None
    assert await store.files.find_upload(OWNER, "\ud800\x00", NOW) is None


async def test_parts_are_returned_in_the_order_they_came(store: Store) -> None:
    await begun(store, b"b", b"a", b"c")
    parts = await store.files.parts(OWNER, "u1")
    assert [one.id for one in parts] == ["p0", "p1", "p2"]
    assert [await content(store, one.blob) for one in parts] == [b"b", b"a", b"c"]
    assert await store.files.parts("bob", "u1") == []
    assert await store.files.used_bytes(OWNER) == 3


async def test_completing_makes_the_file_and_removes_the_parts(store: Store) -> None:
    made = await begun(store, b"ab", b"cd")
    parts = await store.files.parts(OWNER, "u1")
    new = file("f1", await write(store, b"abcd"))
    done = await store.files.complete_upload(OWNER, "u1", new, NOW)
    assert done == msgspec.structs.replace(made, status="completed", file_id="f1")
    assert await store.files.find_upload(OWNER, "u1", NOW + 200) == done
    assert await store.files.find(OWNER, ["f1"], NOW) == {"f1": new}
    assert await store.files.parts(OWNER, "u1") == []
    assert [await content(store, one.blob) for one in parts] == [b"", b""]
    assert await store.files.used_bytes(OWNER) == 4


async def test_an_upload_is_completed_once(store: Store) -> None:
    await begun(store, b"ab")
    assert await store.files.complete_upload(OWNER, "u1", file("f1", await write(store)), NOW)
    blob = await write(store, b"late")
    assert await store.files.complete_upload(OWNER, "u1", file("f2", blob), NOW) is None
    assert await content(store, blob) == b""
    assert list(await store.files.find(OWNER, ["f1", "f2"], NOW)) == ["f1"]
    assert await store.files.cancel_upload(OWNER, "u1", NOW) is None
    late = await write(store, b"late")
    assert not await store.files.add_part(OWNER, "u1", part("p9", late), NOW)
    assert await content(store, late) == b""


async def test_a_cancelled_upload_has_no_parts(store: Store) -> None:
    made = await begun(store, b"ab")
    assert await store.files.cancel_upload("bob", "u1", NOW) is None
    done = await store.files.cancel_upload(OWNER, "u1", NOW)
    assert done == msgspec.structs.replace(made, status="cancelled")
    assert await store.files.parts(OWNER, "u1") == []
    assert await store.files.used_bytes(OWNER) == 0
    assert await store.files.cancel_upload(OWNER, "u1", NOW) is None


async def test_a_part_for_another_owners_upload_is_refused(store: Store) -> None:
    await begun(store)
    blob = await write(store, b"x", owner="bob")
    assert not await store.files.add_part("bob", "u1", part("p1", blob), NOW)
    assert await content(store, blob, owner="bob") == b""
    assert await store.files.parts(OWNER, "u1") == []


async def test_an_upload_expires_and_is_removed_a_day_later(store: Store) -> None:
    made = await begun(store, b"ab")
    end = made.expires_at
    late = msgspec.structs.replace(made, status="expired")
    assert await store.files.find_upload(OWNER, "u1", end) == late
    assert not await store.files.add_part(OWNER, "u1", part("p9", await write(store)), end)
    assert (
        await store.files.complete_upload(OWNER, "u1", file("f1", await write(store)), end) is None
    )
    assert await store.files.cancel_upload(OWNER, "u1", end) is None
    assert await store.files.sweep(end - 1, 10) == 0
    assert await store.files.sweep(end, 10) == 1
    assert await store.files.used_bytes(OWNER) == 0
    assert await store.files.find_upload(OWNER, "u1", end) == late
    await store.files.sweep(end + ENDED_SECONDS, 10)
    assert await store.files.find_upload(OWNER, "u1", end) is None


async def test_a_request_that_is_repeated_begins_one_upload(store: Store) -> None:
    assert await store.files.begin_upload(OWNER, upload("u1"), once()) is None
    claim = await store.files.begin_upload(OWNER, upload("u2"), once())
    assert claim is not None
    assert claim.response_id == "u1"
    assert await store.files.find_upload(OWNER, "u2", NOW) is None
    assert await store.files.claimed(OWNER, once()) == claim


async def test_of_racing_ends_one_counts(database: Database) -> None:
    stores = [await database.open(), await database.open()]
    for turn in range(6):
        name = f"u{turn}"
        await stores[0].files.begin_upload(OWNER, upload(name))
        for number in range(3):
            one = part(f"p{number}", await write(stores[0], b"part"))
            assert await stores[0].files.add_part(OWNER, name, one, NOW)
        blobs = [await write(store, b"whole") for store in stores]
        ends = await asyncio.gather(
            stores[0].files.complete_upload(OWNER, name, file(f"a{turn}", blobs[0]), NOW),
            stores[1].files.complete_upload(OWNER, name, file(f"b{turn}", blobs[1]), NOW),
            stores[1].files.cancel_upload(OWNER, name, NOW),
        )
        [end] = [end for end in ends if end is not None]
        assert await stores[1].files.find_upload(OWNER, name, NOW) == end
        made = await stores[0].files.find(OWNER, [f"a{turn}", f"b{turn}"], NOW)
        assert list(made) == ([end.file_id] if end.file_id else [])
        assert await stores[0].files.parts(OWNER, name) == []
    count = len(await stores[0].files.page(OWNER, limit=99, is_descending=False, now=NOW))
    assert await stores[0].files.used_bytes(OWNER) == 5 * count
