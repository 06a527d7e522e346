"""Validate the model's output before forwarding it, and ask once to repair what is invalid.

Calls that can be validated are validated before they are forwarded (`call_checker`). When an
answer has ended and part of it is invalid, the model is asked once more, with its output and the
problem in its context:

    | invalid                                       | forwarded before the repair      |
    |-----------------------------------------------|----------------------------------|
    | a call against its grammar or its schema      | nothing                          |
    | arguments that are not a JSON object          | nothing, or the call as it grew  |
    | no call where tool_choice requires one        | the text, if there was any       |
    | a text against `text.format`                  | nothing, if it could be held     |

Text is held back where the backend does not enforce the format, and where nothing is streamed,
until a call shows that it is not the answer. In the second run the model must call one of the
tools that it called wrongly; a call that was already forwarded is not forwarded again. A call
that is invalid twice fails the turn and is never forwarded. Only what is valid after the second
run is noted as repaired; an invalid call that was not made again is reported. The limit of output
tokens is that of both runs together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import ClassVar

import msgspec

from antiphon.engine.prepare.checks import Check, Checks
from antiphon.engine.prepare.format import FormatCheck
from antiphon.engine.run.call_checker import CallChecker, Rejected
from antiphon.engine.run.rounds import Next, Policy, RoundEnd, Rounds
from antiphon.engine.run.transcript import MAX_PROBLEM, Mark, Transcript, mark_of
from antiphon.plans.plan import Plan
from antiphon.protocol.deltas import (
    AnnotationAdded,
    CallGrew,
    CallMade,
    CallOpened,
    Delta,
    ItemOpened,
    Repaired,
    Reported,
    Stopped,
    TextGrew,
    UsageKnown,
)
from antiphon.protocol.errors import BackendError
from antiphon.protocol.hosted import is_hosted
from antiphon.protocol.items import Item
from antiphon.protocol.response import Usage
from antiphon.protocol.tools import ToolPolicy
from antiphon.store.base import RoundKind

__all__ = ["Repair"]

_CALL_ORDER = "You must call one of the tools now. Do not answer in words."


class Repair(Policy):
    """Ask again, once, when an answer is not what it had to be."""

    sees: ClassVar[bool] = True
    kind: ClassVar[RoundKind] = "repair"

    def __init__(self, checks: Checks) -> None:
        self._checks = checks
        self._calls: dict[str, Check] = {}
        self._answer: _Answer

    @property
    def note_text(self) -> Callable[[str], object] | None:
        """Notes a text for the items that the model is shown if it is asked again."""
        return self._answer.note_text

    async def prepare(self, plan: Plan, rounds: Rounds) -> Plan:
        """Begin to look at an answer to this plan."""
        is_bound = plan.stream and "format" in self._checks.enforced
        form = None if is_bound or plan.format is None else self._checks.form
        self._calls = _allowed(self._checks.calls, plan.policy)
        self._answer = _Answer(plan, self._calls, form)
        return plan

    def is_slow(self, batch: Sequence[Delta]) -> bool:
        """Return whether a grammar may have to be checked now."""
        return self._checks.are_slow and self._answer.may_end_a_call(batch)

    def see(self, batch: Sequence[Delta]) -> Sequence[Delta]:
        """Return what can be forwarded at once; the answer keeps the rest."""
        return self._answer.take(batch)

    async def after(self, end: RoundEnd, rounds: Rounds) -> Next | None:
        """Return the round that repairs the first answer, if it needs one."""
        answer, before = self._answer, self._answer.before
        if end.error is not None:
            rest = answer.release() + ([] if before is None else answer.outcome(before))
            if rest:
                await rounds.emit(rest)
            return None
        again = answer.again() if before is None else None
        if again is None:
            return None
        await rounds.emit(answer.text())
        self._answer = _Answer(again, self._calls, answer.form, answer)
        return Next(again, continues=True)

    def finish(self) -> Sequence[Delta]:
        """Return what was held back, and the outcome for everything that was invalid."""
        answer, before = self._answer, self._answer.before
        found = answer.left_out() if before is None else answer.outcome(before)
        return [*found, *answer.text()]

    def judge(self) -> None:
        """Raise BackendError if a call is invalid again."""
        if self._answer.before is not None:
            self._answer.refuse_wrong_calls()


class _Answer:
    """One run of the model: what is forwarded, what is kept, and what is invalid in it.

    `before` is the run that was invalid.
    """

    def __init__(
        self,
        plan: Plan,
        checks: dict[str, Check],
        form: FormatCheck | None,
        before: _Answer | None = None,
    ) -> None:
        self.plan = plan
        self.form = form
        self.problem = ""
        self.before = before
        self._transcript: Transcript = Transcript()
        self._policy: ToolPolicy = plan.policy
        self._made_before: frozenset[Mark] = frozenset()
        held: dict[str, Check] = {}
        if before is not None:
            # What is handed on is decided by what the caller asked for.
            self._policy = before._policy
            # What may be a call that was handed on already is looked at before it is.
            self._made_before = before._transcript.calls_made()
            held = {alias: _no_problem for alias, _ in self._made_before if alias}
        self._checker = CallChecker(plan.toolbox, held | checks, hands_over=before is not None)
        self._texts: list[TextGrew | AnnotationAdded] = []
        self._usage: Usage | None = None
        self._stop: Stopped | None = None
        self._has_called = False
        self._is_served = False  # by a tool that the caller does not run
        self._made: list[str] = []  # the alias of each whole call

    @property
    def note_text(self) -> Callable[[str], object] | None:
        """Notes a text that is forwarded unseen; None if it, or what is before it, is held."""
        if self._texts or self._checker.held is not None or self._holds_text():
            return None
        return self._transcript.note_text

    def _holds_text(self) -> bool:
        return not self._has_called and (self.form is not None or self.plan.must_emulate)

    def may_end_a_call(self, batch: Sequence[Delta]) -> bool:
        """Return whether these deltas may end a call that was held back, so that it is checked."""
        checker = self._checker
        has_call = checker.held is not None or not checker.taken.isdisjoint(map(type, batch))
        return has_call and any(not isinstance(one, CallGrew) for one in batch)

    def take(self, batch: Sequence[Delta]) -> list[Delta]:
        """Return what can be forwarded of these deltas."""
        told: list[Delta] = []
        for delta in self._checker.feed(batch):
            if self._keep(delta):
                continue
            if self._texts and self._has_called:
                told += self.text()  # it came before the call
            told.append(delta)
        return told

    def release(self) -> list[Delta]:
        """Return everything that was kept, when the answer breaks off."""
        kept: list[Delta] = [*self._texts, *self._checker.release()]
        self._texts = []
        return kept

    def text(self) -> list[Delta]:
        """Return the text that was held back; it is forwarded now, valid or not.

        But not that of a model which was ordered to call a tool, and writes text again.
        """
        texts, self._texts = self._texts, []
        return [] if self.plan.must_emulate and not self._has_called else [*texts]

    def left_out(self) -> list[Delta]:
        """Return the report of calls that are wrong, when there is no use in asking again."""
        return [_left_out(wrong) for wrong in self._checker.rejected]

    def outcome(self, before: _Answer) -> list[Delta]:
        """Return the outcome for everything that was invalid in the run before.

        Only what is right now was repaired. A wrong call that is handed over all the same is
        reported by the builder, under its id.
        """
        if before._checker.rejected:
            return [*self._outcome_of_calls(before._checker.rejected), *self.left_out()]
        if before.problem and self._is_right():
            return [Repaired(before.problem), *self.left_out()]
        return self.left_out()

    def _outcome_of_calls(self, rejected: Sequence[Rejected]) -> Iterator[Delta]:
        """Compare calls by their tools: a model may correct its calls in another order."""
        again = Counter(_aliases(self._checker.handed_over) + _aliases(self._checker.rejected))
        right = Counter(self._made) - Counter(_aliases(self._checker.handed_over))
        for wrong in rejected:
            if right[wrong.offer.alias] > 0:
                right[wrong.offer.alias] -= 1
                yield Repaired(_named(wrong))
            elif again[wrong.offer.alias] > 0:
                again[wrong.offer.alias] -= 1
            else:
                yield _left_out(wrong)

    def _is_right(self) -> bool:
        """Return whether this run repairs one without its call, or with an invalid text."""
        if self._stop is None or self._stop.reason != "stop":
            return False
        if self._has_called or self.plan.must_emulate or self.form is None:
            return self._has_called
        return self.form.advice(self._transcript.text) is None

    def again(self) -> Plan | None:
        """Return what to ask now, or None if all is well or asking again is no use."""
        if self._stop is None or self._stop.reason != "stop":
            return None
        if self._checker.rejected:
            is_enough = self._has_called and self.plan.parallel_tool_calls is False
            return None if is_enough else self._after_wrong_calls(self._checker.rejected)
        has_called = self._has_called or self._is_served
        if self.plan.policy.mode == "required" and not has_called:
            return self._after_no_call()
        if self.form is None or not self._texts:
            return None
        advice = self.form.advice(self._transcript.text)
        return None if advice is None else self._after_wrong_text(advice)

    def refuse_wrong_calls(self) -> None:
        """Raise BackendError if a call is invalid again: then the turn fails after its end."""
        for rejected in self._checker.rejected:
            raise BackendError(
                f"the model's call of '{rejected.offer.name}' is not what the tool takes, even "
                f"after it was told so: {_short(rejected)}",
                code="tool_call_invalid",
            )

    def _keep(self, delta: Delta) -> bool:
        """Note a delta; return whether it is kept for the end, or to be checked first."""
        match delta:
            case TextGrew() | AnnotationAdded():
                self._transcript.note(delta)
                if not self._holds_text():
                    return False
                self._texts.append(delta)
            case UsageKnown():
                self._usage = delta.usage
                return False
            case Stopped():
                self._stop = delta
                return False
            case CallOpened() | CallMade():
                return self._keep_call(delta)
            case ItemOpened() if is_hosted(delta.item):
                self._is_served = True
                return False
            case _:
                self._transcript.note(delta)
                return False
        return True

    def _keep_call(self, delta: CallOpened | CallMade) -> bool:
        """Note a call that is forwarded; return whether the run before has forwarded it.

        Without an alias it is of no tool at all.
        """
        if delta.alias is None or not self._policy.allows(delta.alias):
            return False
        if isinstance(delta, CallMade) and self._was_made(delta):
            return True
        self._transcript.note(delta)
        self._has_called = True
        if isinstance(delta, CallMade):
            self._made.append(delta.alias)
        return False

    def _was_made(self, call: CallMade) -> bool:
        """Return whether the run before has forwarded the same call."""
        made = self._made_before
        return bool(made) and mark_of(call.alias, call.said) in made

    # What to ask instead.

    def _after_wrong_calls(self, rejected: Sequence[Rejected]) -> Plan:
        allowed = frozenset(wrong.offer.alias for wrong in rejected)
        return self._plan_with(self._transcript.items(rejected), ToolPolicy("required", allowed))

    def _after_no_call(self) -> Plan:
        self.problem = "tool_choice: no tool was called"
        plan = self._plan_with([*self._transcript.items(), _user(_CALL_ORDER)], self.plan.policy)
        return msgspec.structs.replace(plan, must_emulate=True)

    def _after_wrong_text(self, advice: str) -> Plan:
        self.problem = advice[:MAX_PROBLEM]
        order = f"That answer is of no use: {self.problem}. Answer again, with the JSON alone."
        self._texts = []
        return self._plan_with([*self._transcript.items(), _user(order)], self.plan.policy)

    def _plan_with(self, items: Sequence[Item], policy: ToolPolicy) -> Plan:
        limit = self.plan.max_output_tokens
        if limit is not None and self._usage is not None:
            limit = max(1, limit - self._usage.output_tokens)
        whole = [*self.plan.items, *items]
        return msgspec.structs.replace(
            self.plan, items=whole, policy=policy, max_output_tokens=limit
        )


def _allowed(checks: dict[str, Check], policy: ToolPolicy) -> dict[str, Check]:
    """Leave out the checks of tools whose calls are suppressed anyway."""
    if policy.mode != "none" and policy.allowed is None:
        return checks
    return {alias: check for alias, check in checks.items() if policy.allows(alias)}


def _no_problem(_: str) -> None:
    return None


def _aliases(calls: Sequence[Rejected]) -> list[str]:
    return [wrong.offer.alias for wrong in calls]


def _named(wrong: Rejected) -> str:
    return f"a call of '{wrong.offer.name}': {_short(wrong)}"


def _left_out(wrong: Rejected) -> Reported:
    return Reported(f"tools: a call of '{wrong.offer.name}' was left out: {_short(wrong)}")


def _short(wrong: Rejected) -> str:
    return wrong.problem[:MAX_PROBLEM]


def _user(text: str) -> Item:
    return {"type": "message", "role": "user", "content": text}
