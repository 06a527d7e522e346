"""Facet `log`: the events of a response, as they were sent."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import NamedTuple, Protocol

import msgspec

from antiphon.protocol.response import Response

__all__ = ["Batch", "Log", "Logs"]


class Batch(NamedTuple):
    """Events of a log that were appended together, packed (see `protocol.machines.log`)."""

    first: int
    """The sequence number of the first event, and of the last."""
    last: int
    body: bytes


class Log(msgspec.Struct, frozen=True):
    """The log of a response from one sequence number on.

    `response` is the response as it is now, with its output if it has ended. Without
    `is_kept` the turn keeps no log (it was not streamed): its events follow from the response.
    """

    response: Response
    batches: list[Batch]
    is_kept: bool


class Logs(Protocol):
    """Appends to the logs of running responses, and reads the logs of all."""

    def append(
        self, owner: str, response_id: str, batch: Batch, *, status: str | None = None
    ) -> Awaitable[bool]:
        """Add to the log of a begun response; the batch is durable once this was awaited.

        `status` is the new status, if it changed. Return whether a cancellation was requested.
        Raise TurnLost if this store is not the writer of the response.
        """
        ...

    async def read_log(self, owner: str, response_id: str, after: int = -1) -> Log | None:
        """Return every batch that has an event after the sequence number `after`, in order."""
        ...

    async def sweep_logs(self, before: int, limit: int) -> int:
        """Remove the logs of responses that have ended and were created before this time.

        At most `limit`; return how many. The responses stay: their events follow from them.
        """
        ...

    async def wait(self, response_id: str, seconds: float) -> None:
        """Return when the response may have changed, after `seconds` at the latest.

        A hint: it may return early, and nothing may have changed.
        """
        ...
