"""From parts to a running server, and down again without losing anything.

On SIGTERM or SIGINT the server says it is not ready, takes no new turns and lets those that
run finish, up to the drain limit; what is left then ends as failed. A second signal stops
waiting.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import time
from collections.abc import Callable
from typing import Final

import msgspec

from antiphon.engine.catalog import Catalog
from antiphon.engine.turn import Engine
from antiphon.protocol.builder import ReasoningAs
from antiphon.protocol.codec import Dialect
from antiphon.protocol.errors import StoreUnavailable
from antiphon.protocol.response import Failure
from antiphon.server import health, models, responses
from antiphon.server.app import App
from antiphon.server.auth import Auth
from antiphon.server.connection import GuardedServer
from antiphon.server.ids import mint
from antiphon.server.limits import ServerLimits
from antiphon.server.metrics import Metrics
from antiphon.store.base import Store

__all__ = ["ServerSettings", "make_app", "recover", "serve", "start_listener"]

_BACKLOG: Final = 1024
_SWEEP_SECONDS: Final = 3600.0
_DAY: Final = 86_400
_log = logging.getLogger(__name__)


class ServerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How this gateway answers."""

    dialect: Dialect = "openai"
    strict: bool = False
    reasoning_as: ReasoningAs = "content"
    require_keys: bool = False
    limits: ServerLimits = ServerLimits()
    worker: str = "0"


def make_app(catalog: Catalog, store: Store, settings: ServerSettings) -> App:
    """Put the parts together."""
    metrics = Metrics(settings.worker)
    engine = Engine(
        catalog,
        store,
        now=_now,
        mint=mint,
        reasoning_as=settings.reasoning_as,
        observe=metrics.note_response,
    )
    return App(
        engine,
        Auth(store, _now, require_keys=settings.require_keys),
        [*responses.ROUTES, *models.ROUTES, *health.ROUTES],
        limits=settings.limits,
        metrics=metrics,
        dialect=settings.dialect,
        strict=settings.strict,
    )


async def recover(store: Store) -> None:
    """End what an earlier process left unfinished when it died."""
    failure = Failure("server_restarted", "the server was restarted in mid-turn")
    count = await store.recover(failure, _now())
    if count:
        _log.warning("%d responses were cut off by a restart and are failed now", count)


async def start_listener(app: App, sock: socket.socket) -> tuple[asyncio.Server, GuardedServer]:
    """Accept connections on the socket; return what must be closed in the end."""
    server = GuardedServer(app.handle, app.limits)
    listener = await asyncio.get_running_loop().create_server(server, sock=sock, backlog=_BACKLOG)
    return listener, server


async def serve(app: App, sock: socket.socket, on_ready: Callable[[], None]) -> None:
    """Serve until a signal says to stop, then drain and close everything."""
    stop = _Stop()
    listener, server = await start_listener(app, sock)
    sweeper = asyncio.create_task(_sweep(app))
    on_ready()
    try:
        await stop.asked.wait()
        draining = asyncio.create_task(app.drain())
        hurry = asyncio.create_task(stop.asked_twice.wait())
        await asyncio.wait({draining, hurry}, return_when=asyncio.FIRST_COMPLETED)
        draining.cancel()
        hurry.cancel()
    finally:
        sweeper.cancel()
        listener.close()
        await server.shutdown(1.0)
        await app.engine.catalog.close()
        await app.engine.store.close()


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


async def _sweep(app: App) -> None:
    """Remove what is older than the retention, once an hour."""
    while True:
        before = _now() - int(app.limits.retention_days * _DAY)
        try:
            count = await app.engine.store.sweep(before)
        except StoreUnavailable as error:
            _log.warning("retention has to wait: %s", error)
        else:
            if count:
                _log.info("%d responses were older than the retention and are gone", count)
        await asyncio.sleep(_SWEEP_SECONDS)


def _now() -> int:
    return int(time.time())
