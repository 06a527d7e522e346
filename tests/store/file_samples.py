"""Small files, uploads, containers and skills for the tests of the stores."""

from __future__ import annotations

from typing import Any

from antiphon.store.base import (
    Blob,
    ClaimRequest,
    Container,
    ContainerFile,
    Skill,
    SkillVersion,
    Store,
    StoredFile,
    Upload,
    UploadPart,
)
from tests.store.samples import OWNER

__all__ = [
    "NOW",
    "add_file",
    "container",
    "container_file",
    "content",
    "file",
    "once",
    "part",
    "skill",
    "skill_version",
    "upload",
    "write",
]

NOW = 1_000


async def write(store: Store, *pieces: bytes, owner: str = OWNER) -> Blob:
    """Write a blob of these pieces."""
    writer = await store.blobs.create(owner)
    for piece in pieces:
        await writer.write(piece)
    return await writer.finish()


async def content(store: Store, blob: Blob, *, owner: str = OWNER, step: int = 1 << 20) -> bytes:
    """Read a whole blob in steps."""
    found = bytearray()
    while piece := await store.blobs.read(owner, blob.id, len(found), step):
        found += piece
    return bytes(found)


def file(file_id: str, blob: Blob, **more: Any) -> StoredFile:
    """Return a file."""
    fields: dict[str, Any] = {"filename": "a.txt", "purpose": "user_data", "created_at": NOW}
    return StoredFile(id=file_id, blob=blob, **(fields | more))


async def add_file(store: Store, file_id: str, data: bytes = b"text", **more: Any) -> StoredFile:
    """Store a file with this content."""
    made = file(file_id, await write(store, data), **more)
    assert await store.files.add(OWNER, made) is None
    return made


def once(
    token: str = "token", *, digest: bytes = b"d", now: int = NOW, since: int = 0
) -> ClaimRequest:
    """Return a token to claim."""
    return ClaimRequest(token, digest, now, since)


def upload(upload_id: str, **more: Any) -> Upload:
    """Return an upload that is pending until NOW + 100."""
    fields: dict[str, Any] = {
        "filename": "b.txt",
        "purpose": "user_data",
        "mime_type": "text/plain",
        "size": 8,
        "created_at": NOW,
        "expires_at": NOW + 100,
    }
    return Upload(id=upload_id, **(fields | more))


def part(part_id: str, blob: Blob) -> UploadPart:
    """Return a part of an upload."""
    return UploadPart(id=part_id, created_at=NOW, blob=blob)


def container(container_id: str, **more: Any) -> Container:
    """Return a container that expires at NOW + 60."""
    fields: dict[str, Any] = {
        "name": "box",
        "created_at": NOW,
        "last_active_at": NOW,
        "idle_seconds": 60,
        "settings": {"memory_limit": "1g", "skills": [{"type": "skill_reference"}]},
    }
    return Container(id=container_id, **(fields | more))


def container_file(file_id: str, path: str, blob: Blob, **more: Any) -> ContainerFile:
    """Return a file in a container."""
    fields: dict[str, Any] = {"source": "user", "created_at": NOW}
    return ContainerFile(id=file_id, path=path, blob=blob, **(fields | more))


def skill(skill_id: str, **more: Any) -> Skill:
    """Return a skill as it is stored with `skill_version`."""
    fields: dict[str, Any] = {"name": "pdf", "description": "reads PDF", "created_at": NOW}
    return Skill(id=skill_id, **(fields | more))


def skill_version(version_id: str, blob: Blob, **more: Any) -> SkillVersion:
    """Return a version of a skill."""
    fields: dict[str, Any] = {
        "version": 1,
        "name": "pdf",
        "description": "reads PDF",
        "created_at": NOW,
    }
    return SkillVersion(id=version_id, blob=blob, **(fields | more))
