"""Which budgets and rate limits are set in PostgreSQL, and does one apply to a payer?

A budget is set while no other transaction changes charges or budgets (see `ledger_locks`): what
was spent and is held is counted once. A function gets a connection inside a transaction.
"""

from __future__ import annotations

from typing import Final

import msgspec

from antiphon.store.base.ledger import Budget, RateLimit
from antiphon.store.known_limits import KnownLimits
from antiphon.store.ledger_rows import BUDGET_COLUMNS, HELD, budget_row
from antiphon.store.ledger_rules import NO_LINKS, BudgetRow, Links, decode_links, period_start
from antiphon.store.postgres.database import Connection
from antiphon.store.postgres.ledger_locks import close_gate
from antiphon.store.postgres.ledger_names import NOW, condition_of
from antiphon.store.postgres.ledger_used import used_in
from antiphon.store.postgres.ledger_writes import insert_budgets, update_links

__all__ = [
    "delete_budget",
    "delete_limit",
    "has_run_budget",
    "mark_change",
    "put_budget",
    "put_limit",
    "read_limits",
]

_PLACE: Final = "scope = $1 AND scope_id = $2 AND unit = $3 AND period = $4"
_FIND: Final = f"SELECT {', '.join(BUDGET_COLUMNS)} FROM budgets WHERE {_PLACE}"  # noqa: S608
_MOVED: Final = f"DELETE FROM budgets WHERE id = $5 AND NOT ({_PLACE})"  # noqa: S608 # constants
_REPLACE: Final = """
    UPDATE budgets SET id = $2, ceiling = $3, soft = $4, allows_unpriced = $5, created_at = $6,
        period_start = $7, spent = $8, held = $9, excess = $10 WHERE key = $1
"""
_LIMIT_MOVED: Final = """
    DELETE FROM rate_limits
    WHERE id = $1 AND NOT (scope = $2 AND scope_id = $3 AND model = $4)
"""
_PUT_LIMIT: Final = """
    INSERT INTO rate_limits
        (id, scope, scope_id, model, requests, tokens, concurrent, tat_requests, tat_tokens)
    VALUES ($1, $2, $3, $4, $5, $6, $7, 0, 0)
    ON CONFLICT (scope, scope_id, model) DO UPDATE SET id = excluded.id,
        requests = excluded.requests, tokens = excluded.tokens, concurrent = excluded.concurrent
"""
_MARK: Final = """
    INSERT INTO ledger_marks VALUES ('version', 1)
    ON CONFLICT (name) DO UPDATE SET value = ledger_marks.value + 1
"""
_STATE: Final = """
    SELECT coalesce((SELECT value FROM ledger_marks WHERE name = 'version'), 0),
        EXISTS (SELECT 1 FROM budgets WHERE scope = 'run')
"""
_OF_RUN: Final = "SELECT TRUE FROM budgets WHERE scope = 'run' AND scope_id = $1 LIMIT 1"


async def read_limits(connection: Connection, known: KnownLimits) -> KnownLimits:
    """Return what is set now; `known` is what was set before."""
    version, has_runs = await connection.fetchrow(_STATE)
    if version == known.version:
        return msgspec.structs.replace(known, has_runs=has_runs)
    # In another order, a budget that is set between the two would be known as read, but is not.
    budgets = await connection.fetch("SELECT scope, scope_id FROM budgets WHERE scope <> 'run'")
    limits = await connection.fetch("SELECT scope, scope_id, model FROM rate_limits")
    return KnownLimits(
        version, has_runs, frozenset(map(tuple, budgets)), frozenset(map(tuple, limits))
    )


async def has_run_budget(connection: Connection, scope_id: str) -> bool:
    """Return whether a run has a budget."""
    return bool(await connection.fetchval(_OF_RUN, scope_id))


async def put_budget(connection: Connection, budget: Budget, now: float | None) -> BudgetRow:
    """Set a budget; what was spent in this period and is held now counts."""
    await close_gate(connection)
    time = await connection.fetchval(f"SELECT {NOW}") if now is None else now
    place = (budget.scope, budget.scope_id, budget.unit, budget.period)
    await connection.execute(_MOVED, *place, budget.id)
    found = await connection.fetchrow(_FIND, *place)
    if found is None:
        row = await _new_budget(connection, budget, time)
    else:
        row = budget_row(tuple(found))
        row.roll(time)
        row.set_ceiling(budget)
        await connection.execute(
            _REPLACE,
            row.key,
            budget.id,
            budget.ceiling,
            msgspec.json.encode(budget.soft).decode(),
            int(budget.allows_unpriced),
            budget.created_at,
            row.period_start,
            row.spent,
            row.held,
            row.excess,
        )
    await mark_change(connection)
    return row


async def _new_budget(connection: Connection, budget: Budget, now: float) -> BudgetRow:
    """Insert a budget. Open charges in its scope are held against it."""
    start = period_start(budget.period, now)
    condition = await condition_of(connection, budget.scope, budget.scope_id)
    row = BudgetRow(0, budget, start, *await used_in(connection, budget, condition, start))
    row.set_ceiling(budget)
    await insert_budgets(connection, [row])
    held = await connection.fetch(
        f"SELECT key, links FROM charges WHERE state = {HELD} AND {condition}"  # noqa: S608
        " AND reserved_at >= $1 ORDER BY key FOR UPDATE",
        start * 1000,
    )
    changed = []
    for key, packed in held:
        links = decode_links(packed) if packed else NO_LINKS
        changed.append((key, Links((*links.budgets, (row.key, start)), links.tokens)))
    await update_links(connection, changed)
    return row


async def delete_budget(connection: Connection, budget_id: str) -> bool:
    """Remove a budget; return whether there was one. Held charges may still name it."""
    await close_gate(connection)
    found = await connection.fetch("DELETE FROM budgets WHERE id = $1 RETURNING key", budget_id)
    await mark_change(connection)
    return bool(found)


async def put_limit(connection: Connection, limit: RateLimit) -> bool:
    """Set a rate limit. What was used of one that is replaced stays used."""
    await close_gate(connection)
    place = (limit.id, limit.scope, limit.scope_id, limit.model)
    await connection.execute(_LIMIT_MOVED, *place)
    await connection.execute(_PUT_LIMIT, *place, limit.requests, limit.tokens, limit.concurrent)
    await mark_change(connection)
    return True


async def delete_limit(connection: Connection, limit_id: str) -> bool:
    """Remove a rate limit; return whether there was one."""
    await close_gate(connection)
    found = await connection.fetch("DELETE FROM rate_limits WHERE id = $1 RETURNING key", limit_id)
    await mark_change(connection)
    return bool(found)


async def mark_change(connection: Connection) -> None:
    """Let every store read budgets and limits again."""
    await connection.execute(_MARK)
