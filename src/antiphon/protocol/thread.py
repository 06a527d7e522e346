"""A conversation that remembers what was made of it, so that its next turn need not begin anew.

A thread is a tuple of items that never changes. `grow` gives a longer one, which knows what is
known of the shorter: whoever looks through all items (which tools they carry, how they are said
to a model) leaves behind how far it came, and goes on from there. What is left behind is never
changed either, so two threads that grow from one do not see each other's.

A caller that sends its whole context each time changes only the end of it. `with_tail` returns
such a context: what is learned of it is about the items before the tail, and the next one that
begins with these knows it too.

Nothing here decides who remembers a thread, or for how long.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any, Final, Self, TypeVar

from antiphon.protocol.items import Item, item_types

__all__ = ["Thread"]

_S = TypeVar("_S")

# What is shorter is read and written anew as quickly as it is remembered.
_LONG: Final = 16 * 1024


class Thread(tuple[Item, ...]):
    """The items of a conversation. `weight` is how many bytes they are as JSON, without a tail.

    What is learned is about the first `lasting` items at most: all but the tail, if it has one.
    """

    weight: int
    lasting: int
    _known: dict[Hashable, Any]  # Any: each kind of knowledge has a type of its own

    def __new__(
        cls,
        items: Iterable[Item] = (),
        weight: int = 0,
        known: Mapping[Hashable, Any] | None = None,
    ) -> Self:
        """Return the thread of these items, of whose beginning this much is known."""
        made = super().__new__(cls, items)
        made.weight = weight
        made.lasting = len(made)
        made._known = dict(known or {})
        return made

    @property
    def is_long(self) -> bool:
        """Whether it is worth remembering."""
        return self.weight >= _LONG

    @property
    def known(self) -> Mapping[Hashable, Any]:
        """What was learned of it, for a thread that begins with the same items."""
        return self._known

    def grow(self, items: Iterable[Item], weight: int = 0) -> Thread:
        """Return this thread with more items, of so many bytes, behind its own."""
        # Added, not unpacked: that is as quick as copying the pointers.
        return Thread(self + tuple(items), self.weight + weight, self._known)

    def with_tail(self, items: Iterable[Item]) -> Thread:
        """Return this thread with more items, which others that begin with it may not have.

        Both know the same: what is learned of one is known of the other.
        """
        made = Thread(self + tuple(items), self.weight)
        made.lasting = self.lasting
        made._known = self._known
        return made

    def recall(self, key: Hashable) -> Any:  # Any: as it was learned
        """Return what was learned under this key of these items, or of the first of them."""
        return self._known.get(key)

    def learn(self, key: Hashable, what: object) -> None:
        """Keep what was learned of the lasting items, or of the first of them, instead of less.

        It must not change any more. Whoever learns has one key, so there are few.
        """
        self._known[key] = what

    @property
    def types(self) -> frozenset[str]:
        """The types of its items. Each is looked at only once; those of a tail each time."""
        begin, known = self._known.get(item_types) or (0, frozenset())
        if begin < self.lasting:
            known = known.union(item_types(self[begin : self.lasting]))
            self.learn(item_types, (self.lasting, known))
        tail = self[self.lasting :]
        return known.union(item_types(tail)) if tail else known

    def fold(self, key: Hashable, start: _S, step: Callable[[_S, int, Item], _S]) -> _S:
        """Return what `step` makes of all items, one after the other; it sees each only once.

        Those of a tail it sees each time.
        """
        begin, state = self._known.get(key) or (0, start)
        for index in range(begin, self.lasting):
            state = step(state, index, self[index])
        self.learn(key, (self.lasting, state))
        for index in range(self.lasting, len(self)):
            state = step(state, index, self[index])
        return state
