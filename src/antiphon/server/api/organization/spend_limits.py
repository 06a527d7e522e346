"""…/spend_limit of the organization and of a project: what may be spent in a month.

It is the budget in dollars and by the month of that scope; other budgets are under
`/v1/organization/antiphon/budgets`. Its status is `enforcing` while nothing is left of it.
"""

from __future__ import annotations

import secrets
from typing import Final, Literal

from aiohttp import web

from antiphon.accounts.amounts import CENT
from antiphon.models.prices import dollars_of
from antiphon.protocol.errors import NotFound
from antiphon.protocol.organization import SpendLimitObject, UpdateSpendLimit
from antiphon.server.api.objects import answer_object, read_object
from antiphon.server.api.organization.access import audit_of
from antiphon.server.api.organization.projects import find_project
from antiphon.server.app import Call, Route
from antiphon.store.base.ledger import ORGANIZATION, Budget, BudgetState

__all__ = ["ROUTES"]


async def retrieve(call: Call) -> web.StreamResponse:
    """Return the limit."""
    return answer_object(call, _as_object(_known(await _find(call)), _scope(call)))


async def update(call: Call) -> web.StreamResponse:
    """Set the limit."""
    body = await read_object(call, UpdateSpendLimit)
    found, engine = await _find(call), call.app.engine
    scope = _scope(call)
    budget = Budget(
        id=found.budget.id if found else f"bud_{secrets.token_hex(8)}",
        scope=scope,
        scope_id=_scope_id(call),
        ceiling=body.threshold_amount * CENT,
        soft=found.budget.soft if found else (),
        allows_unpriced=found.budget.allows_unpriced if found else False,
        created_at=found.budget.created_at if found else engine.now(),
    )
    requested = {"threshold_amount": body.threshold_amount, "currency": "USD", "interval": "month"}
    audit = audit_of(
        call, "spend_limit.updated", budget.id, _project(call), {"changes_requested": requested}
    )
    state = await engine.store.ledger.put_budget(budget, audit=audit)
    return answer_object(call, _as_object(state, scope))


async def delete(call: Call) -> web.StreamResponse:
    """Remove the limit."""
    state = _known(await _find(call))
    audit = audit_of(call, "spend_limit.deleted", state.budget.id, _project(call))
    await call.app.engine.store.ledger.delete_budget(state.budget.id, audit=audit)
    name = f"{_scope(call)}.spend_limit.deleted"
    return call.json(f'{{"object":"{name}","deleted":true}}'.encode())


async def _find(call: Call) -> BudgetState | None:
    """Return the budget in dollars and by the month of the scope, if there is one."""
    if _scope(call) == "project":
        await find_project(call, call.path_id)
    states = await call.app.engine.store.ledger.budgets(_scope(call), _scope_id(call))
    monthly = (one for one in states if (one.budget.unit, one.budget.period) == ("usd", "month"))
    return next(monthly, None)


def _known(state: BudgetState | None) -> BudgetState:
    if state is None:
        raise NotFound("there is no spend limit here", code="spend_limit_not_found")
    return state


def _scope(call: Call) -> Literal["organization", "project"]:
    return "project" if call.path_id else "organization"


def _scope_id(call: Call) -> str:
    return call.path_id or ORGANIZATION


def _project(call: Call) -> str | None:
    return call.path_id or None


def _as_object(state: BudgetState, scope: Literal["organization", "project"]) -> SpendLimitObject:
    ceiling, used = state.budget.ceiling, state.spent + state.held
    return SpendLimitObject(
        object="project.spend_limit" if scope == "project" else "organization.spend_limit",
        threshold_amount=ceiling // CENT,
        enforcement={"status": "enforcing" if used >= ceiling else "inactive"},
        antiphon={
            "id": state.budget.id,
            "limit": dollars_of(ceiling),
            "spent": dollars_of(state.spent),
            "held": dollars_of(state.held),
        },
    )


ROUTES: Final = [
    Route(method, path, handler)
    for path in (
        "/v1/organization/spend_limit",
        "/v1/organization/projects/{id}/spend_limit",
    )
    for method, handler in (("GET", retrieve), ("POST", update), ("DELETE", delete))
]
