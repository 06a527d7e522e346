"""Calls that are held back until they are complete.

A wire holds the calls that the caller gets whole, and the engine holds those that it checks.
Which calls are held, and what becomes of them, is decided by a subclass. For any deltas:

- calls come out in the order in which they were opened, and everything after a held call waits
  for it, except what reports on the answer as a whole; nothing is lost;
- a call is complete when it is closed, when the model stops, or when something follows it and
  its arguments are JSON. It is cut short if the model stops for another reason, or the stream
  breaks, before the arguments are JSON.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection, Sequence
from typing import Final

from antiphon.plans.toolbox import Offer
from antiphon.protocol.codec import decode_json
from antiphon.protocol.deltas import (
    CallClosed,
    CallGrew,
    CallMade,
    CallOpened,
    Degraded,
    Delta,
    Reported,
    Stopped,
    TierUsed,
    UsageKnown,
)

__all__ = ["HeldCall", "HeldCalls", "grown"]

_NO_JSON: Final = object()
_NOTES: Final = frozenset({UsageKnown, TierUsed, Degraded, Reported})


class HeldCall:
    """A call that is reported only when it is complete.

    One that is longer than `limit`, and begins like an object, is not held any longer.
    """

    def __init__(self, opened: CallOpened, offer: Offer, limit: float = math.inf) -> None:
        self.opened = opened
        self.offer = offer
        self._limit = limit
        self._size = 0
        self._first = ""  # the first character that is not blank
        self._pieces: list[str] = []
        self._tried = 0

    def add(self, text: str) -> bool:
        """Take a piece of the arguments; return whether to hold the call any longer."""
        self._pieces.append(text)
        self._size += len(text)
        self._first = self._first or text.lstrip()[:1]
        return self._size <= self._limit or self._first != "{"

    @property
    def text(self) -> str:
        """The arguments so far."""
        return "".join(self._pieces)

    def is_json(self) -> bool:
        """Return whether the arguments are JSON."""
        return decode_json(self.text, _NO_JSON) is not _NO_JSON

    def is_whole(self) -> bool:
        """Return whether the arguments are JSON, as far as that was looked at.

        What was tried in vain is tried again when twice as much has come: a call that grows
        among others is not read from its beginning with every piece.
        """
        if self._size < 2 * self._tried:
            return False
        self._tried = self._size or 1
        return self.is_json()

    def made(self, said: str) -> CallMade:
        """Return the whole call, with these arguments or this input."""
        offer, call_id = self.offer, self.opened.call_id
        return CallMade(offer.name, said, call_id, offer.kind, offer.namespace, offer.alias)

    def as_function(self) -> list[Delta]:
        """Return a call that is none of its tool, under the model's own name.

        It has no kind, so no client runs it as a call of that tool.
        """
        key, alias = self.opened.key, self.offer.alias
        return [CallOpened(key, alias, self.opened.call_id, alias=alias), *grown(key, self.text)]


class HeldCalls:
    """The calls of one answer. A subclass sets `held`, and returns what is forwarded.

    It takes the kinds in `taken`; other deltas are forwarded as they are.
    """

    def __init__(self, taken: Collection[type[Delta]]) -> None:
        self.taken: frozenset[type] = frozenset(taken)
        self.held: HeldCall | None = None
        self._reported: set[int] = set()
        self._behind: list[Delta] = []
        self._due: deque[Delta] = deque()
        self._out: list[Delta] = []

    def feed(self, deltas: Sequence[Delta]) -> Sequence[Delta]:
        """Return what can be forwarded after these deltas."""
        if self.held is None and self.taken.isdisjoint(map(type, deltas)):
            return deltas
        self._due.extend(deltas)
        return self._give()

    def release(self) -> list[Delta]:
        """Return what was held back when a stream breaks off."""
        while self.held is not None:
            self._end(self.held, is_cut=not self.held.is_json())
            self._take_all()
        return self._give()

    # What a subclass decides.

    def take(self, delta: Delta) -> Sequence[Delta]:
        """Hold a call, or return what to forward; nothing is held back before it."""
        raise NotImplementedError

    def settle(self, held: HeldCall, *, is_cut: bool) -> Sequence[Delta]:
        """Return what becomes of a held call."""
        raise NotImplementedError

    # One delta after the other.

    def _give(self) -> list[Delta]:
        self._take_all()
        out, self._out = self._out, []
        return out

    def _take_all(self) -> None:
        while self._due:
            delta = self._due.popleft()
            if self.held is None or type(delta) in _NOTES:
                self._pass(delta)
            else:
                self._wait(delta, self.held)

    def _wait(self, delta: Delta, held: HeldCall) -> None:
        """Add to the held call, or queue what comes after it; end the call if it is complete."""
        if isinstance(delta, CallGrew | CallClosed) and delta.key in self._reported:
            self._pass(delta)
        elif isinstance(delta, CallGrew) and delta.key == held.opened.key:
            if not held.add(delta.arguments):
                self._end(held, is_cut=True)
        elif isinstance(delta, CallClosed) and delta.key == held.opened.key:
            self._end(held, is_cut=False)
        elif isinstance(delta, Stopped):
            self._behind.append(delta)
            self._end(held, is_cut=delta.reason != "stop" and not held.is_json())
        else:
            self._behind.append(delta)
            if held.is_whole():
                self._end(held, is_cut=False)

    def _end(self, held: HeldCall, *, is_cut: bool) -> None:
        """Settle the held call, and put what waited for it first in line."""
        self._put(self.settle(held, is_cut=is_cut))
        self.held = None
        self._due.extendleft(reversed(_joined(self._behind)))
        self._behind = []

    def _pass(self, delta: Delta) -> None:
        if type(delta) in self.taken:
            self._put(self.take(delta))
        else:
            self._out.append(delta)

    def _put(self, deltas: Sequence[Delta]) -> None:
        for delta in deltas:
            if isinstance(delta, CallOpened):
                self._reported.add(delta.key)
            self._out.append(delta)


def grown(key: int, text: str) -> list[Delta]:
    """Return how the arguments of a call grew, if they did."""
    return [CallGrew(key, text)] if text else []


def _joined(deltas: Sequence[Delta]) -> list[Delta]:
    """Return the deltas with the arguments of each call in one piece.

    What waits behind many calls is looked at again for each of them.
    """
    out: list[Delta] = []
    grown: list[tuple[int, int, list[str]]] = []
    pieces: dict[int, list[str]] = {}
    for delta in deltas:
        if isinstance(delta, CallGrew):
            if delta.key in pieces:
                pieces[delta.key].append(delta.arguments)
                continue
            pieces[delta.key] = [delta.arguments]
            grown.append((len(out), delta.key, pieces[delta.key]))
        elif isinstance(delta, CallOpened):
            pieces.pop(delta.key, None)  # another call under the same key
        out.append(delta)
    for at, key, texts in grown:
        out[at] = CallGrew(key, "".join(texts))
    return out
