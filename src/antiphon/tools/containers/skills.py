"""Skills in containers: which ones a caller names, and their folders in the sandbox.

A caller names a stored skill with a version, or sends one inline. The version is fixed when the
container is made, so that a container does not change under a conversation. In the sandbox each
skill is a read-only folder; the model is shown its name, what it is for, and where it is.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from antiphon.protocol.errors import InvalidRequest, NotFound
from antiphon.store.base import Blob, SkillVersion, Store
from antiphon.tools.containers.archives import MAX_ARCHIVE, read_archive

__all__ = ["SKILLS", "SkillBook", "describe_skills", "no_skill"]

SKILLS: Final = "/mnt/skills"
"""Where the folders of skills are in the sandbox."""

_MAX_SKILLS: Final = 16
_MAX_INLINE: Final = 4 * 1024 * 1024
_PIECE: Final = 1024 * 1024


class SkillBook:
    """Finds and unpacks the skills of containers."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def resolve(self, owner: str, given: object, param: str) -> list[dict[str, Any]]:
        """Return the skills of a request, checked, with the numbers of their versions.

        Raise NotFound for one that does not exist, InvalidRequest for what cannot be a skill.
        """
        if given is None:
            return []
        if not isinstance(given, list) or len(given) > _MAX_SKILLS:
            raise _wrong(param, f"must be a list of at most {_MAX_SKILLS} skills")
        skills: list[dict[str, Any]] = []
        for index, one in enumerate(given):
            skills.append(await self._resolve_one(owner, one, f"{param}[{index}]"))
        names = [skill["name"] for skill in skills]
        if len(set(names)) < len(names):
            raise _wrong(param, "two skills have the same name")
        if sum(len(skill.get("data", "")) for skill in skills) > _MAX_INLINE:
            raise _wrong(param, f"inline skills are larger than {_MAX_INLINE} bytes together")
        return skills

    async def _resolve_one(self, owner: str, given: object, param: str) -> dict[str, Any]:
        kind = given.get("type") if isinstance(given, dict) else None
        if kind == "skill_reference" and isinstance(given, dict):
            return await self._reference(owner, given, param)
        if kind == "inline" and isinstance(given, dict):
            return await self._inline(given, param)
        raise _wrong(param, "its type must be skill_reference or inline")

    async def _reference(self, owner: str, given: Mapping[str, Any], param: str) -> dict[str, Any]:
        skill_id = given.get("skill_id")
        if not isinstance(skill_id, str) or not skill_id:
            raise _wrong(f"{param}.skill_id", "must be the id of a skill")
        found = await self.find_version(owner, skill_id, given.get("version"), f"{param}.version")
        return {
            "type": "skill_reference",
            "skill_id": skill_id,
            "version": found.version,
            "name": found.name,
            "description": found.description,
        }

    async def find_version(
        self, owner: str, skill_id: str, version: object, param: str
    ) -> SkillVersion:
        """Return a version: a number, `latest`, or None for the default one. Raise NotFound."""
        number: int | None = None
        if version == "latest":
            skill = await self._store.skills.find(owner, skill_id)
            number = skill.latest_version if skill is not None else None
        elif version is not None:
            text = str(version)
            if isinstance(version, bool) or not text.isdecimal() or len(text) > 9:
                raise _wrong(param, "must be a number or latest")
            number = int(text)
        found = await self._store.skills.find_version(owner, skill_id, number)
        if found is None:
            raise no_skill(skill_id, param)
        return found

    async def _inline(self, given: Mapping[str, Any], param: str) -> dict[str, Any]:
        source = given.get("source")
        data = source.get("data") if isinstance(source, dict) else None
        if not isinstance(data, str) or not isinstance(source, dict):
            raise _wrong(f"{param}.source", "must have the archive as data, in base64")
        if source.get("type", "base64") != "base64" or len(data) > _MAX_INLINE:
            raise _wrong(f"{param}.source", f"must be base64, at most {_MAX_INLINE} characters")
        try:
            packed = base64.b64decode(data, validate=True)
        except binascii.Error:
            raise _wrong(f"{param}.source.data", "is not base64") from None
        found = await asyncio.to_thread(read_archive, packed, f"{param}.source.data")
        about = given.get("description")
        return {
            "type": "inline",
            "name": found.name,
            "description": about if isinstance(about, str) and about else found.description,
            "data": data,
        }

    async def unpack(
        self, owner: str, settings: Mapping[str, Any], folder: Path
    ) -> dict[str, Path]:
        """Write the skills of a container into this folder.

        Return what the sandbox may read: from the path inside to the folder here. A skill that was
        deleted since the container was made is left out.
        """
        readable: dict[str, Path] = {}
        for skill in settings.get("skills") or ():
            data = await self._archive_of(owner, skill)
            if data is None:
                continue
            place = folder / str(skill["name"])
            found = await asyncio.to_thread(read_archive, data, str(skill["name"]))
            await asyncio.to_thread(found.unpack, place)
            readable[f"{SKILLS}/{skill['name']}"] = place
        return readable

    async def _archive_of(self, owner: str, skill: Mapping[str, Any]) -> bytes | None:
        if skill["type"] == "inline":
            return base64.b64decode(skill["data"])
        found = await self._store.skills.find_version(owner, skill["skill_id"], skill["version"])
        return None if found is None else await self.read(owner, found.blob)

    async def read(self, owner: str, blob: Blob) -> bytes:
        """Return the archive of a version."""
        pieces: list[bytes] = []
        while piece := await self._store.blobs.read(
            owner, blob.id, sum(map(len, pieces)), min(_PIECE, MAX_ARCHIVE)
        ):
            pieces.append(piece)
        return b"".join(pieces)


def describe_skills(skills: Sequence[Mapping[str, Any]]) -> str:
    """Return what the model is shown about skills; nothing without any."""
    if not skills:
        return ""
    lines = [f"- {one['name']}: {one['description']} ({SKILLS}/{one['name']})" for one in skills]
    return "\nSkills, each a folder with instructions in SKILL.md; read them first:\n" + "\n".join(
        lines
    )


def no_skill(skill_id: str, param: str | None = None) -> NotFound:
    """Return the error for a skill, or a version of it, that does not exist for this owner."""
    return NotFound(
        f"Skill with id '{skill_id}' not found, or it has no such version.",
        code="skill_not_found",
        param=param,
    )


def _wrong(param: str, why: str) -> InvalidRequest:
    return InvalidRequest(f"{param}: {why}", code="invalid_value", param=param)
