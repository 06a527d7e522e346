"""Items and parts: the nouns of a conversation, as JSON objects.

An item is a plain dict exactly as it stands on the wire, so unknown fields, parts and whole
item types survive a round trip by doing nothing. What we do know is written down here as
shapes; `check_item` holds an item against its shape and changes nothing. An item of a type
that has no shape here passes unchecked.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import repeat
from typing import Annotated, Any, Final, Literal

import msgspec

from antiphon.protocol.errors import InvalidRequest, invalid

__all__ = [
    "ORIGINAL",
    "Item",
    "Part",
    "as_given",
    "check_item",
    "check_items",
    "item_prefix",
    "item_type",
    "item_types",
    "last_user_text",
    "shape_error",
    "text_length",
    "text_of",
    "with_id",
]

# JSON objects of open shape: Any is what a peer may put there.
Item = dict[str, Any]
Part = dict[str, Any]

ORIGINAL: Final = "antiphon.original"
"""Where an item that a model is shown in another form has the one that its caller sent."""

_MAX_TEXT: Final = 10 * 1024 * 1024
_MAX_IMAGE: Final = 20 * 1024 * 1024
_MAX_FILE: Final = 32 * 1024 * 1024
_ADDRESSES: Final = ("image_url", "file_url", "video_url")
_BEGINNING: Final = 64  # characters of an address, which may be a long data URL
# Where an item or a part that a model has produced may have a long text.
_LONG_FIELDS: Final = frozenset(
    {"text", "refusal", "arguments", "input", "result", "code", "output", "logs"}
)
_LONG_LISTS: Final = frozenset({"content", "summary", "outputs", "results"})

_Text = Annotated[str, msgspec.Meta(max_length=_MAX_TEXT)]
_ImageUrl = Annotated[str, msgspec.Meta(max_length=_MAX_IMAGE)]
_FileData = Annotated[str, msgspec.Meta(max_length=_MAX_FILE)]
_CallId = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
_Name = Annotated[str, msgspec.Meta(min_length=1)]


class _TextPart(msgspec.Struct):
    text: _Text


class _Refusal(msgspec.Struct):
    refusal: _Text


class _Image(msgspec.Struct):
    image_url: _ImageUrl | None = None
    file_id: str | None = None
    detail: Literal["low", "high", "auto", "original"] | None = None


class _ChatImageUrl(msgspec.Struct):
    url: _ImageUrl
    detail: Literal["low", "high", "auto", "original"] | None = None


class _ChatImage(msgspec.Struct):
    """An image as chat completions have it; some clients put the address there alone."""

    image_url: _ChatImageUrl | _ImageUrl


class _File(msgspec.Struct):
    filename: str | None = None
    file_data: _FileData | None = None
    file_url: str | None = None
    file_id: str | None = None


class _Video(msgspec.Struct):
    video_url: str


_PART_SHAPES: Final[dict[str, type[msgspec.Struct]]] = {
    "input_text": _TextPart,
    "output_text": _TextPart,
    "text": _TextPart,
    "summary_text": _TextPart,
    "reasoning_text": _TextPart,
    "refusal": _Refusal,
    "input_image": _Image,
    "image_url": _ChatImage,
    "input_file": _File,
    "input_video": _Video,
}

_Content = _Text | list[Part]


class _WithStatus(msgspec.Struct, kw_only=True):
    status: Literal["in_progress", "completed", "incomplete", "failed", "cancelled"] | None = None


class _Message(_WithStatus):
    role: Literal["user", "assistant", "system", "developer"]
    content: _Content
    phase: Literal["commentary", "final_answer"] | None = None


class _FunctionCall(_WithStatus):
    call_id: _CallId
    name: _Name
    arguments: _Text
    namespace: _Name | None = None


class _CallOutput(_WithStatus):
    call_id: _CallId
    output: _Content


class _CustomCall(_WithStatus):
    call_id: _CallId
    name: _Name
    input: _Text
    namespace: _Name | None = None


class _ShellCall(_WithStatus):
    call_id: _CallId
    action: dict[str, Any]


class _ShellOutput(_WithStatus):
    call_id: _CallId
    output: _Text | list[dict[str, Any]]


class _LocalShellOutput(_WithStatus):
    output: _Text
    # The id of its call may stand in `id` instead.
    call_id: _CallId | None = None


class _PatchCall(_WithStatus):
    call_id: _CallId
    operation: dict[str, Any]


class _PatchOutput(_WithStatus):
    call_id: _CallId
    output: _Text | None = None


class _SearchCall(_WithStatus):
    call_id: _CallId | None = None


class _CarriesTools(_WithStatus):
    tools: list[dict[str, Any]]
    call_id: _CallId | None = None


class _Reasoning(msgspec.Struct):
    summary: list[Part] | None = None
    content: list[Part] | None = None
    encrypted_content: str | None = None


class _Compaction(msgspec.Struct):
    encrypted_content: _Text


class _Reference(msgspec.Struct):
    id: _Name


_ITEM_SHAPES: Final[dict[str, type[msgspec.Struct]]] = {
    "message": _Message,
    "function_call": _FunctionCall,
    "function_call_output": _CallOutput,
    "custom_tool_call": _CustomCall,
    "custom_tool_call_output": _CallOutput,
    "shell_call": _ShellCall,
    "shell_call_output": _ShellOutput,
    "local_shell_call": _ShellCall,
    "local_shell_call_output": _LocalShellOutput,
    "apply_patch_call": _PatchCall,
    "apply_patch_call_output": _PatchOutput,
    "tool_search_call": _SearchCall,
    "tool_search_output": _CarriesTools,
    "additional_tools": _CarriesTools,
    "reasoning": _Reasoning,
    "compaction": _Compaction,
    "item_reference": _Reference,
}

# What an agent's history consists of, checked in one step: whatever is or has anything else is
# looked at one by one.
_AT_ONCE: Final = 32
# So many types are read in one call of C code, which takes some tens of microseconds.
_TOGETHER: Final = 1024
_TEXT: Final = frozenset({str})


class _QuickText(msgspec.Struct, forbid_unknown_fields=True, tag_field="type"):
    text: _Text
    annotations: Any = None  # Any: what a part has there is not looked at
    logprobs: Any = None


class _QuickInputText(_QuickText, tag="input_text"):
    pass


class _QuickOutputText(_QuickText, tag="output_text"):
    pass


class _QuickSummary(_QuickText, tag="summary_text"):
    pass


class _QuickReasoning(_QuickText, tag="reasoning_text"):
    pass


_QuickParts = list[_QuickInputText | _QuickOutputText | _QuickSummary | _QuickReasoning]


class _QuickMessage(_WithStatus, tag_field="type", tag="message"):
    role: Literal["user", "assistant", "system", "developer"]
    content: _Text | _QuickParts
    phase: Literal["commentary", "final_answer"] | None = None
    id: str | None = None


class _QuickCall(_FunctionCall, tag_field="type", tag="function_call"):
    id: str | None = None


class _QuickOutput(_WithStatus, tag_field="type", tag="function_call_output"):
    call_id: _CallId
    output: _Text | _QuickParts
    id: str | None = None


class _QuickThought(msgspec.Struct, tag_field="type", tag="reasoning"):
    summary: _QuickParts | None = None
    content: _QuickParts | None = None
    encrypted_content: str | None = None
    id: str | None = None


_QUICK_ITEMS: Final = list[_QuickMessage | _QuickCall | _QuickOutput | _QuickThought]

_PARTS_OF: Final = {
    "message": ("content",),
    "function_call_output": ("output",),
    "custom_tool_call_output": ("output",),
    "reasoning": ("summary", "content"),
}

# msgspec's words for a value of the right type that is out of range or not in a list.
_IS_VALUE: Final = re.compile(r"enum|length|[<>]=? ")

_PREFIXES: Final = {
    "message": "msg",
    "function_call": "fc",
    "function_call_output": "fco",
    "custom_tool_call": "ctc",
    "custom_tool_call_output": "ctco",
    "shell_call": "sh",
    "shell_call_output": "sho",
    "local_shell_call": "lsh",
    "local_shell_call_output": "lsho",
    "apply_patch_call": "apc",
    "apply_patch_call_output": "apco",
    "tool_search_call": "tsc",
    "tool_search_output": "tso",
    "additional_tools": "at",
    "reasoning": "rs",
    "compaction": "cmp",
    "computer_call": "cu",
    "computer_call_output": "cuo",
    "image_generation_call": "ig",
    "web_search_call": "ws",
    "file_search_call": "fs",
    "code_interpreter_call": "ci",
    "mcp_call": "mcp",
    "mcp_list_tools": "mcpl",
    "mcp_approval_request": "mcpr",
}


def item_type(item: Item) -> str:
    """Return the item's type. A message may leave its type out; so may a reference."""
    kind = item.get("type")
    if isinstance(kind, str):
        return kind
    return "message" if "role" in item else "item_reference"


def item_types(items: Sequence[Item]) -> list[str]:
    """Return the type of each item. Thousands of items take few steps of Python."""
    if len(items) > _TOGETHER:
        starts = range(0, len(items), _TOGETHER)
        return [kind for start in starts for kind in item_types(items[start : start + _TOGETHER])]
    given: list[Any] = [*map(dict.get, items, repeat("type"))]  # Any: one may be no text
    return given if _TEXT.issuperset(map(type, given)) else [*map(item_type, items)]


def item_prefix(kind: str) -> str:
    """Return what the ids of such items begin with."""
    return _PREFIXES.get(kind, "item")


def with_id(item: Item, mint: Callable[[str], str]) -> Item:
    """Return the item as it will be remembered: with a type and an id, never the same dict."""
    kind, item_id = item.get("type"), item.get("id")
    if kind and item_id and kind != "local_shell_call_output":
        return item.copy()
    kind = item_type(item)
    if kind == "local_shell_call_output" and item.get("id") and not item.get("call_id"):
        # Its id is that of the call, and no two items may have one id.
        item = {**item, "call_id": item["id"], "id": None}
    item_id = item.get("id") or mint(item_prefix(kind))
    return {**item, "type": kind, "id": item_id}


def as_given(item: Item) -> Item:
    """Return the item as its caller sent it, if it was changed for the model."""
    found = item.get(ORIGINAL)
    return found if isinstance(found, dict) else item


def check_items(items: Sequence[object], param: str, begin: int = 0) -> None:
    """Raise InvalidRequest for the first item that is of a type we know but not of its shape.

    Most are of few shapes, and then some of them are checked at once. Those before `begin` were
    checked before.
    """
    for start in range(begin, len(items), _AT_ONCE):
        some = items[start : start + _AT_ONCE]
        try:
            msgspec.convert(some, _QUICK_ITEMS)
        except msgspec.ValidationError:
            for index, item in enumerate(some, start):
                check_item(item, f"{param}[{index}]")


def check_item(item: object, param: str) -> None:
    """Raise InvalidRequest if the item is of a type we know but not of its shape."""
    if not isinstance(item, dict):
        raise invalid(param, "must be an object", "invalid_type")
    for field in ("type", "id"):
        if not isinstance(item.get(field), str | None):
            raise invalid(f"{param}.{field}", "must be a string", "invalid_type")
    kind = item_type(item)
    shape = _ITEM_SHAPES.get(kind)
    if shape is None:
        return
    if kind == "message" and item.get("role") == "tool":
        raise InvalidRequest(
            f"{param}.role: the result of a call is no message here; send an item of type "
            "function_call_output with call_id and output",
            code="invalid_value",
            param=f"{param}.role",
        )
    _check(item, shape, param)
    for field in _PARTS_OF.get(kind, ()):
        parts = item.get(field)
        if isinstance(parts, list):
            for index, part in enumerate(parts):
                _check_part(part, f"{param}.{field}[{index}]")


def _check_part(part: Part, param: str) -> None:
    kind = part.get("type")
    if not isinstance(kind, str):
        why = "is missing: say what kind of part this is"
        raise invalid(f"{param}.type", why, "missing_required_parameter")
    shape = _PART_SHAPES.get(kind)
    if shape is not None:
        _check(part, shape, param)
        _refuse_local_files(part, param)


def _refuse_local_files(part: Part, param: str) -> None:
    """Refuse addresses of files on a machine: a server that reads them would give away its own."""
    for name in _ADDRESSES:
        given = part.get(name)
        url = given.get("url") if isinstance(given, dict) else given
        if isinstance(url, str) and url[:_BEGINNING].strip().lower().startswith("file:"):
            raise invalid(f"{param}.{name}", "must not be the address of a local file")


def _check(value: dict[str, Any], shape: type[msgspec.Struct], param: str) -> None:
    try:
        msgspec.convert(value, shape)
    except msgspec.ValidationError as error:
        raise shape_error(error, param) from None


def shape_error(error: msgspec.ValidationError, param: str) -> InvalidRequest:
    """Turn msgspec's words into ours, with the path of the offending field as `param`."""
    text, _, path = str(error).replace("`key` in ", "").partition(" - at `$")
    path = path.rstrip("`").replace("[...]", "")
    where = f"{param}{path}" if param else path.lstrip(".")
    if text.startswith("Object missing required field `"):
        where = f"{where}.{text.split('`')[1]}".lstrip(".")
        return invalid(where, "is missing", "missing_required_parameter")
    return InvalidRequest(
        f"{where or 'the body'}: {text[:1].lower()}{text[1:]}".replace("`", ""),
        code="invalid_value" if _IS_VALUE.search(text) else "invalid_type",
        param=where or None,
    )


def last_user_text(items: Sequence[Item]) -> str:
    """Return the text that the user wrote last; nothing if there is none."""
    users = (item for item in reversed(items) if item.get("role") == "user")
    return text_of(next(users, {}).get("content"))


def text_of(content: object) -> str:
    """Return the text of a content field: the string itself, or its text parts joined.

    A part of a kind we do not know may hold anything under these names, and what a foreign
    server put among the parts may be no part at all.
    """
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    parts = [part for part in content if isinstance(part, dict)]
    texts = [part.get("text") or part.get("refusal") for part in parts]
    return "".join(text for text in texts if isinstance(text, str))


def text_length(item: Item) -> int:
    """Return how many characters the long texts of an item have, about."""
    length = _own_length(item)
    for name in _LONG_LISTS.intersection(item):
        if isinstance(parts := item[name], list):
            length += sum([_own_length(part) for part in parts if isinstance(part, dict)])
    return length


def _own_length(holder: dict[str, Any]) -> int:
    length = 0
    for name in _LONG_FIELDS.intersection(holder):
        if isinstance(value := holder[name], str):
            length += len(value)
    return length
