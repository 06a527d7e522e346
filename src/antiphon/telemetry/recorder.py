"""What happens is recorded on the path of the turn; what becomes of it is decided in a thread.

A record is a plain tuple in a ring of bounded length: making one costs about a microsecond,
where a span of the SDK costs twenty. Nothing here waits, raises or imports the SDK. When the ring
is full, records are dropped and counted: telemetry must not slow down or stop the gateway.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from typing import Final, NamedTuple

from antiphon.engine.run.turn_charges import HeldCharge, TurnCharges, Wanted
from antiphon.plans.plan import Plan
from antiphon.protocol.response import Response
from antiphon.server.request_log import Entry
from antiphon.store.base.ledger import Payer, Settlement
from antiphon.transport.tracing import Trace, begin_trace, current_trace, read_parent

__all__ = ["CallRecord", "ChargeRecord", "Record", "Recorder", "RequestRecord", "ResponseRecord"]

MAX_RECORDS: Final = 20_000


class RequestRecord(NamedTuple):
    """A request that has ended."""

    trace: Trace | None
    entry: Entry
    ended: float


class ChargeRecord(NamedTuple):
    """A call of an upstream that has ended."""

    trace: Trace | None
    span_id: int
    number: int
    model: str
    payer: Payer
    wanted: Wanted
    started: float
    first: float | None
    ended: float
    finish: str
    output_type: str
    settlement: Settlement
    plan: Plan | None
    """What the model was asked, if content is captured."""


class CallRecord(NamedTuple):
    """A call of a hosted tool that has ended."""

    trace: Trace | None
    parent_id: int
    kind: str
    name: str
    ending: str
    seconds: float
    ended: float


class ResponseRecord(NamedTuple):
    """A response with its output, if content is captured."""

    trace: Trace | None
    response: Response


Record = RequestRecord | ChargeRecord | CallRecord | ResponseRecord


class Recorder:
    """Records requests, calls of upstreams and of tools. The exporter takes the records."""

    def __init__(self, *, captures_content: bool = False, most: int = MAX_RECORDS) -> None:
        self.records: deque[Record] = deque()
        self.dropped = 0
        """How many records there was no room for."""
        self._captures = captures_content
        self._most = most

    def _add(self, record: Record) -> None:
        if len(self.records) >= self._most:
            self.dropped += 1
        else:
            self.records.append(record)

    # Requests.

    def begin(self, headers: Mapping[str, str]) -> None:
        """Begin the trace of a request in the current task."""
        begin_trace(read_parent(headers.get("traceparent"), headers.get("tracestate")))

    def end(self, entry: Entry) -> None:
        """Record a request that has ended, or a background turn."""
        self._add(RequestRecord(current_trace(), entry, time.monotonic()))

    def note_response(self, response: Response) -> None:
        """Record the output of a response, if content is captured."""
        if self._captures:
            self._add(ResponseRecord(current_trace(), response))

    # Calls of upstreams.

    def note_reserved(self, charges: TurnCharges, charge: HeldCharge) -> None:
        """Give the call an id, which goes to the upstream."""
        trace = current_trace()
        if trace is not None:
            charge.span_id = trace.call_id = Trace.new_span_id()

    def note_settled(
        self, charges: TurnCharges, charge: HeldCharge, settlement: Settlement
    ) -> None:
        """Record a call of an upstream that has ended."""
        self._add(
            ChargeRecord(
                current_trace(),
                charge.span_id,
                charge.number,
                charges.model,
                charges.payer,
                charge.wanted,
                charge.started,
                charge.first,
                time.monotonic(),
                charge.finish,
                charge.output_type,
                settlement,
                charge.plan if self._captures else None,
            )
        )

    # Hosted tools.

    def note_call(self, kind: str, ending: str, seconds: float, name: str = "") -> None:
        """Record a call of a hosted tool that has ended."""
        trace = current_trace()
        parent = 0 if trace is None else trace.call_id
        self._add(CallRecord(trace, parent, kind, name, ending, seconds, time.monotonic()))
