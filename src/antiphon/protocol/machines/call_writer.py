"""Calls that the caller runs: their ids, their arguments, and how each ends.

Every call gets a call_id of its own. When a call opens, grows or ends is decided by the builder.
"""

from __future__ import annotations

from collections.abc import Callable

from antiphon.protocol.call_ids import MAX_CALL_ID, CallIds
from antiphon.protocol.deltas import CallMade, CallOpened
from antiphon.protocol.events import (
    ArgumentsDelta,
    ArgumentsDone,
    CustomInputDelta,
    CustomInputDone,
)
from antiphon.protocol.families import FAMILIES
from antiphon.protocol.items import item_prefix
from antiphon.protocol.machines.event_writer import EventWriter, ItemStatus
from antiphon.protocol.machines.open_items import OpenCall
from antiphon.protocol.machines.prose_writer import Mint
from antiphon.protocol.unwrap import is_object

__all__ = ["CallWriter"]


class CallWriter:
    """Writes calls to `out`. `ids` knows the call ids that are taken.

    `degrade` is called with what could not be handed on as the model wrote it.
    """

    def __init__(
        self, out: EventWriter, mint: Mint, ids: CallIds, degrade: Callable[[str], None]
    ) -> None:
        self.ids = ids
        self._out = out
        self._mint = mint
        self._degrade = degrade

    def open(self, delta: CallOpened | CallMade, said: str) -> OpenCall:
        """Emit the opening of a call; `said` is its whole text if that is known."""
        call_id = self._claim_id(delta.call_id)
        item_id = self._mint(item_prefix(FAMILIES[delta.kind].call))
        call = OpenCall(
            item_id, self._out.next_index(), call_id, delta.name, delta.kind, delta.namespace
        )
        self._out.add_item(call.index, call.opening(said))
        return call

    def grow(self, call: OpenCall, text: str) -> None:
        """Add to the arguments or the input of a call."""
        call.growing.add(text)
        place = self._out.place(call.id, call.index)
        if call.kind == "function":
            self._out.emit(ArgumentsDelta(delta=text, **place))
        elif call.kind == "custom":
            self._out.emit(CustomInputDelta(delta=text, **place))

    def close(self, call: OpenCall, status: ItemStatus) -> None:
        """Emit the end of a call."""
        if call.kind == "function" and not call.growing.text() and status == "completed":
            # A call without arguments: clients parse the string, and "" is not JSON.
            self.grow(call, "{}")
        said = call.growing.text()
        place = self._out.place(call.id, call.index)
        if call.kind == "function":
            if status == "completed" and not is_object(said):
                whose = f"call {call.call_id} of '{call.name}'"
                self._degrade(f"tools: the arguments of {whose} are no JSON object")
            self._out.emit(ArgumentsDone(arguments=said, name=call.name, **place))
        elif call.kind == "custom":
            self._out.emit(CustomInputDone(input=said, **place))
        self._out.end_item(call.index, call.item(status, said))

    def _claim_id(self, wished: str | None) -> str:
        """Return the backend's own id if it is short and free, else a derived one, and report it.

        Some backends repeat an id within an answer, or count from 0 in every answer.
        """
        call_id = self.ids.claim((wished or self._mint("call"))[:MAX_CALL_ID])
        if wished and call_id != wished:
            is_short = len(wished) <= MAX_CALL_ID
            why = f"'{wished}' is taken" if is_short else f"has {len(wished)} characters"
            self._degrade(f"call_id: the upstream's {why}; it is '{call_id}' here")
        return call_id
