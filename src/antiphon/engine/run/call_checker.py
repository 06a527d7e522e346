"""Calls that are checked before they are forwarded.

- A call that its check rejects is not forwarded but kept in `rejected`. With `hands_over`, an
  invalid call of a function that is not strict is forwarded: its caller was promised nothing.
- The calls of functions with a check are held back until they are complete. One that is not
  strict is held back while its arguments are short or begin with something other than `{`. A
  long call is released: from there on it grows as it comes, unchecked.
- A held call that is cut short is forwarded as far as it came: one of a function that is not
  strict under its own name, any other under the name by which the model knows it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from antiphon.engine.prepare.checks import Check
from antiphon.plans.held_calls import HeldCall, HeldCalls, grown
from antiphon.plans.toolbox import Offer, Toolbox
from antiphon.protocol.deltas import CallMade, CallOpened, Delta
from antiphon.protocol.unwrap import unwrap_arguments

__all__ = ["HELD_AT_MOST", "CallChecker", "Rejected"]

# Characters of arguments that are held back of a function that is not strict: about 500 tokens.
HELD_AT_MOST: Final = 2000


class Rejected(msgspec.Struct, frozen=True):
    """A call that must not be forwarded, and why. `said` holds its arguments, or its input."""

    offer: Offer
    call_id: str | None
    said: str
    problem: str


class CallChecker(HeldCalls):
    """Checks the calls of one answer. `checks` are by alias.

    With `hands_over`, nothing is released before it is complete, and an invalid call of a
    function that is not strict is forwarded: the model was asked again, and this is its answer.
    """

    def __init__(
        self, toolbox: Toolbox, checks: Mapping[str, Check], *, hands_over: bool = False
    ) -> None:
        super().__init__((CallOpened, CallMade) if checks else ())
        self.rejected: list[Rejected] = []
        self.handed_over: list[Rejected] = []  # invalid, but forwarded
        self._toolbox = toolbox
        self._checks = checks
        self._hands_over = hands_over

    def take(self, delta: Delta) -> Sequence[Delta]:
        """Hold a call that is to be checked; check one that is whole."""
        assert isinstance(delta, CallOpened | CallMade)
        alias = delta.alias
        offer = self._toolbox.called(alias) if alias is not None and alias in self._checks else None
        if offer is None:
            return [delta]
        if isinstance(delta, CallMade):
            return [delta] if self._passes(offer, delta.call_id, delta.said) else []
        may_go = _is_loose(offer) and not self._hands_over
        self.held = HeldCall(delta, offer, HELD_AT_MOST if may_go else math.inf)
        return []

    def settle(self, held: HeldCall, *, is_cut: bool) -> Sequence[Delta]:
        """Check a whole call; return what there is of one that is cut short."""
        offer, text = held.offer, held.text
        if is_cut:
            is_loose = _is_loose(offer)
            return [held.opened, *grown(held.opened.key, text)] if is_loose else held.as_function()
        said = unwrap_arguments(text if text.strip() else "")
        if not self._passes(offer, held.opened.call_id, said):
            return []
        return [held.made(said)] if offer.kind == "function" else held.as_function()

    def _passes(self, offer: Offer, call_id: str | None, said: str) -> bool:
        """Return whether a whole call is to be forwarded; note what is wrong with it."""
        problem = self._checks[offer.alias](said)
        if problem is None:
            return True
        is_handed_over = self._hands_over and _is_loose(offer)
        wrong = Rejected(offer, call_id, said, problem)
        (self.handed_over if is_handed_over else self.rejected).append(wrong)
        return is_handed_over


def _is_loose(offer: Offer) -> bool:
    """Return whether the caller was promised nothing about the arguments but that they are JSON."""
    return offer.kind == "function" and not offer.tool.get("strict")
