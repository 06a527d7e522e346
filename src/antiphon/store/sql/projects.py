"""Facet `projects` in SQLite and PostgreSQL. How a purge works is in `purge`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from antiphon.store.base.audit import AuditRecord
from antiphon.store.base.projects import LOCAL_PROJECT, Project, ProjectChange, Purged
from antiphon.store.key_rules import LOCAL, apply_change, archive
from antiphon.store.sql.audit import add_audit
from antiphon.store.sql.purge import Purge
from antiphon.store.sql.steps import Lock, Row, Steps, Tables, ask

__all__ = ["SqlProjects"]

_COLUMNS: Final = "id, name, created_at, archived_at, never_store, settings"
# Those with a row, those that only keys know, and `local`.
_ALL: Final = f"""(
    SELECT {_COLUMNS} FROM projects
    UNION ALL SELECT owner, owner, min(created_at), CAST(NULL AS BIGINT), 0, NULL FROM keys
        WHERE owner <> '{LOCAL_PROJECT}' AND owner NOT IN (SELECT id FROM projects) GROUP BY owner
    UNION ALL SELECT '{LOCAL_PROJECT}', '{LOCAL_PROJECT}', 0, NULL, 0, NULL
        WHERE NOT EXISTS (SELECT 1 FROM projects WHERE id = '{LOCAL_PROJECT}')
) AS everyone"""  # noqa: S608 # constants
_GET: Final = f"SELECT {_COLUMNS} FROM projects WHERE id = $1"  # noqa: S608 # constants
_OF_KEYS: Final = "SELECT min(created_at) FROM keys WHERE owner = $1"
_PUT: Final = f"""
    INSERT INTO projects ({_COLUMNS}) VALUES ($1, $2, $3, $4, $5, $6)
    ON CONFLICT (id) DO UPDATE SET name = excluded.name, archived_at = excluded.archived_at,
        never_store = excluded.never_store, settings = excluded.settings
"""  # noqa: S608 # constants


class SqlProjects:
    """See `Projects` for what the methods do."""

    def __init__(self, tables: Tables, purge: Purge) -> None:
        self._tables = tables
        self._purge = purge

    async def get(self, project_id: str) -> Project | None:
        if not self._tables.is_text(project_id):
            return None
        return await self._tables.read(lambda: _find(project_id))

    async def page(
        self,
        *,
        after: str | None = None,
        limit: int,
        is_descending: bool = False,
        with_archived: bool = False,
    ) -> list[Project]:
        def run() -> Steps[Sequence[Row]]:
            start = None
            if after is not None:
                start = (yield from _find(after)) if self._tables.is_text(after) else None
                if start is None:
                    raise KeyError(after)
            return (yield from _page(start, limit, is_descending, with_archived))

        return [_read(row) for row in await self._tables.read(run)]

    async def create(self, project: Project, *, audit: AuditRecord | None = None) -> None:
        def run() -> Steps[None]:
            known = yield from _lock(project.id)
            if (yield from _find_row(project.id)) == project:
                return  # the answer to our commit was lost
            if known is not None:
                raise ValueError(f"there already is a project {project.id!r}")
            yield from _put(project, audit)

        await self._tables.change(run)

    async def update(
        self, project_id: str, change: ProjectChange, *, audit: AuditRecord | None = None
    ) -> Project | None:
        def run() -> Steps[Project | None]:
            project = yield from _lock(project_id)
            if project is None:
                return None
            return (yield from _put(apply_change(project, change), audit))

        return await self._tables.change(run) if self._tables.is_text(project_id) else None

    async def archive(
        self, project_id: str, now: int, *, audit: AuditRecord | None = None
    ) -> Project | None:
        def run() -> Steps[Project | None]:
            project = yield from _lock(project_id)
            archived = archive(project, now)
            if archived is None or archived is project:
                return archived
            return (yield from _put(archived, audit))

        return await self._tables.change(run) if self._tables.is_text(project_id) else None

    async def count_rows(self, project_id: str) -> dict[str, int]:
        return await self._purge.count(project_id) if self._tables.is_text(project_id) else {}

    async def purge(
        self, project_id: str, progress: Purged, *, audit: AuditRecord | None = None
    ) -> dict[str, int]:
        if not self._tables.is_text(project_id):
            return {}
        return await self._purge.run(project_id, progress, audit)


def _lock(project_id: str) -> Steps[Project | None]:
    yield Lock(f"antiphon project {project_id}")
    return (yield from _find(project_id))


def _find(project_id: str) -> Steps[Project | None]:
    row = yield from _find_row(project_id)
    if row is not None:
        return row
    if project_id == LOCAL_PROJECT:
        return LOCAL
    ((created_at,),) = yield from ask(_OF_KEYS, project_id)
    return None if created_at is None else Project(project_id, project_id, created_at)


def _find_row(project_id: str) -> Steps[Project | None]:
    rows = yield from ask(_GET, project_id)
    return _read(rows[0]) if rows else None


def _put(project: Project, audit: AuditRecord | None) -> Steps[Project]:
    settings = msgspec.json.encode(project.settings)
    values = (project.id, project.name, project.created_at, project.archived_at)
    yield from ask(_PUT, *values, int(project.never_store), settings)
    yield from add_audit(audit)
    return project


def _page(
    start: Project | None, limit: int, is_descending: bool, with_archived: bool
) -> Steps[Sequence[Row]]:
    conditions = ["TRUE"] if with_archived else ["archived_at IS NULL"]
    values: list[str | int] = [limit]
    if start is not None:
        sign = "<" if is_descending else ">"
        conditions.append(f"(created_at, id) {sign} ($2, $3)")
        values += [start.created_at, start.id]
    order = "DESC" if is_descending else "ASC"
    statement = (
        f"SELECT {_COLUMNS} FROM {_ALL} WHERE {' AND '.join(conditions)}"  # noqa: S608 # constants
        f" ORDER BY created_at {order}, id {order} LIMIT $1"
    )
    return (yield from ask(statement, *values))


def _read(row: Row) -> Project:
    project_id, name, created_at, archived_at, never_store, settings = row
    decoded = {} if settings is None else msgspec.json.decode(settings)
    return Project(project_id, name, created_at, archived_at, bool(never_store), decoded)
