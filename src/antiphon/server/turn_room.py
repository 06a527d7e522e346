"""How many turns may run at once, and how do owners share them?

At most `limits.turns` run in a process. An owner that is alone may have all of them. When all are
taken and others have or want some, an owner that has less than its share waits for a place, two
seconds at most: then it is refused with `Retry-After`. An owner that has its share or more is
refused at once.

Most of these turns wait for a model. Who works when is decided elsewhere: see
`accounts/loop_share.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Final

from antiphon.accounts.fair_queue import FairQueue
from antiphon.protocol.errors import Overloaded

__all__ = ["TurnRoom"]

_PATIENCE: Final = 2.0


class TurnRoom:
    """The places for turns in one process. `note` gets the number of turns that run."""

    def __init__(self, most: int, note: Callable[[int], None]) -> None:
        self._note = note
        self._queue = FairQueue(most)
        self.is_closed = False
        """Whether no new turns are taken."""

    def resize(self, most: int) -> None:
        """Have so many places from now on. Turns that have one keep it."""
        self._queue.places = most
        self._queue.wake()

    def place(self, owner: str) -> _Place:
        """Return a place for a turn of this owner, to be entered."""
        return _Place(self, owner)

    async def enter(self, owner: str) -> None:
        """Wait for a place, if it must be waited for. Raise Overloaded."""
        if self.is_closed:
            raise Overloaded("the server is going away; try again in a moment")
        queue = self._queue
        if queue.count < queue.places:
            queue.take(owner)
        else:
            await self._enter_crowded(owner)
        self._note(queue.count)

    def leave(self, owner: str) -> None:
        """Give the place back."""
        self._queue.leave(owner)
        self._note(self._queue.count)

    async def _enter_crowded(self, owner: str) -> None:
        queue = self._queue
        if queue.taken_by(owner) * queue.owners_with(owner) >= queue.places:
            raise Overloaded(f"{queue.places} turns are running; try again in a moment")
        try:
            async with asyncio.timeout(_PATIENCE):
                await queue.enter(owner)
        except TimeoutError:
            raise Overloaded(
                "the server is busy, and others wait as well; try again in a moment"
            ) from None


class _Place:
    """A place that is held between `async with` and its end."""

    __slots__ = ("_owner", "_room")

    def __init__(self, room: TurnRoom, owner: str) -> None:
        self._room = room
        self._owner = owner

    def __aenter__(self) -> Coroutine[object, object, None]:
        return self._room.enter(self._owner)

    async def __aexit__(self, *_: object) -> None:
        self._room.leave(self._owner)
