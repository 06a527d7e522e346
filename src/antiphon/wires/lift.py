"""Function calls of a chat model, as the calls that the caller knows.

The inverse of `lower`: an alias becomes a tool of the caller's, with its name, its
namespace and its kind; `{"input": text}` becomes the text; arguments that a model wrote as a
string in a string are taken out of it. Nothing is checked or decided here.

- The arguments of a function grow as they come. All other calls are reported when they are
  complete: some clients run half a text if they see one.
- A call that is cut short, or that its kind cannot hold, is reported as what it was: a function
  call with the model's own name and arguments. One that is cut short is marked incomplete, so no
  client runs it.
- Calls of no tool, and other deltas, pass unchanged.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from antiphon.plans.held_calls import HeldCall, HeldCalls, grown
from antiphon.plans.toolbox import Offer, Toolbox
from antiphon.protocol.deltas import CallClosed, CallGrew, CallMade, CallOpened, Delta, Stopped
from antiphon.protocol.families import arguments_of, payload_of
from antiphon.protocol.unwrap import unwrap_arguments, unwrap_input

__all__ = ["CallLifter"]

# The key of a call that came whole, which no call of a wire has.
_WHOLE: Final = -1


class CallLifter(HeldCalls):
    """Lifts the calls of one answer."""

    def __init__(self, toolbox: Toolbox) -> None:
        taken = (CallOpened, CallGrew, CallClosed, CallMade, Stopped)
        super().__init__(taken if toolbox.offers else ())
        self._toolbox = toolbox
        # The arguments of open functions, while they may be a string that holds them.
        self._quoted: dict[int, list[str]] = {}

    def release(self) -> list[Delta]:
        """Return what was held back when a stream breaks off."""
        rest = super().release()
        for key, pieces in self._quoted.items():
            rest += grown(key, "".join(pieces))
        self._quoted.clear()
        return rest

    def take(self, delta: Delta) -> Sequence[Delta]:
        """Lift a delta that need not wait."""
        match delta:
            case CallOpened():
                return self._open(delta)
            case CallGrew():
                return self._grow(delta)
            case CallClosed():
                return [*self._end_quoted(delta.key), delta]
            case CallMade():
                return self._lift_whole(delta)
        return [*(grew for key in list(self._quoted) for grew in self._end_quoted(key)), delta]

    def settle(self, held: HeldCall, *, is_cut: bool) -> Sequence[Delta]:
        """Return a whole call, or what there is of it."""
        said = None if is_cut else _said(held.offer, held.text)
        return held.as_function() if said is None else [held.made(said)]

    def _open(self, opened: CallOpened) -> Sequence[Delta]:
        offer = self._toolbox.called(opened.name) if opened.alias is None else None
        if offer is None:
            return [opened]
        if offer.kind != "function":
            self.held = HeldCall(opened, offer)
            return []
        self._quoted[opened.key] = []
        return [
            CallOpened(
                opened.key, offer.name, opened.call_id, offer.kind, offer.namespace, offer.alias
            )
        ]

    def _lift_whole(self, made: CallMade) -> Sequence[Delta]:
        """Return a call that came whole as a call of the caller's tool."""
        offer = self._toolbox.called(made.name) if made.alias is None else None
        if offer is None:
            return [made]
        held = HeldCall(CallOpened(_WHOLE, made.name, made.call_id), offer)
        held.add(made.said)
        if offer.kind == "function":
            return [held.made(unwrap_arguments(made.said))]
        return self.settle(held, is_cut=False)

    def _grow(self, delta: CallGrew) -> Sequence[Delta]:
        """Return how a function's arguments grow.

        A string instead of an object may hold that object, and is reported when it is complete.
        """
        begun = self._quoted.get(delta.key)
        if begun is None:
            return [delta]
        if begun and (
            not begun[0] or begun[0].isspace()
        ):  # the first piece that is not blank decides
            begun[0] += delta.arguments
        else:
            begun.append(delta.arguments)
        text = begun[0].lstrip()
        if not text or text[0] == '"':
            return []
        return grown(delta.key, "".join(self._quoted.pop(delta.key)))

    def _end_quoted(self, key: int) -> Sequence[Delta]:
        text = unwrap_arguments("".join(self._quoted.pop(key, ())))
        return grown(key, text if text.strip() else "")


def _said(offer: Offer, text: str) -> str | None:
    """Return the arguments, or the input, of a complete call; None if its kind cannot hold it."""
    if offer.kind == "custom":
        return unwrap_input(text)
    payload = payload_of(offer.kind, unwrap_arguments(text if text.strip() else ""))
    return None if payload is None else arguments_of(offer.kind, payload)
