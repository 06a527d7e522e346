"""Run an application on a socket, and stop it without losing anything.

On SIGTERM or SIGINT the server reports that it is not ready, refuses new turns and lets running
turns finish, up to the drain limit. Turns that are left then end as failed. A second signal
stops the waiting. What is counted for Prometheus is in `server/metrics.py`; each worker shares
its counts with the others, and all of them are served on a port of their own.
"""

from __future__ import annotations

import asyncio
import gc
import signal
import socket
import ssl
import sys
from collections.abc import AsyncIterator
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    asynccontextmanager,
    nullcontext,
)
from functools import partial
from typing import Final, Protocol

from antiphon.gateway.listen import listening
from antiphon.gateway.upkeep import upkeep
from antiphon.server.api import health
from antiphon.server.app import App
from antiphon.server.memory import return_large_blocks

__all__ = ["Overseer", "running", "serve", "settle_interpreter"]

_SHARE_SECONDS: Final = 1.0
_YOUNG_OBJECTS: Final = 20_000
_SWITCH_SECONDS: Final = 0.0005


class Overseer(Protocol):
    """Who watches this process: a service manager, or the parent of several workers."""

    watchdog_seconds: float | None

    def ready(self) -> None:
        """Report that requests are answered."""

    def stopping(self) -> None:
        """Report that no new turns are taken."""

    def beat(self) -> None:
        """Show a sign of life."""


@asynccontextmanager
async def running(
    app: App, sock: socket.socket, tls: ssl.SSLContext | None = None
) -> AsyncIterator[None]:
    """Answer on the socket and do the upkeep; on exit, end the turns and close the backends."""
    try:
        async with (
            upkeep(app.engine, app.webhooks, lambda: app.limits, app.cancel),
            app.index.running(),
            listening(app.handle, lambda: app.limits, sock, tls),
        ):
            app.containers.begin_probe()
            yield
    finally:
        await app.close()
        await app.engine.background.drain(0.0)
        setup = app.engine.setup
        await setup.catalog.close()
        await setup.tools.registry.close()
        await app.containers.close()
        await setup.input_files.close()


async def serve(
    app: App,
    sock: socket.socket,
    overseer: Overseer,
    metrics_sock: socket.socket | None = None,
    tls: ssl.SSLContext | None = None,
    reloading: AbstractAsyncContextManager[None] | None = None,
) -> None:
    """Serve until a signal arrives, then drain and close everything.

    On `metrics_sock` only the metrics are served, without a key. While turns may begin, the
    settings can be reloaded: `reloading` is entered then.
    """
    stop = _StopSignals()
    try:
        async with (
            running(app, sock, tls),
            _serving_metrics(app, metrics_sock),
            _showing_life(overseer),
        ):
            settle_interpreter()
            async with reloading or nullcontext():
                overseer.ready()
                await stop.asked.wait()
            overseer.stopping()
            draining = asyncio.create_task(app.drain())
            hurry = asyncio.create_task(stop.asked_twice.wait())
            await asyncio.wait({draining, hurry}, return_when=asyncio.FIRST_COMPLETED)
            draining.cancel()
            hurry.cancel()
    finally:
        await app.engine.store.close()


class _StopSignals:
    """SIGTERM and SIGINT as events of the running loop, from the moment it is created.

    The first asks the gateway to stop, the second not to wait for turns.
    """

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


def settle_interpreter() -> None:
    """Make garbage collection rarer and the switch between threads faster.

    Turns leave hardly any cycles, and the search for them took a twentieth of the time of a
    stream; objects that exist now are not searched at all. The thread that writes to the store
    gets the interpreter sooner, because many streams wait for it.
    """
    return_large_blocks()
    gc.freeze()
    gc.set_threshold(_YOUNG_OBJECTS)
    sys.setswitchinterval(_SWITCH_SECONDS)


@asynccontextmanager
async def _serving_metrics(app: App, sock: socket.socket | None) -> AsyncIterator[None]:
    """Share the counts every second, and answer scrapes on `sock` if there is one."""
    async with AsyncExitStack() as stack:
        if sock is not None:
            scrape = partial(health.answer_scrape, app)
            await stack.enter_async_context(listening(scrape, lambda: app.limits, sock))
        sharing = asyncio.create_task(_share_counts(app))
        try:
            yield
        finally:
            sharing.cancel()
            app.metrics.share()


@asynccontextmanager
async def _showing_life(overseer: Overseer) -> AsyncIterator[None]:
    """Show signs of life from this event loop, if somebody watches for them."""
    if overseer.watchdog_seconds is None:
        yield
        return
    beating = asyncio.create_task(_beat(overseer, overseer.watchdog_seconds / 4))
    try:
        yield
    finally:
        beating.cancel()


async def _beat(overseer: Overseer, seconds: float) -> None:
    while True:
        overseer.beat()
        await asyncio.sleep(seconds)


async def _share_counts(app: App) -> None:
    while True:
        await asyncio.sleep(_SHARE_SECONDS)
        app.metrics.background = app.engine.background.count
        app.metrics.share()
