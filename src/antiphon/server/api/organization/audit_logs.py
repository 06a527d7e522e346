"""/v1/organization/audit_logs: who changed what, newest first.

Each entry has an object under the name of its type with the id of what was changed. Names that
OpenAI does not have are those of spend limits and budgets.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from aiohttp import web

from antiphon.protocol.errors import invalid
from antiphon.server.api.objects import wrong_cursor
from antiphon.server.api.organization.query import Query
from antiphon.server.app import Call, Route
from antiphon.store.base import AuditEntry, AuditQuery

__all__ = ["ROUTES"]

_TIMES: Final = ("gt", "gte", "lt", "lte")
_SINGLE: Final = frozenset({"after", "before", "limit"}) | {
    f"effective_at[{name}]" for name in _TIMES
}
_MANY: Final = frozenset({"actor_ids", "event_types", "project_ids", "resource_ids"})


async def list_entries(call: Call) -> web.StreamResponse:
    """Return a page of the audit log."""
    query = Query(call, single=_SINGLE, many=_MANY)
    limit = query.number("limit", 20, least=1, most=100) or 20
    after, before = query.text("after"), query.text("before")
    if after is not None and before is not None:
        raise invalid("before", "cannot be given together with after")
    param, place = ("after", after) if before is None else ("before", before)
    try:
        found = await call.app.engine.store.audit.page(
            _audit_query(query), after=place, limit=limit + 1, is_descending=before is None
        )
    except KeyError:
        raise wrong_cursor(param, place) from None
    shown = found[:limit] if before is None else found[:limit][::-1]
    names = await _project_names(call, shown)
    data = [_as_object(entry, names) for entry in shown]
    page = {
        "object": "list",
        "data": data,
        "first_id": data[0]["id"] if data else None,
        "last_id": data[-1]["id"] if data else None,
        "has_more": len(found) > limit,
    }
    return call.json(msgspec.json.encode(page))


def _audit_query(query: Query) -> AuditQuery:
    since = [query.number("effective_at[gte]"), _after(query.number("effective_at[gt]"))]
    until = [query.number("effective_at[lt]"), _after(query.number("effective_at[lte]"))]
    actors = query.texts("actor_ids")
    return AuditQuery(
        since=max((one for one in since if one is not None), default=None),
        until=min((one for one in until if one is not None), default=None),
        actors=[name for actor in actors for name in (actor, f"key:{actor}")] or None,
        actions=query.texts("event_types") or None,
        subjects=query.texts("resource_ids") or None,
        projects=query.texts("project_ids") or None,
    )


def _after(second: int | None) -> int | None:
    return None if second is None else second + 1


async def _project_names(call: Call, entries: list[AuditEntry]) -> dict[str, str]:
    """Return the names of the projects that these entries are about."""
    ids = {entry.project for entry in entries if entry.project is not None}
    found = {one: await call.app.engine.store.projects.get(one) for one in ids}
    return {one: project.name for one, project in found.items() if project is not None}


def _as_object(entry: AuditEntry, names: dict[str, str]) -> dict[str, Any]:
    project = entry.project
    shown: dict[str, Any] = {
        "id": entry.id,
        "type": entry.action,
        "effective_at": entry.at,
        "actor": _actor(entry.actor),
        entry.action: {"id": entry.subject} | entry.body,
    }
    if project is not None:
        shown["project"] = {"id": project, "name": names.get(project)}
    return shown


def _actor(actor: str) -> dict[str, Any]:
    kind, _, name = actor.partition(":")
    if kind == "key":
        return {"type": "api_key", "api_key": {"id": name, "type": "user"}}
    return {"type": "session", "session": {"user": {"id": actor}}}


ROUTES: Final = [Route("GET", "/v1/organization/audit_logs", list_entries)]
