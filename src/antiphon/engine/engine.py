"""Where turns begin: a request is held against all that is known, and becomes a turn.

    request -> validate -> history(store) -> Plan -> Turn

One engine per process; it holds what all turns share. What is wrong with a request is raised
here, before anything was remembered.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Final

import msgspec

from antiphon.accounts.loop_share import LoopShare
from antiphon.accounts.principal import Principal, check_model
from antiphon.accounts.runs import NO_RUN, Run
from antiphon.engine.budget import Budget, Hold
from antiphon.engine.keep.carried_states import CarriedStates
from antiphon.engine.keep.follow import follow
from antiphon.engine.keep.kept_requests import KeptRequests
from antiphon.engine.keep.live import Live
from antiphon.engine.keep.pending_writes import PendingWrites
from antiphon.engine.keep.recovery import Recovery
from antiphon.engine.keep.turn_log import StoragePolicy, TurnLog
from antiphon.engine.prepare.carried_items import open_items
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
from antiphon.engine.prepare.input_files import InputFiles
from antiphon.engine.prepare.native_states import put_back
from antiphon.engine.prepare.no_storage import forbid_storage
from antiphon.engine.prepare.prompts import PromptTemplate, apply_prompt
from antiphon.engine.prepare.seal import HOW_TO, Sealer
from antiphon.engine.prepare.tool_secrets import reveal_secrets
from antiphon.engine.prepare.validate import refuse_degraded, refuse_impossible
from antiphon.engine.prepare.window import open_context, reasoning_seal
from antiphon.engine.run.background import Background
from antiphon.engine.run.compact import compaction_of
from antiphon.engine.run.hosted import Hosted, HostedSetup
from antiphon.engine.run.hosted_runs import CallNote
from antiphon.engine.run.hosted_setup import HostedTools
from antiphon.engine.run.no_model import NoModel
from antiphon.engine.run.reader import OnDisconnect
from antiphon.engine.run.relay_charge import RelayCharge, charged, wanted_for_files
from antiphon.engine.run.repair import Repair
from antiphon.engine.run.resume import Resume
from antiphon.engine.run.rounds import Policy
from antiphon.engine.run.turn import Carry, Turn, TurnInputs
from antiphon.engine.run.turn_charges import NO_WATCHER, ChargeWatcher, TurnCharges
from antiphon.engine.services import Clock, Notifier, Observer
from antiphon.engine.setup import TurnSetup
from antiphon.models.prices import Price
from antiphon.plans.assess import Assessment, assess
from antiphon.plans.capabilities import Capabilities
from antiphon.plans.hosted_offers import load_hidden
from antiphon.plans.plan import Plan, make_plan
from antiphon.protocol.call_ids import taken_in
from antiphon.protocol.deltas import NativeState
from antiphon.protocol.echo import first_response
from antiphon.protocol.errors import InvalidRequest, ResponseDeleted
from antiphon.protocol.events import Event
from antiphon.protocol.items import Item
from antiphon.protocol.machines.builder import Mint, ReasoningAs, ResponseBuilder, Seal
from antiphon.protocol.program_calls import restore_callers
from antiphon.protocol.request import CreateResponse
from antiphon.protocol.response import Notes, Response, add_notes
from antiphon.protocol.thread import Thread
from antiphon.protocol.tool_list import types_of
from antiphon.routing.affinity import accounts_in, prefix_key, session_key
from antiphon.routing.candidates import Route
from antiphon.routing.catalog import Catalog
from antiphon.routing.choice import NO_SESSION, Session
from antiphon.store.base import Size, Store
from antiphon.store.base.ledger import Payer
from antiphon.tools.registry import NO_TOOLS, ToolRegistry

__all__ = ["Engine"]

_NO_LIMIT: Final = 1 << 62
# How long no beginning is written down in advance, after one had to be undone.
_SUSPEND_SECONDS: Final = 60


class _Admitted(msgspec.Struct, frozen=True, kw_only=True):
    """A request, and what is known of its turn before its context is."""

    setup: TurnSetup
    request: CreateResponse
    principal: Principal
    route: Route
    session: str | None = None
    """What the caller calls its session, if it does."""
    run: Run = NO_RUN
    """The run that the request belongs to, if the caller names one."""
    response: Response
    size: ContextSize
    form: FormatCheck | None
    is_strict: bool
    recall: Recall | None = None
    may_roll_back: bool = False
    has_error_event: bool
    carries_state: bool = False
    """Whether native state is kept by call id, because the caller cannot send it back."""
    withheld: Sequence[str] = ()
    """What is not honoured, because nothing may be stored for the caller."""
    returns_items: bool = True
    """Whether the caller gets the items of hosted tools, and can send them back."""
    carries_items: bool = False
    """Whether they may be kept here, by call id, if it cannot."""
    is_queued: bool = False
    """Whether it is in the store already, and keeps its lock there if the turn cannot be made."""

    @property
    def owner(self) -> str:
        """Whose turn it is."""
        return self.principal.owner

    @property
    def is_stored(self) -> bool:
        """Whether the response is kept."""
        return self.request.store is not False


class Engine:
    """Starts turns. One per server; holds what all turns share.

    `now` is the time in seconds since the epoch, `mint` makes ids. `setup` is what new turns are
    made with.
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
        prompts: Mapping[str, PromptTemplate] | None = None,
        tools: ToolRegistry = NO_TOOLS,
        input_files: InputFiles,
        note_call: CallNote = lambda kind, ending, seconds, name: None,
        watcher: ChargeWatcher = NO_WATCHER,
        keeps_requests: bool = False,
        on_disconnect: OnDisconnect = "cancel",
    ) -> None:
        self.store = store
        self.now = now
        self.mint = mint
        self.sealer = sealer
        self.observe = observe
        self._watcher = watcher
        self.keeps_requests = keeps_requests
        """Whether what upstreams are sent is stored."""
        self.notify = notify
        self._note_call = note_call
        self.budget = Budget(memory_bytes)
        self.share = LoopShare()
        self.live = Live()
        self.threads = HistoryCache()
        self.pending_writes = PendingWrites(now)
        self.setup = TurnSetup(
            catalog=catalog,
            tools=self.host(tools),
            input_files=input_files,
            prompts=prompts or {},
            reasoning_as=reasoning_as,
            context_limits=context_limits or ContextLimits(),
            on_disconnect=on_disconnect,
        )
        self._carried = CarriedStates(store.native_states, self.pending_writes.defer, now)
        self._no_early_begin_until = 0
        self.background = Background(
            store, self.live, at_once=background_turns, waiting=background_queue
        )
        self.recovery = Recovery(store, self.live, self, self.revive, self.background.take_over)

    @property
    def catalog(self) -> Catalog:
        """The models that new turns may ask."""
        return self.setup.catalog

    def host(self, registry: ToolRegistry) -> HostedTools:
        """Return what begins the tools of this registry."""
        return HostedTools(
            registry, self.store, self.now, self.pending_writes.defer, self._note_call
        )

    async def begin(
        self,
        request: CreateResponse,
        principal: Principal,
        *,
        strict: bool = False,
        recall: Recall | None = None,
        response_id: str | None = None,
        over_socket: bool = False,
        session: str | None = None,
        run: Run = NO_RUN,
        carries_state: bool = False,
        returns_items: bool = True,
        carries_items: bool = False,
        hold: Hold,
        body_bytes: int = 0,
    ) -> Turn:
        """Return a turn that is ready to run, or raise what is wrong with the request.

        `recall` knows responses that the store does not, `response_id` is the id to have. A turn
        over a WebSocket has no HTTP status to report a rate limit with, and no `error` event.
        `session` is what the caller calls its session: its requests go to the same deployment.
        `run` is the run that it belongs to.
        With `carries_state`, native state is kept by call id: the caller cannot send it back.
        Without `returns_items`, the caller never sees what hosted tools did. With `carries_items`
        it may be kept in the same way, and so may requests for approval of a response that is not.
        The memory for the context and for a long output is added to `hold`, which the caller
        releases; `body_bytes` is the length of the request.
        """
        setup = self.setup
        refuse_impossible(request)
        if principal.models is not None:
            check_model(principal, request.model or await setup.catalog.default_name())
        route = await setup.catalog.route(request.model)
        model = request.model or route.name
        may_store = not principal.never_store
        withheld = [] if may_store else forbid_storage(request, setup.tools.registry.kinds)
        identity = response_id or self.mint("resp")
        return await self._make(
            _Admitted(
                setup=setup,
                request=request,
                principal=principal,
                route=route,
                session=session,
                run=run,
                response=first_response(request, (), identity, model, self.now()),
                size=_size(setup, request, hold, body_bytes),
                form=_format_check(request),
                is_strict=strict,
                recall=recall,
                may_roll_back=self._may_begin_early(response_id),
                has_error_event=not over_socket,
                carries_state=carries_state and may_store,
                returns_items=returns_items,
                carries_items=carries_items and may_store,
                withheld=withheld,
            )
        )

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
        run: Run = NO_RUN,
        body_bytes: int = 0,
        has_error_event: bool = True,
    ) -> Turn:
        """Return the turn of a queued response again, as another process had made it.

        The turn holds its memory itself. If it cannot be made, the response is still queued and
        keeps its conversation.
        """
        setup = self.setup
        route = await setup.catalog.route(request.model)
        request.tools = reveal_secrets(request.tools, principal.owner, self.sealer)
        hold = self.budget.hold(principal.owner)
        try:
            return await self._make(
                _Admitted(
                    setup=setup,
                    request=request,
                    principal=principal,
                    route=route,
                    run=run,
                    response=msgspec.structs.replace(response, status="in_progress"),
                    size=_size(setup, request, hold, body_bytes),
                    form=_format_check(request),
                    is_strict=strict,
                    has_error_event=has_error_event,
                    is_queued=True,
                )
            )
        except BaseException:
            hold.release()
            raise

    async def render(self, request: CreateResponse, principal: Principal, hold: Hold) -> bytes:
        """Return what an upstream would be sent for a request now; empty if it has no wire.

        Nothing is sent, stored or locked: the request must name no conversation. Tools that the
        gateway runs are not asked what they offer, and files are not read.
        """
        setup = self.setup
        route = await setup.catalog.route(request.model)
        response = first_response(request, (), self.mint("resp"), route.name, self.now())
        admitted = _Admitted(
            setup=setup,
            request=request,
            principal=principal,
            route=route,
            response=response,
            size=_size(setup, request, hold, 0),
            form=None,
            is_strict=False,
            has_error_event=True,
        )
        context, size = await self._load(admitted), admitted.size
        _, items, _, assessment = await size.run(
            self._assemble, admitted, context, route.capabilities, {}
        )
        plan = make_plan(request, assessment, items, route.first.model, is_large=size.is_large)
        return bytes((await route.first.backend.open(plan)).body())

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

    async def _make(self, admitted: _Admitted) -> Turn:
        """Return the turn of a request. If that fails, unlock the conversation it has locked."""
        apply_prompt(admitted.request, admitted.setup.prompts)
        context = await self._load(admitted)
        log = self._turn_log(admitted, context)
        try:
            inputs = await self._inputs(admitted, context)
        except BaseException:
            if not admitted.is_queued:
                await asyncio.shield(log.abandon())
            raise
        return Turn(self, inputs, self._builder(admitted, inputs.context), log)

    async def _load(self, admitted: _Admitted) -> Context:
        return await load_context(
            self.store,
            admitted.owner,
            admitted.request,
            self.mint,
            response_id=admitted.response.id,
            defer=self.pending_writes.defer,
            threads=self.threads,
            size=admitted.size,
            recall=admitted.recall,
            keeps_lock=admitted.is_queued,
            reads_store=not admitted.principal.never_store,
        )

    def _builder(self, admitted: _Admitted, context: Sequence[Item]) -> ResponseBuilder:
        response = admitted.response
        wants_summary = bool(response.reasoning and response.reasoning.summary)
        return ResponseBuilder(
            response,
            self.mint,
            reasoning_as="summary" if wants_summary else admitted.setup.reasoning_as,
            seal=self._seal(admitted),
            keep=self._keep(admitted),
            has_error_event=admitted.has_error_event,
            is_taken=taken_in(context),
        )

    async def _inputs(self, admitted: _Admitted, context: Context) -> TurnInputs:
        """Return what the turn is made of; note in the response what cannot be honoured."""
        request, size, route = admitted.request, admitted.size, admitted.route
        able = route.capabilities
        keeper = self._keeper_of_items(admitted)
        carried: Mapping[str, bytes] = {}
        unread: Sequence[str] = ()
        if admitted.carries_state or keeper is not None:
            carried, unread = await self._carried.find(
                admitted.owner, context.own, of_all=keeper is not None
            )
        whole, items, unopened, assessment = await size.run(
            self._assemble, admitted, context, able, carried
        )
        must_be_there = () if admitted.is_queued else context.own
        items, unsent = await admitted.setup.input_files.show(
            admitted.owner, items, must_be_there, able, size
        )
        everything = load_hidden(assessment.toolbox)
        checks, unchecked = await make_checks(everything, admitted.form, able.enforces)
        notes = [*admitted.withheld, *assessment.degraded, *unread, *unopened, *unchecked, *unsent]
        charges = self._charges(admitted)
        hosted = await self._begin_tools(admitted, assessment, items, context.own, notes)
        if admitted.is_strict:
            await _refuse_degraded(notes, hosted)
        _note(admitted.response, notes)
        plan = make_plan(request, assessment, items, route.first.model, is_large=size.is_large)
        return TurnInputs(
            principal=admitted.principal,
            route=route,
            session=_session_of(admitted, plan, whole),
            policies=self._policies(
                admitted, checks, hosted, charges, may_pause=_may_pause(request, assessment, able)
            ),
            charges=charges,
            plan=plan,
            context=whole,
            response=admitted.response,
            form=admitted.form,
            is_strict=admitted.is_strict,
            may_shorten=request.truncation == "auto",
            tells_limits=not admitted.has_error_event,
            size=size,
            remember=self._memory(admitted, context, whole),
            carry=self._carry(admitted, keeper),
            on_disconnect=admitted.setup.on_disconnect,
        )

    def _charges(self, admitted: _Admitted) -> TurnCharges:
        """Return what pays for the turn."""
        conversation = conversation_of(admitted.request)
        size, response = admitted.size, admitted.response
        return self.charges(
            admitted.principal,
            response.id,
            response.model,
            run=admitted.run,
            conversation=conversation,
            context_bytes=lambda: size.bytes,
            kept=self._kept_requests(admitted),
        )

    def _kept_requests(self, admitted: _Admitted) -> KeptRequests | None:
        """Return what keeps the requests to upstreams; None if they are not stored."""
        if not self.keeps_requests or not admitted.is_stored:
            return None
        return KeptRequests(admitted.owner, admitted.response.id, self.now)

    def charges(
        self,
        principal: Principal,
        response_id: str,
        model: str,
        *,
        run: Run = NO_RUN,
        conversation: str | None = None,
        context_bytes: Callable[[], int] = lambda: 0,
        kept: KeptRequests | None = None,
    ) -> TurnCharges:
        """Return what pays for a request. Its `close` must be awaited, however it ends."""
        payer = Payer(principal.owner, principal.key_id, principal.user, conversation, run.id)
        return TurnCharges(
            self.store.ledger,
            response_id,
            payer,
            model,
            self.pending_writes.defer,
            run=run,
            context_bytes=context_bytes,
            watcher=self._watcher,
            kept=kept,
        )

    def pay_for_embeddings(
        self, owner: str, model: str, price: Price | None, sent: int
    ) -> AbstractAsyncContextManager[RelayCharge]:
        """Hold a charge for one call that makes vectors of files; the owner pays."""
        charges = self.charges(Principal(owner), self.mint("resp"), model)
        return charged(charges, wanted_for_files(model, price, sent), sent)

    def _keeper_of_items(self, admitted: _Admitted) -> Sealer | None:
        """Return what seals the items of hosted tools; None if the request has none to keep."""
        if self.sealer is None or not admitted.carries_items:
            return None
        if admitted.returns_items and (
            admitted.is_stored or conversation_of(admitted.request) is not None
        ):
            return None  # the next turn has them from the store
        kinds = admitted.setup.tools.registry.kinds
        return None if types_of(admitted.request.tools).isdisjoint(kinds) else self.sealer

    def _carry(self, admitted: _Admitted, keeper: Sealer | None) -> Carry | None:
        if not admitted.carries_state and keeper is None:
            return None
        return partial(self._carried.keep, admitted.owner, keeper, admitted.returns_items)

    async def _begin_tools(
        self,
        admitted: _Admitted,
        assessment: Assessment,
        items: Sequence[Item],
        own: Sequence[Item],
        notes: list[str],
    ) -> HostedSetup | None:
        """Begin the tools that are run here, if the model is asked; add what is degraded."""
        request, toolbox, tools = admitted.request, assessment.toolbox, admitted.setup.tools
        if request.only_compacts or request.generate is False:
            return None
        tools.refuse_lost_approvals(toolbox, own)
        if not toolbox.declared:
            return None
        name = admitted.response.id
        sees = "image" in admitted.route.capabilities.parts
        is_kept = not admitted.returns_items and self._keeper_of_items(admitted) is not None
        hosted = await tools.begin(
            request,
            admitted.owner,
            name,
            toolbox,
            items,
            own,
            sees_images=sees,
            returns_items=admitted.returns_items or is_kept,
            names_calls=is_kept,
        )
        notes += hosted.degraded
        return hosted

    def _assemble(
        self,
        admitted: _Admitted,
        context: Context,
        able: Capabilities,
        carried: Mapping[str, bytes],
    ) -> tuple[Sequence[Item], Sequence[Item], list[str], Assessment]:
        """Return the context as it is remembered and as it is shown, and what was found out.

        Runs in another thread if the context is large.
        """
        owner = admitted.owner
        whole = context.join()
        known = self._put_back(whole, owner, carried) if carried else whole
        items, unopened = open_context(known, owner, self.sealer)
        refuse_orphans(items, context.own)
        can_seal = self.sealer is not None
        registry = admitted.setup.tools.registry
        assessment = assess(
            admitted.request,
            items,
            able,
            registry.kinds,
            registry.includes,
            can_seal=can_seal,
            how_to_seal=HOW_TO,
        )
        return whole, items, unopened, assessment

    def _put_back(
        self, items: Sequence[Item], owner: str, carried: Mapping[str, bytes]
    ) -> list[Item]:
        sealer = self.sealer
        if sealer is None:
            return put_back(items, carried)
        known = put_back(items, carried, lambda sealed: open_items(sealed, owner, sealer))
        return restore_callers(known)

    def _memory(self, admitted: _Admitted, context: Context, whole: Sequence[Item]) -> Observer:
        """Return what remembers the response of this turn for the turn that continues it."""
        if context.past is None or not isinstance(whole, Thread):
            return _forget
        if not admitted.is_stored or admitted.size.adds_much:
            return _forget
        return partial(self.threads.keep, admitted.owner, context.past, whole)

    def _turn_log(self, admitted: _Admitted, context: Context) -> TurnLog:
        request, is_stored = admitted.request, admitted.is_stored
        policy = StoragePolicy(
            principal=admitted.principal,
            items=context.own,
            is_stored=is_stored,
            is_logged=is_stored and bool(request.stream or request.background),
            may_roll_back=admitted.may_roll_back and not request.background,
            conversation=conversation_of(request),
            has_error_event=admitted.has_error_event,
        )
        return TurnLog(self.store, self.live, policy, admitted.response, self.pending_writes.defer)

    def _policies(
        self,
        admitted: _Admitted,
        checks: Checks | None,
        hosted: HostedSetup | None,
        charges: TurnCharges,
        *,
        may_pause: bool,
    ) -> list[Policy]:
        """Return how the model is asked, the outermost policy first."""
        request = admitted.request
        if request.generate is False:
            return [NoModel()]
        compaction = compaction_of(request, admitted.owner, self.sealer, admitted.route, charges)
        found: list[Policy] = [] if compaction is None else [compaction]
        if hosted is not None:
            found.append(Hosted(hosted, charges))
        if checks is not None:
            found.append(Repair(checks))
        return [*found, Resume()] if may_pause else found

    def _seal(self, admitted: _Admitted) -> Seal | None:
        wants = "reasoning.encrypted_content" in (admitted.request.include or ())
        return reasoning_seal(self.sealer, admitted.owner) if wants and self.sealer else None

    def _keep(self, admitted: _Admitted) -> Seal | None:
        """Return what seals native state for the next turn; None if there will be none here."""
        is_stored = admitted.is_stored or admitted.request.conversation is not None
        if not (is_stored or admitted.carries_state or admitted.recall is not None):
            return None
        if self.sealer is not None:
            return reasoning_seal(self.sealer, admitted.owner)
        return partial(_lose_state, admitted.response)


def _session_of(admitted: _Admitted, plan: Plan, whole: Sequence[Item]) -> Session:
    """Return what ties a turn to those before it, as far as its route wants to know that."""
    route = admitted.route
    if len(route.deployments) == 1:
        return NO_SESSION
    key = None
    if route.rules.affinity == "prefix":
        key = prefix_key(plan)
    elif route.rules.affinity == "session":
        named = conversation_of(admitted.request)
        key = session_key(admitted.request, whole, named, admitted.session)
    return Session(key, accounts_in(plan.items))


async def _refuse_degraded(notes: Sequence[str], hosted: HostedSetup | None) -> None:
    """Raise InvalidRequest if anything cannot be honoured; approvals are not used up by that."""
    try:
        refuse_degraded(notes)
    except InvalidRequest:
        if hosted is not None:
            await hosted.give_up()
        raise


def _size(setup: TurnSetup, request: CreateResponse, hold: Hold, body_bytes: int) -> ContextSize:
    return ContextSize(setup.context_limits, hold, Size(len(request.items), body_bytes))


def _format_check(request: CreateResponse) -> FormatCheck | None:
    form = request.text.format if request.text else None
    return None if not form or form["type"] == "text" else FormatCheck(form)


def _may_pause(request: CreateResponse, assessment: Assessment, able: Capabilities) -> bool:
    """Return whether a provider may pause: by itself, or because it runs tools."""
    return able.pauses or bool(assessment.toolbox.upstream) or "mcp_servers" in request.extra


def _forget(_: Response) -> None:
    """Remember nothing: a first turn, or one that cannot be continued by its id."""


def _lose_state(response: Response, _: Item, state: NativeState | None) -> str:
    """Note that the next turn goes without the native state of this one."""
    if state is not None:
        _note(response, [f"reasoning: the state of the provider is not kept: {HOW_TO}"])
    return ""


def _note(response: Response, notes: Sequence[str]) -> None:
    """Add what could not be honoured to what is known of the response."""
    if not notes:
        return
    known = response.antiphon or Notes()
    degraded = add_notes(known.degraded, notes)
    response.antiphon = msgspec.structs.replace(known, degraded=degraded)
