"""How is each kind of entry kept in memory? See `base.entries` for the rules.

Nothing can be rolled back here, so a function must not fail.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from antiphon.store.base import Entry, Notice
from antiphon.store.base.entries import group_entries

__all__ = ["MemoryEntries"]


class MemoryEntries:
    """Passes entries on to the facets of one store, each kind to its function."""

    def __init__(self, add_notices: Callable[[Sequence[Notice]], None]) -> None:
        # Any: a function gets the entries of its own kind.
        self.kinds: dict[type[Entry], Callable[[Sequence[Any]], None]] = {Notice: add_notices}

    def write(self, entries: Iterable[Entry]) -> None:
        """Keep entries of a turn that ends now."""
        for kind, some in group_entries(entries).items():
            self.kinds[kind](some)
