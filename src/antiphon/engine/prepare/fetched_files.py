"""What was at the address of a file when it was first read? Remembered for the next turns.

A conversation has its addresses in every turn. One that a model has answered to already is not
fetched again: the model is shown the file as it was, also if the address has expired since. The
last files are kept in this process, for each owner alone, within limits on size and time.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

from antiphon.protocol.items import Item, item_type
from antiphon.tools.web.fetch import Fetched

__all__ = ["FetchedFiles", "count_answered"]

_MOST_KEPT: Final = 64 * 1024 * 1024  # bytes
_SECONDS: Final = 3600
_MADE: Final = frozenset({"reasoning", "function_call", "custom_tool_call"})

_Key = tuple[str, str]
"""An owner and an address."""


class FetchedFiles:
    """The files that were fetched last."""

    def __init__(self) -> None:
        self._kept: OrderedDict[_Key, tuple[int, Fetched]] = OrderedDict()
        self._size = 0

    def find(self, owner: str, url: str, now: int) -> Fetched | None:
        """Return what was fetched for this owner; None if it is not remembered."""
        when, found = self._kept.get((owner, url), (0, None))
        if found is None or now - when > _SECONDS:
            return None
        self._kept.move_to_end((owner, url))
        return found

    def keep(self, owner: str, url: str, found: Fetched, now: int) -> None:
        """Remember what was fetched, in place of what was there before."""
        _, before = self._kept.pop((owner, url), (0, None))
        self._size += len(found.body) - (len(before.body) if before is not None else 0)
        self._kept[owner, url] = now, found
        while self._size > _MOST_KEPT:
            _, (_, oldest) = self._kept.popitem(last=False)
            self._size -= len(oldest.body)


def count_answered(items: Sequence[Item]) -> int:
    """Return how many of the first items come before something that a model has written."""
    places = (place for place in range(len(items) - 1, -1, -1) if _is_of_model(items[place]))
    return next(places, 0)


def _is_of_model(item: Item) -> bool:
    return item.get("role") == "assistant" or item_type(item) in _MADE
