"""Which containers run in this process, and which calls use them now?

A container has at most one sandbox here, which starts when it is first used and is used by one
call at a time; others wait, for a limited time. It is closed when the container has expired, was
removed, or runs in another process meanwhile, and when room is needed: then the one that was idle
longest goes. What it had in memory is lost then, and its files are in the store.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Final

from antiphon.protocol.errors import StoreUnavailable
from antiphon.tools.containers.workspace import Workspace

__all__ = ["NoRoom", "Running", "RunningContainer"]

_log = logging.getLogger(__name__)
_LOOK_SECONDS: Final = 30.0

_Key = tuple[str, str]
"""Owner and container."""


class NoRoom(Exception):
    """A container cannot be used now. Caller and model may read the text."""


class RunningContainer:
    """A container that may have a sandbox here. `users` counts those that use it or wait."""

    def __init__(self, key: _Key) -> None:
        self.key = key
        self.workspace: Workspace | None = None
        self.generation = 0
        self.lock = asyncio.Lock()
        self.users = 0
        self.used_at = 0.0

    async def close(self) -> None:
        """Close the sandbox, if there is one."""
        workspace, self.workspace = self.workspace, None
        if workspace is not None:
            await workspace.close()


class Running:
    """The containers that run in this process.

    `is_live` returns whether a container can still be used by the sandbox that runs here.
    """

    def __init__(
        self,
        is_live: Callable[[str, str], Awaitable[bool]],
        *,
        most: int,
        most_per_owner: int,
        seconds: float,
    ) -> None:
        self._is_live = is_live
        self._most = most
        self._most_per_owner = most_per_owner
        self._seconds = seconds
        self._all: dict[_Key, RunningContainer] = {}
        self._freed = asyncio.Event()
        self._look: asyncio.Task[None] | None = None
        self._is_closed = False

    def __len__(self) -> int:
        return sum(one.workspace is not None for one in self._all.values())

    @asynccontextmanager
    async def use(self, owner: str, container_id: str) -> AsyncIterator[RunningContainer]:
        """Hold a container alone, with room for its sandbox. Raise NoRoom if it takes too long."""
        key = (owner, container_id)
        entry = self._all.setdefault(key, RunningContainer(key))
        entry.users += 1
        try:
            await self._within(entry.lock.acquire(), "another call uses this container")
            try:
                await self._within(self._make_room(entry), "too many containers run now")
                yield entry
            finally:
                entry.lock.release()
        finally:
            entry.users -= 1
            entry.used_at = asyncio.get_running_loop().time()
            if entry.workspace is None and not entry.users:
                self._all.pop(key, None)
            self._freed.set()
            self._begin_to_look()

    async def _within(self, waits: Awaitable[object], why: str) -> None:
        try:
            async with asyncio.timeout(self._seconds):
                await waits
        except TimeoutError:
            raise NoRoom(f"{why}; try again later") from None
        if self._is_closed:
            raise NoRoom("the gateway is closing")

    async def _make_room(self, entry: RunningContainer) -> None:
        """Close others until this one may run, and wait for one to be idle if none is."""
        while entry.workspace is None:
            owner, others = entry.key[0], [one for one in self._all.values() if one is not entry]
            run = [one for one in others if one.workspace is not None or one.lock.locked()]
            own = [one for one in run if one.key[0] == owner]
            if len(own) >= self._most_per_owner:
                run = own
            elif len(run) < self._most:
                return
            idle = [one for one in run if not one.users and one.workspace is not None]
            if idle:
                await self.remove(*min(idle, key=lambda one: one.used_at).key)
                continue
            self._freed.clear()
            await self._freed.wait()

    async def remove(self, owner: str, container_id: str) -> None:
        """Close the sandbox of a container. A call that uses it sees it end."""
        entry = self._all.get((owner, container_id))
        if entry is None:
            return
        if not entry.users:
            del self._all[entry.key]
        await entry.close()
        self._freed.set()

    async def close(self) -> None:
        """Close all sandboxes."""
        self._is_closed = True
        if self._look is not None:
            self._look.cancel()
        for entry in list(self._all.values()):
            await entry.close()
        self._all.clear()
        self._freed.set()

    # Looking after those that are not in use.

    def _begin_to_look(self) -> None:
        if self._look is None and len(self) and not self._is_closed:
            self._look = asyncio.create_task(self._look_after())
            self._look.add_done_callback(self._forget_look)

    def _forget_look(self, task: asyncio.Task[None]) -> None:
        self._look = None

    async def _look_after(self) -> None:
        """Close what has expired, was removed or runs elsewhere, as long as something runs."""
        while len(self):
            await asyncio.sleep(_LOOK_SECONDS)
            for entry in [one for one in self._all.values() if not one.users]:
                with suppress(StoreUnavailable):  # then it is looked at again
                    is_live = await self._is_live(*entry.key)
                    if not entry.users and not is_live:
                        await self.remove(*entry.key)
