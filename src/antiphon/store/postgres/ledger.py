"""Facet `ledger` in PostgreSQL, exact over all nodes that share the database.

Reservations and settlements share the commits of the turns: they are a kind of the flusher (see
`ledger_work`). The time is the database's, because the clocks of nodes may differ. Whether limits
apply is answered from memory, and read again when a second has passed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, TypeVar

from antiphon.protocol.errors import StoreUnavailable
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
    UsageQuery,
    UsageRow,
)
from antiphon.store.base.requests import RequestQuery
from antiphon.store.known_limits import KnownLimits
from antiphon.store.ledger_requests import names_in
from antiphon.store.ledger_rows import BUDGET_COLUMNS, LIMIT_COLUMNS, budget_row, limit_row
from antiphon.store.ledger_rules import RUN_PREFIX, BudgetRow
from antiphon.store.postgres.database import (
    Connection,
    Database,
    UncertainCommit,
    in_transaction,
)
from antiphon.store.postgres.errors import FAULTS, unavailable
from antiphon.store.postgres.flusher import Flusher, LeaseLapsed
from antiphon.store.postgres.ledger_abandoned import (
    has_abandoned,
    settle_dead,
    sweep_charges,
    sweep_runs,
)
from antiphon.store.postgres.ledger_limits import (
    delete_budget,
    delete_limit,
    has_run_budget,
    put_budget,
    put_limit,
    read_limits,
)
from antiphon.store.postgres.ledger_names import NOW
from antiphon.store.postgres.ledger_reading import (
    check_books,
    find_charges,
    find_requests,
    find_usage,
    open_charges,
)
from antiphon.store.postgres.ledger_totals import add_totals, untotalled
from antiphon.store.postgres.ledger_work import LEDGER, Extension, Work
from antiphon.store.postgres.node import Node
from antiphon.store.postgres.rows import is_text
from antiphon.store.postgres.tables import drive
from antiphon.store.sql.audit import add_audit

__all__ = ["PostgresLedger"]

# What a charge takes in the queue.
_SIZE: Final = 300
_FRESH_SECONDS: Final = 1.0
_LISTED: Final = (
    "WHERE ($1::text IS NULL OR scope = $1) AND ($2::text IS NULL OR scope_id = $2) ORDER BY key"
)
_BUDGETS: Final = f"SELECT {', '.join(BUDGET_COLUMNS)}, {NOW} FROM budgets {_LISTED}"  # noqa: S608
_BUDGETS_SET: Final = _BUDGETS.replace(
    " ORDER BY", f" AND NOT starts_with(id, '{RUN_PREFIX}') ORDER BY"
)
_LIMITS: Final = f"SELECT {', '.join(LIMIT_COLUMNS)} FROM rate_limits {_LISTED}"  # noqa: S608

_T = TypeVar("_T")


class PostgresLedger:
    """See `Ledger` for what the methods do. `clock` replaces the time of the database."""

    def __init__(self, database: Database, node: Node, flusher: Flusher) -> None:
        self.clock: Callable[[], float] | None = None
        self._database = database
        self._node = node
        self._flusher = flusher
        self._known = KnownLimits()
        self._read_at = float("-inf")
        self._reading = asyncio.Lock()

    async def reserve(
        self, wanted: Reservation, settled: Sequence[Settlement] = ()
    ) -> Granted | Refused:
        """Reserve. One whose caller has left or got an error is undone, if it was made."""
        await self._node.ensure()
        work = Work(self._node.name, tuple(settled), wanted, now=self._now())
        try:
            answer: Granted | Refused = await self._call(wanted.response_id, work)
        except (StoreUnavailable, asyncio.CancelledError):
            undo = Work(self._node.name, undone=(wanted.response_id, wanted.number))
            with suppress(StoreUnavailable):
                self._flusher.post(LEDGER, ("", wanted.response_id), undo, _SIZE)
            raise
        if wanted.limits_run:
            self._read_at = float("-inf")
        return answer

    def reserve_soon(self, wanted: Reservation, settled: Sequence[Settlement] = ()) -> None:
        """Queue the charge to be written. It is tried again until that has worked.

        It is written before what is written later of the same response.
        """
        work = Work(self._node.name, tuple(settled), wanted, is_forced=True, now=self._now())
        self._flusher.post(LEDGER, ("", wanted.response_id), work, _SIZE)

    async def limits_apply(self, payer: Payer, model: str) -> bool:
        if time.monotonic() - self._read_at >= _FRESH_SECONDS:
            async with self._reading:
                now = time.monotonic()
                if now - self._read_at >= _FRESH_SECONDS:
                    self._known = await self._database.ask(partial(read_limits, known=self._known))
                    self._read_at = now
        if self._known.apply_to(payer, model):
            return True
        run = self._known.run_to_ask_for(payer)
        return run is not None and await self._database.ask(partial(has_run_budget, scope_id=run))

    async def extend(
        self, response_id: str, number: int, held: TokenCounts, held_cost: int | None
    ) -> bool:
        await self._node.ensure()
        more = Extension(response_id, number, held, held_cost)
        work = Work(self._node.name, extension=more, now=self._now())
        return bool(await self._call(response_id, work))

    async def settle(self, settled: Sequence[Settlement]) -> None:
        await self._node.ensure()
        groups: dict[str, list[Settlement]] = {}
        for one in settled:
            groups.setdefault(one.response_id, []).append(one)
        await asyncio.gather(
            *(
                self._call(name, Work(self._node.name, tuple(some), now=self._now()))
                for name, some in groups.items()
            )
        )

    async def settle_abandoned(self, limit: int) -> int:
        writer = await self._node.ensure()
        is_steady = self._node.is_steady
        # Called often, and mostly without result: reading locks nothing.
        find = partial(has_abandoned, writer=writer, is_steady=is_steady)
        if not await self._database.ask(find):
            return 0
        settle = partial(settle_dead, writer=writer, limit=limit, is_steady=is_steady)
        try:
            return await self._change(settle)
        except LeaseLapsed:
            await self._node.renew()
            return await self._change(settle)

    async def open_charges(self, response_id: str) -> list[Charge]:
        await self._flusher.until_posted()
        find = partial(open_charges, writer=self._node.name, response_id=response_id)
        return await self._database.ask(find)

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
        wanted = {"project": project, "conversation": conversation, "run": run}
        names = {column: name for column, name in wanted.items() if name is not None}
        if not all(map(is_text, names.values())):
            return []
        await self._flusher.until_posted()
        return await self._database.ask(
            lambda connection: find_charges(connection, names, response_id, before, limit)
        )

    async def requests(self, query: RequestQuery) -> list[list[Charge]]:
        if not all(map(is_text, names_in(query))):
            return []
        await self._flusher.until_posted()
        return await self._database.ask(partial(find_requests, query=query))

    async def usage(self, query: UsageQuery) -> list[UsageRow]:
        return await self._database.view(partial(find_usage, query=query))

    async def put_budget(self, budget: Budget, *, audit: AuditRecord | None = None) -> BudgetState:
        async def run(connection: Connection) -> BudgetRow:
            row = await put_budget(connection, budget=budget, now=self._now())
            await drive(partial(add_audit, audit), [], connection)
            return row

        return _state(await self._change(run))

    async def delete_budget(self, budget_id: str, *, audit: AuditRecord | None = None) -> bool:
        async def run(connection: Connection) -> bool:
            is_gone = await delete_budget(connection, budget_id=budget_id)
            await drive(partial(add_audit, audit if is_gone else None), [], connection)
            return is_gone

        return is_text(budget_id) and await self._change(run)

    async def budgets(
        self,
        scope: Scope | None = None,
        scope_id: str | None = None,
        *,
        with_ceilings: bool = True,
    ) -> list[BudgetState]:
        found = []
        question = _BUDGETS if with_ceilings else _BUDGETS_SET
        for *values, now in await self._listed(question, scope, scope_id):
            row = budget_row(values)
            row.roll(self._now() or now)
            found.append(_state(row))
        return found

    async def put_limit(self, limit: RateLimit) -> None:
        await self._change(partial(put_limit, limit=limit))

    async def delete_limit(self, limit_id: str) -> bool:
        if not is_text(limit_id):
            return False
        return await self._change(partial(delete_limit, limit_id=limit_id))

    async def rate_limits(
        self, scope: Scope | None = None, scope_id: str | None = None
    ) -> list[RateLimit]:
        rows = await self._listed(_LIMITS, scope, scope_id)
        return [limit_row(tuple(row)).limit for row in rows]

    async def check(self) -> list[LedgerProblem]:
        """Check what is committed, with a connection of its own and without a time limit."""
        await self._flusher.until_posted()
        try:
            connection = await self._database.connect(is_patient=True)
        except FAULTS as error:
            raise unavailable(error) from error
        try:
            settings = {"isolation": "repeatable_read", "readonly": True}
            return await in_transaction(connection, check_books, **settings)
        except FAULTS as error:
            raise unavailable(error) from error
        finally:
            connection.terminate()

    async def total(self, limit: int) -> int:
        # Called often, and mostly without result: reading closes no gate.
        start, end = await self._database.ask(partial(untotalled, now=self._now()))
        if start >= end:
            return 0
        add = partial(add_totals, now=self._now(), limit=limit)
        try:
            return await self._database.change(add)
        except UncertainCommit:
            return await self._database.change(add)

    async def sweep(self, before: int, limit: int) -> int:
        removed = await self._change(partial(sweep_charges, before=before, limit=limit))
        await self._change(partial(sweep_runs, before=before, limit=limit))
        return removed

    def _now(self) -> float | None:
        return None if self.clock is None else self.clock()

    async def _call(self, response_id: str, work: Work) -> Any:  # Any: the result of the work
        return await self._flusher.call(LEDGER, ("", response_id), work, _SIZE)

    async def _change(self, run: Callable[[Connection], Awaitable[_T]]) -> _T:
        """Make a change that may be made twice."""
        try:
            changed = await self._database.change(run)
        except UncertainCommit:
            changed = await self._database.change(run)
        self._read_at = float("-inf")
        return changed

    async def _listed(self, question: str, scope: str | None, scope_id: str | None) -> list[Any]:
        if scope_id is not None and not is_text(scope_id):
            return []
        return await self._database.ask_rows(question, scope, scope_id)


def _state(row: BudgetRow) -> BudgetState:
    return BudgetState(row.budget, row.period_start, row.spent, row.held)
