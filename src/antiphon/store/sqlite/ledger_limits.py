"""Which budgets and rate limits are set in SQLite, and does one apply to a payer?

A function gets a connection inside a transaction, which the caller begins and commits.
"""

from __future__ import annotations

import sqlite3
from typing import Final

import msgspec

from antiphon.store.base.ledger import Budget, RateLimit
from antiphon.store.known_limits import KnownLimits
from antiphon.store.ledger_rows import budget_row
from antiphon.store.ledger_rules import BudgetRow, period_start
from antiphon.store.sqlite.ledger_books import (
    SELECT_BUDGETS,
    mark_change,
    used_of,
    write_budget,
)

__all__ = [
    "delete_budget",
    "delete_limit",
    "has_run_budget",
    "put_budget",
    "put_limit",
    "read_limits",
]

_PLACE: Final = "scope = ? AND scope_id = ? AND unit = ? AND period = ?"
_FIND: Final = f"{SELECT_BUDGETS} budgets WHERE {_PLACE}"
_MOVED: Final = f"DELETE FROM budgets WHERE id = ? AND NOT ({_PLACE})"  # noqa: S608 # constants
_PUT_LIMIT: Final = """
    INSERT INTO rate_limits
        (id, scope, scope_id, model, requests, tokens, concurrent, tat_requests, tat_tokens)
    VALUES (?, ?, ?, ?, ?, ?, ?, 0, 0)
    ON CONFLICT (scope, scope_id, model) DO UPDATE SET id = excluded.id,
        requests = excluded.requests, tokens = excluded.tokens, concurrent = excluded.concurrent
"""
_STATE: Final = """
    SELECT ifnull((SELECT value FROM ledger_marks WHERE name = 'version'), 0),
        EXISTS (SELECT 1 FROM budgets WHERE scope = 'run')
"""
_OF_RUN: Final = "SELECT 1 FROM budgets WHERE scope = 'run' AND scope_id = ? LIMIT 1"


def read_limits(connection: sqlite3.Connection, known: KnownLimits) -> KnownLimits:
    """Return what is set now; `known` is what was set before."""
    version, has_runs = connection.execute(_STATE).fetchone()
    if version == known.version:
        return msgspec.structs.replace(known, has_runs=bool(has_runs))
    budgets = connection.execute("SELECT scope, scope_id FROM budgets WHERE scope <> 'run'")
    limits = connection.execute("SELECT scope, scope_id, model FROM rate_limits")
    return KnownLimits(version, bool(has_runs), frozenset(budgets), frozenset(limits))


def has_run_budget(connection: sqlite3.Connection, scope_id: str) -> bool:
    """Return whether a run has a budget."""
    return connection.execute(_OF_RUN, (scope_id,)).fetchone() is not None


def put_budget(connection: sqlite3.Connection, budget: Budget, now: float) -> BudgetRow:
    """Set a budget; what was spent in this period and is held now counts."""
    place = (budget.scope, budget.scope_id, budget.unit, budget.period)
    connection.execute(_MOVED, (budget.id, *place))
    found = connection.execute(_FIND, place).fetchone()
    if found is None:
        start = period_start(budget.period, now)
        used = used_of(connection, budget.scope, budget.scope_id, budget.unit, start)
        row = BudgetRow(0, budget, start, *used)
    else:
        row = budget_row(found)
        row.roll(now)
    row.set_ceiling(budget)
    write_budget(connection, row)
    mark_change(connection)
    return row


def delete_budget(connection: sqlite3.Connection, budget_id: str) -> bool:
    """Remove a budget; return whether there was one. Held charges may still name it."""
    mark_change(connection)
    return connection.execute("DELETE FROM budgets WHERE id = ?", (budget_id,)).rowcount > 0


def put_limit(connection: sqlite3.Connection, limit: RateLimit) -> bool:
    """Set a rate limit. What was used of one that is replaced stays used."""
    place = (limit.scope, limit.scope_id, limit.model)
    connection.execute(
        "DELETE FROM rate_limits WHERE id = ? AND NOT (scope = ? AND scope_id = ? AND model = ?)",
        (limit.id, *place),
    )
    connection.execute(
        _PUT_LIMIT, (limit.id, *place, limit.requests, limit.tokens, limit.concurrent)
    )
    mark_change(connection)
    return True


def delete_limit(connection: sqlite3.Connection, limit_id: str) -> bool:
    """Remove a rate limit; return whether there was one."""
    mark_change(connection)
    return connection.execute("DELETE FROM rate_limits WHERE id = ?", (limit_id,)).rowcount > 0
