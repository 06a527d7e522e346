"""Facet `projects`: those who own data, and what holds for all of their keys.

The id of a project is the `owner` of rows in every other facet. An owner that only keys know is a
project too, with its id as its name and the age of its oldest key; it gets a row of its own when
something about it is changed. `local` always exists and cannot be archived. The keys of an
archived project are refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol

import msgspec
from msgspec import UNSET, UnsetType

from antiphon.store.base.audit import AuditRecord

__all__ = ["LOCAL_PROJECT", "Project", "ProjectChange", "Projects", "Purged"]

LOCAL_PROJECT: Final = "local"
"""The project of requests without a key."""

Purged = Callable[[str, int], None]
"""Receives the name of a table and how many of its rows were removed, while it goes on."""


class Project(msgspec.Struct, frozen=True):
    """A project. `id` is what `owner` is in other facets."""

    id: str
    name: str
    created_at: int
    archived_at: int | None = None
    never_store: bool = False
    """Whether nothing of its requests may be stored."""
    settings: dict[str, Any] = {}  # Any: a small JSON object
    """What others keep about a project, such as an id in another system."""


class ProjectChange(msgspec.Struct, frozen=True, kw_only=True):
    """What to change of a project. What is UNSET stays."""

    name: str | UnsetType = UNSET
    never_store: bool | UnsetType = UNSET
    settings: dict[str, Any] | UnsetType = UNSET  # Any: a small JSON object


class Projects(Protocol):
    """The projects of one store. An audit record is stored together with the change."""

    async def get(self, project_id: str) -> Project | None:
        """Return a project, archived or not."""
        ...

    async def page(
        self,
        *,
        after: str | None = None,
        limit: int,
        is_descending: bool = False,
        with_archived: bool = False,
    ) -> list[Project]:
        """Return projects by age, then by id, from beyond the project `after` on.

        Raise KeyError if there is no project `after`.
        """
        ...

    async def create(self, project: Project, *, audit: AuditRecord | None = None) -> None:
        """Store a new project. Raise ValueError if its id is taken, also by keys."""
        ...

    async def update(
        self, project_id: str, change: ProjectChange, *, audit: AuditRecord | None = None
    ) -> Project | None:
        """Change a project; return it as it is now, or None if there is none."""
        ...

    async def archive(
        self, project_id: str, now: int, *, audit: AuditRecord | None = None
    ) -> Project | None:
        """Archive a project; return it as it is now, or None if there is none.

        One that is archived already stays as it is. Raise ValueError for `local`.
        """
        ...

    async def count_rows(self, project_id: str) -> dict[str, int]:
        """Return how many rows a purge would remove, by table."""
        ...

    async def purge(
        self,
        project_id: str,
        progress: Purged,
        *,
        audit: AuditRecord | None = None,
    ) -> dict[str, int]:
        """Remove everything that belongs to a project, its keys and itself; return the counts.

        Charges and the audit log stay: they hold no content. It is removed in steps, between
        which others write, and the audit record is stored with the last one, with the counts in
        its body. Archive the project before, so that nothing new is stored.
        """
        ...
