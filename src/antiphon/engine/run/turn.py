"""One turn, from a plan to its last event.

    rounds (backend, policies) -> gate -> builder -> log (store) -> sink

Guarantees for callers of `Turn.run`:

- an error before the first output of the model is raised, so that it can be an HTTP error;
- after that nothing is raised but ReaderGone: the stream ends in exactly one terminal event,
  which contains everything the model produced before a fault, with usage;
- with `store` on, every event is durable before it is shown. Only if the store fails is the
  output sent all the same, with a failure, and the end is stored later;
- cancelling the run, or a reader that disconnects, stops the model at once and stores the output
  so far as `cancelled`; with `on_disconnect = "finish"` see `reader`.

A background turn has no reader. It was stored as `queued`, so any error ends it, and nothing is
raised.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, cast

import msgspec

from antiphon.accounts.loop_share import Way
from antiphon.accounts.principal import Principal
from antiphon.accounts.refusals import describe_refusal
from antiphon.engine.keep.turn_log import Phase, TurnLog
from antiphon.engine.prepare.context_size import ContextSize
from antiphon.engine.prepare.format import FormatCheck
from antiphon.engine.prepare.native_states import keep_states
from antiphon.engine.prepare.validate import refuse_degraded
from antiphon.engine.run.ask_route import ask_route
from antiphon.engine.run.reader import OnDisconnect, Reader, outlive
from antiphon.engine.run.rounds import Policy
from antiphon.engine.run.sinks import NO_READER, EventSink, ReaderGone, show_all
from antiphon.engine.run.truncate import Truncate
from antiphon.engine.run.turn_charges import TurnCharges
from antiphon.engine.services import TurnServices
from antiphon.plans.assemble import Assembly
from antiphon.plans.plan import Plan
from antiphon.protocol.deltas import Degraded, Delta, Stopped
from antiphon.protocol.errors import (
    AntiphonError,
    BackendError,
    ContextOverflow,
    LimitReached,
    OurFault,
    ResponseDeleted,
    StoreUnavailable,
    TurnLost,
)
from antiphon.protocol.events import Event, TerminalEvent
from antiphon.protocol.families import is_call
from antiphon.protocol.items import Item
from antiphon.protocol.machines.builder import KeptState, ResponseBuilder
from antiphon.protocol.response import MOST_NOTES, Attempt, Failure, Response
from antiphon.routing.candidates import Candidate, Route
from antiphon.routing.choice import Session
from antiphon.store.base import Entry

__all__ = ["Carry", "Turn", "TurnCancelled", "TurnInputs"]

_log = logging.getLogger(__name__)
_TOO_MANY: Final = 429
_BROKEN: Final = "the gateway broke; this is our fault"
_OPEN: Final = Phase.OPEN
# While owners share the event loop: what a model has sent is handled in pieces of this many.
_BATCHES_IN_A_TURN: Final = 4
_CANCELLED: Final = "the response was cancelled"
_LEFT: Final = "the client left"


Carry = Callable[[Response, Mapping[str, KeptState]], Awaitable[None]]


class TurnCancelled(AntiphonError):
    """The turn was cancelled on request: it ends as cancelled, with the output so far."""

    code = "cancelled"


class TurnInputs(msgspec.Struct, frozen=True, kw_only=True):
    """What a turn is made of: everything that was decided before it runs."""

    principal: Principal
    route: Route
    """Who may answer."""
    session: Session = Session()
    """What ties the turn to those before it."""
    policies: Sequence[Policy] = ()
    """How the model is asked, the outermost first; they belong to this turn alone."""
    charges: TurnCharges
    """Who pays for it."""
    plan: Plan
    context: Sequence[Item]
    """The items of earlier turns and its own, as they are remembered."""
    response: Response
    form: FormatCheck | None = None
    is_strict: bool = False
    may_shorten: bool = False
    tells_limits: bool = False
    """Whether a rate limit of the upstream is reported as a failed response."""
    size: ContextSize
    remember: Callable[[Response], None] = lambda response: None
    """Called with the response when it has ended and is durable."""
    carry: Carry | None = None
    """Keeps what its caller cannot send back of a response, before its end is shown."""
    on_disconnect: OnDisconnect = "cancel"
    """What becomes of it when its reader leaves."""


class Turn:
    """One run of a model for one request."""

    attempts = 1
    """How many requests were sent to deployments, as far as more than one was needed."""
    ended: Response | None = None
    """The response as it ended, once it has."""
    interruption: AntiphonError | None = None
    """Why the turn was interrupted, if it was."""
    streams_overflow = True
    """Whether a stream that was asked for reports a context that is too long."""
    on_end: Callable[[Response], Awaitable[None]] | None = None
    """Awaited with the response as it ended, before the last events are shown."""
    is_running = False
    """A queued turn runs when there is room for it."""
    _reader: Reader | None = None
    _store_error: StoreUnavailable | None = None
    _is_ending = False
    # Whether the log did not want more when something was posted last. Else a caller of
    # `drained` waits for the event loop only.
    _is_behind = True
    _batches = 0

    def __init__(
        self, services: TurnServices, inputs: TurnInputs, builder: ResponseBuilder, log: TurnLog
    ) -> None:
        self.response_id = inputs.response.id
        self.principal = inputs.principal
        self.owner = inputs.principal.owner
        self.model = inputs.response.model
        self.served_by: Candidate = inputs.route.first
        """The deployment that is asked, once one is."""
        self.route = inputs.route
        """Who may answer."""
        self.plan = inputs.plan
        self.charges = inputs.charges
        """What it has used, and what that costs."""
        self._services = services
        self._share = services.share
        self._inputs = inputs
        self._response = inputs.response
        self._builder = builder
        self._turn_log = log
        self.hold = inputs.size.hold
        """The memory that is reserved for it; released by the code that ends the turn."""
        self._assembly = Assembly(inputs.plan, builder, reserve=self.hold.reserve_output)

    @property
    def degraded(self) -> tuple[str, ...]:
        """What could not be honoured, as far as it is known by now."""
        notes = self._response.antiphon
        return notes.degraded if notes else ()

    @property
    def size(self) -> ContextSize:
        """The size of its context, which decides in which thread to work on it."""
        return self._inputs.size

    def transcript(self) -> list[Item]:
        """Return the whole context and the output: what the next turn begins with."""
        return [*self._inputs.context, *keep_states(self._builder.output, self._builder.states)]

    async def run(self, sink: EventSink) -> None:
        """Run the turn; show its events to the sink. `ended` is the response afterwards."""
        self._turn_log.sink = sink
        if self._share.is_paced:
            self._turn_log.way = Way.of_this_task()
        work = self._run(self._ask())
        try:
            if self._inputs.on_disconnect == "cancel":
                await work
            else:
                self._turn_log.sink = self._reader = Reader(sink)
                await outlive(self._reader, work, lambda: self.interruption is not None)
        finally:
            # What the caller gave us may refer to the turn: only the garbage collector would
            # find both.
            self._turn_log.sink, self._reader, self.on_end = NO_READER, None, None

    async def respond(self) -> Response:
        """Run the turn without a reader; return the response it ends in.

        Raise StoreUnavailable if that could not be made durable.
        """
        await self.run(NO_READER)
        self._raise_store_error()
        if isinstance(self.interruption, ResponseDeleted):
            raise self.interruption
        assert self.ended is not None  # every turn that returns has ended
        return self.ended

    async def queue(self, request: bytes) -> Response:
        """Put the turn into the store as queued; return the response as it now is."""
        try:
            await self._turn_log.queue(self._builder.start(is_queued=True), request)
        except StoreUnavailable as error:
            self._defer_failure(error)
            await self._turn_log.abandon()
            raise
        return msgspec.structs.replace(self._response, status="queued")

    def take_over(self) -> None:
        """Be the one who runs a turn that another process has queued."""
        self._builder.start(is_queued=True)
        self._turn_log.take_over()

    async def run_queued(self) -> None:
        """Run a turn that was queued, without a reader. Nothing is raised."""
        self.is_running = True
        await self._run(self._background())

    def interrupt(self, task: asyncio.Task[object], error: AntiphonError) -> None:
        """End the turn now, run by `task`, as failed: its reader still gets a last event.

        One that is about to end anyway is not interrupted.
        """
        if self.interruption is None and not self._is_ending:
            self.interruption = error
            task.cancel()

    def _raise_store_error(self) -> None:
        """Raise why the end is not durable, if it is not.

        The error's traceback holds this turn. If the turn held the error, both would stay in
        memory, with the whole context, until the garbage collector finds them.
        """
        error, self._store_error = self._store_error, None
        if error is not None:
            try:
                raise error
            finally:
                del error

    # Where events come from.

    async def _background(self) -> None:
        if self.interruption is not None:
            raise self.interruption
        if self._share.is_paced:
            await self._share.turn(self.owner)
        self._turn_log.post(self._builder.go_on())
        await self.drained()  # a turn that others run now, or that was cancelled, ends here
        await self._ask()

    async def _ask(self) -> None:
        inputs = self._inputs
        policies = list(inputs.policies)
        if inputs.may_shorten:
            policies.insert(0, Truncate(self._note_shorter))
        try:
            await ask_route(
                inputs.route,
                self.plan,
                policies,
                self,
                self.charges,
                session=inputs.session,
                listener=self,
                is_strict=inputs.is_strict,
            )
        except LimitReached:
            if not self._turn_log.has_begun:
                raise
            self.push([Stopped("length")])  # with all that there is by now
        if self._turn_log.is_cancelled:
            raise TurnCancelled(_CANCELLED)
        if not self._turn_log.has_begun:  # the model produced nothing at all
            self.push(())
            await self.drained()

    def _note_shorter(self, note: str) -> None:
        self._builder.feed(Degraded(note))

    def push(self, batch: Sequence[Delta]) -> bool:
        """Take what the model has produced; return whether more may follow before `drained`."""
        log, share = self._turn_log, self._share
        if log.phase is _OPEN:
            self._is_behind = not log.post(self._assembly.feed(batch))
            return not (self._is_behind or (share.is_paced and self._is_its_turn_over()))
        self._is_behind = True
        return log.post(self._builder.start() + self._assembly.feed(batch))

    def _is_its_turn_over(self) -> bool:
        """Return whether other owners may be next; a few batches are handled in one turn."""
        self._batches += 1
        return self._batches >= _BATCHES_IN_A_TURN and self._share.is_ahead(self.owner)

    async def drained(self) -> None:
        """Wait until more can be pushed.

        If the log or the reader is behind, wait for it. If other owners wait for the event loop,
        wait until it is this owner's turn.
        """
        if self._share.is_paced:
            await self._turn_log.opened()
            await self._share.turn(self.owner)
            self._batches = 0
        if self._is_behind:
            await self._turn_log.settled()
        if self._turn_log.is_cancelled:
            raise TurnCancelled(_CANCELLED)

    async def settled(self) -> None:
        """Wait until everything that was pushed is durable, if the turn keeps a log."""
        self._is_behind = True
        await self.drained()
        await self._turn_log.settled()  # what follows a beginning that was stored early

    def check_reader(self) -> None:
        """Raise TurnCancelled if the reader has left: nothing more is begun for it."""
        if self._reader is not None and self._reader.has_left:
            raise TurnCancelled(_LEFT)

    def begin_round(self, plan: Plan, *, continues: bool) -> None:
        """Begin a round; begin to store the beginning of the turn while the model is asked."""
        self.check_reader()
        events = self._assembly.begin_round(plan, continues=continues)
        if events:
            self._turn_log.post(events)
        if self._turn_log.may_begin_early:
            self._turn_log.begin_early(self._builder.start())
        else:
            self._turn_log.end_way()  # from here on it may take long

    def note_served(self, candidate: Candidate) -> None:
        """Note that this deployment is asked from here on."""
        self.served_by = candidate

    def note_attempt(self, attempt: Attempt) -> None:
        """Note how an attempt ended, in the response too."""
        self._builder.note_attempt(attempt)
        notes = self._response.antiphon
        self.attempts = len(notes.attempts) if notes else 1

    def abandon_reasoning(self) -> None:
        """End reasoning that came to nothing, before it is started again."""
        self._turn_log.post(self._builder.abandon_reasoning())

    def note_degraded(self, notes: Sequence[str], *, is_said: bool) -> None:
        """Note what cannot be honoured; refuse it when the caller is strict.

        But not if it is about output that comes with it.
        """
        if self._inputs.is_strict and not is_said:
            refuse_degraded(notes)
        for what in list(dict.fromkeys(notes))[: MOST_NOTES + 1]:  # the builder keeps only so many
            self._builder.feed(Degraded(what))

    # Where they go, and how it ends.

    async def _run(self, work: Coroutine[object, object, None]) -> None:
        """Do the work of the turn, then store and show its end. Whatever happens, it is paid."""
        try:
            await self._work(work)
        finally:
            if not self.charges.is_settled:
                await self._settle()

    async def _settle(self) -> None:
        """Write what no end of the turn has written of its charges."""
        await asyncio.shield(self.charges.close())

    async def _work(self, work: Coroutine[object, object, None]) -> None:
        trouble: AntiphonError | None = None
        self._turn_log.alarm = partial(self._hear, asyncio.current_task())
        try:
            await work
        except AntiphonError as fault:
            trouble = await self._fault_to_tell(fault)
        except asyncio.CancelledError as error:
            trouble = await self._cut_off(error)
        except ReaderGone:
            await self._leave()
            raise
        except Exception:  # noqa: BLE001 - the last frame that can end the stream truthfully
            trouble = await self._fault_to_tell(self._own_up())
        finally:
            self._turn_log.alarm = None
            if not self._turn_log.has_begun:
                await self._let_go()
        # From here on the turn has ended, even if it is interrupted while that is stored.
        self._is_ending = True
        last = await asyncio.shield(self._conclude(trouble))
        if self.on_end is not None and self.ended is not None:
            await self.on_end(self.ended)
        # Before the end is shown: a client may leave as soon as it has that.
        if not self.charges.is_settled:
            await self._settle()
        if self._share.is_paced:
            await self._share.turn(self.owner)
        await show_all(self._turn_log.sink, last)

    async def _let_go(self) -> None:
        """Undo what was prepared for a turn that has not begun."""
        if self._turn_log.phase is Phase.OPENING:
            self._services.suspend_early_begin()
        await asyncio.shield(self._turn_log.abandon())

    def _hear(self, task: asyncio.Task[object] | None, trouble: Exception) -> None:
        """End a turn that cannot be stored: its model may be silent for long."""
        assert task is not None
        fault = trouble if isinstance(trouble, AntiphonError) else OurFault(_BROKEN)
        self.interrupt(task, fault)

    async def _cut_off(self, error: asyncio.CancelledError) -> AntiphonError:
        """Return the interruption to report.

        Re-raise the cancellation if the reader has left or nothing was sent yet.
        """
        if self.interruption is not None and self._turn_log.has_begun:
            return self.interruption
        await self._leave()
        try:
            raise self.interruption or error from None
        finally:
            del error  # its traceback holds this frame, and so the turn

    async def _fault_to_tell(self, fault: AntiphonError) -> AntiphonError:
        """Return the fault that ends the stream; raise it if nothing was sent yet."""
        if self._turn_log.has_begun:
            return fault.with_traceback(None)  # which holds the frame that holds the fault
        if self._turn_log.phase is Phase.LOST:
            self._defer_failure(fault)
        if not self._is_told_as_stream(fault):
            try:
                raise fault
            finally:
                del fault  # its traceback holds this frame, and so the turn
        try:
            self._turn_log.post(self._builder.start())
            with suppress(ReaderGone):  # the end will find that out again
                await self._turn_log.settled()
        except asyncio.CancelledError:
            await self._leave()
            raise
        except StoreUnavailable as error:
            self._defer_failure(error)
            raise
        return fault

    def _is_told_as_stream(self, fault: AntiphonError) -> bool:
        """Return whether a fault before the first output is reported as a failed stream.

        Codex knows an overflow only so, and where there is no HTTP status, on a WebSocket, also
        that it should come again later.
        """
        if isinstance(fault, ContextOverflow):
            return self.plan.stream and self.streams_overflow
        return self._inputs.tells_limits and getattr(fault, "status", 0) == _TOO_MANY

    async def _leave(self) -> None:
        """Store the output so far of a turn whose reader has left."""
        self._turn_log.alarm = None
        reason = self.interruption or TurnCancelled(_LEFT)
        if self._turn_log.has_begun:
            await asyncio.shield(self._conclude(reason))
        elif self._turn_log.phase is Phase.LOST:
            self._defer_failure(reason)

    async def _conclude(self, error: AntiphonError | None) -> list[Event]:
        """Return the last events, once they are durable."""
        try:
            if self._share.is_paced:
                await self._share.turn(self.owner)
            await self._turn_log.stop()
            return await (self._finish() if error is None else self._fail(error))
        except BackendError as fault:
            return await self._fail(fault)
        except Exception:  # noqa: BLE001 - as in `_run`
            return await self._fail(self._own_up())

    def _own_up(self) -> OurFault:
        _log.exception("turn %s broke", self.response_id)
        return OurFault(_BROKEN)

    async def _finish(self) -> list[Event]:
        events, problem = self._assembly.close()
        problem = problem or self._output_problem()
        if problem is not None:
            return await self._fail(problem, events)
        self._count()
        return await self._end(events + self._assembly.finish(self._services.now()))

    def _output_problem(self) -> BackendError | None:
        """Hold the text against `text.format`; a miss is only noted if the format is not binding.

        Text beside a call is not the answer: that comes when the call has been run.
        """
        form = self._inputs.form
        if form is None:
            return None
        text = self._builder.answer_text
        if text is None or any(map(is_call, self._builder.output)):
            return None
        unchecked = form.why_unchecked(text)
        problem = unchecked or form.problem(text)
        if problem is None:
            return None
        if form.is_binding and not unchecked:
            return BackendError(problem, code="output_format_violated")
        self._builder.feed(Degraded(problem))
        return None

    async def _fail(self, error: AntiphonError, events: Sequence[Event] = ()) -> list[Event]:
        """Return the last events of a failure, with everything the model has produced."""
        events = [*events, *self._assembly.interrupt()]
        self._count()
        if isinstance(error, TurnCancelled):
            return await self._end(events + self._builder.cancel())
        return await self._end(events + self._assembly.fail(_failure(error), error.type))

    async def _end(self, events: list[Event]) -> list[Event]:
        """Make the terminal response durable; if that fails, end with that failure."""
        response = cast(TerminalEvent, events[-1]).response
        settled = self.charges.entries()
        sent = [] if self.charges.kept is None else await self.charges.kept.entries()
        entries = [*self._services.notify(self.owner, response), *settled, *sent]
        kept, states = response, self._builder.states
        if states:
            kept = msgspec.structs.replace(response, output=keep_states(response.output, states))
        try:
            events = await self._turn_log.finish(events, kept, entries)
        except StoreUnavailable as error:
            if self.interruption is None:
                self._store_error = error.with_traceback(None)
            events, response = self._take_back(events, error, sent)
        else:
            if self._turn_log.keeps_entries:
                self.charges.note_written(settled)
            self._inputs.remember(kept)
            if self._inputs.carry is not None:
                await self._inputs.carry(response, states)
        self.ended = response
        self._services.observe(response)
        return events

    def _take_back(
        self, events: list[Event], error: StoreUnavailable, sent: Sequence[Entry]
    ) -> tuple[list[Event], Response]:
        """Return the end as a failure of the store, and queue it to be stored later."""
        unshown, response = self._turn_log.unshown(), cast(TerminalEvent, events[-1]).response
        if isinstance(error, TurnLost) and self.interruption is not None:
            return unshown + events, response  # it was interrupted, and reports that
        events = unshown + _before_the_end(events) + self._builder.retract(_failure(error))
        response = cast(TerminalEvent, events[-1]).response
        if not isinstance(error, TurnLost):
            entries = self._services.notify(self.owner, response)
            self._turn_log.defer_end(events, response, [*entries, *sent])
        return events, response

    def _defer_failure(self, fault: AntiphonError) -> None:
        """Queue the failure of a turn that may have begun after all, to be stored later."""
        events = self._turn_log.unshown() + self._assembly.fail(_failure(fault), fault.type)
        self._turn_log.defer_end(events, cast(TerminalEvent, events[-1]).response)

    def _count(self) -> None:
        """State what the turn has used: the sum of its charges."""
        charges = self.charges
        if charges.refused is not None:
            why = describe_refusal(charges.refused)
            self._builder.feed(Degraded(f"max_output_tokens: the answer ends early: {why}"))
        self._builder.note_usage(charges.usage, is_estimated=charges.basis != "reported")
        self._builder.note_cost(charges.cost, charges.budget)


def _failure(error: AntiphonError) -> Failure:
    wait = getattr(error, "retry_after", None)
    later = f" Please try again in {wait:g}s." if wait is not None else ""
    return Failure(error.code or error.type, error.message + later)


def _before_the_end(events: list[Event]) -> list[Event]:
    """Return the events without the terminal one and the error that announces it."""
    end = -2 if len(events) > 1 and events[-2].type == "error" else -1
    return events[:end]
