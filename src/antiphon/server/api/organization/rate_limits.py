"""/v1/organization/projects/{id}/rate_limits: how much a project may ask for in a minute.

The id of a limit is `rl-` and the name of the model, and `rl-*` is about all models together.
OpenAI lists a limit for every model; here only those are listed that were set. A limit that is
null does not exist. Finer limits, such as those of a key, are set with `antiphon limits`.
"""

from __future__ import annotations

import secrets
from typing import Final

import msgspec
from aiohttp import web

from antiphon.protocol.errors import NotFound, invalid
from antiphon.protocol.files import DeletedObject
from antiphon.protocol.organization import RateLimitExtras, RateLimitObject, UpdateRateLimit
from antiphon.server.api.objects import answer_object, read_object
from antiphon.server.api.organization.access import audit_of
from antiphon.server.api.organization.lists import answer_few
from antiphon.server.api.organization.projects import find_project
from antiphon.server.app import Call, Route
from antiphon.store.base.ledger import RateLimit

__all__ = ["ROUTES"]

_PREFIX: Final = "rl-"
_EVERY_MODEL: Final = "*"


async def list_limits(call: Call) -> web.StreamResponse:
    """Return the limits of a project."""
    await find_project(call, call.path_id)
    found = await call.app.engine.store.ledger.rate_limits("project", call.path_id)
    return answer_few(call, found, _as_object, default=100)


async def update(call: Call) -> web.StreamResponse:
    """Set a limit of a project. What the request leaves out stays."""
    body = await read_object(call, UpdateRateLimit)
    await find_project(call, call.path_id)
    model = _model(call)
    found = await _find(call, model)
    new = RateLimit(
        id=f"rl_{secrets.token_hex(8)}", scope="project", scope_id=call.path_id, model=model
    )
    limit = _changed(found or new, body)
    if limit.requests is limit.tokens is limit.concurrent is None:
        raise invalid("max_requests_per_1_minute", "or another limit must be set; else DELETE it")
    ledger = call.app.engine.store.ledger
    await ledger.put_limit(limit)
    shown = _as_object(limit)
    requested = msgspec.to_builtins(body)
    audit = audit_of(
        call, "rate_limit.updated", shown.id, call.path_id, {"changes_requested": requested}
    )
    await call.app.engine.store.audit.append(audit)
    return answer_object(call, shown)


async def delete(call: Call) -> web.StreamResponse:
    """Remove a limit of a project."""
    found = await _find(call, _model(call))
    if found is None or not await call.app.engine.store.ledger.delete_limit(found.id):
        raise NotFound(f"No such rate limit: {call.item_id}", code="rate_limit_not_found")
    audit = audit_of(call, "rate_limit.deleted", call.item_id, call.path_id)
    await call.app.engine.store.audit.append(audit)
    return answer_object(call, DeletedObject(id=call.item_id, object="project.rate_limit.deleted"))


async def _find(call: Call, model: str) -> RateLimit | None:
    """Return the limit of the project for a model, if there is one."""
    limits = await call.app.engine.store.ledger.rate_limits("project", call.path_id)
    return next((limit for limit in limits if limit.model == model), None)


def _model(call: Call) -> str:
    """Return the model that the id in the path is about; empty for all of them."""
    model = call.item_id.removeprefix(_PREFIX)
    if model == call.item_id or not model:
        raise NotFound(
            f"No such rate limit: {call.item_id}; the id is rl- and a model, or rl-*",
            code="rate_limit_not_found",
        )
    return "" if model == _EVERY_MODEL else model


def _changed(limit: RateLimit, body: UpdateRateLimit) -> RateLimit:
    if body.max_requests_per_1_minute is not msgspec.UNSET:
        limit = msgspec.structs.replace(limit, requests=body.max_requests_per_1_minute)
    if body.max_tokens_per_1_minute is not msgspec.UNSET:
        limit = msgspec.structs.replace(limit, tokens=body.max_tokens_per_1_minute)
    if body.antiphon is not None:
        concurrent = body.antiphon.max_concurrent_requests
        limit = msgspec.structs.replace(limit, concurrent=concurrent)
    return limit


def _as_object(limit: RateLimit) -> RateLimitObject:
    model = limit.model or _EVERY_MODEL
    return RateLimitObject(
        id=f"{_PREFIX}{model}",
        model=model,
        max_requests_per_1_minute=limit.requests,
        max_tokens_per_1_minute=limit.tokens,
        antiphon=RateLimitExtras(id=limit.id, max_concurrent_requests=limit.concurrent),
    )


_ALL: Final = "/v1/organization/projects/{id}/rate_limits"
_ONE: Final = f"{_ALL}/{{item}}"
ROUTES: Final = [
    Route("GET", _ALL, list_limits),
    Route("POST", _ONE, update),
    Route("DELETE", _ONE, delete),
]
