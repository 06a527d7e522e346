"""Facet `ledger` in memory.

Bounded: beyond `room` charges, the oldest one that is not held is removed. Budgets and sums by
hour and day stay. There is one writer, this store, so no charge is ever abandoned.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import msgspec

from antiphon.protocol.token_counts import TokenCounts
from antiphon.store.base.audit import AuditRecord
from antiphon.store.base.ledger import (
    Budget,
    BudgetState,
    Charge,
    Granted,
    LedgerProblem,
    Payer,
    RateLimit,
    Refused,
    Reservation,
    Scope,
    Settlement,
    Unit,
    UsageQuery,
    UsageRow,
)
from antiphon.store.base.requests import RequestQuery
from antiphon.store.ledger_check import BookCheck
from antiphon.store.ledger_requests import request_status
from antiphon.store.ledger_rows import pack_id
from antiphon.store.ledger_rules import (
    RUN_PREFIX,
    Books,
    BudgetRow,
    LimitRow,
    Links,
    amount_of,
    floor_time,
    normalize,
    period_start,
)
from antiphon.store.ledger_sums import (
    WIDTHS,
    UsageKey,
    UsageSum,
    add_sum,
    fold_usage,
    keys_of,
    scope_of,
    sum_of,
)
from antiphon.store.memory.audit import MemoryAudit

__all__ = ["MemoryLedger"]

_replace = msgspec.structs.replace


@dataclass(slots=True)
class _Kept:
    """A charge, and what it needs until it is settled."""

    charge: Charge
    is_request: bool
    links: Links


class MemoryLedger:
    """See `Ledger` for what the methods do. `clock` is the store's time in seconds."""

    def __init__(
        self,
        check_open: Callable[[], None],
        room: int,
        audit: MemoryAudit,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._check_open = check_open
        self._room = room
        self._audit = audit
        self.clock = clock
        self._charges: dict[tuple[str, int], _Kept] = {}
        self._open: dict[tuple[str, int], _Kept] = {}
        self._budgets: dict[int, BudgetRow] = {}
        self._limits: dict[int, LimitRow] = {}
        self._last_key = 0
        self._sums: dict[int, dict[UsageKey, UsageSum]] = {width: {} for width in WIDTHS}
        self._swept_before = 0.0

    async def reserve(
        self, wanted: Reservation, settled: Sequence[Settlement] = ()
    ) -> Granted | Refused:
        self._check_open()
        return self._reserve(wanted, settled, is_forced=False)

    def reserve_soon(self, wanted: Reservation, settled: Sequence[Settlement] = ()) -> None:
        self._check_open()
        self._reserve(wanted, settled, is_forced=True)

    async def limits_apply(self, payer: Payer, model: str) -> bool:
        self._check_open()
        scopes = set(payer.scope_ids().items())
        return any(
            (row.budget.scope, row.budget.scope_id) in scopes for row in self._budgets.values()
        ) or any(
            (row.limit.scope, row.limit.scope_id) in scopes and row.limit.model in {"", model}
            for row in self._limits.values()
        )

    async def extend(
        self, response_id: str, number: int, held: TokenCounts, held_cost: int | None
    ) -> bool:
        self._check_open()
        kept = self._open.get((response_id, number))
        if kept is None:
            return False
        charge = kept.charge
        if not self._books().extend(kept.links, charge.held, charge.held_cost, held, held_cost):
            return False
        kept.charge = _replace(charge, held=held, held_cost=held_cost)
        return True

    async def settle(self, settled: Sequence[Settlement]) -> None:
        self._check_open()
        self.settle_now(settled)

    async def settle_abandoned(self, limit: int) -> int:
        """Return 0: a process that died took its memory with it."""
        self._check_open()
        return 0

    async def open_charges(self, response_id: str) -> list[Charge]:
        self._check_open()
        found = [kept.charge for (name, _), kept in self._open.items() if name == response_id]
        return sorted(found, key=lambda charge: charge.number)

    async def charges(
        self,
        *,
        project: str | None = None,
        response_id: str | None = None,
        conversation: str | None = None,
        run: str | None = None,
        before: tuple[float, str, int] | None = None,
        limit: int = 100,
    ) -> list[Charge]:
        self._check_open()
        last = None if before is None else (before[0], pack_id(before[1]), before[2])
        wanted = {"project": project, "conversation": conversation, "run": run}
        fields = [(name, value) for name, value in wanted.items() if value is not None]
        found = [
            kept.charge
            for kept in self._charges.values()
            if (response_id is None or kept.charge.response_id == response_id)
            and all(getattr(kept.charge.payer, name) == value for name, value in fields)
            and (last is None or _place(kept.charge) < last)
        ]
        return sorted(found, key=_place, reverse=True)[:limit]

    async def requests(self, query: RequestQuery) -> list[list[Charge]]:
        self._check_open()
        every: dict[str, list[Charge]] = {}
        for kept in self._charges.values():
            every.setdefault(kept.charge.response_id, []).append(kept.charge)
        ordered = (sorted(one, key=lambda charge: charge.number) for one in every.values())
        found = [one for one in ordered if one[0].number == 0 and _is_asked_for(one, query)]
        return sorted(found, key=lambda one: _place(one[0]), reverse=True)[: query.limit]

    async def usage(self, query: UsageQuery) -> list[UsageRow]:
        self._check_open()
        if not query.reads_charges:
            return fold_usage(query, self._sums[query.width])
        settled = (kept for kept in self._charges.values() if kept.charge.state == "settled")
        return fold_usage(
            query,
            (
                (
                    keys_of(kept.charge, query.width)._replace(
                        conversation=kept.charge.payer.conversation, run=kept.charge.payer.run
                    ),
                    sum_of(kept.charge, is_request=kept.is_request),
                )
                for kept in settled
            ),
        )

    async def put_budget(self, budget: Budget, *, audit: AuditRecord | None = None) -> BudgetState:
        self._check_open()
        self._audit.add_if(audit)
        place, now = _budget_place(budget), self.clock()
        for row in list(self._budgets.values()):
            if row.budget.id == budget.id and _budget_place(row.budget) != place:
                del self._budgets[row.key]
        known = [row for row in self._budgets.values() if _budget_place(row.budget) == place]
        row = known[0] if known else self._add_budget(budget, now)
        row.roll(now)
        row.set_ceiling(budget)
        return BudgetState(budget, row.period_start, row.spent, row.held)

    async def delete_budget(self, budget_id: str, *, audit: AuditRecord | None = None) -> bool:
        self._check_open()
        found = [row.key for row in self._budgets.values() if row.budget.id == budget_id]
        if found:
            self._audit.add_if(audit)
        for key in found:
            del self._budgets[key]
        return bool(found)

    async def budgets(
        self,
        scope: Scope | None = None,
        scope_id: str | None = None,
        *,
        with_ceilings: bool = True,
    ) -> list[BudgetState]:
        self._check_open()
        now, found = self.clock(), []
        for row in self._budgets.values():
            budget = row.budget
            if not with_ceilings and budget.id.startswith(RUN_PREFIX):
                continue
            if scope in {None, budget.scope} and scope_id in {None, budget.scope_id}:
                row.roll(now)
                found.append(BudgetState(budget, row.period_start, row.spent, row.held))
        return found

    async def put_limit(self, limit: RateLimit) -> None:
        self._check_open()
        place = _limit_place(limit)
        for row in list(self._limits.values()):
            if row.limit.id == limit.id and _limit_place(row.limit) != place:
                del self._limits[row.key]
        known = [row for row in self._limits.values() if _limit_place(row.limit) == place]
        if known:
            known[0].limit = limit
        else:
            self._last_key += 1
            self._limits[self._last_key] = LimitRow(self._last_key, limit)

    async def delete_limit(self, limit_id: str) -> bool:
        self._check_open()
        found = [row.key for row in self._limits.values() if row.limit.id == limit_id]
        for key in found:
            del self._limits[key]
        return bool(found)

    async def rate_limits(
        self, scope: Scope | None = None, scope_id: str | None = None
    ) -> list[RateLimit]:
        self._check_open()
        limits = (row.limit for row in self._limits.values())
        return [
            limit
            for limit in limits
            if scope in {None, limit.scope} and scope_id in {None, limit.scope_id}
        ]

    async def check(self) -> list[LedgerProblem]:
        self._check_open()
        check = BookCheck(self._budgets.values(), self._sums, self._swept_before)
        for kept in self._charges.values():
            check.add(kept.charge, is_request=kept.is_request, is_alive=True)
        return check.problems()

    async def total(self, limit: int) -> int:
        """Do nothing: few enough sums fit in memory."""
        self._check_open()
        return 0

    async def sweep(self, before: int, limit: int) -> int:
        self._check_open()
        ended = (key for key, kept in self._charges.items() if kept.charge.state != "held")
        old = [key for key in ended if self._charges[key].charge.reserved_at < before][:limit]
        for key in old:
            self._forget(key)
        for row in list(self._budgets.values()):
            budget = row.budget
            if budget.id.startswith(RUN_PREFIX) and budget.created_at < before and not row.held:
                self._drop_run(row)
        return len(old)

    def settle_now(self, settled: Iterable[Settlement]) -> None:
        """Settle charges that are held; others stay as they are."""
        for one in map(normalize, settled):
            kept = self._open.pop((one.response_id, one.number), None)
            if kept is not None:
                self._settle(kept, one)

    def clear(self) -> None:
        """Remove everything."""
        for kept in (self._charges, self._open, self._budgets, self._limits):
            kept.clear()
        for sums in self._sums.values():
            sums.clear()

    def _reserve(
        self, wanted: Reservation, settled: Sequence[Settlement], *, is_forced: bool
    ) -> Granted | Refused:
        self.settle_now(settled)
        key = (wanted.response_id, wanted.number)
        books = self._books(wanted)
        if key in self._charges:
            return books.repeat(wanted)
        decision = books.reserve(wanted, is_forced=is_forced)
        if isinstance(decision.answer, Refused):
            return decision.answer
        for row in decision.budgets:
            if row.key == 0:
                self._keep_budget(row)
        self._make_room()
        charge = _held(wanted, books.now)
        kept = _Kept(charge, wanted.is_request, decision.links)
        self._charges[key] = self._open[key] = kept
        return decision.answer

    def _settle(self, kept: _Kept, one: Settlement) -> None:
        charge = kept.charge
        self._books().settle(kept.links, charge.held, charge.held_cost, one)
        kept.charge = charge = _replace(
            charge,
            state="released" if one.outcome == "released" else "settled",
            settled_at=floor_time(self.clock()),
            used=one.used,
            cost=one.cost,
            basis=one.basis,
            outcome=one.outcome,
            first_ms=one.first_ms,
            total_ms=one.total_ms,
            items=one.items,
        )
        if charge.state == "settled":
            for width, sums in self._sums.items():
                key = keys_of(charge, width)
                added = sum_of(charge, is_request=kept.is_request)
                sums[key] = add_sum(sums.get(key, UsageSum()), added)

    def _books(self, wanted: Reservation | None = None) -> Books:
        """Return all budgets and limits; for a reservation, with what its run has used."""
        runs = {}
        if wanted is not None and wanted.limits_run:
            run = wanted.payer.scope_ids()["run"]
            runs[run] = self._used("run", run, "usd", 0)
        for row in self._limits.values():
            if row.limit.concurrent is not None:
                row.running = {
                    kept.charge.response_id
                    for kept in self._open.values()
                    if row.limit.model in {"", kept.charge.model}
                    and _is_in(kept.charge, row.limit.scope, row.limit.scope_id)
                }
        return Books(self.clock(), self._budgets.values(), self._limits.values(), runs)

    def _used(self, scope: Scope, scope_id: str, unit: Unit, start: int) -> tuple[int, int]:
        """Return what charges of a scope have spent, and hold, since this time."""
        charges = [
            kept.charge
            for kept in self._charges.values()
            if kept.charge.reserved_at >= start and _is_in(kept.charge, scope, scope_id)
        ]
        held = sum(
            amount_of(unit, one.held, one.held_cost) for one in charges if one.state == "held"
        )
        if scope in {"conversation", "run"}:
            return sum(amount_of(unit, one.used, one.cost) for one in charges), held
        # The sums also have what was removed to make room.
        spent = sum(
            amount_of(unit, one.used, one.cost)
            for key, one in self._sums[WIDTHS[0]].items()
            if key.start >= start and scope_of(key, scope) == scope_id
        )
        return spent, held

    def _add_budget(self, budget: Budget, now: float) -> BudgetRow:
        start = period_start(budget.period, now)
        spent, held = self._used(budget.scope, budget.scope_id, budget.unit, start)
        row = BudgetRow(0, budget, start, spent, held)
        self._keep_budget(row)
        return row

    def _keep_budget(self, row: BudgetRow) -> None:
        """Store a new budget, and hold the open charges in its scope against it."""
        self._last_key += 1
        row.key = self._last_key
        self._budgets[row.key] = row
        link = (row.key, row.period_start)
        for kept in self._open.values():
            is_now = kept.charge.reserved_at >= row.period_start
            if is_now and _is_in(kept.charge, row.budget.scope, row.budget.scope_id):
                kept.links = Links((*kept.links.budgets, link), kept.links.tokens)

    def _drop_run(self, row: BudgetRow) -> None:
        """Remove the budget of a run that has no charge any more."""
        run = row.budget.scope_id
        if not any(_is_in(kept.charge, "run", run) for kept in self._charges.values()):
            del self._budgets[row.key]

    def _make_room(self) -> None:
        if len(self._charges) < self._room:
            return
        ended = (key for key, kept in self._charges.items() if kept.charge.state != "held")
        oldest = next(ended, None)
        if oldest is not None:
            self._forget(oldest)

    def _forget(self, key: tuple[str, int]) -> None:
        reserved_at = self._charges.pop(key).charge.reserved_at
        # Sums are by day at most: the whole day is no longer complete.
        self._swept_before = max(self._swept_before, reserved_at // 86_400 * 86_400 + 86_400)


def _held(wanted: Reservation, now: float) -> Charge:
    return Charge(
        response_id=wanted.response_id,
        number=wanted.number,
        state="held",
        payer=wanted.payer,
        kind=wanted.kind,
        model=wanted.model,
        served=wanted.served,
        provider=wanted.provider,
        reserved_at=now,
        held=wanted.held,
        held_cost=wanted.held_cost,
    )


def _place(charge: Charge) -> tuple[float, bytes, int]:
    return charge.reserved_at, pack_id(charge.response_id), charge.number


def _is_asked_for(charges: list[Charge], query: RequestQuery) -> bool:
    """Return whether a request is one of those that a query lists."""
    first, payer = charges[0], charges[0].payer
    chosen = (
        (query.projects, payer.project),
        (query.keys, payer.key),
        (query.users, payer.user),
        (query.models, first.model),
        (query.conversations, payer.conversation),
        (query.runs, payer.run),
        (query.responses, first.response_id),
        (() if query.status is None else (query.status,), request_status(charges)),
    )
    at, before = first.reserved_at, query.before
    return (
        all(not wanted or value in wanted for wanted, value in chosen)
        and (query.start is None or at >= query.start)
        and (query.end is None or at < query.end)
        and (before is None or _place(first)[:2] < (before[0], pack_id(before[1])))
    )


def _is_in(charge: Charge, scope: Scope, scope_id: str) -> bool:
    return charge.payer.scope_ids().get(scope) == scope_id


def _budget_place(budget: Budget) -> tuple[str, str, str, str]:
    return budget.scope, budget.scope_id, budget.unit, budget.period


def _limit_place(limit: RateLimit) -> tuple[str, str, str]:
    return limit.scope, limit.scope_id, limit.model
