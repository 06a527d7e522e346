"""From records to spans: what is in a trace, and which traces are kept.

    SERVER `POST /v1/responses`
        CLIENT `chat MODEL`            one for each call of an upstream
            INTERNAL `execute_tool NAME`   under the call that has asked for it

Records of one trace are gathered until its request has ended, so that the decision can depend on
the end: what failed, was slow or expensive is kept whatever the sampler says. A background turn
ends after its request; its trace waits for that. What waits is bounded, and nothing waits for
longer than an hour: then it is sent as it is.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags, TraceState

from antiphon.protocol.items import Item, item_type
from antiphon.telemetry import names
from antiphon.telemetry.recorder import (
    CallRecord,
    ChargeRecord,
    Record,
    RequestRecord,
    ResponseRecord,
)
from antiphon.telemetry.settings import TelemetrySettings
from antiphon.transport.tracing import Trace
from antiphon.version import __version__

__all__ = ["Gatherer", "SpanWriter", "Turn"]

_NANO: Final = 1e-9
_FAILED: Final = frozenset({"failed"})
_MODELS: Final = {"model": names.CHAT, "embedding": names.EMBEDDINGS}
_MOST_WAITING: Final = 10_000
_LONGEST_WAIT: Final = 3600.0
_PROBES: Final = frozenset({"/healthz", "/health", "/readyz", "/metrics"})
_SCOPE: Final = InstrumentationScope(names.SCOPE, __version__)
_BACKGROUND: Final = "BACKGROUND"
_QUEUED: Final = "queued"

Attributes = dict[str, Any]
"""Any: what the SDK takes as the value of an attribute."""


class Turn(msgspec.Struct):
    """The records of one trace so far."""

    trace: Trace
    since: float
    requests: list[RequestRecord] = []
    charges: list[ChargeRecord] = []
    calls: list[CallRecord] = []
    response: ResponseRecord | None = None

    def add(self, record: Record) -> bool:
        """Take a record; return whether the trace is complete with it."""
        match record:
            case ChargeRecord():
                self.charges.append(record)
            case CallRecord():
                self.calls.append(record)
            case ResponseRecord():
                self.response = record
            case RequestRecord():
                self.requests.append(record)
                return record.entry.ending != _QUEUED
        return False

    @property
    def has_failed(self) -> bool:
        """Whether the fault is on our side or an upstream's."""
        entries = [one.entry for one in self.requests]
        return any(one.status >= 500 or one.ending in _FAILED for one in entries) or any(
            one.settlement.outcome in _FAILED for one in self.charges
        )

    @property
    def seconds(self) -> float:
        """How long its slowest request took."""
        return max((one.ended - one.entry.started for one in self.requests), default=0.0)

    @property
    def dollars(self) -> float:
        """What its calls cost, as far as that is known."""
        return sum(one.settlement.cost or 0 for one in self.charges) * _NANO


class Gatherer:
    """Puts records together by trace, and decides which traces are kept.

    `sample` decides about a trace that is neither failed nor slow nor expensive.
    """

    def __init__(self, settings: TelemetrySettings, sample: Callable[[Trace], bool]) -> None:
        self._settings = settings
        self._sample = sample
        self._waiting: dict[int, Turn] = {}

    def take(self, records: Sequence[Record], now: float) -> list[Turn]:
        """Return the traces that are complete with these records, and are kept."""
        complete: list[Turn] = []
        for record in records:
            trace = record.trace or _trace_of(record)
            turn = self._waiting.get(trace.trace_id)
            if turn is None:
                turn = self._waiting[trace.trace_id] = Turn(trace, now)
            if turn.add(record):
                complete.append(self._waiting.pop(trace.trace_id))
        return [turn for turn in complete + self._expire(now) if self._is_kept(turn)]

    def rest(self) -> list[Turn]:
        """Return what is kept of the traces that are not complete."""
        waiting, self._waiting = self._waiting, {}
        return [turn for turn in waiting.values() if self._is_kept(turn)]

    def _expire(self, now: float) -> list[Turn]:
        """Return the traces that wait for too long, or of which there are too many."""
        too_many = len(self._waiting) - _MOST_WAITING
        late = [
            key
            for number, (key, turn) in enumerate(self._waiting.items())
            if number < too_many or now - turn.since > _LONGEST_WAIT
        ]
        return [self._waiting.pop(key) for key in late]

    def _is_kept(self, turn: Turn) -> bool:
        if turn.requests and all(one.entry.route in _PROBES for one in turn.requests):
            return False
        return (
            turn.has_failed
            or turn.seconds > self._settings.slow_seconds
            or turn.dollars > self._settings.expensive_usd
            or self._sample(turn.trace)
        )


def _trace_of(record: Record) -> Trace:
    """Return the trace of a turn that another process began: the same for all its records."""
    match record:
        case ChargeRecord():
            name = record.settlement.response_id
        case RequestRecord():
            name = record.entry.response or record.entry.request
        case ResponseRecord():
            name = record.response.id
        case CallRecord():
            name = record.name
    digest = hashlib.sha256(name.encode()).digest()
    trace = Trace(int.from_bytes(digest[:16]) or 1)
    trace.span_id = trace.call_id = int.from_bytes(digest[16:24]) or 1
    return trace


class SpanWriter:
    """Writes the spans of traces. `offset` is what to add to monotonic seconds, in nanoseconds."""

    def __init__(self, resource: Resource, offset: int, *, captures_content: bool = False) -> None:
        self._resource = resource
        self._offset = offset
        self._captures = captures_content

    def write(self, turn: Turn) -> list[ReadableSpan]:
        """Return the spans of a trace, the one of the request first."""
        spans = [self._request(turn, one) for one in turn.requests]
        last = turn.charges[-1] if turn.charges else None
        for charge in turn.charges:
            if charge.wanted.kind in _MODELS:
                response = turn.response if charge is last else None
                spans.append(self._charge(turn, charge, response))
        return spans + [self._call(turn, one) for one in turn.calls]

    def _request(self, turn: Turn, record: RequestRecord) -> ReadableSpan:
        entry, trace = record.entry, turn.trace
        is_background = entry.method == _BACKGROUND
        attributes: Attributes = {
            names.HTTP_ROUTE: entry.route,
            names.REQUEST_ID: entry.request,
            names.KEY_ID: entry.key,
            names.RESPONSE_ID: entry.response,
            names.REQUEST_MODEL: entry.model,
            names.ENDING: entry.ending,
            names.BASIS: entry.basis,
            names.DEGRADED: entry.degraded,
            names.COST: float(entry.cost_usd) if entry.cost_usd else None,
        }
        if not is_background:
            attributes[names.HTTP_METHOD] = entry.method
            attributes[names.HTTP_STATUS] = entry.status or None
        problem = entry.error if entry.status >= 500 or entry.ending in _FAILED else None
        # A background turn goes on after its request: it is a span of its own below it.
        has_request = is_background and len(turn.requests) > 1
        return self._span(
            turn,
            f"{entry.method} {entry.route}",
            Trace.new_span_id() if has_request else trace.span_id,
            trace.span_id if has_request else trace.parent_id,
            SpanKind.CONSUMER if is_background else SpanKind.SERVER,
            (entry.started, record.ended),
            attributes,
            problem,
        )

    def _charge(
        self, turn: Turn, record: ChargeRecord, response: ResponseRecord | None
    ) -> ReadableSpan:
        wanted, settlement = record.wanted, record.settlement
        used, first = settlement.used, record.first
        attributes: Attributes = {
            names.OPERATION: _MODELS[wanted.kind],
            names.PROVIDER: wanted.provider,
            names.REQUEST_MODEL: record.model,
            names.RESPONSE_MODEL: wanted.served,
            names.RESPONSE_ID: settlement.response_id,
            names.CONVERSATION_ID: record.payer.conversation,
            names.SESSION_ID: record.payer.conversation,
            names.OUTPUT_TYPE: record.output_type if wanted.kind == "model" else None,
            names.FINISH_REASONS: [record.finish] if record.finish else None,
            names.FIRST_CHUNK: None if first is None else first - record.started,
            names.INPUT_TOKENS: used.input_total,
            names.OUTPUT_TOKENS: used.output_total,
            names.CACHE_READ: used.cached,
            names.CACHE_WRITE: used.cache_write,
            names.REASONING_TOKENS: used.reasoning,
            names.KEY_ID: record.payer.key,
            names.PROJECT: record.payer.project,
            names.ROUND: record.number,
            names.OUTCOME: settlement.outcome,
            names.BASIS: settlement.basis,
        }
        if settlement.cost is not None:
            attributes[names.COST] = attributes[names.USAGE_COST] = settlement.cost * _NANO
        if self._captures:
            attributes |= _content_of(record, response)
        has_failed = settlement.outcome in ("failed", "released")
        return self._span(
            turn,
            f"{_MODELS[wanted.kind]} {record.model}",
            record.span_id or Trace.new_span_id(),
            turn.trace.span_id,
            SpanKind.CLIENT,
            (record.started, record.ended),
            attributes,
            settlement.outcome if has_failed else None,
        )

    def _call(self, turn: Turn, record: CallRecord) -> ReadableSpan:
        attributes: Attributes = {
            names.OPERATION: names.EXECUTE_TOOL,
            names.TOOL_NAME: record.name,
            names.TOOL_TYPE: record.kind,
            names.TOOL_ENDING: record.ending,
        }
        return self._span(
            turn,
            f"{names.EXECUTE_TOOL} {record.name}",
            Trace.new_span_id(),
            record.parent_id or turn.trace.span_id,
            SpanKind.INTERNAL,
            (record.ended - record.seconds, record.ended),
            attributes,
            None if record.ending == "completed" else record.ending,
        )

    def _span(
        self,
        turn: Turn,
        name: str,
        span_id: int,
        parent_id: int,
        kind: SpanKind,
        times: tuple[float, float],
        attributes: Attributes,
        problem: str | None,
    ) -> ReadableSpan:
        trace = turn.trace
        if problem is not None:
            attributes[names.ERROR_TYPE] = problem or names.OTHER_ERROR
        return ReadableSpan(
            name,
            context=_context(trace, span_id),
            parent=_context(trace, parent_id) if parent_id else None,
            resource=self._resource,
            attributes={key: value for key, value in attributes.items() if _is_known(value)},
            kind=kind,
            status=Status(StatusCode.UNSET if problem is None else StatusCode.ERROR),
            start_time=self._nanoseconds(times[0]),
            end_time=self._nanoseconds(times[1]),
            instrumentation_scope=_SCOPE,
        )

    def _nanoseconds(self, monotonic: float) -> int:
        return self._offset + int(monotonic * 1_000_000_000)


def _is_known(value: object) -> bool:
    return value is not None and value != ""


def _context(trace: Trace, span_id: int) -> SpanContext:
    state = TraceState.from_header([trace.state]) if trace.state else None
    return SpanContext(trace.trace_id, span_id, False, TraceFlags(TraceFlags.SAMPLED), state)


# Content.


def _content_of(record: ChargeRecord, response: ResponseRecord | None) -> Attributes:
    """Return what the model was asked and what it answered, in the form of the conventions."""
    found: Attributes = {}
    plan = record.plan
    if plan is not None:
        found[names.INPUT_MESSAGES] = _messages(plan.items)
        if plan.instructions:
            found[names.INSTRUCTIONS] = json.dumps([_text_part(plan.instructions)])
    if response is not None:
        messages = _messages(response.response.output, "assistant")
        found[names.OUTPUT_MESSAGES] = messages
    return found


def _messages(items: Sequence[Item], role: str = "user") -> str:
    return json.dumps([_message(item, role) for item in items], ensure_ascii=False, default=str)


def _message(item: Item, role: str) -> Mapping[str, object]:
    """Return an item as a message: texts as texts, calls and outputs with their fields."""
    kind = item_type(item)
    if kind == "message":
        return {"role": item.get("role", role), "parts": _parts(item.get("content"))}
    if kind == "function_call":
        call = {"id": item.get("call_id"), "name": item.get("name")}
        part = {"type": "tool_call", **call, "arguments": item.get("arguments")}
        return {"role": "assistant", "parts": [part]}
    if kind == "function_call_output":
        part = {"type": "tool_call_response", "id": item.get("call_id")}
        return {"role": "tool", "parts": [{**part, "response": item.get("output")}]}
    return {"role": "assistant", "parts": [{"type": kind, "content": item}]}


def _parts(content: object) -> list[dict[str, str]]:
    """Return the texts of a message; of any other part, its kind."""
    if not isinstance(content, list):
        return [_text_part(str(content or ""))]
    return [
        _text_part(part["text"]) if isinstance(part.get("text"), str) else {"type": item_type(part)}
        for part in content
    ]


def _text_part(text: str) -> dict[str, str]:
    return {"type": "text", "content": text}
