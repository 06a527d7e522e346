"""The clock of the running event loop: move it, or stop it.

So a limit that must be over is over at once, and one that must not be over is not, however slow
the machine is. Only the timers of the loop look at this clock.
"""

from __future__ import annotations

import asyncio

__all__ = ["skip", "stop"]


def skip(seconds: float) -> None:
    """Let this time pass at once."""
    loop = asyncio.get_running_loop()
    before = loop.time
    loop.time = lambda: before() + seconds  # type: ignore[method-assign] # for this loop alone


def stop() -> None:
    """Let no more time pass."""
    loop = asyncio.get_running_loop()
    now = loop.time()
    loop.time = lambda: now  # type: ignore[method-assign] # for this loop alone
