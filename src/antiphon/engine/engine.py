"""Where turns begin: a request is held against all that is known, and becomes a turn.

    request -> validate -> history(store) -> Plan -> Turn

One engine per process; it holds what all turns share. What is wrong with a request is raised
here, before anything was remembered.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from functools import partial
from typing import Final

import msgspec

from antiphon.accounts.principal import Principal
from antiphon.engine.budget import Budget, Hold
from antiphon.engine.keep.follow import follow
from antiphon.engine.keep.live import Live
from antiphon.engine.keep.pending_writes import PendingWrites
from antiphon.engine.keep.recovery import Recovery
from antiphon.engine.keep.turn_log import StoragePolicy, TurnLog
from antiphon.engine.prepare.checks import Checks, make_checks
from antiphon.engine.prepare.context_size import ContextLimits, ContextSize
from antiphon.engine.prepare.format import FormatCheck
from antiphon.engine.prepare.history import (
    Context,
    Recall,
    conversation_of,
    load_context,
    refuse_orphans,
)
from antiphon.engine.prepare.history_cache import HistoryCache
from antiphon.engine.prepare.seal import HOW_TO, Sealer
from antiphon.engine.prepare.validate import refuse_degraded, refuse_impossible
from antiphon.engine.prepare.window import open_context, reasoning_seal
from antiphon.engine.run.background import Background
from antiphon.engine.run.compact import compaction_of
from antiphon.engine.run.no_model import NoModel
from antiphon.engine.run.repair import Repair
from antiphon.engine.run.retry import retries_of
from antiphon.engine.run.rounds import Policy
from antiphon.engine.run.turn import Turn, TurnInputs
from antiphon.engine.services import Clock, Notifier, Observer
from antiphon.plans.assess import Checked, check_request
from antiphon.plans.plan import make_plan
from antiphon.protocol.call_ids import taken_in
from antiphon.protocol.echo import first_response
from antiphon.protocol.errors import ResponseDeleted
from antiphon.protocol.events import Event
from antiphon.protocol.items import Item
from antiphon.protocol.machines.builder import Mint, ReasoningAs, ResponseBuilder, Seal
from antiphon.protocol.request import CreateResponse
from antiphon.protocol.response import Notes, Response, add_notes
from antiphon.protocol.thread import Thread
from antiphon.routing.candidates import Candidate
from antiphon.routing.catalog import Catalog
from antiphon.store.base import Size, Store

__all__ = ["Engine"]

_NO_LIMIT: Final = 1 << 62
# How long no beginning is written down in advance, after one had to be undone.
_SUSPEND_SECONDS: Final = 60


class Engine:
    """Starts turns. One per server; holds what all turns share.

    `now` is the time in seconds since the epoch, `mint` makes ids.
    """

    def __init__(
        self,
        catalog: Catalog,
        store: Store,
        *,
        now: Clock,
        mint: Mint,
        reasoning_as: ReasoningAs = "content",
        sealer: Sealer | None = None,
        observe: Observer = lambda response: None,
        notify: Notifier = lambda owner, response: (),
        background_turns: int = 100,
        background_queue: int = 1000,
        context_limits: ContextLimits | None = None,
        memory_bytes: int = _NO_LIMIT,
    ) -> None:
        self.catalog = catalog
        self.store = store
        self.now = now
        self.mint = mint
        self.reasoning_as: ReasoningAs = reasoning_as
        self.sealer = sealer
        self.observe = observe
        self.notify = notify
        self.context_limits = context_limits or ContextLimits()
        self.budget = Budget(memory_bytes)
        self.live = Live()
        self.threads = HistoryCache()
        self.pending_writes = PendingWrites(now)
        self._no_early_begin_until = 0
        self.background = Background(
            store, self.live, at_once=background_turns, waiting=background_queue
        )
        self.recovery = Recovery(store, self.live, self, self.revive, self.background.take_over)

    async def begin(
        self,
        request: CreateResponse,
        principal: Principal,
        *,
        strict: bool = False,
        recall: Recall | None = None,
        response_id: str | None = None,
        over_socket: bool = False,
        hold: Hold,
        body_bytes: int = 0,
    ) -> Turn:
        """Return a turn that is ready to run, or raise what is wrong with the request.

        `recall` knows responses that the store does not, `response_id` is the id to have. A turn
        over a WebSocket has no HTTP status to report a rate limit with, and no `error` event.
        The memory for the context and for a long output is added to `hold`, which the caller
        releases; `body_bytes` is the length of the request.
        """
        refuse_impossible(request)
        route, *_ = await self.catalog.candidates(request.model)
        response = first_response(
            request, (), response_id or self.mint("resp"), request.model or route.model, self.now()
        )
        size = self._size(request, hold, body_bytes)
        turn = await self._make(
            request,
            principal,
            route,
            response,
            strict,
            recall,
            size,
            may_roll_back=self._may_begin_early(response_id),
            has_error_event=not over_socket,
        )
        turn.tells_limits = over_socket
        turn.hold = hold
        return turn

    def _size(self, request: CreateResponse, hold: Hold, body_bytes: int) -> ContextSize:
        return ContextSize(self.context_limits, hold, Size(len(request.items), body_bytes))

    def suspend_early_begin(self) -> None:
        """Store no beginnings in advance for a while: one had to be undone."""
        self._no_early_begin_until = self.now() + _SUSPEND_SECONDS

    async def revive(
        self,
        request: CreateResponse,
        principal: Principal,
        response: Response,
        *,
        strict: bool,
        body_bytes: int = 0,
        has_error_event: bool = True,
    ) -> Turn:
        """Return the turn of a queued response again, as another process had made it.

        The turn holds its memory itself. If it cannot be made, the response is still queued and
        keeps its conversation.
        """
        route, *_ = await self.catalog.candidates(request.model)
        response = msgspec.structs.replace(response, status="in_progress")
        hold = self.budget.hold(principal.owner)
        try:
            size = self._size(request, hold, body_bytes)
            turn = await self._make(
                request,
                principal,
                route,
                response,
                strict,
                None,
                size,
                has_error_event=has_error_event,
                is_queued=True,
            )
        except BaseException:
            hold.release()
            raise
        turn.hold = hold
        return turn

    def follow(
        self, owner: str, response_id: str, after: int = -1
    ) -> AsyncGenerator[list[Event], None]:
        """Yield the events of a response behind a sequence number, until it has ended."""
        return follow(self.store, self.live, owner, response_id, after)

    async def delete(self, owner: str, response_id: str) -> bool:
        """Remove a response for good, and stop it if it runs; return whether there was one."""
        if not await self.store.delete(owner, response_id):
            return False
        self.background.interrupt(owner, response_id, ResponseDeleted())
        self.live.close(owner, response_id)
        return True

    def _may_begin_early(self, response_id: str | None) -> bool:
        """Return whether a turn may begin in the store before its model has answered.

        Not if others know its id, and not if it might well come to nothing.
        """
        return response_id is None and self.now() >= self._no_early_begin_until

    async def _make(
        self,
        request: CreateResponse,
        principal: Principal,
        route: Candidate,
        response: Response,
        strict: bool,
        recall: Recall | None,
        size: ContextSize,
        *,
        may_roll_back: bool = False,
        has_error_event: bool = True,
        is_queued: bool = False,
    ) -> Turn:
        form = _format_check(request)
        context = await load_context(
            self.store,
            principal.owner,
            request,
            self.mint,
            response_id=response.id,
            defer=self.pending_writes.defer,
            threads=self.threads,
            size=size,
            recall=recall,
            keeps_lock=is_queued,
        )
        log = self._turn_log(
            request,
            principal,
            context,
            response,
            may_roll_back=may_roll_back,
            has_error_event=has_error_event,
        )
        try:
            parts = await self._parts(
                request, principal, route, response, context, size, form, strict
            )
        except BaseException:
            if not is_queued:
                await asyncio.shield(log.abandon())
            raise
        builder = ResponseBuilder(
            response,
            self.mint,
            reasoning_as=self._reasoning_as(response),
            seal=self._seal(request, principal.owner),
            has_error_event=has_error_event,
            is_taken=taken_in(parts.context),
        )
        return Turn(self, parts, builder, log)

    async def _parts(
        self,
        request: CreateResponse,
        principal: Principal,
        route: Candidate,
        response: Response,
        context: Context,
        size: ContextSize,
        form: FormatCheck | None,
        strict: bool,
    ) -> TurnInputs:
        """Return what the turn is made of; note in the response what cannot be honoured."""
        owner = principal.owner
        whole, items, unopened, checked = await size.run(self._assemble, request, owner, context)
        checks, unchecked = await make_checks(
            checked.toolbox, form, route.backend.capabilities.enforces
        )
        notes = [*checked.degraded, *unopened, *unchecked]
        if strict:
            refuse_degraded(notes)
        _note(response, notes)
        return TurnInputs(
            principal=principal,
            backend=route.backend,
            policies=self._policies(request, route, owner, checks),
            upstream=route.provider,
            plan=make_plan(request, checked, items, route.model, is_large=size.is_large),
            context=whole,
            response=response,
            form=form,
            is_strict=strict,
            may_shorten=request.truncation == "auto",
            size=size,
            remember=_forget if size.adds_much else self._memory(request, owner, context, whole),
        )

    def _assemble(
        self, request: CreateResponse, owner: str, context: Context
    ) -> tuple[Sequence[Item], Sequence[Item], list[str], Checked]:
        """Return the context as it is remembered and as it is shown, and what was found out.

        Runs in another thread if the context is large.
        """
        whole = context.join()
        items, unopened = open_context(whole, owner, self.sealer)
        refuse_orphans(items, context.own)
        can_seal = self.sealer is not None
        checked = check_request(request, items, can_seal=can_seal, how_to_seal=HOW_TO)
        return whole, items, unopened, checked

    def _memory(
        self, request: CreateResponse, owner: str, context: Context, whole: Sequence[Item]
    ) -> Observer:
        """Return what remembers the response of this turn for the turn that continues it."""
        is_stored = request.store is not False
        if not is_stored or context.past is None or not isinstance(whole, Thread):
            return _forget
        return partial(self.threads.keep, owner, context.past, whole)

    def _turn_log(
        self,
        request: CreateResponse,
        principal: Principal,
        context: Context,
        response: Response,
        *,
        may_roll_back: bool,
        has_error_event: bool,
    ) -> TurnLog:
        is_stored = request.store is not False
        policy = StoragePolicy(
            principal=principal,
            items=context.own,
            is_stored=is_stored,
            is_logged=is_stored and bool(request.stream or request.background),
            may_roll_back=may_roll_back and not request.background,
            conversation=conversation_of(request),
            has_error_event=has_error_event,
        )
        return TurnLog(self.store, self.live, policy, response, self.pending_writes.defer)

    def _policies(
        self, request: CreateResponse, route: Candidate, owner: str, checks: Checks | None
    ) -> list[Policy]:
        """Return how the model is asked, the outermost policy first."""
        if request.generate is False:
            return [NoModel()]
        compaction = compaction_of(request, owner, self.sealer, context=route.context_length)
        found: list[Policy] = [] if compaction is None else [compaction]
        if checks is not None:
            found.append(Repair(checks, route.backend.capabilities.enforces))
        return [*found, *retries_of(route.backend)]

    def _seal(self, request: CreateResponse, owner: str) -> Seal | None:
        wants = "reasoning.encrypted_content" in (request.include or ())
        return reasoning_seal(self.sealer, owner) if wants and self.sealer else None

    def _reasoning_as(self, response: Response) -> ReasoningAs:
        wants_summary = bool(response.reasoning and response.reasoning.summary)
        return "summary" if wants_summary else self.reasoning_as


def _format_check(request: CreateResponse) -> FormatCheck | None:
    form = request.text.format if request.text else None
    return None if not form or form["type"] == "text" else FormatCheck(form)


def _forget(_: Response) -> None:
    """Remember nothing: a first turn, or one that cannot be continued by its id."""


def _note(response: Response, notes: Sequence[str]) -> None:
    """Add what could not be honoured to what is known of the response."""
    if not notes:
        return
    known = response.antiphon.degraded if response.antiphon else ()
    response.antiphon = Notes(degraded=add_notes(known, notes))
