"""Events: everything that a stream reports while a response is made.

One class for each event type, in the order in which a stream has them. Raw reasoning has
two names on the wire (`reasoning_text` at OpenAI, `reasoning` in Open Responses); here it has
the first, and the codec writes the other. An event of a type that has no class is an
`UnknownEvent` and keeps its fields.
"""

from __future__ import annotations

from typing import Any, Final, get_args

import msgspec
from msgspec import UNSET, UnsetType

from antiphon.protocol.items import Item, Part
from antiphon.protocol.response import Extra, Response

__all__ = [
    "EVENT_CLASSES",
    "AnnotationEvent",
    "ArgumentsDelta",
    "ArgumentsDone",
    "BeginEvent",
    "CallDelta",
    "CallDone",
    "CodeCompleted",
    "CodeDelta",
    "CodeDone",
    "CodeInProgress",
    "CodeInterpreting",
    "ContentPartAdded",
    "ContentPartDone",
    "CustomInputDelta",
    "CustomInputDone",
    "ErrorEvent",
    "Event",
    "FileSearchCompleted",
    "FileSearchInProgress",
    "FileSearchSearching",
    "ImageCompleted",
    "ImageGenerating",
    "ImageInProgress",
    "KnownEvent",
    "LifecycleEvent",
    "McpArgumentsDelta",
    "McpArgumentsDone",
    "McpCallCompleted",
    "McpCallFailed",
    "McpCallInProgress",
    "McpListCompleted",
    "McpListFailed",
    "McpListInProgress",
    "OutputItemAdded",
    "OutputItemDone",
    "OutputTextDelta",
    "OutputTextDone",
    "PartAdded",
    "PartDone",
    "PartialImage",
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
    "StageEvent",
    "SummaryPartAdded",
    "SummaryPartDone",
    "SummaryTextDelta",
    "SummaryTextDone",
    "TerminalEvent",
    "TextDelta",
    "TextDone",
    "UnknownEvent",
    "WebSearchCompleted",
    "WebSearchInProgress",
    "WebSearchSearching",
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
    """The end: the model was stopped early; the response has the reason."""


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


# Hosted items: what a server reports while it runs a call itself.


class WebSearchInProgress(_InItem, frozen=True, tag="response.web_search_call.in_progress"):
    """A web search has begun."""


class WebSearchSearching(_InItem, frozen=True, tag="response.web_search_call.searching"):
    """A web search is running."""


class WebSearchCompleted(_InItem, frozen=True, tag="response.web_search_call.completed"):
    """A web search has ended; its item is done next."""


class FileSearchInProgress(_InItem, frozen=True, tag="response.file_search_call.in_progress"):
    """A file search has begun."""


class FileSearchSearching(_InItem, frozen=True, tag="response.file_search_call.searching"):
    """A file search is running."""


class FileSearchCompleted(_InItem, frozen=True, tag="response.file_search_call.completed"):
    """A file search has ended; its item is done next."""


class CodeInProgress(_InItem, frozen=True, tag="response.code_interpreter_call.in_progress"):
    """The model has begun to write code."""


class CodeDelta(_InItem, frozen=True, gc=False, tag="response.code_interpreter_call_code.delta"):
    """The code grew."""

    delta: str


class CodeDone(_InItem, frozen=True, tag="response.code_interpreter_call_code.done"):
    """The code is final."""

    code: str


class CodeInterpreting(_InItem, frozen=True, tag="response.code_interpreter_call.interpreting"):
    """The code is running."""


class CodeCompleted(_InItem, frozen=True, tag="response.code_interpreter_call.completed"):
    """The code has run; its item is done next."""


class ImageInProgress(_InItem, frozen=True, tag="response.image_generation_call.in_progress"):
    """An image was requested."""


class ImageGenerating(_InItem, frozen=True, tag="response.image_generation_call.generating"):
    """An image is being generated."""


class PartialImage(_InItem, frozen=True, tag="response.image_generation_call.partial_image"):
    """A preview of an image, in base64."""

    partial_image_index: int
    partial_image_b64: str
    size: str | UnsetType | None = UNSET
    quality: str | UnsetType | None = UNSET
    background: str | UnsetType | None = UNSET
    output_format: str | UnsetType | None = UNSET


class ImageCompleted(_InItem, frozen=True, tag="response.image_generation_call.completed"):
    """An image is complete; its item is done next."""


class McpListInProgress(_InItem, frozen=True, tag="response.mcp_list_tools.in_progress"):
    """The tools of an MCP server are being listed."""


class McpListCompleted(_InItem, frozen=True, tag="response.mcp_list_tools.completed"):
    """The tools of an MCP server are listed; the item is done next."""


class McpListFailed(_InItem, frozen=True, tag="response.mcp_list_tools.failed"):
    """The tools of an MCP server could not be listed."""


class McpCallInProgress(_InItem, frozen=True, tag="response.mcp_call.in_progress"):
    """A call of a tool of an MCP server has begun."""


class McpArgumentsDelta(_InItem, frozen=True, gc=False, tag="response.mcp_call_arguments.delta"):
    """The arguments of an MCP call grew."""

    delta: str
    obfuscation: str | UnsetType = UNSET


class McpArgumentsDone(_InItem, frozen=True, tag="response.mcp_call_arguments.done"):
    """The arguments of an MCP call are final."""

    arguments: str


class McpCallCompleted(_InItem, frozen=True, tag="response.mcp_call.completed"):
    """An MCP call has returned; its item is done next."""


class McpCallFailed(_InItem, frozen=True, tag="response.mcp_call.failed"):
    """An MCP call has failed; its item is done next."""


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


BeginEvent = ResponseCreated | ResponseQueued | ResponseInProgress
TerminalEvent = ResponseCompleted | ResponseFailed | ResponseIncomplete
LifecycleEvent = BeginEvent | TerminalEvent
"""Has the whole response as it is at that moment."""

PartAdded = ContentPartAdded | SummaryPartAdded
PartDone = ContentPartDone | SummaryPartDone
TextDelta = OutputTextDelta | RefusalDelta | ReasoningTextDelta | SummaryTextDelta
TextDone = OutputTextDone | RefusalDone | ReasoningTextDone | SummaryTextDone
CallDelta = ArgumentsDelta | CustomInputDelta | CodeDelta | McpArgumentsDelta
CallDone = ArgumentsDone | CustomInputDone | CodeDone | McpArgumentsDone

StageEvent = (
    WebSearchInProgress
    | WebSearchSearching
    | WebSearchCompleted
    | FileSearchInProgress
    | FileSearchSearching
    | FileSearchCompleted
    | CodeInProgress
    | CodeInterpreting
    | CodeCompleted
    | ImageInProgress
    | ImageGenerating
    | PartialImage
    | ImageCompleted
    | McpListInProgress
    | McpListCompleted
    | McpListFailed
    | McpCallInProgress
    | McpCallCompleted
    | McpCallFailed
)
"""Reports how far a hosted item has come. The last part of its name is the stage."""

KnownEvent = (
    LifecycleEvent
    | OutputItemAdded
    | OutputItemDone
    | PartAdded
    | PartDone
    | TextDelta
    | TextDone
    | AnnotationEvent
    | CallDelta
    | CallDone
    | StageEvent
    | ErrorEvent
)
Event = KnownEvent | UnknownEvent

EVENT_CLASSES: Final[dict[str, type[KnownEvent]]] = {
    str(cls.__struct_config__.tag): cls for cls in get_args(KnownEvent)
}
_TYPES: Final = {cls: name for name, cls in EVENT_CLASSES.items()}


def event_type(event: Event) -> str:
    """Return the event's name on the wire (in our own dialect)."""
    return event.type if isinstance(event, UnknownEvent) else _TYPES[type(event)]


def is_terminal(event: Event) -> bool:
    """Return whether this event ends its stream."""
    return isinstance(event, TerminalEvent)


def sequence_of(event: Event) -> int:
    """Return the number of an event of ours: they all have one."""
    number = event.sequence_number
    assert number is not None
    return number
