"""Events to a response, whatever state the stream is in.

Damage is repaired by these rules, and each repair is noted in `deviations`:

- The more final word wins: terminal response over item done, item done over part done, part
  done over text done, text done over deltas. But a word that is empty never wins over one
  that is not. What only the weaker word holds is kept.
- An item is found by its id; an event with a foreign id by its output_index, if only one item
  was opened there; one without an id by the latest open item of its kind. What is found
  nowhere opens an item that nobody announced. So neither a missing `added` nor a missing
  `created` loses anything.
- A call is also found by its call_id, under whatever id it comes again. Told anew with the
  same payload it is the same call and counts once; with another payload it is another call.
- Parts are found by their index and kind; one without an index is the latest of its kind.
  Indexes only sort: gaps and wrong starts do no harm, equal ones keep the order of arrival.
- A delta that comes again under its old sequence number is not counted twice, nor is one for
  a text that is final already, nor an annotation at the place of another.
- Items of the terminal response are matched with the streamed ones by id, call_id, then type
  and order. A streamed item it lacks is kept if it was done or said anything.
- An item that was never done ends as the response did. If the name and the status of the
  terminal event disagree, the worse of them counts.
- Unknown items are kept as they are; unknown events and all after the end are passed over.

A stream without a terminal event is broken, however much of it arrived.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any, Final

import msgspec

from antiphon.protocol.drafts import (
    STREAMED,
    Channel,
    Draft,
    GrowingText,
    PartDraft,
    call_key,
    call_payload,
    copy_json,
    fold_calls,
    match_drafts,
    merge,
    string_of,
    substance,
)
from antiphon.protocol.errors import BrokenStream
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
    event_type,
)
from antiphon.protocol.items import Item
from antiphon.protocol.response import DONE_STATUSES, Response

__all__ = ["MAX_DEVIATIONS", "ResponseAccumulator"]

MAX_DEVIATIONS: Final = 100
_MAX_GAP: Final = 1000

_Lifecycle = ResponseCreated | ResponseQueued | ResponseInProgress
_Terminal = ResponseCompleted | ResponseIncomplete | ResponseFailed
_TextDelta = OutputTextDelta | RefusalDelta | ReasoningTextDelta | SummaryTextDelta
_TextDone = OutputTextDone | RefusalDone | ReasoningTextDone | SummaryTextDone
_CallDelta = ArgumentsDelta | CustomInputDelta
_CallDone = ArgumentsDone | CustomInputDone
_PartEvent = ContentPartAdded | ContentPartDone | SummaryPartAdded | SummaryPartDone
_InItem = _TextDelta | _TextDone | _CallDelta | _CallDone | _PartEvent | AnnotationEvent

_TEXT: Final = Channel("content", "message", "output_text", "text", "content_index")
_REFUSAL: Final = Channel("content", "message", "refusal", "refusal", "content_index")
_REASONING: Final = Channel("content", "reasoning", "reasoning_text", "text", "content_index")
_SUMMARY: Final = Channel("summary", "reasoning", "summary_text", "text", "summary_index")
_ARGUMENTS: Final = Channel("arguments", "function_call", "", "arguments", "")
_INPUT: Final = Channel("input", "custom_tool_call", "", "input", "")

_CHANNELS: Final[dict[type[Any], Channel]] = {
    OutputTextDelta: _TEXT,
    OutputTextDone: _TEXT,
    AnnotationEvent: _TEXT,
    RefusalDelta: _REFUSAL,
    RefusalDone: _REFUSAL,
    ReasoningTextDelta: _REASONING,
    ReasoningTextDone: _REASONING,
    SummaryTextDelta: _SUMMARY,
    SummaryTextDone: _SUMMARY,
    SummaryPartAdded: _SUMMARY,
    SummaryPartDone: _SUMMARY,
    ArgumentsDelta: _ARGUMENTS,
    ArgumentsDone: _ARGUMENTS,
    CustomInputDelta: _INPUT,
    CustomInputDone: _INPUT,
}
_PART_CHANNELS: Final = {"refusal": _REFUSAL, "reasoning_text": _REASONING}

_SEVERITY: Final = {"completed": 0, "incomplete": 1, "failed": 2, "cancelled": 3}


class ResponseAccumulator:
    """Collects the events of one response. `finish` returns it, or says that it broke off."""

    def __init__(self) -> None:
        self.deviations: list[str] = []
        self.touched = Draft("", -1)
        """The item that the latest event inside an item was about."""
        self.settled: list[tuple[Item, Draft | None]] = []
        """At the end: each item of the output, and the streamed one that it was."""
        self._marks = array("q")
        self._begun: Response | None = None
        self._ended: Response | None = None
        self._error: ErrorEvent | None = None
        self._drafts: list[Draft] = []
        self._by_id: dict[str, Draft] = {}
        self._by_call: dict[tuple[str, str], Draft] = {}
        self._by_index: dict[int, Draft] = {}
        self._crowded: set[int] = set()
        self._latest: dict[str, Draft] = {}
        self._handlers: dict[type[Any], Callable[[Any], bool | None]] = {
            **dict.fromkeys((ResponseCreated, ResponseQueued, ResponseInProgress), self._begin),
            **dict.fromkeys((ResponseCompleted, ResponseIncomplete, ResponseFailed), self._end),
            **dict.fromkeys((ContentPartAdded, SummaryPartAdded), self._add_part),
            **dict.fromkeys((ContentPartDone, SummaryPartDone), self._close_part),
            **dict.fromkeys((RefusalDelta, ReasoningTextDelta, SummaryTextDelta), self._grow),
            **dict.fromkeys((ArgumentsDelta, CustomInputDelta), self._grow),
            **dict.fromkeys((OutputTextDone, RefusalDone, ReasoningTextDone), self._close_text),
            **dict.fromkeys((SummaryTextDone, CustomInputDone), self._close_text),
            OutputTextDelta: self._grow_output,
            ArgumentsDone: self._close_arguments,
            AnnotationEvent: self._annotate,
            OutputItemAdded: self._add_item,
            OutputItemDone: self._close_item,
            ErrorEvent: self._note_error,
        }

    @property
    def response(self) -> Response | None:
        """The response so far, a fresh one each time; None until an event has named it."""
        if self._ended is not None:
            return self._ended
        if self._begun is None:
            return None
        output = [draft.item() for draft in self._ordered()]
        return msgspec.structs.replace(self._begun, output=output)

    def feed(self, event: Event) -> bool:
        """Take the next event; say whether it counted. Never raises, whatever the event says.

        What does not count has changed nothing: a repetition, a delta for a text that is
        final, an unknown event, anything after the end.
        """
        if self._ended is not None:
            self._deviate(f"{event_type(event)} after the terminal event")
            return False
        if self._is_repeat(event):
            return False
        handler = self._handlers.get(type(event))
        return handler is not None and handler(event) is not False

    def feed_all(self, events: Sequence[Event]) -> None:
        """Take events as `feed` does one by one, but runs of text faster.

        Most events of a stream are the next piece of the very text that the last one grew.
        """
        position = 0
        while position < len(events):
            event = events[position]
            has_counted = self.feed(event)
            position += 1
            if has_counted and isinstance(event, OutputTextDelta):
                position += self._feed_run(event, events, position)

    def finish(self) -> Response:
        """Return the response. Raise BrokenStream if the stream had no terminal event."""
        if self._ended is not None:
            return self._ended
        if self._error is not None:
            raise BrokenStream(
                f"the stream broke off after an error: {self._error.message}",
                code=self._error.code or "stream_broken",
            )
        raise BrokenStream("the stream ended without a terminal event")

    # The response as a whole.

    def _begin(self, event: _Lifecycle) -> None:
        if self._begun is None and not isinstance(event, ResponseCreated):
            self._deviate("no response.created")
        self._check_response_id(event.response)
        self._begun = msgspec.structs.replace(event.response, output=[])

    def _end(self, event: _Terminal) -> None:
        if self._begun is None:
            self._deviate("no response.created")
        self._check_response_id(event.response)
        status = self._final_status(event)
        self.settled = self._settle(event.response.output, status)
        output = [item for item, _ in self.settled]
        self._ended = msgspec.structs.replace(event.response, status=status, output=output)

    def _note_error(self, event: ErrorEvent) -> None:
        self._error = event

    def _check_response_id(self, response: Response) -> None:
        if self._begun is not None and self._begun.id != response.id:
            self._deviate(f"response {self._begun.id} goes on as {response.id}")

    def _final_status(self, event: _Terminal) -> str:
        named, told = event_type(event).removeprefix("response."), event.response.status
        if named == told:
            return named
        self._deviate(f"response.{named} says status {told}")
        return max(named, told, key=_SEVERITY.__getitem__) if told in DONE_STATUSES else named

    # Items.

    def _add_item(self, event: OutputItemAdded) -> None:
        draft = self._find(event.output_index, event.item, is_final=False)
        if draft is None:
            draft = self._open(event.output_index, string_of(event.item, "type"))
        if draft.added:
            self._deviate(f"item {draft.id} added again")
        else:
            draft.added = copy_json(event.item)
        self._register(draft, event.item)
        self.touched = draft

    def _close_item(self, event: OutputItemDone) -> None:
        draft = self._find(event.output_index, event.item, is_final=True)
        if draft is None:
            self._deviate(f"item {string_of(event.item, 'id')} done but never added")
            draft = self._open(event.output_index, string_of(event.item, "type"))
        self._register(draft, event.item)
        self.touched = draft
        told: Item = copy_json(event.item)
        if draft.done:
            self._deviate(f"item {draft.id} done again")
        else:
            self._compare(draft.id, told, draft.streamed())
        draft.close(told)

    def _find(self, index: int, item: Item, *, is_final: bool) -> Draft | None:
        item_id = string_of(item, "id")
        draft = self._by_id.get(item_id)
        if draft is not None and draft.fits(item):
            return draft
        call = call_key(item)
        draft = self._by_call.get(call) if call else None
        if draft is not None:
            is_same = _is_told_again(draft, index, item, is_final=is_final)
            return draft if is_same else None
        draft = self._by_index.get(index)
        if draft is None or draft.done or not draft.fits(item):
            return None
        if draft.added and item_id and not (is_final and draft.is_begin_of(item)):
            return None
        if item_id != draft.id:
            self._deviate(f"item {draft.id} goes on as {item_id}")
        return draft

    def _open(self, index: int, kind: str) -> Draft:
        if self._begun is None:
            self._deviate("no response.created")
        if index < 0 or index in self._by_index:
            self._deviate(f"{kind} item opened at output_index {index}")
            self._crowded.add(index)
        draft = Draft(kind, index if index >= 0 else len(self._drafts))
        self._drafts.append(draft)
        self._by_index[draft.index] = self._latest[kind] = draft
        return draft

    def _register(self, draft: Draft, item: Item) -> None:
        draft.kind = string_of(item, "type") or draft.kind
        item_id = string_of(item, "id")
        if item_id:
            draft.id = draft.id or item_id
            self._by_id[item_id] = draft
        call = call_key(item)
        if call:
            draft.call_id = call[1]
            first = self._by_call.setdefault(call, draft)
            if item_id != first.id:
                self._deviate(f"call {draft.call_id} came again as item {item_id}")

    def _ordered(self) -> list[Draft]:
        return fold_calls(sorted(self._drafts, key=lambda draft: draft.index))

    # What is inside an item.

    def _draft_for(self, event: _InItem, channel: Channel) -> Draft:
        draft = self._by_id.get(event.item_id)
        if draft is not None and draft.can_stream(channel.field):
            if draft.index != event.output_index:
                self._deviate(f"item {draft.id} is at {draft.index}, not {event.output_index}")
            self.touched = draft
            return draft
        self._deviate(f"{event_type(event)} for unknown item {event.item_id!r}")
        draft = self._guess(event, channel)
        if draft is None:
            draft = self._open(event.output_index, channel.item)
            draft.id = event.item_id
        if event.item_id:
            self._by_id.setdefault(event.item_id, draft)
        self.touched = draft
        return draft

    def _guess(self, event: _InItem, channel: Channel) -> Draft | None:
        guesses: list[Draft | None] = []
        if event.output_index not in self._crowded:
            guesses.append(self._by_index.get(event.output_index))
        if not event.item_id:
            guesses.append(self._latest.get(channel.item))
        for draft in guesses:
            if draft is not None and not draft.done and draft.can_stream(channel.field):
                return draft
        return None

    def _part_for(self, event: _TextDelta | _TextDone | AnnotationEvent) -> PartDraft:
        channel = _CHANNELS[type(event)]
        return self._draft_for(event, channel).part(channel, getattr(event, channel.place))

    def _text_for(self, event: _TextDelta | _TextDone | _CallDelta | _CallDone) -> GrowingText:
        channel = _CHANNELS[type(event)]
        draft = self._draft_for(event, channel)
        if not channel.part:
            return draft.text(channel.field)
        return draft.part(channel, getattr(event, channel.place)).text

    def _grow(self, event: _TextDelta | _CallDelta) -> bool:
        text = self._text_for(event)
        sealed = self.touched.sealed
        if not (sealed and _CHANNELS[type(event)].field in sealed) and text.grow(event.delta):
            return True
        self._deviate(f"{event_type(event)} for a text that is done")
        return False

    def _grow_output(self, event: OutputTextDelta) -> bool:
        is_wanted = self._grow(event)
        if is_wanted and event.logprobs:
            self._part_for(event).logprobs.extend(copy_json(event.logprobs))
        return is_wanted

    def _close_text(self, event: _TextDone | CustomInputDone | ArgumentsDone) -> None:
        final: str = getattr(event, _CHANNELS[type(event)].text)
        if not self._text_for(event).close(final):
            self._deviate(f"{event_type(event)} disagrees with what was streamed")

    def _close_arguments(self, event: ArgumentsDone) -> None:
        self._close_text(event)
        if event.name:
            self._draft_for(event, _ARGUMENTS).name = event.name

    def _annotate(self, event: AnnotationEvent) -> bool:
        notes = self._part_for(event).annotations
        index = event.annotation_index if event.annotation_index >= 0 else len(notes)
        if index in notes:
            return False
        notes[index] = copy_json(event.annotation)
        return True

    def _add_part(self, event: ContentPartAdded | SummaryPartAdded) -> None:
        channel = _channel_of_part(event)
        draft = self._draft_for(event, channel)
        part = draft.part(channel, getattr(event, channel.place), is_new=True)
        if part.added:
            self._deviate(f"part {part.index} of item {draft.id} added again")
        else:
            part.added = copy_json(event.part)

    def _close_part(self, event: ContentPartDone | SummaryPartDone) -> None:
        channel = _channel_of_part(event)
        draft = self._draft_for(event, channel)
        part = draft.part(channel, getattr(event, channel.place))
        if part.done:
            self._deviate(f"part {part.index} of item {draft.id} done again")
            return
        said = part.text.value
        if said and said != event.part.get(channel.text):
            self._deviate(f"part {part.index} of item {draft.id} is not what was streamed")
        part.done = copy_json(event.part)
        final = string_of(event.part, channel.text)
        if final:
            part.text.close(final)

    # The end.

    def _settle(self, told: list[Item], status: str) -> list[tuple[Item, Draft | None]]:
        """Return the output: what the terminal response tells, and what it forgot.

        Each item comes with its draft, if it was streamed.
        """
        drafts = self._ordered()
        for draft in drafts:
            draft.end("completed" if status == "completed" else "incomplete")
        whole: list[Item] = self._once(copy_json(told))
        if not whole and drafts:
            self._deviate("the terminal response lacks the output")
        partners = match_drafts(whole, drafts)
        output: list[tuple[Item, Draft | None]] = [
            (self._confirm(item, partner), partner)
            if (partner := partners.get(place))
            else (item, None)
            for place, item in enumerate(whole)
        ]
        matched = {id(draft) for draft in partners.values()}
        for place, draft in enumerate(drafts):
            if id(draft) not in matched and (draft.done or draft.has_said() or not whole):
                self._deviate(f"the terminal response lacks item {draft.id}")
                output.insert(place, (draft.item(), draft))
        return output

    def _once(self, items: list[Item]) -> list[Item]:
        """Return the items with each id and each call only once."""
        seen: set[tuple[object, ...]] = set()
        kept = []
        for item in items:
            call, item_id = call_key(item), string_of(item, "id")
            # One call under two ids is one call, unless it asks for something else.
            keys = [(*call, call_payload(item)), (*call, item_id)] if call else [("", item_id)]
            if any(key[-1] and key in seen for key in keys):
                self._deviate(f"the terminal response holds {call[1] if call else item_id} twice")
                continue
            seen.update(keys)
            kept.append(item)
        return kept

    def _confirm(self, told: Item, draft: Draft) -> Item:
        draft.is_confirmed = True
        streamed = draft.item()
        if told == streamed:
            return told
        if string_of(told, "id") != draft.id:
            self._deviate(f"item {draft.id} ends as {string_of(told, 'id')}")
        self._compare(draft.id, told, streamed)
        return merge(told, streamed)

    def _compare(self, item_id: str, told: Item, streamed: Item) -> None:
        for field in STREAMED:
            said = substance(streamed.get(field))
            if said and said != substance(told.get(field)):
                self._deviate(f"{field} of item {item_id} is not what was streamed")

    # Bookkeeping.

    def _deviate(self, what: str) -> None:
        if len(self.deviations) < MAX_DEVIATIONS and what not in self.deviations:
            self.deviations.append(what)

    def _feed_run(self, last: OutputTextDelta, events: Sequence[Event], start: int) -> int:
        """Take the next pieces of the same text, in their due places; return how many."""
        item_id, content, output = last.item_id, last.content_index, last.output_index
        due = len(self._marks)
        pieces: list[str] = []
        for event in islice(events, start, None):
            if (
                type(event) is not OutputTextDelta
                or event.sequence_number != due + len(pieces)
                or event.item_id != item_id
                or event.content_index != content
                or event.output_index != output
                or event.logprobs
            ):
                break
            pieces.append(event.delta)
        if pieces:
            owner = hash(item_id)
            self._marks.extend([owner ^ hash(piece) for piece in pieces])
            self._text_for(last).grow("".join(pieces))
        return len(pieces)

    def _is_repeat(self, event: Event) -> bool:
        """Say whether this delta was counted before, under the same sequence number.

        The number alone proves nothing: some servers start again in mid-stream, or give
        every event the same one.
        """
        number, due = event.sequence_number, len(self._marks)
        delta = getattr(event, "delta", None)
        mark = 0 if delta is None else hash(getattr(event, "item_id", None)) ^ hash(delta)
        if number == due:
            self._marks.append(mark)
            return False
        if number is None or number < 0:
            self._deviate("events without a sequence number")
            return False
        self._deviate(f"sequence number {number} where {due} was due")
        if number > due:
            if number - due <= _MAX_GAP:
                self._marks.extend([0] * (number - due) + [mark])
            return False
        return mark != 0 and self._marks[number] == mark


def _channel_of_part(event: _PartEvent) -> Channel:
    if isinstance(event, SummaryPartAdded | SummaryPartDone):
        return _SUMMARY
    return _PART_CHANNELS.get(string_of(event.part, "type"), _TEXT)


def _is_told_again(draft: Draft, index: int, item: Item, *, is_final: bool) -> bool:
    """Say whether an item with the draft's call_id and another id is the draft's item.

    An item that opens beside an announced one is another: its payload will tell what it is.
    """
    if not is_final:
        return not draft.added
    if draft.done:
        return call_payload(draft.done) == call_payload(item)
    return index == draft.index or draft.is_begin_of(item)
