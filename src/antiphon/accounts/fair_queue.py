"""Who is next, when several owners wait for a place?

Owners take turns: each time a place becomes free, the owner that has waited longest since its
last turn gets it, for its oldest waiter. So an owner with a thousand waiters delays one with a
single waiter by one place, not by a thousand.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Set

__all__ = ["FairQueue", "FairWaiters"]


class FairWaiters:
    """Those that wait, by owner."""

    def __init__(self) -> None:
        self.count = 0
        """How many wait."""
        # In the order in which the owners get their turn.
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    @property
    def owners(self) -> Set[str]:
        """Those that wait."""
        return self._waiting.keys()

    def add(self, owner: str) -> asyncio.Future[None]:
        """Return what is done when it is this owner's turn. If the wait ends early, `remove` it."""
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(owner, deque()).append(place)
        self.count += 1
        return place

    def wake_next(self) -> str | None:
        """Wake the oldest waiter of the owner whose turn it is; return that owner."""
        while self._waiting:
            owner = next(iter(self._waiting))
            places = self._waiting.pop(owner)
            place = places.popleft()
            if places:
                self._waiting[owner] = places  # behind the other owners
            self.count -= 1
            if not place.done():  # else its task was cancelled, and could not remove it yet
                place.set_result(None)
                return owner
        return None

    def remove(self, owner: str, place: asyncio.Future[None]) -> bool:
        """Forget a waiter that was cancelled; return False if it had been woken before."""
        if not place.cancelled():
            return False
        places = self._waiting.get(owner)
        if places is not None and place in places:
            places.remove(place)
            self.count -= 1
            if not places:
                del self._waiting[owner]
        return True


class FairQueue:
    """So many places at once. `places` may be changed at any time; call `wake` if it grew."""

    def __init__(self, places: int) -> None:
        self.places = places
        self.count = 0
        """How many places are taken. Those of `take` may exceed `places`."""
        self._taken: dict[str, int] = {}
        self._waiting = FairWaiters()

    def taken_by(self, owner: str) -> int:
        """Return how many places an owner has."""
        return self._taken.get(owner, 0)

    def owners_with(self, owner: str) -> int:
        """Return how many owners have a place or wait for one, with this one."""
        return len({owner, *self._taken, *self._waiting.owners})

    @property
    def waiting(self) -> int:
        """How many wait."""
        return self._waiting.count

    def take(self, owner: str) -> None:
        """Take a place at once, whether there is one or not."""
        self.count += 1
        self._taken[owner] = self._taken.get(owner, 0) + 1

    async def enter(self, owner: str) -> None:
        """Take a place as soon as there is one and it is this owner's turn."""
        if self.count < self.places and not self._waiting.count:
            self.take(owner)
            return
        place = self._waiting.add(owner)
        self.wake()
        try:
            await place
        except asyncio.CancelledError:
            if not self._waiting.remove(owner, place):
                self.leave(owner)  # it came at the same moment
            raise

    def leave(self, owner: str) -> None:
        """Give a place back."""
        self.count -= 1
        left = self._taken[owner] - 1
        if left:
            self._taken[owner] = left
        else:
            del self._taken[owner]
        if self._waiting.count:
            self.wake()

    def wake(self) -> None:
        """Give the free places to those that wait."""
        while self.count < self.places and (owner := self._waiting.wake_next()) is not None:
            self.take(owner)
