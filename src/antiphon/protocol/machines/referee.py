"""A referee of event streams who forgives nothing.

The rules are in `grammar`. The referee keeps going after a violation and takes the stream as it is
from there, so that one mistake is one violation.

It keeps copies, never the event's own objects: a producer that changes an item after it was
emitted is caught. It does not check fields that the rules do not name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, get_args

import msgspec
from msgspec import UNSET

from antiphon.protocol.events import (
    AnnotationEvent,
    BeginEvent,
    CallDelta,
    CallDone,
    ErrorEvent,
    Event,
    OutputItemAdded,
    OutputItemDone,
    PartAdded,
    PartDone,
    PartialImage,
    ResponseCreated,
    ResponseFailed,
    ResponseQueued,
    StageEvent,
    TerminalEvent,
    TextDelta,
    TextDone,
    UnknownEvent,
    event_type,
)
from antiphon.protocol.items import Item, Part
from antiphon.protocol.machines.grammar import (
    BEFORE,
    CALLS,
    ENDS_AS,
    HOMES,
    HOSTED_TEXTS,
    INPUT,
    LISTS,
    OPENS_WITH,
    PART_STEPS,
    PROSE,
    RULES,
    STAGES,
    TEXTS,
    VOICES,
    WRITTEN,
)
from antiphon.protocol.machines.judged_shell import JudgedShell, commands_of

__all__ = ["RULES", "Referee", "Violation", "judge_stream"]

_InPart = PartAdded | PartDone | TextDelta | TextDone | CallDelta | CallDone | AnnotationEvent

_copy: Final[Callable[[Any], Any]] = msgspec.to_builtins


class Violation(msgspec.Struct, frozen=True):
    """A rule that was broken (see `RULES`), and the event that broke it; None for the end."""

    rule: str
    message: str
    event: Event | None


class _JudgedPart:
    """A part, or the text of a call, as it was streamed."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.state = "open"
        self.pieces: list[str] = []
        self.text = ""
        self.notes: list[dict[str, Any]] = []
        self.whole: Part = {}


class _JudgedItem:
    """An item as it was added, with its parts by the name of their list."""

    def __init__(self, position: int, index: int, item: Item) -> None:
        self.position = position
        self.index = index
        self.id = item.get("id")
        self.kind = item.get("type")
        self.call_id = item.get("call_id")
        self.added = _copy(item)
        self.stage = "added"
        """How far a hosted item has come."""
        self.previews = 0
        self.shell = JudgedShell()
        self.lists: dict[str, list[_JudgedPart]] = {"content": [], "summary": []}
        if self.kind == "function_call":
            self.lists["arguments"] = [_JudgedPart("arguments")]
        elif self.kind in HOSTED_TEXTS:
            self.lists[HOSTED_TEXTS[self.kind]] = [_JudgedPart(self.kind)]


class Referee:
    """Judges one stream, event by event."""

    def __init__(self) -> None:
        self._found: list[Violation] = []
        self._event: Event | None = None
        self._phase = "new"
        self._due = 0
        self._response_id: str | None = None
        self._has_erred = False
        self._is_waiting = False
        self._count = 0
        self._ids: set[str] = set()
        self._call_ids: set[str] = set()
        self._open: dict[str, _JudgedItem] = {}
        self._done: dict[int, Item] = {}

    def judge(self, event: Event) -> list[Violation]:
        """Return the rules that this event breaks: none, if all is well."""
        self._found = []
        self._event = event
        self._check_place(event)
        judge = _JUDGES.get(type(event))
        if self._phase != "over" and judge is not None:
            judge(self, event)
        return self._found

    def end(self) -> list[Violation]:
        """Return the rules that a stream breaks by ending here."""
        self._found = []
        self._event = None
        if self._phase != "over":
            self._object("terminal_missing", f"ended after {self._due} events")
        if self._has_erred:
            self._object("error_failed", "ended after the error event")
        return self._found

    def _object(self, rule: str, message: str) -> None:
        where = "" if self._event is None else f"{event_type(self._event)}: "
        self._found.append(Violation(rule, where + message, self._event))

    def _require(self, holds: object, rule: str, message: str) -> None:
        if not holds:
            self._object(rule, message)

    # The order of events.

    def _check_place(self, event: Event) -> None:
        number = event.sequence_number
        self._require(number == self._due, "sequence", f"{number} where {self._due} was due")
        self._due = (self._due if number is None else number) + 1
        self._require(self._phase != "over", "terminal_once", "came after the end")
        if self._phase == "new" and not isinstance(event, ResponseCreated):
            self._object("first", "came before response.created")
            self._phase = "created"
        if self._has_erred and not isinstance(event, ResponseFailed):
            self._object("error_failed", "followed an error event")
        self._has_erred = False
        if self._is_waiting and not isinstance(event, ResponseQueued):
            self._object("queued_next", "came where response.queued was due")
        self._is_waiting = False

    def _err(self, event: ErrorEvent) -> None:
        self._has_erred = True
        agrees = event.detail is UNSET or event.message in event.detail
        self._require(agrees, "error_equal", "the nested error has another message")

    def _begin(self, event: BeginEvent) -> None:
        phase = BEFORE.get((self._phase, type(event)))
        self._require(phase, "lifecycle", f"came while the stream was {self._phase}")
        self._phase = phase or self._phase
        self._check_response_id(event.response.id)
        told = event.response.status
        self._is_waiting = isinstance(event, ResponseCreated) and told == "queued"
        is_queued = self._is_waiting or isinstance(event, ResponseQueued)
        status = "queued" if is_queued else "in_progress"
        self._require(told == status, "begin_state", f"status is {told}, not {status}")
        self._require(not event.response.output, "begin_state", "output is not empty")

    def _check_response_id(self, response_id: str) -> None:
        first = self._response_id or response_id
        self._require(response_id == first, "response_id", f"{response_id} was {first}")
        self._response_id = first

    # Items.

    def _add_item(self, event: OutputItemAdded) -> None:
        item = _JudgedItem(self._count, event.output_index, event.item)
        self._phase = "telling"
        self._require(
            item.index == self._count, "item_index", f"{item.index} where {self._count} was due"
        )
        self._check_new_ids(item)
        self._check_opening(event.item)
        beside = [other.kind for other in self._open.values()]
        if beside and (item.kind in PROSE or not PROSE.isdisjoint(beside)):
            self._object("prose_alone", f"{item.kind} opened beside {', '.join(map(str, beside))}")
        self._count += 1
        self._open[str(item.id)] = item

    def _check_new_ids(self, item: _JudgedItem) -> None:
        is_new = _is_name(item.id) and item.id not in self._ids
        self._require(is_new, "item_id", f"{item.id!r} is missing or taken")
        self._ids.add(str(item.id))
        if item.kind in CALLS and _is_name(item.call_id):
            is_new = item.call_id not in self._call_ids
            self._require(is_new, "call_id", f"{item.call_id!r} is taken")
            self._call_ids.add(str(item.call_id))

    def _check_opening(self, item: Item) -> None:
        kind = item.get("type")
        self._require(_is_name(kind), "item_begin", "the item has no type")
        for field, value in OPENS_WITH.get(str(kind), {}).items():
            told = item.get(field)
            self._require(told == value, "item_begin", f"{field} is {told!r}, not {value!r}")
        if kind in CALLS:
            is_named = _is_name(item.get("name")) and _is_name(item.get("call_id"))
            self._require(is_named, "item_begin", "the call lacks its name or call_id")
        self._require(not commands_of(item), "item_begin", "a shell opens with commands")
        if kind == "reasoning":
            self._require(not item.get("content"), "item_begin", "content is not empty")

    def _close_item(self, event: OutputItemDone) -> None:
        item = self._open_at(event.output_index, event.item.get("id"))
        if item is None:
            self._object("item_open", f"no item is open at {event.output_index}")
            return
        is_first = next(iter(self._open.values())) is item
        self._require(is_first, "close_order", f"{item.index} is not the first open item")
        for field, value in (("id", item.id), ("type", item.kind), ("call_id", item.call_id)):
            told = event.item.get(field)
            self._require(told == value, "item_same", f"{field} {told!r} was {value!r}")
        self._check_status(event.item)
        self._check_hosted(item, event.item)
        self._check_whole(item, event.item)
        del self._open[str(item.id)]
        self._done[item.position] = _copy(event.item)

    def _open_at(self, index: int, item_id: object) -> _JudgedItem | None:
        """Return the open item at this index: the one of this id, if there are several."""
        named = self._open.get(str(item_id))
        if named is not None and named.index == index:
            return named
        return next((item for item in self._open.values() if item.index == index), None)

    def _check_status(self, item: Item) -> None:
        status = item.get("status")
        kind = item.get("type")
        if kind in ("message", "function_call"):
            is_final = status in ("completed", "incomplete")
        elif kind == "image_generation_call":
            is_final = status in ("completed", "failed")
        elif kind in STAGES and kind != "mcp_list_tools":
            is_final = status in ("completed", "incomplete", "failed")
        else:
            is_final = status != "in_progress"
        self._require(is_final, "item_end", f"status is {status!r}")

    def _progress(self, event: StageEvent) -> None:
        item = self._item_of(event)
        if item is None:
            return
        kind, _, stage = event_type(event).removeprefix("response.").rpartition(".")
        is_due = kind == item.kind and STAGES[kind][stage] == item.stage
        self._require(is_due, "hosted_order", f"came while the {item.kind} was {item.stage}")
        if isinstance(event, PartialImage):
            index, due = event.partial_image_index, item.previews
            self._require(index == due, "preview_index", f"{index} where {due} was due")
            item.previews += 1
        elif is_due:
            item.stage = stage

    def _check_hosted(self, item: _JudgedItem, told: Item) -> None:
        """Check that the end of the item fits its last stage.

        One whose end was lost after that stage may be incomplete, or have an error.
        """
        if item.kind in ("shell_call", "shell_call_output"):
            why = item.shell.judge_end(told)
            self._require(not why, "shell_equal", why)
        if item.kind == "mcp_approval_request":
            self._require(told == item.added, "item_equal", "the request is not what was streamed")
        if item.kind not in STAGES:
            return
        if item.kind == "image_generation_call":
            self._require(isinstance(told.get("result"), str), "item_end", "it has no result")
        status = told.get("status")
        if item.kind == "mcp_list_tools":
            status = "lost" if told.get("error") else "completed"
        can_fail = item.kind in ("mcp_call", "mcp_list_tools")
        is_due = {
            "completed": item.stage == "completed",
            "failed": not can_fail or item.stage == "failed",
            "lost": item.stage in ("completed", "failed"),
        }.get(str(status), item.stage != "failed")
        self._require(is_due, "hosted_order", f"done as {status} while it was {item.stage}")

    def _check_stranger(self, event: UnknownEvent) -> None:
        """Check the place of an event that is not in the grammar, if it names an item."""
        item_id, index = event.fields.get("item_id"), event.fields.get("output_index")
        if event.type.startswith("response.shell_call_command.") and isinstance(index, int):
            item = self._open_at(index, item_id)
            item_id = item.id if item is not None else "nothing"
        if item_id is None or index is None:
            return
        item = self._open.get(str(item_id))
        is_open = item is not None and item.index == index
        self._require(is_open, "item_open", f"{item_id} is not open at {index}")
        if item is not None and event.type.startswith("response.shell_call_"):
            why = item.shell.judge(str(item.kind), event.type, event.fields)
            self._require(not why, "shell_equal", why)

    def _check_whole(self, item: _JudgedItem, told: Item) -> None:
        for name, parts in item.lists.items():
            closed = "said" if name in TEXTS else "closed"
            for part in parts:
                self._require(part.state == closed, "part_order", f"a part of {name} is open")
        for name in LISTS.get(str(item.kind), ()):
            parts_told = [part.whole for part in item.lists[name] if part.state == "closed"]
            is_equal = (told.get(name) or []) == parts_told
            self._require(is_equal, "item_equal", f"{name} is not what was streamed")
        for name in TEXTS:
            for part in item.lists.get(name, ()):
                is_equal = part.state != "said" or told.get(name) == part.text
                self._require(is_equal, "item_equal", f"{name} is not what was streamed")

    # Parts.

    def _item_of(self, event: _InPart | StageEvent) -> _JudgedItem | None:
        item = self._open.get(event.item_id)
        if item is None or item.index != event.output_index:
            self._object("item_open", f"{event.item_id} is not open at {event.output_index}")
            return item or self._open_at(event.output_index, event.item_id)
        return item

    def _add_part(self, event: PartAdded) -> None:
        item = self._item_of(event)
        if item is None:
            return
        voice = VOICES[type(event)]
        parts, index = item.lists[voice.list], getattr(event, voice.place)
        kind = str(event.part.get("type"))
        home = HOMES.get(kind, (item.kind, voice.list))
        self._require(
            home == (item.kind, voice.list), "part_kind", f"{kind} in {voice.list} of {item.kind}"
        )
        self._require(index == len(parts), "part_index", f"{index} where {len(parts)} was due")
        is_alone = all(part.state == "closed" for part in parts[-1:])
        self._require(is_alone, "part_order", "the part before it is open")
        is_empty = not any(event.part.get(field) for field in ("text", "refusal", "annotations"))
        self._require(is_empty, "part_begin", "the part is not empty")
        parts.append(_JudgedPart(kind))

    def _part_of(self, event: _InPart, step: str) -> _JudgedPart | None:
        """Return the part this event speaks in, once it has taken the step."""
        item = self._item_of(event)
        if item is None:
            return None
        part = self._part_at(item, event)
        if part is None:
            self._object("part_open", f"item {item.id} has no such part")
            return None
        is_due = item.kind not in HOSTED_TEXTS or item.stage == "in_progress"
        self._require(is_due, "hosted_order", f"came while the {item.kind} was {item.stage}")
        state = PART_STEPS.get((part.state, step))
        if state is None:
            self._object("part_order", f"came while the part was {part.state}")
            return None
        part.state = state
        return part

    def _part_at(self, item: _JudgedItem, event: _InPart) -> _JudgedPart | None:
        voice = VOICES[type(event)]
        if voice is INPUT and item.kind == "custom_tool_call":
            item.lists.setdefault(voice.list, [_JudgedPart(voice.kind)])
        parts = item.lists.get(voice.list, [])
        index = getattr(event, voice.place) if voice.place else 0
        if not 0 <= index < len(parts):
            return None
        part = parts[index]
        if not isinstance(event, PartDone):
            self._require(part.kind == voice.kind, "part_kind", f"the part is {part.kind}")
        return part

    def _grow(self, event: TextDelta | CallDelta) -> None:
        part = self._part_of(event, "grow")
        if part is not None:
            part.pieces.append(event.delta)

    def _say(self, event: TextDone | CallDone) -> None:
        part = self._part_of(event, "say")
        if part is None:
            return
        part.text = getattr(event, VOICES[type(event)].text)
        is_equal = part.text == "".join(part.pieces)
        self._require(is_equal, "text_equal", "the text is not that of its deltas")

    def _annotate(self, event: AnnotationEvent) -> None:
        part = self._part_of(event, "note")
        if part is None:
            return
        index, due = event.annotation_index, len(part.notes)
        self._require(index == due, "annotation_index", f"{index} where {due} was due")
        part.notes.append(_copy(event.annotation))

    def _close_part(self, event: PartDone) -> None:
        part = self._part_of(event, "close")
        if part is None:
            return
        part.whole = _copy(event.part)
        text = event.part.get("refusal" if part.kind == "refusal" else "text")
        is_equal = event.part.get("type") == part.kind and text == part.text
        has_notes = (event.part.get("annotations") or []) == part.notes
        self._require(is_equal and has_notes, "part_equal", "the part is not what was streamed")

    # The end.

    def _end(self, event: TerminalEvent) -> None:
        response = event.response
        self._check_response_id(response.id)
        self._check_terminal_state(event)
        self._require(response.usage is not None, "terminal_usage", "usage is null")
        self._require(not self._open, "items_done", f"open: {', '.join(self._open)}")
        self._check_incomplete(response.status)
        done = [self._done[position] for position in sorted(self._done)]
        self._require(response.output == done, "terminal_output", "output is not what was done")
        self._phase = "over"

    def _check_terminal_state(self, event: TerminalEvent) -> None:
        response = event.response
        name = event_type(event).removeprefix("response.")
        details = response.incomplete_details
        fits = {
            "status": response.status in ENDS_AS[name],
            "completed_at": (response.completed_at is not None) == (name == "completed"),
            "incomplete_details": (details is not None) == (response.status == "incomplete"),
            "error": (response.error is not None) == (name == "failed"),
        }
        for field, does_fit in fits.items():
            self._require(does_fit, "terminal_state", f"{field} does not fit")

    def _check_incomplete(self, status: str) -> None:
        written = sorted(n for n, item in self._done.items() if _is_written(item))
        cut = [n for n in written if self._done[n].get("status") == "incomplete"]
        if not cut or status == "failed":
            return
        # The specification speaks of one; several calls may have been open together.
        is_last = cut == written[-len(cut) :]
        may_be_cut = status in ENDS_AS["incomplete"]
        self._require(may_be_cut and is_last, "incomplete_item", f"incomplete items at {cut}")


# Each event that is in the grammar, and what checks it.
_JUDGES: Final[dict[type[Any], Callable[[Referee, Any], None]]] = {
    **dict.fromkeys(get_args(BeginEvent), Referee._begin),
    **dict.fromkeys(get_args(TerminalEvent), Referee._end),
    **dict.fromkeys(get_args(PartAdded), Referee._add_part),
    **dict.fromkeys(get_args(PartDone), Referee._close_part),
    **dict.fromkeys(get_args(TextDelta | CallDelta), Referee._grow),
    **dict.fromkeys(get_args(TextDone | CallDone), Referee._say),
    **dict.fromkeys(get_args(StageEvent), Referee._progress),
    UnknownEvent: Referee._check_stranger,
    AnnotationEvent: Referee._annotate,
    OutputItemAdded: Referee._add_item,
    OutputItemDone: Referee._close_item,
    ErrorEvent: Referee._err,
}


def judge_stream(events: Iterable[Event]) -> list[Violation]:
    """Return all rules that a whole stream breaks."""
    referee = Referee()
    found = [violation for event in events for violation in referee.judge(event)]
    return found + referee.end()


def _is_written(item: Item) -> bool:
    """Return whether the model writes such items. A shell in a container is run by the server."""
    place = item.get("environment")
    is_remote = isinstance(place, dict) and place.get("type") == "container_reference"
    return item.get("type") in WRITTEN and not is_remote


def _is_name(value: object) -> bool:
    return isinstance(value, str) and value != ""
