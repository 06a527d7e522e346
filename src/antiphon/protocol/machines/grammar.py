"""The grammar of an event stream, in words and in data.

`RULES` is the grammar in words. The tables are the grammar in data: which state event may follow
which, what an item looks like when it opens, which stages a hosted item has, which event speaks
in which part, and what may happen to a part when. The referee applies them.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from antiphon.protocol.events import (
    EVENT_CLASSES,
    ResponseCreated,
    ResponseInProgress,
    ResponseQueued,
)
from antiphon.protocol.items import Item

__all__ = [
    "BEFORE",
    "CALLS",
    "ENDS_AS",
    "HOMES",
    "HOSTED_TEXTS",
    "INPUT",
    "LISTS",
    "OPENS_WITH",
    "PART_STEPS",
    "PROSE",
    "RULES",
    "STAGES",
    "TEXTS",
    "VOICES",
    "WRITTEN",
    "Voice",
]

RULES: Final[dict[str, str]] = {
    "first": "The first event is response.created.",
    "lifecycle": "created, then queued at most once, then in_progress at most once, then items.",
    "sequence": "sequence_number counts 0, 1, 2, … over all events.",
    "response_id": "The id of the response never changes.",
    "begin_state": "created and in_progress have status in_progress, queued has queued; no output.",
    "queued_next": "created has status queued only if response.queued is next.",
    "item_index": "A new item's output_index is the number of items before it.",
    "item_id": "Every item has an id of its own.",
    "item_begin": "An item opens empty, unsealed, in progress; a call with its name and call_id.",
    "call_id": "Every call has a call_id of its own.",
    "item_open": "An event inside an item names one that is open, by its id and output_index.",
    "item_same": "An item is done under the id, type and call_id with which it was added.",
    "item_end": "A done item is not in progress.",
    "item_equal": "A done item holds exactly the parts, arguments or code that were streamed.",
    "prose_alone": "A message or reasoning item is never open beside another item.",
    "close_order": "Items are done in the order of their indexes.",
    "part_index": "A new part's index is the number of parts before it in its item.",
    "part_begin": "A part opens empty.",
    "part_open": "An event inside a part names one that has been added.",
    "part_kind": "A part is of a kind that its item has, and events are of the part's kind.",
    "part_order": "added, deltas, text done, part done, one part after the other, then item done.",
    "part_equal": "A done part holds exactly the text and annotations that were streamed.",
    "text_equal": "A done text is the concatenation of its deltas.",
    "hosted_order": "A hosted item has the stages of its type, and completes with the last.",
    "preview_index": "partial_image_index counts 0, 1, 2, … in each image.",
    "shell_equal": "A hosted shell streams its commands, then what each printed, as they are done.",
    "annotation_index": "annotation_index counts 0, 1, 2, … in each part.",
    "items_done": "Every item is done before the terminal event.",
    "incomplete_item": "Only the last items of an incomplete response, or any of a failed one.",
    "terminal_state": "Status, completed_at, error and incomplete_details fit the terminal event.",
    "terminal_usage": "The terminal event has the usage.",
    "terminal_output": "The terminal response holds exactly the items that were done.",
    "terminal_once": "Nothing follows the terminal event.",
    "terminal_missing": "Every stream has a terminal event.",
    "error_failed": "An error event is followed by response.failed at once.",
    "error_equal": "The nested error of an error event has its message, and may add to it.",
}

BEFORE: Final[dict[tuple[str, type[Any]], str]] = {
    ("new", ResponseCreated): "created",
    ("created", ResponseQueued): "queued",
    ("created", ResponseInProgress): "running",
    ("queued", ResponseInProgress): "running",
}

OPENS_WITH: Final[dict[str, Item]] = {
    "message": {"role": "assistant", "status": "in_progress", "content": []},
    "reasoning": {"summary": [], "encrypted_content": None},
    "function_call": {"status": "in_progress", "arguments": ""},
    "image_generation_call": {"status": "in_progress", "result": None},
    "web_search_call": {"status": "in_progress"},
    "file_search_call": {"status": "in_progress", "results": None},
    "code_interpreter_call": {"status": "in_progress", "code": "", "outputs": None},
    "mcp_call": {"status": "in_progress", "arguments": "", "output": None, "error": None},
    "mcp_list_tools": {"tools": [], "error": None},
    "shell_call_output": {"status": "in_progress", "output": []},
}
_SEARCHING: Final = {"in_progress": "added", "searching": "in_progress", "completed": "searching"}
_CALLING: Final = {"in_progress": "added", "completed": "in_progress", "failed": "in_progress"}
# The stages of hosted items, each with the one before it. An event is named after its stage.
STAGES: Final[dict[str, dict[str, str]]] = {
    "web_search_call": _SEARCHING,
    "file_search_call": _SEARCHING,
    "code_interpreter_call": {
        "in_progress": "added",
        "interpreting": "in_progress",
        "completed": "interpreting",
    },
    "image_generation_call": {
        "in_progress": "added",
        "generating": "in_progress",
        "partial_image": "generating",
        "completed": "generating",
    },
    "mcp_call": _CALLING,
    "mcp_list_tools": _CALLING,
}
# The text of a hosted item, which is streamed while it is in progress.
HOSTED_TEXTS: Final = {"code_interpreter_call": "code", "mcp_call": "arguments"}
# Items that the model itself writes. Hosted and foreign ones are incomplete on their own account.
WRITTEN: Final = frozenset(
    {
        "message",
        "reasoning",
        "function_call",
        "custom_tool_call",
        "shell_call",
        "local_shell_call",
        "apply_patch_call",
        "tool_search_call",
        "computer_call",
    }
)
ENDS_AS: Final[dict[str, frozenset[str]]] = {
    "completed": frozenset({"completed"}),
    # There is no event for a cancelled response but this one.
    "incomplete": frozenset({"incomplete", "cancelled"}),
    "failed": frozenset({"failed"}),
}
PROSE: Final = frozenset({"message", "reasoning"})
CALLS: Final = frozenset({"function_call", "custom_tool_call"})
TEXTS: Final = ("arguments", "input", "code")
LISTS: Final[dict[str, tuple[str, ...]]] = {
    "message": ("content",),
    "reasoning": ("summary", "content"),
}


class Voice(NamedTuple):
    """Where an event speaks: list and kind of part, field of the part's text, and its index."""

    list: str
    kind: str
    text: str
    place: str


INPUT: Final = Voice("input", "input", "input", "")
_TEXT: Final = Voice("content", "output_text", "text", "content_index")
_SUMMARY: Final = Voice("summary", "summary_text", "text", "summary_index")
# By what the names of their events begin with.
_VOICES: Final = {
    "content_part": _TEXT,
    "output_text": _TEXT,
    "refusal": Voice("content", "refusal", "refusal", "content_index"),
    "reasoning_text": Voice("content", "reasoning_text", "text", "content_index"),
    "reasoning_summary_part": _SUMMARY,
    "reasoning_summary_text": _SUMMARY,
    "function_call_arguments": Voice("arguments", "arguments", "arguments", ""),
    "custom_tool_call_input": INPUT,
    "code_interpreter_call_code": Voice("code", "code_interpreter_call", "code", ""),
    "mcp_call_arguments": Voice("arguments", "mcp_call", "arguments", ""),
}
VOICES: Final[dict[type[Any], Voice]] = {
    cls: _VOICES[family]
    for name, cls in EVENT_CLASSES.items()
    if (family := name.removeprefix("response.").partition(".")[0]) in _VOICES
}
HOMES: Final = {
    "output_text": ("message", "content"),
    "refusal": ("message", "content"),
    "reasoning_text": ("reasoning", "content"),
    "summary_text": ("reasoning", "summary"),
}
PART_STEPS: Final[dict[tuple[str, str], str]] = {
    ("open", "grow"): "open",
    ("open", "note"): "open",
    ("open", "say"): "said",
    ("said", "close"): "closed",
}
