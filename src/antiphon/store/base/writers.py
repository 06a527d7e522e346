"""Facet `writers`: what the processes that share a store ask of each other.

The writer of a turn learns that it shall cancel it. A writer that has died is replaced.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from antiphon.protocol.response import Response
from antiphon.store.base.log import Batch

__all__ = ["Orphan", "Writers"]


class Orphan(msgspec.Struct, frozen=True):
    """An unfinished response whose writer has died. The store that claimed it is its writer now.

    `batches` is its log so far, `request` what was kept to run it, if it is in the background.
    """

    owner: str
    response: Response
    batches: list[Batch]
    request: bytes | None = None
    is_cancelled: bool = False


class Writers(Protocol):
    """Passes on cancellations, and the turns of processes that have died."""

    async def ask_cancel(self, owner: str, response_id: str) -> bool:
        """Ask the writer of an unfinished response to cancel it; return whether there is one."""
        ...

    async def asked_cancels(self) -> list[tuple[str, str]]:
        """Return owner and id of the responses of this store that it was asked to cancel."""
        ...

    async def count_alive(self) -> int:
        """Return how many processes use this store now, with this one."""
        ...

    async def claim_orphans(self, limit: int) -> list[Orphan]:
        """Become the writer of unfinished responses whose writer has died, oldest first.

        The turns of this store, and of others that are alive on the same database, go on.
        Durable on return; no two stores claim the same one.
        """
        ...
