"""The description of containers and skills, made from their types."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from antiphon.protocol.containers import (
    ContainerFileObject,
    ContainerObject,
    CreateContainer,
    SkillObject,
    SkillVersionObject,
    UpdateSkill,
)
from antiphon.server.api.openapi_operations import PAGE, form_of, in_path, list_of, operation

__all__ = ["CONTAINER_TYPES", "container_paths"]

CONTAINER_TYPES: Final[tuple[type[msgspec.Struct], ...]] = (
    *(ContainerObject, ContainerFileObject, CreateContainer),
    *(SkillObject, SkillVersionObject, UpdateSkill),
)
_ID: Final = [in_path("id")]
_BOTH: Final = [in_path("id"), in_path("item")]
_BINARY: Final = {"type": "string", "format": "binary"}


def container_paths() -> dict[str, Any]:
    """Return the paths of containers and skills."""
    return _containers() | _container_files() | _skills() | _versions()


def _containers() -> dict[str, Any]:
    return {
        "/v1/containers": {
            "get": list_of("List containers", "ContainerObject", PAGE),
            "post": operation("Make a container", "ContainerObject", takes="CreateContainer"),
        },
        "/v1/containers/{id}": {
            "parameters": _ID,
            "get": operation("Retrieve a container", "ContainerObject"),
            "delete": operation("Delete a container and its files", "DeletedObject"),
        },
    }


def _container_files() -> dict[str, Any]:
    files = "/v1/containers/{id}/files"
    return {
        files: {
            "parameters": _ID,
            "get": list_of("List the files of a container", "ContainerFileObject", PAGE),
            "post": operation("Put a file into a container", "ContainerFileObject")
            | form_of([], file=_BINARY, file_id={"type": "string"}),
        },
        f"{files}/{{item}}": {
            "parameters": _BOTH,
            "get": operation("Retrieve a file of a container", "ContainerFileObject"),
            "delete": operation("Delete a file of a container", "DeletedObject"),
        },
        f"{files}/{{item}}/content": {
            "parameters": _BOTH,
            "get": operation("The content of a file of a container"),
        },
    }


def _skills() -> dict[str, Any]:
    one = "/v1/skills/{id}"
    return {
        "/v1/skills": {
            "get": list_of("List skills", "SkillObject", PAGE),
            "post": operation("Store a skill", "SkillObject") | form_of(["files"], files=_BINARY),
        },
        one: {
            "parameters": _ID,
            "get": operation("Retrieve a skill", "SkillObject"),
            "post": operation("Choose the default version", "SkillObject", takes="UpdateSkill"),
            "delete": operation("Delete a skill with all versions", "DeletedObject"),
        },
        f"{one}/content": {"parameters": _ID, "get": operation("The archive of a skill")},
    }


def _versions() -> dict[str, Any]:
    versions = "/v1/skills/{id}/versions"
    return {
        versions: {
            "parameters": _ID,
            "get": list_of("List the versions of a skill", "SkillVersionObject", PAGE),
            "post": operation("Add a version", "SkillVersionObject")
            | form_of(["files"], files=_BINARY, default={"type": "string"}),
        },
        f"{versions}/{{item}}": {
            "parameters": _BOTH,
            "get": operation("Retrieve a version", "SkillVersionObject"),
            "delete": operation("Delete a version", "DeletedObject"),
        },
        f"{versions}/{{item}}/content": {
            "parameters": _BOTH,
            "get": operation("The archive of a version"),
        },
    }
