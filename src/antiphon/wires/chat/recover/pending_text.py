"""A text that may be a call, as far as it has arrived, and how far it was read.

The forms of calls are generators that read from here and yield when they need more text, so
that a form is written as if the whole text were there. Every character is looked at once,
however the text is cut: nothing is searched again from the start, and ranges are copied whole.
A form raises `NotACall` when the text cannot be a call.
"""

from __future__ import annotations

import re
from collections.abc import Generator
from io import StringIO
from typing import Final, NamedTuple, TypeAlias, TypeVar

__all__ = ["MAX_HELD", "Found", "Held", "NotACall", "Steps"]

MAX_HELD: Final = 1 << 20
"""How many characters may wait to be decided. After that they are text."""

_T = TypeVar("_T")
Steps: TypeAlias = Generator[None, None, _T]
"""A reader that yields whenever it needs more text."""


class Found(NamedTuple):
    """A call: the name as it was offered, and the arguments as JSON."""

    name: str
    arguments: str


class NotACall(Exception):
    """The text is not a call. Inside a code block, `ticks` is how many back quotes close it."""

    def __init__(self, ticks: int = 0) -> None:
        super().__init__("this text is no call")
        self.ticks = ticks


class Held:
    """The text since the beginning of what may be a call; `at` is the place in this piece."""

    def __init__(self, *, is_after_call: bool = False, limit: int = MAX_HELD) -> None:
        self.text = ""
        self.at = 0
        self.stop = 0
        self.is_after_call = is_after_call
        self.is_ended = False
        self.is_cut = False
        self._calls: list[Found] = []
        self._kept = 0
        self._limit = limit
        # The pieces before this one, and how much that is.
        self._before = StringIO()
        self._begin = 0
        self._base = 0

    @property
    def offset(self) -> int:
        """How many characters were read."""
        return self._base + self.at - self._begin

    @property
    def room(self) -> int:
        """How many more characters may be held."""
        return self._limit - self.offset

    @property
    def waits(self) -> bool:
        """Return whether all that came was read."""
        return self.at == self.stop

    def push(self, text: str, begin: int) -> None:
        """Go on with this piece of text, from `begin`; the last one has been read."""
        self._base = self.offset
        self._before.write(self.text[self._begin : self.at])
        self.text = text
        self.at = self._begin = begin
        self.stop = min(len(text), begin + self._limit - self._base)

    def since(self, mark: int) -> str:
        """Return what was read since an `offset`."""
        if mark >= self._base:
            return self.text[self._begin + mark - self._base : self.at]
        self._before.seek(mark)
        early = self._before.read()
        return early + self.text[self._begin : self.at]

    # What was found.

    def keep(self, *calls: Found) -> None:
        """Note calls. Everything read so far belongs to them."""
        self._calls += calls
        self._kept = self.offset

    def take_calls(self) -> list[Found]:
        """Return the calls that are certain and were not returned before."""
        calls, self._calls = self._calls, []
        return calls

    @property
    def has_kept(self) -> bool:
        """Return whether anything was found, if only the end of a call."""
        return self._kept > 0

    def left(self) -> str:
        """Return what was read and belongs to no call."""
        return self.since(self._kept)

    # What forms are made of.

    def peek(self) -> Steps[str]:
        """Return the next character; at the end of the text, an empty string."""
        while self.at == self.stop:
            if self.is_ended:
                return ""
            yield
        return self.text[self.at]

    def step(self, chars: str) -> Steps[str]:
        """Return the next character, which has to be one of these."""
        char = yield from self.peek()
        if not char or char not in chars:
            raise NotACall
        self.at += 1
        return char

    def run(self, pattern: re.Pattern[str], limit: int = MAX_HELD) -> Steps[str]:
        """Return all characters that follow and are of a class, given as `[…]*`."""
        start = self.offset
        while True:
            stop = min(self.stop, self.at + limit + 1 - (self.offset - start))
            match = pattern.match(self.text, self.at, stop)
            self.at = match.end() if match else self.at
            if self.offset - start > limit:
                raise NotACall
            if self.at < self.stop or not (yield from self.peek()):
                return self.since(start)

    def skip(self, pattern: re.Pattern[str]) -> Steps[str]:
        """Pass over characters of a class, given as `[…]*`; return the one that follows."""
        while True:
            match = pattern.match(self.text, self.at, self.stop)
            self.at = match.end() if match else self.at
            if self.at < self.stop:
                return self.text[self.at]
            if not (yield from self.peek()):
                return ""

    def word(self, pattern: re.Pattern[str], words: frozenset[str]) -> Steps[str]:
        """Return the characters of a class that follow: one of `words`, in any case.

        The first wrong character decides that it is none of them.
        """
        word = ""
        while (char := (yield from self.peek())) and pattern.match(char):
            word += char.lower()
            if not any(known.startswith(word) for known in words):
                raise NotACall
            self.at += 1
        if word not in words:
            raise NotACall
        return word

    def until(self, mark: str) -> Steps[str]:
        """Return what stands before the next `mark`, and pass over both."""
        start = self.offset
        while True:
            place = self.text.find(mark[-1], self.at, self.stop)
            self.at = place + 1 if place >= 0 else self.stop
            length = self.offset - start - len(mark)
            if place >= 0 and length >= 0 and self.since(start + length) == mark:
                return self.since(start)[:length]
            if place < 0 and not (yield from self.peek()):
                raise NotACall
