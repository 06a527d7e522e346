"""Idle connections, kept for the next request to the same place.

The one that was used last is used first, so that a burst leaves connections that grow old and
are closed. How many there are is not limited here: the number of turns is limited above, and a
limit would make requests wait for each other. The pool also knows the connections in use, to
close them with itself.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Final

from antiphon.transport.connection import Connection
from antiphon.transport.target import Key

__all__ = ["IDLE_SECONDS", "Pool"]

IDLE_SECONDS: Final = 15.0
"""A connection that was idle for so long is closed."""


class Pool:
    """The connections of one client. It belongs to one event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._live: set[Connection] = set()
        # The time since when a connection is idle; the one that became idle last comes last.
        self._idle: dict[Key, dict[Connection, float]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._is_closed = False
        self._emptied = asyncio.Event()

    def make(self, key: Key) -> Connection:
        """Return a connection that comes back to the pool when it is idle. It is not open yet."""
        return Connection(self._loop, partial(self._give_back, key), partial(self._forget, key))

    def add(self, connection: Connection) -> None:
        """Keep account of a connection that was opened."""
        if connection.is_open:
            self._live.add(connection)

    def take(self, key: Key) -> Connection | None:
        """Return an idle connection, if there is one."""
        idle = self._idle.get(key)
        while idle:
            connection, _ = idle.popitem()
            if connection.is_open:
                return connection
        return None

    async def close(self) -> None:
        """Close every connection, also those in use. Return when they are closed."""
        self._is_closed = True
        self._idle.clear()
        if self._timer is not None:
            self._timer.cancel()
        if self._loop.is_closed():
            return
        for connection in list(self._live):
            connection.hang_up()
        if self._live:
            await self._emptied.wait()

    def _give_back(self, key: Key, connection: Connection) -> None:
        if self._is_closed:
            connection.hang_up()
            return
        self._idle.setdefault(key, {})[connection] = self._loop.time()
        if self._timer is None:
            self._timer = self._loop.call_later(IDLE_SECONDS, self._close_old)

    def _forget(self, key: Key, connection: Connection) -> None:
        self._live.discard(connection)
        idle = self._idle.get(key)
        if idle is not None:
            idle.pop(connection, None)
            if not idle:
                del self._idle[key]
        if self._is_closed and not self._live:
            self._emptied.set()

    def _close_old(self) -> None:
        """Close what was idle for too long, and look again when the next one may be too old."""
        oldest = self._loop.time() - IDLE_SECONDS
        for idle in list(self._idle.values()):
            for connection, since in list(idle.items()):
                if since > oldest:
                    break
                del idle[connection]
                connection.hang_up()
        starts = [since for idle in self._idle.values() for since in idle.values()]
        self._timer = (
            self._loop.call_at(min(starts) + IDLE_SECONDS, self._close_old) if starts else None
        )
