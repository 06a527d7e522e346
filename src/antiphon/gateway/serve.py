"""Run an application on a socket, and stop it without losing anything.

On SIGTERM or SIGINT the server reports that it is not ready, refuses new turns and lets running
turns finish, up to the drain limit. Turns that are left then end as failed. A second signal
stops the waiting.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from antiphon.gateway.interpreter import settle_interpreter
from antiphon.gateway.listen import listening
from antiphon.gateway.metrics import serving_metrics
from antiphon.gateway.stop import StopSignals
from antiphon.gateway.upkeep import upkeep
from antiphon.server.app import App

__all__ = ["running", "serve"]


@asynccontextmanager
async def running(app: App, sock: socket.socket) -> AsyncIterator[None]:
    """Answer on the socket and do the upkeep; on exit, end the turns and close the backends."""
    try:
        async with (
            upkeep(app.engine, app.webhooks, app.limits.retention_days),
            listening(app.handle, app.limits, sock),
        ):
            yield
    finally:
        await app.engine.background.drain(0.0)
        await app.engine.catalog.close()


async def serve(app: App, sock: socket.socket, metrics_sock: socket.socket | None = None) -> None:
    """Serve until a signal arrives, then drain and close everything.

    On `metrics_sock` only the metrics are served, without a key.
    """
    stop = StopSignals()
    try:
        async with running(app, sock), serving_metrics(app, metrics_sock):
            settle_interpreter()
            await stop.asked.wait()
            draining = asyncio.create_task(app.drain())
            hurry = asyncio.create_task(stop.asked_twice.wait())
            await asyncio.wait({draining, hurry}, return_when=asyncio.FIRST_COMPLETED)
            draining.cancel()
            hurry.cancel()
    finally:
        await app.engine.store.close()
