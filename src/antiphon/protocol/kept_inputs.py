"""Inputs that were read before, of which only the new end is read again.

An agent sends its whole context with every request, and only the end of it is new. So the texts
of the items are kept in pieces of whole items, with the items themselves and all that was learned
of them (`protocol.thread`). A body whose input begins with the same bytes gets the same items.

The key is the exact text, and each owner has inputs of its own: nobody learns, not even from the
time an answer takes, what another one has sent. The last item of an input is never kept.

Kept items are shared between requests: nobody may change them. Nothing here decodes JSON.
"""

from __future__ import annotations

import re
import sys
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from threading import Lock
from typing import Final, NamedTuple

from antiphon.protocol.items import Item
from antiphon.protocol.thread import Thread

__all__ = [
    "PIECE_OF_ITEMS",
    "SHORTEST_BODY",
    "InputList",
    "Kept",
    "KeptInputs",
    "OwnInputs",
    "Piece",
    "wide_of",
]

SHORTEST_BODY: Final = 32 * 1024
"""The input of a shorter body is read as quickly as it is found."""
PIECE_OF_ITEMS: Final = 8 * 1024
"""A piece ends with the first item that makes it so long: always at the same places."""
_ROOM: Final = 64 * 1024 * 1024
_MOST: Final = 64
# What an input takes at most, about: its text, that again as items, as messages and as the rows of
# a store, and so much for the copies of each item and for the object of each value.
_BYTES_PER_BYTE: Final = 5
_BYTES_PER_ITEM: Final = 800
_BYTES_PER_VALUE: Final = 100
_NAME: Final = b'"input"'
_ESCAPE: Final = b"\\u"
_LIST: Final = re.compile(rb'"input"\s*:\s*\[')
# How often the name may stand in other places before the right one.
_PROBES: Final = 64


class InputList(list[Item]):
    """The input of a request, with its items as a thread whose lasting items are kept."""

    def __init__(self, thread: Thread) -> None:
        super().__init__(thread)
        self.thread = thread


class Piece(NamedTuple):
    """The text of some items with a comma after each, and how many items and values are in it.

    Its strings take `wide` bytes more than those of plain text.
    """

    text: bytes
    items: int
    nodes: int
    wide: int


def wide_of(text: bytes) -> int:
    """Return how many bytes more than those of plain text the strings of a text take at most.

    One character beyond ASCII makes every character of a string wider, by four bytes at most, and
    encoding such a string keeps its UTF-8 in memory too. For a long text the most is assumed.
    """
    is_escaped = _ESCAPE in text
    if text.isascii() and not is_escaped:
        return 0
    is_short = len(text) <= 4 * PIECE_OF_ITEMS
    return sys.getsizeof(text.decode()) if is_short and not is_escaped else 4 * len(text)


class Kept:
    """The beginning of an input. It never changes, but for what its thread learns."""

    def __init__(self, pieces: Sequence[Piece] = (), thread: Thread | None = None) -> None:
        self.pieces = tuple(pieces)
        self.thread = Thread() if thread is None else thread

    @property
    def size(self) -> int:
        """How long its text is."""
        return self.thread.weight

    @property
    def nodes(self) -> int:
        """How many values are in its items, with the items."""
        return sum(piece.nodes for piece in self.pieces)

    @property
    def room(self) -> int:
        """How much memory it takes at most, about."""
        objects = len(self.thread) * _BYTES_PER_ITEM + self.nodes * _BYTES_PER_VALUE
        wide = sum(piece.wide for piece in self.pieces)
        return self.thread.weight * _BYTES_PER_BYTE + wide + objects

    def shared(self, data: bytes, start: int) -> int:
        """Return how many of its pieces stand at this place of a body, one after the other."""
        for count, piece in enumerate(self.pieces):
            if not data.startswith(piece.text, start):
                return count
            start += len(piece.text)
        return len(self.pieces)

    def first(self, count: int) -> Kept:
        """Return the beginning of it with so many pieces; all of it is itself."""
        if count == len(self.pieces):
            return self
        pieces = self.pieces[:count]
        items = sum(piece.items for piece in pieces)
        weight = sum(len(piece.text) for piece in pieces)
        return Kept(pieces, Thread(self.thread[:items], weight))

    def grow(self, pieces: Sequence[Piece], items: Sequence[Item]) -> Kept:
        """Return it with further pieces, and what is known of it."""
        if not pieces:
            return self
        weight = sum(len(piece.text) for piece in pieces)
        return Kept((*self.pieces, *pieces), self.thread.grow(items, weight))


class KeptInputs:
    """The inputs that were used last, by owner. `room` is how many bytes they may take, about.

    Threads may share it.
    """

    def __init__(self, room: int = _ROOM) -> None:
        self._room = room
        self._taken = 0
        self._lock = Lock()
        self._owners: OrderedDict[Kept, str] = OrderedDict()

    @property
    def count(self) -> int:
        """How many inputs are kept."""
        return len(self._owners)

    def of(self, owner: str) -> OwnInputs:
        """Return those of one owner."""
        return OwnInputs(self, owner)

    def those_of(self, owner: str) -> list[Kept]:
        """Return the inputs of an owner."""
        with self._lock:
            return [kept for kept, its in self._owners.items() if its == owner]

    def put(self, owner: str, kept: Kept, before: Kept) -> None:
        """Keep an input as the one that was used last, instead of what it was before it grew."""
        with self._lock:
            self._forget(before)
            self._forget(kept)
            if kept.room > self._room:
                return  # it would push out all others, and then itself
            self._owners[kept] = owner
            self._taken += kept.room
            while self._taken > self._room or len(self._owners) > _MOST:
                self._forget(next(iter(self._owners)))

    def _forget(self, kept: Kept) -> None:
        if self._owners.pop(kept, None) is not None:
            self._taken -= kept.room


class OwnInputs:
    """The inputs of one owner."""

    def __init__(self, kept: KeptInputs, owner: str) -> None:
        self._kept = kept
        self._owner = owner

    def find(self, data: bytes) -> tuple[int, Kept] | None:
        """Return where the items of a list under the name of the input begin, and what is kept.

        None if nothing is. The list may also stand deeper in the body.
        """
        known = self._kept.those_of(self._owner)
        for start in _places(data) if known else ():
            count, _, kept = max(
                ((one.shared(data, start), -len(one.pieces), one) for one in known), key=_length
            )
            if count:
                return start, kept.first(count)
        return None

    def put(self, kept: Kept, before: Kept) -> None:
        """Keep an input as the one that was used last, instead of what it was before it grew."""
        self._kept.put(self._owner, kept, before)


def _length(found: tuple[int, int, Kept]) -> tuple[int, int]:
    """Return what is longest: of those that share as much, the one that has the least beyond it."""
    return found[:2]


def _places(data: bytes) -> Iterator[int]:
    """Yield where the items of lists begin that have the name of the input."""
    place = data.find(_NAME)
    for _ in range(_PROBES):
        if place < 0:
            return
        found = _LIST.match(data, place)
        if found is not None:
            yield found.end()
        place = data.find(_NAME, place + 1)
