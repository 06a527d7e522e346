"""The bridge as a process: stdin and stdout are the asker's."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable
from typing import Final

from antiphon.client.settings import ApiKey
from antiphon.host.bridge.bridge import Bridge
from antiphon.host.bridge.pipes import LineSink, LineSource, take_over

__all__ = ["run_bridge"]

# How long the asker may take to read the last lines after it has closed our input.
_FLUSH_SECONDS: Final = 2.0


async def run_bridge(base_url: str, api_key: ApiKey = "") -> None:
    """Answer the process that started this one, until it closes our stdin or has ended.

    SIGINT and SIGTERM end it as the end of its input does.
    """
    source, target = take_over()
    task = asyncio.current_task()
    assert task is not None
    is_stopped = False

    def stop() -> None:
        nonlocal is_stopped
        is_stopped = True
        task.cancel()

    _on_signals(stop)
    sink = LineSink(target, on_broken=stop)
    try:
        try:
            await Bridge(sink, base_url, api_key).run(aiter(LineSource(source)))
        finally:
            await sink.close(_FLUSH_SECONDS)
    except asyncio.CancelledError:
        if not is_stopped:
            raise


def _on_signals(stop: Callable[[], None]) -> None:
    """Call this for a signal to end; the event loop wakes up for it, whichever thread gets it."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        with contextlib.suppress(NotImplementedError):  # Windows has no such signals
            loop.add_signal_handler(number, stop)
