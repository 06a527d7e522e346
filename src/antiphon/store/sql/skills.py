"""Facet `skills` in SQLite and PostgreSQL."""

from __future__ import annotations

from typing import Final

import msgspec

from antiphon.store.base import Claim, ClaimRequest, Skill, SkillVersion
from antiphon.store.limits import MAX_NUMBER
from antiphon.store.sql.blobs import BLOB, drop_blobs, name_blobs, read_blob, remove_blobs
from antiphon.store.sql.claims import earlier_claim, note_claim
from antiphon.store.sql.pages import Listing, read_page
from antiphon.store.sql.steps import Lock, Row, Steps, Tables, ask

__all__ = ["SqlSkills"]

_COLUMNS: Final = (
    "skills.id, skills.created_at, skills.default_version,"
    " (SELECT max(version) FROM skill_versions AS one WHERE one.skill = skills.key),"
    " skill_versions.body"
)
_SOURCE: Final = (
    "skills JOIN skill_versions ON skill_versions.skill = skills.key"
    " AND skill_versions.version = skills.default_version"
)
_LISTING: Final = Listing("skills", _COLUMNS, _SOURCE, "skills.owner = $1", 1)
_FIND: Final = f"SELECT {_COLUMNS} FROM {_SOURCE} WHERE skills.owner = $1 AND skills.id = $2"  # noqa: S608 # constants
_KEY: Final = """
    SELECT key, default_version, last_version FROM skills WHERE owner = $1 AND id = $2
"""
_INSERT: Final = """
    INSERT INTO skills (owner, id, created_at, default_version, last_version)
    VALUES ($1, $2, $3, 1, 1) ON CONFLICT (owner, id) DO NOTHING RETURNING key
"""
_INSERT_VERSION: Final = """
    INSERT INTO skill_versions (skill, version, owner, id, created_at, blob, body)
    VALUES ($1, $2, $3, $4, $5, $6, $7)
"""
_SET_DEFAULT: Final = "UPDATE skills SET default_version = $1 WHERE key = $2"
_SET_LAST: Final = "UPDATE skills SET last_version = $1 WHERE key = $2"
_BY_BLOB: Final = "SELECT version FROM skill_versions WHERE skill = $1 AND blob = $2"
_HAS_VERSION: Final = "SELECT 1 FROM skill_versions WHERE skill = $1 AND version = $2"
_REMOVE: Final = "DELETE FROM skills WHERE key = $1 AND owner = $2"
_REMOVE_VERSIONS: Final = (
    "DELETE FROM skill_versions WHERE skill = $1 AND owner = $2 RETURNING blob"
)
_REMOVE_VERSION: Final = (
    "DELETE FROM skill_versions WHERE skill = $1 AND owner = $2 AND version = $3 RETURNING blob"
)

_VERSION: Final = (
    f"skill_versions.id, skill_versions.version, skill_versions.created_at,"
    f" skill_versions.body, {BLOB}"
)
_VERSIONS: Final = (
    "skills JOIN skill_versions ON skill_versions.skill = skills.key"
    " JOIN blobs ON blobs.id = skill_versions.blob"
)
_OF: Final = "skills.owner = $1 AND skills.id = $2"
_FIND_VERSION: Final = f"""
    SELECT {_VERSION} FROM {_VERSIONS} WHERE {_OF} AND skill_versions.version = $3
"""  # noqa: S608 # constants
_FIND_DEFAULT: Final = f"""
    SELECT {_VERSION} FROM {_VERSIONS} WHERE {_OF}
        AND skill_versions.version = skills.default_version
"""  # noqa: S608 # constants
_PAGES: Final = {
    is_descending: (
        f"SELECT {_VERSION} FROM {_VERSIONS} WHERE {_OF}"  # noqa: S608 # constants
        f" AND skill_versions.version {'<' if is_descending else '>'} $3"
        f" ORDER BY skill_versions.version {'DESC' if is_descending else 'ASC'} LIMIT $4"
    )
    for is_descending in (False, True)
}
_START: Final = {False: 0, True: MAX_NUMBER}


class SqlSkills:
    """See `Skills` for what the methods do."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    async def add(
        self, owner: str, skill: Skill, version: SkillVersion, once: ClaimRequest | None = None
    ) -> Claim | None:
        writer = await self._tables.sign() if once is not None else ""

        def run() -> Steps[Claim | None]:
            earlier = yield from _earlier(owner, once)
            if earlier is not None and earlier.response_id != skill.id:
                yield from drop_blobs(owner, [version.blob.id])
                return earlier
            yield from _insert(owner, skill, version)
            yield from note_claim(owner, once, skill.id, writer)
            return None

        return await self._tables.change(run)

    async def claimed(self, owner: str, once: ClaimRequest) -> Claim | None:
        if not await self._may_have(once.token):
            return None
        return await self._tables.change(lambda: _earlier(owner, once))

    async def find(self, owner: str, skill_id: str) -> Skill | None:
        if not await self._may_have(skill_id):
            return None
        rows = await self._tables.read(lambda: ask(_FIND, owner, skill_id))
        return _read(rows[0]) if rows else None

    async def page(
        self, owner: str, *, after: str | None = None, limit: int, is_descending: bool
    ) -> list[Skill]:
        rows = await read_page(self._tables, _LISTING, (owner,), after, limit, is_descending)
        return [_read(row) for row in rows]

    async def set_default(self, owner: str, skill_id: str, version: int) -> Skill | None:
        def run() -> Steps[Skill | None]:
            found = yield from _hold(owner, skill_id)
            if found is None or not (yield from ask(_HAS_VERSION, found[0], version)):
                return None
            yield from ask(_SET_DEFAULT, version, found[0])
            return _read((yield from ask(_FIND, owner, skill_id))[0])

        if not (_is_number(version) and await self._may_have(skill_id)):
            return None
        return await self._tables.change(run)

    async def remove(self, owner: str, skill_id: str) -> bool:
        def run() -> Steps[bool]:
            found = yield from _hold(owner, skill_id)
            if found is None:
                return False
            rows = yield from ask(_REMOVE_VERSIONS, found[0], owner)
            yield from ask(_REMOVE, found[0], owner)
            yield from remove_blobs(owner, [row[0] for row in rows])
            return True

        if not await self._may_have(skill_id):
            return False
        return await self._tables.remove(run)

    async def add_version(
        self, owner: str, skill_id: str, version: SkillVersion, *, is_default: bool
    ) -> SkillVersion | None:
        def run() -> Steps[SkillVersion | None]:
            found = yield from _hold(owner, skill_id)
            if found is None:
                yield from drop_blobs(owner, [version.blob.id])
                return None
            key, _, last = found
            known = yield from ask(_BY_BLOB, key, version.blob.id)
            number = known[0][0] if known else last + 1
            added = msgspec.structs.replace(version, version=number)
            if not known:
                yield from _insert_version(owner, key, added)
                yield from ask(_SET_LAST, number, key)
            if is_default:
                yield from ask(_SET_DEFAULT, number, key)
            return added

        if not self._tables.is_text(skill_id):
            return None
        return await self._tables.change(run)

    async def find_version(
        self, owner: str, skill_id: str, version: int | None
    ) -> SkillVersion | None:
        if not await self._may_have(skill_id) or not _is_number(version or 0):
            return None
        if version is None:
            rows = await self._tables.read(lambda: ask(_FIND_DEFAULT, owner, skill_id))
        else:
            rows = await self._tables.read(lambda: ask(_FIND_VERSION, owner, skill_id, version))
        return _read_version(rows[0]) if rows else None

    async def versions(
        self,
        owner: str,
        skill_id: str,
        *,
        after: int | None = None,
        limit: int,
        is_descending: bool,
    ) -> list[SkillVersion]:
        start = _START[is_descending] if after is None else after
        if not _is_number(start) or not await self._may_have(skill_id):
            return []
        rows = await self._tables.read(
            lambda: ask(_PAGES[is_descending], owner, skill_id, start, limit)
        )
        return [_read_version(row) for row in rows]

    async def remove_version(self, owner: str, skill_id: str, version: int) -> bool:
        def run() -> Steps[bool]:
            found = yield from _hold(owner, skill_id)
            if found is None or found[1] == version:
                return False
            rows = yield from ask(_REMOVE_VERSION, found[0], owner, version)
            yield from remove_blobs(owner, [row[0] for row in rows])
            return bool(rows)

        if not (_is_number(version) and await self._may_have(skill_id)):
            return False
        return await self._tables.remove(run)

    async def _may_have(self, name: str) -> bool:
        return self._tables.is_text(name) and not await self._tables.is_unused()


def _earlier(owner: str, once: ClaimRequest | None) -> Steps[Claim | None]:
    earlier = yield from earlier_claim(owner, once)
    if earlier is None or not (yield from ask(_KEY, owner, earlier.response_id)):
        return None
    return earlier


def _hold(owner: str, skill_id: str) -> Steps[Row | None]:
    """Return key, default and last version; no other transaction changes them until we end."""
    yield Lock(f"skill\n{owner}\n{skill_id}")
    rows = yield from ask(_KEY, owner, skill_id)
    return rows[0] if rows else None


def _insert(owner: str, skill: Skill, version: SkillVersion) -> Steps[None]:
    """Store a skill. Raise ValueError if there is another one with its id."""
    rows = yield from ask(_INSERT, owner, skill.id, skill.created_at)
    if rows:
        first = msgspec.structs.replace(version, version=1)
        yield from _insert_version(owner, rows[0][0], first)
        return
    found = yield from _hold(owner, skill.id)
    if found is None or not (yield from ask(_BY_BLOB, found[0], version.blob.id)):
        raise ValueError(f"there already is a skill {skill.id!r}")


def _insert_version(owner: str, skill: int, version: SkillVersion) -> Steps[None]:
    body = msgspec.json.encode({"name": version.name, "description": version.description})
    values = (version.version, owner, version.id, version.created_at, version.blob.id, body)
    yield from ask(_INSERT_VERSION, skill, *values)
    yield from name_blobs(owner, [version.blob.id])


def _is_number(version: int) -> bool:
    """Return whether the databases can compare it."""
    return abs(version) <= MAX_NUMBER


def _read(row: Row) -> Skill:
    skill_id, created_at, default, latest, body = row
    fields = msgspec.json.decode(body, type=dict[str, str])
    return Skill(
        id=skill_id,
        name=fields["name"],
        description=fields["description"],
        created_at=created_at,
        default_version=default,
        latest_version=latest,
    )


def _read_version(row: Row) -> SkillVersion:
    version_id, version, created_at, body = row[:4]
    fields = msgspec.json.decode(body, type=dict[str, str])
    return SkillVersion(
        id=version_id,
        version=version,
        name=fields["name"],
        description=fields["description"],
        created_at=created_at,
        blob=read_blob(row),
    )
