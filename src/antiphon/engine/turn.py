"""One turn, from a request to its last event: the one road every mode uses.

    request -> validate -> history(store) -> Plan -> backend.stream -> gate -> builder -> events

What a caller of `Turn.events` can rely on:

- an error before the model has said anything is raised, so that it can be an HTTP error;
- after the first batch nothing is raised: the stream ends in exactly one terminal event,
  and everything the model said before a fault is in it, with usage;
- with `store` on, the response is durable before its terminal event is handed out;
- closing the iterator, or cancelling its reader, stops the model at once and keeps what
  there is as `cancelled`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import cast

import msgspec

from antiphon.engine.catalog import Catalog, Route
from antiphon.engine.format import FormatCheck
from antiphon.engine.history import Context, load_context
from antiphon.engine.truncate import drop_oldest
from antiphon.engine.validate import refuse_degraded, validate
from antiphon.protocol.builder import Mint, ReasoningAs, ResponseBuilder
from antiphon.protocol.deltas import Degraded, Delta
from antiphon.protocol.echo import first_response
from antiphon.protocol.errors import (
    AntiphonError,
    BackendError,
    ContextOverflow,
    OurFault,
    StoreUnavailable,
)
from antiphon.protocol.estimate import estimate_usage
from antiphon.protocol.events import Event, ResponseCompleted, ResponseFailed, ResponseIncomplete
from antiphon.protocol.gate import gate_for
from antiphon.protocol.plan import Plan, make_plan
from antiphon.protocol.request import CreateResponse
from antiphon.protocol.response import Failure, Response
from antiphon.store.base import Store

__all__ = ["Engine", "Observer", "Turn"]

_log = logging.getLogger(__name__)

Observer = Callable[[Response], None]
"""Told about every response that ended, however it ended."""


class Engine:
    """Starts turns. One per server; holds what all turns share.

    `now` is the time in seconds since the epoch, `mint` makes ids.
    """

    def __init__(
        self,
        catalog: Catalog,
        store: Store,
        *,
        now: Callable[[], int],
        mint: Mint,
        reasoning_as: ReasoningAs = "content",
        observe: Observer = lambda response: None,
    ) -> None:
        self.catalog = catalog
        self.store = store
        self.now = now
        self.mint = mint
        self.reasoning_as = reasoning_as
        self.observe = observe

    async def begin(self, request: CreateResponse, owner: str, *, strict: bool = False) -> Turn:
        """Return a turn that is ready to run, or raise what is wrong with the request."""
        checked = validate(request)
        if strict:
            refuse_degraded(checked.degraded)
        form = _format_check(request)
        route = await self.catalog.route(request.model)
        context = await load_context(self.store, owner, request, self.mint)
        response = first_response(
            request, checked, self.mint("resp"), request.model or route.model, self.now()
        )
        plan = make_plan(request, checked, context.items, route.model)
        return Turn(self, request, owner, route, plan, context, response, form, strict=strict)


def _format_check(request: CreateResponse) -> FormatCheck | None:
    form = request.text.format if request.text else None
    return None if form is None or form["type"] == "text" else FormatCheck(form)


class Turn:
    """One run of a model for one request."""

    def __init__(
        self,
        engine: Engine,
        request: CreateResponse,
        owner: str,
        route: Route,
        plan: Plan,
        context: Context,
        response: Response,
        form: FormatCheck | None,
        *,
        strict: bool,
    ) -> None:
        self.response_id = response.id
        self._engine = engine
        self._request = request
        self._owner = owner
        self._route = route
        self._plan = plan
        self._context = context
        self._response = response
        self._form = form
        self._strict = strict
        self._interruption: AntiphonError | None = None
        self._store_error: StoreUnavailable | None = None
        self._is_stored = request.store is not False
        self._gate = gate_for(plan)
        summary = engine.reasoning_as == "summary" or bool(
            response.reasoning and response.reasoning.summary
        )
        self._builder = ResponseBuilder(
            response, engine.mint, reasoning_as="summary" if summary else "content"
        )

    @property
    def degraded(self) -> tuple[str, ...]:
        """What could not be honoured, as far as it is known by now."""
        notes = self._response.antiphon
        return notes.degraded if notes else ()

    async def events(self) -> AsyncGenerator[list[Event], None]:
        """Run the turn; yield the events in batches that belong in one write."""
        async with aclosing(self._deltas()) as batches:
            try:
                first = await anext(batches, ())
            except ContextOverflow as error:
                # Codex knows an overflow only as a failed stream, never as an HTTP error.
                if not self._plan.stream:
                    raise
                await self._begin()
                yield self._builder.start() + await self._fail(error)
                return
            await self._begin()
            trouble: AntiphonError | None = None
            try:
                yield self._builder.start() + self._feed(first)
                async for batch in batches:
                    events = self._feed(batch)
                    if events:
                        yield events
            except BackendError as fault:
                trouble = fault
            except asyncio.CancelledError:
                trouble = self._interruption
                if trouble is None:
                    await asyncio.shield(self._cancel())
                    raise
            except GeneratorExit:
                # Nobody will read a last event: the reader left, or was itself interrupted.
                interruption = self._interruption
                await asyncio.shield(self._fail(interruption) if interruption else self._cancel())
                raise
            except Exception:  # noqa: BLE001 - the last frame that can end the stream truthfully
                trouble = self._own_up()
            # From here on the turn has ended, whoever leaves while that is written down.
            yield await asyncio.shield(self._conclude(trouble))

    def interrupt(self, task: asyncio.Task[object], error: AntiphonError) -> None:
        """End the turn now, run by `task`, as failed: its reader still gets a last event."""
        if self._interruption is None:
            self._interruption = error
            task.cancel()

    async def run(self) -> Response:
        """Run the turn without a listener; return the response it ends in.

        Raise StoreUnavailable if that could not be made durable.
        """
        last: list[Event] = []
        async with aclosing(self.events()) as batches:
            async for batch in batches:
                last = batch
        if self._store_error is not None:
            raise self._store_error
        # The last event of every turn is a terminal one.
        return cast(ResponseCompleted | ResponseFailed | ResponseIncomplete, last[-1]).response

    async def _deltas(self) -> AsyncGenerator[Sequence[Delta], None]:
        """Yield the backend's batches, the first of which says something real.

        A context that is too long is shortened and tried again if the caller allowed it.
        """
        has_begun = False
        while True:
            try:
                async with aclosing(self._route.backend.stream(self._plan)) as batches:
                    async for batch in batches:
                        real = self._note_degraded(batch)
                        if real:
                            has_begun = True
                            yield real
                return
            except ContextOverflow:
                shorter = drop_oldest(self._plan.items)
                if has_begun or self._request.truncation != "auto" or shorter is None:
                    raise
                self._note_truncation(len(self._context.items) - len(shorter))
                self._plan = msgspec.structs.replace(self._plan, items=shorter)

    def _note_truncation(self, dropped: int) -> None:
        self._builder.feed(Degraded(f"truncation: the {dropped} oldest items were left out"))

    def _note_degraded(self, batch: Sequence[Delta]) -> Sequence[Delta]:
        """Take out what only reports a degradation; refuse it when the caller is strict."""
        if not any(isinstance(delta, Degraded) for delta in batch):
            return batch
        notes = [delta.what for delta in batch if isinstance(delta, Degraded)]
        if self._strict:
            refuse_degraded(notes)
        for what in notes:
            self._builder.feed(Degraded(what))
        return [delta for delta in batch if not isinstance(delta, Degraded)]

    def _feed(self, batch: Sequence[Delta]) -> list[Event]:
        events: list[Event] = []
        for delta in batch:
            admitted = self._gate.admit(delta)
            if admitted is not None:
                events += self._builder.feed(admitted)
        return events

    async def _begin(self) -> None:
        if self._is_stored:
            await self._engine.store.begin(self._owner, self._response, self._context.own)

    async def _conclude(self, error: AntiphonError | None) -> list[Event]:
        """Return the last events, once what they say is durable."""
        try:
            return await (self._finish() if error is None else self._fail(error))
        except Exception:  # noqa: BLE001 - as in `events`
            return await self._fail(self._own_up())

    def _own_up(self) -> OurFault:
        _log.exception("turn %s broke", self.response_id)
        return OurFault("the gateway broke; this is our fault")

    async def _finish(self) -> list[Event]:
        if not self._builder.has_stopped:
            return await self._fail(BackendError("the model broke off", code="upstream_closed"))
        events = self._builder.close()
        problem = self._gate.violation() or self._output_problem()
        if problem is not None:
            return events + await self._fail(problem)
        self._count()
        return events + await self._end(self._builder.finish(self._engine.now()))

    def _output_problem(self) -> BackendError | None:
        """Hold the text against `text.format`; a miss that binds nobody is only noted."""
        text = self._builder.answer_text
        if self._form is None or text is None:
            return None
        unchecked = self._form.why_unchecked(text)
        problem = unchecked or self._form.problem(text)
        if problem is None:
            return None
        if self._form.is_binding and not unchecked:
            return BackendError(problem, code="output_format_violated")
        self._builder.feed(Degraded(problem))
        return None

    async def _fail(self, error: AntiphonError) -> list[Event]:
        """Return the last events of a failure, with everything the model had said."""
        events = self._builder.close("incomplete")
        self._count()
        failure = Failure(error.code or error.type, error.message)
        return events + await self._end(self._builder.fail(failure, error.type))

    async def _end(self, events: list[Event]) -> list[Event]:
        """Make the terminal response durable, or say instead that it could not be."""
        terminal = cast(ResponseCompleted | ResponseFailed | ResponseIncomplete, events[-1])
        response = terminal.response
        if self._is_stored:
            try:
                await self._engine.store.finish(self._owner, response)
            except StoreUnavailable as error:
                self._store_error = error
                events = self._builder.retract(Failure(error.code or error.type, error.message))
                response = cast(ResponseFailed, events[-1]).response
        self._engine.observe(response)
        return events

    async def _cancel(self) -> None:
        """Keep what there is of a turn whose reader has gone."""
        self._builder.close("incomplete")
        self._count()
        response = self._builder.cancel()
        try:
            if self._is_stored:
                await self._engine.store.finish(self._owner, response)
        finally:
            self._engine.observe(response)

    def _count(self) -> None:
        if self._builder.usage is None:
            self._builder.note_estimate(estimate_usage(self._plan, self._builder.output))
