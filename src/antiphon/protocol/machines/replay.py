"""A response that has ended, told as the stream that it might have been.

A turn that was not streamed keeps no log, yet it can be followed like any other. Its events
follow from what is stored: every text in one piece, every item under its own id. What the
builder would hand on as it is, and any item of a shape that it does not make, is told whole.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from antiphon.protocol.events import (
    AnnotationEvent,
    ArgumentsDelta,
    ArgumentsDone,
    ContentPartAdded,
    ContentPartDone,
    CustomInputDelta,
    CustomInputDone,
    Event,
    ImageCompleted,
    ImageGenerating,
    ImageInProgress,
    KnownEvent,
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
    SummaryPartAdded,
    SummaryPartDone,
    SummaryTextDelta,
    SummaryTextDone,
    TerminalEvent,
    error_event,
)
from antiphon.protocol.families import WHOLE, call_family, opening_of
from antiphon.protocol.items import Item, Part
from antiphon.protocol.machines.open_items import copy_json
from antiphon.protocol.response import Response

__all__ = ["tell_response"]

_E = TypeVar("_E", bound=KnownEvent)


class _Voice(NamedTuple):
    """How a part of one kind is told: its text's field, its index, and the events."""

    text: str
    place: str
    added: type[KnownEvent]
    delta: type[KnownEvent]
    said: type[KnownEvent]
    done: type[KnownEvent]


_CONTENT: Final = ("content_index", ContentPartAdded)
_VOICES: Final[dict[tuple[str, str, str], _Voice]] = {
    ("message", "content", "output_text"): _Voice(
        "text", *_CONTENT, OutputTextDelta, OutputTextDone, ContentPartDone
    ),
    ("message", "content", "refusal"): _Voice(
        "refusal", *_CONTENT, RefusalDelta, RefusalDone, ContentPartDone
    ),
    ("reasoning", "content", "reasoning_text"): _Voice(
        "text", *_CONTENT, ReasoningTextDelta, ReasoningTextDone, ContentPartDone
    ),
    ("reasoning", "summary", "summary_text"): _Voice(
        "text",
        "summary_index",
        SummaryPartAdded,
        SummaryTextDelta,
        SummaryTextDone,
        SummaryPartDone,
    ),
}
_LISTS: Final = {"message": ("content",), "reasoning": ("summary", "content")}
_NOTES: Final = ("annotations", "logprobs")
_LATER: Final = frozenset({"content", "summary", "arguments", "encrypted_content"})
_ENDS: Final[dict[str, type[TerminalEvent]]] = {
    "completed": ResponseCompleted,
    "incomplete": ResponseIncomplete,
    "cancelled": ResponseIncomplete,
    "failed": ResponseFailed,
}


def tell_response(response: Response) -> list[Event]:
    """Return the events of a response that has ended; the last one holds it as it is."""
    end = _ENDS.get(response.status)
    if end is None:
        raise ValueError(f"a response that is {response.status} has not ended")
    teller = _Teller()
    teller.emit(ResponseCreated, response=_as_begun(response))
    teller.emit(ResponseInProgress, response=_as_begun(response))
    for index, item in enumerate(response.output):
        teller.tell_item(index, item)
    if end is ResponseFailed:
        teller.events.append(error_event(response, len(teller.events)))
    output = copy_json(response.output)
    teller.emit(end, response=msgspec.structs.replace(response, output=output))
    return teller.events


def _as_begun(response: Response) -> Response:
    notes = response.antiphon
    if notes:
        notes = msgspec.structs.replace(notes, usage=None)
    return msgspec.structs.replace(
        response,
        status="in_progress",
        output=[],
        completed_at=None,
        error=None,
        incomplete_details=None,
        usage=None,
        antiphon=notes,
    )


class _Teller:
    """Tells items one after the other, and counts."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def emit(self, event: type[_E], **fields: Any) -> None:  # Any: the event's own fields
        """Tell one more event."""
        self.events.append(event(sequence_number=len(self.events), **fields))

    def tell_item(self, index: int, item: Item) -> None:
        """Tell one item from its opening to its end."""
        opening = _opening(item)
        self.emit(OutputItemAdded, output_index=index, item=copy_json(opening))
        if opening is not item:
            place = {"item_id": item["id"], "output_index": index}
            self._tell_call(item, place)
            for field in _LISTS.get(item["type"], ()):
                for part_index, part in enumerate(item.get(field) or ()):
                    voice = _VOICES[item["type"], field, part["type"]]
                    self._tell_part(voice, part, place | {voice.place: part_index})
        self.emit(OutputItemDone, output_index=index, item=copy_json(item))

    def _tell_call(self, item: Item, place: dict[str, Any]) -> None:
        match item["type"]:
            case "function_call":
                said = item["arguments"]
                if said:
                    self.emit(ArgumentsDelta, delta=said, **place)
                self.emit(ArgumentsDone, arguments=said, name=item["name"], **place)
            case "custom_tool_call":
                said = item["input"]
                if said:
                    self.emit(CustomInputDelta, delta=said, **place)
                self.emit(CustomInputDone, input=said, **place)
            case "image_generation_call":
                self.emit(ImageInProgress, **place)
                self.emit(ImageGenerating, **place)
                self.emit(ImageCompleted, **place)

    def _tell_part(self, voice: _Voice, part: Part, place: dict[str, Any]) -> None:
        empty: Part = {voice.text: ""} | {field: [] for field in _NOTES if field in part}
        self.emit(voice.added, part=copy_json(part | empty), **place)
        text = part[voice.text]
        # Only the events of a plain text have logprobs.
        logprobs = part.get("logprobs") or []
        notes = {"logprobs": logprobs} if voice.delta is OutputTextDelta else {}
        if text:
            self.emit(voice.delta, delta=text, **copy_json(notes), **place)
        for index, note in enumerate(part.get("annotations") or ()):
            self.emit(AnnotationEvent, annotation_index=index, annotation=copy_json(note), **place)
        self.emit(voice.said, **{voice.text: text}, **copy_json(notes), **place)
        self.emit(voice.done, part=copy_json(part), **place)


def _opening(item: Item) -> Item:
    """Return the item as it opens: the very same one, if it can only be told whole."""
    if not _can_be_told(item):
        return item
    opening = {key: value for key, value in item.items() if key not in _LATER}
    if "status" in item:
        opening["status"] = "in_progress"
    match item["type"]:
        case "message":
            opening["content"] = []
        case "reasoning":
            opening["summary"] = []
        case "image_generation_call":
            opening["result"] = None
        case _:
            family = call_family(item)
            assert family is not None
            opening[family.payload] = opening_of(family.kind, item[family.payload])
    return opening


def _can_be_told(item: Item) -> bool:
    kind = item.get("type")
    if not isinstance(item.get("id"), str):
        return False
    if kind == "image_generation_call":
        return item.get("status") == "completed"
    family = call_family(item)
    if family is not None and family.kind in WHOLE:
        return isinstance(item.get(family.payload), dict)
    if family is not None:
        return all(isinstance(item.get(field), str) for field in ("name", family.payload))
    if kind not in _LISTS:
        return False
    return all(
        _has_voice(kind, field, part) for field in _LISTS[kind] for part in item.get(field) or ()
    )


def _has_voice(kind: str, field: str, part: object) -> bool:
    if not isinstance(part, dict):
        return False
    voice = _VOICES.get((kind, field, str(part.get("type"))))
    return voice is not None and isinstance(part.get(voice.text), str)
