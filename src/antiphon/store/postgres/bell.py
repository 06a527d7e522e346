"""How do the callers that wait on other nodes hear that a response has changed?

By NOTIFY, after the commit and never inside it: a transaction that notifies holds a lock of the
whole database until it is durable, and the commits of all nodes would wait for each other. What
changes within a moment is notified together, in a transaction that does not wait for the disk.

A notification is a hint. If a node dies between its commit and the notification, those who wait
look again when their time is over.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

from antiphon.protocol.errors import StoreUnavailable
from antiphon.store.postgres.database import Database
from antiphon.store.waiting import Waiters

__all__ = ["CHANNEL", "Bell"]

CHANNEL: Final = "antiphon"
_PAUSE_SECONDS: Final = 0.02
# A notification that is delayed by a database that is away is of no use any more.
_MAX_WAITING: Final = 10_000

_RING: Final = f"""
    WITH quick AS MATERIALIZED (SELECT set_config('synchronous_commit', 'off', true))
    SELECT pg_notify('{CHANNEL}', changed.id) FROM quick, unnest($1::text[]) AS changed (id)
"""  # noqa: S608 # constants


class Bell:
    """Wakes those who wait for a response, here at once, and on other nodes a moment later."""

    def __init__(self, database: Database, waiters: Waiters) -> None:
        self._database = database
        self._waiters = waiters
        self._changed: dict[str, None] = {}
        self._ringing: asyncio.Task[None] | None = None

    def ring(self, response_id: str) -> None:
        """Wake the waiters of this response. Its change must be committed."""
        self._waiters.wake(response_id)
        if len(self._changed) < _MAX_WAITING:
            self._changed[response_id] = None
        if self._ringing is None:
            self._ringing = asyncio.create_task(self._ring())

    async def close(self) -> None:
        """Return when everything that was rung is notified."""
        if self._ringing is not None:
            await self._ringing

    async def _ring(self) -> None:
        """Notify until nothing has changed for a moment."""
        try:
            while self._changed:
                changed, self._changed = list(self._changed), {}
                with suppress(StoreUnavailable):  # only a hint: those who wait look again
                    await self._database.ask_rows(_RING, changed)
                await asyncio.sleep(_PAUSE_SECONDS)
        finally:
            self._ringing = None
