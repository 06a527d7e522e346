"""Facet `history`: the items of a turn, and of the chain of turns that leads to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

import msgspec

from antiphon.protocol.items import Item

__all__ = ["MAX_DEPTH", "Admit", "Histories", "History", "Size"]

# A chain is followed this far; the turn after that is reported as missing.
MAX_DEPTH: Final = 100_000


class Size(NamedTuple):
    """The number of items, and their size in bytes as JSON."""

    items: int
    bytes: int


Admit = Callable[[Size], None]
"""Receives the size of the items that are about to be read, possibly in another thread.

Raises an AntiphonError to refuse them: then none of them is read.
"""


class History(msgspec.Struct, frozen=True):
    """The items of a chain of turns, oldest first, and the status of its head.

    `missing` is the id of an ancestor that was removed: the items are then incomplete.
    `weight` is the size of the items in bytes as JSON, `turns` the number of turns they come
    from, and `removals` the value of `Histories.removals` when they were read.
    """

    items: list[Item]
    status: str
    missing: str | None = None
    weight: int = 0
    turns: int = 0
    removals: int = 0


class Histories(Protocol):
    """Reads the items of turns."""

    async def history(
        self, owner: str, response_id: str, *, admit: Admit | None = None
    ) -> History | None:
        """Return input and output items of the whole chain that ends in this response.

        Raise what `admit` raises.
        """
        ...

    async def removals(self) -> int:
        """Return a number that grows whenever any process removes a response.

        While it is the same, the history of every ended response is the same.
        """
        ...

    async def input_items(
        self, owner: str, response_id: str, *, admit: Admit | None = None
    ) -> list[Item] | None:
        """Return the turn's own input items in order, or None if there is no such response."""
        ...

    async def find_item(self, owner: str, item_id: str) -> Item | None:
        """Return the newest item with this id; one of a response before one of a conversation."""
        ...
