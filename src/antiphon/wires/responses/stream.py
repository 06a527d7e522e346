"""A stream of Responses events, or a whole response, as deltas. No I/O.

Servers of this API deviate from it in many ways, and none of them may cost an answer:

- an item may lack its beginning or its end; the terminal response has what is missing;
- several items may be open at once and end in any order: the builder reports them in order;
- an error may come with a failed response, without one, or in one that is called completed.

`answer_prose` reads texts, `answer_items` everything else. Ids, indexes and sequence numbers of the
upstream go no further. An answer has ended with a terminal event, never without one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from antiphon.plans.toolbox import Toolbox
from antiphon.protocol.codec import decode_events, decode_json, decode_response
from antiphon.protocol.deltas import (
    Delta,
    Reported,
    Stopped,
    TextGrew,
    TierUsed,
    UsageKnown,
)
from antiphon.protocol.errors import BackendError, BrokenStream
from antiphon.protocol.events import (
    AnnotationEvent,
    ArgumentsDelta,
    ArgumentsDone,
    ContentPartAdded,
    ContentPartDone,
    CustomInputDelta,
    CustomInputDone,
    ErrorEvent,
    Event,
    OutputItemAdded,
    OutputItemDone,
    OutputTextDelta,
    OutputTextDone,
    ReasoningTextDelta,
    ReasoningTextDone,
    RefusalDelta,
    RefusalDone,
    ResponseCompleted,
    ResponseCreated,
    ResponseFailed,
    ResponseIncomplete,
    ResponseInProgress,
    ResponseQueued,
    SummaryPartAdded,
    SummaryPartDone,
    SummaryTextDelta,
    SummaryTextDone,
)
from antiphon.protocol.items import Item
from antiphon.protocol.response import Response, with_total
from antiphon.protocol.sse import MAX_LINE, SseDecoder
from antiphon.wires.faults import fault_from_json, has_error
from antiphon.wires.responses.answer_items import ItemReader
from antiphon.wires.responses.answer_prose import PROSE, ProseReader
from antiphon.wires.responses.places import Place, Places
from antiphon.wires.responses.profiles import Profile
from antiphon.wires.responses.runs import read_pieces

__all__ = ["ResponsesStream"]

# What a response has that states no other.
_USUAL_TIER: Final = "default"
_LENGTH: Final = "max_output_tokens"
_FILTER: Final = "content_filter"
_CLOSED: Final = "the upstream's stream ended before its response did"


class ResponsesStream:
    """Reads one answer. `limit` is the most tokens that were asked for."""

    def __init__(
        self,
        profile: Profile,
        toolbox: Toolbox,
        *,
        account: str = "",
        limit: int | None = None,
        max_line: int = MAX_LINE,
    ) -> None:
        self._profile = profile
        self._limit = limit
        self._sse = SseDecoder(max_line)
        self._places = Places()
        self._out: list[Delta] = []
        self._items = ItemReader(toolbox, self._out)
        self._prose = ProseReader(self._places, profile, account, self._out)
        self.error: BackendError | None = None
        """An error that was reported. A failed response usually follows, with what it cost."""
        self.fault: BackendError | None = None
        self.is_done = False
        self.has_begun = False
        """Whether something came that belongs to the answer itself."""

    @property
    def has_stopped(self) -> bool:
        """Whether only the end can follow: the terminal event, or an error, has come."""
        return self.is_done or self.error is not None

    def feed(self, data: bytes) -> list[Delta]:
        """Return the deltas of these bytes; `fault` is set if the answer is to be read no more."""
        try:
            lines = self._sse.feed_lines(data)
            grew = self._go_on(lines)
            if grew is not None:
                return grew
            self._take_lines(lines)
        except BrokenStream as error:
            if not self.is_done:  # nothing comes after the end
                self._break(_invalid(error.message))
        return self._give()

    def end(self, error: BackendError | None = None) -> list[Delta]:
        """Return the deltas of the end of the stream; `error` is how it broke, if it did."""
        if self.is_done or self.fault is not None:
            return self._give()
        try:
            for frame in self._sse.end():
                self._take_lines(b"data: " + frame.data.replace(b"\n", b"\ndata: "))
        except BrokenStream:
            pass  # half an event, which the end cut off
        if not self.is_done and self.fault is None:
            closed = BackendError(_CLOSED, code="upstream_closed", ended_in_order=True)
            self._break(self.error or error or closed)
        return self._give()

    def whole(self, body: bytes) -> list[Delta]:
        """Return the deltas of an answer that was not streamed."""
        value = decode_json(body)
        if has_error(value):
            self._break(fault_from_json(value))
        try:
            response = decode_response(body)
        except BrokenStream as error:
            self._break(self.fault or _invalid(error.message))
            return self._give()
        self.has_begun = True
        self._end_with(response)
        if not self.is_done and self.fault is None:
            self._break(_invalid(f"its response is {response.status}, which is no end"))
        return self._give()

    def _take_lines(self, lines: bytes) -> None:
        if not lines:
            return
        events: list[Event] = []
        try:
            decode_events(lines, events)
        finally:
            for event in events:
                if not self.is_done and self.fault is None:  # nothing comes after the end
                    _HANDLERS.get(type(event), ResponsesStream._progress)(self, event)

    def _go_on(self, lines: bytes) -> list[Delta] | None:
        """Return the deltas of lines that only go on with the open text, as most do; else None."""
        prose = self._prose
        texts = None if prose.at is None else read_pieces(lines, *prose.at)
        if texts is None:
            return None
        prose.pieces += texts
        return [TextGrew(text) for text in texts]

    def _give(self) -> list[Delta]:
        given = self._out.copy()
        self._out.clear()
        return given

    def _break(self, fault: BackendError) -> None:
        self.fault = self.fault or fault
        self._prose.stop()

    # Beginnings and ends of items.

    def _ignore(self, event: Event) -> None:
        """Take note of nothing: the event announces what other events hold."""

    def _add(self, event: OutputItemAdded) -> None:
        self.has_begun = True
        if not self._has_type(event.item):
            return
        before = self._places.find_any(event.output_index, "")
        item_id = _id_of(event.item)
        if before is not None and item_id in before.ids:
            return  # the same beginning twice
        place = self._places.add(event.item, event.output_index, item_id)
        if place.kind not in PROSE:
            self._prose.stop()
            self._items.begin(place)

    def _has_type(self, item: Item) -> bool:
        kind = item.get("type")
        if isinstance(kind, str) and kind:
            return True
        self._report("an item without a type: it cannot be passed on")
        return False

    def _finish_item(self, event: OutputItemDone) -> None:
        self.has_begun = True
        if not self._has_type(event.item):
            return
        kind, item_id = event.item.get("type"), _id_of(event.item)
        place = self._places.find(event.output_index, item_id, (str(kind),))
        if place is None and self._is_known(item_id):
            return  # the same end twice
        place = place or self._places.add(event.item, event.output_index, item_id)
        self._finish(place, event.item)

    def _is_known(self, item_id: str) -> bool:
        return bool(item_id) and any(item_id in place.ids for place in self._places.all)

    def _finish(self, place: Place, item: Item) -> None:
        """Report what the finished item has beyond what was reported of it."""
        if place.kind in PROSE:
            self._prose.finish(place, item)
        else:
            self._prose.stop()
            self._items.finish(place, item)
        place.is_done = True

    # Text.

    def _grow_text(self, event: OutputTextDelta) -> None:
        self.has_begun = True
        logprobs = tuple(event.logprobs or ())
        self._prose.grow(event, "text", event.content_index, event.delta, logprobs)

    def _grow_refusal(self, event: RefusalDelta) -> None:
        self.has_begun = True
        self._prose.grow(event, "refusal", event.content_index, event.delta)

    def _grow_reasoning(self, event: ReasoningTextDelta) -> None:
        self.has_begun = True
        self._prose.grow(event, "reasoning", event.content_index, event.delta)

    def _grow_summary(self, event: SummaryTextDelta) -> None:
        self.has_begun = True
        self._prose.grow(event, "summary", event.summary_index, event.delta)

    def _finish_text(self, event: OutputTextDone) -> None:
        logprobs = tuple(event.logprobs or ())
        self._prose.finish_part(event, "text", event.content_index, event.text, logprobs)

    def _finish_refusal(self, event: RefusalDone) -> None:
        self._prose.finish_part(event, "refusal", event.content_index, event.refusal)

    def _finish_reasoning(self, event: ReasoningTextDone) -> None:
        self._prose.finish_part(event, "reasoning", event.content_index, event.text)

    def _finish_summary(self, event: SummaryTextDone) -> None:
        self._prose.finish_part(event, "summary", event.summary_index, event.text)

    def _finish_content_part(self, event: ContentPartDone) -> None:
        self._prose.take_part(event, event.part, event.content_index)

    def _finish_summary_part(self, event: SummaryPartDone) -> None:
        self._prose.take_part(event, event.part, event.summary_index)

    def _annotate(self, event: AnnotationEvent) -> None:
        self._prose.annotate(event, event.content_index, event.annotation)

    # Calls and other items.

    def _grow_call(self, event: ArgumentsDelta | CustomInputDelta) -> None:
        self.has_begun = True
        self._prose.stop()
        self._items.grow_call(self._call_of(event), event.delta)

    def _finish_arguments(self, event: ArgumentsDone) -> None:
        self._items.finish_text(self._call_of(event), event.arguments)

    def _finish_input(self, event: CustomInputDone) -> None:
        self._items.finish_text(self._call_of(event), event.input)

    def _call_of(self, event: Any) -> Place | None:
        kinds = ("function_call", "custom_tool_call")
        return self._places.find(event.output_index, event.item_id, kinds)

    def _progress(self, event: Event) -> None:
        self.has_begun = True
        self._items.progress(event, self._places)

    def _report(self, what: str) -> None:
        self._out.append(Reported(what))

    # The end.

    def _fail(self, event: ErrorEvent) -> None:
        kind = event.kind if isinstance(event.kind, str) else None
        said = {"message": event.message, "code": event.code, "param": event.param, "type": kind}
        self.error = self.error or fault_from_json({"error": said})

    def _complete(self, event: ResponseCompleted | ResponseFailed | ResponseIncomplete) -> None:
        response = event.response
        if isinstance(event, ResponseFailed):
            response.status = "failed"
        elif isinstance(event, ResponseIncomplete) and response.status != "cancelled":
            response.status = "incomplete"
        elif isinstance(event, ResponseCompleted) and response.status not in (
            "failed",
            "cancelled",
        ):
            response.status = "completed"
        self._end_with(response)

    def _end_with(self, response: Response) -> None:
        """Report what only the terminal response has, and how the answer ended."""
        output = [item for item in response.output if self._has_type(item)]
        for place, item in self._places.match(output):
            if place is None:
                place = self._places.add(item, -1, _id_of(item))
            if not place.is_done:
                self._finish(place, item)
        self._note_totals(response)
        if response.error is not None or response.status in ("failed", "cancelled"):
            self.error = self.error or _failure(response)
        if self.error is not None:
            self._break(self.error)
            return
        reason = self._stop_reason(response)
        if reason is None:
            return
        for place in self._places.all:
            if not place.is_done and place.kind not in PROSE:
                self._items.leave(place, is_cut=reason != "stop")
        self._prose.stop()
        self._out.append(Stopped(reason))
        self.is_done = True

    def _note_totals(self, response: Response) -> None:
        if response.usage is not None:
            usage = response.usage
            # A report has a total, too. Without both, the output was left out, and is not 0.
            has_output = bool(usage.output_tokens or usage.total_tokens)
            self._out.append(UsageKnown(with_total(usage), has_output))
        if response.service_tier not in (None, _USUAL_TIER):
            self._out.append(TierUsed(response.service_tier))
        extra = response.extra if isinstance(response.extra, dict) else {}
        if extra.get("moderation"):
            self._report("moderation: what the upstream found is not passed on")

    def _stop_reason(self, response: Response) -> Any:  # a StopReason, or None if it is no end
        if response.status == "incomplete":
            details = response.incomplete_details
            reason = details.reason if details is not None else None
            if reason not in (_LENGTH, _FILTER):
                self._report(
                    f"incomplete_details.reason ({str(reason)[:40]}): passed on as {_LENGTH}"
                )
            return "content_filter" if reason == _FILTER else "length"
        if response.status != "completed":
            return None
        used = response.usage.output_tokens if response.usage is not None else 0
        is_cut = self._limit is not None and used >= self._limit
        return "length" if is_cut and self._profile.completes_at_limit else "stop"


def _failure(response: Response) -> BackendError:
    error = response.error
    if error is not None:
        return fault_from_json({"error": {"code": error.code, "message": error.message}})
    return fault_from_json({"message": f"its response ended as {response.status}"})


def _invalid(why: str) -> BackendError:
    return BackendError(
        f"the upstream's answer cannot be read: {why}", code="upstream_invalid_response"
    )


def _id_of(item: Item) -> str:
    given = item.get("id")
    return given if isinstance(given, str) else ""


_HANDLERS: Final[dict[type[Any], Callable[[ResponsesStream, Any], None]]] = {
    ResponseCreated: ResponsesStream._ignore,
    ResponseQueued: ResponsesStream._ignore,
    ResponseInProgress: ResponsesStream._ignore,
    ContentPartAdded: ResponsesStream._ignore,
    SummaryPartAdded: ResponsesStream._ignore,
    OutputItemAdded: ResponsesStream._add,
    OutputItemDone: ResponsesStream._finish_item,
    ContentPartDone: ResponsesStream._finish_content_part,
    SummaryPartDone: ResponsesStream._finish_summary_part,
    OutputTextDelta: ResponsesStream._grow_text,
    OutputTextDone: ResponsesStream._finish_text,
    RefusalDelta: ResponsesStream._grow_refusal,
    RefusalDone: ResponsesStream._finish_refusal,
    ReasoningTextDelta: ResponsesStream._grow_reasoning,
    ReasoningTextDone: ResponsesStream._finish_reasoning,
    SummaryTextDelta: ResponsesStream._grow_summary,
    SummaryTextDone: ResponsesStream._finish_summary,
    AnnotationEvent: ResponsesStream._annotate,
    ArgumentsDelta: ResponsesStream._grow_call,
    CustomInputDelta: ResponsesStream._grow_call,
    ArgumentsDone: ResponsesStream._finish_arguments,
    CustomInputDone: ResponsesStream._finish_input,
    ErrorEvent: ResponsesStream._fail,
    ResponseCompleted: ResponsesStream._complete,
    ResponseIncomplete: ResponsesStream._complete,
    ResponseFailed: ResponsesStream._complete,
}
