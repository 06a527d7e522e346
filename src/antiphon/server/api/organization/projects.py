"""/v1/organization/projects: those who own data and pay.

The id of a project is the owner of its data. A project is never removed here: archiving it refuses
its keys, and `antiphon projects purge` removes its data.
"""

from __future__ import annotations

from typing import Final

from aiohttp import web
from msgspec import UNSET

from antiphon.protocol.errors import Conflict, NotFound, invalid
from antiphon.protocol.organization import (
    CreateProject,
    ProjectExtras,
    ProjectObject,
    UpdateProject,
)
from antiphon.server.api.objects import (
    answer_object,
    answer_page,
    read_object,
    replayed,
    wrong_cursor,
)
from antiphon.server.api.organization.access import audit_of
from antiphon.server.api.organization.once import begin_once
from antiphon.server.api.organization.query import Query
from antiphon.server.app import Call, Route
from antiphon.store.base import Project, ProjectChange

__all__ = ["ROUTES", "find_project"]

_SINGLE: Final = frozenset({"after", "limit", "include_archived"})


async def create(call: Call) -> web.StreamResponse:
    """Make a project."""
    body = await read_object(call, CreateProject)
    attempt = await begin_once(call, "projects")
    extras = body.antiphon or ProjectExtras()
    project = Project(
        id=extras.id or f"proj_{attempt.derive('project')}",
        name=body.name,
        created_at=call.app.engine.now(),
        never_store=bool(extras.never_store),
    )
    store = call.app.engine.store
    if (known := await store.projects.get(project.id)) is not None:
        if not attempt.is_again:
            raise _is_taken(project.id)
        return replayed(answer_object(call, _as_object(known)))
    audit = audit_of(
        call, "project.created", project.id, project.id, {"data": {"name": project.name}}
    )
    try:
        await store.projects.create(project, audit=audit)
    except ValueError:  # another request was a moment earlier
        raise _is_taken(project.id) from None
    return answer_object(call, _as_object(project))


async def list_projects(call: Call) -> web.StreamResponse:
    """Return a page of projects, oldest first."""
    query = Query(call, single=_SINGLE, many=frozenset())
    limit = query.number("limit", 20, least=1, most=100) or 20
    after = query.text("after")
    try:
        found = await call.app.engine.store.projects.page(
            after=after, limit=limit + 1, with_archived=query.flag("include_archived")
        )
    except KeyError:
        raise wrong_cursor("after", after) from None
    return answer_page(call, [_as_object(project) for project in found], limit)


async def retrieve(call: Call) -> web.StreamResponse:
    """Return a project, archived or not."""
    return answer_object(call, _as_object(await find_project(call, call.path_id)))


async def update(call: Call) -> web.StreamResponse:
    """Change the name of a project, or whether it stores anything."""
    body = await read_object(call, UpdateProject)
    extras = body.antiphon or ProjectExtras()
    if extras.id is not None:
        raise invalid("antiphon.id", "of a project cannot be changed")
    change = ProjectChange(
        name=UNSET if body.name is None else body.name,
        never_store=UNSET if extras.never_store is None else extras.never_store,
    )
    changes = {"title": body.name, "never_store": extras.never_store}
    requested = {name: value for name, value in changes.items() if value is not None}
    audit = audit_of(
        call, "project.updated", call.path_id, call.path_id, {"changes_requested": requested}
    )
    changed = await call.app.engine.store.projects.update(call.path_id, change, audit=audit)
    if changed is None:
        raise _no_project(call.path_id)
    return answer_object(call, _as_object(changed))


async def archive(call: Call) -> web.StreamResponse:
    """Archive a project: its keys are refused from now on.

    The project of the key that asks is refused: an admin would lock itself out.
    """
    engine = call.app.engine
    if call.principal.key_id is not None and call.path_id == call.owner:
        raise Conflict(
            f"the project '{call.path_id}' cannot be archived with a key of its own, which would"
            " no longer be accepted: use an admin key of another project",
            code="project_is_your_own",
        )
    audit = audit_of(call, "project.archived", call.path_id, call.path_id)
    try:
        archived = await engine.store.projects.archive(call.path_id, engine.now(), audit=audit)
    except ValueError:
        raise Conflict(
            f"the project '{call.path_id}' cannot be archived: it is that of requests without a"
            " key",
            code="project_is_local",
        ) from None
    if archived is None:
        raise _no_project(call.path_id)
    return answer_object(call, _as_object(archived))


async def find_project(call: Call, project_id: str, param: str | None = None) -> Project:
    """Return a project. Raise NotFound."""
    found = await call.app.engine.store.projects.get(project_id)
    if found is None:
        raise _no_project(project_id, param)
    return found


def _is_taken(project_id: str) -> Conflict:
    return Conflict(f"there is a project '{project_id}' already", code="project_exists")


def _no_project(project_id: str, param: str | None = None) -> NotFound:
    return NotFound(f"No such project: {project_id}", code="project_not_found", param=param)


def _as_object(project: Project) -> ProjectObject:
    return ProjectObject(
        id=project.id,
        name=project.name,
        created_at=project.created_at,
        archived_at=project.archived_at,
        status="active" if project.archived_at is None else "archived",
        antiphon=ProjectExtras(never_store=project.never_store),
    )


_ALL: Final = "/v1/organization/projects"
_ONE: Final = f"{_ALL}/{{id}}"
ROUTES: Final = [
    Route("GET", _ALL, list_projects),
    Route("POST", _ALL, create),
    Route("GET", _ONE, retrieve),
    Route("POST", _ONE, update),
    Route("POST", f"{_ONE}/archive", archive),
]
