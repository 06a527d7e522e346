"""How do callers wait until a response changes?

A waiter is a future in its own event loop, so any thread may wake it. A wake-up is a hint and
not guaranteed: a caller checks again when its time is over, so a wake-up that comes too early
costs a moment and nothing else.
"""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from typing import Final

__all__ = ["MAX_WAITERS", "Waiters"]

# Waiters beyond this number are not woken: they check again when their time is over.
MAX_WAITERS: Final = 100_000


class Waiters:
    """Callers that wait for responses of this store."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[str, set[asyncio.Future[None]]] = {}
        self._count = 0

    async def wait(self, response_id: str, seconds: float) -> None:
        """Return when the response is woken, or when the time is over."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if not self._add(response_id, future):
            await asyncio.sleep(seconds)
            return
        try:
            await asyncio.wait((future,), timeout=seconds)
        finally:
            self._discard(response_id, future)

    @property
    def is_empty(self) -> bool:
        """Whether no caller waits for any response."""
        return not self._waiting

    def wake(self, response_id: str) -> None:
        """Wake all waiters of this response. Any thread may call this."""
        if response_id not in self._waiting:
            return
        with self._lock:
            woken = self._waiting.pop(response_id, set())
            self._count -= len(woken)
        for future in woken:
            with suppress(RuntimeError):  # the loop was closed, and its waiters with it
                future.get_loop().call_soon_threadsafe(_settle, future)

    def wake_all(self) -> None:
        """Wake all waiters."""
        for response_id in list(self._waiting):
            self.wake(response_id)

    def _add(self, response_id: str, future: asyncio.Future[None]) -> bool:
        with self._lock:
            if self._count >= MAX_WAITERS:
                return False
            self._waiting.setdefault(response_id, set()).add(future)
            self._count += 1
            return True

    def _discard(self, response_id: str, future: asyncio.Future[None]) -> None:
        with self._lock:
            waiting = self._waiting.get(response_id)
            if waiting is None or future not in waiting:
                return
            waiting.remove(future)
            self._count -= 1
            if not waiting:
                del self._waiting[response_id]


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
