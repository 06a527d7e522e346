"""Which rows of the ledger does a transaction lock, and in what order?

First the gate, which everything that changes charges or budgets shares, and which a new budget
takes alone: it must count every charge once. Then the runs, whose budget a reservation may make.
Then rows, in the order of their keys and all at once per table: charges, budgets, rate limits.
What a row holds is read after it was locked, and so is the time, which is the database's.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from antiphon.protocol.token_counts import TokenCounts
from antiphon.store.ledger_rows import BUDGET_COLUMNS, HELD, LIMIT_COLUMNS, budget_row, limit_row
from antiphon.store.ledger_rules import NO_LINKS, BudgetRow, LimitRow, Links, decode_links
from antiphon.store.postgres.database import Connection
from antiphon.store.postgres.flusher import LeaseLapsed
from antiphon.store.postgres.ledger_names import NOW
from antiphon.store.postgres.node import LEASE
from antiphon.store.postgres.rows import columns

__all__ = [
    "LockedCharge",
    "close_gate",
    "enter_gate",
    "lock_budgets",
    "lock_charges",
    "lock_limits",
    "lock_runs",
]

_GATE: Final = int.from_bytes(b"charges", signed=True)
_ENTER: Final = f"SELECT {LEASE} AS is_good, pg_advisory_xact_lock_shared($2)::text"
_CLOSE: Final = "SELECT pg_advisory_xact_lock($1)::text"
_LOCK_RUNS: Final = """
    SELECT CASE WHEN is_alone THEN pg_advisory_xact_lock(key)::text
        ELSE pg_advisory_xact_lock_shared(key)::text END
    FROM unnest($1::bigint[], $2::boolean[]) AS wanted (key, is_alone)
"""
_CHARGE_COLUMNS: Final = (
    *("key", "response", "number", "state", "writer", "project", "api_key", "user_id", "run"),
    *("kind", "model", "provider", "is_request", "reserved_at", "held_cost", "links"),
    *("held_fresh", "held_cached", "held_cache_write", "held_output", "held_reasoning"),
)
# Charges by name, and the held ones of runs that have no budget in money yet: theirs may be made.
# Those that have ended never change, and are not locked.
_LOCK_CHARGES: Final = f"""
    WITH locked AS MATERIALIZED (
        SELECT {", ".join(_CHARGE_COLUMNS)} FROM charges_held WHERE key = ANY(ARRAY(
            SELECT held.key FROM unnest($1::bytea[], $2::integer[]) AS wanted (response, number)
            JOIN charges_held AS held
                ON held.response = wanted.response AND held.number = wanted.number
            UNION ALL
            SELECT held.key FROM unnest($3::integer[], $4::integer[], $5::text[])
                AS runs (project, run, scope_id)
            JOIN charges_held AS held ON held.run = runs.run AND held.project = runs.project
            WHERE held.state = {HELD} AND NOT EXISTS (
                SELECT FROM budgets WHERE budgets.scope = 'run' AND budgets.unit = 'usd'
                AND budgets.scope_id = runs.scope_id AND budgets.period = 'total'
            )
        )) ORDER BY key FOR UPDATE
    ) SELECT * FROM locked UNION ALL
    SELECT {", ".join(f"ended.{name}" for name in _CHARGE_COLUMNS)}
    FROM unnest($6::bytea[], $7::integer[]) AS wanted (response, number)
    JOIN charges_ended AS ended
        ON ended.response = wanted.response AND ended.number = wanted.number
"""  # noqa: S608 # constants
# The time of the last row is that at which all are locked.
_LOCK: Final = f"""
    WITH locked AS MATERIALIZED (
        SELECT {{columns}} FROM {{table}} WHERE key = ANY(ARRAY(
            SELECT {{table}}.key FROM unnest($1::text[], $2::text[]) AS wanted (scope, scope_id)
            JOIN {{table}} ON {{table}}.scope = wanted.scope
                AND {{table}}.scope_id = wanted.scope_id
            UNION ALL SELECT unnest($3::bigint[])
        )) ORDER BY key FOR UPDATE
    ) SELECT locked.*, {NOW} AS now FROM locked
"""  # noqa: S608 # constants
_LOCK_BUDGETS: Final = _LOCK.format(table="budgets", columns=", ".join(BUDGET_COLUMNS))
_LOCK_LIMITS: Final = _LOCK.format(table="rate_limits", columns=", ".join(LIMIT_COLUMNS))


class LockedCharge(NamedTuple):
    """A charge that is locked, as far as a change must know it."""

    row: Any  # Any: a row of asyncpg
    held: TokenCounts
    links: Links

    def is_held_by(self, writer: int) -> bool:
        """Return whether this writer may settle it."""
        return bool(self.row["state"] == HELD and self.row["writer"] == writer)


async def enter_gate(connection: Connection, writer: str) -> None:
    """Let no budget be made until the end of the transaction; raise LeaseLapsed if it is ours."""
    row = await connection.fetchrow(_ENTER, writer, _GATE)
    if not row["is_good"]:
        raise LeaseLapsed


async def close_gate(connection: Connection) -> None:
    """Wait until no transaction changes charges, and let none begin before this one has ended."""
    await connection.execute(_CLOSE, _GATE)


async def lock_runs(connection: Connection, runs: Mapping[str, bool]) -> None:
    """Lock runs by `scope_id`: alone where a budget may be made (True), else with others."""
    if runs:
        locks = sorted((_lock_of(run), is_alone) for run, is_alone in runs.items())
        await connection.execute(_LOCK_RUNS, *columns(locks, 2))


def _lock_of(run: str) -> int:
    digest = hashlib.blake2b(f"run {run}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, signed=True)


async def lock_charges(
    connection: Connection,
    held: Sequence[tuple[bytes, int]],
    runs: Sequence[tuple[int, int, str]],
    ended: Sequence[tuple[bytes, int]],
) -> dict[tuple[bytes, int], LockedCharge]:
    """Lock held charges by response and number, and those of runs without a budget.

    A run is given as the numbers of its project and its name, and the `scope_id`. Charges `ended`
    are returned too if they have.
    """
    if not held and not runs:
        return {}
    rows = await connection.fetch(
        _LOCK_CHARGES, *columns(held, 2), *columns(runs, 3), *columns(ended, 2)
    )
    return {
        (row["response"], row["number"]): LockedCharge(
            row,
            TokenCounts(*tuple(row)[-5:]),
            decode_links(row["links"]) if row["links"] else NO_LINKS,
        )
        for row in rows
    }


async def lock_budgets(
    connection: Connection, scopes: Sequence[tuple[str, str]], keys: Sequence[int]
) -> tuple[list[BudgetRow], float]:
    """Lock the budgets of these scopes and keys; return them and the time, 0 without any."""
    if not scopes and not keys:
        return [], 0.0
    rows = await connection.fetch(_LOCK_BUDGETS, *columns(scopes, 2), list(keys))
    return [budget_row(tuple(row)) for row in rows], _time(rows)


async def lock_limits(
    connection: Connection, scopes: Sequence[tuple[str, str]], keys: Sequence[int]
) -> tuple[list[LimitRow], float]:
    """Lock the rate limits of these scopes and keys; return them and the time, 0 without any."""
    if not scopes and not keys:
        return [], 0.0
    rows = await connection.fetch(_LOCK_LIMITS, *columns(scopes, 2), list(keys))
    return [limit_row(tuple(row)) for row in rows], _time(rows)


def _time(rows: Sequence[Any]) -> float:
    return max((row["now"] for row in rows), default=0.0)
