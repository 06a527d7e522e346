"""Files, uploads, containers and skills do what lists would do, in any order of calls.

Each question goes to the memory store, to one that is kept and to a model; the three agree. Blobs
are compared by their contents. Between two calls the kept store may be closed and opened again.
"""

from __future__ import annotations

import asyncio
import hashlib
import tempfile
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from antiphon.store import MemoryStore, SqliteStore
from antiphon.store.base import (
    Blob,
    BlobGone,
    Container,
    ContainerFile,
    Skill,
    SkillVersion,
    Store,
    StoredFile,
    Upload,
)
from antiphon.store.base.files import ENDED_SECONDS
from antiphon.store.postgres import PostgresStore
from tests.postgres import fresh_database
from tests.store.file_samples import container, container_file, file, part, skill, skill_version
from tests.store.file_samples import upload as new_upload

_T = TypeVar("_T")
Key = tuple[str, str]

START = 1_000
OWNERS = st.sampled_from(["alice", "bob"])
NAMES = st.sampled_from(["a", "b", "c"])
PATHS = st.sampled_from(["/mnt/data/x", "/mnt/data/y"])
DATA = st.binary(max_size=6)
TIMES = st.integers(START, START + 1)
STEPS = st.sampled_from([0, 1, 50, ENDED_SECONDS])


def plain(value: Any) -> Any:  # Any: what a facet returns
    """Return a result without the ids of blobs, which each store makes by itself."""
    if isinstance(value, list):
        return [plain(one) for one in value]
    if isinstance(value, dict):
        return {name: plain(one) for name, one in value.items()}
    if isinstance(getattr(value, "blob", None), Blob):
        return msgspec.structs.replace(value, blob=_plain_blob(value.blob))
    return value


def _plain_blob(blob: Blob) -> Blob:
    return Blob("", blob.size, blob.sha256)


def blob_of(data: bytes) -> Blob:
    return Blob("", len(data), hashlib.sha256(data).digest())


class FilesMachine(RuleBasedStateMachine):
    """Calls, and what they do to a model that is made of dicts in the order of insertion."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.directory = tempfile.TemporaryDirectory()
        self.memory: Store = MemoryStore()
        self.kept = self._open()
        self.now = START
        self.files: dict[Key, StoredFile] = {}
        self.uploads: dict[Key, Upload] = {}
        self.parts: dict[Key, list[bytes]] = {}
        self.containers: dict[Key, Container] = {}
        self.inside: dict[Key, dict[str, ContainerFile]] = {}
        self.skills: dict[Key, tuple[int, int, int]] = {}
        """The time of creation, the default version and the last number that was given."""
        self.versions: dict[Key, dict[int, SkillVersion]] = {}

    def _open(self) -> Store:
        return SqliteStore(Path(self.directory.name) / "a.db")

    def run(self, doing: Awaitable[_T]) -> _T:
        return self.loop.run_until_complete(doing)

    def teardown(self) -> None:
        self.run(self.kept.close())
        self.run(self.memory.close())
        self.loop.close()
        self.directory.cleanup()

    def both(self, ask: Callable[[Store], Awaitable[Any]]) -> Any:  # Any: what a facet returns
        """Return what both stores answer, or the class of what they raise."""

        async def answer(store: Store) -> Any:
            try:
                return plain(await ask(store))
            except (ValueError, KeyError, BlobGone) as error:
                return type(error)

        first, second = self.run(answer(self.memory)), self.run(answer(self.kept))
        assert first == second
        return first

    async def write(self, store: Store, owner: str, data: bytes) -> Blob:
        writer = await store.blobs.create(owner)
        await writer.write(data)
        return await writer.finish()

    def is_there(self, key: Key) -> bool:
        found = self.files.get(key)
        return found is not None and not _is_over(found, self.now)

    # Files

    @rule(owner=OWNERS, name=NAMES, data=DATA, at=TIMES, life=st.none() | st.integers(0, 60))
    def add(self, owner: str, name: str, data: bytes, at: int, life: int | None) -> None:
        end = None if life is None else self.now + life
        purpose = "vision" if len(data) % 2 else "user_data"

        async def ask(store: Store) -> Any:
            made = file(name, await self.write(store, owner, data), created_at=at)
            made = msgspec.structs.replace(made, expires_at=end, purpose=purpose)
            return await store.files.add(owner, made)

        is_taken = (owner, name) in self.files
        assert self.both(ask) is (ValueError if is_taken else None)
        if not is_taken:
            made = file(name, blob_of(data), created_at=at, expires_at=end, purpose=purpose)
            self.files[owner, name] = made

    @rule(owner=OWNERS, name=NAMES)
    def remove(self, owner: str, name: str) -> None:
        was_there = self.files.pop((owner, name), None) is not None
        assert self.both(lambda store: store.files.remove(owner, name)) is was_there

    @rule(owner=OWNERS, names=st.lists(NAMES))
    def find(self, owner: str, names: list[str]) -> None:
        found = self.both(lambda store: store.files.find(owner, names, self.now))
        wanted = dict.fromkeys(names)
        assert found == {
            name: self.files[owner, name] for name in wanted if self.is_there((owner, name))
        }

    @rule(
        owner=OWNERS,
        after=st.none() | NAMES,
        limit=st.integers(1, 4),
        is_descending=st.booleans(),
        purpose=st.sampled_from([None, "vision"]),
    )
    def page(
        self, owner: str, after: str | None, limit: int, is_descending: bool, purpose: str | None
    ) -> None:
        found = self.both(
            lambda store: store.files.page(
                owner,
                after=after,
                limit=limit,
                is_descending=is_descending,
                purpose=purpose,
                now=self.now,
            )
        )
        files = [one for (own, name), one in self.files.items() if own == owner]
        files = [one for one in files if not _is_over(one, self.now)]
        expected = _page(files, after, is_descending)
        if isinstance(expected, list):
            fits = [one for one in expected if purpose in (None, one.purpose)]
            assert found == fits[:limit]
        else:
            assert found is expected

    @rule(seconds=STEPS)
    def wait(self, seconds: int) -> None:
        self.now += seconds

    @rule()
    def sweep(self) -> None:
        self.both(lambda store: _sweep(store, self.now))
        self.files = {key: one for key, one in self.files.items() if not _is_over(one, self.now)}
        for key, one in list(self.uploads.items()):
            if one.status == "pending" and one.expires_at <= self.now:
                self._end(key, "expired")
            if one.expires_at + ENDED_SECONDS <= self.now:
                del self.uploads[key]
        for key, box in list(self.containers.items()):
            if box.is_expired(self.now):
                self.inside[key] = {}
            if box.is_expired(self.now - ENDED_SECONDS):
                del self.containers[key]

    @precondition(lambda self: self.files or self.containers or self.skills)
    @rule()
    def reopen(self) -> None:
        self.run(self.kept.close())
        self.kept = self._open()

    # Uploads

    @rule(owner=OWNERS, name=NAMES)
    def begin_upload(self, owner: str, name: str) -> None:
        made = new_upload(name, created_at=self.now, expires_at=self.now + 60)
        known = self.uploads.get((owner, name))
        if known is not None and known.created_at == self.now:
            return  # the same upload once more is no error in a database
        found = self.both(lambda store: store.files.begin_upload(owner, made))
        assert found is (None if known is None else ValueError)
        if known is None:
            self.uploads[owner, name] = made
            self.parts[owner, name] = []

    @rule(owner=OWNERS, name=NAMES, data=DATA)
    def add_part(self, owner: str, name: str, data: bytes) -> None:
        parts = self.parts.get((owner, name), [])

        async def ask(store: Store) -> bool:
            blob = await self.write(store, owner, data)
            return await store.files.add_part(owner, name, part(f"p{len(parts)}", blob), self.now)

        is_pending = self._status((owner, name)) == "pending"
        assert self.both(ask) is is_pending
        if is_pending:
            parts.append(data)

    @rule(owner=OWNERS, name=NAMES)
    def look_at_upload(self, owner: str, name: str) -> None:
        found = self.both(lambda store: store.files.find_upload(owner, name, self.now))
        known = self.uploads.get((owner, name))
        if known is None:
            assert found is None
            return
        status = self._status((owner, name))
        assert found == msgspec.structs.replace(known, status=status)
        if status == "pending":
            parts = self.both(lambda store: store.files.parts(owner, name))
            assert [one.blob for one in parts] == [
                blob_of(data) for data in self.parts[owner, name]
            ]

    @rule(owner=OWNERS, name=NAMES, file_id=NAMES)
    def complete(self, owner: str, name: str, file_id: str) -> None:
        data = b"".join(self.parts.get((owner, name), []))

        async def ask(store: Store) -> Any:
            made = file(file_id, await self.write(store, owner, data), created_at=START)
            return await store.files.complete_upload(owner, name, made, self.now)

        key = (owner, name)
        known = self.uploads.get(key)
        if known is not None and known.file_id == file_id:
            return  # the same end once more is no error in a database
        is_pending, is_taken = self._status(key) == "pending", (owner, file_id) in self.files
        found = self.both(ask)
        if not is_pending:
            assert found is None
        elif is_taken:
            assert found is ValueError
        else:
            self.files[owner, file_id] = file(file_id, blob_of(data), created_at=START)
            self._end(key, "completed", file_id)
            assert found == self.uploads[key]

    @rule(owner=OWNERS, name=NAMES)
    def cancel(self, owner: str, name: str) -> None:
        is_pending = self._status((owner, name)) == "pending"
        found = self.both(lambda store: store.files.cancel_upload(owner, name, self.now))
        if is_pending:
            self._end((owner, name), "cancelled")
        assert found == (self.uploads[owner, name] if is_pending else None)

    def _status(self, key: Key) -> str | None:
        known = self.uploads.get(key)
        if known is None:
            return None
        is_late = known.status == "pending" and known.expires_at <= self.now
        return "expired" if is_late else known.status

    def _end(self, key: Key, status: str, target: str | None = None) -> None:
        self.uploads[key] = msgspec.structs.replace(
            self.uploads[key], status=status, file_id=target
        )
        self.parts[key] = []

    # Containers

    @rule(owner=OWNERS, name=NAMES, at=TIMES, first=st.dictionaries(PATHS, DATA))
    def add_container(self, owner: str, name: str, at: int, first: dict[str, bytes]) -> None:
        made = container(name, created_at=at, last_active_at=self.now, name=f"at {self.now}")
        if made == self.containers.get((owner, name)):
            return  # the same container once more is no error in a database

        async def ask(store: Store) -> Any:
            files = [
                container_file(
                    f"{place}-{len(self.inside)}", path, await self.write(store, owner, data)
                )
                for place, (path, data) in enumerate(first.items())
            ]
            return await store.containers.add(owner, made, files)

        is_taken = (owner, name) in self.containers
        assert self.both(ask) is (ValueError if is_taken else None)
        if not is_taken:
            self.inside[owner, name] = {
                path: container_file(f"{place}-{len(self.inside)}", path, blob_of(data))
                for place, (path, data) in enumerate(first.items())
            }
            self.containers[owner, name] = made

    @rule(owner=OWNERS, name=NAMES, path=PATHS, data=DATA, at=TIMES)
    def put_file(self, owner: str, name: str, path: str, data: bytes, at: int) -> None:
        files = self.inside.get((owner, name), {})
        replaced = files.get(path)
        file_id = f"new-{self.now}-{path[-1]}"

        async def ask(store: Store) -> Any:
            blob = await self.write(store, owner, data)
            made = container_file(file_id, path, blob, created_at=at)
            return await store.containers.put_file(owner, name, made)

        found = self.both(ask)
        if (owner, name) not in self.containers:
            assert found is None
            return
        wanted = file_id if replaced is None else replaced.id
        files[path] = container_file(wanted, path, blob_of(data), created_at=at)
        assert found == files[path]

    @rule(owner=OWNERS, name=NAMES, is_start=st.booleans())
    def use(self, owner: str, name: str, is_start: bool) -> None:
        def ask(store: Store) -> Awaitable[Container | None]:
            if is_start:
                return store.containers.start(owner, name, "me", self.now)
            return store.containers.use(owner, name, self.now)

        found = self.both(ask)
        known = self.containers.get((owner, name))
        if known is None or known.is_expired(self.now):
            assert found is None
            return
        changed = msgspec.structs.replace(known, last_active_at=self.now)
        if is_start:
            changed = msgspec.structs.replace(changed, holder="me", generation=known.generation + 1)
        self.containers[owner, name] = changed
        assert found == changed

    @rule(owner=OWNERS, name=NAMES)
    def remove_container(self, owner: str, name: str) -> None:
        was_there = self.containers.pop((owner, name), None) is not None
        self.inside.pop((owner, name), None)
        assert self.both(lambda store: store.containers.remove(owner, name)) is was_there

    @rule(owner=OWNERS, name=NAMES, path=PATHS)
    def remove_file(self, owner: str, name: str, path: str) -> None:
        files = self.inside.get((owner, name), {})
        known = files.pop(path, None)
        file_id = "nothing" if known is None else known.id
        found = self.both(lambda store: store.containers.remove_file(owner, name, file_id))
        assert found is (known is not None)

    @rule(owner=OWNERS, after=st.none() | NAMES, is_descending=st.booleans())
    def list_containers(self, owner: str, after: str | None, is_descending: bool) -> None:
        found = self.both(
            lambda store: store.containers.page(
                owner, after=after, limit=9, is_descending=is_descending
            )
        )
        known = [one for (own, _), one in self.containers.items() if own == owner]
        assert found == _page(known, after, is_descending)

    @rule(owner=OWNERS, name=NAMES, is_descending=st.booleans())
    def list_files(self, owner: str, name: str, is_descending: bool) -> None:
        found = self.both(
            lambda store: store.containers.files(owner, name, limit=9, is_descending=is_descending)
        )
        files = self.inside.get((owner, name), {}).values()
        if not isinstance(found, list):
            raise AssertionError(found)
        # A file that was replaced keeps its place among those of the same time.
        assert sorted(found, key=lambda one: one.path) == sorted(files, key=lambda one: one.path)
        times = [one.created_at for one in found]
        assert times == sorted(times, reverse=is_descending)

    # Skills

    @rule(owner=OWNERS, name=NAMES, data=DATA, at=TIMES)
    def add_skill(self, owner: str, name: str, data: bytes, at: int) -> None:
        async def ask(store: Store) -> Any:
            version = skill_version("v1", await self.write(store, owner, data))
            return await store.skills.add(owner, skill(name, created_at=at), version)

        is_taken = (owner, name) in self.skills
        assert self.both(ask) is (ValueError if is_taken else None)
        if not is_taken:
            self.skills[owner, name] = (at, 1, 1)
            self.versions[owner, name] = {1: skill_version("v1", blob_of(data))}

    @rule(owner=OWNERS, name=NAMES, data=DATA, is_default=st.booleans())
    def add_version(self, owner: str, name: str, data: bytes, is_default: bool) -> None:
        words = {"name": f"n{len(data)}", "description": "more"}

        async def ask(store: Store) -> Any:
            version = skill_version("v", await self.write(store, owner, data), **words)
            return await store.skills.add_version(owner, name, version, is_default=is_default)

        found = self.both(ask)
        if (owner, name) not in self.skills:
            assert found is None
            return
        at, default, last = self.skills[owner, name]
        made = skill_version("v", blob_of(data), version=last + 1, **words)
        self.skills[owner, name] = (at, last + 1 if is_default else default, last + 1)
        self.versions[owner, name][last + 1] = made
        assert found == made

    @rule(owner=OWNERS, name=NAMES, version=st.integers(0, 4))
    def set_default(self, owner: str, name: str, version: int) -> None:
        found = self.both(lambda store: store.skills.set_default(owner, name, version))
        if version not in self.versions.get((owner, name), {}):
            assert found is None
            return
        at, _, last = self.skills[owner, name]
        self.skills[owner, name] = (at, version, last)
        assert found == self._skill((owner, name))

    @rule(owner=OWNERS, name=NAMES, version=st.integers(0, 4))
    def remove_version(self, owner: str, name: str, version: int) -> None:
        known = self.versions.get((owner, name), {})
        is_removed = version in known and self.skills[owner, name][1] != version
        found = self.both(lambda store: store.skills.remove_version(owner, name, version))
        assert found is is_removed
        if is_removed:
            del known[version]

    @rule(owner=OWNERS, name=NAMES)
    def remove_skill(self, owner: str, name: str) -> None:
        was_there = self.skills.pop((owner, name), None) is not None
        self.versions.pop((owner, name), None)
        assert self.both(lambda store: store.skills.remove(owner, name)) is was_there

    @rule(owner=OWNERS, name=NAMES, after=st.none() | st.integers(0, 4), is_down=st.booleans())
    def look_at_skill(self, owner: str, name: str, after: int | None, is_down: bool) -> None:
        key = (owner, name)
        found = self.both(lambda store: store.skills.find(owner, name))
        assert found == (self._skill(key) if key in self.skills else None)
        page = self.both(
            lambda store: store.skills.versions(
                owner, name, after=after, limit=9, is_descending=is_down
            )
        )
        known = self.versions.get(key, {})
        numbers = sorted(known, reverse=is_down)
        if after is not None:
            numbers = [one for one in numbers if (one < after if is_down else one > after)]
        assert page == [known[one] for one in numbers]

    @rule(owner=OWNERS, after=st.none() | NAMES, is_descending=st.booleans())
    def list_skills(self, owner: str, after: str | None, is_descending: bool) -> None:
        found = self.both(
            lambda store: store.skills.page(
                owner, after=after, limit=9, is_descending=is_descending
            )
        )
        known = [self._skill(key) for key in self.skills if key[0] == owner]
        assert found == _page(known, after, is_descending)

    def _skill(self, key: Key) -> Skill:
        at, default, _ = self.skills[key]
        shown = self.versions[key][default]
        return skill(
            key[1],
            created_at=at,
            name=shown.name,
            description=shown.description,
            default_version=default,
            latest_version=max(self.versions[key]),
        )

    @invariant()
    def owners_use_what_their_rows_have(self) -> None:
        for owner in ("alice", "bob"):
            sizes = [one.size for key, one in self.files.items() if key[0] == owner]
            sizes += [
                len(data) for key, some in self.parts.items() if key[0] == owner for data in some
            ]
            for rows in (self.inside, self.versions):
                for key, some in rows.items():
                    if key[0] == owner:
                        sizes += [one.blob.size for one in some.values()]
            assert self.both(partial(_used_bytes, owner)) == sum(sizes)


def _page(known: Iterable[_T], after: str | None, is_descending: bool) -> list[_T] | type[KeyError]:
    """Return what comes after a row, in the order of a page; KeyError if there is no such row."""
    rows: list[Any] = sorted(known, key=lambda row: row.created_at)
    if is_descending:
        rows.reverse()
    if after is None:
        return rows
    places = [place for place, row in enumerate(rows) if row.id == after]
    return rows[places[0] + 1 :] if places else KeyError


def _is_over(one: StoredFile, now: int) -> bool:
    return one.expires_at is not None and one.expires_at <= now


async def _sweep(store: Store, now: int) -> None:
    # How many blobs are left over depends on the store.
    await store.files.sweep(now, 1_000)


async def _used_bytes(owner: str, store: Store) -> int:
    return await store.files.used_bytes(owner)


class PostgresFilesMachine(FilesMachine):
    """The same with a database."""

    def __init__(self) -> None:
        self.database = fresh_database()
        self.url = ""
        super().__init__()

    def _open(self) -> Store:
        self.url = self.url or self.run(self.database.__aenter__())
        return PostgresStore(self.url)

    def teardown(self) -> None:
        self.run(self.kept.close())
        self.run(self.database.__aexit__(None, None, None))
        super().teardown()


TestFiles = FilesMachine.TestCase
TestFiles.settings = settings(
    max_examples=25,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
TestPostgresFiles = PostgresFilesMachine.TestCase
TestPostgresFiles.settings = settings(TestFiles.settings, max_examples=8)
