"""/v1/organization/projects/{id}/api_keys: the keys of a project.

A key is created with a service account, as in OpenAI's API, or with `antiphon keys create`. One
that was deleted is refused within a second and is not shown any more.
"""

from __future__ import annotations

from typing import Final

import msgspec
from aiohttp import web

from antiphon.protocol.files import DeletedObject
from antiphon.protocol.organization import ProjectKeyObject, RotateKey, UpdateKey
from antiphon.server.api.objects import answer_object, read_object, replayed
from antiphon.server.api.organization.access import audit_of
from antiphon.server.api.organization.lists import answer_few
from antiphon.server.api.organization.new_keys import (
    accounts_of,
    as_project_key,
    change_of,
    expiry,
    find_project_key,
    in_force,
    no_key,
)
from antiphon.server.api.organization.once import begin_once, secret_is_gone
from antiphon.server.api.organization.projects import find_project
from antiphon.server.app import Call, Route
from antiphon.server.auth import new_secret
from antiphon.store.base import KeyRecord

__all__ = ["ROUTES"]


async def list_keys(call: Call) -> web.StreamResponse:
    """Return a page of the keys of a project, oldest first."""
    await find_project(call, call.path_id)
    keys = await call.app.engine.store.list_keys(call.path_id)
    accounts = accounts_of(keys)
    shown = [key for key in keys if in_force(key) and key.role != "admin"]
    return answer_few(
        call,
        shown,
        lambda key: as_project_key(key, accounts),
        also=frozenset({"owner_project_access"}),
    )


async def retrieve(call: Call) -> web.StreamResponse:
    """Return a key of a project."""
    return answer_object(call, await _show(call, await _find(call)))


async def update(call: Call) -> web.StreamResponse:
    """Change when a key ends, and what it may do."""
    body = await read_object(call, UpdateKey)
    record = await _find(call)
    change = change_of(body.antiphon)
    if body.expires_in_seconds is not None:
        until = expiry(call, body.expires_in_seconds)
        change = msgspec.structs.replace(change, expires_at=until)
    requested = {
        name: value
        for name, value in msgspec.structs.asdict(change).items()
        if value is not msgspec.UNSET
    }
    audit = audit_of(
        call, "api_key.updated", record.id, record.owner, {"changes_requested": requested}
    )
    changed = await call.app.engine.store.update_key(record.id, change, audit=audit)
    if changed is None:
        raise no_key(record.id)
    return answer_object(call, await _show(call, changed))


async def delete(call: Call) -> web.StreamResponse:
    """Revoke a key."""
    record, engine = await _find(call), call.app.engine
    audit = audit_of(call, "api_key.deleted", record.id, record.owner)
    if not await engine.store.revoke_key(record.id, engine.now(), audit=audit):
        raise no_key(record.id)
    return answer_object(
        call, DeletedObject(id=record.id, object="organization.project.api_key.deleted")
    )


async def rotate(call: Call) -> web.StreamResponse:
    """Give a key a new secret; the present one is good for a while."""
    body = await read_object(call, RotateKey, is_optional=True)
    record = await _find(call)
    attempt, engine = await begin_once(call, "rotations"), call.app.engine
    value, digest, hint = new_secret(record.id, attempt.secret(call))
    now = engine.now()
    if attempt.is_again:
        if record.digest != digest:
            raise secret_is_gone()
        return replayed(answer_object(call, await _show(call, record, value)))
    audit = audit_of(
        call,
        "api_key.updated",
        record.id,
        record.owner,
        {"changes_requested": {"rotated": True, "overlap_seconds": body.overlap_seconds}},
    )
    changed = await engine.store.rotate_key(
        record.id, digest, hint, now=now, until=now + body.overlap_seconds, audit=audit
    )
    if changed is None:
        raise no_key(record.id)
    return answer_object(call, await _show(call, changed, value))


async def _find(call: Call) -> KeyRecord:
    return await find_project_key(call, call.path_id, call.item_id)


async def _show(call: Call, record: KeyRecord, value: str | None = None) -> ProjectKeyObject:
    keys = await call.app.engine.store.list_keys(record.owner)
    return as_project_key(record, accounts_of(keys), value)


_ALL: Final = "/v1/organization/projects/{id}/api_keys"
_ONE: Final = f"{_ALL}/{{item}}"
ROUTES: Final = [
    Route("GET", _ALL, list_keys),
    Route("GET", _ONE, retrieve),
    Route("POST", _ONE, update),
    Route("DELETE", _ONE, delete),
    Route("POST", f"{_ONE}/antiphon/rotate", rotate),
]
