"""Events: everything that may be said while a response comes into being.

One class for each event type, in the order in which a stream tells them. Raw reasoning has
two names on the wire (`reasoning_text` at OpenAI, `reasoning` in Open Responses); here it has
the first, and the codec speaks the other. An event of a type that has no class is an
`UnknownEvent` and keeps its fields.
"""

from __future__ import annotations

from typing import Any, Final, get_args

import msgspec
from msgspec import UNSET, UnsetType

from antiphon.protocol.items import Item, Part
from antiphon.protocol.response import Extra, Failure, Response

__all__ = [
    "EVENT_CLASSES",
    "AnnotationEvent",
    "ArgumentsDelta",
    "ArgumentsDone",
    "ContentPartAdded",
    "ContentPartDone",
    "CustomInputDelta",
    "CustomInputDone",
    "ErrorEvent",
    "Event",
    "ImageCompleted",
    "ImageGenerating",
    "ImageInProgress",
    "KnownEvent",
    "LifecycleEvent",
    "OutputItemAdded",
    "OutputItemDone",
    "OutputTextDelta",
    "OutputTextDone",
    "ReasoningTextDelta",
    "ReasoningTextDone",
    "RefusalDelta",
    "RefusalDone",
    "ResponseCompleted",
    "ResponseCreated",
    "ResponseFailed",
    "ResponseInProgress",
    "ResponseIncomplete",
    "ResponseQueued",
    "SummaryPartAdded",
    "SummaryPartDone",
    "SummaryTextDelta",
    "SummaryTextDone",
    "TerminalEvent",
    "UnknownEvent",
    "error_event",
    "event_type",
    "is_terminal",
    "sequence_of",
]


class _Event(
    msgspec.Struct, kw_only=True, frozen=True, tag_field="type", forbid_unknown_fields=True
):
    sequence_number: int
    extra: Extra = msgspec.field(default=UNSET, name="$extra")

    @property
    def type(self) -> str:
        """The event's name on the wire (in our own dialect)."""
        return str(self.__struct_config__.tag)


class _Lifecycle(_Event, frozen=True):
    response: Response


class ResponseCreated(_Lifecycle, frozen=True, tag="response.created"):
    """The response exists and has an id."""


class ResponseQueued(_Lifecycle, frozen=True, tag="response.queued"):
    """The response waits for its turn."""


class ResponseInProgress(_Lifecycle, frozen=True, tag="response.in_progress"):
    """The model is at work."""


class ResponseCompleted(_Lifecycle, frozen=True, tag="response.completed"):
    """The end: all went well."""


class ResponseFailed(_Lifecycle, frozen=True, tag="response.failed"):
    """The end: it broke; the response carries what there was, and the error."""


class ResponseIncomplete(_Lifecycle, frozen=True, tag="response.incomplete"):
    """The end: the model was stopped early; the response says why."""


class _ItemEvent(_Event, frozen=True):
    output_index: int
    item: Item


class OutputItemAdded(_ItemEvent, frozen=True, tag="response.output_item.added"):
    """An item opens."""


class OutputItemDone(_ItemEvent, frozen=True, tag="response.output_item.done"):
    """An item is final."""


class _InItem(_Event, frozen=True):
    item_id: str
    output_index: int


class _InContent(_InItem, frozen=True):
    content_index: int


class _InSummary(_InItem, frozen=True):
    summary_index: int


class ContentPartAdded(_InContent, frozen=True, tag="response.content_part.added"):
    """A content part opens."""

    part: Part


class ContentPartDone(_InContent, frozen=True, tag="response.content_part.done"):
    """A content part is final."""

    part: Part


class OutputTextDelta(_InContent, frozen=True, gc=False, tag="response.output_text.delta"):
    """Text grew."""

    delta: str
    logprobs: list[dict[str, Any]] | None = []
    obfuscation: str | UnsetType = UNSET


class OutputTextDone(_InContent, frozen=True, tag="response.output_text.done"):
    """Text is final."""

    text: str
    logprobs: list[dict[str, Any]] | None = []


class AnnotationEvent(_InContent, frozen=True, tag="response.output_text.annotation.added"):
    """A note on the text."""

    annotation_index: int
    annotation: dict[str, Any]


class RefusalDelta(_InContent, frozen=True, gc=False, tag="response.refusal.delta"):
    """A refusal grew."""

    delta: str


class RefusalDone(_InContent, frozen=True, tag="response.refusal.done"):
    """A refusal is final."""

    refusal: str


class ReasoningTextDelta(_InContent, frozen=True, gc=False, tag="response.reasoning_text.delta"):
    """Raw reasoning grew."""

    delta: str
    obfuscation: str | UnsetType = UNSET


class ReasoningTextDone(_InContent, frozen=True, tag="response.reasoning_text.done"):
    """Raw reasoning is final."""

    text: str


class SummaryPartAdded(_InSummary, frozen=True, tag="response.reasoning_summary_part.added"):
    """A part of a reasoning summary opens."""

    part: Part


class SummaryPartDone(_InSummary, frozen=True, tag="response.reasoning_summary_part.done"):
    """A part of a reasoning summary is final."""

    part: Part


class SummaryTextDelta(
    _InSummary, frozen=True, gc=False, tag="response.reasoning_summary_text.delta"
):
    """A reasoning summary grew."""

    delta: str
    obfuscation: str | UnsetType = UNSET


class SummaryTextDone(_InSummary, frozen=True, tag="response.reasoning_summary_text.done"):
    """A reasoning summary is final."""

    text: str


class ArgumentsDelta(_InItem, frozen=True, gc=False, tag="response.function_call_arguments.delta"):
    """The arguments of a call grew."""

    delta: str
    obfuscation: str | UnsetType = UNSET


class ArgumentsDone(_InItem, frozen=True, tag="response.function_call_arguments.done"):
    """The arguments of a call are final."""

    arguments: str
    name: str | UnsetType = UNSET


class CustomInputDelta(_InItem, frozen=True, gc=False, tag="response.custom_tool_call_input.delta"):
    """The free-form input of a custom call grew."""

    delta: str
    obfuscation: str | UnsetType = UNSET


class CustomInputDone(_InItem, frozen=True, tag="response.custom_tool_call_input.done"):
    """The free-form input of a custom call is final."""

    input: str


class ImageInProgress(_InItem, frozen=True, tag="response.image_generation_call.in_progress"):
    """An image is asked for."""


class ImageGenerating(_InItem, frozen=True, tag="response.image_generation_call.generating"):
    """An image is being made."""


class ImageCompleted(_InItem, frozen=True, tag="response.image_generation_call.completed"):
    """An image is made; its item is done next."""


class ErrorEvent(_Event, frozen=True, tag="error"):
    """Something broke while streaming; a `response.failed` follows."""

    message: str
    code: str | None = None
    param: str | None = None
    kind: str | UnsetType = UNSET
    """The error's type, which only the nested error has."""
    detail: str | UnsetType = UNSET
    """The message of the nested error, where it differs from `message`."""


class UnknownEvent(msgspec.Struct, frozen=True):
    """An event of a type we do not know, kept as it came."""

    type: str
    fields: dict[str, Any]

    @property
    def sequence_number(self) -> int | None:
        """The peer's own count, if it gave one."""
        number = self.fields.get("sequence_number")
        return number if isinstance(number, int) else None


LifecycleEvent = (
    ResponseCreated
    | ResponseQueued
    | ResponseInProgress
    | ResponseCompleted
    | ResponseFailed
    | ResponseIncomplete
)
"""Tells the whole response as it is at that moment."""

KnownEvent = (
    LifecycleEvent
    | OutputItemAdded
    | OutputItemDone
    | ContentPartAdded
    | ContentPartDone
    | OutputTextDelta
    | OutputTextDone
    | AnnotationEvent
    | RefusalDelta
    | RefusalDone
    | ReasoningTextDelta
    | ReasoningTextDone
    | SummaryPartAdded
    | SummaryPartDone
    | SummaryTextDelta
    | SummaryTextDone
    | ArgumentsDelta
    | ArgumentsDone
    | CustomInputDelta
    | CustomInputDone
    | ImageInProgress
    | ImageGenerating
    | ImageCompleted
    | ErrorEvent
)
Event = KnownEvent | UnknownEvent
TerminalEvent = ResponseCompleted | ResponseFailed | ResponseIncomplete

EVENT_CLASSES: Final[dict[str, type[KnownEvent]]] = {
    str(cls.__struct_config__.tag): cls for cls in get_args(KnownEvent)
}
_TYPES: Final = {cls: name for name, cls in EVENT_CLASSES.items()}


def error_event(
    response: Response, sequence_number: int, kind: str = "server_error", *, is_kept: bool = True
) -> ErrorEvent:
    """Return the event that announces the failure of this response.

    The OpenAI SDKs raise at this event and never read the `response.failed` after it. So the
    nested error names the response; one that the server keeps can be read by that id.
    """
    why = response.error or Failure()
    where = f"response {response.id}"
    if is_kept and response.store:
        where = f"what was produced is kept: GET /v1/responses/{response.id}"
    return ErrorEvent(
        sequence_number=sequence_number,
        message=why.message,
        code=why.code,
        kind=kind,
        detail=f"{why.message} ({where})" if why.message else where,
    )


def event_type(event: Event) -> str:
    """Return the event's name on the wire (in our own dialect)."""
    return event.type if isinstance(event, UnknownEvent) else _TYPES[type(event)]


def is_terminal(event: Event) -> bool:
    """Say whether this event ends its stream."""
    return isinstance(event, TerminalEvent)


def sequence_of(event: Event) -> int:
    """Return the number of an event of ours: they all have one."""
    number = event.sequence_number
    assert number is not None
    return number
