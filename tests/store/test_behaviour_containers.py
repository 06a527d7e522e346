"""Containers and their files, the same in every kind of store."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from antiphon.store.base import BlobGone, ContainerFile, Store
from antiphon.store.base.files import ENDED_SECONDS
from tests.store.conftest import Database
from tests.store.file_samples import NOW, container, container_file, content, once, write
from tests.store.samples import OWNER

PAGE = {"limit": 99, "is_descending": False}


async def put(
    store: Store, file_id: str, path: str, data: bytes = b"x", **more: object
) -> ContainerFile:
    """Store a file in the container c1."""
    made = container_file(file_id, path, await write(store, data), **more)
    stored = await store.containers.put_file(OWNER, "c1", made)
    assert stored is not None
    return stored


async def test_a_container_is_found_as_it_was_stored(store: Store) -> None:
    made = container("c1", name="b\x00x", holder="p1", generation=3)
    files = [container_file(f"cf{n}", f"/mnt/data/{n}", await write(store, b"x")) for n in "ab"]
    assert await store.containers.add(OWNER, made, files) is None
    assert await store.containers.find(OWNER, "c1") == made
    assert await store.containers.files(OWNER, "c1", limit=9, is_descending=False) == files
    assert await store.containers.find_file(OWNER, "c1", "cfa") == files[0]
    assert await store.files.used_bytes(OWNER) == 2
    with pytest.raises(ValueError, match="there already is a container"):
        await store.containers.add(OWNER, container("c1", name="other"))


async def test_settings_are_shared_with_no_caller(store: Store) -> None:
    made = container("c1")
    await store.containers.add(OWNER, made)
    made.settings["memory_limit"] = "64g"
    found = await store.containers.find(OWNER, "c1")
    assert found is not None
    found.settings["memory_limit"] = "16g"
    again = await store.containers.find(OWNER, "c1")
    assert again is not None
    assert again.settings["memory_limit"] == "1g"


async def test_containers_of_others_do_not_exist(store: Store) -> None:
    await store.containers.add(OWNER, container("c1"))
    stored = await put(store, "cf1", "/mnt/data/a")
    containers = store.containers
    blob = await write(store, b"y", owner="bob")
    assert await containers.find("bob", "c1") is None
    assert await containers.page("bob", limit=9, is_descending=False) == []
    assert await containers.use("bob", "c1", NOW) is None
    assert await containers.start("bob", "c1", "p", NOW) is None
    assert await containers.put_file("bob", "c1", container_file("x", "/a", blob)) is None
    assert await content(store, blob, owner="bob") == b""
    assert await containers.files("bob", "c1", limit=9, is_descending=False) == []
    assert await containers.find_file("bob", "c1", "cf1") is None
    assert not await containers.remove_file("bob", "c1", "cf1")
    assert not await containers.remove("bob", "c1")
    assert await containers.find_file(OWNER, "c1", "cf1") == stored


@pytest.mark.parametrize("name", ["\ud800", "a\x00b", ""])
async def test_no_container_has_an_odd_id(store: Store, name: str) -> None:
    await store.containers.add(OWNER, container("c1"))
    containers = store.containers
    assert await containers.find(OWNER, name) is None
    assert await containers.use(OWNER, name, NOW) is None
    assert not await containers.remove(OWNER, name)
    assert await containers.files(OWNER, name, limit=9, is_descending=False) == []
    assert await containers.find_file(OWNER, "c1", name) is None
    assert await containers.find_file(OWNER, name, "x") is None
    assert not await containers.remove_file(OWNER, "c1", name)


async def test_pages_of_containers_and_files(store: Store) -> None:
    for number, at in enumerate([5, 3, 5, 5]):
        await store.containers.add(OWNER, container(f"c{number}", created_at=at))
    order = ["c1", "c0", "c2", "c3"]
    up = await store.containers.page(OWNER, limit=9, is_descending=False)
    assert [one.id for one in up] == order
    down = await store.containers.page(OWNER, after="c3", limit=2, is_descending=True)
    assert [one.id for one in down] == ["c2", "c0"]
    with pytest.raises(KeyError):
        await store.containers.page(OWNER, after="c9", limit=2, is_descending=True)
    for number in range(3):
        await put(store, f"cf{number}", f"/mnt/data/{number}")
    found = await store.containers.files(OWNER, "c1", after="cf2", limit=9, is_descending=True)
    assert [one.id for one in found] == ["cf1", "cf0"]
    with pytest.raises(KeyError):
        await store.containers.files(OWNER, "c2", after="cf2", limit=9, is_descending=True)


async def test_a_container_is_used_until_it_expires(store: Store) -> None:
    made = container("c1")
    await store.containers.add(OWNER, made)
    used = await store.containers.use(OWNER, "c1", NOW + 59)
    assert used == msgspec.structs.replace(made, last_active_at=NOW + 59)
    earlier = await store.containers.use(OWNER, "c1", NOW + 10)
    assert earlier == used
    assert await store.containers.use(OWNER, "c1", NOW + 59 + 60) is None
    assert await store.containers.start(OWNER, "c1", "p", NOW + 59 + 60) is None
    assert await store.containers.find(OWNER, "c1") == used


async def test_each_interpreter_gets_a_generation(database: Database) -> None:
    stores = [await database.open(), await database.open()]
    await stores[0].containers.add(OWNER, container("c1"))
    started = await asyncio.gather(
        *(stores[n % 2].containers.start(OWNER, "c1", f"p{n}", NOW + n) for n in range(10))
    )
    generations = [one.generation for one in started if one is not None]
    assert sorted(generations) == list(range(1, 11))
    last = await stores[0].containers.find(OWNER, "c1")
    assert last is not None
    [newest] = [one for one in started if one is not None and one.generation == 10]
    assert last.holder == newest.holder


async def test_a_file_replaces_the_one_at_its_path(store: Store) -> None:
    await store.containers.add(OWNER, container("c1"))
    first = await put(store, "cf1", "/mnt/data/a", b"old")
    again = await put(store, "cf2", "/mnt/data/a", b"newer", source="assistant", created_at=NOW + 1)
    assert (again.id, again.source, again.created_at) == ("cf1", "assistant", NOW + 1)
    assert await store.containers.files(OWNER, "c1", limit=9, is_descending=False) == [again]
    assert await content(store, first.blob) == b""
    assert await content(store, again.blob) == b"newer"
    assert await store.containers.find_file(OWNER, "c1", "cf2") is None
    assert await store.files.used_bytes(OWNER) == 5


@pytest.mark.parametrize(
    "path", ["/mnt/data/ü", "/mnt/data/a\x00b", "/mnt/data/\udcff", "/" * 4000]
)
async def test_any_path_can_be_stored(store: Store, path: str) -> None:
    await store.containers.add(OWNER, container("c1"))
    await put(store, "cf1", path, b"1")
    stored = await put(store, "cf2", path, b"2")
    assert await store.containers.find_file(OWNER, "c1", "cf1") == stored
    assert stored.path == path


async def test_racing_writers_of_a_path_leave_one_file(database: Database) -> None:
    stores = [await database.open(), await database.open()]
    await stores[0].containers.add(OWNER, container("c1"))
    stored = await asyncio.gather(
        *(put(stores[n % 2], f"cf{n}", "/mnt/data/a", bytes([n])) for n in range(10))
    )
    [left] = await stores[0].containers.files(OWNER, "c1", limit=9, is_descending=False)
    assert {one.id for one in stored} == {left.id}
    assert left in stored
    assert await stores[1].files.used_bytes(OWNER) == 1


async def test_a_file_without_its_blob_is_not_stored(store: Store) -> None:
    await store.containers.add(OWNER, container("c1"))
    stored = await put(store, "cf1", "/mnt/data/a", b"old")
    taken = container_file("cf2", "/mnt/data/b", stored.blob)
    with pytest.raises(BlobGone):
        await store.containers.put_file(OWNER, "c1", taken)
    with pytest.raises(BlobGone):
        await store.containers.add(OWNER, container("c2"), [taken])
    assert await store.containers.find(OWNER, "c2") is None
    assert await store.containers.files(OWNER, "c1", limit=9, is_descending=False) == [stored]


async def test_removing_takes_the_contents_along(store: Store) -> None:
    await store.containers.add(OWNER, container("c1"))
    first = await put(store, "cf1", "/mnt/data/a", b"one")
    second = await put(store, "cf2", "/mnt/data/b", b"two")
    assert await store.containers.remove_file(OWNER, "c1", "cf1")
    assert not await store.containers.remove_file(OWNER, "c1", "cf1")
    assert await content(store, first.blob) == b""
    assert await store.containers.remove(OWNER, "c1")
    assert not await store.containers.remove(OWNER, "c1")
    assert await content(store, second.blob) == b""
    assert await store.containers.find(OWNER, "c1") is None
    assert await store.containers.find_file(OWNER, "c1", "cf2") is None
    assert await store.files.used_bytes(OWNER) == 0


async def test_an_expired_container_loses_its_files_and_a_day_later_its_row(store: Store) -> None:
    made = container("c1")
    await store.containers.add(OWNER, made)
    stored = await put(store, "cf1", "/mnt/data/a", b"one")
    end = NOW + 60
    assert await store.files.sweep(end - 1, 10) == 0
    assert await store.files.sweep(end, 10) == 1
    assert await store.containers.find(OWNER, "c1") == made
    assert await store.containers.files(OWNER, "c1", limit=9, is_descending=False) == []
    assert await content(store, stored.blob) == b""
    await store.files.sweep(end + ENDED_SECONDS, 10)
    assert await store.containers.find(OWNER, "c1") is None


async def test_a_request_that_is_repeated_makes_one_container(store: Store) -> None:
    blobs = [await write(store, b"x") for _ in "ab"]
    files = [container_file("cf", "/mnt/data/a", blob) for blob in blobs]
    assert await store.containers.claimed(OWNER, once()) is None
    assert await store.containers.add(OWNER, container("c1"), files[:1], once()) is None
    claim = await store.containers.add(OWNER, container("c2"), files[1:], once())
    assert claim is not None
    assert claim.response_id == "c1"
    assert await store.containers.claimed(OWNER, once()) == claim
    assert await store.containers.find(OWNER, "c2") is None
    assert await content(store, blobs[1]) == b""
    await store.containers.remove(OWNER, "c1")
    assert await store.containers.claimed(OWNER, once()) is None
