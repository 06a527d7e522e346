"""/v1/organization/projects/{id}/service_accounts: programs that have keys of a project.

There is no table of them: a service account is what the `user` of its keys says. So one without a
key cannot be made, and it ends with its last key. Its name is that of its oldest key.
"""

from __future__ import annotations

from typing import Final

import msgspec
from aiohttp import web

from antiphon.protocol.errors import Conflict, NotFound, invalid
from antiphon.protocol.files import DeletedObject
from antiphon.protocol.organization import (
    CreateServiceAccount,
    CreateServiceAccountKey,
    KeyExtras,
    NewKeyObject,
    ServiceAccountObject,
    UpdateServiceAccount,
)
from antiphon.server.api.objects import answer_object, read_object, replayed
from antiphon.server.api.organization.access import audit_of
from antiphon.server.api.organization.lists import answer_few
from antiphon.server.api.organization.new_keys import (
    ACCOUNT,
    accounts_of,
    add_key,
    change_of,
    expiry,
    in_force,
)
from antiphon.server.api.organization.once import Attempt, begin_once
from antiphon.server.api.organization.projects import find_project
from antiphon.server.app import Call, Route
from antiphon.store.base import KeyChange, KeyRecord

__all__ = ["ROUTES"]


async def create(call: Call) -> web.StreamResponse:
    """Make a service account with a key, which is shown once."""
    body = await read_object(call, CreateServiceAccount)
    if body.create_service_account_only:
        raise invalid(
            "create_service_account_only",
            "cannot be true here: a service account is known by its keys",
        )
    await _open_project(call)
    attempt = await begin_once(call, "service_accounts")
    account = f"{ACCOUNT}{attempt.derive('account')}"
    record = _record(call, account, body.name, body.expires_in_seconds, body.antiphon)
    value, made, was_before = await add_key(call, attempt, record, _audited(record))
    if not was_before:
        audit = audit_of(
            call, "service_account.created", account, call.path_id, {"data": {"role": "member"}}
        )
        await call.app.engine.store.audit.append(audit)
    answer = answer_object(call, _as_object(account, made, _as_new(made, value)))
    return replayed(answer) if was_before else answer


async def list_accounts(call: Call) -> web.StreamResponse:
    """Return a page of the service accounts of a project, oldest first."""
    await find_project(call, call.path_id)
    accounts = accounts_of(await call.app.engine.store.list_keys(call.path_id))
    return answer_few(call, list(accounts.items()), lambda one: _as_object(*one))


async def retrieve(call: Call) -> web.StreamResponse:
    """Return a service account."""
    return answer_object(call, _as_object(call.item_id, await _find(call)))


async def update(call: Call) -> web.StreamResponse:
    """Change the name of a service account."""
    body = await read_object(call, UpdateServiceAccount)
    first = await _find(call)
    audit = audit_of(
        call,
        "service_account.updated",
        call.item_id,
        call.path_id,
        {"changes_requested": {"name": body.name}},
    )
    change = KeyChange(name=body.name)
    changed = await call.app.engine.store.update_key(first.id, change, audit=audit)
    return answer_object(call, _as_object(call.item_id, changed or first))


async def delete(call: Call) -> web.StreamResponse:
    """Revoke all keys of a service account."""
    await _find(call)
    engine = call.app.engine
    for key in await engine.store.list_keys(call.path_id):
        if in_force(key) and key.user == call.item_id:
            audit = audit_of(call, "api_key.deleted", key.id, call.path_id)
            await engine.store.revoke_key(key.id, engine.now(), audit=audit)
    await engine.store.audit.append(
        audit_of(call, "service_account.deleted", call.item_id, call.path_id)
    )
    return answer_object(
        call,
        DeletedObject(id=call.item_id, object="organization.project.service_account.deleted"),
    )


async def add_account_key(call: Call) -> web.StreamResponse:
    """Give a service account one more key, which is shown once."""
    body = await read_object(call, CreateServiceAccountKey)
    first = await _find(call)
    await _open_project(call)
    attempt: Attempt = await begin_once(call, "api_keys")
    name = body.name or first.name
    record = _record(call, call.item_id, name, body.expires_in_seconds, body.antiphon)
    value, made, was_before = await add_key(call, attempt, record, _audited(record))
    answer = answer_object(call, _as_new(made, value))
    return replayed(answer) if was_before else answer


async def _open_project(call: Call) -> None:
    """Raise Conflict if the project of the path is archived: its keys would be refused."""
    project = await find_project(call, call.path_id)
    if project.archived_at is not None:
        raise Conflict(f"the project '{project.id}' is archived", code="project_archived")


async def _find(call: Call) -> KeyRecord:
    """Return the oldest key of the service account of the path. Raise NotFound."""
    accounts = accounts_of(await call.app.engine.store.list_keys(call.path_id))
    if call.item_id not in accounts:
        raise NotFound(f"No such service account: {call.item_id}", code="service_account_not_found")
    return accounts[call.item_id]


def _record(
    call: Call, account: str, name: str, seconds: int | None, extras: KeyExtras | None
) -> KeyRecord:
    """Return the key to store, still without an id and a digest."""
    record = KeyRecord("", call.path_id, b"", call.app.engine.now(), name=name, user=account)
    changes = msgspec.structs.asdict(change_of(extras))
    given = {field: value for field, value in changes.items() if value is not msgspec.UNSET}
    return msgspec.structs.replace(record, expires_at=expiry(call, seconds), **given)


def _audited(record: KeyRecord) -> dict[str, object]:
    return {"data": {"name": record.name, "role": record.role, "user": record.user}}


def _as_new(record: KeyRecord, value: str) -> NewKeyObject:
    return NewKeyObject(
        id=record.id,
        name=record.name,
        created_at=record.created_at,
        expires_at=record.expires_at,
        value=value,
    )


def _as_object(
    account: str, first: KeyRecord, key: NewKeyObject | None = None
) -> ServiceAccountObject:
    return ServiceAccountObject(
        id=account,
        name=first.name,
        created_at=first.created_at,
        api_key=msgspec.UNSET if key is None else key,
    )


_ALL: Final = "/v1/organization/projects/{id}/service_accounts"
_ONE: Final = f"{_ALL}/{{item}}"
ROUTES: Final = [
    Route("GET", _ALL, list_accounts),
    Route("POST", _ALL, create),
    Route("GET", _ONE, retrieve),
    Route("POST", _ONE, update),
    Route("DELETE", _ONE, delete),
    Route("POST", f"{_ONE}/api_keys", add_account_key),
]
