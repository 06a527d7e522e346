"""Facet `trees`: which responses continue which?

A response that continues another one names it as its parent. One that was continued twice is
where two branches part. A tree is listed in the order in which its turns began, so a parent always
comes before its children, and a page goes on after any of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from antiphon.protocol.items import Item
from antiphon.protocol.response import Response

__all__ = ["TreeNode", "Trees"]


class TreeNode(msgspec.Struct, frozen=True, kw_only=True):
    """One response of a tree."""

    response: Response
    """Without its output."""
    children: int
    """How many responses continue it."""
    last_input: Item | None
    """The last of its own input items; None if it is very long, or there is none."""


class Trees(Protocol):
    """Walks along the parents of responses."""

    async def root(self, owner: str, response_id: str) -> str | None:
        """Return the oldest ancestor that is stored; None if there is no such response."""
        ...

    async def page(
        self, owner: str, roots: Sequence[str], *, after: str | None = None, limit: int
    ) -> list[TreeNode]:
        """Return these responses and all that continue them, as they began, after one of them.

        Raise KeyError if there is no response `after`.
        """
        ...
