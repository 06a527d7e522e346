"""Facet `notices`: which endpoints must still be informed of what has happened."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from antiphon.store.base.entries import Entry

__all__ = ["Notice", "Notices"]


class Notice(Entry, frozen=True):
    """An endpoint must be informed how a response ended. `id` is the same at every attempt.

    `endpoint` is the name of the receiver; each endpoint has a notice of its own. A notice that is
    not about a response has its data, as JSON, in the place of `response_id`.
    """

    id: str
    owner: str
    response_id: str
    type: str
    created_at: int
    endpoint: str
    attempts: int = 0


class Notices(Protocol):
    """The notices that were not delivered yet. Rows are added by `Turns.finish` and `add_once`.

    A new notice is due at once. `Store.sweep` removes those created before its first time: the
    endpoint may have been removed from the settings. `Turns.delete` of the response keeps them.
    """

    async def take(self, endpoint: str, now: int, hide_until: int, limit: int) -> list[Notice]:
        """Return notices of this endpoint that are due, oldest first, and hide them until then.

        `attempts` of each is incremented, durable on return: it numbers this attempt.
        """
        ...

    async def add_once(self, mark: str, value: int, notices: Sequence[Notice]) -> bool:
        """Store notices, unless this value or a higher one was noted under the mark before.

        Both are one transaction. Return whether they were stored.
        """
        ...

    async def postpone(self, notice_id: str, until: int) -> None:
        """Make the notice due again at this time."""
        ...

    async def settle(self, notice_id: str) -> None:
        """Remove the notice: it was delivered, or given up."""
        ...
