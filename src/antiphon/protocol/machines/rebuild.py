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
    BeginEvent,
    CodeDelta,
    CodeDone,
    CustomInputDelta,
    CustomInputDone,
    ErrorEvent,
    Event,
    McpArgumentsDelta,
    McpArgumentsDone,
    OutputItemAdded,
    OutputItemDone,
    OutputTextDelta,
    PartAdded,
    PartDone,
    ResponseCreated,
    ResponseFailed,
    ResponseQueued,
    StageEvent,
    TextDelta,
    TextDone,
    UnknownEvent,
    event_type,
)
from antiphon.protocol.families import WHOLE, Family, Kind, call_family
from antiphon.protocol.items import Item, Part
from antiphon.protocol.machines.builder import Mint, ReasoningAs, ResponseBuilder, Seal
from antiphon.protocol.machines.hosted_items import OpenItem, runs_shell
from antiphon.protocol.machines.open_items import (
    PART_FORMS,
    OpenCall,
    OpenPart,
    OpenProse,
    copy_json,
)
from antiphon.protocol.machines.referee import Referee
from antiphon.protocol.response import Failure, Response

__all__ = ["rebuild"]

_Progress = StageEvent | CodeDelta | CodeDone | McpArgumentsDelta | McpArgumentsDone | UnknownEvent


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

    _told_failure: Failure | None = None

    def recall(self, event: Event) -> None:
        """Take an event that was emitted, and be in the state after it."""
        take = _RECALLS.get(type(event))
        if take is None:
            raise _broken(f"{event_type(event)} cannot be continued")
        take(self, event)
        self._out.sequence += 1

    def mend(self, last: Event | None) -> None:
        """Emit what belongs to the last event and is missing."""
        match last:
            case ResponseCreated() if last.response.status == "queued":
                self._out.announce(self._response, ResponseQueued, "queued")
            case ArgumentsDone():
                self._mend_call(last.output_index, last.arguments)
            case CustomInputDone():
                self._mend_call(last.output_index, last.input)
            case _ if isinstance(last, TextDone):
                prose, part = self._open_text()
                self._prose.end_part(prose, part, part.growing.text())

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
        if is_running and family is not None and not runs_shell(item):
            self._recall_call(index, item, family)
        elif is_running and (kind == "message" or kind == "reasoning"):
            self._prose.open = OpenProse(kind, item_id, index, item.get("phase"))
            _compare(item, self._prose.open.item("in_progress"))
        else:
            self._open[str(index)] = OpenItem(copy_json(item), index)
            if family is not None:
                self._calls.ids.add(str(item.get("call_id")))

    def _recall_call(self, index: int, item: Item, family: Family) -> None:
        item_id, call_id = str(item.get("id")), str(item.get("call_id"))
        self._calls.ids.add(call_id)
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

    def _recall_part(self, event: PartAdded) -> None:
        prose, kind = self._prose.open, event.part.get("type")
        if prose is None or kind not in PART_FORMS:
            raise _broken(f"a part of kind {kind!r} cannot be continued")
        _compare(event.part, prose.begin_part(kind).part(""))

    def _recall_part_done(self, event: PartDone) -> None:
        prose, part = self._open_text()
        _compare(event.part, prose.end_part(part, part.growing.text()))

    def _recall_text(self, event: TextDelta) -> None:
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

    def _skip(self, event: Event) -> None:
        """Take an event that changes nothing in a builder."""


_RECALLS: Final[dict[type[Any], Callable[[_Rebuilt, Any], None]]] = {
    **dict.fromkeys(get_args(BeginEvent | TextDone), _Rebuilt._skip),
    **dict.fromkeys(get_args(PartAdded), _Rebuilt._recall_part),
    **dict.fromkeys(get_args(PartDone), _Rebuilt._recall_part_done),
    **dict.fromkeys(get_args(TextDelta), _Rebuilt._recall_text),
    **dict.fromkeys((ArgumentsDelta, CustomInputDelta), _Rebuilt._recall_said),
    **dict.fromkeys((ArgumentsDone, CustomInputDone), _Rebuilt._skip),
    **dict.fromkeys(get_args(_Progress), _Rebuilt._recall_progress),
    AnnotationEvent: _Rebuilt._recall_annotation,
    OutputItemAdded: _Rebuilt._recall_item,
    OutputItemDone: _Rebuilt._recall_item_done,
    ErrorEvent: _Rebuilt._recall_error,
}


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


def _compare(told: Item | Part, made: Item | Part) -> None:
    """Raise BrokenStream if the builder would go on from less than was emitted."""
    if told != made:
        raise _broken(f"{told.get('type')} has fields that a builder cannot continue")


def _broken(why: str) -> BrokenStream:
    return BrokenStream(f"the log cannot be continued: {why}", code="log_broken")
