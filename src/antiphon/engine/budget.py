"""How much memory may the requests of this process take together, and one owner of it?

Every request, context and stream reserves what it is going to take before it takes it. What
does not fit is refused with 503 and `Retry-After`, so the process never needs more than its
budget. The rule that keeps it fair: an owner may hold at most four times what would then still be
free. Alone, an owner can have four fifths; the more owners there are, the smaller the shares,
and there is always something left for the next one.

Sizes are estimates: bytes on the wire times the number of copies that are made of them.
Reserving is safe in any thread.
"""

from __future__ import annotations

import threading
from typing import Final

from antiphon.protocol.errors import BodyTooLarge, Overloaded

__all__ = ["COPIES", "Budget", "Hold"]

COPIES: Final = 4
"""Copies of the bytes of a request while its turn begins, as measured.

As they came, decoded, as the upstream gets them, and as the store gets them.
"""

_SHARE: Final = 4
# So many characters of output need no memory of their own; for more it is reserved in such steps.
_SMALL_OUTPUT: Final = 64 * 1024


class Budget:
    """The bytes that may be held at once. One per process."""

    def __init__(self, total: int) -> None:
        self.total = total
        self._used = 0
        self._owners: dict[str, int] = {}
        self._lock = threading.Lock()

    @property
    def used(self) -> int:
        """How many bytes are held."""
        return self._used

    @property
    def largest(self) -> int:
        """How many bytes one owner can hold who is alone here."""
        return self.total * _SHARE // (_SHARE + 1)

    def hold(self, owner: str, size: int = 0) -> Hold:
        """Reserve so many bytes for an owner. Raise Overloaded if they are not free.

        Raise BodyTooLarge if they never will be.
        """
        hold = Hold(self, owner)
        if size:
            hold.resize(size)
        return hold

    def _change(self, hold: Hold, size: int, *, is_last: bool = False) -> None:
        """Let one hold have this size, for good if it is the last change."""
        if not is_last and size > self.largest:
            raise BodyTooLarge(
                f"this needs about {size} bytes of memory, and one request may have "
                f"{self.largest} here (memory_bytes)"
            )
        with self._lock:
            before, owner = hold.size, hold._owner
            used = self._used - before + size
            held = self._owners.get(owner, 0) - before + size
            if size > before:
                if hold._is_released:
                    raise Overloaded("the request has already ended")
                if held > _SHARE * (self.total - used):
                    raise Overloaded("the memory for requests is in use; try again in a moment")
            hold.size = size
            if is_last:
                hold._is_released = True
            self._used = used
            if held:
                self._owners[owner] = held
            else:
                self._owners.pop(owner, None)


class Hold:
    """What one request has reserved. It is released once, when the request ends.

    A thread may still work for a request whose client has left; it can reserve nothing then.
    """

    __slots__ = ("_budget", "_is_released", "_output", "_owner", "size")

    def __init__(self, budget: Budget, owner: str) -> None:
        self._budget = budget
        self._owner = owner
        self.size = 0
        """How many bytes are reserved; changed by `resize`."""
        self._is_released = False
        self._output = _SMALL_OUTPUT  # for how many characters of the model there is memory

    def resize(self, size: int) -> None:
        """Hold so many bytes instead. Raise Overloaded if they are not free; then keep the rest."""
        if size != self.size:
            self._budget._change(self, size)

    def reserve_output(self, length: int) -> int:
        """Reserve memory for so many characters; return for how many there is memory now.

        Raise Overloaded if it is not free.
        """
        more = length + _SMALL_OUTPUT - self._output
        if length > self._output:
            try:
                self.resize(self.size + more * COPIES)
            except BodyTooLarge as error:
                raise Overloaded(
                    "the answer needs more memory than one request may have"
                ) from error
            self._output += more
        return self._output

    def release(self) -> None:
        """Give everything back, for good. Doing it twice is fine."""
        self._budget._change(self, 0, is_last=True)
