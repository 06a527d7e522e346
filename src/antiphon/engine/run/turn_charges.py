"""The charges of one turn, or of one request for which no turn runs.

Each call of an upstream is one charge: `reserve` holds it before the call, `settle` notes what
the call came to. Where limits apply, a settlement is written with the reservation of the next
charge; else with the end of the turn (`entries`), or by `close`, which writes whatever is left: it
must be called however the turn ends. A settlement may be written twice: that changes nothing.

The usage and the cost of the response are the sums of its charges.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Protocol

import msgspec

from antiphon.accounts.runs import NO_RUN, Run
from antiphon.engine.keep.kept_requests import KeptRequests
from antiphon.engine.keep.pending_writes import Defer
from antiphon.models.prices import Price, dollars_of
from antiphon.plans.plan import Plan
from antiphon.protocol.errors import BackendError, StoreUnavailable
from antiphon.protocol.response import BudgetNote, CostNote, Usage
from antiphon.protocol.token_counts import NO_TOKENS, TokenCounts, add_counts, usage_of
from antiphon.store.base.ledger import (
    Basis,
    ChargeKind,
    Granted,
    Ledger,
    LineItem,
    Outcome,
    Payer,
    Refused,
    Reservation,
    Settlement,
)

__all__ = [
    "NO_WATCHER",
    "ChargeWatcher",
    "HeldCharge",
    "TurnCharges",
    "Wanted",
    "did_no_work",
    "fitting",
]

# From the figure to rely on most to the one to rely on least.
_BASES: Final[tuple[Basis, ...]] = ("reported", "counted", "assumed")
_GRANTED: Final = Granted()


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """A call of an upstream that is about to be made."""

    kind: ChargeKind = "model"
    served: str = ""
    """The model, as the provider names it."""
    provider: str = ""
    price: Price | None = None
    held: TokenCounts = NO_TOKENS
    """The most that it may use, as far as it is granted now."""
    items_cost: int | None = None
    """Nano-dollars of what is paid by the piece, beside the tokens."""


class HeldCharge:
    """A charge that is held, until it is settled."""

    first: float | None = None
    """When the first output came."""
    is_open = True
    span_id = 0
    """The name of the call in a trace, if it is traced."""
    finish = ""
    """Why the model stopped, as far as it has stated that."""
    output_type = "text"
    plan: Plan | None = None
    """What the model is asked."""

    def __init__(self, number: int, wanted: Wanted, *, is_limited: bool) -> None:
        self.number = number
        self.wanted = wanted
        self.held = wanted.held
        self.is_limited = is_limited
        """Whether more than is held must be asked for before it is used."""
        self.started = time.monotonic()

    @property
    def held_cost(self) -> int | None:
        """Nano-dollars that it may cost while this much is held; None if that is not known."""
        return _held_cost(self.wanted, self.held)


class ChargeWatcher(Protocol):
    """Learns of every call of an upstream, as it happens. Must be quick, and never raise."""

    def note_reserved(self, charges: TurnCharges, charge: HeldCharge) -> None:
        """A call is about to be made."""
        ...

    def note_refused(self, refused: Refused) -> None:
        """A call is not made, or ends early: a budget or limit has no room for it."""
        ...

    def note_settled(
        self, charges: TurnCharges, charge: HeldCharge, settlement: Settlement
    ) -> None:
        """A call has ended."""
        ...


class _NoWatcher:
    def note_reserved(self, charges: TurnCharges, charge: HeldCharge) -> None:
        pass

    def note_refused(self, refused: Refused) -> None:
        pass

    def note_settled(
        self, charges: TurnCharges, charge: HeldCharge, settlement: Settlement
    ) -> None:
        pass


NO_WATCHER: Final[ChargeWatcher] = _NoWatcher()


class TurnCharges:
    """Who pays for a turn, and what it has used so far. `defer` writes what a store cannot now."""

    granted = _GRANTED
    """What was granted last, for the headers of the answer."""
    refused: Refused | None = None
    """Why the turn could not go on, if a limit was reached in it."""
    used = NO_TOKENS
    count = 0
    """How many charges were reserved."""
    has_output = False
    """Whether a charge that is settled has had any output."""
    _is_request_counted = False
    _basis = 0  # the place in _BASES of the least reliable figure
    _cost: int | None = 0

    def __init__(
        self,
        ledger: Ledger,
        response_id: str,
        payer: Payer,
        model: str,
        defer: Defer,
        *,
        run: Run = NO_RUN,
        context_bytes: Callable[[], int] = lambda: 0,
        watcher: ChargeWatcher = NO_WATCHER,
        kept: KeptRequests | None = None,
    ) -> None:
        self.kept = kept
        """What keeps the requests that are charged; None if they are not kept."""
        self.started = time.monotonic()
        self.response_id = response_id
        self.payer = payer
        self.model = model
        self.context_bytes = context_bytes
        """Returns how long the context of the turn is, about."""
        self._watcher = watcher
        self._ledger = ledger
        self._defer = defer
        self._run = run
        self._open: dict[int, HeldCharge] = {}
        self._unwritten: list[Settlement] = []

    async def limits_apply(self) -> bool:
        """Return whether a reservation may be refused."""
        if self._run.is_limited:
            return True
        return await self._ledger.limits_apply(self.payer, self.model)

    async def reserve(self, wanted: Wanted, *, is_limited: bool) -> HeldCharge | Refused:
        """Hold a charge for a call, before a byte of it goes upstream.

        `is_limited` is what `limits_apply` has returned; otherwise this does not wait. What was
        not written of the charges before is written with it.
        """
        number, self.count = self.count, self.count + 1
        reservation = self._reservation(number, wanted)
        granted: Granted | Refused = _GRANTED
        if is_limited:
            settled = tuple(self._unwritten)
            granted = await self._ledger.reserve(reservation, settled)
            self.note_written(settled)
        else:
            # What is not known to be durable goes with the end of the turn.
            self._ledger.reserve_soon(reservation)
        if isinstance(granted, Refused):
            # Nothing is kept of it, and a request is found by its charge with the number 0.
            if self.count == number + 1:
                self.count = number
            return granted
        self.granted, self._is_request_counted = granted, True
        charge = self._open[number] = HeldCharge(number, wanted, is_limited=granted.is_limited)
        self._watcher.note_reserved(self, charge)
        return charge

    def note_refused(self, refused: Refused) -> None:
        """Note that a call is not made, or ends early, because there is no room for it."""
        self._watcher.note_refused(refused)

    def _reservation(self, number: int, wanted: Wanted) -> Reservation:
        return Reservation(
            response_id=self.response_id,
            number=number,
            payer=self.payer,
            kind=wanted.kind,
            model=self.model,
            served=wanted.served,
            provider=wanted.provider,
            price=None if wanted.price is None else msgspec.json.encode(wanted.price),
            held=wanted.held,
            held_cost=_held_cost(wanted, wanted.held),
            is_request=not self._is_request_counted,
            run_ceiling=self._run.ceiling,
            run_default=self._run.default,
        )

    async def extend(self, charge: HeldCharge, held: TokenCounts) -> bool:
        """Hold this much for a charge from now on; return whether there is room."""
        cost = _held_cost(charge.wanted, held)
        has_room = await self._ledger.extend(self.response_id, charge.number, held, cost)
        if has_room:
            charge.held = held
        return has_room

    async def find_limit(self, charge: HeldCharge, held: TokenCounts) -> Refused | None:
        """Return the budget that has no room to hold this much for a charge, if it is found."""
        cost, before = (_held_cost(charge.wanted, one) for one in (held, charge.held))
        more = {
            "tokens": held.total - charge.held.total,
            "usd": 0 if cost is None or before is None else cost - before,
        }
        for scope, scope_id in self.payer.scope_ids().items():
            for state in await self._ledger.budgets(scope, scope_id):
                budget, used = state.budget, state.spent + state.held
                if used + more[budget.unit] > budget.ceiling:
                    return Refused(
                        by="budget",
                        scope=scope,
                        scope_id=scope_id,
                        id=budget.id,
                        limit=budget.ceiling,
                        used=used,
                        unit=budget.unit,
                        period=budget.period,
                    )
        return None

    def settle(
        self,
        charge: HeldCharge,
        outcome: Outcome,
        basis: Basis,
        used: TokenCounts,
        items: Sequence[LineItem] = (),
    ) -> None:
        """Note what a charge came to. A charge that was settled stays as it is."""
        if not charge.is_open:
            return
        charge.is_open = False
        del self._open[charge.number]
        cost = _cost_of(charge.wanted, used, items)
        if outcome == "released":
            used, cost = NO_TOKENS, 0
        else:
            self._add(basis, used, cost)
        settlement = Settlement(
            response_id=self.response_id,
            number=charge.number,
            outcome=outcome,
            basis=basis,
            used=used,
            cost=cost,
            first_ms=_milliseconds(charge.started, charge.first),
            total_ms=_milliseconds(charge.started, time.monotonic()) or 0,
            items=tuple(items),
        )
        self._unwritten.append(settlement)
        self._watcher.note_settled(self, charge, settlement)
        self.has_output = self.has_output or charge.first is not None

    def _add(self, basis: Basis, used: TokenCounts, cost: int | None) -> None:
        self.used = add_counts(self.used, used)
        self._cost = None if self._cost is None or cost is None else self._cost + cost
        self._basis = max(self._basis, _BASES.index(basis))

    # What the response states.

    @property
    def usage(self) -> Usage:
        """What all charges used together."""
        return usage_of(self.used)

    @property
    def basis(self) -> Basis:
        """What the least reliable figure is based on."""
        return _BASES[self._basis]

    @property
    def cost(self) -> CostNote | None:
        """What the response has cost; None if that is not known, or no upstream was asked."""
        if not self.count or self._cost is None:
            return None
        return CostNote(dollars_of(self._cost), self.basis)

    @property
    def budget(self) -> BudgetNote | None:
        """The budget or limit that ended the turn, if one did."""
        refused = self.refused
        if refused is None:
            return None
        limit, spent = (_amount(value, refused.unit) for value in (refused.limit, refused.used))
        return BudgetNote(refused.id, refused.scope, limit, spent)

    # How it is written.

    def entries(self) -> list[Settlement]:
        """Return what is not written yet, to be written with the end of the turn."""
        return list(self._unwritten)

    def note_written(self, entries: Sequence[object]) -> None:
        """Note that these entries are durable."""
        written = set(map(id, entries))
        self._unwritten = [one for one in self._unwritten if id(one) not in written]

    @property
    def is_settled(self) -> bool:
        """Whether all charges are settled, and that is written."""
        return not self._open and not self._unwritten

    async def close(self) -> None:
        """Write what is left. A charge that is still held was not ended by its own call.

        Nothing is raised: what the store cannot write now is written later.
        """
        for charge in list(self._open.values()):
            self.settle(charge, "failed", "assumed", charge.held)
        settled, self._unwritten = tuple(self._unwritten), []
        if not settled:
            return
        write = partial(self._ledger.settle, settled)
        try:
            await write()
        except StoreUnavailable:
            self._defer(write)


def did_no_work(error: BackendError) -> bool:
    """Return whether an upstream did nothing for a call that failed before any output.

    One that took the request and broke off, or did not answer in time, may have begun.
    """
    if error.upstream_status is not None or error.reported is not None:
        return True
    return not error.has_answered and error.code != "upstream_timeout"


def fitting(
    refused: Refused, wanted: Wanted, held: TokenCounts, now: TokenCounts = NO_TOKENS
) -> TokenCounts | None:
    """Return as much of `held` as the budget that refused it has room for, with less output.

    `now` is what the charge holds already. None if less output does not help.
    """
    if refused.by != "budget":
        return None
    room, given = refused.limit - refused.used, msgspec.structs.replace(held, output=0)
    output: int | None
    if refused.unit == "tokens":
        output = room + now.total - given.total
    elif wanted.price is None:
        return None
    else:
        output = wanted.price.output_for(room + (_held_cost(wanted, now) or 0), given)
    if output is None or output >= held.output:
        return None
    return msgspec.structs.replace(held, output=output)


def _held_cost(wanted: Wanted, held: TokenCounts) -> int | None:
    """Return the most that a charge may cost while this much is held."""
    if wanted.price is None:
        return wanted.items_cost if held == NO_TOKENS else None
    return wanted.price.most_of(held) + (wanted.items_cost or 0)


def _cost_of(wanted: Wanted, used: TokenCounts, items: Sequence[LineItem]) -> int | None:
    cost = 0
    if used != NO_TOKENS:
        if wanted.price is None:
            return None
        cost = wanted.price.cost_of(used)
    elif wanted.price is None and not items:
        return None
    for item in items:
        if item.cost is None:
            return None
        cost += item.cost
    return cost


def _amount(value: int, unit: str) -> str | int:
    """Return an amount of a budget as the response states it: dollars as a decimal number."""
    return dollars_of(value) if unit == "usd" else value


def _milliseconds(start: float, end: float | None) -> int | None:
    return None if end is None else max(0, round((end - start) * 1000))
