"""How are many reservations and settlements made in one transaction?

`make_works` is a kind of the flusher that is made last: it locks the rows that are concerned (see
`ledger_locks`), lets the rules decide (`Books`), and writes what has changed, each table in one
statement. First it settles, then it extends, then it reserves. A charge that exists already is
not reserved again, and one that is not held by the writer is not settled again: so a second
attempt changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import asyncpg

from antiphon.protocol.token_counts import TokenCounts
from antiphon.store.base.ledger import Granted, Reservation, Settlement
from antiphon.store.ledger_rows import names_of, pack_id
from antiphon.store.ledger_rules import (
    Books,
    BudgetRow,
    Decision,
    LimitRow,
    Links,
    normalize,
)
from antiphon.store.postgres.database import Connection
from antiphon.store.postgres.flusher import Kind
from antiphon.store.postgres.ledger_locks import (
    LockedCharge,
    enter_gate,
    lock_budgets,
    lock_charges,
    lock_limits,
    lock_runs,
)
from antiphon.store.postgres.ledger_names import InGate, number_in_gate, numbers_of
from antiphon.store.postgres.ledger_used import running_in, spent_by_runs
from antiphon.store.postgres.ledger_writes import (
    Settled,
    add_sums,
    delete_charges,
    insert_budgets,
    insert_charges,
    settle_charges,
    update_budgets,
    update_held,
    update_limits,
    update_links,
)
from antiphon.store.postgres.rows import is_text

__all__ = ["LEDGER", "Extension", "Work", "make_works"]

_Name = tuple[bytes, int]


class Extension(NamedTuple):
    """Hold this much from now on for a charge."""

    response_id: str
    number: int
    held: TokenCounts
    held_cost: int | None


class Work(NamedTuple):
    """What one caller wants. The result is that of its reservation or extension, if it has one.

    A forced reservation is not refused. One that is undone is removed, as if it had never been
    made. `now` replaces the time of the database.
    """

    writer: str
    settled: Sequence[Settlement] = ()
    wanted: Reservation | None = None
    is_forced: bool = False
    extension: Extension | None = None
    undone: tuple[str, int] | None = None
    now: float | None = None


async def make_works(connection: Connection, works: Sequence[Work], _: bool) -> list[Any]:
    """Make these works; return their results."""
    return await _Group(connection, works).make()


LEDGER: Final = Kind(make_works, is_last=True)


class _Group:
    """The works of one transaction."""

    def __init__(self, connection: Connection, works: Sequence[Work]) -> None:
        self._connection = connection
        self._works = works
        self._in_gate = InGate({}, has_budgets=True, has_limits=True, now=0.0)
        self._numbers: dict[str, int] = {}
        self._charges: dict[_Name, LockedCharge] = {}
        # What runs have used that may get a budget now, by `scope_id`.
        self._used: dict[str, tuple[int, int]] = {}
        self._now = max((work.now for work in works if work.now is not None), default=0.0)

    async def make(self) -> list[Any]:
        """Lock, decide and write."""
        await self._lock_charges()
        settled = self._settled()
        undone = self._undone()
        links = [charge.links for charge in self._charges.values()]
        wanted = [work.wanted for work in self._works if work.wanted is not None]
        # A scope whose name is not text has no budget here.
        found = {scope for one in wanted for scope in one.payer.scope_ids().items()}
        scopes = sorted(scope for scope in found if is_text(scope[1]))
        budgets, limits = await self._lock_sums(scopes, links)
        await settle_charges(self._connection, settled, self._now)
        await delete_charges(self._connection, [charge.row["key"] for charge in undone])
        await self._count_running(limits, wanted)
        self._used = await self._runs(wanted, budgets, settled)
        books = Books(self._now, budgets, limits, self._used)
        for one in settled:
            row = one.charge.row
            books.settle(one.charge.links, one.charge.held, row["held_cost"], one.settlement)
        for charge in undone:
            books.settle(charge.links, charge.held, charge.row["held_cost"], _released(charge))
        extended = await self._extend(books)
        decisions = self._reserve(books)
        await self._write(books, decisions, settled, undone)
        return [
            decisions[place].answer if place in decisions else extended.get(place)
            for place in range(len(self._works))
        ]

    async def _lock_charges(self) -> None:
        writer = self._works[0].writer
        await enter_gate(self._connection, writer)
        wanted = [work.wanted for work in self._works if work.wanted is not None]
        runs: dict[str, bool] = {}
        for one in wanted:
            if one.payer.run is not None:
                run = one.payer.scope_ids()["run"]
                runs[run] = runs.get(run, False) or one.limits_run
        await lock_runs(self._connection, runs)
        names = {name for one in wanted for name in names_of(one) if name is not None}
        self._in_gate = await number_in_gate(self._connection, names | {writer})
        self._numbers = self._in_gate.numbers
        reserved = {(pack_id(one.response_id), one.number) for one in wanted}
        charges = set(reserved)
        for work in self._works:
            charges |= {(pack_id(one.response_id), one.number) for one in work.settled}
            if work.extension is not None:
                charges.add((pack_id(work.extension.response_id), work.extension.number))
            if work.undone is not None:
                charges.add((pack_id(work.undone[0]), work.undone[1]))
        alone = {
            (*self._run_numbers(one), one.payer.scope_ids()["run"])
            for one in wanted
            if one.limits_run
        }
        self._charges = await lock_charges(
            self._connection, sorted(charges), sorted(alone), sorted(reserved)
        )

    async def _lock_sums(
        self, scopes: Sequence[tuple[str, str]], links: Sequence[Links]
    ) -> tuple[list[BudgetRow], list[LimitRow]]:
        budgets: list[BudgetRow] = []
        limits: list[LimitRow] = []
        first = last = 0.0
        if self._in_gate.has_budgets:
            keys = sorted({key for one in links for key, _ in one.budgets})
            budgets, first = await lock_budgets(self._connection, scopes, keys)
        if self._in_gate.has_limits:
            keys = sorted({key for one in links for key, _ in one.tokens})
            limits, last = await lock_limits(self._connection, scopes, keys)
        if self._now == 0.0:
            self._now = max(first, last) or self._in_gate.now
        return budgets, limits

    def _settled(self) -> list[Settled]:
        """Return the charges to settle, each once."""
        found: dict[_Name, Settled] = {}
        for work in self._works:
            for one in map(normalize, work.settled):
                name = (pack_id(one.response_id), one.number)
                charge = self._charges.get(name)
                if charge and charge.is_held_by(self._numbers[work.writer]):
                    found.setdefault(name, Settled(charge, one))
        return list(found.values())

    def _undone(self) -> list[LockedCharge]:
        names = (work.undone for work in self._works if work.undone is not None)
        found = (self._charges.get((pack_id(name), number)) for name, number in names)
        writer = self._numbers[self._works[0].writer]
        return [charge for charge in found if charge and charge.is_held_by(writer)]

    async def _count_running(
        self, limits: Sequence[LimitRow], wanted: Sequence[Reservation]
    ) -> None:
        counted = {row.key: row for row in limits if row.limit.concurrent is not None}
        if not counted:
            return
        running = await running_in(
            self._connection,
            [row.limit for row in counted.values()],
            [(one, numbers_of(one, self._numbers)) for one in wanted],
        )
        for row in counted.values():
            row.running = running.get((row.limit.scope, row.limit.scope_id, row.limit.model), set())

    async def _runs(
        self,
        wanted: Sequence[Reservation],
        budgets: Sequence[BudgetRow],
        settled: Sequence[Settled],
    ) -> dict[str, tuple[int, int]]:
        """Return what runs have used that have no budget yet, and may get one."""
        known = {
            row.budget.scope_id
            for row in budgets
            if (row.budget.scope, row.budget.unit, row.budget.period) == ("run", "usd", "total")
        }
        runs = {
            one.payer.scope_ids()["run"]: self._run_numbers(one) for one in wanted if one.limits_run
        }
        runs = {run: numbers for run, numbers in runs.items() if run not in known}
        if not runs:
            return {}
        spent = await spent_by_runs(self._connection, runs.values())
        ended = {one.charge.row["key"] for one in settled}
        held = dict.fromkeys(runs.values(), 0)
        for charge in self._charges.values():
            numbers = (charge.row["project"], charge.row["run"])
            if numbers in held and charge.row["state"] == 0 and charge.row["key"] not in ended:
                held[numbers] += charge.row["held_cost"] or 0
        return {run: (spent.get(numbers, 0), held[numbers]) for run, numbers in runs.items()}

    def _run_numbers(self, wanted: Reservation) -> tuple[int, int]:
        numbers = numbers_of(wanted, self._numbers)
        assert numbers.run is not None
        return numbers.project, numbers.run

    async def _extend(self, books: Books) -> dict[int, bool]:
        """Hold more where there is room; return whether there was, by place."""
        found: dict[int, bool] = {}
        changed = []
        for place, work in enumerate(self._works):
            more = work.extension
            if more is None:
                continue
            charge = self._charges.get((pack_id(more.response_id), more.number))
            found[place] = bool(
                charge
                and charge.is_held_by(self._numbers[work.writer])
                and books.extend(
                    charge.links, charge.held, charge.row["held_cost"], more.held, more.held_cost
                )
            )
            if charge and found[place]:
                changed.append((charge.row["key"], more.held, more.held_cost))
                self._use_more(charge, more)
        await update_held(self._connection, changed)
        return found

    def _use_more(self, charge: LockedCharge, more: Extension) -> None:
        """Count an extension for a run that may get a budget in this transaction."""
        numbers = (charge.row["project"], charge.row["run"])
        for work in self._works:
            if work.wanted is None or work.wanted.payer.run is None:
                continue
            run = work.wanted.payer.scope_ids()["run"]
            if run in self._used and self._run_numbers(work.wanted) == numbers:
                spent, held = self._used[run]
                change = (more.held_cost or 0) - (charge.row["held_cost"] or 0)
                self._used[run] = (spent, held + change)
                return

    def _reserve(self, books: Books) -> dict[int, Decision]:
        """Decide the reservations, by place. Those that may make the budget of a run are first:
        the others of the run are held against it.
        """
        places = [place for place, work in enumerate(self._works) if work.wanted is not None]
        decisions: dict[int, Decision] = {}
        for place in sorted(places, key=self._has_no_ceiling):
            wanted = self._works[place].wanted
            assert wanted is not None
            if (pack_id(wanted.response_id), wanted.number) in self._charges:
                decisions[place] = Decision(wanted, books.repeat(wanted))
            else:
                is_forced = self._works[place].is_forced
                decisions[place] = books.reserve(wanted, is_forced=is_forced)
        return decisions

    def _has_no_ceiling(self, place: int) -> bool:
        wanted = self._works[place].wanted
        return wanted is None or not wanted.limits_run

    async def _write(
        self,
        books: Books,
        decisions: dict[int, Decision],
        settled: Sequence[Settled],
        undone: Sequence[LockedCharge],
    ) -> None:
        new = [row for row in books.budgets if row.key == 0]
        await insert_budgets(self._connection, new)
        ended = {one.charge.row["key"] for one in settled} | {one.row["key"] for one in undone}
        await self._link(new, ended)
        kept = [
            decision
            for decision in decisions.values()
            if isinstance(decision.answer, Granted)
            and (pack_id(decision.wanted.response_id), decision.wanted.number) not in self._charges
        ]
        writer = self._numbers[self._works[0].writer]
        count = await insert_charges(self._connection, kept, writer, self._numbers, books.now)
        if count != len(kept):
            # An earlier attempt was committed after our charges were locked: all is decided again.
            raise asyncpg.SerializationError("a charge was reserved at the same time")
        await update_budgets(self._connection, [row for row in books.changed_budgets() if row.key])
        await update_limits(self._connection, books.changed_limits())
        await add_sums(self._connection, settled)

    async def _link(self, new: Sequence[BudgetRow], ended: set[int]) -> None:
        """Hold the open charges of a run against its new budget."""
        runs = {
            self._run_numbers(work.wanted): row
            for row in new
            for work in self._works
            if work.wanted is not None
            and work.wanted.payer.scope_ids().get("run") == row.budget.scope_id
        }
        changed = []
        for charge in self._charges.values():
            row = runs.get((charge.row["project"], charge.row["run"]))
            if row is not None and charge.row["state"] == 0 and charge.row["key"] not in ended:
                link = (row.key, row.period_start)
                changed.append(
                    (
                        charge.row["key"],
                        Links((*charge.links.budgets, link), charge.links.tokens),
                    )
                )
        await update_links(self._connection, changed)


def _released(charge: LockedCharge) -> Settlement:
    return Settlement(
        response_id="", number=charge.row["number"], outcome="released", basis="counted", cost=0
    )
