"""Reserve and settle one charge for every call of a model.

This policy stands last. So it holds a charge before each attempt, retry, continuation, repair and
hosted round, and it is the first to learn how that ended:

- what the upstream reported is settled as `reported`, also if that is 0;
- without a report, what arrived is counted: pieces of output, or a token for four bytes if that
  is more, and the input of the plan: `counted`;
- a call that the upstream refused before it began to work is released, and so is one whose
  request had not gone out when its client left.

Output is granted in steps while it arrives: more is asked for when three quarters are used. A
budget that has less room than a step gives what it has. If that is next to nothing, the upstream
is closed when the grant is used up, and the answer ends as one that reached its limit.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import ClassVar, Final, NamedTuple

import msgspec

from antiphon.accounts.refusals import refusal_of
from antiphon.backends.base import Ask, Backend
from antiphon.engine.run.failover import Failover
from antiphon.engine.run.meter import Meter
from antiphon.engine.run.rounds import Next, Policy, RoundEnd, Rounds
from antiphon.engine.run.turn_charges import (
    HeldCharge,
    TurnCharges,
    Wanted,
    did_no_work,
    fitting,
)
from antiphon.plans.estimate import InputEstimate, most_input, text_bytes, tool_text
from antiphon.plans.plan import Plan
from antiphon.protocol.deltas import Delta, Stopped
from antiphon.protocol.errors import BackendError, StoreUnavailable
from antiphon.protocol.token_counts import NO_TOKENS, TokenCounts, counts_of, usage_of
from antiphon.routing.candidates import Candidate
from antiphon.store.base.ledger import Basis, Outcome, Refused
from antiphon.store.base.rounds import RoundKind
from antiphon.transport.aside import aside_if

__all__ = ["FIRST_GRANT", "LEAST_GRANT", "Charging"]

FIRST_GRANT: Final = 2048
"""Tokens of output that are held before any has arrived."""
LEAST_GRANT: Final = 256
"""For fewer tokens than these, a model is not asked, unless the caller wants fewer."""
_TRIES: Final = 3
"""How often a grant is made smaller: as many budgets may refuse it, one after the other."""
_LONGEST: Final = 32_768
"""An answer that is not streamed has no more tokens, if nothing states how many it may have."""
_LONGEST_TOKEN: Final = 16
"""Bytes of a token, on an average over an answer, at most."""
_LARGEST_WINDOW: Final = 1_000_000
_SLACK: Final = 4096
"""Bytes of what is sent beside the context: a template, an order to sum it up."""
_CUT: Final = Stopped("length")
_ENDS: Final[dict[str, Outcome]] = {"length": "incomplete", "content_filter": "incomplete"}


class _Lowered(NamedTuple):
    """A limit of output that a budget has set for one round."""

    by: Refused
    asked: int | None
    """The limit before."""
    limit: int


class Charging(Policy):
    """Charges the calls of one route to a turn."""

    sees: ClassVar[bool] = True

    def __init__(self, charges: TurnCharges, failover: Failover) -> None:
        self._charges = charges
        self._failover = failover
        self._rounds: Rounds | None = None
        self._plan: Plan | None = None
        self._charge: HeldCharge | None = None
        self._meter = Meter()
        self._input: int | None = None  # tokens of the plan, if they were counted
        self._estimate: InputEstimate | None = None  # made for the first call without a report
        self._known: tuple[int, int] | None = None  # items and bytes of the last plan
        self._cap = 0  # tokens that the answer may have
        self._lowered: _Lowered | None = None
        self._extending: asyncio.Task[bool] | None = None
        self._loop = asyncio.get_running_loop()

    # Before a call.

    async def prepare(self, plan: Plan, rounds: Rounds) -> Plan | None:
        """Hold a charge. Without room, refuse the turn, or end it with what it has so far."""
        if self._extending is not None:
            await self._leave()
        if self._lowered is not None:
            plan = self._as_asked(plan, self._lowered)
        candidate = self._failover.now
        is_limited = await self._charges.limits_apply()
        self._input = None
        given = await self._count(plan, candidate.backend) if is_limited else self._most_input(plan)
        held = self._held(plan, candidate, given)
        found = await self._charges.reserve(_wanted(candidate, held), is_limited=is_limited)
        if isinstance(found, Refused):
            plan, held, found = await self._reserve_less(plan, candidate, held, found)
            if isinstance(found, Refused):
                self._refuse(found, rounds)
                return None
        self._plan, self._rounds, self._charge = plan, rounds, found
        found.plan, found.output_type = plan, "text" if plan.format is None else "json"
        self._meter = Meter(self._reach)
        self._mark_next(held.output)
        return plan

    async def _reserve_less(
        self, plan: Plan, candidate: Candidate, held: TokenCounts, refused: Refused
    ) -> tuple[Plan, TokenCounts, HeldCharge | Refused]:
        """Hold the first grant of an answer that was to come as a whole, else what is left.

        Then the model may produce no more than that. Return the plan, what is held, and the
        charge; or why it is not held.
        """
        if not plan.stream and held.output > FIRST_GRANT:
            # There is no room for the whole answer. A stream can be stopped when it is used up.
            plan = msgspec.structs.replace(plan, stream=True)
            held = TokenCounts(fresh=held.fresh, output=FIRST_GRANT)
            found = await self._charges.reserve(_wanted(candidate, held), is_limited=True)
            if isinstance(found, HeldCharge):
                return plan, held, found
            refused = found
        for _ in range(_TRIES):
            less = fitting(refused, _wanted(candidate, held), held)
            if less is None or less.output < min(LEAST_GRANT, self._cap):
                break
            held = less
            found = await self._charges.reserve(_wanted(candidate, held), is_limited=True)
            if isinstance(found, HeldCharge):
                self._lowered = _Lowered(refused, plan.max_output_tokens, held.output)
                self._cap = held.output
                # A stream can be stopped, if the model ignores the limit.
                plan = msgspec.structs.replace(plan, stream=True, max_output_tokens=held.output)
                return plan, held, found
            refused = found
        return plan, held, refused

    def _as_asked(self, plan: Plan, lowered: _Lowered) -> Plan:
        """Return the plan without the limit of output that a budget has set for a failed call."""
        self._lowered = None
        if plan.max_output_tokens != lowered.limit:
            return plan
        return msgspec.structs.replace(plan, max_output_tokens=lowered.asked)

    def _note_limit(self, refused: Refused) -> None:
        self._charges.refused = refused
        self._charges.note_refused(refused)

    def _refuse(self, refused: Refused, rounds: Rounds) -> None:
        self._note_limit(refused)
        if not rounds.has_begun:
            raise refusal_of(refused)
        rounds.stop(_CUT)

    def _held(self, plan: Plan, candidate: Candidate, given: int) -> TokenCounts:
        """Return what is held for a call at first; `given` are the tokens of its input."""
        given = min(given, candidate.context_length or _LARGEST_WINDOW)
        limits = (plan.max_output_tokens, candidate.max_output_tokens)
        known = [limit for limit in limits if limit is not None]
        self._cap = min(known) if known else _LONGEST
        grant = min(self._cap, FIRST_GRANT) if plan.stream else self._cap
        return TokenCounts(fresh=given, output=grant)

    async def _count(self, plan: Plan, backend: Backend) -> int:
        """Return the input tokens of a plan: exact if the backend counts, else more than it has."""
        if backend.capabilities.counts:
            try:
                self._input = await backend.count(plan)
            except BackendError:
                self._input = None
        if self._input is not None:
            return self._input
        return await aside_if(plan.is_large, most_input, plan)

    def _most_input(self, plan: Plan) -> int:
        """Return how many bytes the plan has at most: no token is shorter than a byte.

        Of the context, the size is known; only what was added to it since is looked at.
        """
        if self._known is None:
            self._known = len(plan.items), self._charges.context_bytes() + _SLACK
        count, size = self._known
        if len(plan.items) > count:
            size += sum(text_bytes(tool_text(item)) for item in plan.items[count:])
            self._known = len(plan.items), size
        return size

    async def keep(self, ask: Ask, kind: RoundKind) -> None:
        """Keep what the upstream is sent for the charge that is held."""
        kept, charge, plan = self._charges.kept, self._charge, self._plan
        if kept is not None and charge is not None and plan is not None:
            await kept.add(charge.number, kind, ask.body(), plan)

    # While output arrives.

    @property
    def note_text(self) -> Callable[[str], object] | None:
        """Takes each text that passes unseen."""
        return self._meter.note_text

    def note_texts(self, texts: list[str]) -> None:
        """Take several texts that pass unseen together."""
        self._meter.note_texts(texts)

    def see(self, batch: Sequence[Delta]) -> Sequence[Delta]:
        """Count what has arrived."""
        self._meter.note(batch)
        if self._charge is not None and self._charge.first is None and self._meter.pieces:
            self._charge.first = time.monotonic()
        return batch

    def _mark_next(self, grant: int) -> None:
        """Ask for more before the grant ends. If it is all that the model may produce, only if
        the model ignores that: its tokens may be longer than ours.
        """
        if grant >= self._cap:
            self._meter.mark(self._cap + 1, _LONGEST_TOKEN)
        else:
            self._meter.mark(grant * 3 // 4)

    def _reach(self) -> None:
        """Ask for more output, as much again. At the end of the grant, wait for the answer."""
        if not _is_in_loop():  # what takes long is looked at in a thread
            self._loop.call_soon_threadsafe(self._reach)
            return
        charge = self._charge
        if charge is None:
            return
        grant, used = charge.held.output, self._meter.output
        if self._extending is None:
            wanted = self._more(charge)
            self._extending = asyncio.ensure_future(self._charges.extend(charge, wanted))
            self._extending.add_done_callback(self._note_extended)
        if used < grant:
            self._meter.mark(grant)
        elif charge.is_limited and self._rounds is not None:
            self._rounds.hold(self)
        else:
            self._meter.mark(2 * used)

    def _more(self, charge: HeldCharge) -> TokenCounts:
        """Return what to hold next: twice the output, and more than has arrived."""
        output = max(2 * charge.held.output, self._meter.output + FIRST_GRANT)
        return TokenCounts(fresh=charge.held.fresh, output=output)

    def _note_extended(self, extending: asyncio.Task[bool]) -> None:
        """Go on with what is held now; without room, to the end of the grant."""
        if extending is not self._extending or extending.cancelled() or self._charge is None:
            return
        if extending.exception() is None and extending.result():
            self._extending = None
            self._mark_next(self._charge.held.output)

    async def may_go_on(self) -> Stopped | None:
        """Return how the answer ends if its grant is used up; None if there is more."""
        extending, charge = self._extending, self._charge
        if extending is None or charge is None:
            return None
        try:
            if await asyncio.shield(extending) or self._meter.has_stopped:
                return None
            if await self._extend_by_rest(charge):
                self._extending = None
                self._mark_next(charge.held.output)
                return None
        except StoreUnavailable:
            pass  # what cannot be held is not used
        return _CUT

    async def _extend_by_rest(self, charge: HeldCharge) -> bool:
        """Hold as much more as there is room for now; return whether that is worth going on.

        There may be more room than when it was asked for: a limit can be raised meanwhile.
        """
        charges, more = self._charges, self._more(charge)
        least = max(charge.held.output + LEAST_GRANT, self._meter.output + 1)
        for _ in range(_TRIES):
            charges.refused = found = await charges.find_limit(charge, more)
            if found is not None:
                less = fitting(found, charge.wanted, more, charge.held)
                if less is None or less.output - LEAST_GRANT < least:
                    charges.note_refused(found)
                    return False
                # What arrives together with the last token of a grant is used, too.
                more = msgspec.structs.replace(less, output=less.output - LEAST_GRANT)
            if await charges.extend(charge, more):
                charges.refused = None
                return True
        return False

    # After a call.

    async def after(self, end: RoundEnd, rounds: Rounds) -> Next | None:
        """Settle the charge of the round that has ended."""
        charge = self._charge
        if charge is None:
            return None
        charge.finish = "" if end.stop is None else end.stop.reason
        has_produced = end.has_spoken or self._meter.usage is not None
        is_free = end.error is not None and (did_no_work(end.error) or not rounds.is_taken)
        if is_free and not has_produced:
            self._settle("released", "reported", NO_TOKENS)
            return None
        basis, used = await self._facts()
        self._settle(_outcome_of(end), basis, used)
        if end.error is None:
            lowered, self._lowered = self._lowered, None
            if lowered is not None and charge.finish == _CUT.reason:
                self._note_limit(lowered.by)
        if basis != "reported":
            rounds.note_estimate(usage_of(used))
        return None

    async def _facts(self) -> tuple[Basis, TokenCounts]:
        """Return what the call used: as it was reported, else as it was counted."""
        meter = self._meter
        if meter.usage is not None:
            reported = counts_of(meter.usage)
            if meter.is_reported or (meter.has_output and reported.output_total >= meter.output):
                return "reported", reported
            counted = meter.counts(NO_TOKENS)
            return "counted", TokenCounts(
                fresh=reported.fresh,
                cached=reported.cached,
                cache_write=reported.cache_write,
                output=max(reported.output, counted.output),
                reasoning=max(reported.reasoning, counted.reasoning),
            )
        assert self._plan is not None, "a charge is held for a plan"
        given = self._input
        if given is None:
            self._estimate = self._estimate or InputEstimate()
            given = await aside_if(self._plan.is_large, self._estimate.of, self._plan)
        return "counted", meter.counts(TokenCounts(fresh=given))

    def _settle(self, outcome: Outcome, basis: Basis, used: TokenCounts) -> None:
        charge, self._charge = self._charge, None
        if charge is not None:
            self._charges.settle(charge, outcome, basis, used)

    async def close(self) -> None:
        """Settle a call that was ended from outside: its output so far was produced."""
        if self._charge is not None and not self._is_taken:
            self._settle("released", "reported", NO_TOKENS)
        if self._charge is not None:
            basis, used = await self._facts()
            self._settle("cancelled", basis, used)
        if self._extending is not None:
            await self._leave()
        # They refer to each other: only the garbage collector would find them.
        self._rounds, self._meter = None, Meter()

    @property
    def _is_taken(self) -> bool:
        """Whether the upstream may bill for the call: it has the request, and did not refuse it."""
        has_produced = self._meter.pieces or self._meter.usage is not None
        return bool(has_produced) or (self._rounds is not None and self._rounds.is_taken)

    async def _leave(self) -> None:
        """Wait for a grant that is on its way: a charge must not be settled before it."""
        extending, self._extending = self._extending, None
        if extending is not None:
            await asyncio.wait({extending})


def _wanted(candidate: Candidate, held: TokenCounts) -> Wanted:
    return Wanted(
        served=candidate.model, provider=candidate.provider, price=candidate.price, held=held
    )


def _is_in_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _outcome_of(end: RoundEnd) -> Outcome:
    if end.error is not None or end.stop is None:
        return "failed"
    return _ENDS.get(end.stop.reason, "completed")
