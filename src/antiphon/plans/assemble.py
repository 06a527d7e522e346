"""From the deltas of a model to the events of a response.

    deltas -> tool gate -> builder -> events

`Assembly` holds an answer to what its plan allows and ends it: by the model's stop reason,
or as a failure that keeps everything the model produced. It does no I/O and reads no clock; the
caller starts the builder, passes the time, and decides where the events go.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from antiphon.plans.estimate import estimate_usage
from antiphon.plans.plan import Plan
from antiphon.plans.tool_gate import gate_for
from antiphon.protocol.deltas import Delta, TextGrew, produced_length
from antiphon.protocol.errors import BackendError
from antiphon.protocol.events import Event
from antiphon.protocol.machines.builder import ResponseBuilder
from antiphon.protocol.response import Failure, add_usage

__all__ = ["Assembly", "Reserve"]

Reserve = Callable[[int], int]
"""Makes room for so many characters of output; returns for how many there is room now.

Raises AntiphonError if there is none.
"""


def _unlimited(length: int) -> int:
    return sys.maxsize


class Assembly:
    """One response on its way from deltas to events. The builder belongs to the assembly.

    `plan` is what the usage is estimated by if no backend counts it and none is asked.
    """

    def __init__(
        self, plan: Plan, builder: ResponseBuilder, *, reserve: Reserve = _unlimited
    ) -> None:
        self.plan = plan
        self._asked: list[Plan] = []  # of the rounds in which something was produced, and the last
        self._before = 0  # how long the output was before the last
        self._gate = gate_for(plan)
        self._builder = builder
        self._reserve = reserve
        self._length = 0  # how many characters the model has produced
        self._room = reserve(0)  # and for how many there is room

    def feed(self, batch: Sequence[Delta]) -> list[Event]:
        """Return the events of these deltas. Raise BackendError for one that breaks a rule.

        The events of the deltas before it are not lost: the next call returns them.
        """
        # Most batches are one piece of text, which no gate stops.
        if len(batch) == 1 and type(first := batch[0]) is TextGrew:
            length = self._length = self._length + len(first.text)
            if length > self._room:
                self._room = self._reserve(length)
            return self._builder.feed_text(first)
        self._length += produced_length(batch)
        if self._length > self._room:
            self._room = self._reserve(self._length)
        admit = self._gate.admit
        return self._builder.feed_all(
            [admitted for delta in batch if (admitted := admit(delta)) is not None]
        )

    def begin_round(self, plan: Plan, *, continues: bool) -> list[Event]:
        """Hold what follows to this plan; return the events that end the round before.

        A round that `continues` repeats or repairs the answer of the one before: it writes on
        where that one stopped, and what the caller may get is still decided by the first plan.
        """
        if continues:
            self._builder.free_keys()
            return []
        if self._asked and self._length == self._before:  # what came to nothing is not counted
            self._asked.pop()
        self._asked.append(plan)
        self._before = self._length
        self._gate = gate_for(plan)
        return self._builder.next_round()

    def close(self) -> tuple[list[Event], BackendError | None]:
        """Close the open items; return their events, and the problem that makes it a failure."""
        if self._builder.stop is None:
            cut = BackendError("the model broke off", code="upstream_closed")
            return self._builder.close("incomplete"), cut
        return self._builder.close(), self._gate.violation()

    def interrupt(self) -> list[Event]:
        """Return the events of everything produced so far, without ending the response."""
        return self._builder.close("incomplete")

    def finish(self, at: int) -> list[Event]:
        """Return the terminal event of an answer that was closed without a problem."""
        self.estimate_usage()
        return self._builder.finish(at)

    def fail(self, failure: Failure, kind: str) -> list[Event]:
        """Return the last events of a failure; `kind` is the type of its error event."""
        events = self._builder.close("incomplete")
        self.estimate_usage()
        return events + self._builder.fail(failure, kind)

    def estimate_usage(self) -> None:
        """Estimate what no backend has counted, of the items that are closed.

        `finish` and `fail` do it; call it before them to do it in another thread.
        """
        if self._builder.usage is not None:
            return
        first, *later = self._asked or [self.plan]
        usage = estimate_usage(first, self._builder.output)
        for plan in later:  # each round was sent all that came before it
            usage = add_usage(usage, estimate_usage(plan, ()))
        self._builder.note_estimate(usage)
