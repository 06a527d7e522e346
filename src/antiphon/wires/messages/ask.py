"""The body of POST /v1/messages as a request of ours.

`read_ask` takes a decoded JSON body. What the Messages API knows and we have no word for stays in
`extra` under its own name: a backend that knows it sends it, any other reports it as degraded. It
is never a reason to refuse a request, since clients send such fields with every one. What is
malformed raises InvalidRequest.

The API has no `store` of its own; ours is read from the body all the same.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from antiphon.protocol.errors import InvalidRequest, NotFound
from antiphon.protocol.request import CreateResponse, read_request
from antiphon.wires.caller_names import CallerNames
from antiphon.wires.messages.errors import THREAD_LOST
from antiphon.wires.messages.history import read_messages, read_system, system_blocks
from antiphon.wires.messages.tools import read_choice, read_tools, split_tools

__all__ = ["Thinking", "names_of", "read_ask", "read_thinking"]

_SEALED: Final = "reasoning.encrypted_content"
# The fields that are read; what they are called in `extra`, if they go there.
_READ: Final = frozenset(
    {
        *("model", "messages", "system", "max_tokens", "stream", "tools", "tool_choice"),
        *("thinking", "output_config", "output_format", "temperature", "top_p", "metadata"),
        *("service_tier", "store"),
    }
)
_RENAMED: Final = {"stop_sequences": "stop"}
# No set: a caller may send a list, which has no hash.
_EFFORTS: Final = ("low", "medium", "high", "xhigh", "max")
# The smallest budget of tokens that means a level of effort.
_BUDGETS: Final = ((32768, "xhigh"), (16384, "high"), (10000, "medium"), (2048, "low"))
_THINKING: Final = ("enabled", "adaptive", "disabled")
_TIERS: Final = {"auto": "auto", "standard_only": "default"}
# What a field of ours is called in the body of the caller.
_THERE: Final = (
    ("max_output_tokens", "max_tokens"),
    ("text.format", "output_config.format"),
    ("reasoning.effort", "output_config.effort"),
    ("parallel_tool_calls", "tool_choice.disable_parallel_tool_use"),
)
_MAX_KEY: Final = 64
_MAX_METADATA: Final = 512


class Thinking(msgspec.Struct, frozen=True):
    """What blocks of thinking the caller takes: none, with their text, or without it."""

    is_shown: bool = False
    is_omitted: bool = False


def read_thinking(body: dict[str, Any]) -> Thinking:
    """Return whether the caller asked for thinking. Raise InvalidRequest if it is no object."""
    thinking = _object(body, "thinking")
    is_shown = thinking.get("type") in ("enabled", "adaptive")
    return Thinking(is_shown, is_shown and thinking.get("display") == "omitted")


def read_ask(body: dict[str, Any], size: int = 0, *, store: bool = False) -> CreateResponse:
    """Return what a Messages body asks for.

    `size` is how many bytes it had, if known; `store` is the value of that field for a body
    without it.
    """
    _refuse_thread(_object(body, "thread"))
    choice, parallel = read_choice(body.get("tool_choice"))
    thinking, config = _object(body, "thinking"), _object(body, "output_config")
    tools, carried = split_tools(read_tools(body.get("tools")))
    said = [*read_system(body.get("system")), *read_messages(body.get("messages"))]
    asked: dict[str, Any] = {
        "model": body.get("model"),
        "input": [*carried, *said],
        "tools": tools,
        "tool_choice": choice,
        "parallel_tool_calls": parallel,
        "include": [_SEALED] if read_thinking(body).is_shown else None,
        "reasoning": _reasoning(thinking, config),
        "text": _text(config.get("format") or body.get("output_format")),
        "temperature": body.get("temperature"),
        "top_p": body.get("top_p"),
        "service_tier": _TIERS.get(str(body.get("service_tier"))),
        "stream": body.get("stream"),
        "store": store if body.get("store") is None else body["store"],
        **_length(body.get("max_tokens")),
        **_metadata(_object(body, "metadata")),
    }
    try:
        request = read_request(asked, size)
    except InvalidRequest as error:
        raise names_of(body).rename(error) from None
    request.extra = _extra(body, config)
    return request


def names_of(body: dict[str, Any]) -> CallerNames:
    """Return what our fields are called in a body that was read. It is read again for it."""
    _, carried = split_tools(read_tools(body.get("tools")))
    places = ["tools" for _ in carried]
    places += [f"system[{index}]" for index, _ in system_blocks(body.get("system"))]
    for index, message in enumerate(body.get("messages") or ()):
        places += [f"messages[{index}]" for _ in read_messages([message])]
    return CallerNames(places, _THERE)


def _refuse_thread(thread: dict[str, Any]) -> None:
    """Refuse to go on with a thread: its history is not in the request, and no server has it.

    The SDKs of Anthropic then send the whole history again, so to begin a thread is no fault.
    """
    if thread.get("type") == "continue":
        raise NotFound(
            "no threads are kept here; send the whole history", code=THREAD_LOST, param="thread"
        )


def _object(body: dict[str, Any], name: str) -> dict[str, Any]:
    value = body.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise InvalidRequest(f"{name} must be an object", code="invalid_type", param=name)
    return value


def _reasoning(thinking: dict[str, Any], config: dict[str, Any]) -> dict[str, Any] | None:
    """Return how hard to think: what is disabled is off, a budget is a level, else the effort."""
    kind, budget = thinking.get("type"), thinking.get("budget_tokens")
    if kind == "disabled":
        return {"effort": "none"}
    if kind == "enabled" and isinstance(budget, int):
        levels = (level for least, level in _BUDGETS if budget >= least)
        return {"effort": next(levels, "minimal")}
    effort = config.get("effort")
    return {"effort": effort} if effort in _EFFORTS else None


def _text(form: object) -> dict[str, Any] | None:
    if form is None:
        return None
    if not isinstance(form, dict) or form.get("type") != "json_schema":
        raise InvalidRequest(
            "output_config.format.type must be json_schema",
            code="invalid_value",
            param="output_config.format.type",
        )
    schema = form.get("schema")
    name = {"type": "json_schema", "name": "output"}
    return {"format": {**name, "schema": schema, "strict": True}}


def _length(most: object) -> dict[str, Any]:
    """Return how long the answer may be; 0 asks only to read the prompt, for a cache."""
    if most is None:
        return {}
    return {"generate": False} if most == 0 and most is not False else {"max_output_tokens": most}


def _metadata(given: dict[str, Any]) -> dict[str, Any]:
    """Return who asks, and the session as the key of the upstream's cache.

    Claude Code puts an object with `session_id` into `user_id`, as text.
    """
    user = given.get("user_id")
    if not isinstance(user, str) or not user:
        return {}
    found: dict[str, Any] = {"metadata": {"user_id": user}} if len(user) <= _MAX_METADATA else {}
    session = _session_in(user)
    if session is not None and len(session) <= _MAX_KEY:
        found["prompt_cache_key"] = session
    return found


def _session_in(user: str) -> str | None:
    if not user.startswith("{"):
        return None
    try:
        value = msgspec.json.decode(user)
    except (msgspec.MsgspecError, RecursionError):
        return None
    session = value.get("session_id") if isinstance(value, dict) else None
    return session if isinstance(session, str) and session else None


def _extra(body: dict[str, Any], config: dict[str, Any]) -> dict[str, Any]:
    """Return what we have no word for, under its own name; empty values mean nothing."""
    extra = {_RENAMED.get(name, name): value for name, value in body.items() if name not in _READ}
    if config:
        effort = config.get("effort")
        is_known = effort is None or effort in _EFFORTS
        read = ("effort", "format") if is_known else ("format",)
        more = {f"output_config.{name}": config[name] for name in config if name not in read}
        extra |= more
    if body.get("service_tier") not in (None, *_TIERS):
        extra["service_tier"] = body["service_tier"]
    metadata, thinking = _object(body, "metadata"), _object(body, "thinking")
    kept = _metadata(metadata).get("metadata", {})
    extra |= {f"metadata.{name}": metadata[name] for name in metadata if name not in kept}
    if thinking.get("type") not in (None, *_THINKING):
        extra["thinking.type"] = thinking["type"]
    if not isinstance(thinking.get("budget_tokens"), int | None):
        extra["thinking.budget_tokens"] = thinking["budget_tokens"]
    return {name: value for name, value in extra.items() if value}
