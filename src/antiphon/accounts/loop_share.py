"""Whose work does the event loop do next, when several owners have work for it?

Only work on the event loop is shared: a turn that waits for its model waits for nobody here. While
one owner is active, or the loop keeps up, nothing is delayed and nothing but requests is counted.
When the loop is late although several owners are active, work is paced:

- An owner with less than its share of the recent pieces of work goes on at once. Its request has
  right of way, until the model is asked and the beginning is stored: others begin nothing then.
- The pieces of all others wait. A few are begun in each pass of the loop, in turn by owner.
- Nobody has right of way for long, and some pieces are begun all the time, whoever has it.

A piece is what a turn does between two waits: prepare a request, handle what a model has sent,
store and send the end.
"""

from __future__ import annotations

import asyncio
import time
from contextvars import ContextVar
from typing import Final

from antiphon.accounts.fair_queue import FairWaiters

__all__ = ["LoopShare", "Way"]

# After so many seconds, what was counted before counts half.
_WINDOW: Final = 0.5
# An owner is active for so long after a piece of work.
_ACTIVE: Final = 10.0
# How often the event loop is looked at while several owners are active, and how late is late.
_LOOK: Final = 0.02
_LATE: Final = 0.0015
# Work is paced until nobody has waited for so many looks.
_CALM: Final = 10
# How long a pass of the loop should take, as it delays a quiet owner, and how many pieces of work
# may be begun in one.
_PASS: Final = 0.001
_MOST_IN_A_PASS: Final = 8
# How long a request has right of way at most, and how long nothing may be begun because of it.
_LONGEST_WAY: Final = 0.025
_LONGEST_STOP: Final = 0.025

_way: ContextVar[Way | None] = ContextVar("way", default=None)


class LoopShare:
    """Shares the event loop of one process between owners."""

    def __init__(self) -> None:
        self.is_paced = False
        """Whether pieces of work have to ask for their turn."""
        self._counts: dict[str, int] = {}
        self._total = 0
        # The active owners, and until when.
        self._active: dict[str, float] = {}
        self._window_ends = 0.0
        self._waiters = FairWaiters()
        self._is_pumping = False
        self._in_a_pass = 1
        self._last_pass = 0.0
        self._stopped_at: float | None = None
        self._timer: asyncio.TimerHandle | None = None
        # Those that have right of way, the oldest first, and until when.
        self._ways: dict[Way, float] = {}
        self._is_looking = False
        self._has_waited = False
        self._calm_looks = 0

    @property
    def waiting(self) -> int:
        """How many pieces of work wait."""
        return self._waiters.count

    def note(self, owner: str) -> bool:
        """Count a request of this owner; return whether work is paced: then await `enter`."""
        now = _now()
        self._count(owner, now)
        if len(self._active) > 1 and not self._is_looking:
            self._look_later(now)
        return self.is_paced

    def is_ahead(self, owner: str) -> bool:
        """Return whether an owner has had its share of the recent work, or more."""
        return self._counts.get(owner, 0) * len(self._active) >= self._total

    async def enter(self, owner: str) -> Way | None:
        """Wait until a request that was noted may go on.

        If its owner has less than its share, the request has right of way: end that.
        """
        if not self.is_ahead(owner):
            return self.open_way()
        await self._wait(owner)
        return None

    def open_way(self) -> Way:
        """Give the request of this task right of way. It must be ended."""
        way = Way(self)
        self._ways[way] = _now() + _LONGEST_WAY
        _way.set(way)
        return way

    async def turn(self, owner: str) -> None:
        """Wait until a piece of work of this owner may begin."""
        self._count(owner, _now())
        if self.is_ahead(owner):
            await self._wait(owner)

    def end_way(self, way: Way) -> None:
        """Let others go on."""
        if self._ways.pop(way, None) is not None and not self._ways:
            self._pump_soon()

    def _count(self, owner: str, now: float) -> None:
        if now >= self._window_ends:
            self._age(now)
        self._counts[owner] = self._counts.get(owner, 0) + 1
        self._total += 1
        self._active[owner] = now + _ACTIVE

    def _age(self, now: float) -> None:
        """Let what was counted count half, or nothing if that is long ago; forget idle owners."""
        old = {} if now >= self._window_ends + _WINDOW else self._counts
        self._counts = {owner: count // 2 for owner, count in old.items() if count > 1}
        self._total = sum(self._counts.values())
        self._active = {owner: until for owner, until in self._active.items() if until > now}
        self._window_ends = now + _WINDOW

    async def _wait(self, owner: str) -> None:
        place = self._waiters.add(owner)
        self._has_waited = True
        self._pump_soon()
        try:
            await place
        except asyncio.CancelledError:
            self._waiters.remove(owner, place)
            raise

    def _pump_soon(self) -> None:
        if not self._is_pumping:
            self._is_pumping = True
            asyncio.get_running_loop().call_soon(self._pump)

    def _pump(self) -> None:
        """Begin the next pieces, unless a request has right of way; come again if more wait."""
        self._is_pumping = False
        now = _now()
        if not self._waiters.count or self._is_stopped(now):
            return
        if now - self._last_pass > _PASS:
            self._in_a_pass = max(1, self._in_a_pass // 2)
        elif self._in_a_pass < _MOST_IN_A_PASS:
            self._in_a_pass += 1
        self._last_pass = now
        for _ in range(self._in_a_pass):
            self._waiters.wake_next()
        self._pump_soon()

    def _is_stopped(self, now: float) -> bool:
        """Return whether a request has right of way; see that it is not for long."""
        while self._ways and now >= next(iter(self._ways.values())):
            del self._ways[next(iter(self._ways))]
        if not self._ways:
            self._stopped_at = None
            return False
        if self._stopped_at is None:
            self._stopped_at = now
        left = self._stopped_at + _LONGEST_STOP - now
        if left <= 0:
            self._stopped_at = now
            return False
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(left, self._go_on)
        return True

    def _go_on(self) -> None:
        self._timer = None
        self._pump_soon()

    def _look_later(self, now: float) -> None:
        self._is_looking = True
        asyncio.get_running_loop().call_later(_LOOK, self._look, now + _LOOK)

    def _look(self, due: float) -> None:
        """Pace work if the event loop is late, until nobody waits. Stop when owners are few."""
        now = _now()
        self._calm_looks = 0 if self._has_waited else self._calm_looks + 1
        self._has_waited = self._waiters.count > 0
        if now >= self._window_ends:
            self._age(now)
        self._is_looking = len(self._active) > 1
        if not self._is_looking or (self.is_paced and self._calm_looks > _CALM):
            self.is_paced = False
        elif now - due > _LATE:
            self.is_paced, self._calm_looks = True, 0
        if self._is_looking:
            self._look_later(now)


class Way:
    """The right of way of one request."""

    __slots__ = ("_share",)

    def __init__(self, share: LoopShare) -> None:
        self._share = share

    @staticmethod
    def of_this_task() -> Way | None:
        """Return that of the request that this task answers; None if it has none."""
        return _way.get()

    def end(self) -> None:
        """Let others go on. Doing it twice is fine."""
        self._share.end_way(self)


def _now() -> float:
    """Return the time now. That of uvloop is when the pass began, in whole milliseconds."""
    return time.monotonic()
