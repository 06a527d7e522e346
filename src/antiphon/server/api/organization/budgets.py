"""/v1/organization/antiphon/budgets: budgets of every scope, unit and period.

A budget in dollars and by the month of the organization or of a project is also its `spend_limit`.
Setting one that exists replaces its amount and keeps its id.
"""

from __future__ import annotations

import secrets
from typing import Final

import msgspec
from aiohttp import web

from antiphon.accounts.amounts import NESTED, amount_of, join_scope, read_amount, split_scope
from antiphon.protocol.errors import NotFound, invalid
from antiphon.protocol.files import DeletedObject
from antiphon.protocol.organization import BudgetObject, PutBudget
from antiphon.server.api.objects import answer_object, read_object
from antiphon.server.api.organization.access import audit_of
from antiphon.server.api.organization.lists import answer_few
from antiphon.server.api.organization.new_keys import in_force
from antiphon.server.api.organization.projects import find_project
from antiphon.server.app import Call, Route
from antiphon.store.base.ledger import SCOPES, Budget, BudgetState, Scope

__all__ = ["ROUTES"]


async def put(call: Call) -> web.StreamResponse:
    """Set a budget; one of the same scope, unit and period is replaced."""
    body = await read_object(call, PutBudget)
    scope_id, engine = await _scope_id(call, body), call.app.engine
    try:
        ceiling = read_amount(body.unit, body.limit)
    except ValueError as error:
        raise invalid("limit", str(error)) from None
    states = await engine.store.ledger.budgets(body.scope, scope_id)
    place = (body.unit, body.period)
    found = next((one for one in states if (one.budget.unit, one.budget.period) == place), None)
    budget = Budget(
        id=found.budget.id if found else f"bud_{secrets.token_hex(8)}",
        scope=body.scope,
        scope_id=scope_id,
        unit=body.unit,
        period=body.period,
        ceiling=ceiling,
        soft=tuple(sorted(set(body.soft))),
        allows_unpriced=body.allows_unpriced,
        created_at=found.budget.created_at if found else engine.now(),
    )
    project, _ = split_scope(budget.scope, budget.scope_id)
    requested = msgspec.to_builtins(body)
    audit = audit_of(call, "budget.updated", budget.id, project, {"changes_requested": requested})
    state = await engine.store.ledger.put_budget(budget, audit=audit)
    return answer_object(call, _as_object(state))


async def list_budgets(call: Call) -> web.StreamResponse:
    """Return a page of budgets as they stand now, oldest first."""
    scope = call.request.query.get("scope")
    if scope not in {None, *SCOPES}:
        raise invalid("scope", f"must be one of {', '.join(SCOPES)}")
    wanted: Scope | None = next((one for one in SCOPES if one == scope), None)
    found = await call.app.engine.store.ledger.budgets(wanted)
    project = call.request.query.get("project_id")
    shown = [one for one in map(_as_object, found) if project in {None, one.project_id}]
    return answer_few(call, shown, lambda one: one, also=frozenset({"scope", "project_id"}))


async def retrieve(call: Call) -> web.StreamResponse:
    """Return a budget as it stands now."""
    return answer_object(call, _as_object(await _find(call)))


async def delete(call: Call) -> web.StreamResponse:
    """Remove a budget."""
    shown = _as_object(await _find(call))
    audit = audit_of(call, "budget.deleted", shown.id, shown.project_id)
    await call.app.engine.store.ledger.delete_budget(shown.id, audit=audit)
    return answer_object(
        call, DeletedObject(id=shown.id, object="organization.antiphon.budget.deleted")
    )


async def _scope_id(call: Call, body: PutBudget) -> str:
    """Return the scope in the ledger. Raise NotFound if its project or key is not there."""
    name, scope = body.scope_id, body.scope
    if scope == "organization":
        if name is not None or body.project_id is not None:
            raise invalid("scope_id", "must be left out: there is one organization")
        return join_scope(scope, "", None)
    if name is None:
        raise invalid("scope_id", "is missing", "missing_required_parameter")
    if scope not in NESTED and body.project_id is not None:
        raise invalid("project_id", f"must be left out with the scope {scope}")
    if scope == "project":
        await find_project(call, name, "scope_id")
    elif scope == "key":
        key = await call.app.engine.store.find_key(name)
        if key is None or not in_force(key):
            raise NotFound(f"No such API key: {name}", code="api_key_not_found", param="scope_id")
    elif body.project_id is None:
        raise invalid("project_id", "is missing", "missing_required_parameter")
    else:
        await find_project(call, body.project_id, "project_id")
    return join_scope(scope, name, body.project_id)


async def _find(call: Call) -> BudgetState:
    states = await call.app.engine.store.ledger.budgets()
    for state in states:
        if state.budget.id == call.path_id:
            return state
    raise NotFound(f"No such budget: {call.path_id}", code="budget_not_found")


def _as_object(state: BudgetState) -> BudgetObject:
    budget = state.budget
    project, name = split_scope(budget.scope, budget.scope_id)
    left = max(0, budget.ceiling - state.spent - state.held)
    return BudgetObject(
        id=budget.id,
        scope=budget.scope,
        scope_id=name,
        project_id=project,
        unit=budget.unit,
        period=budget.period,
        limit=amount_of(budget.unit, budget.ceiling),
        spent=amount_of(budget.unit, state.spent),
        held=amount_of(budget.unit, state.held),
        remaining=amount_of(budget.unit, left),
        period_start=state.period_start,
        soft=list(budget.soft),
        allows_unpriced=budget.allows_unpriced,
        created_at=budget.created_at,
    )


_ALL: Final = "/v1/organization/antiphon/budgets"
_ONE: Final = f"{_ALL}/{{id}}"
ROUTES: Final = [
    Route("GET", _ALL, list_budgets),
    Route("POST", _ALL, put),
    Route("GET", _ONE, retrieve),
    Route("DELETE", _ONE, delete),
]
