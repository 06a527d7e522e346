"""Go on with an answer that its provider paused.

A provider that runs tools itself may stop in the middle of a long answer (`Stopped.resume`). It is
asked again with what it produced so far as the last item of the context, and goes on from there:
the same response, with the usage of all rounds. Policies before this one see no end at a pause.
After `MAX_PAUSES` of them the answer ends as incomplete.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

import msgspec

from antiphon.engine.run.rounds import Next, Policy, RoundEnd, Rounds
from antiphon.protocol.deltas import Delta, NativeState, Reported, Stopped
from antiphon.protocol.native_state import paused_item
from antiphon.store.base import RoundKind

__all__ = ["MAX_PAUSES", "Resume"]

MAX_PAUSES: Final = 10


class Resume(Policy):
    """Ask a provider that paused to go on."""

    kind: ClassVar[RoundKind] = "continuation"

    sees = True

    def __init__(self, most: int = MAX_PAUSES) -> None:
        self._left = most
        self._state: NativeState | None = None

    def see(self, batch: Sequence[Delta]) -> Sequence[Delta]:
        """Take out a stop that is only a pause, or report that there were too many."""
        last = batch[-1] if batch else None
        if not isinstance(last, Stopped) or last.resume is None:
            return batch
        if not self._left:
            note = "the provider paused its answer too often; it is not complete"
            return [*batch[:-1], Reported(note), Stopped(last.reason)]
        self._left -= 1
        self._state = last.resume
        return batch[:-1]

    async def after(self, end: RoundEnd, rounds: Rounds) -> Next | None:
        """Return a round that goes on, if the provider paused."""
        state, self._state = self._state, None
        if state is None or end.error is not None:
            return None
        items = [*end.plan.items, paused_item(state)]
        return Next(msgspec.structs.replace(end.plan, items=items), continues=True)
