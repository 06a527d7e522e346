"""Which hours have totals in PostgreSQL, and how do more get them?

See `ledger_sums` for what totals are. The gate is closed while they are made, so no charge of these
hours is reserved or settled at the same time (see `ledger_locks`).
"""

from __future__ import annotations

from typing import Final

from antiphon.store.ledger_rows import HELD
from antiphon.store.ledger_sums import LEVELS, TOTALLED_BEFORE, WIDTHS
from antiphon.store.postgres.database import Connection
from antiphon.store.postgres.ledger_locks import close_gate
from antiphon.store.postgres.ledger_names import NOW

__all__ = ["REOPEN", "add_totals", "totalled_before", "untotalled"]

_HOUR: Final = WIDTHS[0]
_READ: Final = f"SELECT value FROM ledger_marks WHERE name = '{TOTALLED_BEFORE}'"  # noqa: S608 # a constant
REOPEN: Final = f"""
    UPDATE ledger_marks SET value = {{0}} WHERE name = '{TOTALLED_BEFORE}' AND value > {{0}}
"""  # noqa: S608 # constants
"""Let the hours from this time on have no totals: a charge of it is settled."""
_MARK: Final = f"""
    INSERT INTO ledger_marks VALUES ('{TOTALLED_BEFORE}', $1)
    ON CONFLICT (name) DO UPDATE SET value = excluded.value
"""  # noqa: S608 # constants
_SPAN: Final = f"""
    SELECT coalesce(({_READ}), 0), least(coalesce($1, {NOW}) * 1000,
        (SELECT min(reserved_at) FROM charges WHERE state = {HELD}))::bigint
"""  # noqa: S608 # constants
_FIRST: Final = """
    SELECT min(start) FROM usage_sums WHERE width = $1 AND start >= $2 AND start < $3
"""
_REMOVE: Final = "DELETE FROM usage_sums WHERE width = $1 AND start >= $2"
_ADD: Final = """
    INSERT INTO usage_sums (width, start, project, api_key, user_id, model, provider, kind, basis,
        outcome, charges, requests, fresh, cached, cache_write, output, reasoning, cost, unpriced)
    SELECT $4, start, {0}, 0, 0, model, provider, kind, basis, outcome, sum(charges),
        sum(requests), sum(fresh), sum(cached), sum(cache_write), sum(output), sum(reasoning),
        sum(cost), sum(unpriced)
    FROM usage_sums WHERE width = $1 AND start >= $2 AND start < $3
    GROUP BY start, {0}, model, provider, kind, basis, outcome
"""
# How a level is made of the one before, the first one of the sums. No constant: it would be the
# number of a column.
_PROJECTS: Final = ("project", "project * 0")


async def totalled_before(connection: Connection) -> int:
    """Return the time before which all hours have totals."""
    return await connection.fetchval(_READ) or 0


async def untotalled(connection: Connection, now: float | None) -> tuple[int, int]:
    """Return from when to when hours have no totals and could have them."""
    start, end = await connection.fetchrow(_SPAN, now)
    return start, end // 1000 // _HOUR * _HOUR


async def add_totals(connection: Connection, now: float | None, limit: int) -> int:
    """Total the oldest hours that have no totals, `limit` at most; return how many."""
    await close_gate(connection)
    start, end = await untotalled(connection, now)
    if start >= end:
        return 0
    # Hours without charges are skipped.
    first = await connection.fetchval(_FIRST, _HOUR, start, end)
    done = end if first is None else min(end, first + limit * _HOUR)
    for width in WIDTHS:
        bounds, source = (start // width * width, done // width * width), width
        for level, project in zip(LEVELS, _PROJECTS, strict=True):
            made = -level * width
            await connection.execute(_REMOVE, made, bounds[0])
            await connection.execute(_ADD.format(project), source, *bounds, made)
            source = made
    await connection.execute(_MARK, done)
    return 0 if first is None else (done - first) // _HOUR
