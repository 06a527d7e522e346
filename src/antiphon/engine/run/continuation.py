"""Continue an answer elsewhere when its deployment breaks off in mid-stream.

Only on routes with `failover = "stream"`, and only if nothing can be lost or repeated:

- the connection failed, the server fell silent or was overloaded; not nonsense, not a refusal;
- the caller has seen reasoning and at most one text that is still open. Calls are held back until
  they are whole, so a cut in mid-arguments has shown nothing of the call;
- the text does not end inside a tag or a call that the model writes as text;
- no format, grammar or log probabilities, which would not line up; and the request is not strict;
- another deployment of the same model name continues a text that it is given the beginning of.

The other deployment is given exactly the text that was shown, and writes on in the same item. It is
checked for two lies: an echo of the beginning is cut off, and an answer that starts again fails
the turn with the first error. Reasoning without a text is abandoned, and the plan is run again. It
happens once in a turn. Both legs are paid for and reported.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar, Final

import msgspec

from antiphon.backends.base import DeltaRefused
from antiphon.backends.fault_classes import classify
from antiphon.engine.run.failover import Failover
from antiphon.engine.run.rounds import Next, Policy, RoundEnd, Rounds
from antiphon.plans.plan import Plan
from antiphon.protocol.deltas import (
    CallClosed,
    CallGrew,
    CallOpened,
    Degraded,
    Delta,
    ReasoningGrew,
    Reported,
    Stopped,
    SummaryGrew,
    TextGrew,
    TierUsed,
    UsageKnown,
    produced_length,
)
from antiphon.protocol.errors import BackendError
from antiphon.protocol.response import Usage
from antiphon.routing.choice import Choice
from antiphon.store.base import RoundKind

__all__ = ["Continuation"]

_SURE: Final = 24
"""So many equal characters are no coincidence."""
_LONG: Final = 200
"""An answer that is shorter may well repeat its beginning."""
_MOST_HELD: Final = 1024 * 1024
_RESTARTED: Final = BackendError(
    "the model started again instead of going on", code="upstream_invalid_response"
)
_NO_PRODUCT: Final = (UsageKnown, TierUsed, Degraded, Reported)


class Continuation(Policy):
    """Watches what the caller was shown, and goes on with it at another deployment."""

    sees: ClassVar[bool] = True
    kind: ClassVar[RoundKind] = "continuation"

    def __init__(self, failover: Failover, *, is_strict: bool) -> None:
        self._failover = failover
        self._may_continue = not is_strict
        self._plan: Plan | None = None
        self._text: list[str] = []  # what was shown of the text that is open
        self._has_reasoned = False
        self._calls: set[int] = set()  # calls that are open, and held with all that follows
        self._held: list[Delta] = []
        self._prefix: _PrefixGuard | None = None  # while the beginning of a second leg is checked
        self._cause: BackendError | None = None  # why there is a second leg
        self._told = 0  # characters of the first leg

    @property
    def note_text(self) -> Callable[[str], object] | None:
        """Takes each text that passes unseen."""
        is_watched = self._held or self._prefix is not None or not self._text
        return None if is_watched else self._text.append

    async def prepare(self, plan: Plan, rounds: Rounds) -> Plan:
        """Keep the plan that the answer is an answer to."""
        self._plan = plan
        self._text, self._has_reasoned = [], False
        return plan

    # What is shown.

    def see(self, batch: Sequence[Delta]) -> Sequence[Delta]:
        """Return what can be forwarded: calls when they are whole."""
        if self._prefix is not None:
            batch = self._check(self._prefix, batch)
        shown: list[Delta] = []
        for delta in batch:
            self._take(delta, shown)
        for delta in shown:
            self._note(delta)
        return shown

    def _check(self, guard: _PrefixGuard, batch: Sequence[Delta]) -> Sequence[Delta]:
        """Return what is new in the beginning of a second leg. Raise DeltaRefused for a lie."""
        found = guard.feed(batch)
        if guard.has_failed:
            assert self._cause is not None
            self._failover.note_break(_RESTARTED)
            raise DeltaRefused(self._cause)
        if guard.is_decided:
            self._prefix = None
        return found

    def _take(self, delta: Delta, shown: list[Delta]) -> None:
        """Hold a call and what comes after it until the call is whole."""
        match delta:
            case CallOpened():
                self._calls.add(delta.key)
            case CallClosed():
                self._calls.discard(delta.key)
            case Stopped():
                self._calls.clear()
        if not (self._calls or self._held):
            shown.append(delta)
            return
        self._held.append(delta)
        if not self._calls or produced_length(self._held) > _MOST_HELD:
            self._calls.clear()
            shown += self._release()

    def _release(self) -> list[Delta]:
        held, self._held = self._held, []
        return held

    def _note(self, delta: Delta) -> None:
        """Note what the caller is shown, and whether it can still be continued after that."""
        match delta:
            case TextGrew() if not delta.logprobs:
                self._text.append(delta.text)
            case ReasoningGrew() | SummaryGrew() if not self._text:
                self._has_reasoned = True
            case Stopped() | CallGrew() | CallClosed():
                pass  # the end, or a call that was noted when it opened
            case _ if not isinstance(delta, _NO_PRODUCT):
                self._may_continue = False

    # What follows when it breaks off.

    async def after(self, end: RoundEnd, rounds: Rounds) -> Next | None:
        """Return a round at another deployment that goes on, or nothing if that is impossible."""
        if end.error is None:
            return None
        if self._cause is not None:
            rounds.blame(self._cause)  # the first error is the reason, whatever the second was
        choice = self._choose(end) if end.has_spoken else None
        if choice is None:
            self._note_break(end, end.error, rounds)
            self._calls.clear()
            await rounds.emit(self._release())
            return None
        return await self._go_on(end, end.error, choice, rounds)

    def _note_break(self, end: RoundEnd, error: BackendError, rounds: Rounds) -> None:
        """Note that the answer broke off for good, and what a second leg has cost."""
        if self._cause is None or not end.has_spoken:
            self._failover.note_break(error)
            return
        text = "".join(self._text)[self._told :]
        self._failover.note_leg(
            error, len(text), rounds.usage or Usage(), is_estimated=rounds.is_estimated
        )

    def _choose(self, end: RoundEnd) -> Choice | None:
        """Return who continues, if all conditions hold."""
        plan = end.plan
        is_free = plan.format is None and not plan.logprobs and end.stop is None
        assert end.error is not None
        may = self._may_continue and self._cause is None and is_free
        has_shown = bool(self._text) or self._has_reasoned
        if not may or not has_shown or end.error.is_torn or not classify(end.error).continues:
            return None
        limit = plan.max_output_tokens
        if limit is not None and len(self._text) >= limit:
            return None
        return self._failover.continuing(plan, needs_prefix=bool(self._text))

    async def _go_on(
        self, end: RoundEnd, error: BackendError, choice: Choice, rounds: Rounds
    ) -> Next:
        self._may_continue, self._cause = False, error
        self._calls.clear()
        self._release()  # of a call that was not whole nothing was shown
        text, usage = "".join(self._text), rounds.usage
        self._told = len(text)
        to = choice.candidate
        self._failover.note_leg(
            error, len(text), usage or Usage(), is_estimated=rounds.is_estimated, to=to
        )
        if not text:
            self._failover.abandon()
            await rounds.emit([Reported(f"reasoning was started again on {to.name}")])
            return self._failover.move(choice, classify(error), end.plan, rounds)
        await rounds.emit([Reported(f"continued on {to.name} after {len(text):,} characters")])
        strips = to.backend.capabilities.strips_prefix
        self._prefix = _PrefixGuard(text, strips=strips)
        plan = msgspec.structs.replace(
            end.plan,
            prefix=text.rstrip() if strips else text,
            max_output_tokens=self._left(end.plan, None if rounds.is_estimated else usage),
        )
        wish = self._failover.move(choice, classify(error), plan, rounds)
        return msgspec.structs.replace(wish, continues=True)

    def _left(self, plan: Plan, usage: Usage | None) -> int | None:
        """Return how many tokens are left; each piece of text is about one."""
        if plan.max_output_tokens is None:
            return None
        told = usage.output_tokens if usage is not None else len(self._text)
        return max(plan.max_output_tokens - told, 1)


class _PrefixGuard:
    """Compares the beginning of a continuation with the text that it continues.

    - It repeats the whole text: an echo, which is cut off.
    - It begins as the text began, and then differs: it has started again, which fails.
    - It begins with anything but text: it has started again too.
    """

    def __init__(self, text: str, *, strips: bool) -> None:
        self._text = text
        self._space = text[len(text.rstrip()) :] if strips else ""
        self._found = ""
        self.is_decided = False
        self.has_failed = False

    def feed(self, batch: Sequence[Delta]) -> list[Delta]:
        """Return the deltas that are new, as far as that is certain."""
        out: list[Delta] = []
        for delta in batch:
            if self.is_decided or isinstance(delta, _NO_PRODUCT):
                out.append(delta)
            elif isinstance(delta, TextGrew):
                self._found += delta.text
                self._decide(is_end=False)
                self._give(out)
            elif isinstance(delta, Stopped | CallOpened):
                self._decide(is_end=True)
                self._give(out)
                out.append(delta)
            else:
                self.has_failed = True
            if self.has_failed:
                return []
        return out

    def _give(self, out: list[Delta]) -> None:
        if self.is_decided and self._found:
            out.append(TextGrew(self._found))
            self._found = ""

    def _decide(self, *, is_end: bool) -> None:
        if self._space and not self._swallow(is_end=is_end):
            return
        text, found = self._text, self._found
        is_echo = len(text) >= _SURE and found.startswith(text)
        if is_echo:
            self._found, self.is_decided = found[len(text) :], True
        elif is_end or not text.startswith(found):
            self.has_failed = len(text) > _LONG and _common(text, found) >= _SURE
            self.is_decided = True

    def _swallow(self, *, is_end: bool) -> bool:
        """Drop the white space again that the target was not given; return whether it is gone."""
        if self._space.startswith(self._found) and not is_end:
            return False  # there may be more of it
        shared = _common(self._space, self._found)
        self._found, self._space = self._found[shared:], ""
        return True


def _common(one: str, other: str) -> int:
    """Return how many characters two texts begin with in common."""
    for place, (left, right) in enumerate(zip(one, other, strict=False)):
        if left != right:
            return place
    return min(len(one), len(other))
