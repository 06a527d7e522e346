"""Which deltas came before, under the same sequence number?

A server that resumes a stream may send deltas again. The accumulator counts each only once.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import Final

from antiphon.protocol.events import Event

__all__ = ["SequenceMarks"]

_MAX_GAP: Final = 1000


class SequenceMarks:
    """Remembers a mark of each delta at its sequence number; `deviate` is called for odd ones."""

    def __init__(self, deviate: Callable[[str], None]) -> None:
        self.marks = array("q")
        self.has_gap = False
        self._deviate = deviate
        self._first_number = 0
        self._is_numbered = True

    def is_repeat(self, event: Event) -> bool:
        """Return whether this delta was counted before, under the same sequence number.

        The number alone proves nothing: some servers start again in mid-stream, or give
        every event the same one. So two numbers must have gone up first, and from the moment
        that a number stands for two things, none is proof of a repetition.
        """
        number, due = event.sequence_number, len(self.marks)
        delta = getattr(event, "delta", None)
        mark = 0 if delta is None else hash(getattr(event, "item_id", None)) ^ hash(delta)
        if number == due:
            self.marks.append(mark)
            return False
        if number is None or number < 0:
            self._deviate("events without a sequence number")
            return False
        self._deviate(f"sequence number {number} where {due} was due")
        if number > due:
            self.has_gap = True
            if number - due <= _MAX_GAP:
                self._first_number = self._first_number if due else number
                self.marks.extend([0] * (number - due) + [mark])
            return False
        known = self.marks[number]
        has_counted = due > self._first_number + 1
        if known not in (0, mark):
            self._is_numbered = False
        return self._is_numbered and has_counted and mark != 0 and known == mark
