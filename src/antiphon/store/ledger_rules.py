"""May a charge be held, and what do budgets and rate limits become when it is, or is settled?

Pure: a store loads the rows that apply, asks `Books` in one transaction, and writes the rows that
have changed. So memory, SQLite and PostgreSQL decide in the same way. Rules:

- A reservation takes from all of its budgets and limits or from none. One that is refused does
  not count for those after it.
- A charge belongs to the period of its reservation. It remembers the budgets that it is held
  against with the start of that period (`Links`): a later period is not changed by it.
- Amounts are whole numbers: nano-dollars or tokens.
- For rate limits see `ledger_rates`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Final, NamedTuple

import msgspec

from antiphon.protocol.token_counts import NO_TOKENS, TokenCounts
from antiphon.store.base.ledger import (
    Budget,
    Granted,
    LimitState,
    Payer,
    Period,
    Refused,
    Reservation,
    Scope,
    Settlement,
    Unit,
)
from antiphon.store.ledger_rates import SECOND, LimitRow, tightest

__all__ = [
    "NO_LINKS",
    "RUN_PREFIX",
    "Books",
    "BudgetRow",
    "Decision",
    "LimitRow",
    "Links",
    "amount_of",
    "assume",
    "decode_links",
    "encode_links",
    "floor_time",
    "normalize",
    "period_start",
    "run_budget",
]

RUN_PREFIX: Final = "bud_run_"
"""Begins the ids of budgets that a run's own ceiling has made."""
_DAY: Final = 86_400
_LONGEST_MS: Final = 2**31 - 1
"""What a store keeps as the duration of a call."""
# 1 January 1970 was a Thursday.
_DAYS_AFTER_MONDAY: Final = 3

ScopeId = tuple[Scope, str]


class Links(msgspec.Struct, frozen=True, array_like=True):
    """What a held charge has taken: budgets with their period, and tokens of rate limits."""

    budgets: tuple[tuple[int, int], ...] = ()
    """Key of the budget, and the start of the period."""
    tokens: tuple[tuple[int, int], ...] = ()
    """Key of the limit, and how many tokens were taken."""


NO_LINKS: Final = Links()
encode_links: Final = msgspec.msgpack.Encoder().encode
decode_links: Final = msgspec.msgpack.Decoder(Links).decode


class BudgetRow(msgspec.Struct):
    """A budget as it is stored. `key` is 0 until a new one is written."""

    key: int
    budget: Budget
    period_start: int
    spent: int = 0
    held: int = 0
    excess: int = 0
    """How far a new ceiling, or a reservation that could not be refused, left it overdrawn."""
    is_changed: bool = False

    @property
    def used(self) -> int:
        """Spent and held."""
        return self.spent + self.held

    def roll(self, now: float) -> None:
        """Begin a new period if there is one."""
        start = period_start(self.budget.period, now)
        if start > self.period_start:
            self.period_start = start
            self.spent = self.held = self.excess = 0
            self.is_changed = True

    def set_ceiling(self, budget: Budget) -> None:
        """Replace the budget; what is used beyond the new ceiling stays used."""
        self.budget = budget
        self.excess = max(0, self.used - budget.ceiling)
        self.is_changed = True

    def take(self, amount: int) -> None:
        """Hold this much more."""
        self.held += amount
        self.excess += max(0, min(amount, self.used - self.budget.ceiling))
        self.is_changed = True


class Decision(NamedTuple):
    """What became of a reservation. Budgets without a key must be stored before the links."""

    wanted: Reservation
    answer: Granted | Refused
    budgets: tuple[BudgetRow, ...] = ()
    tokens: tuple[tuple[int, int], ...] = ()

    @property
    def links(self) -> Links:
        """What the charge has taken."""
        return Links(tuple((row.key, row.period_start) for row in self.budgets), self.tokens)


class Books:
    """The budgets and rate limits of one transaction.

    `now` is the store's time in seconds. The time of the books has whole milliseconds, as that of
    charges, and is never before a period that has begun. `runs` has what runs without a budget
    have spent and hold, in nano-dollars, by `scope_id`: for those whose reservation may set a
    ceiling.
    """

    def __init__(
        self,
        now: float,
        budgets: Iterable[BudgetRow] = (),
        limits: Iterable[LimitRow] = (),
        runs: Mapping[str, tuple[int, int]] | None = None,
    ) -> None:
        self.budgets = list(budgets)
        self.limits = list(limits)
        self.now: float = max([floor_time(now), *(row.period_start for row in self.budgets)])
        self._nanos = int(self.now * SECOND)
        self._runs = runs or {}
        self._budgets_by_scope: dict[ScopeId, list[BudgetRow]] = {}
        for row in self.budgets:
            self._list(row)
        self._limits_by_scope: dict[ScopeId, list[LimitRow]] = {}
        for limit in self.limits:
            place = (limit.limit.scope, limit.limit.scope_id)
            self._limits_by_scope.setdefault(place, []).append(limit)

    def reserve(self, wanted: Reservation, *, is_forced: bool = False) -> Decision:
        """Hold a charge, or refuse it. One that is forced is never refused."""
        scopes = tuple(wanted.payer.scope_ids().items())
        budgets = [row for scope in scopes for row in self._budgets_by_scope.get(scope, ())]
        for row in budgets:
            row.roll(self.now)
        limits = [
            row
            for scope in scopes
            for row in self._limits_by_scope.get(scope, ())
            if row.limit.model in {"", wanted.model}
        ]
        run = self._run_budget(wanted, budgets)
        if run is not None and not any(run is row for row in budgets):
            budgets.append(run)
        ceilings = {id(run): run_ceiling(run, wanted)} if run is not None else {}
        if not is_forced:
            refusal = self._refusal(wanted, budgets, ceilings, limits)
            if refusal is not None:
                return Decision(wanted, refusal)
        if run is not None:
            self._keep_run(run, ceilings[id(run)])
        for row in budgets:
            row.take(amount_of(row.budget.unit, wanted.held, wanted.held_cost))
        taken = [(row, row.take(wanted, self._nanos)) for row in limits]
        tokens = tuple((row.key, count) for row, count in taken if row.limit.tokens)
        granted = Granted(
            *self._states(limits),
            is_limited=bool(budgets),
            warnings=tuple(row.budget.id for row in budgets if _is_warned(row)),
        )
        return Decision(wanted, granted, tuple(budgets), tokens)

    def repeat(self, wanted: Reservation) -> Granted:
        """Return the answer to a reservation that was granted before."""
        scopes = tuple(wanted.payer.scope_ids().items())
        limits = [row for scope in scopes for row in self._limits_by_scope.get(scope, ())]
        is_limited = any(self._budgets_by_scope.get(scope) for scope in scopes)
        return Granted(*self._states(limits), is_limited=is_limited)

    def settle(
        self, links: Links, held: TokenCounts, held_cost: int | None, settled: Settlement
    ) -> None:
        """Count what a charge came to in place of what was held for it."""
        budgets = {row.key: row for row in self.budgets}
        for key, start in links.budgets:
            row = budgets.get(key)
            if row is not None and row.period_start == start:
                row.held -= amount_of(row.budget.unit, held, held_cost)
                row.spent += amount_of(row.budget.unit, settled.used, settled.cost)
                row.is_changed = True
        limits = {row.key: row for row in self.limits}
        for key, taken in links.tokens:
            limit = limits.get(key)
            if limit is not None:
                limit.give_back(taken - settled.used.total, self._nanos)

    def extend(
        self,
        links: Links,
        held: TokenCounts,
        held_cost: int | None,
        more: TokenCounts,
        more_cost: int | None,
    ) -> bool:
        """Hold another amount for a charge; return whether there is room, else change nothing.

        A budget whose next period has begun is not asked.
        """
        budgets = {row.key: row for row in self.budgets}
        changes = []
        for key, start in links.budgets:
            row = budgets.get(key)
            if row is not None:
                row.roll(self.now)
            if row is None or row.period_start != start:
                continue
            unit = row.budget.unit
            change = amount_of(unit, more, more_cost) - amount_of(unit, held, held_cost)
            if change > 0 and row.used + change > row.budget.ceiling:
                return False
            changes.append((row, change))
        for row, change in changes:
            row.held += change
            row.is_changed = True
        return True

    def changed_budgets(self) -> list[BudgetRow]:
        """Return the budgets to write. New ones have the key 0."""
        return [row for row in self.budgets if row.is_changed]

    def changed_limits(self) -> list[LimitRow]:
        """Return the limits to write."""
        return [row for row in self.limits if row.is_changed]

    def _list(self, row: BudgetRow) -> None:
        place = (row.budget.scope, row.budget.scope_id)
        self._budgets_by_scope.setdefault(place, []).append(row)

    def _run_budget(self, wanted: Reservation, budgets: list[BudgetRow]) -> BudgetRow | None:
        """Return the budget that the ceiling of a run sets or lowers; a new one is not kept yet."""
        if not wanted.limits_run:
            return None
        for row in budgets:
            budget = row.budget
            if (budget.scope, budget.unit, budget.period) == ("run", "usd", "total"):
                return row
        budget = run_budget(wanted.payer, _first_ceiling(wanted), int(self.now))
        spent, held = self._runs.get(budget.scope_id, (0, 0))
        return BudgetRow(0, budget, 0, spent, held)

    def _keep_run(self, row: BudgetRow, ceiling: int) -> None:
        if ceiling < row.budget.ceiling:
            row.set_ceiling(msgspec.structs.replace(row.budget, ceiling=ceiling))
        if not any(row is known for known in self.budgets):
            row.set_ceiling(row.budget)
            self.budgets.append(row)
            self._list(row)

    def _refusal(
        self,
        wanted: Reservation,
        budgets: list[BudgetRow],
        ceilings: dict[int, int],
        limits: list[LimitRow],
    ) -> Refused | None:
        for row in budgets:
            ceiling = ceilings.get(id(row), row.budget.ceiling)
            refusal = _refused_by_budget(wanted, row, ceiling)
            if refusal is not None:
                return self._with_states(refusal, limits)
        for limit in limits:
            refusal = limit.refuse(wanted, self._nanos)
            if refusal is not None:
                return self._with_states(refusal, limits)
        return None

    def _states(self, limits: list[LimitRow]) -> tuple[LimitState | None, LimitState | None]:
        """Return the tightest states for requests and for tokens."""
        states = [row.states(self._nanos) for row in limits]
        return tightest(one for one, _ in states), tightest(two for _, two in states)

    def _with_states(self, refusal: Refused, limits: list[LimitRow]) -> Refused:
        requests, tokens = self._states(limits)
        return msgspec.structs.replace(refusal, requests=requests, tokens=tokens)


def period_start(period: Period, now: float) -> int:
    """Return when the period began that contains this time, in seconds since the epoch."""
    if period == "total":
        return 0
    days = int(now) // _DAY
    if period == "week":
        days -= (days + _DAYS_AFTER_MONDAY) % 7
    if period == "month":
        days -= datetime.fromtimestamp(days * _DAY, UTC).day - 1
    return days * _DAY


def floor_time(now: float) -> float:
    """Return a time in seconds without what is less than a millisecond."""
    return int(now * 1000) / 1000


def amount_of(unit: Unit, tokens: TokenCounts, cost: int | None) -> int:
    """Return what a charge takes from a budget of this unit. An unknown cost takes nothing."""
    return tokens.total if unit == "tokens" else cost or 0


def normalize(settled: Settlement) -> Settlement:
    """Return the settlement; a released charge used nothing and cost nothing."""
    if settled.outcome != "released":
        return settled
    return msgspec.structs.replace(settled, used=NO_TOKENS, cost=0, items=())


def assume(
    response_id: str, number: int, held: TokenCounts, held_cost: int | None, total_ms: int
) -> Settlement:
    """Return the settlement of a charge whose writer has died: all that was held."""
    return Settlement(
        response_id=response_id,
        number=number,
        outcome="failed",
        basis="assumed",
        used=held,
        cost=held_cost,
        total_ms=min(total_ms, _LONGEST_MS),
    )


def run_budget(payer: Payer, ceiling: int, now: int) -> Budget:
    """Return the budget that a run's own ceiling makes."""
    scope_id = payer.scope_ids()["run"]
    digest = hashlib.blake2b(scope_id.encode(), digest_size=12).hexdigest()
    return Budget(
        id=RUN_PREFIX + digest,
        scope="run",
        scope_id=scope_id,
        period="total",
        ceiling=ceiling,
        created_at=now,
    )


def run_ceiling(row: BudgetRow, wanted: Reservation) -> int:
    """Return the ceiling of a run's budget with this reservation: it can only be lowered."""
    if wanted.run_ceiling is None:
        return row.budget.ceiling
    return min(row.budget.ceiling, wanted.run_ceiling)


def _first_ceiling(wanted: Reservation) -> int:
    """Return the ceiling of a run that this reservation begins."""
    known = [one for one in (wanted.run_default, wanted.run_ceiling) if one is not None]
    return min(known)


def _refused_by_budget(wanted: Reservation, row: BudgetRow, ceiling: int) -> Refused | None:
    budget = row.budget
    is_unpriced = budget.unit == "usd" and wanted.held_cost is None
    is_refused = is_unpriced and not (budget.allows_unpriced or wanted.allows_unpriced)
    amount = amount_of(budget.unit, wanted.held, wanted.held_cost)
    if not is_refused and row.used + amount <= ceiling:
        return None
    return Refused(
        by="unpriced" if is_refused else "budget",
        scope=budget.scope,
        scope_id=budget.scope_id,
        id=budget.id,
        limit=ceiling,
        used=row.used,
        unit=budget.unit,
        period=budget.period,
    )


def _is_warned(row: BudgetRow) -> bool:
    soft = row.budget.soft
    return bool(soft) and row.used * 100 >= row.budget.ceiling * min(soft)
