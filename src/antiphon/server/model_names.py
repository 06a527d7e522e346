"""Under which name is a model counted? The set of names is closed and small.

A name that neither the settings nor the list of a provider has is `other`: callers could invent
any number of them. The first names that are used have places of their own, up to a limit that all
workers share; further ones are `other` too. A name that has a place keeps it.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from typing import Final

__all__ = ["MOST_NAMES", "OTHER", "ModelNames"]

OTHER: Final = "other"
MOST_NAMES: Final = 200


class ModelNames:
    """The names in use. `find` returns the name that a model is known by, None if it is unknown."""

    def __init__(self, find: Callable[[str], str | None], most: int = MOST_NAMES) -> None:
        self._find = find
        self._most = most
        self._known: dict[str, str] = {}
        self._used: set[str] = set()
        self._is_full = False
        self.others: Callable[[], Set[str]] = set
        """Returns the names that other workers use."""

    def name_of(self, model: str) -> str:
        """Return the name under which a model is counted."""
        known = self._known.get(model)
        if known is not None:
            return known
        found = self._find(model)
        if found is None or (found not in self._used and not self._has_room(found)):
            return OTHER
        self._used.add(found)
        if found == model:  # callers may invent any number of names that fit a pattern
            self._known[model] = found
        return found

    def _has_room(self, name: str) -> bool:
        if self._is_full:
            return False
        used = self._used | self.others()
        self._is_full = len(used - {OTHER}) >= self._most
        return not self._is_full or name in used
