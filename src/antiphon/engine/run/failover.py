"""Ask again after a fault: the same deployment, another one, or another model.

The class of the error decides what follows (`backends.fault_classes`); the route limits who is
asked, and how often. All of it happens before the model has produced anything in a round: after
that, what was forwarded must not be produced twice. Every attempt is reported to the breaker of
its own deployment. When nothing is left, the last error of a deployment is raised as it is.

`Failover` stands last, so it repeats what was asked unchanged, except for the name that the model
has at another deployment. `Overflow` stands first: a model with a larger window is asked when
nothing else, such as truncation, has made the context fit.
"""

from __future__ import annotations

import logging
import math
from typing import ClassVar, Final, Protocol

import msgspec

from antiphon.backends.fault_classes import FaultClass, classify
from antiphon.engine.run.rounds import Next, Policy, RoundEnd, Rounds
from antiphon.plans.plan import Plan
from antiphon.protocol.errors import BackendError, ContextOverflow
from antiphon.protocol.response import Attempt, Usage
from antiphon.routing.candidates import Candidate, Reason, Route
from antiphon.routing.choice import (
    Choice,
    Session,
    choose,
    choose_first,
    choose_open,
    choose_other,
)
from antiphon.store.base import RoundKind

__all__ = ["ANSWERED", "Failover", "Listener", "Overflow"]

_log = logging.getLogger(__name__)
ANSWERED: Final = "answered"
"""The outcome of an attempt whose model has answered."""
# Nothing that an operator could repair.
_QUIET: Final = frozenset({"caller", "overflow", "policy", "unusable"})


class Listener(Protocol):
    """Learns which deployments were asked."""

    def note_served(self, candidate: Candidate) -> None:
        """Note that this deployment is asked from here on."""
        ...

    def note_attempt(self, attempt: Attempt) -> None:
        """Note how an attempt ended, if there was more than one."""
        ...

    def abandon_reasoning(self) -> None:
        """End reasoning that no text has followed: it is started again."""
        ...


class Failover(Policy):
    """Asks the deployments of a route one after the other. `start` chooses the first."""

    kind: ClassVar[RoundKind] = "attempt"

    def __init__(self, route: Route, session: Session, listener: Listener | None) -> None:
        self._route = route
        self._rules = route.rules
        self._board = route.board
        self._session = session
        self._listener = listener
        self._now: Candidate | None = None
        self._reason: Reason = "only"
        self._failed: list[Attempt] = []
        self._tried: set[str] = set()

    def _reset(self) -> None:
        self._attempt = 1
        self._budget = self._rules.retry.budget_seconds
        self._tried = {self.now.name}
        self._has_waited = False

    @property
    def now(self) -> Candidate:
        """The deployment that is asked."""
        assert self._now is not None, "start() was not called"
        return self._now

    def start(self, plan: Plan) -> Candidate:
        """Choose the first deployment. Raise Overloaded if no provider has room."""
        choice = choose_first(self._route, self._session, _kinds_of(plan))
        self._go_to(choice)
        self._tried = {choice.candidate.name}
        return choice.candidate

    def leave(self) -> None:
        """Note that no deployment is asked any more."""
        if self._now is not None:
            self._board.leave(self._now)
            self._now = None

    def _go_to(self, choice: Choice) -> None:
        self.leave()
        self._now = choice.candidate
        self._reason = choice.reason
        self._board.enter(choice.candidate, choice.reason)
        if self._listener is not None:
            self._listener.note_served(choice.candidate)

    async def prepare(self, plan: Plan, rounds: Rounds) -> Plan:
        """Begin to count the attempts of a new request."""
        self._reset()
        return plan

    async def after(self, end: RoundEnd, rounds: Rounds) -> Next | None:
        """Return the same request again, here or elsewhere; None if there is no hope in that."""
        error = end.error or self._empty_answer(end)
        if error is None:
            self._note_answer()
            return None
        fault = classify(error)
        self._board.breaker.note_failure(self.now.name, fault, error.retry_after)
        outcome = "empty" if end.error is None else error.code or fault.name
        step = None if end.has_spoken else self._next_step(fault, error, end.plan)
        self._log_failure(error, fault, end, step)
        if step is not None or (self._failed and not self._is_watched):
            self._note_attempt(outcome)
        if step is None:
            self._advise(error, fault)
            return None
        self._attempt += 1
        if isinstance(step, Choice):
            return self.move(step, fault, end.plan, rounds)
        return await self._ask_same(end, step)

    def _next_step(
        self, fault: FaultClass, error: BackendError, plan: Plan
    ) -> Choice | float | None:
        """Return who is asked next, or how long to wait before the same one is; None to give up."""
        if self._attempt >= self._rules.retry.attempts or plan.prefix is not None:
            return None
        choice = self._elsewhere(fault, plan)
        if choice is not None and choice.reason != "fallback":
            return choice
        wait = self._wait_for_same(fault, error)
        return (choice or self._last_resort(fault, plan)) if wait is None else wait

    def move(self, choice: Choice, fault: FaultClass, plan: Plan, rounds: Rounds) -> Next:
        """Return the same request for another deployment, which is asked from here on."""
        self._board.tally.fallbacks[self.now.provider, fault.name] += 1
        self._go_to(choice)
        self._tried.add(self.now.name)
        plan = msgspec.structs.replace(plan, model=self.now.model)
        return Next(plan, self.now.backend, continues=rounds.continues)

    @property
    def _is_watched(self) -> bool:
        """Whether a `Continuation` notes how answers break off."""
        return self._rules.failover == "stream"

    def note_break(self, error: BackendError) -> None:
        """Note how an answer broke off for good, if it was not the only attempt."""
        if self._failed:
            self._note_attempt(error.code or "upstream_error")

    def note_leg(
        self,
        error: BackendError,
        characters: int,
        usage: Usage,
        *,
        is_estimated: bool,
        to: Candidate | None = None,
    ) -> None:
        """Note how a leg of an answer broke off, what it has cost, and who continues it."""
        now, outcome = self.now, error.code or "upstream_error"
        if to is not None:
            _log.warning("the answer of upstream %s is continued by %s", now.name, to.name)
        self._record(Attempt(now.provider, now.model, outcome, characters, usage, is_estimated))

    def abandon(self) -> None:
        """End reasoning that no text has followed: it is started again."""
        if self._listener is not None:
            self._listener.abandon_reasoning()

    def continuing(self, plan: Plan, *, needs_prefix: bool) -> Choice | None:
        """Return another deployment that continues an answer, if one is ready.

        Without a text to go on with, any deployment of the model will do.
        """
        if self._attempt >= self._rules.retry.attempts:
            return None
        same, tried = self.now.model, {self.now.name}
        left = [
            one
            for one in (*self._route.deployments, *self._route.fallbacks)
            if (one.model == same or self._rules.across_models)
            and (one.backend.capabilities.continues_with(one.model) or not needs_prefix)
        ]
        return choose_other(left, self._board, "next", _kinds_of(plan), tried)

    def larger(self, plan: Plan) -> Choice | None:
        """Return a model of the route for a context that is too long, if one was not asked."""
        kinds = _kinds_of(plan)
        return choose_other(self._route.on_overflow, self._board, "overflow", kinds, self._tried)

    def _elsewhere(self, fault: FaultClass, plan: Plan) -> Choice | None:
        """Return who else may answer: another deployment of the model, else another model.

        A context that was too long for the deployments is too long for them also if the model
        with the larger window fails.
        """
        if self._rules.failover == "off":
            return None
        if self._reason == "overflow":
            return self.larger(plan) if fault.moves == "yes" else None
        if fault.moves != "no":
            tried = self._tried if fault.moves == "yes" else self._tried | self._not_larger()
            found = choose(self._route, self._session, tried)
            if found is not None:
                return found
        if not fault.falls_back:
            return None
        kinds = _kinds_of(plan)
        return choose_other(self._route.fallbacks, self._board, "fallback", kinds, self._tried)

    def _last_resort(self, fault: FaultClass, plan: Plan) -> Choice | None:
        """Return a deployment to ask although its breaker is open, once in a request.

        It may have recovered since, and the request would fail otherwise.
        """
        may_move = self._rules.failover != "off" and fault.moves == "yes"
        if not may_move or self._reason in ("all_open", "overflow"):
            return None
        others = [*self._route.deployments, *(self._route.fallbacks if fault.falls_back else ())]
        return choose_open(others, self._board, _kinds_of(plan), self._tried)

    def _not_larger(self) -> set[str]:
        """Return the deployments whose window is not known to be larger than that of this one."""
        known = self.now.context_length
        return {
            one.name
            for one in self._route.deployments
            if known is None or one.context_length is None or one.context_length <= known
        }

    def _wait_for_same(self, fault: FaultClass, error: BackendError) -> float | None:
        """Return how long to wait before the same deployment is asked again; None if it is not."""
        patience = self.now.backend.patience
        if patience is None:
            return None
        is_alone = len(self._route.deployments) + len(self._route.fallbacks) == 1
        if fault.again == "if_alone":
            off = self._rules.failover == "off"
            may = (is_alone or off) and not self._has_waited and self._reason != "all_open"
        else:
            may = fault.again == "after_wait" and (is_alone or not self._has_waited)
        if not may:
            return None
        wait = patience.wait_after(self._attempt, error.retry_after)
        return wait if wait <= self._budget else None

    async def _ask_same(self, end: RoundEnd, wait: float) -> Next:
        patience = self.now.backend.patience
        assert patience is not None, "there is no wait without it"
        await patience.sleep(wait)
        self._budget -= wait
        self._has_waited = True
        self._board.breaker.note_request(self.now.name)
        return Next(end.plan, continues=True)

    def _empty_answer(self, end: RoundEnd) -> BackendError | None:
        """Return the fault of a model that stopped without a word, once in a request."""
        if end.has_spoken or end.plan.prefix is not None:
            return None  # with a prefix, the text may have been whole
        is_empty = end.stop is not None and end.stop.reason == "stop"
        if not is_empty or any(one.outcome == "empty" for one in self._failed):
            return None
        return BackendError("the model gave an empty answer", code="upstream_invalid_response")

    def _note_answer(self) -> None:
        self._board.breaker.note_success(self.now.name)
        if self._failed and self._failed[-1].outcome != ANSWERED:
            self._note_attempt(ANSWERED)

    def _log_failure(
        self, error: BackendError, fault: FaultClass, end: RoundEnd, step: Choice | float | None
    ) -> None:
        when = "after the answer had begun" if end.has_spoken else f"at attempt {self._attempt}"
        then = "giving up"
        if end.has_spoken and self._is_watched:
            then = "another deployment may continue it"
        elif isinstance(step, Choice):
            then = f"asking {step.candidate.name}"
        elif step is not None:
            then = f"next attempt in {step:.1f} s"
        level = logging.DEBUG if fault.name in _QUIET else logging.WARNING
        _log.log(level, "upstream %s failed %s: %s; %s", self.now.name, when, _cause(error), then)

    def _note_attempt(self, outcome: str) -> None:
        self._record(Attempt(self.now.provider, self.now.model, outcome))

    def _record(self, attempt: Attempt) -> None:
        self._failed.append(attempt)
        if self._listener is not None:
            self._listener.note_attempt(attempt)

    def _advise(self, error: BackendError, fault: FaultClass) -> None:
        """Tell the caller when to come again: when the first breaker of the route may be tried."""
        asked = [*self._route.deployments, *self._route.fallbacks]
        if self._reason == "overflow":
            asked = [*self._route.on_overflow]
        if fault.breaker == "none" or (len(asked) == 1 and error.retry_after is not None):
            return
        earliest = min(self._board.breaker.seconds_left(one.name) for one in asked)
        if earliest > 0:
            error.retry_after = math.ceil(earliest)
        elif len(asked) > 1:
            error.retry_after = None  # it was the wish of one deployment; another is ready


class Overflow(Policy):
    """Asks the model with a larger window when the context does not fit otherwise."""

    kind: ClassVar[RoundKind] = "attempt"

    def __init__(self, failover: Failover) -> None:
        self._failover = failover
        self._has_moved = False

    async def after(self, end: RoundEnd, rounds: Rounds) -> Next | None:
        """Return the same request for that model."""
        if self._has_moved or end.has_spoken or not isinstance(end.error, ContextOverflow):
            return None
        choice = self._failover.larger(end.plan)
        if choice is None:
            return None
        self._has_moved = True
        return self._failover.move(choice, classify(end.error), end.plan, rounds)


def _kinds_of(plan: Plan) -> frozenset[str]:
    """Return the kinds of tools that the upstream has to run."""
    return frozenset(tool["type"] for tool in plan.toolbox.upstream)


def _cause(error: BackendError) -> str:
    """Return the cause without what the upstream wrote, which may quote a conversation."""
    cause = error.__cause__
    reason = f" ({type(cause).__name__}: {cause})" if isinstance(cause, OSError) else ""
    seen = error.upstream_status
    answered = f"HTTP {seen} from the upstream, " if seen is not None else ""
    return f"{error.code}, {answered}HTTP {error.status} for the caller{reason}"
