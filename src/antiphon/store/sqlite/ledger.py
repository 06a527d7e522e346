"""Facet `ledger` in SQLite.

Reservations and settlements share the commits of the turns (see `ledger_writing`). A store that
has died is known by its sign of life (see `presence`). Whether limits apply is answered from
memory, and read again when a second has passed.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
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
from antiphon.store.encoding import is_storable
from antiphon.store.known_limits import KnownLimits
from antiphon.store.ledger_requests import names_in
from antiphon.store.ledger_rows import budget_row, limit_row
from antiphon.store.ledger_rules import RUN_PREFIX, BudgetRow
from antiphon.store.sql.audit import add_audit
from antiphon.store.sqlite.connection import unavailable
from antiphon.store.sqlite.copy_rows import connect_reader
from antiphon.store.sqlite.ledger_abandoned import dead_writers, settle_dead, sweep_charges
from antiphon.store.sqlite.ledger_books import SELECT_BUDGETS, SELECT_LIMITS
from antiphon.store.sqlite.ledger_limits import (
    delete_budget,
    delete_limit,
    has_run_budget,
    put_budget,
    put_limit,
    read_limits,
)
from antiphon.store.sqlite.ledger_reading import (
    check_books,
    find_charges,
    find_requests,
    find_usage,
    open_charges,
)
from antiphon.store.sqlite.ledger_totals import add_totals, untotalled
from antiphon.store.sqlite.ledger_writing import Extend, Reserve, Settle
from antiphon.store.sqlite.presence import Presence
from antiphon.store.sqlite.tables import drive
from antiphon.store.sqlite.worker import Reader, Writer

__all__ = ["SqliteLedger"]

# What a charge takes in the backlog.
_SIZE: Final = 300
_FRESH_SECONDS: Final = 1.0
# Charges that wait to be written again. Turns of a store that cannot write fail anyway.
_MOST_LOST: Final = 10_000

_NO_CEILINGS: Final = f" AND substr(id, 1, {len(RUN_PREFIX)}) <> '{RUN_PREFIX}'"

_Found = TypeVar("_Found")

_log = logging.getLogger(__name__)


class SqliteLedger:
    """See `Ledger` for what the methods do. `clock` is the store's time in seconds."""

    def __init__(self, path: Path, writer: Writer, reader: Reader, presence: Presence) -> None:
        self.clock: Callable[[], float] = time.time
        self._path = path
        self._writer = writer
        self._reader = reader
        self._presence = presence
        self._known = KnownLimits()
        self._read_at = float("-inf")
        self._lost: dict[tuple[str, int], Reserve] = {}

    async def reserve(
        self, wanted: Reservation, settled: Sequence[Settlement] = ()
    ) -> Granted | Refused:
        answer: Granted | Refused = await self._writer.call_or_share(
            self._job(wanted, settled, is_forced=False), _SIZE
        )
        if wanted.limits_run:
            self._read_at = float("-inf")
        return answer

    def reserve_soon(self, wanted: Reservation, settled: Sequence[Settlement] = ()) -> None:
        """Queue the charge to be written. If that fails, it is tried again (`retry_lost`)."""
        self._post(self._job(wanted, settled, is_forced=True))

    def retry_lost(self) -> None:
        """Queue again the charges that could not be written, before the end of their turn is."""
        for name in list(self._lost):
            job = self._lost.pop(name)
            try:
                self._post(job)
            except StoreUnavailable:  # too much is waiting: later
                self._lost[name] = job
                return

    async def limits_apply(self, payer: Payer, model: str) -> bool:
        now = time.monotonic()
        if now - self._read_at >= _FRESH_SECONDS:
            known = await self._reader.call(partial(read_limits, known=self._known))
            self._known, self._read_at = known, now
        if self._known.apply_to(payer, model):
            return True
        run = self._known.run_to_ask_for(payer)
        return run is not None and await self._reader.call(partial(has_run_budget, scope_id=run))

    async def extend(
        self, response_id: str, number: int, held: TokenCounts, held_cost: int | None
    ) -> bool:
        job = Extend(self._presence.name, self.clock, response_id, number, held, held_cost)
        return await self._writer.call_or_share(job, _SIZE)

    async def settle(self, settled: Sequence[Settlement]) -> None:
        if settled:
            self.retry_lost()
            job = Settle(self._presence.name, self.clock, settled)
            await self._writer.call_or_share(job, _SIZE * len(settled))

    async def settle_abandoned(self, limit: int) -> int:
        is_alive, clock = self._presence.is_alive, self.clock
        # Called often, and mostly without result: reading does not delay writers.
        if not await self._reader.call(partial(dead_writers, is_alive=is_alive)):
            return 0
        return await self._writer.call(
            lambda connection: settle_dead(connection, is_alive, clock(), limit)
        )

    async def open_charges(self, response_id: str) -> list[Charge]:
        writer = self._presence.name
        return await self._written(lambda connection: open_charges(connection, writer, response_id))

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
        if not all(map(is_storable, names.values())):
            return []
        return await self._written(
            lambda connection: find_charges(connection, names, response_id, before, limit)
        )

    async def requests(self, query: RequestQuery) -> list[list[Charge]]:
        if not all(map(is_storable, names_in(query))):
            return []
        return await self._written(partial(find_requests, query=query))

    async def usage(self, query: UsageQuery) -> list[UsageRow]:
        return await self._reader.call(partial(find_usage, query=query))

    async def put_budget(self, budget: Budget, *, audit: AuditRecord | None = None) -> BudgetState:
        def run(connection: sqlite3.Connection) -> BudgetRow:
            row = put_budget(connection, budget, self.clock())
            drive(add_audit(audit), connection, self._presence, [])
            return row

        row = await self._writer.call(run)
        self._read_at = float("-inf")
        return _state(row)

    async def delete_budget(self, budget_id: str, *, audit: AuditRecord | None = None) -> bool:
        def run(connection: sqlite3.Connection) -> bool:
            is_gone = delete_budget(connection, budget_id)
            drive(add_audit(audit if is_gone else None), connection, self._presence, [])
            return is_gone

        return await self._change(run)

    async def budgets(
        self,
        scope: Scope | None = None,
        scope_id: str | None = None,
        *,
        with_ceilings: bool = True,
    ) -> list[BudgetState]:
        more = "" if with_ceilings else _NO_CEILINGS
        rows = await self._listed(SELECT_BUDGETS + "budgets", scope, scope_id, more)
        found = [budget_row(row) for row in rows]
        now = self.clock()
        for row in found:
            row.roll(now)
        return [_state(row) for row in found]

    async def put_limit(self, limit: RateLimit) -> None:
        await self._change(partial(put_limit, limit=limit))

    async def delete_limit(self, limit_id: str) -> bool:
        return await self._change(partial(delete_limit, limit_id=limit_id))

    async def rate_limits(
        self, scope: Scope | None = None, scope_id: str | None = None
    ) -> list[RateLimit]:
        rows = await self._listed(SELECT_LIMITS + "rate_limits", scope, scope_id)
        return [limit_row(row).limit for row in rows]

    async def check(self) -> list[LedgerProblem]:
        """Check what has been written so far, with a connection of its own: it may take long."""
        await self._writer.call(lambda _: None)
        return await asyncio.to_thread(self._check)

    async def total(self, limit: int) -> int:
        clock = self.clock
        # Called often, and mostly without result: reading does not delay writers.
        start, end = await self._reader.call(lambda connection: untotalled(connection, clock()))
        if start >= end:
            return 0
        return await self._writer.call(lambda connection: add_totals(connection, clock(), limit))

    async def sweep(self, before: int, limit: int) -> int:
        return await self._writer.call(partial(sweep_charges, before=before, limit=limit))

    def _check(self) -> list[LedgerProblem]:
        try:
            with closing(connect_reader(self._path)) as connection:
                connection.execute("BEGIN")
                return check_books(connection, self._presence.is_alive)
        except (sqlite3.Error, OSError) as error:
            raise unavailable(error) from error

    def _job(
        self, wanted: Reservation, settled: Sequence[Settlement], *, is_forced: bool
    ) -> Reserve:
        if self._lost:
            self.retry_lost()
        return Reserve(self._presence.name, self.clock, wanted, settled, is_forced)

    def _post(self, job: Reserve) -> None:
        self._writer.post(job, _SIZE, on_failure=partial(self._note_lost, job))

    def _note_lost(self, job: Reserve, _: StoreUnavailable) -> None:
        """Keep a charge that could not be written. Runs in the writer's thread."""
        self._lost[job.wanted.response_id, job.wanted.number] = job
        if len(self._lost) > _MOST_LOST:
            name = next(iter(self._lost))
            del self._lost[name]
            _log.error("the charge %s/%d could not be stored and is given up", *name)

    async def _written(self, run: Callable[[sqlite3.Connection], list[_Found]]) -> list[_Found]:
        """Return what there is when all that is queued was written."""
        worker = self._writer if self._writer.is_busy else self._reader
        return await worker.call(run)

    async def _change(self, run: Callable[[sqlite3.Connection], bool]) -> bool:
        changed = await self._writer.call(run)
        self._read_at = float("-inf")
        return changed

    async def _listed(
        self, select: str, scope: str | None, scope_id: str | None, more: str = ""
    ) -> list[Any]:
        question = f"{select} WHERE (?1 IS NULL OR scope = ?1) AND (?2 IS NULL OR scope_id = ?2)"
        return await self._reader.call(
            lambda connection: connection.execute(
                f"{question}{more} ORDER BY key", (scope, scope_id)
            ).fetchall()
        )


def _state(row: BudgetRow) -> BudgetState:
    return BudgetState(row.budget, row.period_start, row.spent, row.held)
