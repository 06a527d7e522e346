"""Keeps native state for callers that send back calls, but not the reasoning before them.

What belongs to a call is in `prepare.native_states`; here it is stored and found by the call's id.
A store that fails costs no answer: what cannot be stored now is stored later, and what cannot be
read is reported.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from antiphon.engine.keep.pending_writes import Defer
from antiphon.engine.prepare.native_states import carried_by, lonely_calls
from antiphon.protocol.errors import StoreUnavailable
from antiphon.protocol.items import Item
from antiphon.protocol.machines.builder import KeptState
from antiphon.protocol.response import Response
from antiphon.store.base import NativeStates
from antiphon.store.base.native_states import MAX_STATES, STATE_SECONDS

__all__ = ["CarriedStates"]


class CarriedStates:
    """The native states of calls. `now` is the time in seconds since the epoch."""

    def __init__(self, states: NativeStates, defer: Defer, now: Callable[[], int]) -> None:
        self._states = states
        self._defer = defer
        self._now = now

    async def find(self, owner: str, items: Sequence[Item]) -> tuple[dict[str, bytes], list[str]]:
        """Return what was kept for the calls of these items, and a note if it cannot be read."""
        calls = lonely_calls(items)[-MAX_STATES:]
        if not calls:
            return {}, []
        try:
            return await self._states.find(owner, calls, self._now() - STATE_SECONDS), []
        except StoreUnavailable as error:
            return {}, [f"input (reasoning): its native state cannot be read: {error.message}"]

    async def keep(self, owner: str, response: Response, states: Mapping[str, KeptState]) -> None:
        """Keep what belongs to the calls of a response that has answered."""
        carried = carried_by(response.output, states)
        if not carried or response.status not in ("completed", "incomplete"):
            return
        keep = partial(self._states.keep, owner, response.id, carried, self._now())
        try:
            await keep()
        except StoreUnavailable:
            self._defer(keep)
