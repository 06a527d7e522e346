"""Skills and their versions, the same in every kind of store."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from antiphon.store.base import SkillVersion, Store
from tests.store.conftest import Database
from tests.store.file_samples import NOW, content, once, skill, skill_version, write
from tests.store.samples import OWNER


async def added(store: Store, skill_id: str = "s1", **more: object) -> SkillVersion:
    """Store a skill; return its first version."""
    version = skill_version(f"{skill_id}-v1", await write(store, b"zip"))
    assert await store.skills.add(OWNER, skill(skill_id, **more), version) is None
    return version


async def more(
    store: Store, name: str, *, is_default: bool = False, skill_id: str = "s1"
) -> SkillVersion:
    """Store another version of this name."""
    blob = await write(store, name.encode())
    wanted = skill_version(f"v-{name}", blob, name=name, description=f"about {name}", version=77)
    stored = await store.skills.add_version(OWNER, skill_id, wanted, is_default=is_default)
    assert stored is not None
    assert stored == msgspec.structs.replace(wanted, version=stored.version)
    return stored


async def numbers(
    store: Store, after: int | None = None, *, is_descending: bool = False
) -> list[int]:
    found = await store.skills.versions(
        OWNER, "s1", after=after, limit=99, is_descending=is_descending
    )
    return [one.version for one in found]


async def test_a_skill_is_found_as_it_was_stored(store: Store) -> None:
    first = await added(store)
    assert await store.skills.find(OWNER, "s1") == skill("s1")
    assert await store.skills.find_version(OWNER, "s1", None) == first
    assert await store.skills.find_version(OWNER, "s1", 1) == first
    assert await store.skills.find_version(OWNER, "s1", 2) is None
    assert await content(store, first.blob) == b"zip"
    with pytest.raises(ValueError, match="there already is a skill"):
        await store.skills.add(OWNER, skill("s1"), skill_version("x", await write(store)))


async def test_the_first_version_has_the_number_one(store: Store) -> None:
    version = skill_version("v", await write(store), version=9)
    await store.skills.add(OWNER, skill("s1", default_version=9, latest_version=9), version)
    assert await numbers(store) == [1]
    assert await store.skills.find(OWNER, "s1") == skill("s1")


async def test_the_default_version_gives_the_skill_its_name(store: Store) -> None:
    await added(store)
    second = await more(store, "two")
    assert second.version == 2
    assert await store.skills.find(OWNER, "s1") == skill("s1", latest_version=2)
    third = await more(store, "three", is_default=True)
    expected = skill(
        "s1", name="three", description="about three", default_version=3, latest_version=3
    )
    assert await store.skills.find(OWNER, "s1") == expected
    assert await store.skills.find_version(OWNER, "s1", None) == third
    changed = await store.skills.set_default(OWNER, "s1", 2)
    assert changed is not None
    assert (changed.name, changed.default_version, changed.latest_version) == ("two", 2, 3)
    for nothing in (0, 4, -1, 2**70):
        assert await store.skills.set_default(OWNER, "s1", nothing) is None
    assert await store.skills.find(OWNER, "s1") == changed


async def test_versions_come_by_number(store: Store) -> None:
    await added(store)
    for name in "abc":
        await more(store, name)
    assert await numbers(store) == [1, 2, 3, 4]
    assert await numbers(store, is_descending=True) == [4, 3, 2, 1]
    assert await numbers(store, 2) == [3, 4]
    assert await numbers(store, 2, is_descending=True) == [1]
    assert await numbers(store, 2**70) == []
    assert await store.skills.versions(OWNER, "s9", limit=9, is_descending=False) == []


async def test_a_number_is_never_given_again(store: Store) -> None:
    await added(store)
    last = await more(store, "two")
    assert await store.skills.remove_version(OWNER, "s1", 2)
    assert await content(store, last.blob) == b""
    assert await store.skills.find(OWNER, "s1") == skill("s1")
    assert (await more(store, "three")).version == 3
    assert await numbers(store) == [1, 3]


async def test_the_default_version_stays(store: Store) -> None:
    first = await added(store)
    await more(store, "two")
    assert not await store.skills.remove_version(OWNER, "s1", 1)
    assert not await store.skills.remove_version(OWNER, "s1", 9)
    assert not await store.skills.remove_version(OWNER, "s1", 2**70)
    assert not await store.skills.remove_version("bob", "s1", 2)
    assert await content(store, first.blob) == b"zip"
    assert await numbers(store) == [1, 2]


async def test_removing_a_skill_removes_all_versions(store: Store) -> None:
    first = await added(store)
    second = await more(store, "two")
    assert await store.files.used_bytes(OWNER) == 6
    assert not await store.skills.remove("bob", "s1")
    assert await store.skills.remove(OWNER, "s1")
    assert not await store.skills.remove(OWNER, "s1")
    assert await content(store, first.blob) == await content(store, second.blob) == b""
    assert await store.skills.find_version(OWNER, "s1", 2) is None
    assert await store.files.used_bytes(OWNER) == 0


async def test_skills_of_others_do_not_exist(store: Store) -> None:
    await added(store)
    blob = await write(store, b"mine", owner="bob")
    skills = store.skills
    assert await skills.find("bob", "s1") is None
    assert await skills.page("bob", limit=9, is_descending=False) == []
    assert await skills.set_default("bob", "s1", 1) is None
    wanted = skill_version("v", blob)
    assert await skills.add_version("bob", "s1", wanted, is_default=True) is None
    assert await content(store, blob, owner="bob") == b""
    assert await skills.find_version("bob", "s1", None) is None
    assert await skills.versions("bob", "s1", limit=9, is_descending=False) == []
    for odd in ("\ud800", "a\x00b", ""):
        assert await skills.find(OWNER, odd) is None
        assert not await skills.remove(OWNER, odd)


async def test_pages_of_skills(store: Store) -> None:
    for number, at in enumerate([5, 3, 5]):
        await added(store, f"s{number}", created_at=at)
    up = await store.skills.page(OWNER, limit=9, is_descending=False)
    assert [one.id for one in up] == ["s1", "s0", "s2"]
    down = await store.skills.page(OWNER, after="s2", limit=9, is_descending=True)
    assert [one.id for one in down] == ["s0", "s1"]
    with pytest.raises(KeyError):
        await store.skills.page(OWNER, after="s9", limit=9, is_descending=True)


async def test_racing_versions_get_numbers_of_their_own(database: Database) -> None:
    stores = [await database.open(), await database.open()]
    await added(stores[0])
    made = await asyncio.gather(*(more(stores[n % 2], f"n{n}") for n in range(10)))
    assert sorted(one.version for one in made) == list(range(2, 12))
    assert await numbers(stores[1]) == list(range(1, 12))


async def test_a_request_that_is_repeated_makes_one_skill(store: Store) -> None:
    blobs = [await write(store, b"zip") for _ in "ab"]
    first, second = (skill_version(f"v{n}", blob) for n, blob in enumerate(blobs))
    assert await store.skills.claimed(OWNER, once()) is None
    assert await store.skills.add(OWNER, skill("s1"), first, once()) is None
    claim = await store.skills.add(OWNER, skill("s2"), second, once())
    assert claim is not None
    assert claim.response_id == "s1"
    assert await store.skills.claimed(OWNER, once()) == claim
    assert await store.skills.find(OWNER, "s2") is None
    assert await content(store, blobs[1]) == b""
    assert (await store.skills.page(OWNER, limit=9, is_descending=False))[0].created_at == NOW
