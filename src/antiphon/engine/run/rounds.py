"""One loop in which a model is asked until its answer is whole.

A turn may ask its model several times: again after a fault, with a shorter or a compacted
context, to repair an invalid answer, with the results of tools. Each of these is a `Policy`;
the loop around them is here. All rounds push into the same sink.

- Policies stand in order, the outermost first. What a round produces goes through them from the
  last to the first. When a round has ended, they are asked in the same order for the next; the
  policies after the one that wants it have finished with their answer, and prepare the new plan.
  So what runs tools stands before what repairs calls.
- `Stopped` and `UsageKnown` go through the policies and no further. The sink gets the last stop
  and the usage of all rounds together; no usage if one of them was not counted.
- A push that returned False is always followed by `drained`, also if the model fails meanwhile:
  otherwise output that was received would be lost.
- An error of the sink is no fault of the model: it passes every policy and backend as
  `DeltaRefused`.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial, reduce
from typing import ClassVar, Final, Protocol

import msgspec

from antiphon.backends.base import Ask, Backend, DeltaRefused, DeltaSink
from antiphon.engine.prepare.grammars import aside
from antiphon.plans.plan import Plan
from antiphon.protocol.deltas import Degraded, Delta, Stopped, TextGrew, TierUsed, UsageKnown
from antiphon.protocol.errors import AntiphonError, BackendError, OurFault
from antiphon.protocol.response import Usage, add_usage
from antiphon.store.base import RoundKind

__all__ = ["Next", "Policy", "RoundEnd", "Rounds", "RoundsSink"]

_TEXT: Final = frozenset({TextGrew})
_NOTES: Final = frozenset({Degraded})
_TAKEN_OUT: Final = frozenset({Degraded, Stopped, UsageKnown})
# What is no answer yet: a server may send it and then fail.
_SILENT: Final = _TAKEN_OUT | {TierUsed}


class RoundsSink(DeltaSink, Protocol):
    """Takes what all rounds produce, and learns what happens before that."""

    def note_degraded(self, notes: Sequence[str], *, is_said: bool) -> None:
        """Note what cannot be honoured; `is_said` if output comes with it that was produced so.

        Raise AntiphonError if the caller does not accept that.
        """
        ...

    def begin_round(self, plan: Plan, *, continues: bool) -> None:
        """Note that the model is about to be asked with this plan.

        `continues` if the round goes on with the answer of the one before. Raise as
        `check_reader` does.
        """
        ...

    def check_reader(self) -> None:
        """Raise AntiphonError if nothing more is to be begun: the reader has left."""
        ...

    async def settled(self) -> None:
        """Wait until everything that was pushed is durable, if the turn keeps a log.

        `drained` waits for room only, which there may be long before.
        """
        ...


class RoundEnd(msgspec.Struct, frozen=True):
    """How a round ended: with a stop, or with an error, or neither if the model broke off."""

    plan: Plan
    stop: Stopped | None
    error: BackendError | None
    has_spoken: bool
    """Whether the model has produced anything in this round.

    What it has used, and a stop, is not a product. That it has begun and holds its output is one.
    """


class Next(msgspec.Struct, frozen=True):
    """What to ask in the next round."""

    plan: Plan
    backend: Backend | None = None
    """Which backend to ask from here on; None for the same as before."""
    continues: bool = False
    """Whether the round repeats or repairs the answer of the one before, and so goes on with it.

    Then it is not reported again what the same model cannot honour.
    """
    is_longer: bool = False
    """Whether the plan has more context, so that the policies before this one prepare it too."""


class Policy:
    """A reason to ask a model otherwise or again. By itself it does nothing."""

    sees: ClassVar[bool] = False
    """Whether `see` looks at what is produced."""
    kind: ClassVar[RoundKind] = "model"
    """What the rounds are that it wants."""

    @property
    def note_text(self) -> Callable[[str], object] | None:
        """Takes each text that passes unseen; None while `see` must look at it."""
        return _ignore

    def note_texts(self, texts: list[str]) -> None:
        """Take several texts that pass unseen together."""
        note = self.note_text
        if note is not None:
            for text in texts:
                note(text)

    @property
    def looks_for(self) -> re.Pattern[str] | None:
        """A text that has this in it does not pass unseen; None if any may."""
        return None

    async def prepare(self, plan: Plan, rounds: Rounds) -> Plan | None:
        """Return the plan to ask with; None if nothing is asked, after `rounds.stop`."""
        return plan

    def is_slow(self, batch: Sequence[Delta]) -> bool:
        """Return whether `see` may take so long for this batch that a thread must do it."""
        return False

    def see(self, batch: Sequence[Delta]) -> Sequence[Delta]:
        """Return what can be forwarded after this batch."""
        return batch

    async def after(self, end: RoundEnd, rounds: Rounds) -> Next | None:
        """Return the next round to make, if this policy wants one."""
        return None

    def finish(self) -> Sequence[Delta]:
        """Return the last deltas of the answer, when this policy wants no other round for it."""
        return ()

    def judge(self) -> None:
        """Raise BackendError if the answer fails the turn, after all of it was pushed."""

    async def may_go_on(self) -> Stopped | None:
        """Return how the answer ends now, when the policy has held it; None if it goes on."""
        return None

    async def close(self) -> None:
        """Release what the policy holds, when no round follows, however the turn ended."""


class _RoundCut(DeltaRefused):
    """The answer ends here, although the model would go on: this passes every backend."""

    def __init__(self, stop: Stopped) -> None:
        super().__init__(OurFault("the answer was cut"))
        self.stop = stop


class Rounds:
    """Runs a plan until no policy wants another round."""

    def __init__(
        self,
        backend: Backend,
        plan: Plan,
        policies: Sequence[Policy],
        sink: RoundsSink,
        kind: RoundKind = "model",
    ) -> None:
        self.backend = backend
        """The backend that is asked now."""
        self.kind: RoundKind = kind
        """Why it is asked."""
        self.on_ask: Callable[[Ask, RoundKind], Awaitable[None]] | None = None
        """Awaited with each request before it is sent, if it is to be kept."""
        self.has_begun = False
        """Whether anything was forwarded to the sink."""
        self.is_answering = False
        """Whether anything was forwarded of the answer that the model gives now."""
        self._plan = plan
        self._policies = policies
        self._seeing = [policy for policy in reversed(policies) if policy.sees]
        self._sink = sink
        self._usages: list[Usage | None] = []
        self._last: list[Delta] = []  # of the policies that have finished with the answer
        self._problem: BackendError | None = None  # and why the answer fails the turn
        self._error: BackendError | None = None  # of the last round
        self.continues = False
        """Whether this round goes on with the answer of the one before."""
        self._reports = True
        self._blamed: BackendError | None = None
        self._fault: BackendError | None = None  # why this round is made by another backend

    def _reset(self) -> None:
        self._is_taken = _not_yet
        self._stop: Stopped | None = None
        self._usage: Usage | None = None
        self._has_spoken = False
        self._is_counted = False
        self._early: list[Delta] = []  # what came before the first product
        self._slow: Sequence[Delta] | None = None  # waits for a thread, in `drained`
        self._checking: asyncio.Future[Sequence[Delta]] | None = None  # and is there now
        self._is_behind = False  # a push returned False, and `drained` was not awaited since
        self._held_by: Policy | None = None  # who decides, in `drained`, whether it goes on
        self._estimate: Usage | None = None  # what this round cost, if no upstream reported it
        self._passes_text = False  # the first batch of a round is always looked at
        # Who counts texts that pass unseen, one by one and several at once.
        self._notes: Sequence[Callable[[str], object]] = ()
        self._batch_notes: Sequence[Callable[[list[str]], object]] = ()
        self._looks_for: re.Pattern[str] | None = None  # what is looked at all the same

    async def run(self) -> None:
        """Ask until the answer is whole. Raise BackendError if the model cannot go on."""
        try:
            await self._run()
        except DeltaRefused as refusal:
            raise refusal.reason from None
        except asyncio.CancelledError:
            # The model has been stopped; what it had produced is forwarded all the same.
            with suppress(DeltaRefused):
                await self._forward_checked()
            raise
        finally:
            for policy in self._policies:
                await policy.close()

    async def _run(self) -> None:
        plan, level = self._plan, 0
        while True:
            end, level = await self._round(plan, level)
            wish, wishing = await self._ask_policies(end, level)
            has_failed = end.error is not None and not end.has_spoken and self._is_counted
            if has_failed and (wish is not None or self._usage is None):
                self._usages.pop()  # an attempt that failed costs nothing
            if wish is None:
                break
            if self._last:
                await self.emit(())
            self._fault = end.error if wish.backend is not None else None
            self._reports = not wish.continues or wish.backend is not None
            self.backend = wish.backend or self.backend
            self.kind = self._policies[wishing].kind
            plan, level, self.continues = wish.plan, wishing + 1, wish.continues
            level = 0 if wish.is_longer else level
            self.is_answering = self.is_answering and wish.continues
        self._last, self._early = [*self._early, *self._last], []
        self._error = end.error and (self._blamed or end.error)
        self._blamed = self._fault = None
        del end  # the traceback of its error will hold this frame
        await self._finish()

    async def emit(self, batch: Sequence[Delta]) -> None:
        """Forward deltas of a policy. None of them is no sign that the model has begun."""
        finished, self._last = self._last, []
        if not finished and not batch:
            return
        forwarded = self._sort_out([*finished, *batch])
        if forwarded is not None and not self._forward(forwarded):
            await self._sink.drained()

    async def settle(self) -> None:
        """Wait until everything that was emitted is durable, if the turn keeps a log."""
        await self._sink.settled()

    def check_reader(self) -> None:
        """Raise AntiphonError if nothing more is to be begun: the reader has left."""
        self._sink.check_reader()

    def spend(self, usage: Usage | None) -> None:
        """Add what a policy has spent; None if that was not counted."""
        self._usages.append(usage)

    @property
    def usage(self) -> Usage | None:
        """What the round that has just ended cost, if that is counted."""
        return self._estimate or (self._usages[-1] if self._usages else None)

    @property
    def is_estimated(self) -> bool:
        """Whether that was counted here, because no upstream has reported it."""
        return self._estimate is not None

    @property
    def is_taken(self) -> bool:
        """Whether the upstream may have worked in this round, and bill for that."""
        return self._is_taken()

    def note_estimate(self, usage: Usage) -> None:
        """Take this as the cost of the round that has just ended and reported none."""
        self._estimate = usage

    def hold(self, policy: Policy) -> None:
        """Let a policy decide, before more is taken of this round, whether it goes on."""
        self._held_by = policy

    def blame(self, error: BackendError) -> None:
        """Report this error if the turn fails, instead of that of the last round."""
        self._blamed = error

    def stop(self, stop: Stopped) -> None:
        """End the answer of a turn whose model is not asked."""
        self._stop = stop

    # One round.

    async def _round(self, plan: Plan, level: int) -> tuple[RoundEnd, int]:
        """Make a round that the policies from `level` on prepare; return how many took part."""
        self._reset()
        error: BackendError | None = None
        try:
            for policy in self._policies[level:]:
                prepared = await policy.prepare(plan, self)
                if prepared is None:
                    break
                plan, level = prepared, level + 1
            else:
                await self._ask(plan)
        except BackendError as fault:
            error = fault.with_traceback(None)  # which would hold this frame
        return RoundEnd(plan, self._stop, error, self._has_spoken), level

    async def _ask(self, plan: Plan) -> None:
        ask = await self.backend.open(plan)
        if ask.degraded:
            self._report(ask.degraded, is_said=False)
        if self.on_ask is not None:
            await self.on_ask(ask, self.kind)
        self._sink.begin_round(plan, continues=self.continues)
        self._is_taken = ask.is_taken
        try:
            await ask.run(self)
        except BackendError:
            await self._end_round()
            raise
        except _RoundCut as cut:
            self._stop = cut.stop
        await self._end_round()

    async def _end_round(self) -> None:
        self._held_by = None
        if self._is_behind:
            await self.drained()
        self._usages.append(self._usage)
        self._is_counted = True

    async def _ask_policies(self, end: RoundEnd, level: int) -> tuple[Next | None, int]:
        """Return the next round to make and which policy wants it, asked from the last on."""
        for index in range(level - 1, -1, -1):
            policy = self._policies[index]
            wish = await policy.after(end, self)
            if wish is not None:
                return wish, index
            if end.error is not None:
                continue
            self._last += policy.finish()
            try:
                policy.judge()
            except BackendError as problem:
                self._problem = problem.with_traceback(None)  # which would hold this frame
                break
        return None, level

    async def _finish(self) -> None:
        last, self._last = self._last, []
        error, self._error = self._error, None
        counted = [usage for usage in self._usages if usage is not None]
        if counted and len(counted) == len(self._usages):
            last.append(UsageKnown(reduce(add_usage, counted)))
        if error is None and self._stop is not None:
            last.append(self._stop)
        # Before the first output an error is raised alone.
        if last and (error is None or self.has_begun) and not self._forward(last):
            await self._sink.drained()
        error, self._problem = error or self._problem, None
        if error is not None:
            try:
                raise error
            finally:
                del error  # its traceback holds this frame

    # What a round produces.

    def push(self, batch: Sequence[Delta]) -> bool:
        """Take a batch; after a False, await `drained` before the next."""
        if (
            self._passes_text
            and len(batch) == 1
            and type(batch[0]) is TextGrew
            and not (self._looks_for is not None and self._looks_for.search(batch[0].text))
        ):
            for note in self._notes:
                note(batch[0].text)
        else:
            seen = self._look_at(batch)
            if seen is None:
                self._is_behind = self._is_behind or self._held_by is not None
                return not self._is_behind
            batch = seen
        try:
            if self._sink.push(batch) and self._held_by is None:
                return True
        except AntiphonError as error:
            raise DeltaRefused(error) from None
        self._is_behind = True
        return False

    def _look_at(self, batch: Sequence[Delta]) -> Sequence[Delta] | None:
        """Return what is to be forwarded of a batch now; None if it is nothing."""
        assert self._slow is None, "drained() was not awaited"
        if self._checking is not None:  # interrupted, and the policies are in a thread
            raise DeltaRefused(OurFault("the turn was interrupted"))
        if self._passes_text and _TEXT.issuperset(map(type, batch)) and not self._has_mark(batch):
            return self._note_texts(batch)
        speaks = self._has_spoken or not batch or not _SILENT.issuperset(map(type, batch))
        self._has_spoken = speaks
        for policy in self._seeing:
            if policy.is_slow(batch):
                self._slow, self._is_behind, self._passes_text = batch, True, False
                return None
        forwarded = self._sort_out(self._see(batch))
        self._note_state()
        if not speaks:
            self._early += forwarded or ()
            return None
        if forwarded is not None:
            if self._early:
                forwarded, self._early = [*self._early, *forwarded], []
            self.has_begun = self.is_answering = True
        return forwarded

    def _has_mark(self, batch: Sequence[Delta]) -> bool:
        """Return whether one of these texts must be looked at."""
        looks_for = self._looks_for
        if looks_for is None:
            return False
        return any(looks_for.search(one.text) for one in batch if isinstance(one, TextGrew))

    def _note_texts(self, batch: Sequence[Delta]) -> Sequence[Delta]:
        """Return texts that pass without a look at them."""
        texts = [delta.text for delta in batch]  # type: ignore[union-attr] # all are texts
        for note in self._batch_notes:
            note(texts)
        return batch

    def _note_state(self) -> None:
        """Note whether the next text can pass without a look at it. After a stop, none comes."""
        self._passes_text = False
        if self._stop is not None:
            return
        notes: list[Callable[[str], object]] = []
        batch_notes: list[Callable[[list[str]], object]] = []
        looks_for: re.Pattern[str] | None = None
        for policy in self._seeing:
            note, wanted = policy.note_text, policy.looks_for
            if note is None or (wanted is not None and looks_for is not None):
                return
            looks_for = looks_for or wanted
            if note is not _ignore:
                notes.append(note)
                batch_notes.append(policy.note_texts)
        self._notes, self._batch_notes = notes, batch_notes
        self._looks_for, self._passes_text = looks_for, self._has_spoken

    async def drained(self) -> None:
        """Wait until more can be taken."""
        self._is_behind = False
        if self._slow is None or not await self._forward_checked():
            await self._sink.drained()
        if self._held_by is not None:
            policy, self._held_by = self._held_by, None
            stop = await policy.may_go_on()
            if stop is not None:
                raise _RoundCut(stop)

    async def _forward_checked(self) -> bool:
        """Forward what waits for a thread when it is checked; return whether the sink keeps up.

        To be cancelled here does not lose it: call again, and it is forwarded then.
        """
        if self._slow is not None:
            batch, self._slow = self._slow, None
            self._checking = asyncio.ensure_future(aside(partial(self._see, batch)))
        if self._checking is None:
            return True
        seen = await asyncio.shield(self._checking)
        self._checking = None
        forwarded = self._sort_out(seen)
        self._note_state()
        if forwarded is None:
            return True
        self.is_answering = True
        return self._forward(forwarded)

    def _see(self, batch: Sequence[Delta]) -> Sequence[Delta]:
        for policy in self._seeing:
            batch = policy.see(batch)
        return batch

    def _sort_out(self, batch: Sequence[Delta]) -> Sequence[Delta] | None:
        """Return what is to be forwarded; None if it is nothing."""
        kinds = {*map(type, batch)}
        if not _TAKEN_OUT.isdisjoint(kinds):
            if Degraded in kinds:
                notes = [delta.what for delta in batch if isinstance(delta, Degraded)]
                self._report(notes, is_said=self.has_begun and len(notes) < len(batch))
            if kinds == _NOTES:
                return None
            batch = self._take_out(batch)
        return None if not batch and self.has_begun else batch

    def _report(self, notes: Sequence[str], *, is_said: bool) -> None:
        if not self._reports:
            return
        try:
            self._sink.note_degraded(notes, is_said=is_said)
        except AntiphonError as error:
            # A deployment that cannot honour all does not answer for one that failed.
            raise DeltaRefused(self._fault or error) from None

    def _take_out(self, batch: Sequence[Delta]) -> list[Delta]:
        """Keep the stop and the usage of this round; return the rest."""
        rest: list[Delta] = []
        for delta in batch:
            if isinstance(delta, Stopped):
                self._stop = delta
            elif isinstance(delta, UsageKnown):
                self._usage = delta.usage if delta.has_output else None
            elif not isinstance(delta, Degraded):
                rest.append(delta)
        return rest

    def _forward(self, batch: Sequence[Delta]) -> bool:
        """Push deltas that do not come from the model, but from a policy or from this loop."""
        self.has_begun = True
        try:
            return self._sink.push(batch)
        except AntiphonError as error:
            raise DeltaRefused(error) from None


def _not_yet() -> bool:
    return False


def _ignore(text: str) -> None:
    """Take a text that no policy notes."""
