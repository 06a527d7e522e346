"""Which turns run in this process, and what did they say last?

Whoever follows a turn reads its log from the store and then waits here for more. A channel
keeps the last events only while somebody listens, so a turn that nobody follows costs nothing.
A follower that falls behind the tail reads the store again: there are no queues to overflow.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from antiphon.protocol.events import Event, sequence_of

__all__ = ["Channel", "Live"]

_TAIL_EVENTS: Final = 1024


class Channel:
    """The newest events of one turn that runs here."""

    def __init__(self) -> None:
        self.is_open = True
        self._tail: deque[Event] = deque(maxlen=_TAIL_EVENTS)
        self._newest: Event | None = None
        self._followers = 0
        self._changed = asyncio.Event()

    @property
    def _last(self) -> int:
        """The number of the newest event."""
        return -1 if self._newest is None else sequence_of(self._newest)

    def publish(self, events: list[Event]) -> None:
        """Tell these events, which are durable, to whoever listens."""
        if not events:
            return
        self._newest = events[-1]
        if self._followers:
            self._tail.extend(events)
            self._wake()

    def after(self, number: int) -> list[Event] | None:
        """Return the events behind this one, or None if the store must be asked."""
        if number >= self._last:
            return []
        if not self._tail or sequence_of(self._tail[0]) > number + 1:
            return None
        return [event for event in self._tail if sequence_of(event) > number]

    async def wait(self, number: int, seconds: float) -> bool:
        """Return at an event behind this one, or the end; say whether there was one in time."""
        if number < self._last or not self.is_open:
            return True
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            return False
        return True

    def close(self) -> None:
        """Say that nothing more comes from here: the rest is in the store."""
        self.is_open = False
        self._changed.set()

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Keep the newest events meanwhile."""
        self._followers += 1
        try:
            yield
        finally:
            self._followers -= 1
            if not self._followers:
                self._tail.clear()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


class Live:
    """The channels of this process."""

    def __init__(self) -> None:
        self._channels: dict[tuple[str, str], Channel] = {}

    def open(self, owner: str, response_id: str) -> Channel:
        """Return the channel of a turn that runs from now on."""
        channel = self._channels[owner, response_id] = Channel()
        return channel

    def close(self, owner: str, response_id: str) -> None:
        """Forget the turn; its followers go on with the store."""
        channel = self._channels.pop((owner, response_id), None)
        if channel is not None:
            channel.close()

    def find(self, owner: str, response_id: str) -> Channel | None:
        """Return the channel of a turn, if it runs here."""
        return self._channels.get((owner, response_id))
