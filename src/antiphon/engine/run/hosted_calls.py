"""Which calls of an answer are run here? They are taken out of it and gathered.

The model calls a hosted function as it calls any other. Its calls never reach the caller as
function calls: `HostedCalls` takes them out of what the model produces, by the alias of the
function, and notes the rest as the context of the next round. The call of a tool that the caller
runs passes, and ends the response.

`parallel_tool_calls: false` allows one call an answer, of whichever kind comes first. What is
suppressed is reported.
"""

from __future__ import annotations

import msgspec

from antiphon.engine.run.transcript import Transcript
from antiphon.plans.plan import Plan
from antiphon.protocol.deltas import (
    CallClosed,
    CallGrew,
    CallMade,
    CallOpened,
    Delta,
    ItemClosed,
    ItemPassed,
    Reported,
)
from antiphon.protocol.items import Item

__all__ = ["GatheredCall", "HostedCalls"]


class GatheredCall(msgspec.Struct):
    """A call that the model has made, with what it wrote as arguments so far."""

    alias: str
    call_id: str | None
    pieces: list[str]

    @property
    def arguments(self) -> str:
        """The arguments as the model wrote them."""
        return "".join(self.pieces)


class HostedCalls:
    """The calls of one answer to a plan, with the rounds that repair it.

    With `names_calls`, a call of another tool is forwarded without the id that its model gave it:
    models use the same ids again in other conversations.
    """

    def __init__(self, plan: Plan, *, names_calls: bool = False) -> None:
        self.calls: list[GatheredCall] = []
        self.has_client_calls = False
        self._transcript = Transcript()
        self.note_text = self._transcript.note_text
        """Notes a text that is forwarded unseen."""
        self._plan = plan
        self._names_calls = names_calls
        self._items: list[Item] = []
        self._open: dict[int, GatheredCall | None] = {}  # by key; None for one that is suppressed

    @property
    def is_growing(self) -> bool:
        """Whether a hosted call is open."""
        return bool(self._open)

    def take(self, delta: Delta) -> Delta | None:
        """Return what is forwarded of a delta: itself, a report in its place, or nothing."""
        match delta:
            case CallOpened():
                return self._open_call(delta)
            case CallMade():
                return self._take_whole(delta)
            case CallGrew() if delta.key in self._open:
                call = self._open[delta.key]
                if call is not None:
                    call.pieces.append(delta.arguments)
                return None
            case CallClosed() if delta.key in self._open:
                del self._open[delta.key]
                return None
            case ItemClosed() | ItemPassed():
                self._items.append(delta.item)
        self._transcript.note(delta)
        return delta

    def end_round(self) -> None:
        """Note that no call of this round grows any further."""
        self._open.clear()

    def context(self) -> list[Item]:
        """Return what the model wrote beside its calls, as items."""
        return [*self._transcript.prose(), *self._items]

    def _open_call(self, call: CallOpened) -> Delta | None:
        self._open.pop(call.key, None)
        alias = call.alias or call.name
        is_hosted = alias in self._plan.toolbox.functions
        why = self._why_not(alias, is_hosted=is_hosted)
        if why is not None:
            self._open[call.key] = None
            return Reported(why)
        if not is_hosted:
            return self._pass_call(call)
        gathered = self._open[call.key] = GatheredCall(alias, call.call_id, [])
        self.calls.append(gathered)
        return None

    def _take_whole(self, call: CallMade) -> Delta | None:
        alias = call.alias or call.name
        is_hosted = alias in self._plan.toolbox.functions
        why = self._why_not(alias, is_hosted=is_hosted)
        if why is not None:
            return Reported(why)
        if not is_hosted:
            return self._pass_call(call)
        self.calls.append(GatheredCall(alias, call.call_id, [call.said]))
        return None

    def _pass_call(self, call: CallOpened | CallMade) -> Delta:
        """Forward a call of another tool; the gate may yet suppress it."""
        alias = call.alias or call.name
        toolbox, policy = self._plan.toolbox, self._plan.policy
        self.has_client_calls |= alias in toolbox.aliases and policy.allows(alias)
        self._transcript.note(call)
        return msgspec.structs.replace(call, call_id=None) if self._names_calls else call

    def _why_not(self, alias: str, *, is_hosted: bool) -> str | None:
        """Return why a call is suppressed here. Those of other tools are the gate's business."""
        is_first = not self.calls and not self.has_client_calls
        if self._plan.parallel_tool_calls is False and not is_first and (is_hosted or self.calls):
            return f"parallel_tool_calls: a second call, to '{alias}', was suppressed"
        if is_hosted and not self._plan.policy.allows(alias):
            return f"tool_choice: a call to '{alias}' was suppressed"
        return None
