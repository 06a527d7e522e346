"""How the admin API makes a key, and how it shows one.

A key's secret is in the answer that creates it and nowhere else. A service account is the set of
keys of a project that have the same `user`, whose name begins with `svc_acct_`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec
from msgspec import UnsetType

from antiphon.accounts.amounts import read_amount
from antiphon.models.prices import dollars_of
from antiphon.protocol.errors import InvalidRequest, NotFound, invalid
from antiphon.protocol.organization import KeyExtras, ProjectKeyObject
from antiphon.server.api.organization.access import audit_of
from antiphon.server.api.organization.once import Attempt, secret_is_gone
from antiphon.server.app import Call
from antiphon.server.auth import new_secret, redact
from antiphon.store.base import KeyChange, KeyRecord

__all__ = [
    "ACCOUNT",
    "accounts_of",
    "add_key",
    "as_project_key",
    "change_of",
    "expiry",
    "find_project_key",
    "in_force",
    "no_key",
]

ACCOUNT: Final = "svc_acct_"
"""How the `user` of a key of a service account begins."""


async def add_key(
    call: Call, attempt: Attempt, record: KeyRecord, body: dict[str, Any]
) -> tuple[str, KeyRecord, bool]:  # Any: an object of JSON
    """Store a key; return its value, the key, and whether the same request has made it before.

    The id and the digest of the record are set here.
    """
    key_id = attempt.derive("key")
    value, digest, hint = new_secret(key_id, attempt.secret(call))
    record = msgspec.structs.replace(record, id=key_id, digest=digest, hint=hint)
    project = None if record.role == "admin" else record.owner
    audit = audit_of(call, "api_key.created", key_id, project, body)
    store = call.app.engine.store
    known = await store.find_key(key_id) if attempt.is_again else None
    if known is None:
        try:
            await store.add_key(record, audit=audit)
        except ValueError:  # the same request was a moment earlier
            known = await store.find_key(key_id)
    if known is not None and (known.digest != digest or not in_force(known)):
        raise secret_is_gone()
    return value, known or record, known is not None


def expiry(call: Call, seconds: int | None) -> int | None:
    """Return the time at which a key ends that is good for so many seconds."""
    return None if seconds is None else call.app.engine.now() + seconds


def in_force(record: KeyRecord) -> bool:
    """Return whether a key is listed: one that was deleted is not."""
    return record.revoked_at is None


async def find_project_key(call: Call, project_id: str, key_id: str) -> KeyRecord:
    """Return a key of a project that was not deleted. Raise NotFound."""
    found = await call.app.engine.store.find_key(key_id)
    if found is None or found.owner != project_id or not in_force(found) or found.role == "admin":
        raise no_key(key_id)
    return found


def accounts_of(keys: Sequence[KeyRecord]) -> dict[str, KeyRecord]:
    """Return the oldest key of each service account, by the id of the account."""
    found: dict[str, KeyRecord] = {}
    for key in keys:
        if in_force(key) and key.user is not None and key.user.startswith(ACCOUNT):
            found.setdefault(key.user, key)
    return found


def change_of(extras: KeyExtras | None) -> KeyChange:
    """Return what a request wants to change of a key."""
    if extras is None:
        return KeyChange()
    models = extras.models
    if models is not msgspec.UNSET and models is not None and not models:
        raise InvalidRequest(
            "antiphon.models must name a model, or be null for all",
            code="invalid_value",
            param="antiphon.models",
        )
    return KeyChange(
        name=extras.name,
        role=extras.role,
        models=tuple(models) if isinstance(models, list) else models,
        never_store=extras.never_store,
        run_budget=_nano_dollars(extras.run_budget_usd, "run_budget_usd"),
        max_run_budget=_nano_dollars(extras.max_run_budget_usd, "max_run_budget_usd"),
    )


def _nano_dollars(text: str | UnsetType | None, name: str) -> int | UnsetType | None:
    if not isinstance(text, str):
        return text
    try:
        return read_amount("usd", text)
    except ValueError as error:
        raise invalid(f"antiphon.{name}", str(error)) from None


def _dollars(nano_dollars: int | None) -> str | None:
    return None if nano_dollars is None else dollars_of(nano_dollars)


def as_project_key(
    record: KeyRecord, accounts: dict[str, KeyRecord], value: str | None = None
) -> ProjectKeyObject:
    """Return a key as it is shown; `accounts` are the service accounts of its project."""
    return ProjectKeyObject(
        id=record.id,
        name=record.name,
        created_at=record.created_at,
        last_used_at=record.last_used_at,
        expires_at=record.expires_at,
        redacted_value=redact(record),
        owner=_owner(record, accounts),
        value=msgspec.UNSET if value is None else value,
        antiphon={
            "role": record.role,
            "models": None if record.models is None else list(record.models),
            "never_store": record.never_store,
            "run_budget_usd": _dollars(record.run_budget),
            "max_run_budget_usd": _dollars(record.max_run_budget),
            "previous_until": record.previous_until,
        },
    )


def no_key(key_id: str) -> NotFound:
    """Return the error for a key that is not there."""
    return NotFound(f"No such API key: {key_id}", code="api_key_not_found")


def _owner(record: KeyRecord, accounts: dict[str, KeyRecord]) -> dict[str, Any]:
    if record.user is None:
        return {"type": None}
    if record.user not in accounts:
        user = {"id": record.user, "name": record.user, "role": "member"}
        return {"type": "user", "user": user | {"created_at": record.created_at}}
    first = accounts[record.user]
    account = {"id": record.user, "name": first.name, "role": "member"}
    return {
        "type": "service_account",
        "service_account": account | {"created_at": first.created_at},
    }
