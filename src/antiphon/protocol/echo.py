"""The response as it begins: every echo of its request, and nothing said yet.

Both wings begin one: the engine for its caller, the client where the server speaks chat and
makes no response of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress, repeat
from operator import attrgetter, is_not
from typing import Any, Final

from antiphon.protocol.request import CreateResponse
from antiphon.protocol.response import Notes, Reasoning, Response
from antiphon.protocol.tool_list import ToolList, WrittenTools
from antiphon.protocol.tool_secrets import without_secrets
from antiphon.protocol.tools import Tool

__all__ = ["first_response"]

_MADE: Final = frozenset(
    {"model", "reasoning", "text", "tool_choice", "tools", "conversation", "service_tier", "extra"}
)
# What is repeated as it was sent. A parameter that was not sent has the default of a response.
_AS_SENT: Final = [
    name
    for name in Response.__struct_fields__
    if name in CreateResponse.__struct_fields__ and name not in _MADE
]
_values_of: Final = attrgetter(*_AS_SENT)


def first_response(
    request: CreateResponse, degraded: Sequence[str], response_id: str, model: str, now: int
) -> Response:
    """Return the response as it begins, with every echo the specification asks for.

    `degraded` is what is known by now not to be honoured.
    """
    values = _values_of(request)
    is_sent = map(is_not, values, repeat(None))
    sent = dict(compress(zip(_AS_SENT, values, strict=True), is_sent))
    response = Response(
        id=response_id,
        created_at=now,
        model=model,
        reasoning=_reasoning(request),
        text=_text(request),
        tool_choice=_tool_choice(request),
        tools=_echo_tools(request.tools) if request.tools else [],
        **sent,
    )
    if request.conversation is not None:
        response.conversation = _conversation(request.conversation)
    if degraded:
        response.antiphon = Notes(degraded=tuple(degraded))
    return response


def _conversation(given: str | dict[str, Any]) -> dict[str, Any]:
    return {"id": given} if isinstance(given, str) else {"id": given.get("id")}


def _reasoning(request: CreateResponse) -> Reasoning:
    asked = request.reasoning
    if asked is None:
        return Reasoning()
    return Reasoning(asked.effort, asked.summary or asked.generate_summary)


def _tool_choice(request: CreateResponse) -> str | dict[str, Any]:
    """Return the choice with the mode that the specification requires of allowed_tools."""
    choice = request.tool_choice
    if isinstance(choice, dict) and choice.get("type") == "allowed_tools":
        return choice | {"mode": choice.get("mode") or "auto"}
    return choice or "auto"


def _text(request: CreateResponse) -> dict[str, Any]:
    asked = request.text
    if asked is None:
        return {"format": {"type": "text"}}
    text: dict[str, Any] = {"format": asked.format or {"type": "text"}}
    if text["format"]["type"] == "json_schema":
        text["format"] = {"description": None, "strict": False} | text["format"]
    if asked.verbosity:
        text["verbosity"] = asked.verbosity
    return text


def _echo_tools(tools: list[Tool]) -> list[Tool]:
    if isinstance(tools, ToolList):
        return tools.derived.get(_echo_tools, lambda: WrittenTools(map(_echo_tool, tools)))
    return [_echo_tool(tool) for tool in tools]


def _echo_tool(tool: Tool) -> Tool:
    """Return the tool with the keys the specification requires of a function, without secrets."""
    if tool.get("type") != "function":
        return without_secrets(tool)
    return {"description": None, "parameters": None, "strict": None} | tool
