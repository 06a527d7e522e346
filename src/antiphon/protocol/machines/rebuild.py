"""A builder in the state in which another one stopped, from the events that it emitted.

What a builder knows is in its events, except what it held back. So another process can bring a
log that ends in the middle to a correct end: it closes what is open, and counting goes on. Events
that belong together (a text and its part, arguments and their call) may have been separated; the
new builder then emits the missing half first. Items that were done stay as they are, sealed or not.

Nothing is repaired: a log that the referee objects to, or that holds more than a builder of this
version can emit, is a `BrokenStream`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, get_args

import msgspec
from msgspec import to_builtins

from antiphon.protocol.errors import BrokenStream
from antiphon.protocol.events import (
    AnnotationEvent,
    ArgumentsDelta,
    ArgumentsDone,
    CodeDelta,
    CodeDone,
    ContentPartAdded,
    ContentPartDone,
    CustomInputDelta,
    CustomInputDone,
    ErrorEvent,
    Event,
    McpArgumentsDelta,
    McpArgumentsDone,
    OutputItemAdded,
    OutputItemDone,
    OutputTextDelta,
    OutputTextDone,
    ReasoningTextDelta,
    ReasoningTextDone,
    RefusalDelta,
    RefusalDone,
    ResponseCreated,
    ResponseFailed,
    ResponseInProgress,
    ResponseQueued,
    StageEvent,
    SummaryPartAdded,
    SummaryPartDone,
    SummaryTextDelta,
    SummaryTextDone,
    UnknownEvent,
    event_type,
)
from antiphon.protocol.families import WHOLE, Family, Kind, call_family
from antiphon.protocol.items import Item, Part
from antiphon.protocol.machines.builder import Mint, ReasoningAs, ResponseBuilder, Seal
from antiphon.protocol.machines.hosted_items import OpenItem
from antiphon.protocol.machines.open_items import OpenCall, OpenPart, OpenProse, copy_json
from antiphon.protocol.machines.referee import Referee
from antiphon.protocol.response import Failure, Response

__all__ = ["rebuild"]

_TextDelta = OutputTextDelta | RefusalDelta | ReasoningTextDelta | SummaryTextDelta
_TextDone = OutputTextDone | RefusalDone | ReasoningTextDone | SummaryTextDone
_Progress = StageEvent | CodeDelta | CodeDone | McpArgumentsDelta | McpArgumentsDone | UnknownEvent
_PartAdded = ContentPartAdded | SummaryPartAdded
_PartDone = ContentPartDone | SummaryPartDone

_PART_KINDS: Final = frozenset({"output_text", "refusal", "reasoning_text", "summary_text"})


def rebuild(
    response: Response,
    events: Iterable[Event],
    mint: Mint,
    *,
    reasoning_as: ReasoningAs = "content",
    seal: Seal | None = None,
    has_error_event: bool = True,
) -> ResponseBuilder:
    """Return a builder in the state after these events, which did not come to an end.

    `response` is the stored one. With no events at all it is a new builder, to be started.
    Raise BrokenStream if a builder of this version cannot have emitted them.
    """
    begun = msgspec.structs.replace(response, output=[])
    builder = _Rebuilt(
        begun, mint, reasoning_as=reasoning_as, seal=seal, has_error_event=has_error_event
    )
    referee = Referee()
    last: Event | None = None
    for event in events:
        violations = referee.judge(event)
        if violations:
            raise _broken(violations[0].message)
        builder.recall(event)
        last = event
    builder.mend(last)
    return builder


class _Rebuilt(ResponseBuilder):
    """A builder that takes over the events of another. The referee has checked them before."""

    def __init__(
        self,
        response: Response,
        mint: Mint,
        *,
        reasoning_as: ReasoningAs,
        seal: Seal | None,
        has_error_event: bool,
    ) -> None:
        super().__init__(
            response,
            mint,
            reasoning_as=reasoning_as,
            seal=seal,
            has_error_event=has_error_event,
        )
        self._told_failure: Failure | None = None
        self._recalls: dict[type[Any], Callable[[Any], None]] = {
            **dict.fromkeys((ResponseCreated, ResponseQueued, ResponseInProgress), _skip),
            **dict.fromkeys((ContentPartAdded, SummaryPartAdded), self._recall_part),
            **dict.fromkeys((ContentPartDone, SummaryPartDone), self._recall_part_done),
            **dict.fromkeys((OutputTextDelta, RefusalDelta), self._recall_text),
            **dict.fromkeys((ReasoningTextDelta, SummaryTextDelta), self._recall_text),
            **dict.fromkeys((OutputTextDone, RefusalDone), _skip),
            **dict.fromkeys((ReasoningTextDone, SummaryTextDone), _skip),
            **dict.fromkeys((ArgumentsDone, CustomInputDone), _skip),
            **dict.fromkeys(get_args(StageEvent), self._recall_progress),
            **dict.fromkeys((CodeDelta, CodeDone, UnknownEvent), self._recall_progress),
            **dict.fromkeys((McpArgumentsDelta, McpArgumentsDone), self._recall_progress),
            AnnotationEvent: self._recall_annotation,
            **dict.fromkeys((ArgumentsDelta, CustomInputDelta), self._recall_said),
            OutputItemAdded: self._recall_item,
            OutputItemDone: self._recall_item_done,
            ErrorEvent: self._recall_error,
        }

    def recall(self, event: Event) -> None:
        """Take an event that was emitted, and be in the state after it."""
        take = self._recalls.get(type(event))
        if take is None:
            raise _broken(f"{event_type(event)} cannot be continued")
        take(event)
        self._out.sequence += 1

    def mend(self, last: Event | None) -> None:
        """Emit what belongs to the last event and is missing."""
        match last:
            case ResponseCreated() if last.response.status == "queued":
                self._out.announce(self._response, ResponseQueued, "queued")
            case OutputTextDone() | RefusalDone() | ReasoningTextDone() | SummaryTextDone():
                prose, part = self._open_text()
                self._prose.end_part(prose, part, part.growing.text())
            case ArgumentsDone():
                self._mend_call(last.output_index, last.arguments)
            case CustomInputDone():
                self._mend_call(last.output_index, last.input)

    def _fail(self, failure: Failure, kind: str, *, is_kept: bool) -> list[Event]:
        """End as failed. An error event that was sent already stands; only the end is missing."""
        if self._told_failure is None:
            return super()._fail(failure, kind, is_kept=is_kept)
        self._end_number = self._out.sequence
        self._response.error = self._told_failure
        self._out.announce(self._response, ResponseFailed, "failed")
        return self._out.take()

    def cancel(self) -> list[Event]:
        """End as cancelled, or as failed if that was announced already."""
        if self._told_failure is None:
            return super().cancel()
        return self.fail(self._told_failure)

    def _mend_call(self, index: int, said: str) -> None:
        call = self._open.pop(index)
        assert isinstance(call, OpenCall)
        # One that is done without arguments was cut off: a whole one would have had "{}". A
        # plain text does not show it.
        is_whole = call.kind == "function" and call.check_whole()
        status = self._out.after_cut("completed" if is_whole else "incomplete")
        self._out.end_item(call.index, call.item(status, said))

    def _open_text(self) -> tuple[OpenProse, OpenPart]:
        if self._prose.open is None or self._prose.open.part is None:
            raise _broken("a part of an item that was passed on")
        return self._prose.open, self._prose.open.part

    # What each event changes in the state.

    def _recall_item(self, event: OutputItemAdded) -> None:
        index, item = self._out.next_index(), event.item
        kind, item_id = item.get("type"), str(item.get("id"))
        is_running = item.get("status") == "in_progress"
        family = call_family(item)
        if is_running and family is not None:
            self._recall_call(index, item, family)
        elif is_running and (kind == "message" or kind == "reasoning"):
            self._prose.open = OpenProse(kind, item_id, index)
            _compare(item, self._prose.open.item("in_progress"))
        else:
            self._open[str(index)] = OpenItem(copy_json(item), index)

    def _recall_call(self, index: int, item: Item, family: Family) -> None:
        item_id, call_id = str(item.get("id")), str(item.get("call_id"))
        self._call_ids.add(call_id)
        if family.kind in WHOLE:
            self._open[index] = _TornCall(item_id, index, call_id, family.kind, item)
            return
        name, namespace = str(item.get("name")), item.get("namespace")
        call = OpenCall(item_id, index, call_id, name, family.kind, namespace)
        self._open[index] = call
        _compare(item, call.item("in_progress", ""))

    def _recall_item_done(self, event: OutputItemDone) -> None:
        self._out.output.append(copy_json(event.item))
        index = event.output_index
        if self._open.pop(index, None) is None and self._open.pop(str(index), None) is None:
            self._prose.open = None

    def _recall_progress(self, event: _Progress) -> None:
        fields = event.fields if isinstance(event, UnknownEvent) else to_builtins(event)
        item = self._open.get(str(fields.get("output_index")))
        if not isinstance(item, OpenItem):
            raise _broken(f"{event_type(event)} of an item that was written")
        item.recall(event_type(event), fields)

    def _recall_part(self, event: _PartAdded) -> None:
        prose, kind = self._prose.open, event.part.get("type")
        if prose is None or kind not in _PART_KINDS:
            raise _broken(f"a part of kind {kind!r} cannot be continued")
        siblings = prose.summary if kind == "summary_text" else prose.content
        prose.part = OpenPart(str(kind), len(siblings))
        _compare(event.part, prose.part.part(""))

    def _recall_part_done(self, event: _PartDone) -> None:
        prose, part = self._open_text()
        prose.part = None
        whole = part.part(part.growing.text())
        (prose.summary if part.kind == "summary_text" else prose.content).append(whole)
        _compare(event.part, whole)

    def _recall_text(self, event: _TextDelta) -> None:
        _, part = self._open_text()
        part.growing.add(event.delta)
        if isinstance(event, OutputTextDelta):
            part.logprobs.extend(copy_json(event.logprobs or []))

    def _recall_annotation(self, event: AnnotationEvent) -> None:
        _, part = self._open_text()
        part.annotations.append(copy_json(event.annotation))

    def _recall_said(self, event: ArgumentsDelta | CustomInputDelta) -> None:
        call = self._open.get(event.output_index)
        if not isinstance(call, OpenCall):
            raise _broken("arguments of a call that was passed on")
        call.growing.add(event.delta)

    def _recall_error(self, event: ErrorEvent) -> None:
        self._told_failure = Failure(event.code, event.message)


class _TornCall(OpenCall):
    """A call that is emitted whole, but only its opening was: its payload is lost."""

    def __init__(self, item_id: str, index: int, call_id: str, kind: Kind, told: Item) -> None:
        super().__init__(item_id, index, call_id, kind, kind)
        self._told = copy_json(told)

    def item(self, status: str, said: str) -> Item:
        """Return the item as it opened, with this status."""
        return {**copy_json(self._told), "status": status}

    def check_whole(self) -> bool:
        """Return False, so that it ends as incomplete and no client runs it."""
        return False


def _skip(event: Event) -> None:
    """An event that changes nothing in a builder."""


def _compare(told: Item | Part, made: Item | Part) -> None:
    """Raise BrokenStream if the builder would go on from less than was emitted."""
    if told != made:
        raise _broken(f"{told.get('type')} has fields that a builder cannot continue")


def _broken(why: str) -> BrokenStream:
    return BrokenStream(f"the log cannot be continued: {why}", code="log_broken")
