"""Facet `turns`: a response from its beginning to its end."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import Protocol

from antiphon.protocol.items import Item
from antiphon.protocol.response import Response
from antiphon.store.base.entries import Entry
from antiphon.store.base.history import Admit
from antiphon.store.base.log import Batch

__all__ = ["Turns"]


class Turns(Protocol):
    """Begins, ends, returns and removes responses."""

    def begin(
        self,
        owner: str,
        response: Response,
        items: Sequence[Item],
        *,
        batch: Batch | None = None,
        request: bytes | None = None,
    ) -> Awaitable[None]:
        """Store a turn that has begun, with its own input items (all have ids).

        Ordered before the `append` and `finish` of the same response. With a `batch`, the
        first of its log, it is durable once this was awaited, else it need not be. `request` is
        kept until the end, for a store that claims the turn. A second begin of one id changes
        nothing.
        """
        ...

    async def forget(self, owner: str, response_id: str) -> None:
        """Undo the beginning of a response that was never shown to a client.

        Nothing happens if it does not exist, or if this store is not its writer. Its content is
        erased soon after, as if it had been deleted.
        """
        ...

    async def finish(
        self,
        owner: str,
        response: Response,
        *,
        batch: Batch | None = None,
        said: Sequence[Item] = (),
        entries: Sequence[Entry] = (),
    ) -> None:
        """Make the final state of a begun response durable. Its output is stored with it.

        All in one transaction: the last batch of its log, which is compressed; `said`, which is
        added to the conversation that the response has locked; the end of that lock; notices and
        other entries (see `entries`); the request that was kept to run it is removed. Raise
        TurnLost if the response does not exist, has already ended, or has another writer, and
        also if there is something to add and no such lock. An end that was stored is never
        overwritten.
        """
        ...

    async def get(
        self, owner: str, response_id: str, *, admit: Admit | None = None
    ) -> Response | None:
        """Return a response with its output, finished or not. Raise what `admit` raises."""
        ...

    async def delete(self, owner: str, response_id: str) -> bool:
        """Remove a response, its items and its log for good; return whether there was one.

        If it is still running, its writer gets TurnLost.
        """
        ...
