"""Keeps what callers of some doors do not send back with their calls.

That is native state, and what hosted tools did. What belongs to a call is in
`prepare.native_states` and `prepare.carried_items`; here it is stored and found by the call's id.
A store that fails costs no answer: what cannot be stored now is stored later, and what cannot be
read is reported.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from antiphon.engine.keep.pending_writes import Defer
from antiphon.engine.prepare.carried_items import (
    call_of_caller,
    hosted_before_call,
    seal_items,
)
from antiphon.engine.prepare.native_states import calls_in, carried_by, lonely_calls
from antiphon.engine.prepare.seal import Sealer
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

    async def find(
        self, owner: str, items: Sequence[Item], *, of_all: bool = False
    ) -> tuple[dict[str, bytes], list[str]]:
        """Return what was kept for the calls of these items, and a note if it cannot be read.

        `of_all` if it is more than native state, which some calls come back with.
        """
        calls = (calls_in if of_all else lonely_calls)(items)[-MAX_STATES:]
        if not calls:
            return {}, []
        try:
            return await self._states.find(owner, calls, self._now() - STATE_SECONDS), []
        except StoreUnavailable as error:
            return {}, [f"input (reasoning): its native state cannot be read: {error.message}"]

    async def keep(
        self,
        owner: str,
        sealer: Sealer | None,
        response: Response,
        states: Mapping[str, KeptState],
    ) -> None:
        """Keep what belongs to the calls of a response that has answered.

        With a sealer, that includes what hosted tools did.
        """
        hosted = _hosted(response.output, owner, sealer) if sealer is not None else {}
        carried = carried_by(response.output, states, hosted)
        if not carried or response.status not in ("completed", "incomplete"):
            return
        keep = partial(self._states.keep, owner, response.id, carried, self._now())
        try:
            await keep()
        except StoreUnavailable:
            self._defer(keep)


def _hosted(output: Sequence[Item], owner: str, sealer: Sealer) -> dict[str, str]:
    """Return what hosted tools did, sealed, by the id of the call that it is kept with."""
    call_id, items = call_of_caller(output), hosted_before_call(output)
    return {call_id: seal_items(items, owner, sealer)} if call_id is not None and items else {}
