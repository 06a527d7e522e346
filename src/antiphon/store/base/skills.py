"""Facet `skills`: folders of instructions and programs for the hosted shell, in versions."""

from __future__ import annotations

from typing import Protocol

import msgspec

from antiphon.store.base.blobs import Blob
from antiphon.store.base.claims import Claim, ClaimRequest

__all__ = ["Skill", "SkillVersion", "Skills"]


class Skill(msgspec.Struct, frozen=True, kw_only=True):
    """A skill. Its name and description are those of its default version.

    `latest_version` is the greatest number that exists. No number is given twice.
    """

    id: str
    name: str
    description: str
    created_at: int
    default_version: int = 1
    latest_version: int = 1


class SkillVersion(msgspec.Struct, frozen=True, kw_only=True):
    """One version of a skill: a ZIP archive with a SKILL.md."""

    id: str
    version: int
    name: str
    description: str
    created_at: int
    blob: Blob


class Skills(Protocol):
    """The skills of all owners."""

    async def add(
        self, owner: str, skill: Skill, version: SkillVersion, once: ClaimRequest | None = None
    ) -> Claim | None:
        """Store a skill with its first version, number 1. `once` as in `Files.add`."""
        ...

    async def claimed(self, owner: str, once: ClaimRequest) -> Claim | None:
        """Return the claim that counts on this token, if what was made under it still exists."""
        ...

    async def find(self, owner: str, skill_id: str) -> Skill | None:
        """Return the skill."""
        ...

    async def page(
        self, owner: str, *, after: str | None = None, limit: int, is_descending: bool
    ) -> list[Skill]:
        """Return skills by time of creation. Raise KeyError if there is none `after`."""
        ...

    async def set_default(self, owner: str, skill_id: str, version: int) -> Skill | None:
        """Choose the default version; None if there is no such skill or version."""
        ...

    async def remove(self, owner: str, skill_id: str) -> bool:
        """Remove a skill with all versions; return whether there was one."""
        ...

    async def add_version(
        self, owner: str, skill_id: str, version: SkillVersion, *, is_default: bool
    ) -> SkillVersion | None:
        """Store a version; its number is the next one, whatever `version.version` is.

        None if there is no such skill: the blob is removed.
        """
        ...

    async def find_version(
        self, owner: str, skill_id: str, version: int | None
    ) -> SkillVersion | None:
        """Return a version, the default one for None."""
        ...

    async def versions(
        self,
        owner: str,
        skill_id: str,
        *,
        after: int | None = None,
        limit: int,
        is_descending: bool,
    ) -> list[SkillVersion]:
        """Return the versions by number."""
        ...

    async def remove_version(self, owner: str, skill_id: str, version: int) -> bool:
        """Remove a version that is not the default one; return whether it was removed."""
        ...
