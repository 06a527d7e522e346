"""Events in, parts out: the state machine between a stream and a chat application.

Every event goes to a `ResponseAccumulator` first. It decides what an event is about and
whether it counts, so the rules for damaged streams are there and not here. Invariants,
whatever the stream:

- parts come in the order of the events that cause them;
- the text parts together are the text of the response, refusals included, messages in the
  order of their first text; if not, `finish` raises;
- each call is handed over exactly once and as its last description has it, or `finish` raises
  (see `calls`);
- a stream that failed or has no end makes `finish` raise; the parts before that stay valid.

    | event                     | what it causes                                             |
    |---------------------------|------------------------------------------------------------|
    | text and refusal delta    | a TextPart; half a character waits for its other half      |
    | annotation                | a link (no part of the text), a DataPart, or nothing       |
    | reasoning, summary delta  | a ThinkingPart if wanted; only the first of the two kinds  |
    |                           | that an item has is used; parts of a summary have a        |
    |                           | blank line between them                                    |
    | text, part, item done     | the tail that no delta held, if it can still be put there  |
    | arguments done            | the ToolCallPart, if name and call_id are known, and whose |
    |                           | arguments they are                                         |
    | item added                | the same, for arguments that came before their item        |
    | item done                 | the ToolCallPart; notes not shown yet; encrypted reasoning |
    |                           | as an empty ThinkingPart, wanted or not: the next turn     |
    |                           | needs it; an item of any other type as a DataPart          |
    | the terminal event        | all of this that is still missing, in the order of output  |
    | lifecycle, unknown events | nothing                                                    |

Text that was shown cannot be withdrawn. If a more final text does not begin with the text shown,
or its tail belongs before text that was shown since, it is ignored until the end, when the text
shown and the text of the response must agree.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from io import StringIO
from typing import Any, Final

import msgspec

from antiphon.host.calls import CALL_TYPES, ToolCalls
from antiphon.host.data import Annotations, show_annotation, show_item
from antiphon.host.errors import DamagedText, ResponseFailed, StreamCut
from antiphon.host.outcome import SUMMARY_BREAK, Meta, Outcome, notes_of, spoken_text, thought_text
from antiphon.protocol import events
from antiphon.protocol.errors import BrokenStream
from antiphon.protocol.events import Event, event_type
from antiphon.protocol.halves import join_halves, split_half
from antiphon.protocol.items import Item
from antiphon.protocol.machines.accumulator import ResponseAccumulator
from antiphon.protocol.machines.partial_items import (
    Draft,
    encode_json,
    string_of,
)
from antiphon.protocol.response import Response
from antiphon.wires.host.parts import ResponsePart, TextPart, ThinkingPart

__all__ = ["AdapterSettings", "StreamAdapter"]

# From here on a tail waits for the end of its item: to look at every part whenever one of them
# is done would take a time that grows with the square of their number.
_MANY_PARTS: Final = 64

_log: Final = logging.getLogger("antiphon.host")

_TextDelta = events.OutputTextDelta | events.RefusalDelta
_Terminal = events.ResponseCompleted | events.ResponseIncomplete | events.ResponseFailed


class AdapterSettings(msgspec.Struct, frozen=True):
    """What the application wants to see."""

    shows_thinking: bool = False
    call_prefix: str = ""
    """What stands before every call id, such as `gw-`; `translate` takes it off again."""
    annotations: Annotations = "inline"


class _ShownItem:
    """What was shown of one item."""

    def __init__(self) -> None:
        self.id: str | None = None
        self.voice = ""
        """Which field of a reasoning item is used."""
        self.part = -1
        """Which part of it the last delta was about."""
        self.half = ""
        self.has_spoken = False
        self.is_told = False
        self.notes: Counter[bytes] = Counter()
        self._shown = StringIO()
        self.write = self._shown.write

    @property
    def shown(self) -> str:
        return self._shown.getvalue()

    @property
    def text(self) -> str:
        """What was shown as text, and not as thought."""
        return self.shown if self.has_spoken else ""

    def join(self, delta: str) -> str:
        """Return what can be shown of a delta, and keep half a character for later."""
        whole, self.half = split_half(self.half + delta)
        return join_halves(whole)

    def take_tail(self, said: str) -> str:
        """Return the text that was not shown yet, as shown from now on; "" if they disagree."""
        shown = self.shown
        if not said.startswith(shown):
            return ""
        self.half = ""
        tail = said[len(shown) :]
        self.write(tail)
        return tail


class StreamAdapter:
    """The parts of one answer. Feed it every event, then ask how it ended."""

    def __init__(self, settings: AdapterSettings | None = None) -> None:
        self._settings = settings or AdapterSettings()
        self._accumulator = ResponseAccumulator()
        self._calls = ToolCalls(self._settings.call_prefix)
        self._records: dict[Draft, _ShownItem] = {}
        self._speakers: list[_ShownItem] = []
        self._speaker: _ShownItem | None = None
        self._is_mixed = False
        self._said: dict[_ShownItem, str] = {}
        self._error: events.ErrorEvent | None = None
        self._is_traced = _log.isEnabledFor(logging.DEBUG)
        think = self._grow_thinking
        done = self._close_text
        self._handlers: dict[type[Any], Callable[[Any], list[ResponsePart]]] = {
            events.OutputTextDelta: self._grow_text,
            events.RefusalDelta: self._grow_text,
            **dict.fromkeys((events.ReasoningTextDelta, events.SummaryTextDelta), think),
            **dict.fromkeys((events.OutputTextDone, events.RefusalDone), done),
            **dict.fromkeys((events.ReasoningTextDone, events.SummaryTextDone), done),
            **dict.fromkeys((events.ContentPartDone, events.SummaryPartDone), done),
            events.AnnotationEvent: self._annotate,
            **dict.fromkeys((events.ArgumentsDone, events.OutputItemAdded), self._hear_call),
            events.OutputItemDone: self._close_item,
            **dict.fromkeys((events.ResponseCompleted, events.ResponseIncomplete), self._end),
            events.ResponseFailed: self._end,
            events.ErrorEvent: self._note_error,
        }

    def feed(self, event: Event) -> list[ResponsePart]:
        """Return the parts that this event causes; often one, sometimes none. Never raises."""
        if self._is_traced:
            _log.debug("event %s, number %s", event_type(event), event.sequence_number)
        if not self._accumulator.feed(event):
            return []
        handler = self._handlers.get(type(event))
        return [] if handler is None else handler(event)

    def finish(self, *, skipped_choices: int = 0) -> Outcome:
        """Return how the answer ended. Raise a HostError if it is not whole.

        `skipped_choices` is what the chat wire counted; a Responses stream has
        no choices.
        """
        response = self._whole_response()
        self._calls.check(response)
        self._check_text(response)
        deviations = [*self._accumulator.deviations, *self._calls.deviations]
        if self._is_out_of_order():
            deviations.append("text was shown as it came, which is not the order of the output")
        return Outcome(response, Meta(skipped_choices, tuple(deviations)))

    def _whole_response(self) -> Response:
        try:
            response = self._accumulator.finish()
        except BrokenStream:
            partial = self._accumulator.response
            if self._error is not None:
                raise ResponseFailed(self._error.code, self._error.message, partial) from None
            raise StreamCut(partial) from None
        failure = response.error or self._error
        if failure is not None:
            raise ResponseFailed(failure.code, failure.message, response)
        if response.status in ("failed", "cancelled"):
            why = "it was cancelled" if response.status == "cancelled" else ""
            raise ResponseFailed(response.status, why, response)
        return response

    def _check_text(self, response: Response) -> None:
        if all(record.text == said for record, said in self._said.items()):
            return
        shown = "".join(record.text for record in self._speakers)
        silent = [record for record in self._said if not record.has_spoken]
        said = "".join(self._said[record] for record in [*self._speakers, *silent])
        raise DamagedText(shown, said, response)

    def _is_out_of_order(self) -> bool:
        order = [record for record in self._said if record.has_spoken]
        return self._is_mixed or order != self._speakers

    def _note_error(self, event: events.ErrorEvent) -> list[ResponsePart]:
        self._error = event
        return []

    # Text.

    def _grow_text(self, event: _TextDelta) -> list[ResponsePart]:
        draft = self._accumulator.touched
        record = self._record_of(draft)
        if draft.kind != "message":
            # Some servers put output_text into reasoning; of other items we know too little.
            is_thought = draft.kind == "reasoning"
            return self._think(draft, record, "content", event.delta) if is_thought else []
        delta = event.delta
        if record.half or not delta.isascii():
            delta = record.join(delta)
        if not delta:
            return []
        if record is not self._speaker:
            self._let_speak(record)
        record.write(delta)
        return [TextPart(delta)]

    def _let_speak(self, record: _ShownItem) -> None:
        self._speaker = record
        if record.has_spoken:
            self._is_mixed = True
        else:
            record.has_spoken = True
            self._speakers.append(record)

    def _show_tail(self, record: _ShownItem, said: str) -> list[ResponsePart]:
        """Show the text that was not shown yet, unless later text was shown already."""
        if record is not self._speaker and record.has_spoken:
            return []
        tail = record.take_tail(said)
        if not tail:
            return []
        if record is not self._speaker:
            self._let_speak(record)
        return [TextPart(tail)]

    def _close_text(self, event: Any) -> list[ResponsePart]:  # Any: six classes, nothing read
        draft = self._accumulator.touched
        record = self._record_of(draft)
        if draft.part_count > _MANY_PARTS:
            return []
        if draft.kind == "message":
            return self._show_tail(record, spoken_text(draft.item()))
        if draft.kind == "reasoning":
            is_summary = isinstance(event, events.SummaryTextDone | events.SummaryPartDone)
            return self._show_thought(draft.item(), record, "summary" if is_summary else "content")
        return []

    def _annotate(self, event: events.AnnotationEvent) -> list[ResponsePart]:
        record = self._record_of(self._accumulator.touched)
        record.notes[encode_json(event.annotation)] += 1
        return [*show_annotation(event.annotation, self._settings.annotations)]

    def _show_notes(self, item: Item, record: _ShownItem) -> list[ResponsePart]:
        """Show the notes that had no event. One that came in other words is not shown again."""
        notes = notes_of(item)
        told, missing = record.notes.copy(), []
        for note in notes:
            key = encode_json(note)
            if told[key] > 0:
                told[key] -= 1
            else:
                missing.append(note)
        parts: list[ResponsePart] = []
        for note in missing[: max(len(notes) - record.notes.total(), 0)]:
            record.notes[encode_json(note)] += 1
            parts += show_annotation(note, self._settings.annotations)
        return parts

    # Reasoning.

    def _grow_thinking(
        self, event: events.ReasoningTextDelta | events.SummaryTextDelta
    ) -> list[ResponsePart]:
        draft = self._accumulator.touched
        is_summary = isinstance(event, events.SummaryTextDelta)
        field = "summary" if is_summary else "content"
        return self._think(draft, self._record_of(draft), field, event.delta)

    def _think(self, draft: Draft, shown: _ShownItem, field: str, delta: str) -> list[ResponsePart]:
        if not self._settings.shows_thinking or not delta:
            return []
        if draft.kind != "reasoning":
            # `shown` describes its text.
            return [ThinkingPart(join_halves(delta))]
        if shown.voice not in ("", field):
            return []
        place = draft.latest_part(field)
        if field == "summary" and shown.voice and shown.part != place:
            delta = SUMMARY_BREAK + delta
        shown.voice, shown.part = field, place
        shown.id = shown.id or draft.id or None
        delta = shown.join(delta)
        shown.write(delta)
        return [ThinkingPart(delta, shown.id)] if delta else []

    def _show_thought(self, item: Item, record: _ShownItem, field: str) -> list[ResponsePart]:
        """Show the reasoning that no delta held, of the field that is used for the item."""
        field = record.voice or field
        said = thought_text(item, field)
        tail = record.take_tail(said) if self._settings.shows_thinking and said else ""
        if not tail:
            return []
        record.voice, record.part = field, -1
        record.id = record.id or string_of(item, "id") or None
        return [ThinkingPart(tail, record.id)]

    def _close_thought(self, item: Item, record: _ShownItem) -> list[ResponsePart]:
        parts = self._show_thought(item, record, "summary")
        parts += self._show_thought(item, record, "content")
        sealed = string_of(item, "encrypted_content")
        if sealed and not record.is_told:
            record.is_told = True
            item_id = record.id or string_of(item, "id") or None
            parts.append(ThinkingPart("", item_id, {"encrypted_content": sealed}))
        return parts

    # Items.

    def _hear_call(self, event: Any) -> list[ResponsePart]:  # Any: two classes, nothing read
        draft = self._accumulator.touched
        is_known = draft.kind == "function_call" and draft.call_id and not draft.is_guessed
        if not is_known or not draft.is_final("arguments"):
            return []
        return [*self._calls.hear(draft, draft.item())]

    def _close_item(self, event: events.OutputItemDone) -> list[ResponsePart]:
        draft = self._accumulator.touched
        item, record = draft.item(), self._record_of(draft)
        if draft.kind in CALL_TYPES:
            return [*self._calls.hear(draft, item)] if draft.call_id else []
        return self._complete(item, record)

    def _complete(self, item: Item, record: _ShownItem) -> list[ResponsePart]:
        """Return what is missing of an item that is whole and no call."""
        match string_of(item, "type"):
            case "message":
                return self._show_tail(record, spoken_text(item)) + self._show_notes(item, record)
            case "reasoning":
                return self._close_thought(item, record)
        if record.is_told:
            return []
        record.is_told = True
        return [show_item(item)]

    def _record_of(self, draft: Draft) -> _ShownItem:
        record = self._records.get(draft)
        if record is None:
            record = self._records[draft] = _ShownItem()
        return record

    # The end.

    def _end(self, event: _Terminal) -> list[ResponsePart]:
        response = self._accumulator.finish()
        settled = [
            (item, draft, self._record_of(draft) if draft else _ShownItem())
            for item, draft in self._accumulator.settled
        ]
        parts: list[ResponsePart] = []
        for item, _, record in settled:
            self._said[record] = spoken_text(item)
            if record is self._speaker:
                # Its tail must come before the text of messages that were not shown yet.
                parts += self._show_tail(record, self._said[record])
        for item, draft, record in settled:
            if string_of(item, "type") in CALL_TYPES:
                has_gap = self._accumulator.has_gap
                parts += self._calls.settle_draft(draft, item, response, has_gap=has_gap)
            else:
                parts += self._complete(item, record)
        return parts
