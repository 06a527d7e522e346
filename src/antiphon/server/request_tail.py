"""Which requests began, changed or ended since somebody last looked?

The books are the only source, so requests of every worker and node are seen. They are read about
once a second: what is new, and what was in progress. A charge may become visible a moment after a
younger one, so the last seconds are read again and what was sent is remembered.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from typing import Final

import msgspec

from antiphon.protocol.errors import Overloaded
from antiphon.store.base.ledger import Charge, Ledger
from antiphon.store.base.requests import RequestQuery
from antiphon.store.ledger_requests import request_status

__all__ = ["RequestTail", "TailRoom"]

_LOOK_SECONDS: Final = 1.0
_LATE_SECONDS: Final = 15.0
_AT_ONCE: Final = 500
_MOST_READERS: Final = 64

_replace = msgspec.structs.replace


class TailRoom:
    """Counts those who follow the requests of this process: each of them reads the books."""

    def __init__(self) -> None:
        self._count = 0

    @contextmanager
    def place(self) -> Iterator[None]:
        """Hold room for one more reader, or raise Overloaded."""
        if self._count >= _MOST_READERS:
            raise Overloaded(f"{_MOST_READERS} clients follow the requests already")
        self._count += 1
        try:
            yield
        finally:
            self._count -= 1


class RequestTail:
    """Follows the requests of a query. `changes` yields each of them when it is not as before."""

    def __init__(
        self, ledger: Ledger, query: RequestQuery, look_seconds: float = _LOOK_SECONDS
    ) -> None:
        self._ledger = ledger
        self._query = query
        self._look_seconds = look_seconds
        self._newest = 0.0
        """The time of the newest request, by the clock of the store."""
        self._seen: dict[str, tuple[float, int, int]] = {}
        """When each request began, how many charges it has, and how many have ended."""
        self._open: set[str] = set()

    async def begin(self) -> None:
        """Take note of what is there. What is in progress is still to be sent."""
        for charges in await self._ledger.requests(_replace(self._query, limit=1)):
            self._newest = charges[0].reserved_at
        for charges in await self._read():
            if request_status(charges) != "in_progress":
                self._note(charges)
        running = _replace(self._query, status="in_progress", limit=_AT_ONCE)
        found = await self._ledger.requests(running)
        self._open = {charges[0].response_id for charges in found}

    async def changes(self, beat_seconds: float) -> AsyncGenerator[list[list[Charge]], None]:
        """Yield what has changed, oldest first; nothing now and then, in silence."""
        sent_at = time.monotonic()
        while True:
            found = {charges[0].response_id: charges for charges in await self._read()}
            changed = [charges for charges in found.values() if self._note(charges)]
            if changed or time.monotonic() - sent_at >= beat_seconds:
                sent_at = time.monotonic()
                yield sorted(changed, key=lambda charges: charges[0].reserved_at)
            await asyncio.sleep(self._look_seconds)

    async def _read(self) -> list[list[Charge]]:
        """Return what began of late, and what was in progress."""
        recent = _replace(self._query, start=max(0.0, self._newest - _LATE_SECONDS), limit=_AT_ONCE)
        found = page = await self._ledger.requests(recent)
        while len(page) == _AT_ONCE:
            last = page[-1][0]
            recent = _replace(recent, before=(last.reserved_at, last.response_id))
            page = await self._ledger.requests(recent)
            found += page
        missing = tuple(self._open.difference(charges[0].response_id for charges in found))
        if missing:
            wanted = _replace(self._query, responses=missing, limit=len(missing))
            found += await self._ledger.requests(wanted)
        return found

    def _note(self, charges: list[Charge]) -> bool:
        """Remember a request; return whether it is not as it was."""
        first = charges[0]
        ended = sum(charge.state != "held" for charge in charges)
        state = (first.reserved_at, len(charges), ended)
        is_new = self._seen.get(first.response_id) != state
        self._seen[first.response_id] = state
        if request_status(charges) == "in_progress":
            self._open.add(first.response_id)
        else:
            self._open.discard(first.response_id)
        if first.reserved_at > self._newest:
            self._newest = first.reserved_at
            self._forget()
        return is_new

    def _forget(self) -> None:
        """Forget what is not read again."""
        if len(self._seen) < 2 * _AT_ONCE:
            return
        since = self._newest - _LATE_SECONDS
        self._seen = {
            name: state
            for name, state in self._seen.items()
            if state[0] >= since or name in self._open
        }
