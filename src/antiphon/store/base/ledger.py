"""Facet `ledger`: what every call of an upstream cost, who pays, and how much may be spent.

A *charge* is one call of one upstream: the thing that a provider bills. It is HELD from before
the call until it is SETTLED with what the call used; a charge whose call never reached the
upstream is RELEASED. Rules:

- A charge is reserved before a byte goes upstream. A reservation is refused whole if one budget
  or limit that applies has no room; then nothing is kept.
- It is settled once, by the store that is its writer: together with the end of its turn
  (`Settlement` is an entry of `Turns.finish`), with the reservation of the next charge of the
  turn, or alone. A second settlement of a charge changes nothing.
- A settled charge never changes.
- A charge whose writer has died is settled by another store, as much as was held (`assumed`).
- A charge belongs to the period in which it was reserved, by the clock of the store.
- Money is in nano-dollars, whole numbers. A cost that is not known is None, not 0.
- `concurrent` counts the responses that have a charge that is held, so nothing can leak.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, Protocol

import msgspec

from antiphon.protocol.token_counts import NO_TOKENS, TokenCounts
from antiphon.store.base.audit import AuditRecord
from antiphon.store.base.entries import Entry
from antiphon.store.base.requests import RequestQuery

__all__ = [
    "ORGANIZATION",
    "SCOPES",
    "Basis",
    "Budget",
    "BudgetState",
    "Charge",
    "ChargeKind",
    "Granted",
    "Ledger",
    "LedgerProblem",
    "LimitState",
    "LineItem",
    "Outcome",
    "Payer",
    "Period",
    "RateLimit",
    "Refused",
    "RefusedBy",
    "Reservation",
    "Scope",
    "Settlement",
    "Unit",
    "UsageQuery",
    "UsageRow",
]

Scope = Literal["organization", "project", "key", "user", "conversation", "run"]
SCOPES: Final[tuple[Scope, ...]] = (
    "organization",
    "project",
    "key",
    "user",
    "conversation",
    "run",
)
"""From the widest to the narrowest: budgets are asked, and named in a refusal, in this order."""
ORGANIZATION: Final = ""
"""The `scope_id` of the organization, of which there is one."""
Unit = Literal["usd", "tokens"]
Period = Literal["total", "day", "week", "month"]
"""Calendar periods in UTC; a week begins on Monday. "total" never ends."""
Basis = Literal["reported", "counted", "assumed"]
"""Where a figure comes from: the provider, our count of what arrived, or what was held."""
Outcome = Literal["completed", "incomplete", "failed", "cancelled", "released"]
ChargeKind = Literal["model", "embedding", "image", "search"]
RefusedBy = Literal["budget", "unpriced", "requests", "tokens", "too_large", "concurrent"]


class Payer(msgspec.Struct, frozen=True):
    """Who pays for a call. `project` is the owner; runs and users are those of the project."""

    project: str
    key: str | None = None
    user: str | None = None
    conversation: str | None = None
    run: str | None = None

    def scope_ids(self) -> dict[Scope, str]:
        """Return the `scope_id` of every scope that the payer is in.

        What callers name themselves (user, conversation, run) is unique only in its project.
        """
        found: dict[Scope, str] = {"organization": ORGANIZATION, "project": self.project}
        if self.key is not None:
            found["key"] = self.key
        for scope, name in (
            ("user", self.user),
            ("conversation", self.conversation),
            ("run", self.run),
        ):
            if name is not None:
                found[scope] = f"{self.project}/{name}"  # type: ignore[index] # of these three
        return found


class Reservation(msgspec.Struct, frozen=True, kw_only=True):
    """A charge that is wanted. `number` counts the charges of a response from 0."""

    response_id: str
    number: int
    payer: Payer
    kind: ChargeKind = "model"
    model: str
    """As the caller names it."""
    served: str = ""
    """As the provider names it."""
    provider: str = ""
    price: bytes | None = None
    """The price that holds for it, as JSON; None if it is not known."""
    held: TokenCounts
    """The most that the call may use."""
    held_cost: int | None = None
    """What that costs; None if the price is not known."""
    is_request: bool = False
    """Whether it counts as a request: the first charge of a turn does."""
    run_ceiling: int | None = None
    """Nano-dollars that the run may spend. The first of a run sets it; a later one may lower it."""
    run_default: int | None = None
    """The same for a run that has no ceiling yet: it lowers none that there is."""
    allows_unpriced: bool = False
    """Whether a budget in money lets it pass without a price."""

    @property
    def limits_run(self) -> bool:
        """Whether its run has a ceiling from here on, if it has none yet."""
        is_limited = self.run_ceiling is not None or self.run_default is not None
        return is_limited and self.payer.run is not None


class LineItem(msgspec.Struct, frozen=True):
    """Something that is paid by the piece, such as a search."""

    name: str
    quantity: int
    cost: int | None = None


class Settlement(Entry, frozen=True, kw_only=True):
    """What a charge came to. Released ones used nothing and cost nothing."""

    response_id: str
    number: int
    outcome: Outcome
    basis: Basis
    used: TokenCounts = NO_TOKENS
    cost: int | None = None
    """With that of the line items."""
    first_ms: int | None = None
    """From the call to its first output."""
    total_ms: int = 0
    items: tuple[LineItem, ...] = ()


class LimitState(msgspec.Struct, frozen=True):
    """How much of the tightest limit is left, for the headers of an answer."""

    limit: int
    remaining: int
    reset_seconds: float
    """Until all of it is there again."""


class Granted(msgspec.Struct, frozen=True):
    """A charge is held. `requests` and `tokens` are None if there is no such limit."""

    requests: LimitState | None = None
    tokens: LimitState | None = None
    is_limited: bool = False
    """Whether a budget applies, so that more output must be asked for (`Ledger.extend`)."""
    warnings: tuple[str, ...] = ()
    """Ids of budgets of which the first soft threshold is passed."""


class Refused(msgspec.Struct, frozen=True, kw_only=True):
    """A charge is not held, and why."""

    by: RefusedBy
    scope: Scope
    scope_id: str
    id: str
    """Of the budget or limit."""
    limit: int
    used: int
    """Spent and held, in the unit of the budget; requests or tokens in the window of a limit."""
    unit: Unit | Literal["requests"] = "usd"
    period: Period | Literal["minute"] = "total"
    retry_after: float | None = None
    """Seconds after which it may pass; None if waiting does not help."""
    requests: LimitState | None = None
    tokens: LimitState | None = None


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    """How much may be spent, in nano-dollars or tokens."""

    id: str
    scope: Scope
    scope_id: str = ORGANIZATION
    unit: Unit = "usd"
    period: Period = "month"
    ceiling: int
    soft: tuple[int, ...] = ()
    """Percentages of the ceiling from which on a warning is given."""
    allows_unpriced: bool = False
    """Whether a model whose price is not known may be used although this is a budget in money."""
    created_at: int = 0


class BudgetState(msgspec.Struct, frozen=True):
    """A budget and what has been used of it in this period."""

    budget: Budget
    period_start: int
    spent: int
    held: int


class RateLimit(msgspec.Struct, frozen=True, kw_only=True):
    """How much is allowed per minute and at once; None where there is no limit."""

    id: str
    scope: Scope
    scope_id: str = ORGANIZATION
    model: str = ""
    """The only model it is about; empty for all of them together."""
    requests: int | None = None
    tokens: int | None = None
    concurrent: int | None = None


class Charge(msgspec.Struct, frozen=True, kw_only=True):
    """A charge as it is stored."""

    response_id: str
    number: int
    state: Literal["held", "settled", "released"]
    payer: Payer
    kind: ChargeKind
    model: str
    served: str
    provider: str
    reserved_at: float
    settled_at: float | None = None
    held: TokenCounts
    held_cost: int | None = None
    used: TokenCounts = NO_TOKENS
    cost: int | None = None
    basis: Basis | None = None
    outcome: Outcome | None = None
    first_ms: int | None = None
    total_ms: int | None = None
    items: tuple[LineItem, ...] = ()


UsageField = (
    Literal["project", "key", "user", "model", "provider", "kind", "basis", "outcome"]
    | Literal["conversation", "run"]
)
_MINUTE: Final = 60
_IN_NO_SUM: Final = frozenset({"conversation", "run"})


class UsageQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which settled charges to sum up, and by what. Times are seconds since the epoch."""

    start: int
    end: int
    width: Literal[60, 3600, 86400]
    """Seconds of a bucket. Buckets begin at multiples of it."""
    group_by: tuple[UsageField, ...] = ()
    projects: tuple[str, ...] = ()
    """Only these; all if there are none. The same holds for the other filters."""
    keys: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    kinds: tuple[ChargeKind, ...] = ()
    conversations: tuple[str, ...] = ()
    runs: tuple[str, ...] = ()
    most: int | None = None
    """No more rows than these are returned; which ones is not defined."""

    @property
    def reads_charges(self) -> bool:
        """Whether it is answered from single charges, because no sum knows enough."""
        names_some = bool(self.conversations or self.runs)
        return self.width == _MINUTE or names_some or not _IN_NO_SUM.isdisjoint(self.group_by)


class UsageRow(msgspec.Struct, frozen=True, kw_only=True):
    """The sum of the charges of one bucket and group. Names that are not grouped by are None."""

    start: int
    project: str | None = None
    key: str | None = None
    user: str | None = None
    model: str | None = None
    provider: str | None = None
    kind: ChargeKind | None = None
    basis: Basis | None = None
    outcome: Outcome | None = None
    conversation: str | None = None
    run: str | None = None
    charges: int = 0
    requests: int = 0
    used: TokenCounts = NO_TOKENS
    cost: int = 0
    unpriced: int = 0
    """How many of the charges have a cost that is not known."""
    not_reported: int = 0
    """How many have a basis other than "reported"."""


class LedgerProblem(msgspec.Struct, frozen=True):
    """Something that the books contradict. `rule` is the invariant, such as "I2"."""

    rule: str
    subject: str
    message: str


class Ledger(Protocol):
    """The books. Every amount in them can be proved from the charges (`check`)."""

    async def reserve(
        self, wanted: Reservation, settled: Sequence[Settlement] = ()
    ) -> Granted | Refused:
        """Settle earlier charges of the turn and hold a new one, all in one transaction.

        Durable on return. The settlements are made also if the reservation is refused. The same
        reservation again changes nothing and is granted.
        """
        ...

    def reserve_soon(self, wanted: Reservation, settled: Sequence[Settlement] = ()) -> None:
        """Do the same for a payer whom nothing limits (`limits_apply`), without waiting.

        It is written before anything else that this store writes later.
        """
        ...

    async def limits_apply(self, payer: Payer, model: str) -> bool:
        """Return whether a budget or a rate limit applies to this payer.

        Answered from memory; what another process has set is known after a second at most.
        """
        ...

    async def extend(
        self, response_id: str, number: int, held: TokenCounts, held_cost: int | None
    ) -> bool:
        """Hold this much from now on for a charge of this store; return whether there is room.

        Without room, or if the charge is not held by this store, nothing changes.
        """
        ...

    async def settle(self, settled: Sequence[Settlement]) -> None:
        """Settle charges of this store that no end of a turn settles. Durable on return."""
        ...

    async def settle_abandoned(self, limit: int) -> int:
        """Settle held charges whose writer has died, with what was held; return how many.

        Charges of a response that is unfinished and can be claimed are left to its successor.
        """
        ...

    async def open_charges(self, response_id: str) -> list[Charge]:
        """Return the charges of a response that are held by this store, in their order."""
        ...

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
        """Return charges, newest first; `before` is time, response and number of the last one."""
        ...

    async def requests(self, query: RequestQuery) -> list[list[Charge]]:
        """Return requests, newest first: the charges of each, in their order."""
        ...

    async def usage(self, query: UsageQuery) -> list[UsageRow]:
        """Return the sums of settled charges, oldest bucket first. Empty buckets have no row."""
        ...

    async def put_budget(self, budget: Budget, *, audit: AuditRecord | None = None) -> BudgetState:
        """Set a budget; one of the same scope, id, unit and period is replaced.

        An audit record is stored together with the change, here and in `delete_budget`.

        What was spent in this period, and what is held now, counts from the beginning.
        """
        ...

    async def delete_budget(self, budget_id: str, *, audit: AuditRecord | None = None) -> bool:
        """Remove a budget; return whether there was one."""
        ...

    async def budgets(
        self,
        scope: Scope | None = None,
        scope_id: str | None = None,
        *,
        with_ceilings: bool = True,
    ) -> list[BudgetState]:
        """Return budgets as they stand in this period, oldest first.

        `with_ceilings` for those too that runs have set themselves, which may be very many.
        """
        ...

    async def put_limit(self, limit: RateLimit) -> None:
        """Set a rate limit; one of the same scope, id and model is replaced."""
        ...

    async def delete_limit(self, limit_id: str) -> bool:
        """Remove a rate limit; return whether there was one."""
        ...

    async def rate_limits(
        self, scope: Scope | None = None, scope_id: str | None = None
    ) -> list[RateLimit]:
        """Return rate limits, oldest first."""
        ...

    async def check(self) -> list[LedgerProblem]:
        """Return what the books contradict: nothing, if all is well. Reads every charge."""
        ...

    async def total(self, limit: int) -> int:
        """Total up to `limit` past hours without keys and users; return how many.

        It changes no answer: questions that need neither are then answered from fewer rows.
        """
        ...

    async def sweep(self, before: int, limit: int) -> int:
        """Remove settled charges reserved before this time, `limit` at most. Sums by hour stay."""
        ...
