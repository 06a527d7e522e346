"""A ledger that is a plain list of charges: every sum is computed when it is asked for.

Nothing of the rules is used: periods come from the calendar, and a budget has no state. So a bug
in the rules cannot be in the model as well.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from antiphon.store.base.ledger import SCOPES, Budget, Reservation, Settlement, UsageQuery

__all__ = ["ModelCharge", "ModelLedger", "start_of"]

Place = tuple[str, str, str, str]


@dataclass
class ModelCharge:
    wanted: Reservation
    at: float
    writer: str
    tokens: int
    cost: int | None
    state: str = "held"
    settled: Settlement | None = None

    def amount(self, unit: str) -> int:
        """What it takes from a budget now."""
        if self.state == "released":
            return 0
        if self.settled is not None:
            return self.settled.used.total if unit == "tokens" else self.settled.cost or 0
        return self.tokens if unit == "tokens" else self.cost or 0


def start_of(period: str, now: float) -> float:
    """When the period began that contains this time."""
    if period == "total":
        return 0.0
    day = datetime.fromtimestamp(now, UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    if period == "week":
        day -= timedelta(days=day.weekday())
    if period == "month":
        day = day.replace(day=1)
    return day.timestamp()


@dataclass
class ModelLedger:
    charges: dict[tuple[str, int], ModelCharge] = field(default_factory=dict)
    budgets: dict[Place, Budget] = field(default_factory=dict)
    seats: dict[tuple[str, str], int] = field(default_factory=dict)
    """How many responses may run, by scope and its id."""

    def reserve(self, wanted: Reservation, now: float, writer: str) -> bool:
        """Hold a charge; return whether it was granted."""
        key = (wanted.response_id, wanted.number)
        if key in self.charges:
            return True
        budgets, run = self._applying(wanted), self._run(wanted)
        if run is not None:
            budgets = {**budgets, _place(run): run}
        tokens, cost = wanted.held.total, wanted.held_cost
        for budget in budgets.values():
            amount = tokens if budget.unit == "tokens" else cost or 0
            is_unpriced = budget.unit == "usd" and cost is None
            if is_unpriced and not (budget.allows_unpriced or wanted.allows_unpriced):
                return False
            if sum(self.used(budget, now)) + amount > budget.ceiling:
                return False
        for place, seats in self.seats.items():
            running = self._running(place)
            is_in = place in wanted.payer.scope_ids().items()
            if is_in and wanted.response_id not in running and len(running) >= seats:
                return False
        if run is not None:
            self.budgets[_place(run)] = run
        self.charges[key] = ModelCharge(wanted, now, writer, tokens, cost)
        return True

    def extend(self, key: tuple[str, int], tokens: int, cost: int, now: float, writer: str) -> bool:
        """Hold another amount; return whether there was room."""
        charge = self.charges.get(key)
        if charge is None or charge.state != "held" or charge.writer != writer:
            return False
        for budget in self._applying(charge.wanted).values():
            new = tokens if budget.unit == "tokens" else cost
            more = new - charge.amount(budget.unit)
            is_now = charge.at >= start_of(budget.period, now)
            if is_now and more > 0 and sum(self.used(budget, now)) + more > budget.ceiling:
                return False
        charge.tokens, charge.cost = tokens, cost
        return True

    def settle(self, settled: Settlement, writer: str) -> None:
        """Settle a charge of this writer, if it is held."""
        charge = self.charges.get((settled.response_id, settled.number))
        if charge is not None and charge.state == "held" and charge.writer == writer:
            charge.state = "released" if settled.outcome == "released" else "settled"
            charge.settled = settled

    def used(self, budget: Budget, now: float) -> tuple[int, int]:
        """What is spent and held of a budget in this period."""
        start = start_of(budget.period, now)
        mine = [
            charge
            for charge in self.charges.values()
            if charge.at >= start
            and charge.wanted.payer.scope_ids().get(budget.scope) == budget.scope_id
        ]
        spent = sum(one.amount(budget.unit) for one in mine if one.state != "held")
        held = sum(one.amount(budget.unit) for one in mine if one.state == "held")
        return spent, held

    def sums(self, query: UsageQuery) -> dict[Any, tuple[int, ...]]:
        """What is summed up by bucket and group.

        How many charges, requests, tokens, nano-dollars, and how many charges without a price and
        without a report.
        """
        found: dict[Any, tuple[int, ...]] = {}
        for charge in self.charges.values():
            settled, start = charge.settled, int(charge.at) // query.width * query.width
            if charge.state != "settled" or settled is None:
                continue
            names = _names(charge.wanted, settled)
            if start + query.width <= query.start or start >= query.end or not _asked(query, names):
                continue
            key = (start, *(names[name] for name in query.group_by))
            added = (
                *(1, int(charge.wanted.is_request), settled.used.total, settled.cost or 0),
                *(int(settled.cost is None), int(settled.basis != "reported")),
            )
            known = found.get(key, (0,) * len(added))
            found[key] = tuple(map(sum, zip(known, added, strict=True)))
        return found

    def _running(self, place: tuple[str, str]) -> set[str]:
        return {
            charge.wanted.response_id
            for charge in self.charges.values()
            if charge.state == "held" and place in charge.wanted.payer.scope_ids().items()
        }

    def _applying(self, wanted: Reservation) -> dict[Place, Budget]:
        scopes = wanted.payer.scope_ids()
        return {
            place: budget
            for place, budget in self.budgets.items()
            if scopes.get(budget.scope) == budget.scope_id
        }

    def _run(self, wanted: Reservation) -> Budget | None:
        if wanted.run_ceiling is None or wanted.payer.run is None:
            return None
        assert "run" in SCOPES
        run = wanted.payer.scope_ids()["run"]
        known = self.budgets.get(("run", run, "usd", "total"))
        if known is None:
            return Budget(
                id="", scope="run", scope_id=run, period="total", ceiling=wanted.run_ceiling
            )
        lower = min(known.ceiling, wanted.run_ceiling)
        return Budget(
            id=known.id,
            scope="run",
            scope_id=run,
            period="total",
            ceiling=lower,
            allows_unpriced=known.allows_unpriced,
        )


def _names(wanted: Reservation, settled: Settlement) -> dict[str, str | None]:
    payer = wanted.payer
    return {
        "project": payer.project,
        "key": payer.key,
        "user": payer.user,
        "model": wanted.model,
        "provider": wanted.provider,
        "kind": wanted.kind,
        "basis": settled.basis,
        "outcome": settled.outcome,
    }


def _asked(query: UsageQuery, names: dict[str, str | None]) -> bool:
    filters = {
        "project": query.projects,
        "key": query.keys,
        "user": query.users,
        "model": query.models,
        "kind": query.kinds,
    }
    return all(not some or names[name] in some for name, some in filters.items())


def _place(budget: Budget) -> Place:
    return budget.scope, budget.scope_id, budget.unit, budget.period
