"""/v1/organization/admin_api_keys: the keys of administrators.

Such a key manages the organization and has no access to the data of projects.
"""

from __future__ import annotations

from typing import Final

from aiohttp import web
from msgspec import UNSET

from antiphon.protocol.files import DeletedObject
from antiphon.protocol.organization import AdminKeyObject, CreateAdminKey
from antiphon.server.api.objects import answer_object, read_object, replayed
from antiphon.server.api.organization.access import audit_of
from antiphon.server.api.organization.lists import answer_few
from antiphon.server.api.organization.new_keys import add_key, expiry, in_force, no_key
from antiphon.server.api.organization.once import begin_once
from antiphon.server.app import Call, Route
from antiphon.server.auth import redact
from antiphon.store.base import KeyRecord

__all__ = ["ROUTES"]


async def create(call: Call) -> web.StreamResponse:
    """Make a key of an administrator, which is shown once."""
    body = await read_object(call, CreateAdminKey)
    attempt = await begin_once(call, "admin_api_keys")
    record = KeyRecord(
        "",
        call.owner,
        b"",
        call.app.engine.now(),
        expiry(call, body.expires_in_seconds),
        name=body.name,
        role="admin",
    )
    audited = {"data": {"name": body.name, "role": "admin"}}
    value, made, was_before = await add_key(call, attempt, record, audited)
    answer = answer_object(call, _as_object(made, value))
    return replayed(answer) if was_before else answer


async def list_keys(call: Call) -> web.StreamResponse:
    """Return a page of the keys of administrators."""
    keys = await call.app.engine.store.list_keys()
    shown = [key for key in keys if key.role == "admin" and in_force(key)]
    return answer_few(call, shown, _as_object)


async def retrieve(call: Call) -> web.StreamResponse:
    """Return a key of an administrator."""
    return answer_object(call, _as_object(await _find(call)))


async def delete(call: Call) -> web.StreamResponse:
    """Revoke a key of an administrator."""
    record, engine = await _find(call), call.app.engine
    audit = audit_of(call, "api_key.deleted", record.id)
    if not await engine.store.revoke_key(record.id, engine.now(), audit=audit):
        raise no_key(record.id)
    return answer_object(
        call, DeletedObject(id=record.id, object="organization.admin_api_key.deleted")
    )


async def _find(call: Call) -> KeyRecord:
    found = await call.app.engine.store.find_key(call.path_id)
    if found is None or found.role != "admin" or not in_force(found):
        raise no_key(call.path_id)
    return found


def _as_object(record: KeyRecord, value: str | None = None) -> AdminKeyObject:
    name = record.user or record.owner
    return AdminKeyObject(
        id=record.id,
        name=record.name,
        created_at=record.created_at,
        last_used_at=record.last_used_at,
        expires_at=record.expires_at,
        redacted_value=redact(record),
        owner={
            "type": "user",
            "object": "organization.user",
            "id": name,
            "name": name,
            "created_at": record.created_at,
            "role": "owner",
        },
        value=UNSET if value is None else value,
    )


_ALL: Final = "/v1/organization/admin_api_keys"
_ONE: Final = f"{_ALL}/{{id}}"
ROUTES: Final = [
    Route("GET", _ALL, list_keys),
    Route("POST", _ALL, create),
    Route("GET", _ONE, retrieve),
    Route("DELETE", _ONE, delete),
]
