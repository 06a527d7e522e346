"""Events to a response, also if the stream is damaged.

Damage is repaired by these rules, and each repair is noted in `deviations`:

- The more final value wins: terminal response over item done, item done over part done, part
  done over text done, text done over deltas. But an empty value never wins over one that is
  not. What only the weaker value holds is kept.
- An item is found by its id; an event with a foreign id by its output_index, if only one item
  of its kind was opened there; one without an id, or at the index of another kind, by the
  latest open item of its own kind. What is found nowhere opens an item that was not announced.
  So neither a missing `added` nor a missing `created` loses anything.
- Of several items under one id, the output_index decides. What neither decides is guessed,
  and a call whose arguments are a guess is marked as one until its item is done.
- A call is also found by its call_id, under whatever id it comes again; its call_id may stand
  in place of its id. Sent again with the same payload it is the same call and counts once;
  with another payload it is another call. So is one with a new call_id, unless it is done
  under the id or in the place of one whose arguments it repeats or ends.
- Parts are found by their index and kind; one without an index is the latest of its kind.
  Indexes only sort: gaps and wrong starts do no harm, equal ones keep the order of arrival.
- A delta that comes again under its old sequence number is not counted twice, as long as the
  numbers count: they do after two have gone up, until one stands for something else. Neither
  is one for a text that is final already, nor an annotation at the place of another.
- Items of the terminal response are matched with the streamed ones by id, call_id, a call's
  payload, then type and order. A streamed item it lacks is kept if it was done or had any
  content.
- An item that was never done ends as the response did. If the name and the status of the
  terminal event disagree, the worse of them counts. There is no event for a cancelled
  response: it ends as an incomplete one.
- A stage of a hosted item is its status until it is done. One that was never done ends as its
  last stage, if that is an end, and is incomplete otherwise; but an image that was
  never done has failed, because it was not received. A preview of an image is not kept.
- Unknown items are kept as they are; unknown events and all after the end are passed over.

A stream without a terminal event is broken, however much of it arrived.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any, Final, get_args

import msgspec

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
    ResponseCompleted,
    ResponseCreated,
    ResponseFailed,
    ResponseIncomplete,
    ResponseInProgress,
    ResponseQueued,
    StageEvent,
    SummaryPartAdded,
    SummaryPartDone,
    SummaryTextDelta,
    SummaryTextDone,
    event_type,
)
from antiphon.protocol.items import Item
from antiphon.protocol.machines.partial_items import (
    STREAMED,
    STREAMING,
    Draft,
    GrowingText,
    PartDraft,
    TextChannel,
    call_key,
    call_payload,
    copy_json,
    fold_calls,
    match_drafts,
    merge,
    string_of,
    substance,
)
from antiphon.protocol.machines.sequence_marks import SequenceMarks
from antiphon.protocol.response import DONE_STATUSES, Response, with_total

__all__ = ["MAX_DEVIATIONS", "ResponseAccumulator"]

MAX_DEVIATIONS: Final = 100

_Lifecycle = ResponseCreated | ResponseQueued | ResponseInProgress
_Terminal = ResponseCompleted | ResponseIncomplete | ResponseFailed
_TextDelta = OutputTextDelta | RefusalDelta | ReasoningTextDelta | SummaryTextDelta
_TextDone = OutputTextDone | RefusalDone | ReasoningTextDone | SummaryTextDone
_CallDelta = ArgumentsDelta | CustomInputDelta | CodeDelta | McpArgumentsDelta
_CallDone = ArgumentsDone | CustomInputDone | CodeDone | McpArgumentsDone
_PartEvent = ContentPartAdded | ContentPartDone | SummaryPartAdded | SummaryPartDone
_InItem = _TextDelta | _TextDone | _CallDelta | _CallDone | _PartEvent | AnnotationEvent

_TEXT: Final = TextChannel("content", "message", "output_text", "text", "content_index")
_REFUSAL: Final = TextChannel("content", "message", "refusal", "refusal", "content_index")
_REASONING: Final = TextChannel("content", "reasoning", "reasoning_text", "text", "content_index")
_SUMMARY: Final = TextChannel("summary", "reasoning", "summary_text", "text", "summary_index")
_ARGUMENTS: Final = TextChannel("arguments", "function_call", "", "arguments", "")
_INPUT: Final = TextChannel("input", "custom_tool_call", "", "input", "")
_CODE: Final = TextChannel("code", "code_interpreter_call", "", "code", "")
_MCP: Final = TextChannel("arguments", "mcp_call", "", "arguments", "")

_CHANNELS: Final[dict[type[Any], TextChannel]] = {
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
    CodeDelta: _CODE,
    CodeDone: _CODE,
    McpArgumentsDelta: _MCP,
    McpArgumentsDone: _MCP,
}
_PART_CHANNELS: Final = {"refusal": _REFUSAL, "reasoning_text": _REASONING}

_SEVERITY: Final = {"completed": 0, "incomplete": 1, "failed": 2, "cancelled": 3}


class ResponseAccumulator:
    """Collects the events of one response. `finish` returns it, or raises if it broke off."""

    def __init__(self) -> None:
        self.deviations: list[str] = []
        self.touched = Draft("", -1)
        """The item that the latest event inside an item was about."""
        self.settled: list[tuple[Item, Draft | None]] = []
        """At the end: each item of the output, and the streamed one that it was."""
        self._numbers = SequenceMarks(self._deviate)
        self._begun: Response | None = None
        self._ended: Response | None = None
        self._error: ErrorEvent | None = None
        self._drafts: list[Draft] = []
        self._by_id: dict[str, Draft] = {}
        self._by_call: dict[tuple[str, str], Draft] = {}
        self._by_index: dict[int, Draft] = {}
        self._by_place: dict[tuple[int, str], Draft | None] = {}
        """The only item of a kind at an index; None if there are several."""
        self._crowded: set[int] = set()
        self._shared: set[str] = set()
        """The ids that stand for several items."""
        self._undone: dict[str, dict[Draft, None]] = {}
        """By kind, the items that are not done, in the order in which they were opened."""
        self._handlers: dict[type[Any], Callable[[Any], bool | None]] = {
            **dict.fromkeys((ResponseCreated, ResponseQueued, ResponseInProgress), self._begin),
            **dict.fromkeys((ResponseCompleted, ResponseIncomplete, ResponseFailed), self._end),
            **dict.fromkeys((ContentPartAdded, SummaryPartAdded), self._add_part),
            **dict.fromkeys((ContentPartDone, SummaryPartDone), self._close_part),
            **dict.fromkeys((RefusalDelta, ReasoningTextDelta, SummaryTextDelta), self._grow),
            **dict.fromkeys((ArgumentsDelta, CustomInputDelta), self._grow),
            **dict.fromkeys((CodeDelta, McpArgumentsDelta), self._grow),
            **dict.fromkeys((OutputTextDone, RefusalDone, ReasoningTextDone), self._close_text),
            **dict.fromkeys((SummaryTextDone, CustomInputDone), self._close_text),
            **dict.fromkeys((CodeDone, McpArgumentsDone), self._close_text),
            **dict.fromkeys(get_args(StageEvent), self._progress),
            OutputTextDelta: self._grow_output,
            ArgumentsDone: self._close_arguments,
            AnnotationEvent: self._annotate,
            OutputItemAdded: self._add_item,
            OutputItemDone: self._close_item,
            ErrorEvent: self._note_error,
        }

    @property
    def has_gap(self) -> bool:
        """Whether sequence numbers are missing: events may have been lost."""
        return self._numbers.has_gap

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
        """Take the next event; return whether it counted. Never raises, also for odd events.

        What does not count has changed nothing: a repetition, a delta for a text that is
        final, an unknown event, anything after the end.
        """
        if self._ended is not None:
            self._deviate(f"{event_type(event)} after the terminal event")
            return False
        if self._numbers.is_repeat(event):
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
        response_id = self._id_of(event.response)
        self._begun = msgspec.structs.replace(event.response, id=response_id, output=[])

    def _end(self, event: _Terminal) -> None:
        if self._begun is None:
            self._deviate("no response.created")
        response_id = self._id_of(event.response)
        status = self._final_status(event)
        self.settled = self._settle(event.response.output, status)
        output = [item for item, _ in self.settled]
        usage = event.response.usage
        if usage is not None and usage != (usage := with_total(usage)):
            self._deviate("usage without total_tokens")
        self._ended = msgspec.structs.replace(
            event.response, id=response_id, status=status, output=output, usage=usage
        )

    def _note_error(self, event: ErrorEvent) -> None:
        self._error = event

    def _id_of(self, response: Response) -> str:
        """Return the id of the response; a server that leaves it out means the one before."""
        told = self._begun.id if self._begun is not None else ""
        if told and response.id and told != response.id:
            self._deviate(f"response {told} goes on as {response.id}")
        return response.id or told

    def _final_status(self, event: _Terminal) -> str:
        named, told = event_type(event).removeprefix("response."), event.response.status
        if told == named or (named, told) == ("incomplete", "cancelled"):
            return told
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
        self._undone[draft.kind].pop(draft, None)
        self.touched = draft
        told: Item = copy_json(event.item)
        if draft.done:
            self._deviate(f"item {draft.id} done again")
        else:
            self._compare(draft.id, told, draft.streamed())
        draft.close(told)

    def _progress(self, event: StageEvent) -> bool:
        """Note how far a hosted item has come; what it holds comes with its end."""
        kind, _, stage = event_type(event).removeprefix("response.").rpartition(".")
        draft = self._by_id.get(event.item_id) or self._by_index.get(event.output_index)
        if draft is None or draft.done or draft.kind != kind:
            self._deviate(f"{event_type(event)} for unknown item {event.item_id!r}")
            return False
        draft.advance(stage)
        self.touched = draft
        return True

    def _find(self, index: int, item: Item, *, is_final: bool) -> Draft | None:
        named = self._by_id.get(string_of(item, "id") or string_of(item, "call_id"))
        if named is not None and named.fits(item):
            return named
        call = call_key(item)
        draft = self._by_call.get(call) if call else None
        if draft is not None:
            is_same = draft.is_told_again(index, item, is_final=is_final)
            return draft if is_same else None
        if named is not None and is_final and named.is_renamed(index, item):
            return named
        return self._find_in_place(index, item, is_final=is_final)

    def _find_in_place(self, index: int, item: Item, *, is_final: bool) -> Draft | None:
        item_id, kind = string_of(item, "id"), string_of(item, "type")
        draft = self._by_place.get((index, kind)) or self._by_index.get(index)
        if index < 0:
            draft = self._nameless(kind)
        if draft is None or draft.done:
            return None
        is_vacant = index >= 0 and draft.fits(item) and not (draft.added and item_id)
        if not is_vacant and not (is_final and draft.is_told_in(index, item)):
            return None
        if item_id != draft.id:
            self._deviate(f"item {draft.id} goes on as {item_id}")
        return draft

    def _nameless(self, kind: str) -> Draft | None:
        """Return the only item of a kind that is not done, if it has no id yet."""
        undone = self._undone.get(kind, {})
        draft = next(iter(undone)) if len(undone) == 1 else None
        return None if draft is None or draft.id else draft

    def _open(self, index: int, kind: str) -> Draft:
        if self._begun is None:
            self._deviate("no response.created")
        if index < 0 or index in self._by_index:
            self._deviate(f"{kind} item opened at output_index {index}")
            self._crowded.add(index)
        draft = Draft(kind, index if index >= 0 else len(self._drafts))
        self._drafts.append(draft)
        self._by_index[draft.index] = draft
        place = (draft.index, kind)
        self._by_place[place] = None if place in self._by_place else draft
        self._undone.setdefault(kind, {})[draft] = None
        return draft

    def _register(self, draft: Draft, item: Item) -> None:
        draft.kind = string_of(item, "type") or draft.kind
        item_id = string_of(item, "id")
        if item_id:
            draft.id = draft.id or item_id
            if self._by_id.setdefault(item_id, draft) is not draft:
                self._by_id[item_id] = draft
                self._shared.add(item_id)
        call = call_key(item)
        if call:
            if draft.call_id not in ("", call[1]):
                self._deviate(f"call {draft.call_id} goes on as {call[1]}")
            draft.call_id = call[1]
            first = self._by_call.setdefault(call, draft)
            if item_id != first.id:
                self._deviate(f"call {draft.call_id} came again as item {item_id}")

    def _ordered(self) -> list[Draft]:
        return fold_calls(sorted(self._drafts, key=lambda draft: draft.index))

    # What is inside an item.

    def _draft_for(self, event: _InItem, channel: TextChannel) -> Draft:
        draft = self._by_id.get(event.item_id)
        if draft is not None and draft.can_stream(channel.field):
            if draft.index != event.output_index or self._shared:
                draft = self._choose(draft, event)
            self.touched = draft
            return draft
        self._deviate(f"{event_type(event)} for unknown item {event.item_id!r}")
        draft = self._guess(event, channel)
        if draft is None:
            draft = self._open(event.output_index, channel.item)
        if event.item_id and self._by_id.setdefault(event.item_id, draft) is draft:
            draft.id = draft.id or event.item_id
        self.touched = draft
        return draft

    def _choose(self, draft: Draft, event: _InItem) -> Draft:
        """Return the item that is meant: the draft, unless its id stands for several."""
        if event.item_id not in self._shared:
            if draft.index != event.output_index:
                self._deviate(f"item {draft.id} is at {draft.index}, not {event.output_index}")
            return draft
        there = self._by_place.get((event.output_index, draft.kind))
        if there is not None and there.id == event.item_id:
            return there
        draft.is_guessed |= len(self._undone[draft.kind]) > 1
        return draft

    def _guess(self, event: _InItem, channel: TextChannel) -> Draft | None:
        item_id, index, kind = event.item_id, event.output_index, channel.item
        # llama.cpp gave calls no id, and called them by their call_id in the events.
        called = self._by_call.get((kind, item_id)) if item_id else None
        if called is not None:
            return called
        there = self._by_place.get((index, kind)) or self._stranger(index)
        if there is not None and not there.done:
            return there
        # LiteLLM puts reasoning at the index of the message, each delta under a new id.
        is_beside = index in self._by_index and (index, kind) not in self._by_place
        undone = self._undone.get(kind)
        if undone and (is_beside or not item_id):
            latest = next(reversed(undone))
            latest.is_guessed |= bool(item_id) or len(undone) > 1
            return latest
        return self._nameless(kind) if index < 0 else None

    def _stranger(self, index: int) -> Draft | None:
        """Return the only item at an index if it is of a kind that we do not know."""
        draft = None if index in self._crowded else self._by_index.get(index)
        return None if draft is None or draft.kind in STREAMING else draft

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

    def _close_text(self, event: _TextDone | _CallDone) -> None:
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
        """Return the output: what the terminal response holds, and what it lacks.

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
        due = len(self._numbers.marks)
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
            self._numbers.marks.extend([owner ^ hash(piece) for piece in pieces])
            self._text_for(last).grow("".join(pieces))
        return len(pieces)


def _channel_of_part(event: _PartEvent) -> TextChannel:
    if isinstance(event, SummaryPartAdded | SummaryPartDone):
        return _SUMMARY
    return _PART_CHANNELS.get(string_of(event.part, "type"), _TEXT)
