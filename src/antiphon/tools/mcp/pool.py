"""Which connections to MCP servers are open?

A connection belongs to one owner: it is found only by owner, label, place and a digest of the
headers, so no owner uses another's session. Turns lease it; one that no turn leases is closed after
a while, or at once when another is needed and there is no room. The number is limited, for each
owner and in all.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from antiphon.tools.mcp.endpoints import Endpoint
from antiphon.tools.mcp.faults import McpFault, protocol_fault
from antiphon.tools.mcp.loading import HOW_TO, load_connection
from antiphon.tools.mcp.settings import McpSettings

if TYPE_CHECKING:
    from antiphon.tools.mcp.connection import Connection

__all__ = ["McpPool"]


class _Key(NamedTuple):
    """Who uses what: the endpoint's part is its label, its place and a digest of its headers."""

    owner: str
    endpoint: tuple[str, str, bytes]


class _Slot:
    """A connection, or the place of one that is being opened."""

    def __init__(self) -> None:
        self.connection: Connection | None = None
        self.lock = asyncio.Lock()
        self.leases = 0
        self.timer: asyncio.TimerHandle | None = None


class McpPool:
    """The connections of this process. It belongs to the event loop it is used in."""

    def __init__(self, settings: McpSettings) -> None:
        self._settings = settings
        self._slots: dict[_Key, _Slot] = {}
        self._closing: set[asyncio.Task[Any]] = set()
        self._is_closed = False

    def __len__(self) -> int:
        return len(self._slots)

    @asynccontextmanager
    async def lease(self, owner: str, endpoint: Endpoint) -> AsyncIterator[Connection]:
        """Yield an open connection to the endpoint. Raise McpFault if there can be none."""
        key = _Key(owner, endpoint.key)
        slot = self._slots.get(key)
        if slot is None:
            self._make_room(owner)
            slot = self._slots[key] = _Slot()
        slot.leases += 1
        if slot.timer is not None:
            slot.timer.cancel()
            slot.timer = None
        try:
            yield await self._opened(slot, endpoint)
        finally:
            slot.leases -= 1
            if not slot.leases:
                self._rest(key, slot)

    def let_finish(self, task: asyncio.Task[Any]) -> None:
        """Keep a cancelled task until it has closed what it holds. No turn waits for it."""
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        """Close every connection."""
        self._is_closed = True
        for key in list(self._slots):
            self._drop(key)
        if self._closing:
            await asyncio.wait(self._closing)

    async def _opened(self, slot: _Slot, endpoint: Endpoint) -> Connection:
        async with slot.lock:
            found = slot.connection
            if found is not None and found.is_open:
                return found
            slot.connection = None
            fresh = await self._make(endpoint)
            await fresh.open()
            slot.connection = fresh
            return fresh

    async def _make(self, endpoint: Endpoint) -> Connection:
        try:
            kind = await load_connection()
        except ImportError:
            raise protocol_fault(HOW_TO) from None
        return kind(endpoint, self._settings.body_bytes)

    def _make_room(self, owner: str) -> None:
        """Close a connection that is not in use, if there are too many; raise if all are."""
        if self._is_closed:
            raise protocol_fault("the gateway is about to end")
        settings = self._settings
        mine = sum(key.owner == owner for key in self._slots)
        if mine >= settings.owner_connections and not self._drop_idle(
            lambda key: key.owner == owner
        ):
            raise _too_many(settings.owner_connections, "of yours ")
        if len(self._slots) >= settings.connections and not self._drop_idle(lambda key: True):
            raise _too_many(settings.connections, "")

    def _drop_idle(self, is_meant: Callable[[_Key], bool]) -> bool:
        """Close the connection that was opened first of those that are not in use."""
        for key, slot in self._slots.items():
            if not slot.leases and is_meant(key):
                self._drop(key)
                return True
        return False

    def _rest(self, key: _Key, slot: _Slot) -> None:
        """Keep a connection for the next turn, for a while; drop one that is not open."""
        if self._slots.get(key) is not slot:
            return
        if slot.connection is None or not slot.connection.is_open:
            self._drop(key)
            return
        loop = asyncio.get_running_loop()
        slot.timer = loop.call_later(self._settings.idle_seconds, self._drop, key)

    def _drop(self, key: _Key) -> None:
        slot = self._slots.pop(key, None)
        if slot is None:
            return
        if slot.timer is not None:
            slot.timer.cancel()
        if slot.connection is not None:
            self.let_finish(asyncio.get_running_loop().create_task(slot.connection.close()))


def _too_many(most: int, whose: str) -> McpFault:
    return protocol_fault(f"{most} connections {whose}to MCP servers are in use; try again later")
