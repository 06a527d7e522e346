"""A conversation that remembers what was made of it, so that its next turn need not begin anew.

A thread is a tuple of items that never changes. `grow` gives a longer one, which knows what is
known of the shorter: whoever looks through all items (which tools they carry, how they are said
to a model) leaves behind how far it came, and goes on from there. What is left behind is never
changed either, so two threads that grow from one do not see each other's.

Nothing here decides who remembers a thread, or for how long.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any, Final, Self, TypeVar

from antiphon.protocol.items import Item

__all__ = ["Thread"]

_S = TypeVar("_S")

# What is shorter is read and written anew as quickly as it is remembered.
_LONG: Final = 16 * 1024


class Thread(tuple[Item, ...]):
    """The items of a conversation. `weight` is how many bytes they are as JSON."""

    weight: int
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

    def recall(self, key: Hashable) -> Any:  # Any: as it was learned
        """Return what was learned under this key of these items, or of the first of them."""
        return self._known.get(key)

    def learn(self, key: Hashable, what: object) -> None:
        """Keep what was learned of these items, or of the first of them, instead of less.

        It must not change any more. Whoever learns has one key, so there are few.
        """
        self._known[key] = what

    def fold(self, key: Hashable, start: _S, step: Callable[[_S, int, Item], _S]) -> _S:
        """Return what `step` makes of all items, one after the other; it sees each only once."""
        begin, state = self._known.get(key) or (0, start)
        for index in range(begin, len(self)):
            state = step(state, index, self[index])
        self.learn(key, (len(self), state))
        return state
