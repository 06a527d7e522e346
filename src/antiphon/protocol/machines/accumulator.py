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
    EVENT_CLASSES,
    AnnotationEvent,
    ArgumentsDone,
    BeginEvent,
    CallDelta,
    CallDone,
    ErrorEvent,
    Event,
    OutputItemAdded,
    OutputItemDone,
    OutputTextDelta,
    PartAdded,
    PartDone,
    ResponseCreated,
    StageEvent,
    TerminalEvent,
    TextDelta,
    TextDone,
    event_type,
)
from antiphon.protocol.items import Item
from antiphon.protocol.machines.item_index import ItemIndex
from antiphon.protocol.machines.partial_items import (
    STREAMED,
    Draft,
    GrowingText,
    PartDraft,
    TextChannel,
    call_key,
    call_payload,
    copy_json,
    match_drafts,
    merge,
    string_of,
    substance,
)
from antiphon.protocol.machines.sequence_marks import SequenceMarks
from antiphon.protocol.response import DONE_STATUSES, Response, with_total

__all__ = ["MAX_DEVIATIONS", "ResponseAccumulator"]

MAX_DEVIATIONS: Final = 100

_TEXT: Final = TextChannel("content", "message", "output_text", "text", "content_index")
_REFUSAL: Final = TextChannel("content", "message", "refusal", "refusal", "content_index")
_REASONING: Final = TextChannel("content", "reasoning", "reasoning_text", "text", "content_index")
_SUMMARY: Final = TextChannel("summary", "reasoning", "summary_text", "text", "summary_index")
# By what the names of their events begin with.
_NAMED: Final = {
    "output_text": _TEXT,
    "refusal": _REFUSAL,
    "reasoning_text": _REASONING,
    "reasoning_summary_text": _SUMMARY,
    "reasoning_summary_part": _SUMMARY,
    "function_call_arguments": TextChannel("arguments", "function_call", "", "arguments", ""),
    "custom_tool_call_input": TextChannel("input", "custom_tool_call", "", "input", ""),
    "code_interpreter_call_code": TextChannel("code", "code_interpreter_call", "", "code", ""),
    "mcp_call_arguments": TextChannel("arguments", "mcp_call", "", "arguments", ""),
}
_CHANNELS: Final[dict[type[Any], TextChannel]] = {
    cls: _NAMED[family]
    for name, cls in EVENT_CLASSES.items()
    if (family := name.removeprefix("response.").partition(".")[0]) in _NAMED
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
        self._items = ItemIndex(self._deviate)

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
        output = [draft.item() for draft in self._items.ordered()]
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
        handler = _HANDLERS.get(type(event))
        return handler is not None and handler(self, event) is not False

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

    def _begin(self, event: BeginEvent) -> None:
        if self._begun is None and not isinstance(event, ResponseCreated):
            self._deviate("no response.created")
        response_id = self._id_of(event.response)
        self._begun = msgspec.structs.replace(event.response, id=response_id, output=[])
        self._items.has_begun = True

    def _end(self, event: TerminalEvent) -> None:
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

    def _final_status(self, event: TerminalEvent) -> str:
        named, told = event_type(event).removeprefix("response."), event.response.status
        if told == named or (named, told) == ("incomplete", "cancelled"):
            return told
        self._deviate(f"response.{named} says status {told}")
        return max(named, told, key=_SEVERITY.__getitem__) if told in DONE_STATUSES else named

    # Items.

    def _add_item(self, event: OutputItemAdded) -> None:
        draft = self._items.find(event.output_index, event.item, is_final=False)
        if draft is None:
            draft = self._items.open(event.output_index, string_of(event.item, "type"))
        if draft.added:
            self._deviate(f"item {draft.id} added again")
        else:
            draft.added = copy_json(event.item)
        self._items.register(draft, event.item)
        self.touched = draft

    def _close_item(self, event: OutputItemDone) -> None:
        draft = self._items.find(event.output_index, event.item, is_final=True)
        if draft is None:
            self._deviate(f"item {string_of(event.item, 'id')} done but never added")
            draft = self._items.open(event.output_index, string_of(event.item, "type"))
        self._items.register(draft, event.item)
        self._items.close(draft)
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
        draft = self._items.at(event.item_id, event.output_index)
        if draft is None or draft.done or draft.kind != kind:
            self._deviate(f"{event_type(event)} for unknown item {event.item_id!r}")
            return False
        draft.advance(stage)
        self.touched = draft
        return True

    # What is inside an item.

    def _part_for(self, event: TextDelta | TextDone | AnnotationEvent) -> PartDraft:
        channel = _CHANNELS[type(event)]
        self.touched = draft = self._items.find_owner(event, channel)
        return draft.part(channel, getattr(event, channel.place))

    def _text_for(self, event: TextDelta | TextDone | CallDelta | CallDone) -> GrowingText:
        channel = _CHANNELS[type(event)]
        self.touched = draft = self._items.find_owner(event, channel)
        if not channel.part:
            return draft.text(channel.field)
        return draft.part(channel, getattr(event, channel.place)).text

    def _grow(self, event: TextDelta | CallDelta) -> bool:
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

    def _close_text(self, event: TextDone | CallDone) -> None:
        final: str = getattr(event, _CHANNELS[type(event)].text)
        if not self._text_for(event).close(final):
            self._deviate(f"{event_type(event)} disagrees with what was streamed")

    def _close_arguments(self, event: ArgumentsDone) -> None:
        self._close_text(event)
        if event.name:
            self.touched.name = event.name

    def _annotate(self, event: AnnotationEvent) -> bool:
        notes = self._part_for(event).annotations
        index = event.annotation_index if event.annotation_index >= 0 else len(notes)
        if index in notes:
            return False
        notes[index] = copy_json(event.annotation)
        return True

    def _add_part(self, event: PartAdded) -> None:
        channel = _channel_of_part(event)
        self.touched = draft = self._items.find_owner(event, channel)
        part = draft.part(channel, getattr(event, channel.place), is_new=True)
        if part.added:
            self._deviate(f"part {part.index} of item {draft.id} added again")
        else:
            part.added = copy_json(event.part)

    def _close_part(self, event: PartDone) -> None:
        channel = _channel_of_part(event)
        self.touched = draft = self._items.find_owner(event, channel)
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
        drafts = self._items.ordered()
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


def _channel_of_part(event: PartAdded | PartDone) -> TextChannel:
    channel = _CHANNELS.get(type(event))
    return channel or _PART_CHANNELS.get(string_of(event.part, "type"), _TEXT)


_HANDLERS: Final[dict[type[Any], Callable[[ResponseAccumulator, Any], bool | None]]] = {
    **dict.fromkeys(get_args(BeginEvent), ResponseAccumulator._begin),
    **dict.fromkeys(get_args(TerminalEvent), ResponseAccumulator._end),
    **dict.fromkeys(get_args(PartAdded), ResponseAccumulator._add_part),
    **dict.fromkeys(get_args(PartDone), ResponseAccumulator._close_part),
    **dict.fromkeys(get_args(TextDelta | CallDelta), ResponseAccumulator._grow),
    **dict.fromkeys(get_args(TextDone | CallDone), ResponseAccumulator._close_text),
    **dict.fromkeys(get_args(StageEvent), ResponseAccumulator._progress),
    OutputTextDelta: ResponseAccumulator._grow_output,
    ArgumentsDone: ResponseAccumulator._close_arguments,
    AnnotationEvent: ResponseAccumulator._annotate,
    OutputItemAdded: ResponseAccumulator._add_item,
    OutputItemDone: ResponseAccumulator._close_item,
    ErrorEvent: ResponseAccumulator._note_error,
}
