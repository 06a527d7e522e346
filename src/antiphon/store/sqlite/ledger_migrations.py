"""The tables of the ledger in SQLite.

`names` gives every name that charges repeat a number. A charge is held while `state` is 0, and
has a `writer` and `links` only then. There are no NULLs in the key of `usage_sums`: 0 is no name.
Its rows with a negative width are totals, which are not by key, user or project (`ledger_sums`).
`ledger_marks` has the time before which charges may have been swept, and that before which there
are totals, in seconds, the version of budgets and limits, which grows with every change of them,
and the thresholds of budgets that were reported.
"""

from __future__ import annotations

from typing import Final

__all__ = ["LEDGER"]

LEDGER: Final[tuple[str, ...]] = (
    """CREATE TABLE names (
        key INTEGER PRIMARY KEY,
        name TEXT NOT NULL UNIQUE
    )""",
    """CREATE TABLE charges (
        key INTEGER PRIMARY KEY,
        response BLOB NOT NULL,
        number INTEGER NOT NULL,
        state INTEGER NOT NULL,
        writer INTEGER,
        project INTEGER NOT NULL,
        api_key INTEGER,
        user_id INTEGER,
        conversation INTEGER,
        run INTEGER,
        kind INTEGER NOT NULL,
        model INTEGER NOT NULL,
        served INTEGER NOT NULL,
        provider INTEGER NOT NULL,
        price INTEGER,
        is_request INTEGER NOT NULL,
        reserved_at INTEGER NOT NULL,
        held_fresh INTEGER NOT NULL,
        held_cached INTEGER NOT NULL,
        held_cache_write INTEGER NOT NULL,
        held_output INTEGER NOT NULL,
        held_reasoning INTEGER NOT NULL,
        held_cost INTEGER,
        settled_at INTEGER,
        fresh INTEGER,
        cached INTEGER,
        cache_write INTEGER,
        output INTEGER,
        reasoning INTEGER,
        cost INTEGER,
        basis INTEGER,
        outcome INTEGER,
        first_ms INTEGER,
        total_ms INTEGER,
        links BLOB,
        items BLOB,
        UNIQUE (response, number)
    )""",
    "CREATE INDEX charges_by_time ON charges (reserved_at)",
    "CREATE INDEX charges_by_project ON charges (project, reserved_at)",
    "CREATE INDEX charges_by_conversation ON charges (conversation) WHERE conversation IS NOT NULL",
    "CREATE INDEX charges_by_run ON charges (run) WHERE run IS NOT NULL",
    "CREATE INDEX charges_held ON charges (writer) WHERE state = 0",
    """CREATE TABLE budgets (
        key INTEGER PRIMARY KEY AUTOINCREMENT,
        id TEXT NOT NULL UNIQUE,
        scope TEXT NOT NULL,
        scope_id TEXT NOT NULL,
        unit TEXT NOT NULL,
        period TEXT NOT NULL,
        ceiling INTEGER NOT NULL,
        soft TEXT NOT NULL,
        allows_unpriced INTEGER NOT NULL,
        created_at INTEGER NOT NULL,
        period_start INTEGER NOT NULL,
        spent INTEGER NOT NULL,
        held INTEGER NOT NULL,
        excess INTEGER NOT NULL,
        UNIQUE (scope, scope_id, unit, period)
    )""",
    """CREATE TABLE rate_limits (
        key INTEGER PRIMARY KEY AUTOINCREMENT,
        id TEXT NOT NULL UNIQUE,
        scope TEXT NOT NULL,
        scope_id TEXT NOT NULL,
        model TEXT NOT NULL,
        requests INTEGER,
        tokens INTEGER,
        concurrent INTEGER,
        tat_requests INTEGER NOT NULL,
        tat_tokens INTEGER NOT NULL,
        UNIQUE (scope, scope_id, model)
    )""",
    """CREATE TABLE usage_sums (
        width INTEGER NOT NULL,
        start INTEGER NOT NULL,
        project INTEGER NOT NULL,
        api_key INTEGER NOT NULL,
        user_id INTEGER NOT NULL,
        model INTEGER NOT NULL,
        provider INTEGER NOT NULL,
        kind INTEGER NOT NULL,
        basis INTEGER NOT NULL,
        outcome INTEGER NOT NULL,
        charges INTEGER NOT NULL,
        requests INTEGER NOT NULL,
        fresh INTEGER NOT NULL,
        cached INTEGER NOT NULL,
        cache_write INTEGER NOT NULL,
        output INTEGER NOT NULL,
        reasoning INTEGER NOT NULL,
        cost INTEGER NOT NULL,
        unpriced INTEGER NOT NULL,
        PRIMARY KEY (width, start, project, api_key, user_id, model, provider, kind, basis, outcome)
    ) WITHOUT ROWID""",
    """CREATE TABLE ledger_marks (
        name TEXT PRIMARY KEY,
        value INTEGER NOT NULL
    ) WITHOUT ROWID""",
)
