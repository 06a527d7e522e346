"""Containers and skills on the wire: what requests hold, and the objects that answers hold."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from antiphon.protocol.files import DeletedObject

__all__ = [
    "AddContainerFile",
    "ContainerExpiry",
    "ContainerFileObject",
    "ContainerObject",
    "CreateContainer",
    "DeletedSkillVersion",
    "NetworkPolicy",
    "SkillObject",
    "SkillVersionObject",
    "UpdateSkill",
]

_Name = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]


class ContainerExpiry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When a container expires, counted from its last use."""

    anchor: Literal["last_active_at"] = "last_active_at"
    minutes: Annotated[int, msgspec.Meta(ge=1, le=1440)]


class CreateContainer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of POST /v1/containers. The rest is checked as in the tools."""

    name: _Name
    expires_after: ContainerExpiry | None = None
    file_ids: list[str] | None = None
    memory_limit: str | None = None
    network_policy: dict[str, Any] | None = None
    skills: list[dict[str, Any]] | None = None


class AddContainerFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of POST /v1/containers/{id}/files that names an uploaded file."""

    file_id: str


class UpdateSkill(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of POST /v1/skills/{id}."""

    default_version: str | int


class NetworkPolicy(msgspec.Struct, frozen=True):
    """The network of a container: there is none."""

    type: Literal["disabled"] = "disabled"


class ContainerObject(msgspec.Struct, frozen=True, kw_only=True):
    """A container."""

    id: str
    object: Literal["container"] = "container"
    created_at: int
    status: Literal["running", "expired"]
    name: str
    last_active_at: int
    expires_after: ContainerExpiry
    memory_limit: str | None = None
    network_policy: NetworkPolicy = NetworkPolicy()


class ContainerFileObject(msgspec.Struct, frozen=True, kw_only=True):
    """A file in a container."""

    id: str
    object: Literal["container.file"] = "container.file"
    created_at: int
    container_id: str
    bytes: int
    path: str
    source: str


class SkillObject(msgspec.Struct, frozen=True, kw_only=True):
    """A skill."""

    id: str
    object: Literal["skill"] = "skill"
    created_at: int
    name: str
    description: str
    default_version: str
    latest_version: str


class SkillVersionObject(msgspec.Struct, frozen=True, kw_only=True):
    """A version of a skill."""

    id: str
    object: Literal["skill.version"] = "skill.version"
    created_at: int
    skill_id: str
    name: str
    description: str
    version: str


class DeletedSkillVersion(DeletedObject, frozen=True, kw_only=True):
    """What is left of a version."""

    version: str
