"""From parts to a running server, and down again without losing anything.

On SIGTERM or SIGINT the server says it is not ready, takes no new turns and lets those that
run finish, up to the drain limit; what is left then ends as failed. A second signal stops
waiting.
"""

from __future__ import annotations

import asyncio
import gc
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Final

import msgspec

from antiphon.engine.engine import Engine
from antiphon.engine.keep.webhooks import Endpoint, Webhooks
from antiphon.engine.prepare.context_size import ContextLimits
from antiphon.engine.prepare.seal import open_sealer
from antiphon.gateway.upkeep import upkeep
from antiphon.protocol.codec import Dialect
from antiphon.protocol.machines.builder import ReasoningAs
from antiphon.protocol.response import Response
from antiphon.routing.catalog import Catalog
from antiphon.server.api import compact, conversations, health, models, responses
from antiphon.server.app import App
from antiphon.server.auth import Auth
from antiphon.server.delivery import websocket
from antiphon.server.delivery.connection import GuardedServer
from antiphon.server.ids import DEFAULT_MARK, IdMint
from antiphon.server.limits import ServerLimits
from antiphon.server.memory import default_memory, return_large_blocks
from antiphon.server.metrics import Metrics
from antiphon.server.metrics_board import MetricsBoard
from antiphon.server.origin import OriginPolicy
from antiphon.server.request_log import log_background
from antiphon.store.base import Store

__all__ = ["ServerSettings", "make_app", "running", "serve", "start_listener"]

_BACKLOG: Final = 1024
_YOUNG_OBJECTS: Final = 20_000
_SWITCH_SECONDS: Final = 0.0005
_SHARE_SECONDS: Final = 1.0
_ROUTES: Final = [
    route
    for resource in (responses, compact, conversations, websocket, models, health)
    for route in resource.ROUTES
]


class ServerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How this gateway answers."""

    dialect: Dialect = "openai"
    strict: bool = False
    reasoning_as: ReasoningAs = "content"
    require_keys: bool = False
    allowed_origins: tuple[str, ...] = ()
    """Pages that may use this gateway; see `server.origin`."""
    limits: ServerLimits = ServerLimits()
    seal_keys: tuple[bytes, ...] = ()
    webhooks: tuple[Endpoint, ...] = ()
    workers: int = 1
    """How many processes share the memory of this machine."""
    board: MetricsBoard | None = None
    """Where the workers of this gateway leave their counts for each other."""
    id_mark: str = DEFAULT_MARK
    """What every id made here carries after its kind: see `server.ids`."""
    rerun_background: bool = False
    """Whether a key whose background response failed by our fault runs it again."""


async def make_app(catalog: Catalog, store: Store, settings: ServerSettings) -> App:
    """Put the parts together. Raise StoreUnavailable if the store cannot be used."""
    metrics = Metrics(settings.board)
    mint = IdMint(settings.id_mark)
    webhooks = Webhooks(settings.webhooks, store, now=_now, mint=mint)
    limits = settings.limits

    def observe(response: Response) -> None:
        metrics.note_response(response)
        if response.background:
            log_background(response, _now())

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
    )
    return App(
        engine,
        Auth(store, _now, require_keys=settings.require_keys),
        _ROUTES,
        limits=limits,
        metrics=metrics,
        webhooks=webhooks,
        origins=OriginPolicy(settings.allowed_origins, is_keyless=not settings.require_keys),
        dialect=settings.dialect,
        strict=settings.strict,
        reruns_background=settings.rerun_background,
    )


async def start_listener(app: App, sock: socket.socket) -> tuple[asyncio.Server, GuardedServer]:
    """Accept connections on the socket; return what must be closed in the end."""
    server = GuardedServer(app.handle, app.limits)
    listener = await asyncio.get_running_loop().create_server(server, sock=sock, backlog=_BACKLOG)
    return listener, server


@asynccontextmanager
async def running(app: App, sock: socket.socket) -> AsyncIterator[None]:
    """Answer on the socket and look after everything meanwhile; then let go of it all."""
    try:
        async with upkeep(app.engine, app.webhooks, app.limits.retention_days):
            listener, server = await start_listener(app, sock)
            try:
                yield
            finally:
                listener.close()
                await server.shutdown(1.0)
    finally:
        await app.engine.background.drain(0.0)
        await app.engine.catalog.close()


async def serve(
    app: App,
    sock: socket.socket,
    on_ready: Callable[[], None],
    metrics_sock: socket.socket | None = None,
) -> None:
    """Serve until a signal says to stop, then drain and close everything.

    On `metrics_sock` only the counts are served, without a key.
    """
    stop = _Stop()
    try:
        async with running(app, sock), _serving_metrics(app, metrics_sock):
            _settle_interpreter()
            on_ready()
            await stop.asked.wait()
            draining = asyncio.create_task(app.drain())
            hurry = asyncio.create_task(stop.asked_twice.wait())
            await asyncio.wait({draining, hurry}, return_when=asyncio.FIRST_COMPLETED)
            draining.cancel()
            hurry.cancel()
    finally:
        await app.engine.store.close()


@asynccontextmanager
async def _serving_metrics(app: App, sock: socket.socket | None) -> AsyncIterator[None]:
    """Share the counts with the other workers, and answer scrapes on a port of their own."""
    sharing = asyncio.create_task(_share_counts(app))
    listening: tuple[asyncio.Server, GuardedServer] | None = None
    if sock is not None:
        server = GuardedServer(partial(health.answer_scrape, app), app.limits)
        loop = asyncio.get_running_loop()
        listening = await loop.create_server(server, sock=sock, backlog=_BACKLOG), server
    try:
        yield
    finally:
        sharing.cancel()
        app.metrics.share()
        if listening is not None:
            listening[0].close()
            await listening[1].shutdown(1.0)


async def _share_counts(app: App) -> None:
    while True:
        await asyncio.sleep(_SHARE_SECONDS)
        app.metrics.background = app.engine.background.count
        app.metrics.share()


def _settle_interpreter() -> None:
    """Let Python's own chores disturb many streams less.

    The collector of cycles keeps away from what stays, and comes more rarely: turns leave hardly
    any cycles behind, and looking through them all was a twentieth of a stream. A thread that
    waits for the interpreter gets it sooner: the one that writes has many streams waiting for it.
    """
    return_large_blocks()
    gc.freeze()
    gc.set_threshold(_YOUNG_OBJECTS)
    sys.setswitchinterval(_SWITCH_SECONDS)


class _Stop:
    """The first signal asks to stop, the second one to stop waiting."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.asked_twice = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            try:
                loop.add_signal_handler(number, self._note)
            except NotImplementedError:  # Windows: the loop takes no signals
                signal.signal(number, lambda *_: loop.call_soon_threadsafe(self._note))

    def _note(self) -> None:
        if self.asked.is_set():
            self.asked_twice.set()
        self.asked.set()


def _now() -> int:
    return int(time.time())
