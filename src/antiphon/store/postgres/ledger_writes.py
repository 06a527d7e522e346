"""How is what has changed in the ledger written, each table in one statement?

The rows are locked (see `ledger_locks`), except those of `usage_sums`, which are written in the
order of their keys, last of all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from antiphon.protocol.token_counts import TokenCounts
from antiphon.store.base.ledger import Settlement
from antiphon.store.ledger_rows import (
    BASES,
    HELD_COLUMNS,
    OUTCOMES,
    RELEASED,
    SETTLED,
    encode_items,
    held_row,
    to_millis,
)
from antiphon.store.ledger_rules import (
    NO_LINKS,
    BudgetRow,
    Decision,
    LimitRow,
    Links,
    encode_links,
)
from antiphon.store.ledger_sums import WIDTHS
from antiphon.store.postgres.database import Connection
from antiphon.store.postgres.ledger_locks import LockedCharge
from antiphon.store.postgres.ledger_names import numbers_of
from antiphon.store.postgres.ledger_totals import REOPEN
from antiphon.store.postgres.rows import columns

__all__ = [
    "Settled",
    "add_sums",
    "delete_charges",
    "insert_budgets",
    "insert_charges",
    "settle_charges",
    "update_budgets",
    "update_held",
    "update_limits",
    "update_links",
]

_TYPES: Final = {
    "response": "bytea",
    "number": "integer",
    "state": "smallint",
    "kind": "smallint",
    "is_request": "smallint",
    "basis": "smallint",
    "outcome": "smallint",
    "links": "bytea",
    "items": "bytea",
    **dict.fromkeys(("writer", "project", "api_key", "user_id", "conversation"), "integer"),
    **dict.fromkeys(("run", "model", "served", "provider", "price", "width"), "integer"),
}
_PARTS: Final = TokenCounts.__struct_fields__


def _unnest(names: Sequence[str]) -> str:
    """Return rows that are given as columns of these names."""
    arrays = (f"${place}::{_TYPES.get(name, 'bigint')}[]" for place, name in enumerate(names, 1))
    return f"unnest({', '.join(arrays)}) WITH ORDINALITY AS wanted ({', '.join(names)}, place)"


def _update(table: str, names: Sequence[str]) -> str:
    """Return an update of the rows of a key with the other columns."""
    changes = ", ".join(f"{name} = wanted.{name}" for name in names[1:])
    return (
        f"UPDATE {table} SET {changes} FROM {_unnest(names)}"  # noqa: S608 # constants
        f" WHERE {table}.key = wanted.key"
    )


_INSERT_CHARGES: Final = (
    f"INSERT INTO charges_held ({', '.join(HELD_COLUMNS)}) SELECT {', '.join(HELD_COLUMNS)}"  # noqa: S608
    f" FROM {_unnest(HELD_COLUMNS)} WHERE NOT EXISTS (SELECT FROM charges_ended AS ended"
    " WHERE ended.response = wanted.response AND ended.number = wanted.number) ORDER BY place"
    " ON CONFLICT (response, number) DO NOTHING RETURNING key"
)
_SETTLED: Final = (
    *("key", "state", "settled_at", *_PARTS, "cost", "basis", "outcome"),
    *("first_ms", "total_ms", "items"),
)
_KEPT: Final = ("key", *(name for name in HELD_COLUMNS if name not in {"state", "writer", "links"}))
"""What stays of a charge when it ends."""
_ENDED: Final = ", ".join(_KEPT + _SETTLED[1:])
_MOVED: Final = ", ".join(
    [*(f"charges_held.{name}" for name in _KEPT), *(f"wanted.{name}" for name in _SETTLED[1:])]
)
_SETTLE: Final = f"""
    WITH gone AS (
        DELETE FROM charges_held USING {_unnest(_SETTLED)}
        WHERE charges_held.key = wanted.key RETURNING {_MOVED}
    ) INSERT INTO charges_ended ({_ENDED}) SELECT * FROM gone
"""  # noqa: S608 # constants
_HOLD: Final = _update("charges_held", ("key", *(f"held_{part}" for part in _PARTS), "held_cost"))
_LINK: Final = _update("charges_held", ("key", "links"))
_UPDATE_BUDGETS: Final = _update(
    "budgets", ("key", "ceiling", "period_start", "spent", "held", "excess")
)
_UPDATE_LIMITS: Final = _update("rate_limits", ("key", "tat_requests", "tat_tokens"))
_INSERT_BUDGET: Final = """
    INSERT INTO budgets (id, scope, scope_id, unit, period, ceiling, soft, allows_unpriced,
        created_at, period_start, spent, held, excess)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13) RETURNING key
"""
_SUM_KEYS: Final = (
    *("width", "start", "project", "api_key", "user_id", "model", "provider", "kind", "basis"),
    "outcome",
)
_SUMS: Final = ("charges", "requests", *_PARTS, "cost", "unpriced")
_ADD_SUMS: Final = (
    f"WITH reopened AS ({REOPEN.format(f'${len(_SUM_KEYS + _SUMS) + 1}::bigint')})"  # noqa: S608
    f" INSERT INTO usage_sums ({', '.join(_SUM_KEYS + _SUMS)})"
    f" SELECT {', '.join(_SUM_KEYS + _SUMS)} FROM {_unnest(_SUM_KEYS + _SUMS)} ORDER BY place"
    f" ON CONFLICT ({', '.join(_SUM_KEYS)}) DO UPDATE SET "
    + ", ".join(f"{name} = usage_sums.{name} + excluded.{name}" for name in _SUMS)
)


class Settled(NamedTuple):
    """A charge that is locked, and what it came to."""

    charge: LockedCharge
    settlement: Settlement

    @property
    def is_counted(self) -> bool:
        """Whether it is part of sums."""
        return self.settlement.outcome != "released"


async def insert_charges(
    connection: Connection,
    decisions: Sequence[Decision],
    writer: int,
    numbers: Mapping[str, int],
    now: float,
) -> int:
    """Insert the charges that were granted; return how many were not there before."""
    if not decisions:
        return 0
    rows = [
        held_row(
            one.wanted,
            writer,
            numbers_of(one.wanted, numbers),
            now,
            None if one.links == NO_LINKS else encode_links(one.links),
        )
        for one in decisions
    ]
    return len(await connection.fetch(_INSERT_CHARGES, *columns(rows, len(HELD_COLUMNS))))


async def settle_charges(connection: Connection, settled: Sequence[Settled], now: float) -> None:
    """Move charges to those that have ended, with what they came to."""
    if settled:
        rows = [_settled_row(one.charge, one.settlement, now) for one in settled]
        await connection.execute(_SETTLE, *columns(rows, len(_SETTLED)))


def _settled_row(charge: LockedCharge, one: Settlement, now: float) -> tuple[Any, ...]:
    return (
        charge.row["key"],
        RELEASED if one.outcome == "released" else SETTLED,
        to_millis(now),
        *msgspec.structs.astuple(one.used),
        one.cost,
        BASES.index(one.basis),
        OUTCOMES.index(one.outcome),
        one.first_ms,
        one.total_ms,
        encode_items(one),
    )


async def delete_charges(connection: Connection, keys: Sequence[int]) -> None:
    """Remove charges that nobody was granted."""
    if keys:
        await connection.execute("DELETE FROM charges_held WHERE key = ANY($1::bigint[])", keys)


async def update_held(
    connection: Connection, changed: Sequence[tuple[int, TokenCounts, int | None]]
) -> None:
    """Write what is held from now on, by the key of the charge."""
    if changed:
        rows = [(key, *msgspec.structs.astuple(held), cost) for key, held, cost in changed]
        await connection.execute(_HOLD, *columns(rows, 7))


async def update_links(connection: Connection, changed: Sequence[tuple[int, Links]]) -> None:
    """Write what charges are held against, by their keys."""
    if changed:
        rows = [(key, encode_links(links)) for key, links in changed]
        await connection.execute(_LINK, *columns(rows, 2))


async def insert_budgets(connection: Connection, new: Sequence[BudgetRow]) -> None:
    """Insert budgets, and give them their keys."""
    for row in new:
        budget = row.budget
        row.key = await connection.fetchval(
            _INSERT_BUDGET,
            budget.id,
            budget.scope,
            budget.scope_id,
            budget.unit,
            budget.period,
            budget.ceiling,
            msgspec.json.encode(budget.soft).decode(),
            int(budget.allows_unpriced),
            budget.created_at,
            row.period_start,
            row.spent,
            row.held,
            row.excess,
        )


async def update_budgets(connection: Connection, changed: Sequence[BudgetRow]) -> None:
    """Write what budgets have become."""
    if changed:
        rows = [
            (row.key, row.budget.ceiling, row.period_start, row.spent, row.held, row.excess)
            for row in changed
        ]
        await connection.execute(_UPDATE_BUDGETS, *columns(rows, 6))


async def update_limits(connection: Connection, changed: Sequence[LimitRow]) -> None:
    """Write what rate limits have become."""
    if changed:
        rows = [(row.key, row.tat_requests, row.tat_tokens) for row in changed]
        await connection.execute(_UPDATE_LIMITS, *columns(rows, 3))


async def add_sums(connection: Connection, settled: Sequence[Settled]) -> None:
    """Add settled charges to the sums by time."""
    sums: dict[tuple[int, ...], list[int]] = {}
    for charge, one in ((some.charge.row, some.settlement) for some in settled if some.is_counted):
        names = (
            charge["project"],
            charge["api_key"] or 0,
            charge["user_id"] or 0,
            charge["model"],
            charge["provider"],
            charge["kind"],
            BASES.index(one.basis),
            OUTCOMES.index(one.outcome),
        )
        used = msgspec.structs.astuple(one.used)
        added = (1, charge["is_request"], *used, one.cost or 0, int(one.cost is None))
        for width in WIDTHS:
            start = charge["reserved_at"] // 1000 // width * width
            kept = sums.setdefault((width, start, *names), [0] * len(_SUMS))
            kept[:] = [old + new for old, new in zip(kept, added, strict=True)]
    if sums:
        rows = [(*key, *sums[key]) for key in sorted(sums)]
        first = min(start for width, start, *_ in sums if width == WIDTHS[0])
        await connection.execute(_ADD_SUMS, *columns(rows, len(_SUM_KEYS + _SUMS)), first)
