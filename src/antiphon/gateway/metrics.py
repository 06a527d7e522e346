"""Share this worker's counts with the others, and serve all of them on a port of their own.

What is counted, and how it is written for Prometheus, is in `server/metrics.py`.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Final

from antiphon.gateway.listen import listening
from antiphon.server.api import health
from antiphon.server.app import App

__all__ = ["serving_metrics"]

_SHARE_SECONDS: Final = 1.0


@asynccontextmanager
async def serving_metrics(app: App, sock: socket.socket | None) -> AsyncIterator[None]:
    """Share the counts every second, and answer scrapes on `sock` if there is one."""
    async with AsyncExitStack() as stack:
        if sock is not None:
            scrape = partial(health.answer_scrape, app)
            await stack.enter_async_context(listening(scrape, app.limits, sock))
        sharing = asyncio.create_task(_share_counts(app))
        try:
            yield
        finally:
            sharing.cancel()
            app.metrics.share()


async def _share_counts(app: App) -> None:
    while True:
        await asyncio.sleep(_SHARE_SECONDS)
        app.metrics.background = app.engine.background.count
        app.metrics.share()
