"""From the deltas of a model to the events of a response.

    deltas -> tool gate -> builder -> events

`Assembly` holds an answer to what its plan allows and ends it: as the model's stop reason says,
or as a failure that keeps everything the model produced. It does no I/O and reads no clock; the
caller starts the builder, passes the time, and decides where the events go.
"""

from __future__ import annotations

from collections.abc import Sequence

from antiphon.plans.estimate import estimate_usage
from antiphon.plans.plan import Plan
from antiphon.plans.tool_gate import gate_for
from antiphon.protocol.deltas import Delta, TextGrew
from antiphon.protocol.errors import BackendError
from antiphon.protocol.events import Event
from antiphon.protocol.machines.builder import ResponseBuilder
from antiphon.protocol.response import Failure

__all__ = ["Assembly"]


class Assembly:
    """One answer on its way from deltas to events. The builder belongs to the assembly."""

    def __init__(self, plan: Plan, builder: ResponseBuilder) -> None:
        self._plan = plan
        self._gate = gate_for(plan)
        self._builder = builder

    def feed(self, batch: Sequence[Delta]) -> list[Event]:
        """Return the events of these deltas. Raise BackendError for one that breaks a rule.

        The events of the deltas before it are not lost: the next call returns them.
        """
        first = batch[0] if len(batch) == 1 else None
        if type(first) is TextGrew:  # most batches are one piece of text, which no gate stops
            return self._builder.feed(first)
        admit = self._gate.admit
        return self._builder.feed_all(
            [admitted for delta in batch if (admitted := admit(delta)) is not None]
        )

    def close(self) -> tuple[list[Event], BackendError | None]:
        """Close the open items; return their events, and the problem that makes it a failure."""
        if not self._builder.has_stopped:
            cut = BackendError("the model broke off", code="upstream_closed")
            return self._builder.close("incomplete"), cut
        return self._builder.close(), self._gate.violation()

    def interrupt(self) -> list[Event]:
        """Return the events of everything produced so far, without ending the response."""
        return self._builder.close("incomplete")

    def finish(self, at: int) -> list[Event]:
        """Return the terminal event of an answer that was closed without a problem."""
        self._estimate_usage()
        return self._builder.finish(at)

    def fail(self, failure: Failure, kind: str) -> list[Event]:
        """Return the last events of a failure; `kind` is the type of its error event."""
        events = self._builder.close("incomplete")
        self._estimate_usage()
        return events + self._builder.fail(failure, kind)

    def _estimate_usage(self) -> None:
        if self._builder.usage is None:
            self._builder.note_estimate(estimate_usage(self._plan, self._builder.output))
