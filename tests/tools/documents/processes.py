"""What does this process have, and how long does its event loop stand still?"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

__all__ = ["Pause", "count_children", "longest_pause"]


def count_children() -> int:
    """Return how many processes this one has started that are still there."""
    return sum(map(_count_children_of, Path("/proc/self/task").iterdir()))


def _count_children_of(thread: Path) -> int:
    try:
        return len((thread / "children").read_text().split())
    except (FileNotFoundError, ProcessLookupError):  # the thread has ended just now
        return 0


class Pause:
    """The longest time that the event loop was busy with one thing."""

    seconds = 0.0


@asynccontextmanager
async def longest_pause() -> AsyncIterator[Pause]:
    """Measure while the block runs."""
    pause = Pause()

    async def watch() -> None:
        now = asyncio.get_running_loop().time
        last = now()
        while True:
            await asyncio.sleep(0.005)
            pause.seconds, last = max(pause.seconds, now() - last - 0.005), now()

    watching = asyncio.create_task(watch())
    try:
        yield pause
    finally:
        watching.cancel()
