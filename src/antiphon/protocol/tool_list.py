"""Tool lists that were read before, found again by their bytes.

An agent sends the same toolbox with every request: often two dozen tools and more bytes than
the rest of the request. Reading, checking and translating it costs more than the turn itself,
so a list that was read once is kept, together with what was derived from it. The key is the
exact text of the list, so nothing of one caller is shown to another who did not send the same.

A kept list and its tools are shared between requests: nobody may change them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from itertools import islice
from typing import Any, Final, TypeVar

import msgspec

from antiphon.protocol.tools import Tool

__all__ = ["LONGEST", "SHORTEST", "Derived", "KeptLists", "ToolList", "WrittenTools", "types_of"]

SHORTEST: Final = 1024
"""A shorter list is read again as quickly as it is found."""
LONGEST: Final = 128 * 1024
"""A longer list is not kept, which bounds the memory."""
_MOST: Final = 32

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


class WrittenTools(list[Tool]):
    """The tools of responses, and their JSON: each response repeats it in several places."""

    def __init__(self, tools: Iterable[Tool]) -> None:
        super().__init__(tools)
        self.json = msgspec.Raw(msgspec.json.encode(self))
        self.derived = Derived()


def types_of(tools: list[Tool] | None) -> frozenset[str]:
    """Return the types of these tools."""
    if isinstance(tools, ToolList | WrittenTools):
        return tools.derived.get(types_of, lambda: _types_of(tools))
    return _types_of(tools or [])


def _types_of(tools: list[Tool]) -> frozenset[str]:
    return frozenset(str(tool.get("type", "")) for tool in tools)


class KeptLists:
    """The lists that were read last, the latest first.

    Threads may share it: what is kept is replaced as a whole, so at worst a list is forgotten.
    """

    def __init__(self) -> None:
        self._kept: tuple[tuple[bytes, ToolList], ...] = ()

    def find(self, data: bytes, start: int) -> tuple[bytes, ToolList] | None:
        """Return the list whose text stands at this place of a body, with that text.

        A text is a whole JSON array, so the value at that place is no longer than it.
        """
        for entry in self._kept:
            if data.startswith(entry[0], start):
                if entry is not self._kept[0]:
                    self._put_first(entry)
                return entry
        return None

    def read(self, text: bytes, make: Callable[[bytes], ToolList]) -> ToolList:
        """Return the list with this text, as it was kept or as `make` reads it."""
        found = self.find(text, 0)
        if found is not None:
            return found[1]
        tools = make(text)
        self._put_first((text, tools))
        return tools

    def _put_first(self, entry: tuple[bytes, ToolList]) -> None:
        others = (one for one in self._kept if one is not entry)
        self._kept = (entry, *islice(others, _MOST - 1))
