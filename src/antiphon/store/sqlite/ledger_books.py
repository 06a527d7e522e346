"""How do the pure rules of the ledger get their rows in SQLite, and where do the changes go?

A function gets a connection inside a transaction, which the caller begins and commits.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Sequence
from typing import Final

from antiphon.store.base.ledger import Budget, Reservation, Scope, Unit
from antiphon.store.ledger_rows import (
    BUDGET_COLUMNS,
    LIMIT_COLUMNS,
    budget_row,
    limit_row,
    to_millis,
    unpack_id,
)
from antiphon.store.ledger_rules import (
    Books,
    BudgetRow,
    LimitRow,
    Links,
    decode_links,
    encode_links,
)
from antiphon.store.sqlite.ledger_names import scope_condition

__all__ = [
    "SELECT_BUDGETS",
    "SELECT_LIMITS",
    "load_books",
    "load_linked",
    "mark_change",
    "used_of",
    "write_books",
    "write_budget",
]

_BUDGET: Final = ", ".join(f"budgets.{name}" for name in BUDGET_COLUMNS)
_LIMIT: Final = ", ".join(f"rate_limits.{name}" for name in LIMIT_COLUMNS)
SELECT_BUDGETS: Final = f"SELECT {_BUDGET} FROM "  # noqa: S608 # constants
SELECT_LIMITS: Final = f"SELECT {_LIMIT} FROM "  # noqa: S608 # constants
_ARE_THERE: Final = "SELECT EXISTS (SELECT 1 FROM budgets), EXISTS (SELECT 1 FROM rate_limits)"
_IN_SCOPE: Final = """
    json_each(?) AS place CROSS JOIN {0} ON {0}.scope = json_extract(place.value, '$[0]')
        AND {0}.scope_id = json_extract(place.value, '$[1]') ORDER BY {0}.key
"""
_BUDGETS_IN: Final = SELECT_BUDGETS + _IN_SCOPE.format("budgets")
_LIMITS_IN: Final = SELECT_LIMITS + _IN_SCOPE.format("rate_limits")
_WITH_KEY: Final = " WHERE key IN (SELECT value FROM json_each(?))"
_BUDGETS_OF: Final = f"{SELECT_BUDGETS} budgets {_WITH_KEY}"
_LIMITS_OF: Final = f"{SELECT_LIMITS} rate_limits {_WITH_KEY}"
_INSERT: Final = (
    f"INSERT INTO budgets ({', '.join(BUDGET_COLUMNS[1:])})"  # noqa: S608 # constants
    f" VALUES ({', '.join('?' * (len(BUDGET_COLUMNS) - 1))})"
)
_UPDATE: Final = """
    UPDATE budgets SET id = ?, ceiling = ?, soft = ?, allows_unpriced = ?, created_at = ?,
        period_start = ?, spent = ?, held = ?, excess = ? WHERE key = ?
"""
_UPDATE_SUMS: Final = """
    UPDATE budgets SET ceiling = ?, period_start = ?, spent = ?, held = ?, excess = ?
    WHERE key = ?
"""
_UPDATE_LIMIT: Final = "UPDATE rate_limits SET tat_requests = ?, tat_tokens = ? WHERE key = ?"
_OPEN: Final = "charges INDEXED BY charges_held WHERE state = 0"
_TOKENS: Final = "fresh + cached + cache_write + output + reasoning"
_HELD_TOKENS: Final = "held_fresh + held_cached + held_cache_write + held_output + held_reasoning"
_MARK: Final = (
    "INSERT INTO ledger_marks VALUES ('version', 1)"
    " ON CONFLICT (name) DO UPDATE SET value = value + 1"
)
_DAY: Final = 86_400


def load_books(
    connection: sqlite3.Connection, now: float, wanted: Sequence[Reservation]
) -> Books | None:
    """Return the budgets and limits that apply to these; None if there are none at all."""
    ceilings = [one for one in wanted if one.limits_run]
    if not ceilings and not any(connection.execute(_ARE_THERE).fetchone()):
        return None
    scopes = {scope for one in wanted for scope in one.payer.scope_ids().items()}
    places = (json.dumps(sorted(scopes)),)
    budgets = [budget_row(row) for row in connection.execute(_BUDGETS_IN, places)]
    limits = [limit_row(row) for row in connection.execute(_LIMITS_IN, places)]
    for row in limits:
        if row.limit.concurrent is not None:
            row.running = _running(connection, row)
    runs = {}
    for run in {one.payer.scope_ids()["run"] for one in ceilings}:
        runs[run] = used_of(connection, "run", run, "usd", 0)
    return Books(now, budgets, limits, runs)


def load_linked(connection: sqlite3.Connection, now: float, links: Iterable[Links]) -> Books:
    """Return the budgets and limits that charges are held against."""
    found = list(links)
    budgets = sorted({key for one in found for key, _ in one.budgets})
    limits = sorted({key for one in found for key, _ in one.tokens})
    return Books(
        now,
        [budget_row(row) for row in connection.execute(_BUDGETS_OF, (json.dumps(budgets),))],
        [limit_row(row) for row in connection.execute(_LIMITS_OF, (json.dumps(limits),))],
    )


def write_books(connection: sqlite3.Connection, books: Books) -> None:
    """Write what has changed. A budget that is new gets its key."""
    changed = books.changed_budgets()
    for row in changed:
        if not row.key:
            write_budget(connection, row)
    connection.executemany(
        _UPDATE_SUMS,
        [
            (row.budget.ceiling, row.period_start, row.spent, row.held, row.excess, row.key)
            for row in changed
        ],
    )
    connection.executemany(
        _UPDATE_LIMIT,
        [(row.tat_requests, row.tat_tokens, row.key) for row in books.changed_limits()],
    )


def write_budget(connection: sqlite3.Connection, row: BudgetRow) -> None:
    """Store a budget. Open charges in the scope of a new one are held against it."""
    budget = row.budget
    soft = json.dumps(budget.soft)
    state = (row.period_start, row.spent, row.held, row.excess)
    if row.key:
        head = (budget.id, budget.ceiling, soft, budget.allows_unpriced, budget.created_at)
        connection.execute(_UPDATE, (*head, *state, row.key))
        return
    place = (budget.scope, budget.scope_id, budget.unit, budget.period)
    more = (budget.ceiling, soft, budget.allows_unpriced, budget.created_at)
    row.key = connection.execute(_INSERT, (budget.id, *place, *more, *state)).lastrowid or 0
    _link(connection, budget, row)


def used_of(
    connection: sqlite3.Connection, scope: Scope, scope_id: str, unit: Unit, start: int
) -> tuple[int, int]:
    """Return what charges of a scope have spent, and hold, since this time.

    It is the beginning of a period. The sums also have what was swept, but not of every scope.
    """
    condition, values = scope_condition(connection, scope, scope_id)
    held = "coalesce(held_cost, 0)" if unit == "usd" else _HELD_TOKENS
    used = "coalesce(cost, 0)" if unit == "usd" else _TOKENS
    since = to_millis(start)
    (holds,) = connection.execute(
        f"SELECT coalesce(sum({held}), 0) FROM {_OPEN} AND reserved_at >= ? AND {condition}",  # noqa: S608 # constants
        (since, *values),
    ).fetchone()
    if scope in {"conversation", "run"}:
        question = "FROM charges WHERE state = 1 AND reserved_at >= ?"
        more: tuple[int, ...] = (since,)
    else:
        question, more = "FROM usage_sums WHERE width = ? AND start >= ?", (_DAY, start)
    (spent,) = connection.execute(
        f"SELECT coalesce(sum({used}), 0) {question} AND {condition}",
        (*more, *values),
    ).fetchone()
    return spent, holds


def mark_change(connection: sqlite3.Connection) -> None:
    """Let every store read budgets and limits again."""
    connection.execute(_MARK)


def _running(connection: sqlite3.Connection, row: LimitRow) -> set[str]:
    limit = row.limit
    condition, values = scope_condition(connection, limit.scope, limit.scope_id)
    more: tuple[str, ...] = ()
    if limit.model:
        condition += " AND model = (SELECT key FROM names WHERE name = ?)"
        more = (limit.model,)
    rows = connection.execute(
        f"SELECT DISTINCT response FROM {_OPEN} AND {condition}",  # noqa: S608 # constants
        (*values, *more),
    )
    return {unpack_id(response) for (response,) in rows}


def _link(connection: sqlite3.Connection, budget: Budget, row: BudgetRow) -> None:
    """Hold the open charges of a scope against its new budget."""
    condition, values = scope_condition(connection, budget.scope, budget.scope_id)
    rows = connection.execute(
        f"SELECT key, links FROM {_OPEN} AND reserved_at >= ? AND {condition}",  # noqa: S608 # constants
        (to_millis(row.period_start), *values),
    ).fetchall()
    link = (row.key, row.period_start)
    changes = []
    for key, packed in rows:
        known = Links() if packed is None else decode_links(packed)
        changes.append((encode_links(Links((*known.budgets, link), known.tokens)), key))
    connection.executemany("UPDATE charges SET links = ? WHERE key = ?", changes)
