"""The request to create a response, checked.

`read_request` takes a decoded JSON body and returns a `CreateResponse`, or raises
InvalidRequest with the offending `param`. Fields it does not know are kept in `extra`: whether
a backend can honour them is not decided here. Explicit nulls mean "not given", as every
client in use takes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal

import msgspec

from antiphon.protocol.errors import ContextTooLarge, InvalidRequest, invalid
from antiphon.protocol.items import Item, check_items, item_type, shape_error
from antiphon.protocol.kept_inputs import InputList
from antiphon.protocol.pieces import encode_long
from antiphon.protocol.schema import check_schema
from antiphon.protocol.thread import Thread
from antiphon.protocol.tool_list import ToolList
from antiphon.protocol.tools import Tool, check_shape, read_choice

__all__ = [
    "MAX_TOOLS",
    "PARAMETERS",
    "ContextManagement",
    "CreateResponse",
    "ReasoningRequest",
    "StreamOptions",
    "TextRequest",
    "read_request",
]

MAX_TOOLS: Final = 128
"""How many tools a request may have. Items of type `additional_tools` may carry more."""
_MAX_INPUT: Final = 10 * 1024 * 1024
# Bytes of what a response repeats of its request: several events carry all of it.
_MAX_ECHO: Final = 4 * 1024 * 1024
_MAX_MANAGEMENT: Final = 16
_MAX_NAMESPACE: Final = 1024

Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
_Metadata = Annotated[
    dict[Annotated[str, msgspec.Meta(max_length=64)], Annotated[str, msgspec.Meta(max_length=512)]],
    msgspec.Meta(max_length=16),
]
_Key = Annotated[str, msgspec.Meta(max_length=64)]


class ReasoningRequest(msgspec.Struct, frozen=True):
    """What is asked of the model's reasoning."""

    effort: Effort | None = None
    summary: Literal["auto", "concise", "detailed"] | None = None
    generate_summary: Literal["auto", "concise", "detailed"] | None = None


class TextRequest(msgspec.Struct, frozen=True):
    """What the text must look like. `format` keeps its dict: a schema is open."""

    format: dict[str, Any] | None = None
    verbosity: Literal["low", "medium", "high"] | None = None


class StreamOptions(msgspec.Struct, frozen=True):
    """What is asked of the stream itself."""

    include_obfuscation: bool | None = None


class ContextManagement(msgspec.Struct, frozen=True):
    """What is to be done about a long context: `compaction`, from so many tokens on."""

    type: str
    compact_threshold: Annotated[int, msgspec.Meta(ge=1)] | None = None


class CreateResponse(msgspec.Struct, kw_only=True):
    """The body of POST /v1/responses. None means that the caller said nothing."""

    model: str | None = None
    input: Annotated[str, msgspec.Meta(max_length=_MAX_INPUT)] | list[Item] | None = None
    instructions: str | None = None
    previous_response_id: str | None = None
    conversation: str | dict[str, Any] | None = None
    prompt: dict[str, Any] | None = None
    include: list[str] | None = None
    tools: Annotated[list[Tool], msgspec.Meta(max_length=MAX_TOOLS)] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    max_tool_calls: Annotated[int, msgspec.Meta(ge=1)] | None = None
    metadata: _Metadata | None = None
    text: TextRequest | None = None
    reasoning: ReasoningRequest | None = None
    temperature: Annotated[float, msgspec.Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None
    presence_penalty: Annotated[float, msgspec.Meta(ge=-2, le=2)] | None = None
    frequency_penalty: Annotated[float, msgspec.Meta(ge=-2, le=2)] | None = None
    top_logprobs: Annotated[int, msgspec.Meta(ge=0, le=20)] | None = None
    max_output_tokens: Annotated[int, msgspec.Meta(ge=1, lt=2**31)] | None = None
    truncation: Literal["auto", "disabled"] | None = None
    context_management: (
        Annotated[list[ContextManagement], msgspec.Meta(max_length=_MAX_MANAGEMENT)] | None
    ) = None
    service_tier: str | None = None
    store: bool | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    background: bool | None = None
    generate: bool | None = None
    """False: remember the turn, and let no model run. Clients announce a long context so."""
    safety_identifier: _Key | None = None
    prompt_cache_key: _Key | None = None
    user: str | None = None
    extra: dict[str, Any] = msgspec.field(default_factory=dict, name="$extra")
    """Fields we do not know, those of inner objects under their path: `reasoning.mode`."""

    @property
    def items(self) -> Sequence[Item]:
        """The input as items; a string is a user message. Those of a long input are a thread."""
        given = self.input
        if not given:
            return []
        if isinstance(given, InputList):
            return given.thread
        if isinstance(given, list):
            return given
        content = [{"type": "input_text", "text": given}]
        return [{"type": "message", "role": "user", "content": content}]

    @property
    def only_compacts(self) -> bool:
        """Whether the context is to be compacted and nothing else to be said."""
        given = self.input
        if not given or isinstance(given, str):
            return False
        return item_type(given[-1]) == "compaction_trigger"

    @property
    def compact_threshold(self) -> int | None:
        """From how many tokens on the context is to be compacted, if the caller said so."""
        entries = self.context_management
        if not entries:
            return None
        sizes = (entry.compact_threshold for entry in entries if entry.type == "compaction")
        return next((size for size in sizes if size is not None), None)


_FIELDS: Final = frozenset(CreateResponse.__struct_encode_fields__) - {"$extra"}
_NESTED: Final[dict[str, type[msgspec.Struct]]] = {
    "reasoning": ReasoningRequest,
    "text": TextRequest,
    "stream_options": StreamOptions,
}
_FORMAT: Final = frozenset({"type", "name", "description", "schema", "strict"})
PARAMETERS: Final = (
    _FIELDS
    | {f"{name}.{field}" for name, shape in _NESTED.items() for field in shape.__struct_fields__}
    | {f"text.format.{field}" for field in _FORMAT}
)
"""The names of all parameters that are read, those of inner objects with their path."""


def read_request(body: object, size: int = 0) -> CreateResponse:
    """Check a body and return the request. Raise InvalidRequest with `param` otherwise.

    `size` is how many bytes the body had, if that is known: a short one repeats little.
    """
    if not isinstance(body, dict):
        raise InvalidRequest("the body must be a JSON object", code="invalid_type")
    unknown = {} if _FIELDS.issuperset(body) else _unknown(body)
    known = {key: body[key] for key in body if key not in unknown} if unknown else body
    if before := _read_before(body):
        known = {**known, **before}
    try:
        request = msgspec.convert(known, CreateResponse)
    except msgspec.ValidationError as error:
        raise shape_error(error, "") from None
    request.extra = unknown
    if not _NESTED.keys().isdisjoint(body):
        request.extra |= _unknown_inside(body)
    _take_input(request, body.get("input"))
    _take_tools(request, body.get("tools"))
    _check_format(request.text)
    read_choice(request.tool_choice)
    if size > _MAX_ECHO:
        _check_echo(request)
    return request


def _read_before(body: dict[str, Any]) -> dict[str, None]:
    """Return null for the fields of a body whose shape is known."""
    tools = body.get("tools")
    found = ["tools"] if isinstance(tools, ToolList) and tools.is_checked else []
    return dict.fromkeys([*found, "input"] if isinstance(body.get("input"), InputList) else found)


def _take_input(request: CreateResponse, given: object) -> None:
    """Check the items. An `InputList` stays one: its items are objects."""
    if isinstance(given, InputList):
        request.input = given
    if isinstance(request.input, list):
        _check_items(request.items)


def _take_tools(request: CreateResponse, given: object) -> None:
    """Check the tools, unless they were checked before. A `ToolList` stays one."""
    for index, tool in enumerate(request.tools or ()):
        _check_tool(tool, f"tools[{index}]")
    if isinstance(given, ToolList):
        given.is_checked = True
        request.tools = given


def _check_echo(request: CreateResponse) -> None:
    """Raise ContextTooLarge if a response would have to repeat too much of its request."""
    for name in ("instructions", "tools", "tool_choice", "text", "metadata"):
        size = len(encode_long(getattr(request, name)))
        if size > _MAX_ECHO:
            raise ContextTooLarge(
                f"{name} has {size} bytes; at most {_MAX_ECHO} are taken. "
                "Put long texts into the input.",
                param=name,
            )


def _unknown(body: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in body.items() if key not in _FIELDS}


def _unknown_inside(body: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of inner objects that we do not know, by their path."""
    found = {
        f"{name}.{key}": value
        for name, shape in _NESTED.items()
        for key, value in (body.get(name) or {}).items()
        if key not in shape.__struct_fields__
    }
    form = (body.get("text") or {}).get("format") or {}
    return found | {f"text.format.{key}": form[key] for key in form if key not in _FORMAT}


def _check_items(items: Sequence[Item]) -> None:
    """Check each item; refuse to compact what has not been said yet."""
    begin = (items.recall(_check_items) or 0) if isinstance(items, Thread) else 0
    check_items(items, "input", begin)
    for index, item in enumerate(items[begin:-1], begin):
        if item.get("type") == "compaction_trigger":
            raise InvalidRequest(
                f"input[{index}]: a compaction_trigger must be the last item",
                code="invalid_value",
                param=f"input[{index}]",
            )
    if isinstance(items, Thread):
        items.learn(_check_items, items.lasting)


def _check_tool(tool: Tool, param: str) -> None:
    check_shape(tool, param)
    if tool["type"] in ("function", "tool_search"):
        check_schema(tool.get("parameters"), f"{param}.parameters")
    if tool["type"] == "namespace":
        _check_namespace(tool, param)


def _check_namespace(tool: Tool, param: str) -> None:
    inner = tool.get("tools") or []
    if len(inner) > _MAX_NAMESPACE:
        why = f"has {len(inner)} tools; at most {_MAX_NAMESPACE} are taken"
        raise invalid(f"{param}.tools", why)
    for index, entry in enumerate(inner):
        where = f"{param}.tools[{index}]"
        if not isinstance(entry, dict):
            raise invalid(where, "must be an object", "invalid_type")
        if entry.get("type") == "namespace":
            raise InvalidRequest(
                f"{where}: a namespace holds tools, not namespaces",
                code="invalid_value",
                param=where,
            )
        _check_tool(entry, where)


def _check_format(text: TextRequest | None) -> None:
    form = text.format if text else None
    if not form:
        return
    kind = form.get("type")
    if kind not in ("text", "json_object", "json_schema"):
        raise invalid("text.format.type", "must be text, json_object or json_schema")
    if kind != "json_schema":
        return
    for field, cls in (("name", str), ("schema", dict)):
        if not isinstance(form.get(field), cls):
            is_nested = isinstance(form.get("json_schema"), dict)
            hint = ": it stands beside type here, not under json_schema" if is_nested else ""
            code = "invalid_type" if field in form else "missing_required_parameter"
            raise invalid(f"text.format.{field}", f"is missing or of the wrong type{hint}", code)
    check_schema(form["schema"], "text.format.schema")
