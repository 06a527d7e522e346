"""A dict of a fixed size, which forgets the entry that was used longest ago."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import TypeVar

__all__ = ["LastUsed"]

_K = TypeVar("_K", bound=Hashable)
_V = TypeVar("_V")


class LastUsed(OrderedDict[_K, _V]):
    """The entries used last, `size` of them at most. Not safe to use from several threads."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self._size = size

    def find(self, key: _K) -> _V | None:
        """Return an entry, which counts as use; None if there is none."""
        if key not in self:
            return None
        self.move_to_end(key)
        return self[key]

    def keep(self, key: _K, value: _V) -> None:
        """Add an entry, or put it in the place of the one that is there."""
        self[key] = value
        self.move_to_end(key)
        if len(self) > self._size:
            self.popitem(last=False)
