"""What becomes of charges in SQLite whose writer has died, and of old ones?

A charge of an unfinished response goes with it to the store that claims it. All others are
settled with what was held. A function gets a connection inside a transaction, which the caller
begins and commits.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from typing import Final

from antiphon.protocol.token_counts import TokenCounts
from antiphon.store.base.ledger import Settlement
from antiphon.store.ledger_rows import pack_id, to_millis, unpack_id
from antiphon.store.ledger_rules import RUN_PREFIX, assume
from antiphon.store.sqlite.ledger_books import mark_change
from antiphon.store.sqlite.ledger_names import intern_names, scope_condition
from antiphon.store.sqlite.ledger_writing import settle_charges

__all__ = ["claim_charges", "dead_writers", "settle_dead", "sweep_charges"]

_WRITERS: Final = """
    SELECT name FROM names WHERE key IN (SELECT DISTINCT writer FROM charges WHERE state = 0)
"""
_OF_WRITER: Final = """
    SELECT response, number, names.name, reserved_at, held_fresh, held_cached,
        held_cache_write, held_output, held_reasoning, held_cost
    FROM charges INDEXED BY charges_held JOIN names ON names.key = charges.project
    WHERE state = 0 AND writer = (SELECT key FROM names WHERE name = ?) ORDER BY reserved_at
"""
_IS_UNFINISHED: Final = "SELECT 1 FROM responses WHERE owner = ? AND id = ? AND writer IS NOT NULL"
_CLAIM: Final = "UPDATE charges SET writer = ? WHERE response = ? AND state = 0"
_SWEEP: Final = """
    DELETE FROM charges WHERE key IN (
        SELECT key FROM charges INDEXED BY charges_by_time
        WHERE reserved_at < ? AND state <> 0 ORDER BY reserved_at LIMIT ?)
"""
_MARK: Final = (
    "INSERT INTO ledger_marks VALUES ('swept_before', ?)"
    " ON CONFLICT (name) DO UPDATE SET value = max(value, excluded.value)"
)
_OLD_RUNS: Final = """
    SELECT key, scope_id FROM budgets WHERE scope = 'run' AND created_at < ?1 AND held = 0
        AND substr(id, 1, length(?2)) = ?2 ORDER BY key LIMIT ?3
"""


def dead_writers(connection: sqlite3.Connection, is_alive: Callable[[str], bool]) -> list[str]:
    """Return the writers of held charges that have died."""
    return [name for (name,) in connection.execute(_WRITERS).fetchall() if not is_alive(name)]


def settle_dead(
    connection: sqlite3.Connection, is_alive: Callable[[str], bool], now: float, limit: int
) -> int:
    """Settle held charges of writers that have died; return how many."""
    count = 0
    for writer in dead_writers(connection, is_alive):
        settled: list[Settlement] = []
        for row in connection.execute(_OF_WRITER, (writer,)):
            if count + len(settled) >= limit:
                break
            packed, number, project, reserved_at, *parts, cost = row
            name = (project, unpack_id(packed))
            if connection.execute(_IS_UNFINISHED, name).fetchone() is None:
                past = max(0, to_millis(now) - reserved_at)
                settled.append(assume(name[1], number, TokenCounts(*parts), cost, past))
        count += settle_charges(connection, writer, settled, now)
    return count


def claim_charges(connection: sqlite3.Connection, writer: str, response_ids: Sequence[str]) -> None:
    """Make this the writer of the held charges of responses that it has claimed."""
    if response_ids:
        key = intern_names(connection, [writer])[writer]
        connection.executemany(_CLAIM, [(key, pack_id(one)) for one in response_ids])


def sweep_charges(connection: sqlite3.Connection, before: int, limit: int) -> int:
    """Remove the oldest ended charges reserved before this time; return how many.

    The budgets of runs of which nothing is left go too.
    """
    removed = connection.execute(_SWEEP, (before * 1000, limit)).rowcount
    if removed:
        # Sums by day are no longer those of the charges on this day.
        connection.execute(_MARK, (-(-before // 86_400) * 86_400,))
    gone = []
    for key, run in connection.execute(_OLD_RUNS, (before, RUN_PREFIX, limit)).fetchall():
        condition, values = scope_condition(connection, "run", run)
        question = f"SELECT 1 FROM charges WHERE {condition} LIMIT 1"  # noqa: S608 # constants
        if connection.execute(question, values).fetchone() is None:
            gone.append((key,))
    if gone:
        connection.executemany("DELETE FROM budgets WHERE key = ?", gone)
        mark_change(connection)
    return removed
