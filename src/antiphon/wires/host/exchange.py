"""One request to an editor that answers, and its answer as deltas. No I/O.

    request   plan -> body
    answer    messages -> HostStream -> lifter -> deltas

The deltas are about the caller's own tools: calls of the functions that stood for them in the
request are lifted back. Nothing is raised for what the editor does wrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from antiphon.plans.plan import Plan
from antiphon.protocol.deltas import Delta
from antiphon.protocol.errors import BackendError
from antiphon.wires.host.answers import Received
from antiphon.wires.host.request import encode_request, respond_line
from antiphon.wires.host.stream import HostStream
from antiphon.wires.lift import CallLifter

__all__ = ["HostExchange"]


class HostExchange:
    """The line to send for a plan, and the reader of what comes back."""

    def __init__(self, plan: Plan, account: str = "") -> None:
        self.body, self.degraded = encode_request(plan, account)
        """The request, and what it cannot express of the plan. Emptied when it is answered."""
        self._stream = HostStream(model=plan.model, account=account)
        self._lifter = CallLifter(plan.toolbox)

    def line(self, request_id: int) -> bytes:
        """Return the line that sends the request under this id."""
        return respond_line(request_id, self.body)

    @property
    def fault(self) -> BackendError | None:
        """Why the answer cannot be read further."""
        return self._stream.fault

    @property
    def is_over(self) -> bool:
        """Whether nothing more is read of the answer."""
        return self._stream.is_done or self._stream.fault is not None

    def feed(self, answers: Iterable[Received]) -> Sequence[Delta]:
        """Return the deltas of these messages."""
        return self._lift([delta for answer in answers for delta in self._stream.feed(answer)])

    def end(self, error: BackendError) -> Sequence[Delta]:
        """Return the deltas of an answer that broke off like this."""
        return self._lift(self._stream.end(error))

    def _lift(self, deltas: list[Delta]) -> Sequence[Delta]:
        lifter = self._lifter
        if lifter.held is None and lifter.taken.isdisjoint(map(type, deltas)):
            return deltas  # as most are
        lifted = lifter.feed(deltas)
        return [*lifted, *lifter.release()] if self.fault is not None else lifted
