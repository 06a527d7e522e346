"""When was a key used last? Written at most once a minute, after the request that used it.

A request only leaves a note; a task writes all notes in one transaction. While the store is not
available the notes wait for the next use of any key, and a time that is lost is of no importance.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from antiphon.protocol.errors import StoreUnavailable
from antiphon.store.base import Keys

__all__ = ["KeyUses"]

_EVERY_SECONDS: Final = 60
_MAX_KEYS: Final = 10_000
_log = logging.getLogger(__name__)


class KeyUses:
    """The uses of keys in this process. `now` is the time in seconds since the epoch."""

    def __init__(self, store: Keys, now: Callable[[], int]) -> None:
        self._store = store
        self._now = now
        self._written: dict[str, int] = {}
        self._waiting: dict[str, int] = {}
        self._writing: asyncio.Task[None] | None = None

    def note(self, key_id: str) -> None:
        """Note that a key is used now."""
        now = self._now()
        if abs(now - self._written.get(key_id, -_EVERY_SECONDS)) < _EVERY_SECONDS:
            return
        if len(self._written) >= _MAX_KEYS:
            self._written.clear()
        self._written[key_id] = self._waiting[key_id] = now
        if self._writing is None:
            self._writing = asyncio.create_task(self._write())

    async def settled(self) -> None:
        """Wait until what was noted is written, or could not be."""
        while self._writing is not None:
            await asyncio.wait({self._writing})

    async def _write(self) -> None:
        try:
            while self._waiting:
                times, self._waiting = self._waiting, {}
                try:
                    await self._store.note_uses(times)
                except StoreUnavailable:
                    self._waiting = times | self._waiting
                    return
        except Exception:  # noqa: BLE001 - the outermost frame of its task
            _log.exception("noting the use of keys broke")
        finally:
            self._writing = None
