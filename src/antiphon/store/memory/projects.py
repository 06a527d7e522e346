"""Facet `projects` in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

import msgspec

from antiphon.store.base.audit import AuditRecord
from antiphon.store.base.keys import KeyRecord
from antiphon.store.base.projects import LOCAL_PROJECT, Project, ProjectChange, Purged
from antiphon.store.key_rules import LOCAL, apply_change, archive, with_counts
from antiphon.store.memory.audit import MemoryAudit

__all__ = ["MemoryProjects", "Owned"]


class Owned(Protocol):
    """A facet with rows of owners."""

    def count_of(self, owner: str) -> Mapping[str, int]:
        """Return how many rows an owner has, by table."""
        ...

    def forget_owner(self, owner: str) -> None:
        """Remove all rows of an owner."""
        ...


class MemoryProjects:
    """See `Projects` for what the methods do.

    `keys_of` returns the keys of all owners. `facets` are those whose rows a purge removes.
    """

    def __init__(
        self,
        check_open: Callable[[], None],
        audit: MemoryAudit,
        keys_of: Callable[[], Iterable[KeyRecord]],
        facets: Sequence[Owned],
    ) -> None:
        self._check_open = check_open
        self._audit = audit
        self._keys_of = keys_of
        self._facets = facets
        self._rows: dict[str, Project] = {}

    async def get(self, project_id: str) -> Project | None:
        self._check_open()
        return self._all().get(project_id)

    async def page(
        self,
        *,
        after: str | None = None,
        limit: int,
        is_descending: bool = False,
        with_archived: bool = False,
    ) -> list[Project]:
        self._check_open()
        ordered = sorted(
            self._all().values(), key=lambda one: (one.created_at, one.id), reverse=is_descending
        )
        start = 0
        if after is not None:
            start = [project.id for project in ordered].index(after) + 1 if self._has(after) else -1
        if start < 0:
            raise KeyError(after)
        shown = (one for one in ordered[start:] if with_archived or one.archived_at is None)
        return list(shown)[:limit]

    async def create(self, project: Project, *, audit: AuditRecord | None = None) -> None:
        if await self.get(project.id) is not None:
            raise ValueError(f"there already is a project {project.id!r}")
        self._put(project, audit)

    async def update(
        self, project_id: str, change: ProjectChange, *, audit: AuditRecord | None = None
    ) -> Project | None:
        project = await self.get(project_id)
        return None if project is None else self._put(apply_change(project, change), audit)

    async def archive(
        self, project_id: str, now: int, *, audit: AuditRecord | None = None
    ) -> Project | None:
        project = await self.get(project_id)
        archived = archive(project, now)
        if archived is None or archived is project:
            return archived
        return self._put(archived, audit)

    async def count_rows(self, project_id: str) -> dict[str, int]:
        self._check_open()
        counts: dict[str, int] = {}
        for facet in (*self._facets, self):
            for table, count in facet.count_of(project_id).items():
                counts[table] = counts.get(table, 0) + count
        return counts

    async def purge(
        self, project_id: str, progress: Purged, *, audit: AuditRecord | None = None
    ) -> dict[str, int]:
        counts = await self.count_rows(project_id)
        for facet in (*self._facets, self):
            facet.forget_owner(project_id)
        for table, count in counts.items():
            progress(table, count)
        if audit is not None:
            self._audit.add(with_counts(audit, counts))
        return counts

    def row_of(self, owner: str) -> Project | None:
        """Return the project of an owner if it has a row of its own."""
        return self._rows.get(owner)

    def count_of(self, owner: str) -> Mapping[str, int]:
        """Return whether the project has a row."""
        return {"projects": int(owner in self._rows)}

    def forget_owner(self, owner: str) -> None:
        """Remove the row of the project."""
        self._rows.pop(owner, None)

    def clear(self) -> None:
        """Remove everything."""
        self._rows.clear()

    def _all(self) -> dict[str, Project]:
        found = {LOCAL_PROJECT: LOCAL}
        for key in self._keys_of():
            known = found.get(key.owner)
            if key.owner != LOCAL_PROJECT and (known is None or known.created_at > key.created_at):
                found[key.owner] = Project(key.owner, key.owner, key.created_at)
        return {name: _copy(one) for name, one in (found | self._rows).items()}

    def _has(self, project_id: str) -> bool:
        return project_id in self._all()

    def _put(self, project: Project, audit: AuditRecord | None) -> Project:
        self._rows[project.id] = _copy(project)
        self._audit.add_if(audit)
        return project


def _copy(project: Project) -> Project:
    """Return it with settings that are shared with no caller."""
    settings = msgspec.json.decode(msgspec.json.encode(project.settings))
    return msgspec.structs.replace(project, settings=settings)
