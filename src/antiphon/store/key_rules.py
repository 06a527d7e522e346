"""What do changes of keys and projects mean? The same functions for every kind of store."""

from __future__ import annotations

from typing import Any, Final, TypeVar

import msgspec
from msgspec import UNSET

from antiphon.store.base.audit import AuditRecord
from antiphon.store.base.keys import Access, KeyChange, KeyRecord
from antiphon.store.base.projects import LOCAL_PROJECT, Project, ProjectChange

__all__ = [
    "LOCAL",
    "access_of",
    "apply_change",
    "archive",
    "is_in_force",
    "rotate",
    "with_counts",
]

_T = TypeVar("_T", KeyRecord, Project)
LOCAL: Final = Project(LOCAL_PROJECT, LOCAL_PROJECT, 0)
"""The project of requests without a key, as long as nothing of it was changed."""


def is_in_force(key: KeyRecord, now: int) -> bool:
    """Return whether the key is neither revoked nor expired."""
    return key.revoked_at is None and (key.expires_at is None or now < key.expires_at)


def access_of(key: KeyRecord, project: Project | None) -> Access:
    """Return a key with what its project says; it may have no row of its own."""
    if project is None:
        return Access(key, never_store=key.never_store)
    return Access(key, project.archived_at is not None, key.never_store or project.never_store)


def apply_change(row: _T, change: KeyChange | ProjectChange) -> _T:
    """Return the row with what the change sets."""
    values: dict[str, Any] = msgspec.structs.asdict(change)
    given = {name: value for name, value in values.items() if value is not UNSET}
    return msgspec.structs.replace(row, **given)


def rotate(
    key: KeyRecord | None, digest: bytes, hint: str, now: int, until: int
) -> KeyRecord | None:
    """Return the key with a new secret; the same key if it has it; None if none is in force."""
    if key is None or not is_in_force(key, now):
        return None
    if digest in (key.digest, key.previous_digest):
        return key
    return msgspec.structs.replace(
        key, digest=digest, hint=hint, previous_digest=key.digest, previous_until=until
    )


def archive(project: Project | None, now: int) -> Project | None:
    """Return the project as archived. Raise ValueError for `local`."""
    if project is None or project.archived_at is not None:
        return project
    if project.id == LOCAL_PROJECT:
        raise ValueError(f"the project {LOCAL_PROJECT!r} cannot be archived")
    return msgspec.structs.replace(project, archived_at=now)


def with_counts(record: AuditRecord, counts: dict[str, int]) -> AuditRecord:
    """Return the record of a purge with what was removed."""
    return msgspec.structs.replace(record, body={**record.body, "removed": counts})
