"""A request of the chat API as a request of ours.

`read_chat` takes a decoded body. Every field that means the same gets its name here; what only
the chat API has is resolved (old `functions`, `n`, `modalities`); fields that neither API knows
are kept in `extra`, and are passed on or reported as on the Responses door. So are fields of the
Responses API: no state of earlier turns is reached through this door. A fault names the field
as the caller wrote it.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from antiphon.protocol.errors import InvalidRequest
from antiphon.protocol.request import CreateResponse, read_request
from antiphon.protocol.tool_list import ToolList
from antiphon.protocol.tools import Tool
from antiphon.wires.caller_names import CallerNames
from antiphon.wires.chat.ask_messages import ItemReader
from antiphon.wires.chat.flat import flat_choice, flat_tool

__all__ = ["ChatAsk", "read_chat"]

Json = dict[str, Any]  # a JSON object: Any is what JSON holds

# Fields that have the same name and meaning in both APIs.
_SAME: Final = (
    "model",
    "parallel_tool_calls",
    "metadata",
    "temperature",
    "top_p",
    "presence_penalty",
    "frequency_penalty",
    "top_logprobs",
    "service_tier",
    "stream",
    "safety_identifier",
    "prompt_cache_key",
    "user",
)
_READ: Final = frozenset(_SAME) | {
    "messages",
    "tools",
    "functions",
    "tool_choice",
    "function_call",
    "max_tokens",
    "max_completion_tokens",
    "response_format",
    "reasoning_effort",
    "reasoning",
    "verbosity",
    "logprobs",
    "store",
    "stream_options",
    "n",
    "modalities",
    "web_search_options",
}
# Tools whose calls the caller would have to run, and that no chat message can hold.
_NOT_IN_CHAT: Final = frozenset(
    {"shell", "local_shell", "apply_patch", "tool_search", "namespace", "computer_use_preview"}
)
_LOGPROBS: Final = "message.output_text.logprobs"
_SEALED: Final = "reasoning.encrypted_content"
# What a field of ours is called in the body of the caller.
_THERE: Final = (
    ("text.format.type", "response_format.type"),
    ("text.format.", "response_format.json_schema."),
    ("text.format", "response_format"),
    ("text.verbosity", "verbosity"),
)
_OLD: Final = (("tools[", "functions["), ("tool_choice", "function_call"))


class ChatAsk(msgspec.Struct, frozen=True, kw_only=True):
    """What a chat request asks for: the turn, and how its answer is written."""

    request: CreateResponse
    names: CallerNames
    """For faults of the request that are found later."""
    has_usage: bool = False
    """Whether a stream ends with a chunk that holds the usage."""
    is_old: bool = False
    """Whether the caller knows functions only, not tools."""


def read_chat(body: object, size: int = 0, *, store: bool = False, seals: bool = False) -> ChatAsk:
    """Return what a body asks for. Raise InvalidRequest with `param` if it cannot be used.

    `store` is the value for requests without one. `seals`: reasoning can be sealed for the
    caller to send back.
    """
    if not isinstance(body, dict):
        raise InvalidRequest("the body must be a JSON object", code="invalid_type")
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise InvalidRequest(
            "messages must be a list with at least one message",
            code="missing_required_parameter" if messages is None else "invalid_value",
            param="messages",
        )
    _refuse_impossible(body)
    reader = ItemReader()
    reader.read(messages)
    given = {name: body[name] for name in _SAME if body.get(name) is not None}
    given["input"] = reader.items
    given["store"] = store if body.get("store") is None else body["store"]
    given |= _read_tools(body) | _read_output(body)
    has_logprobs = _flag(body, "logprobs", "logprobs")
    given["include"] = [_LOGPROBS] * has_logprobs + [_SEALED] * seals
    limit = "max_tokens" if body.get("max_completion_tokens") is None else "max_completion_tokens"
    if body.get(limit) is not None:
        given["max_output_tokens"] = body[limit]
    is_old = bool(body.get("functions")) and not body.get("tools")
    options = _options(body)
    has_usage = _flag(options, "include_usage", "stream_options.include_usage")
    options.pop("include_usage", None)
    if options:
        given["stream_options"] = options
    effort = "reasoning.effort" if body.get("reasoning_effort") is None else "reasoning_effort"
    words = (("max_output_tokens", limit), ("reasoning.effort", effort), *_OLD[: 2 * is_old])
    names = CallerNames([f"messages[{n}]" for n in reader.origins], (*words, *_THERE))
    try:
        request = read_request(given, size)
    except InvalidRequest as error:
        raise names.rename(error) from None
    request.extra |= {key: value for key, value in body.items() if key not in _READ}
    return ChatAsk(request=request, names=names, has_usage=has_usage, is_old=is_old)


def _refuse_impossible(body: Json) -> None:
    """Raise InvalidRequest for what no answer of ours could hold."""
    count = body.get("n")
    if count is not None and count != 1:
        raise InvalidRequest(
            "n must be 1: one answer is made at a time; send the request again for another",
            code="unsupported_value",
            param="n",
        )
    kinds = body.get("modalities")
    if kinds is not None and kinds != ["text"]:
        raise InvalidRequest(
            'modalities must be ["text"]: answers hold text and calls',
            code="unsupported_value",
            param="modalities",
        )


def _flag(fields: Json, name: str, where: str) -> bool:
    """Return a field that is true, false or not given."""
    value = fields.get(name)
    if not isinstance(value, bool | None):
        raise InvalidRequest(f"{where} must be true or false", code="invalid_type", param=where)
    return bool(value)


def _options(body: Json) -> Json:
    options = body.get("stream_options")
    if options is not None and not isinstance(options, dict):
        raise InvalidRequest(
            "stream_options must be an object", code="invalid_type", param="stream_options"
        )
    return dict(options or {})


# The form of the answer.


def _read_output(body: Json) -> Json:
    given: Json = {}
    text: Json = {}
    form = body.get("response_format")
    if form is not None:
        text["format"] = _flat_format(form)
    if body.get("verbosity") is not None:
        text["verbosity"] = body["verbosity"]
    if text:
        given["text"] = text
    reasoning = body.get("reasoning")
    if reasoning is not None and not isinstance(reasoning, dict):
        raise InvalidRequest("reasoning must be an object", code="invalid_type", param="reasoning")
    if body.get("reasoning_effort") is not None:
        reasoning = {**(reasoning or {}), "effort": body["reasoning_effort"]}
    if reasoning:
        given["reasoning"] = reasoning
    return given


def _flat_format(form: object) -> object:
    """Return response_format as text.format: a schema stands beside its type there."""
    if not isinstance(form, dict) or form.get("type") != "json_schema":
        return form
    inner = form.get("json_schema")
    if not isinstance(inner, dict):
        where = "response_format.json_schema"
        raise InvalidRequest(f"{where} is missing", code="missing_required_parameter", param=where)
    flat = {**form, **inner, "type": "json_schema"}
    del flat["json_schema"]
    return flat


# Tools.


def _read_tools(body: Json) -> Json:
    given: Json = {}
    tools, functions, search = (
        body.get(name) for name in ("tools", "functions", "web_search_options")
    )
    for name, value in (("tools", tools), ("functions", functions)):
        if value is not None and not isinstance(value, list):
            raise InvalidRequest(f"{name} must be a list", code="invalid_type", param=name)
    if tools:
        given["tools"] = _flat_tools(tools)
    elif functions:
        given["tools"] = [_old_tool(entry, n) for n, entry in enumerate(functions)]
        given["parallel_tool_calls"] = False  # there is room for one call only
    if search is not None:
        given["tools"] = [*given.get("tools", ()), _search_tool(search)]
    choice = body.get("tool_choice")
    if choice is None:
        choice = _old_choice(body.get("function_call"))
    if choice is not None:
        given["tool_choice"] = flat_choice(choice)
    return given


def _flat_tools(tools: list[Any]) -> list[Tool]:
    """Return the tools with their fields beside their type. A kept list is flattened once."""
    if not isinstance(tools, ToolList):
        return [_flat_tool(tool, f"tools[{n}]") for n, tool in enumerate(tools)]

    def flatten() -> ToolList:
        flat = [_flat_tool(tool, f"tools[{n}]") for n, tool in enumerate(tools)]
        return ToolList(flat, tools.nodes)

    return tools.derived.get(_flat_tools, flatten)


def _flat_tool(tool: Any, where: str) -> Tool:  # Any: JSON of a caller
    kind = tool.get("type") if isinstance(tool, dict) else None
    if isinstance(kind, str) and kind in _NOT_IN_CHAT:
        raise InvalidRequest(
            f"{where}: a chat message cannot hold a call of a {kind} tool; use POST /v1/responses",
            code="unsupported_value",
            param=f"{where}.type",
        )
    return flat_tool(tool) if isinstance(tool, dict) else tool  # checked with the request


def _old_tool(function: object, number: int) -> Tool:
    if not isinstance(function, dict):
        where = f"functions[{number}]"
        raise InvalidRequest(f"{where} must be an object", code="invalid_type", param=where)
    return {"strict": False, **function, "type": "function"}


def _search_tool(options: object) -> Tool:
    if not isinstance(options, dict):
        where = "web_search_options"
        raise InvalidRequest(f"{where} must be an object", code="invalid_type", param=where)
    fields = options
    place = fields.get("user_location")
    if isinstance(place, dict) and isinstance(place.get("approximate"), dict):
        fields = {**fields, "user_location": {"type": "approximate", **place["approximate"]}}
    return {**fields, "type": "web_search"}


def _old_choice(choice: Any) -> Any:  # Any: JSON of a caller
    return {"type": "function", **choice} if isinstance(choice, dict) else choice
