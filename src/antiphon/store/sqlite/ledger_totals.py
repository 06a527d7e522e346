"""Which hours have totals in SQLite, and how do more get them?

See `ledger_sums` for what totals are. A function gets a connection inside a transaction, which the
caller begins and commits.
"""

from __future__ import annotations

import sqlite3
from typing import Final

from antiphon.store.ledger_sums import LEVELS, TOTALLED_BEFORE, WIDTHS

__all__ = ["add_totals", "reopen", "totalled_before", "untotalled"]

_HOUR: Final = WIDTHS[0]
_READ: Final = f"SELECT value FROM ledger_marks WHERE name = '{TOTALLED_BEFORE}'"  # noqa: S608 # a constant
_MARK: Final = (
    f"INSERT INTO ledger_marks VALUES ('{TOTALLED_BEFORE}', ?)"  # noqa: S608 # a constant
    " ON CONFLICT (name) DO UPDATE SET value = excluded.value"
)
_REOPEN: Final = (
    f"UPDATE ledger_marks SET value = ?1 WHERE name = '{TOTALLED_BEFORE}' AND value > ?1"  # noqa: S608
)
_OLDEST_HELD: Final = "SELECT min(reserved_at) FROM charges INDEXED BY charges_held WHERE state = 0"
_FIRST: Final = "SELECT min(start) FROM usage_sums WHERE width = ? AND start >= ? AND start < ?"
_REMOVE: Final = "DELETE FROM usage_sums WHERE width = ? AND start >= ?"
_ADD: Final = """
    INSERT INTO usage_sums SELECT {0}, start, {1}, 0, 0, model, provider, kind, basis,
        outcome, sum(charges), sum(requests), sum(fresh), sum(cached), sum(cache_write),
        sum(output), sum(reasoning), sum(cost), sum(unpriced)
    FROM usage_sums WHERE width = ? AND start >= ? AND start < ?
    GROUP BY start, {1}, model, provider, kind, basis, outcome
"""
# How a level is made of the one before, the first one of the sums. No constant: it would be the
# number of a column.
_PROJECTS: Final = ("project", "project * 0")


def totalled_before(connection: sqlite3.Connection) -> int:
    """Return the time before which all hours have totals."""
    row = connection.execute(_READ).fetchone()
    return 0 if row is None else int(row[0])


def untotalled(connection: sqlite3.Connection, now: float) -> tuple[int, int]:
    """Return from when to when hours have no totals and could have them."""
    end = int(now) // _HOUR * _HOUR
    (held,) = connection.execute(_OLDEST_HELD).fetchone()
    if held is not None:
        end = min(end, held // 1000 // _HOUR * _HOUR)
    return totalled_before(connection), end


def add_totals(connection: sqlite3.Connection, now: float, limit: int) -> int:
    """Total the oldest hours that have no totals, `limit` at most; return how many."""
    start, end = untotalled(connection, now)
    if start >= end:
        return 0
    # Hours without charges are skipped.
    (first,) = connection.execute(_FIRST, (_HOUR, start, end)).fetchone()
    done = end if first is None else min(end, first + limit * _HOUR)
    for width in WIDTHS:
        bounds, source = (start // width * width, done // width * width), width
        for level, project in zip(LEVELS, _PROJECTS, strict=True):
            connection.execute(_REMOVE, (-level * width, bounds[0]))
            connection.execute(_ADD.format(-level * width, project), (source, *bounds))
            source = -level * width
    connection.execute(_MARK, (done,))
    return 0 if first is None else (done - first) // _HOUR


def reopen(connection: sqlite3.Connection, seconds: int) -> None:
    """Let the hours from this time on have no totals: a charge of it is settled now."""
    connection.execute(_REOPEN, (seconds // _HOUR * _HOUR,))
