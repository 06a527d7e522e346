"""What came for one request and was not taken yet.

An inbox takes everything, and is full from a limit of bytes on: then the connection is not read
until its reader has caught up. All requests of the connection wait for that together, so a reader
that holds up others for too long loses its answer (`host_link`).
"""

from __future__ import annotations

import asyncio
from typing import Final

from antiphon.protocol.errors import BackendError
from antiphon.wires.host.answers import Received, Unreadable
from antiphon.wires.host.messages import Counted, Done, Failed, Measured, Models

__all__ = ["ROOM", "Inbox"]

ROOM: Final = 1024 * 1024
"""How many bytes of an answer may wait for their reader before the connection is not read."""

_LAST: Final = (Models, Counted, Measured, Done, Failed)


class Inbox:
    """The messages for one request, from the connection to its reader."""

    def __init__(self, request_id: int) -> None:
        self.id = request_id
        self.has_ended = False
        """Whether nothing more is taken for the request."""
        self.is_finished = False
        """Whether the editor has ended it."""
        self.is_cancelled = False
        """Whether the editor was asked to stop it."""
        self.has_left = False
        """Whether its reader left."""
        self._waiting: list[Received] = []
        self._bytes = 0
        self._fault: BackendError | None = None
        self._arrived = asyncio.Event()
        self._drained = asyncio.Event()

    @property
    def is_full(self) -> bool:
        """Whether the connection should wait for the reader."""
        return self._bytes > ROOM and self._fault is None

    def put(self, message: Received, size: int) -> None:
        """Take a message of so many bytes."""
        self.is_finished = isinstance(message, _LAST)
        self.has_ended = self.is_finished or isinstance(message, Unreadable)
        if self.has_left or self._fault is not None:
            return
        self._waiting.append(message)
        self._bytes += size
        self._arrived.set()
        if self.is_full:
            self._drained.clear()

    def fail(self, fault: BackendError) -> None:
        """Let the reader end with this error, after what came before."""
        if self._fault is None:
            self._fault = fault
        self._arrived.set()
        self._drained.set()

    async def take(self) -> list[Received]:
        """Return what came, at least one message. Raise the fault after the last one."""
        if not self._waiting and self._fault is None:
            self._arrived.clear()
            await self._arrived.wait()
        if not self._waiting and self._fault is not None:
            raise self._fault
        taken, self._waiting = self._waiting, []
        self._bytes = 0
        self._drained.set()
        return taken

    async def drained(self) -> None:
        """Wait until the reader has caught up, or left."""
        await self._drained.wait()

    def leave(self) -> None:
        """Drop what waits and all that comes: the reader left."""
        self.has_left = True
        self._waiting.clear()
        self._bytes = 0
        self._drained.set()
