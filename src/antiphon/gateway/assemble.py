"""From parts to an application: the one place where engine and server are put together.

`antiphon serve`, each of its workers and `antiphon.testing` call `make_app` with a catalog of
models, a store and settings. Nothing is opened or started here, except that the sealing key is
read from the store.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import partial
from typing import Final

import msgspec

from antiphon.engine.engine import Engine
from antiphon.engine.keep.budget_alerts import BudgetAlerts
from antiphon.engine.keep.webhooks import Endpoint, Webhooks
from antiphon.engine.prepare.context_size import ContextLimits
from antiphon.engine.prepare.input_files import InputFiles, InputFileSettings
from antiphon.engine.prepare.prompts import PromptTemplate
from antiphon.engine.prepare.seal import open_sealer
from antiphon.engine.run.hosted_runs import CallNote
from antiphon.engine.run.reader import OnDisconnect
from antiphon.engine.run.turn_charges import ChargeWatcher, HeldCharge, TurnCharges
from antiphon.engine.setup import TurnSetup
from antiphon.protocol.codec import Dialect
from antiphon.protocol.machines.builder import ReasoningAs
from antiphon.protocol.response import Response
from antiphon.routing.catalog import Catalog
from antiphon.server import ui
from antiphon.server.api import (
    chat,
    compact,
    conversations,
    exports,
    files,
    health,
    messages,
    models,
    organization,
    relay,
    responses,
    rounds,
    skills,
    trees,
    uploads,
    vector_store_files,
    vector_stores,
)
from antiphon.server.api import (
    containers as containers_api,
)
from antiphon.server.api import (
    gateway as gateway_api,
)
from antiphon.server.app import App, Route
from antiphon.server.auth import Auth
from antiphon.server.delivery import websocket
from antiphon.server.doors import DoorSettings
from antiphon.server.ids import DEFAULT_MARK, IdMint
from antiphon.server.issuers import Issuers, IssuerSettings
from antiphon.server.limits import FileLimits, ServerLimits
from antiphon.server.login import LoginDirectory
from antiphon.server.memory import default_memory
from antiphon.server.metrics import Metrics, read_pulse, read_routing
from antiphon.server.metrics_board import MetricsBoard
from antiphon.server.model_names import ModelNames
from antiphon.server.origin import OriginPolicy
from antiphon.server.request_log import NO_WATCHER, log_background
from antiphon.store.base import Store
from antiphon.store.base.ledger import Refused, Settlement
from antiphon.telemetry.recorder import Recorder
from antiphon.tools.containers.service import ContainerService
from antiphon.tools.documents.reader import Documents
from antiphon.tools.documents.settings import DocumentSettings
from antiphon.tools.index.file_index import FileIndex
from antiphon.tools.registry import NO_TOOLS, ToolRegistry
from antiphon.tools.terms import ToolTerms

__all__ = [
    "Parts",
    "ServerSettings",
    "make_app",
    "open_input_files",
    "open_issuers",
    "routes_of",
    "use_parts",
]

_RESOURCES: Final = (
    *(responses, compact, conversations, websocket, models, health, rounds, trees, exports),
    gateway_api,
    *(files, uploads, vector_stores, vector_store_files, containers_api, skills, organization),
)
_ROUTES: Final = [route for resource in _RESOURCES for route in resource.ROUTES]


class ServerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How this gateway answers."""

    dialect: Dialect = "openai"
    strict: bool = False
    reasoning_as: ReasoningAs = "content"
    require_keys: bool = False
    issuers: tuple[IssuerSettings, ...] = ()
    """Identity providers whose tokens are taken."""
    allowed_origins: tuple[str, ...] = ()
    """Pages that may use this gateway; see `server.origin`."""
    limits: ServerLimits = ServerLimits()
    seal_keys: tuple[bytes, ...] = ()
    webhooks: tuple[Endpoint, ...] = ()
    workers: int = 1
    """How many processes share the memory of this machine."""
    telemetry: Recorder | None = None
    """What records traces, if they are sent."""
    board: MetricsBoard | None = None
    """Where the workers of this gateway leave their counts for each other."""
    id_mark: str = DEFAULT_MARK
    """What every id made here carries after its kind: see `server.ids`."""
    rerun_background: bool = False
    """Whether a key whose background response failed by our fault runs it again."""
    on_disconnect: OnDisconnect = "cancel"
    """What becomes of a turn whose client leaves."""
    doors: DoorSettings = DoorSettings()
    files: FileLimits = FileLimits()
    ui: bool = False
    """Whether the dashboard is served at /ui."""
    keep_upstream_requests: bool = False
    """Whether what upstreams are sent is stored with each response."""
    prompts: Mapping[str, PromptTemplate] = {}
    """Templates that a request may name."""
    input_files: InputFileSettings = InputFileSettings()
    documents: DocumentSettings = DocumentSettings()
    tool_terms: tuple[ToolTerms, ...] = ()
    """What people are shown of the hosted tools."""


async def make_app(
    catalog: Catalog,
    store: Store,
    settings: ServerSettings,
    tools: ToolRegistry = NO_TOOLS,
    index: FileIndex | None = None,
    containers: ContainerService | None = None,
) -> App:
    """Put the parts together. Raise StoreUnavailable if the store cannot be used.

    `index` makes files searchable; without one they are searched by their words. Without
    `containers`, files of containers are served, and no program runs.
    """
    metrics = Metrics(settings.board, ModelNames(lambda name: engine.catalog.counted_name(name)))
    metrics.sources += [partial(read_routing, catalog.board), partial(read_pulse, store.pulse)]
    mint = IdMint(settings.id_mark)
    webhooks = Webhooks(settings.webhooks, store, now=_now, mint=mint)
    limits = settings.limits

    telemetry = settings.telemetry

    def observe(response: Response) -> None:
        metrics.note_response(response)
        if telemetry is not None:
            telemetry.note_response(response)
        if response.background:
            entry = log_background(response, _now())
            if telemetry is not None:
                telemetry.end(entry)

    engine = Engine(
        catalog,
        store,
        now=_now,
        mint=mint,
        reasoning_as=settings.reasoning_as,
        sealer=await open_sealer(store, settings.seal_keys),
        observe=observe,
        notify=webhooks.notices_for,
        background_turns=limits.background_turns,
        background_queue=limits.background_queue,
        context_limits=ContextLimits(limits.context_items, limits.context_bytes),
        memory_bytes=limits.memory_bytes or default_memory(settings.workers),
        prompts=settings.prompts,
        tools=tools,
        input_files=open_input_files(
            store, settings, tools.documents or Documents(settings.documents)
        ),
        note_call=metrics.note_call if telemetry is None else _both_calls(metrics, telemetry),
        watcher=_watcher(metrics, telemetry, webhooks.alerts),
        keeps_requests=settings.keep_upstream_requests,
        on_disconnect=settings.on_disconnect,
    )
    index = index or FileIndex(store)
    index.pay_with(engine.pay_for_embeddings)
    containers = containers or ContainerService(store, mint, _now)
    metrics.sandboxes = containers.running.__len__
    metrics.sandbox_state = lambda: containers.probe_state
    return App(
        engine,
        index,
        Auth(
            store,
            _now,
            require_keys=settings.require_keys,
            issuers=open_issuers(store, settings),
        ),
        routes_of(settings.doors, has_ui=settings.ui),
        limits=limits,
        metrics=metrics,
        webhooks=webhooks,
        origins=OriginPolicy(settings.allowed_origins, is_keyless=not settings.require_keys),
        dialect=settings.dialect,
        strict=settings.strict,
        reruns_background=settings.rerun_background,
        doors=settings.doors,
        containers=containers,
        files=settings.files,
        watcher=telemetry or NO_WATCHER,
        login=LoginDirectory(settings.issuers),
        tool_terms=settings.tool_terms,
        workers=settings.workers,
    )


def open_input_files(store: Store, settings: ServerSettings, documents: Documents) -> InputFiles:
    """Return what reads the files in requests."""
    prefix = f"file-{settings.id_mark}"
    return InputFiles(store, documents, settings.input_files, now=_now, id_prefix=prefix)


def open_issuers(store: Store, settings: ServerSettings) -> Issuers | None:
    """Return what checks the tokens of issuers, if there are any."""
    return Issuers(settings.issuers, store.projects) if settings.issuers else None


class Parts(msgspec.Struct, frozen=True, kw_only=True):
    """What the settings decide and a reload replaces."""

    settings: ServerSettings
    catalog: Catalog
    tools: ToolRegistry
    input_files: InputFiles
    issuers: Issuers | None


def use_parts(app: App, parts: Parts) -> None:
    """Let an application answer with other parts from now on. Turns keep those they have.

    Nothing here can fail or wait. What was in use before is not closed.
    """
    settings, limits, engine = parts.settings, parts.settings.limits, app.engine
    parts.catalog.take_over(engine.catalog)
    engine.setup = TurnSetup(
        catalog=parts.catalog,
        tools=engine.host(parts.tools),
        input_files=parts.input_files,
        prompts=settings.prompts,
        reasoning_as=settings.reasoning_as,
        context_limits=ContextLimits(limits.context_items, limits.context_bytes),
        on_disconnect=settings.on_disconnect,
    )
    engine.budget.total = limits.memory_bytes or default_memory(settings.workers)
    app.webhooks.use(settings.webhooks)
    app.tool_terms = settings.tool_terms
    app.login.use(settings.issuers)
    app.use_issuers(parts.issuers)
    app.use_limits(limits, settings.files)
    app.origins = OriginPolicy(settings.allowed_origins, is_keyless=not settings.require_keys)
    app.dialect, app.strict = settings.dialect, settings.strict
    app.idempotency.reruns_background = settings.rerun_background


def _both_calls(metrics: Metrics, telemetry: Recorder) -> CallNote:
    def note(kind: str, ending: str, seconds: float, name: str) -> None:
        metrics.note_call(kind, ending, seconds, name)
        telemetry.note_call(kind, ending, seconds, name)

    return note


def _watcher(metrics: Metrics, telemetry: Recorder | None, alerts: BudgetAlerts) -> ChargeWatcher:
    """Return what learns of every call of an upstream."""
    watcher: ChargeWatcher = metrics if telemetry is None else _BothWatch(metrics, telemetry)
    return _AlertingWatch(watcher, alerts)


class _BothWatch:
    """Lets the metrics and the traces learn of every call of an upstream."""

    def __init__(self, metrics: Metrics, telemetry: Recorder) -> None:
        self._metrics = metrics
        self._telemetry = telemetry

    def note_reserved(self, charges: TurnCharges, charge: HeldCharge) -> None:
        """A call is about to be made."""
        self._metrics.note_reserved(charges, charge)
        self._telemetry.note_reserved(charges, charge)

    def note_refused(self, refused: Refused) -> None:
        """A call is not made."""
        self._metrics.note_refused(refused)

    def note_settled(
        self, charges: TurnCharges, charge: HeldCharge, settlement: Settlement
    ) -> None:
        """A call has ended."""
        self._metrics.note_settled(charges, charge, settlement)
        self._telemetry.note_settled(charges, charge, settlement)


class _AlertingWatch:
    """Lets the alerts learn of refusals, and another watcher of everything."""

    def __init__(self, watcher: ChargeWatcher, alerts: BudgetAlerts) -> None:
        self.note_reserved = watcher.note_reserved
        self.note_settled = watcher.note_settled
        self._watcher = watcher
        self._alerts = alerts

    def note_refused(self, refused: Refused) -> None:
        """A call is not made."""
        self._watcher.note_refused(refused)
        self._alerts.note_refused(refused)


def routes_of(doors: DoorSettings, *, has_ui: bool = False) -> list[Route]:
    """Return everything that is answered with these doors open, and with the dashboard or not."""
    choices = [
        (doors.chat, chat.ROUTES),
        (doors.messages, messages.ROUTES),
        (doors.embeddings, relay.ROUTES),
        (has_ui, ui.ROUTES),
    ]
    return [*_ROUTES, *(route for is_open, routes in choices if is_open for route in routes)]


def _now() -> int:
    return int(time.time())
