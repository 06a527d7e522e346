"""Tool lists that were read before, found again by their bytes.

An agent sends the same toolbox with every request: often two dozen tools and more bytes than
the rest of the request. Reading, checking and translating it costs more than the turn itself,
so a list that was read once is kept, together with what was derived from it. The key is the
exact text of the list, so nothing of one caller is shown to another who did not send the same.

A kept list and its tools are shared between requests: nobody may change them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Any, Final, TypeVar

from antiphon.protocol.tools import Tool

__all__ = ["LONGEST", "SHORTEST", "Derived", "ToolList"]

SHORTEST: Final = 1024
"""A shorter list is read again as quickly as it is found."""
LONGEST: Final = 128 * 1024
"""A longer list is not kept, which bounds the memory."""

_T = TypeVar("_T")


class Derived:
    """What was derived from a value that does not change, each thing under a key of its own."""

    def __init__(self) -> None:
        self._known: dict[Hashable, Any] = {}  # each key has a type of its own

    def get(self, key: Hashable, make: Callable[[], _T]) -> _T:
        """Return what `make` returned for this key before, or call it. It must not be changed."""
        found: _T | None = self._known.get(key)
        if found is None:
            found = self._known[key] = make()
        return found


class ToolList(list[Tool]):
    """The tools of a request. `nodes` counts the JSON values in it."""

    def __init__(self, tools: Iterable[Tool], nodes: int) -> None:
        super().__init__(tools)
        self.nodes = nodes
        self.is_checked = False
        """Whether a request with these tools was found to be valid."""
        self.derived = Derived()
