"""Function calls of a chat model, as the calls that the caller knows.

The inverse of `plans.lower`: an alias becomes a tool of the caller's, with its name, its
namespace and its kind; `{"input": text}` becomes the text; arguments that a model wrote as a
string in a string are taken out of it.

Invariants, for any deltas:

- calls come out in the order in which they were opened, and everything after a call that is
  held back waits for it; nothing is lost, and other deltas pass unchanged;
- the arguments of a function grow as they come, unless they are to be checked. All other calls
  are reported when they are complete: some clients run half a text if they see one;
- a function that is not strict is held back while its arguments are short or begin with
  something other than `{`. A long call is released: from there on it grows as it comes, unchecked;
- a call that `checks` reject is not reported but kept in `rejected`. With `hands_over`, an
  invalid call of a function that is not strict is reported: its caller was promised nothing;
- a held call that is cut short is reported as it was: one of a function that is not strict under
  its own name, any other as a function call with the model's own name and the arguments so far.
  It is marked incomplete, so no client runs it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from antiphon.plans.toolbox import Offer, Toolbox
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
from antiphon.protocol.families import WHOLE, arguments_of, payload_of
from antiphon.protocol.unwrap import unwrap_arguments, unwrap_input

__all__ = ["HELD_AT_MOST", "CallLifter", "Check", "Rejected"]

Check = Callable[[str], str | None]
"""Returns what is wrong with the arguments, or the input, of a call; None if nothing is."""

_OF_CALLS: Final = (CallOpened, CallGrew, CallClosed, Stopped)
_NOTES: Final = (UsageKnown, TierUsed, Degraded, Reported)
# Characters of arguments that are held back of a function that is not strict: about 500 tokens.
HELD_AT_MOST: Final = 2000


class Rejected(msgspec.Struct, frozen=True):
    """A call that must not be handed on, and why. `said` holds its arguments, or its input."""

    offer: Offer
    call_id: str | None
    said: str
    problem: str


class _Held:
    """A call that is reported only when it is complete."""

    def __init__(self, opened: CallOpened, offer: Offer) -> None:
        self.opened = opened
        self.offer = offer
        self._pieces: list[str] = []
        self._size = 0
        self._first = ""  # the first character that is not blank
        self._tried = 0

    def add(self, text: str) -> None:
        """Take a piece of the arguments."""
        self._pieces.append(text)
        self._size += len(text)
        self._first = self._first or text.lstrip()[:1]

    @property
    def text(self) -> str:
        """What came of the arguments so far."""
        return "".join(self._pieces)

    @property
    def is_loose(self) -> bool:
        """Whether the caller was promised nothing about the arguments but that they are JSON."""
        return self.offer.kind == "function" and not self.offer.tool.get("strict")

    def may_go(self) -> bool:
        """Return whether enough was held back: a long call begins like an object."""
        return self._size > HELD_AT_MOST and self.is_loose and self._first == "{"

    def is_whole(self) -> bool:
        """Return whether the arguments are JSON.

        What was tried in vain is tried again when twice as much has come: a call that grows
        among others is not read from its beginning with every piece.
        """
        if self._size < 2 * self._tried:
            return False
        self._tried = self._size or 1
        return _is_json(self.text)


class CallLifter:
    """Raises the calls of one answer. `checks` are by alias.

    With `hands_over`, nothing is released before it is complete, and an invalid call of a
    function that is not strict is reported: the model was asked again, and this is its answer.
    """

    def __init__(
        self,
        toolbox: Toolbox,
        checks: Mapping[str, Check] | None = None,
        *,
        hands_over: bool = False,
    ) -> None:
        self.rejected: list[Rejected] = []
        self.handed_over: list[Rejected] = []  # invalid, but reported
        self._toolbox = toolbox
        self._checks = checks or {}
        self._hands_over = hands_over
        self._told: set[int] = set()
        self._quoted: dict[int, list[str]] = {}
        self._held: _Held | None = None
        self._behind: list[Delta] = []
        self._due: deque[Delta] = deque()
        self._out: list[Delta] = []

    @property
    def is_holding(self) -> bool:
        """Return whether a call is held back."""
        return self._held is not None

    def feed(self, deltas: Sequence[Delta]) -> Sequence[Delta]:
        """Return the lifted deltas."""
        if not self._toolbox.offers:
            return deltas
        if self._held is None and not any(isinstance(delta, _OF_CALLS) for delta in deltas):
            return deltas
        self._due.extend(deltas)
        return self._give()

    def release(self) -> list[Delta]:
        """Return what was held back when a stream breaks off."""
        while self._held is not None:
            self._settle(self._held, is_cut=not _is_json(self._held.text))
            self._take_all()
        for key in list(self._quoted):
            self._say(key, "".join(self._quoted.pop(key)))
        return self._give()

    def _give(self) -> list[Delta]:
        self._take_all()
        out, self._out = self._out, []
        return out

    def _take_all(self) -> None:
        while self._due:
            self._take(self._due.popleft())

    def _take(self, delta: Delta) -> None:
        if isinstance(delta, _NOTES):
            self._out.append(delta)
        elif self._held is not None:
            self._wait(delta, self._held)
        else:
            self._tell(delta)

    # While a call is held back.

    def _wait(self, delta: Delta, held: _Held) -> None:
        """Add to the held call, or queue what comes after it; report the call if it is complete."""
        if isinstance(delta, CallGrew | CallClosed) and delta.key in self._told:
            self._tell(delta)
        elif isinstance(delta, CallGrew) and delta.key == held.opened.key:
            held.add(delta.arguments)
            if held.may_go() and not self._hands_over:
                self._let_go(held)
                self._go_on()
        elif isinstance(delta, CallClosed) and delta.key == held.opened.key:
            self._settle(held)
        elif isinstance(delta, Stopped):
            self._behind.append(delta)
            self._settle(held, is_cut=delta.reason != "stop" and not _is_json(held.text))
        else:
            self._behind.append(delta)
            if held.is_whole():
                self._settle(held)

    def _settle(self, held: _Held, *, is_cut: bool = False) -> None:
        """Report the held call or reject it, then continue with what waits for it."""
        if is_cut:
            self._tell_cut(held)
        else:
            self._judge(held)
        self._go_on()

    def _judge(self, held: _Held) -> None:
        offer, call_id = held.offer, held.opened.call_id
        said = _said(offer, held.text)
        check = self._checks.get(offer.alias)
        problem = check(said) if check is not None else None
        is_told = problem is None or (held.is_loose and self._hands_over)
        if problem is not None:
            wrong = Rejected(offer, call_id, said, problem)
            (self.handed_over if is_told else self.rejected).append(wrong)
        if not is_told:
            return
        if offer.kind in WHOLE and payload_of(offer.kind, said) is None:
            self._tell_cut(held)
        else:
            self._out.append(
                CallMade(offer.name, said, call_id, offer.kind, offer.namespace, offer.alias)
            )

    def _let_go(self, held: _Held) -> None:
        """Open a function call with what came of it; from here on it grows as it comes."""
        self._tell_opening(held.opened, held.offer)
        self._grow(CallGrew(held.opened.key, held.text))

    def _tell_cut(self, held: _Held) -> None:
        if held.is_loose:
            self._let_go(held)
            return
        opened, alias = held.opened, held.offer.alias
        self._told.add(opened.key)
        self._out.append(CallOpened(opened.key, alias, opened.call_id, alias=alias))
        self._say(opened.key, held.text)

    def _go_on(self) -> None:
        """Put what waited first in line: it is reported, until another call is held back."""
        self._held = None
        self._behind = _joined(self._behind)
        self._due.extendleft(reversed(self._behind))
        self._behind = []

    # While nothing is.

    def _tell(self, delta: Delta) -> None:
        match delta:
            case CallOpened():
                self._open(delta)
            case CallGrew():
                self._grow(delta)
            case CallClosed():
                self._end_quoted(delta.key)
                self._out.append(delta)
            case Stopped():
                for key in list(self._quoted):
                    self._end_quoted(key)
                self._out.append(delta)
            case _:
                self._out.append(delta)

    def _open(self, delta: CallOpened) -> None:
        offer = self._toolbox.called(delta.name) if delta.alias is None else None
        if offer is not None and (offer.kind != "function" or offer.alias in self._checks):
            self._held = _Held(delta, offer)
            return
        if offer is None:
            self._told.add(delta.key)
            self._out.append(delta)
            return
        self._tell_opening(delta, offer)

    def _tell_opening(self, opened: CallOpened, offer: Offer) -> None:
        self._told.add(opened.key)
        self._quoted[opened.key] = []
        self._out.append(
            CallOpened(
                opened.key, offer.name, opened.call_id, offer.kind, offer.namespace, offer.alias
            )
        )

    def _grow(self, delta: CallGrew) -> None:
        """Report how a function's arguments grow.

        A string instead of an object may hold that object, and is reported when it is complete.
        """
        begun = self._quoted.get(delta.key)
        if begun is None:
            self._out.append(delta)
            return
        begun.append(delta.arguments)
        text = begun[0].lstrip() or delta.arguments.lstrip()
        if text and text[0] != '"':
            self._say(delta.key, "".join(self._quoted.pop(delta.key)))

    def _end_quoted(self, key: int) -> None:
        text = unwrap_arguments("".join(self._quoted.pop(key, ())))
        self._say(key, text if text.strip() else "")

    def _say(self, key: int, text: str) -> None:
        if text:
            self._out.append(CallGrew(key, text))


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


def _said(offer: Offer, text: str) -> str:
    """Return the arguments, or the input, of a complete call of this tool."""
    if offer.kind == "custom":
        return unwrap_input(text)
    text = unwrap_arguments(text if text.strip() else "")
    payload = payload_of(offer.kind, text) if offer.kind in WHOLE else None
    return text if payload is None else arguments_of(offer.kind, payload)


def _is_json(text: str) -> bool:
    try:
        msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return False
    return True
