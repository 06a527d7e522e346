"""Is a running request within its limits of memory and disk? Looks again and again, in a thread.

The limits that the system itself enforces (size of one file, memory of one process) are the first
line; this is the one for sums. A folder that is over its limit before a request may shrink, but
not grow.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from antiphon.tools.sandbox.base import SandboxLimits
from antiphon.tools.sandbox.usage import (
    descendants,
    folder_bytes,
    memory_bytes,
    unlinked_bytes,
)

__all__ = ["Watch"]

_PAUSE_SECONDS: Final = 0.1
_SHARE: Final = 10.0
"""Looking may take one part in so many of the time."""


class Watch:
    """Calls `kill` with `memory` or `disk` when a limit is passed.

    `before` is the size of the folder before the request.
    """

    def __init__(
        self,
        pid: int,
        folder: Path,
        limits: SandboxLimits,
        before: int,
        kill: Callable[[str], None],
    ) -> None:
        self._pid = pid
        self._folder = folder
        self._memory = limits.memory_bytes
        self._disk = max(limits.disk_bytes, before)
        self._kill = kill
        self._task = asyncio.get_running_loop().create_task(self._keep_looking())

    def stop(self) -> None:
        """Look no more."""
        self._task.cancel()

    async def look(self) -> int:
        """Look now. Return the size of the folder."""
        disk, memory = await asyncio.to_thread(self._measure)
        if memory > self._memory:
            self._kill("memory")
        if disk > self._disk:
            self._kill("disk")
        return disk

    def _measure(self) -> tuple[int, int]:
        pids = descendants(self._pid)
        disk = folder_bytes(self._folder) + unlinked_bytes(pids, self._folder)
        return disk, memory_bytes(pids, self._memory)

    async def _keep_looking(self) -> None:
        took = 0.0
        while True:
            await asyncio.sleep(max(_PAUSE_SECONDS, _SHARE * took))
            began = time.monotonic()
            await self.look()
            took = time.monotonic() - began
