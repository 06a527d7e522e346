"""What do charges in PostgreSQL sum up to: those that run, those of a run, those of a scope?"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from antiphon.store.base.ledger import Budget, RateLimit, Reservation, Scope
from antiphon.store.ledger_rows import HELD, SETTLED, unpack_id
from antiphon.store.postgres.database import Connection
from antiphon.store.postgres.ledger_names import Numbers
from antiphon.store.postgres.rows import columns

__all__ = ["running_in", "spent_by_runs", "used_in"]

_COLUMNS: Final[dict[Scope, str]] = {
    "key": "api_key",
    "user": "user_id",
    "conversation": "conversation",
    "run": "run",
}
# NULL stands for every number.
_IS_IN: Final = " AND ".join(
    f"(wanted.{column} IS NULL OR charges.{column} = wanted.{column})"
    for column in ("project", *_COLUMNS.values(), "model")
)
_RUNNING: Final = f"""
    SELECT DISTINCT wanted.place, charges.response
    FROM unnest($1::integer[], $2::integer[], $3::integer[], $4::integer[], $5::integer[],
        $6::integer[]) WITH ORDINALITY
        AS wanted (project, api_key, user_id, conversation, run, model, place)
    JOIN charges ON charges.state = {HELD} AND {_IS_IN}
"""  # noqa: S608 # constants
_SPENT: Final = f"""
    SELECT charges.project, charges.run, sum(charges.cost)::bigint
    FROM unnest($1::integer[], $2::integer[]) AS wanted (project, run)
    JOIN charges ON charges.run = wanted.run AND charges.project = wanted.project
    WHERE charges.state = {SETTLED} GROUP BY charges.project, charges.run
"""  # noqa: S608 # constants
_TOKENS: Final = "fresh + cached + cache_write + output + reasoning"
_HELD_TOKENS: Final = "held_fresh + held_cached + held_cache_write + held_output + held_reasoning"
_DAY: Final = 86_400

Place = tuple[Scope, str, str]


async def running_in(
    connection: Connection,
    limits: Sequence[RateLimit],
    wanted: Sequence[tuple[Reservation, Numbers]],
) -> dict[Place, set[str]]:
    """Return the responses that have a held charge, by scope, its id and model of the limit.

    Only for limits that one of the reservations is in. Others are left out.
    """
    places: dict[Place, tuple[int | None, ...]] = {}
    for limit in limits:
        for one, numbers in wanted:
            is_in = one.payer.scope_ids().get(limit.scope) == limit.scope_id
            if is_in and limit.model in {"", one.model}:
                place = (limit.scope, limit.scope_id, limit.model)
                places[place] = _filter_of(limit, numbers)
    if not places:
        return {}
    rows = await connection.fetch(_RUNNING, *columns(list(places.values()), 6))
    order = list(places)
    found: dict[Place, set[str]] = {place: set() for place in order}
    for place, response in rows:
        found[order[place - 1]].add(unpack_id(response))
    return found


def _filter_of(limit: RateLimit, numbers: Numbers) -> tuple[int | None, ...]:
    """Return the numbers of the charges that a limit is about, in the order of `_RUNNING`."""
    scope = limit.scope
    project = None if scope in {"organization", "key"} else numbers.project
    names = [getattr(numbers, one) if one == scope else None for one in _COLUMNS]
    return project, *names, numbers.model if limit.model else None


async def spent_by_runs(
    connection: Connection, runs: Iterable[tuple[int, int]]
) -> dict[tuple[int, int], int]:
    """Return what settled charges of these runs cost, by the numbers of project and run."""
    rows = await connection.fetch(_SPENT, *columns(sorted(set(runs)), 2))
    return {(project, run): spent or 0 for project, run, spent in rows}


async def used_in(
    connection: Connection, budget: Budget, condition: str, start: int
) -> tuple[int, int]:
    """Return what charges of a budget's scope have spent, and hold, since a period began.

    Sums by day also have what was swept, but not of every scope.
    """
    is_usd = budget.unit == "usd"
    held = await connection.fetchval(
        f"SELECT coalesce(sum({'held_cost' if is_usd else _HELD_TOKENS}), 0)::bigint"  # noqa: S608
        f" FROM charges WHERE state = {HELD} AND {condition} AND reserved_at >= $1",
        start * 1000,
    )
    source = f"usage_sums WHERE width = {_DAY} AND start >= $1"
    if budget.scope in {"conversation", "run"}:
        source = f"charges WHERE state = {SETTLED} AND reserved_at >= $1 * 1000::bigint"
    spent = await connection.fetchval(
        f"SELECT coalesce(sum({'cost' if is_usd else _TOKENS}), 0)::bigint FROM {source}"  # noqa: S608
        f" AND {condition}",
        start,
    )
    return spent, held
