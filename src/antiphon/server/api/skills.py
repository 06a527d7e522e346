"""/v1/skills: folders of instructions and programs for the hosted shell, in versions.

A skill is sent as one ZIP archive, or as its files one by one. It is checked before it is stored
(`tools.containers.archives`). Its name and description are those of its SKILL.md.
"""

from __future__ import annotations

import asyncio
import hashlib
from contextlib import aclosing
from typing import Final, NamedTuple

from aiohttp import web

from antiphon.protocol.containers import (
    DeletedSkillVersion,
    SkillObject,
    SkillVersionObject,
    UpdateSkill,
)
from antiphon.protocol.errors import BodyTooLarge, InvalidRequest, invalid
from antiphon.protocol.files import DeletedObject
from antiphon.server.api.files import send_blob
from antiphon.server.api.forms import form_events
from antiphon.server.api.objects import (
    answer_object,
    answer_page,
    read_object,
    replayed,
    same_request,
    wrong_cursor,
)
from antiphon.server.api.pages import read_page_query
from antiphon.server.api.request_keys import KEY_SECONDS, read_key
from antiphon.server.app import Call, Route
from antiphon.server.multipart import PartBegins, PartEnds
from antiphon.store.base import Blob, ClaimRequest, Skill, SkillVersion
from antiphon.tools.containers.archives import MAX_ARCHIVE, SkillArchive, pack, read_archive
from antiphon.tools.containers.skills import no_skill

__all__ = ["ROUTES"]

_FILES: Final = "files"
_ZIP: Final = b"PK"
_PAGE: Final = 100


class _Sent(NamedTuple):
    """A skill that was sent: the archive, what is in it, and whether it is to be the default."""

    data: bytes
    archive: SkillArchive
    is_default: bool


async def create(call: Call) -> web.StreamResponse:
    """Store a skill with its first version."""
    sent = await _receive(call)
    engine = call.app.engine
    now, key = engine.now(), read_key(call.request.headers)
    once = None
    if key is not None:
        digest = hashlib.sha256(b"POST /v1/skills\n" + sent.data).digest()
        once = ClaimRequest(f"skills:{key}", digest, now, now - KEY_SECONDS)
    name, about, _ = sent.archive
    skill = Skill(id=engine.mint("skill"), name=name, description=about, created_at=now)
    version = await _version(call, sent, engine.mint("skillver"))
    earlier = await engine.store.skills.add(call.owner, skill, version, once)
    if earlier is None:
        return answer_object(call, _as_skill(skill))
    made = await _find(call, same_request(once, earlier))
    return replayed(answer_object(call, _as_skill(made)))


async def list_skills(call: Call) -> web.StreamResponse:
    """Return a page of skills."""
    query = read_page_query(call)
    try:
        found = await call.app.engine.store.skills.page(
            call.owner,
            after=query.after,
            limit=query.limit + 1,
            is_descending=query.is_descending,
        )
    except KeyError:
        raise wrong_cursor("after", query.after) from None
    return answer_page(call, [_as_skill(skill) for skill in found], query.limit)


async def retrieve(call: Call) -> web.StreamResponse:
    """Return a skill."""
    return answer_object(call, _as_skill(await _find(call, call.path_id)))


async def update(call: Call) -> web.StreamResponse:
    """Choose the default version of a skill."""
    await _find(call, call.path_id)
    body = await read_object(call, UpdateSkill)
    number = _number(body.default_version, "default_version")
    skill = await call.app.engine.store.skills.set_default(call.owner, call.path_id, number)
    if skill is None:
        raise no_skill(call.path_id, "default_version")
    return answer_object(call, _as_skill(skill))


async def delete(call: Call) -> web.StreamResponse:
    """Remove a skill with all its versions for good."""
    if not await call.app.engine.store.skills.remove(call.owner, call.path_id):
        raise no_skill(call.path_id)
    return answer_object(call, DeletedObject(id=call.path_id, object="skill.deleted"))


async def content(call: Call) -> web.StreamResponse:
    """Send the archive of the default version."""
    return await _send(call, await _find_version(call, None))


async def add_version(call: Call) -> web.StreamResponse:
    """Store a further version of a skill."""
    await _find(call, call.path_id)
    sent = await _receive(call)
    new_id = call.app.engine.mint("skillver")
    earlier = await _claim_version(call, sent, new_id)
    if earlier is not None:
        return replayed(answer_object(call, _as_version(call.path_id, earlier)))
    version = await _version(call, sent, new_id)
    made = await call.app.engine.store.skills.add_version(
        call.owner, call.path_id, version, is_default=sent.is_default
    )
    if made is None:
        raise no_skill(call.path_id)
    return answer_object(call, _as_version(call.path_id, made))


async def _claim_version(call: Call, sent: _Sent, new_id: str) -> SkillVersion | None:
    """Claim the key of the request, if it has one; return the version that it made before.

    A request that was cut off between its claim and its version is made again.
    """
    key, engine = read_key(call.request.headers), call.app.engine
    if key is None:
        return None
    now, token = engine.now(), f"skill_versions:{key}"
    path = f"POST /v1/skills/{call.path_id}/versions\n".encode()
    digest = hashlib.sha256(path + sent.data).digest()
    claim = await engine.store.claims.take(call.owner, token, digest, new_id, now)
    if claim is None:
        return None
    if claim.created_at >= now - KEY_SECONDS:
        once = ClaimRequest(token, digest, now, now - KEY_SECONDS)
        number = await _find_number(call, same_request(once, claim))
        if number is not None:
            return await _find_version(call, number)
    await engine.store.claims.note(call.owner, token, digest, new_id, now)
    return None


async def list_versions(call: Call) -> web.StreamResponse:
    """Return a page of the versions of a skill, by number."""
    query = read_page_query(call)
    await _find(call, call.path_id)
    after = None if query.after is None else await _number_of(call, query.after)
    found = await call.app.engine.store.skills.versions(
        call.owner,
        call.path_id,
        after=after,
        limit=query.limit + 1,
        is_descending=query.is_descending,
    )
    return answer_page(call, [_as_version(call.path_id, one) for one in found], query.limit)


async def retrieve_version(call: Call) -> web.StreamResponse:
    """Return a version of a skill."""
    return answer_object(call, _as_version(call.path_id, await _version_of_path(call)))


async def delete_version(call: Call) -> web.StreamResponse:
    """Remove a version for good, unless it is the default one."""
    version = await _version_of_path(call)
    skills = call.app.engine.store.skills
    if not await skills.remove_version(call.owner, call.path_id, version.version):
        raise InvalidRequest(
            "this is the default version; choose another one first, or delete the skill",
            code="default_version",
        )
    number = str(version.version)
    gone = DeletedSkillVersion(id=version.id, object="skill.version.deleted", version=number)
    return answer_object(call, gone)


async def version_content(call: Call) -> web.StreamResponse:
    """Send the archive of a version."""
    return await _send(call, await _version_of_path(call))


# What is sent.


async def _receive(call: Call) -> _Sent:
    """Return the skill of a form, checked."""
    files, fields = await _read_form(call)
    if not files:
        raise invalid(_FILES, "is missing", "missing_required_parameter")
    ((_, first), *others) = files
    is_archive = not others and first.startswith(_ZIP)
    data = first if is_archive else await asyncio.to_thread(pack, files)
    archive = await asyncio.to_thread(read_archive, data, _FILES)
    return _Sent(data, archive, fields.get("default", "").lower() in ("1", "true"))


async def _read_form(call: Call) -> tuple[list[tuple[str, bytes]], dict[str, str]]:
    """Return the files and fields of a form, which are small enough to be in memory."""
    call.reserve(3 * MAX_ARCHIVE)
    files: list[tuple[str, bytes]] = []
    fields: dict[str, str] = {}
    part, content, total = PartBegins(""), bytearray(), 0
    async with aclosing(form_events(call, MAX_ARCHIVE)) as events:
        async for event in events:
            match event:
                case PartBegins():
                    part, content = event, bytearray()
                case PartEnds():
                    if part.name.partition("[")[0] == _FILES:
                        files.append((_path_of(part), bytes(content)))
                    else:
                        fields[part.name] = content.decode("utf-8", "replace")
                case bytes():
                    content += event
                    total += len(event)
                    if total > MAX_ARCHIVE:
                        raise BodyTooLarge(f"a skill has at most {MAX_ARCHIVE} bytes")
    return files, fields


def _path_of(part: PartBegins) -> str:
    return (part.filename or "").replace("\\", "/").lstrip("/") or "file"


async def _version(call: Call, sent: _Sent, new_id: str) -> SkillVersion:
    engine = call.app.engine
    return SkillVersion(
        id=new_id,
        version=1,
        name=sent.archive.name,
        description=sent.archive.description,
        created_at=engine.now(),
        blob=await _write(call, sent.data),
    )


async def _write(call: Call, data: bytes) -> Blob:
    store = call.app.engine.store
    used = store.files.used_bytes
    async with call.app.quota.room(call.owner, len(data), lambda: used(call.owner)):
        writer = await store.blobs.create(call.owner)
        try:
            await writer.write(data)
            return await writer.finish()
        finally:
            await writer.abort()


# What is there.


async def _find(call: Call, skill_id: str) -> Skill:
    skill = await call.app.engine.store.skills.find(call.owner, skill_id)
    if skill is None:
        raise no_skill(skill_id)
    return skill


async def _find_version(call: Call, number: int | None) -> SkillVersion:
    store = call.app.engine.store
    version = await store.skills.find_version(call.owner, call.path_id, number)
    if version is None:
        raise no_skill(call.path_id)
    return version


async def _version_of_path(call: Call) -> SkillVersion:
    await _find(call, call.path_id)
    if call.item_id == "latest":
        skill = await _find(call, call.path_id)
        return await _find_version(call, skill.latest_version)
    if not _is_number(call.item_id):
        raise no_skill(call.path_id)
    return await _find_version(call, int(call.item_id))


async def _number_of(call: Call, after: str) -> int:
    """Return the number of the version that a page goes on after: its number, or its id."""
    if _is_number(after):
        return int(after)
    number = await _find_number(call, after)
    if number is None:
        raise wrong_cursor("after", after)
    return number


async def _find_number(call: Call, version_id: str) -> int | None:
    """Return the number of the version with this id."""
    number: int | None = None
    while page := await call.app.engine.store.skills.versions(
        call.owner, call.path_id, after=number, limit=_PAGE, is_descending=False
    ):
        for version in page:
            if version.id == version_id:
                return version.version
        number = page[-1].version
    return None


def _is_number(text: str) -> bool:
    return text.isdecimal() and len(text) <= 9


def _number(given: str | int, param: str) -> int:
    if not _is_number(str(given)):
        raise invalid(param, "must be the number of a version")
    return int(given)


async def _send(call: Call, version: SkillVersion) -> web.StreamResponse:
    return await send_blob(call, version.blob.id, version.blob.size, f"{version.name}.zip")


def _as_skill(skill: Skill) -> SkillObject:
    return SkillObject(
        id=skill.id,
        created_at=skill.created_at,
        name=skill.name,
        description=skill.description,
        default_version=str(skill.default_version),
        latest_version=str(skill.latest_version),
    )


def _as_version(skill_id: str, version: SkillVersion) -> SkillVersionObject:
    return SkillVersionObject(
        id=version.id,
        created_at=version.created_at,
        skill_id=skill_id,
        name=version.name,
        description=version.description,
        version=str(version.version),
    )


_ONE: Final = "/v1/skills/{id}"
_VERSIONS: Final = f"{_ONE}/versions"
ROUTES: Final = [
    Route("POST", "/v1/skills", create, takes_form=True),
    Route("GET", "/v1/skills", list_skills),
    Route("GET", _ONE, retrieve),
    Route("POST", _ONE, update),
    Route("DELETE", _ONE, delete),
    Route("GET", f"{_ONE}/content", content),
    Route("POST", _VERSIONS, add_version, takes_form=True),
    Route("GET", _VERSIONS, list_versions),
    Route("GET", f"{_VERSIONS}/{{item}}", retrieve_version),
    Route("DELETE", f"{_VERSIONS}/{{item}}", delete_version),
    Route("GET", f"{_VERSIONS}/{{item}}/content", version_content),
]
