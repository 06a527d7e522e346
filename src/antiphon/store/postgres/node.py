"""Is this gateway alive, in the view of all that share the database?

The unfinished turns of a store carry its name, and a row under that name holds a lease, by the
database's clock. The store renews the lease every second on a connection of its own, which also
receives notifications. Any node may claim a turn whose writer's lease has expired; the row of
the turn then names another writer, and this prevents two nodes from writing. A node that was
disconnected and finds its turns unclaimed continues them.

When the database was unreachable for longer than a lease, all leases have expired although no
node has died. So a node trusts an expired lease only after it has renewed its own without a
break for some time: every other living node has renewed its lease by then.
"""

from __future__ import annotations

import asyncio
import math
import secrets
import time
from contextlib import suppress
from typing import Final

from antiphon.protocol.errors import StoreUnavailable
from antiphon.store.postgres.bell import CHANNEL
from antiphon.store.postgres.database import Connection, Database
from antiphon.store.postgres.errors import FAULTS, is_away, unavailable
from antiphon.store.waiting import Waiters

__all__ = ["LEASE", "LEASE_SECONDS", "Node", "sweep_nodes"]

LEASE_SECONDS: Final = 5.0
LEASE: Final = (
    "EXISTS (SELECT FROM nodes WHERE name = $1 AND nodes.lease_until > clock_timestamp())"
)

_BEAT_SECONDS: Final = 1.0
_BEAT_LIMIT: Final = 2.0
_RETRY_SECONDS: Final = 0.25
# Longer between two renewals, and others may have missed theirs for the same reason.
_BREAK_SECONDS: Final = _BEAT_SECONDS + _BEAT_LIMIT
_STEADY_SECONDS: Final = LEASE_SECONDS

_RENEW: Final = (
    "INSERT INTO nodes (name, lease_until)"
    " VALUES ($1, clock_timestamp() + $2 * interval '1 second')"
    " ON CONFLICT (name) DO UPDATE SET lease_until = excluded.lease_until"
)


class Node:
    """The sign of life of one store. Its notifications wake `waiters`.

    `patience` is how long a caller waits for a lease. A renewal in the background has less time,
    so that another one fits into the lease.
    """

    def __init__(self, database: Database, waiters: Waiters, patience: float) -> None:
        self.name = secrets.token_hex(8)
        self.is_listening = False
        self._database = database
        self._waiters = waiters
        self._patience = patience
        self._good_until = 0.0
        self._renewed_at = -math.inf
        self._steady_since = math.inf
        self._away: StoreUnavailable | None = None
        self._away_since: float | None = None
        self._connection: Connection | None = None
        self._task: asyncio.Task[None] | None = None
        self._beating = asyncio.Lock()
        self._ensuring = asyncio.Lock()
        self._lost = asyncio.Event()
        self._is_closed = False

    async def ensure(self) -> str:
        """Return the name, with a lease that is good as far as we know.

        A database that is away is waited for, as `Database` does. Raise StoreUnavailable if the
        lease cannot be renewed.
        """
        if not self._is_good():
            await self._persist()
        return self.name

    @property
    def is_steady(self) -> bool:
        """Whether the lease was renewed without a break for long enough to trust expired leases."""
        return self._is_good() and time.monotonic() - self._steady_since >= _STEADY_SECONDS

    async def renew(self) -> None:
        """Renew the lease now; raise StoreUnavailable if that does not work."""
        try:
            await self._beat(self._patience)
        except FAULTS as error:
            self._drop()
            raise unavailable(error) from error
        if self._task is None and not self._is_closed:
            self._task = asyncio.create_task(self._live())

    async def _persist(self) -> None:
        """Renew the lease; retry while the database is away and in time."""
        start = time.monotonic()
        try:
            async with asyncio.timeout(self._patience), self._ensuring:
                while not self._is_good():
                    try:
                        await self.renew()
                    except StoreUnavailable as error:
                        if not _is_about_away(error) or self._is_long_away(start):
                            raise
                        self._away = error
                        await asyncio.sleep(_RETRY_SECONDS)
        except TimeoutError as error:
            # The reason for the retries, ours or another caller's, is more helpful.
            raise unavailable(self._away or error) from error

    def _is_long_away(self, now: float) -> bool:
        self._away_since = self._away_since or now
        return now - self._away_since > self._patience

    async def close(self) -> None:
        """Give up the lease: unfinished turns may be claimed at once."""
        self._is_closed = True
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        with suppress(TimeoutError):
            # A renewal in progress would insert the lease again.
            async with asyncio.timeout(_BEAT_LIMIT), self._beating:
                await self._leave()
        self._drop()

    async def _leave(self) -> None:
        self._good_until = 0.0
        connection = self._connection
        if connection is not None:
            with suppress(*FAULTS):
                async with asyncio.timeout(_BEAT_LIMIT):
                    await connection.execute("DELETE FROM nodes WHERE name = $1", self.name)

    def _is_good(self) -> bool:
        return time.monotonic() < self._good_until

    async def _live(self) -> None:
        pause = _BEAT_SECONDS
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._lost.wait()
                    await asyncio.sleep(_RETRY_SECONDS)
            try:
                await self._beat(_BEAT_LIMIT)
                pause = _BEAT_SECONDS
            except (*FAULTS, StoreUnavailable):
                self._drop()
                pause = _RETRY_SECONDS

    async def _beat(self, limit: float) -> None:
        async with self._beating, asyncio.timeout(limit):
            if self._is_closed:
                raise StoreUnavailable("the store is closed")
            start = time.monotonic()
            if self._connection is None or self._connection.is_closed():
                await self._connect()
            assert self._connection is not None
            await self._connection.execute(_RENEW, self.name, LEASE_SECONDS)
            self._good_until = start + LEASE_SECONDS
            self._away = self._away_since = None
            now = time.monotonic()
            if now - self._renewed_at > _BREAK_SECONDS:
                self._steady_since = now
            self._renewed_at = now

    async def _connect(self) -> None:
        self._drop()
        self._renewed_at = -math.inf  # other nodes may have been disconnected for the same reason
        connection = await self._database.connect()
        self._connection = connection
        self._lost.clear()
        connection.add_termination_listener(self._disconnected)
        await connection.add_listener(CHANNEL, self._notified)
        self.is_listening = True

    def _notified(
        self, _connection: Connection, _process: int, _channel: str, payload: str
    ) -> None:
        self._waiters.wake(payload)

    def _disconnected(self, connection: Connection) -> None:
        if connection is self._connection:
            self.is_listening = False
            self._lost.set()
            # No notification arrives from here on: the waiters check for themselves.
            self._waiters.wake_all()

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        self.is_listening = False
        if connection is not None:
            connection.remove_termination_listener(self._disconnected)
            connection.terminate()
            self._waiters.wake_all()


def _is_about_away(error: StoreUnavailable) -> bool:
    return error.__cause__ is not None and is_away(error.__cause__)


async def sweep_nodes(connection: Connection) -> None:
    """Remove nodes that died long ago and have no unfinished turns."""
    await connection.execute(
        "DELETE FROM nodes WHERE lease_until < clock_timestamp() - interval '1 day'"
        " AND NOT EXISTS (SELECT FROM responses WHERE writer = nodes.name)"
    )
