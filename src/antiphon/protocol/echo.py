"""The response as it begins: every echo of its request, and nothing said yet.

Both wings begin one: the engine for its caller, the client where the server speaks chat and
makes no response of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import UNSET

from antiphon.protocol.request import CreateResponse
from antiphon.protocol.response import Notes, Reasoning, Response
from antiphon.protocol.tool_list import ToolList
from antiphon.protocol.tools import Tool

__all__ = ["first_response"]


def first_response(
    request: CreateResponse, degraded: Sequence[str], response_id: str, model: str, now: int
) -> Response:
    """Return the response as it begins, with every echo the specification asks for.

    `degraded` is what is known by now not to be honoured.
    """
    parallel, temperature, top_p = request.parallel_tool_calls, request.temperature, request.top_p
    presence, frequency = request.presence_penalty, request.frequency_penalty
    conversation, tools = request.conversation, request.tools
    response = Response(
        id=response_id,
        created_at=now,
        background=bool(request.background),
        model=model,
        instructions=request.instructions,
        max_output_tokens=request.max_output_tokens,
        max_tool_calls=request.max_tool_calls,
        parallel_tool_calls=True if parallel is None else parallel,
        previous_response_id=request.previous_response_id,
        prompt_cache_key=request.prompt_cache_key,
        reasoning=_reasoning(request),
        safety_identifier=request.safety_identifier,
        store=request.store is not False,
        temperature=1.0 if temperature is None else temperature,
        text=_text(request),
        tool_choice=_tool_choice(request),
        tools=_echo_tools(tools) if tools else [],
        top_logprobs=request.top_logprobs or 0,
        top_p=1.0 if top_p is None else top_p,
        presence_penalty=0.0 if presence is None else presence,
        frequency_penalty=0.0 if frequency is None else frequency,
        truncation=request.truncation or "disabled",
        metadata=request.metadata or {},
        user=UNSET if request.user is None else request.user,
        conversation=UNSET if conversation is None else _conversation(conversation),
    )
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
        return tools.derived.get(_echo_tools, lambda: [_echo_tool(tool) for tool in tools])
    return [_echo_tool(tool) for tool in tools]


def _echo_tool(tool: Tool) -> Tool:
    """Return the tool with the keys the specification requires of a function."""
    if tool.get("type") != "function":
        return tool
    return {"description": None, "parameters": None, "strict": None} | tool
