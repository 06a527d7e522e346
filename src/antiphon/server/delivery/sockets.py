"""Every open WebSocket: is its peer alive, has it been open too long, must it go?

One watcher looks after all of them, so an idle socket costs no task and no timer. Round after
round every socket pings its peer, and cuts it off when it has sent no whole frame since the
last two: who is alive answers, unless it takes that long over one frame. A peer that is behind
with reading is left to the write-stall limit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import takewhile
from typing import Final, Protocol

from antiphon.protocol.errors import AntiphonError, CallerError, Overloaded
from antiphon.server.limits import ServerLimits

__all__ = ["LIMIT_REACHED", "RESTART", "OpenSocket", "Sockets", "TooOld"]

# Codes of RFC 6455 and its registry: clients reconnect at both.
LIMIT_REACHED: Final = 1001
RESTART: Final = 1012
_SLICE: Final = 200


class TooOld(CallerError):
    """The socket has been open as long as a socket may be; a new one can be opened at once."""

    code = "websocket_connection_limit_reached"

    def __init__(self, seconds: float) -> None:
        super().__init__(
            f"This WebSocket has been open for its {seconds / 60:g} minutes; open a new one."
        )


class OpenSocket(Protocol):
    """What the watcher needs of a socket."""

    opened_at: float

    async def beat(self) -> None:
        """Ping the peer, or cut it off if it has been silent for too long."""
        ...

    def end(self, error: AntiphonError, code: int) -> asyncio.Task[None]:
        """Take no more requests; close with this code once those that run have ended."""
        ...


class Sockets:
    """The open sockets of a process."""

    def __init__(self, limits: ServerLimits) -> None:
        self.limits = limits
        self._open: set[OpenSocket] = set()
        self._young: dict[OpenSocket, None] = {}  # the oldest first
        self._watcher: asyncio.Task[None] | None = None
        self._is_leaving = False

    def __len__(self) -> int:
        return len(self._open)

    def check_room(self) -> None:
        """Raise Overloaded if there must be no further socket."""
        if self._is_leaving:
            raise _going_away()
        if len(self._open) >= self.limits.websockets:
            raise Overloaded(f"{len(self._open)} WebSockets are open; try again in a moment")

    @contextmanager
    def watching(self, socket: OpenSocket) -> Iterator[None]:
        """Know of a socket while it is open."""
        self._open.add(socket)
        self._young[socket] = None
        if self._is_leaving:
            socket.end(_going_away(), RESTART)
        if self._watcher is None:
            self._watcher = asyncio.create_task(self._watch())
        try:
            yield
        finally:
            self._open.discard(socket)
            self._young.pop(socket, None)
            if not self._open:
                self._watcher.cancel()
                self._watcher = None

    def close_all(self) -> set[asyncio.Task[None]]:
        """Let every socket end after what it runs, and take no new ones."""
        self._is_leaving = True
        return {socket.end(_going_away(), RESTART) for socket in self._open}

    async def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        next_round = loop.time() + self.limits.websocket_ping_seconds
        while True:
            now, lifetime = loop.time(), self.limits.websocket_seconds
            oldest = next((socket.opened_at for socket in self._young), now)
            await asyncio.sleep(max(0.0, min(next_round, oldest + lifetime) - now))
            self._end_old(loop.time() - lifetime)
            if loop.time() >= next_round:
                await self._beat()
                next_round = loop.time() + self.limits.websocket_ping_seconds

    def _end_old(self, opened_before: float) -> None:
        old = list(takewhile(lambda socket: socket.opened_at <= opened_before, self._young))
        for socket in old:
            del self._young[socket]
            socket.end(TooOld(self.limits.websocket_seconds), LIMIT_REACHED)

    async def _beat(self) -> None:
        for index, socket in enumerate(list(self._open)):
            await socket.beat()
            if index % _SLICE == _SLICE - 1:
                await asyncio.sleep(0)


def _going_away() -> Overloaded:
    return Overloaded("the server is going away; open a new WebSocket in a moment")
