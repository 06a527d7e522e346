"""Roles, rotation and use of keys are the same in every store."""

from __future__ import annotations

import msgspec
import pytest

from antiphon.store.base import (
    AuditQuery,
    AuditRecord,
    KeyChange,
    Project,
    ProjectChange,
    Store,
)
from tests.store.samples import OWNER, key

FULL = key(
    "k1",
    role="viewer",
    user="zoë",
    models=("small", "größe"),
    never_store=True,
    hint="x7Qd",
    expires_at=500,
    run_budget=2 * 10**9,
    max_run_budget=10**12,
)


def record(action: str, subject: str = "k1") -> AuditRecord:
    return AuditRecord(at=7, actor="cli:root", action=action, subject=subject, project=OWNER)


async def actions(store: Store) -> list[str]:
    entries = await store.audit.page(AuditQuery(), limit=100, is_descending=False)
    return [entry.action for entry in entries]


async def test_everything_about_a_key_comes_back(store: Store) -> None:
    await store.add_key(FULL)
    assert await store.find_key("k1") == FULL
    assert await store.list_keys() == [FULL]
    assert await store.list_keys(OWNER) == [FULL]
    assert await store.list_keys("stranger") == []


async def test_a_change_sets_what_it_names_and_leaves_the_rest(store: Store) -> None:
    await store.add_key(FULL)
    change = KeyChange(models=None, never_store=False, run_budget=None, max_run_budget=7)
    changed = await store.update_key("k1", change)
    assert changed == msgspec.structs.replace(
        FULL, models=None, never_store=False, run_budget=None, max_run_budget=7
    )
    assert await store.find_key("k1") == changed
    assert await store.update_key("k1", KeyChange()) == changed
    assert await store.update_key("none", KeyChange(name="x")) is None
    assert await store.update_key("\ud83d", KeyChange(name="x")) is None


async def test_both_secrets_of_a_rotated_key_are_good_until_the_overlap_ends(store: Store) -> None:
    await store.add_key(key("k1", digest=b"old"))
    rotated = await store.rotate_key("k1", b"new", "wxyz", now=10, until=20)
    assert rotated == await store.find_key("k1")
    assert rotated is not None
    assert (rotated.digest, rotated.hint) == (b"new", "wxyz")
    assert rotated.accepts(b"new", 10) and rotated.accepts(b"new", 99)
    assert rotated.accepts(b"old", 19) and not rotated.accepts(b"old", 20)
    assert not rotated.accepts(b"other", 10)


async def test_a_rotation_that_is_repeated_changes_nothing(store: Store) -> None:
    await store.add_key(key("k1", digest=b"old"))
    first = await store.rotate_key(
        "k1", b"new", "n", now=10, until=20, audit=record("api_key.rotated")
    )
    again = await store.rotate_key(
        "k1", b"new", "n", now=15, until=99, audit=record("api_key.rotated")
    )
    assert again == first
    assert await actions(store) == ["api_key.rotated"]
    late = await store.rotate_key("k1", b"old", "o", now=16, until=99)
    assert late == first


async def test_a_key_has_two_secrets_at_most(store: Store) -> None:
    await store.add_key(key("k1", digest=b"one"))
    await store.rotate_key("k1", b"two", "", now=10, until=100)
    rotated = await store.rotate_key("k1", b"three", "", now=11, until=100)
    assert rotated is not None
    good = [digest for digest in (b"one", b"two", b"three") if rotated.accepts(digest, 12)]
    assert good == [b"two", b"three"]


async def test_only_a_key_in_force_is_rotated(store: Store) -> None:
    await store.add_key(key("revoked"))
    await store.revoke_key("revoked", 2)
    await store.add_key(key("expired", expires_at=5))
    for name in ("revoked", "expired", "none", "\ud83d"):
        assert await store.rotate_key(name, b"new", "", now=10, until=20) is None


async def test_the_last_use_only_moves_forward_and_survives_a_change(store: Store) -> None:
    await store.add_key(key("k1"))
    await store.note_uses({"k1": 100, "none": 100})
    await store.note_uses({"k1": 50})
    await store.note_uses({})
    await store.update_key("k1", KeyChange(name="new"))
    found = await store.find_key("k1")
    assert found is not None
    assert (found.last_used_at, found.name) == (100, "new")


async def test_an_access_has_what_the_project_says(store: Store) -> None:
    await store.add_key(key("k1"))
    await store.add_key(key("k2", owner="lab", never_store=True))
    await store.add_key(key("k3", owner="attic"))
    await store.projects.update(OWNER, ProjectChange(never_store=True))
    await store.projects.archive("attic", 9)
    found = await store.find_accesses(["k1", "k2", "k3", "none", "\ud83d"])
    assert {name: (one.is_archived, one.never_store) for name, one in found.items()} == {
        "k1": (False, True),
        "k2": (False, True),
        "k3": (True, False),
    }
    assert found["k1"].key == key("k1")
    assert await store.find_accesses([]) == {}


async def test_a_change_and_its_audit_entry_are_stored_together(store: Store) -> None:
    await store.add_key(key("k1"), audit=record("api_key.created"))
    with pytest.raises(ValueError, match="already"):
        await store.add_key(key("k1", digest=b"other"), audit=record("api_key.created"))
    await store.update_key("k1", KeyChange(name="x"), audit=record("api_key.updated"))
    await store.update_key("none", KeyChange(name="x"), audit=record("api_key.updated"))
    assert await store.revoke_key("k1", 5, audit=record("api_key.deleted")) is True
    assert await store.revoke_key("k1", 6, audit=record("api_key.deleted")) is False
    assert await actions(store) == ["api_key.created", "api_key.updated", "api_key.deleted"]


async def test_projects_with_and_without_a_row_are_listed_by_age(store: Store) -> None:
    await store.add_key(key("k1", owner="young", created_at=30))
    await store.add_key(key("k2", owner="young", created_at=20))
    await store.projects.create(Project("middle", "Middle", 10, settings={"a": 1}))
    projects = await store.projects.page(limit=10)
    assert projects == [
        Project("local", "local", 0),
        Project("middle", "Middle", 10, settings={"a": 1}),
        Project("young", "young", 20),
    ]
    assert await store.projects.page(limit=1, after="local") == projects[1:2]
    assert await store.projects.page(limit=9, is_descending=True, after="young") == [
        projects[1],
        projects[0],
    ]
    for unknown in ("none", "\ud83d"):
        with pytest.raises(KeyError):
            await store.projects.page(limit=1, after=unknown)
        assert await store.projects.get(unknown) is None
    assert await store.projects.get("young") == projects[2]


async def test_a_project_id_is_taken_once_also_by_keys(store: Store) -> None:
    await store.add_key(key("k1", created_at=4))
    await store.projects.create(Project("lab", "Lab", 1))
    same = Project(OWNER, OWNER, 4)  # as the key implies it
    for taken in (same, Project("lab", "Other", 2), Project("local", "Other", 2)):
        with pytest.raises(ValueError, match="already"):
            await store.projects.create(taken)


async def test_a_project_that_only_keys_know_gets_a_row_when_it_changes(store: Store) -> None:
    await store.add_key(key("k1", created_at=4))
    changed = await store.projects.update(OWNER, ProjectChange(name="Alice's", settings={"x": []}))
    assert changed == Project(OWNER, "Alice's", 4, settings={"x": []})
    assert await store.projects.page(limit=9) == [Project("local", "local", 0), changed]
    assert await store.projects.update("none", ProjectChange(name="x")) is None


async def test_an_archived_project_is_listed_on_request_and_stays_as_it_is(store: Store) -> None:
    await store.projects.create(Project("lab", "Lab", 1))
    archived = await store.projects.archive("lab", 9, audit=record("project.archived", "lab"))
    assert archived == Project("lab", "Lab", 1, archived_at=9)
    again = await store.projects.archive("lab", 10, audit=record("project.archived", "lab"))
    assert again == archived
    assert [one.id for one in await store.projects.page(limit=9)] == ["local"]
    everyone = await store.projects.page(limit=9, with_archived=True)
    assert [one.id for one in everyone] == ["local", "lab"]
    assert await store.projects.archive("none", 9) is None
    with pytest.raises(ValueError, match="local"):
        await store.projects.archive("local", 9)
    assert await actions(store) == ["project.archived"]
