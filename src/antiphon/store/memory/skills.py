"""Facet `skills` in memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from antiphon.store.base import Claim, ClaimRequest, Skill, SkillVersion
from antiphon.store.memory.blobs import MemoryBlobs
from antiphon.store.memory.claims import MemoryClaims
from antiphon.store.memory.rows import Rows, page_of

__all__ = ["MemorySkills"]


@dataclass(slots=True)
class _Kept:
    id: str
    created_at: int
    default: int = 1
    last: int = 1
    """The greatest number that was ever given."""
    versions: dict[int, SkillVersion] = field(default_factory=dict)

    def show(self) -> Skill:
        default = self.versions[self.default]
        return Skill(
            id=self.id,
            name=default.name,
            description=default.description,
            created_at=self.created_at,
            default_version=self.default,
            latest_version=max(self.versions),
        )


class MemorySkills:
    """See `Skills` for what the methods do."""

    def __init__(
        self, check_open: Callable[[], None], blobs: MemoryBlobs, claims: MemoryClaims
    ) -> None:
        self._check_open = check_open
        self._blobs = blobs
        self._claims = claims
        self._skills: Rows[_Kept] = Rows()

    async def add(
        self, owner: str, skill: Skill, version: SkillVersion, once: ClaimRequest | None = None
    ) -> Claim | None:
        earlier = await self.claimed(owner, once) if once is not None else None
        if earlier is not None:
            self._blobs.drop(owner, version.blob.id)
            return earlier
        if self._skills.get(owner, skill.id) is not None:
            raise ValueError(f"there already is a skill {skill.id!r}")
        self._blobs.name(owner, version.blob.id)
        first = {1: msgspec.structs.replace(version, version=1)}
        self._skills.put(owner, _Kept(skill.id, skill.created_at, versions=first))
        self._claims.note_once(owner, once, skill.id)
        return None

    async def claimed(self, owner: str, once: ClaimRequest) -> Claim | None:
        self._check_open()
        earlier = self._claims.earlier(owner, once)
        if earlier is None or self._skills.get(owner, earlier.response_id) is None:
            return None
        return earlier

    async def find(self, owner: str, skill_id: str) -> Skill | None:
        kept = self._find(owner, skill_id)
        return None if kept is None else kept.show()

    async def page(
        self, owner: str, *, after: str | None = None, limit: int, is_descending: bool
    ) -> list[Skill]:
        self._check_open()
        found = page_of(self._skills.of(owner), after, limit, is_descending)
        return [kept.show() for kept in found]

    async def set_default(self, owner: str, skill_id: str, version: int) -> Skill | None:
        kept = self._find(owner, skill_id)
        if kept is None or version not in kept.versions:
            return None
        kept.default = version
        return kept.show()

    async def remove(self, owner: str, skill_id: str) -> bool:
        self._check_open()
        kept = self._skills.pop(owner, skill_id)
        if kept is None:
            return False
        self._blobs.remove(owner, *(version.blob.id for version in kept.versions.values()))
        return True

    async def add_version(
        self, owner: str, skill_id: str, version: SkillVersion, *, is_default: bool
    ) -> SkillVersion | None:
        kept = self._find(owner, skill_id)
        if kept is None:
            self._blobs.drop(owner, version.blob.id)
            return None
        self._blobs.name(owner, version.blob.id)
        kept.last += 1
        added = msgspec.structs.replace(version, version=kept.last)
        kept.versions[kept.last] = added
        if is_default:
            kept.default = kept.last
        return added

    async def find_version(
        self, owner: str, skill_id: str, version: int | None
    ) -> SkillVersion | None:
        kept = self._find(owner, skill_id)
        if kept is None:
            return None
        return kept.versions.get(kept.default if version is None else version)

    async def versions(
        self,
        owner: str,
        skill_id: str,
        *,
        after: int | None = None,
        limit: int,
        is_descending: bool,
    ) -> list[SkillVersion]:
        kept = self._find(owner, skill_id)
        if kept is None:
            return []
        ordered = sorted(kept.versions, reverse=is_descending)
        found = [one for one in ordered if after is None or (one < after) == is_descending]
        return [kept.versions[one] for one in found if one != after][:limit]

    async def remove_version(self, owner: str, skill_id: str, version: int) -> bool:
        kept = self._find(owner, skill_id)
        if kept is None or version == kept.default or version not in kept.versions:
            return False
        self._blobs.remove(owner, kept.versions.pop(version).blob.id)
        return True

    def count_of(self, owner: str) -> dict[str, int]:
        """Return how many rows an owner has, by table."""
        mine = self._skills.of(owner)
        return {"skills": len(mine), "skill_versions": sum(len(kept.versions) for kept in mine)}

    def forget_owner(self, owner: str) -> None:
        """Remove all rows of an owner."""
        self._skills.forget_owner(owner)

    def clear(self) -> None:
        """Remove everything."""
        self._skills.clear()

    def _find(self, owner: str, skill_id: str) -> _Kept | None:
        self._check_open()
        return self._skills.get(owner, skill_id)
