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

__all__ = ["first_response"]


def first_response(
    request: CreateResponse, degraded: Sequence[str], response_id: str, model: str, now: int
) -> Response:
    """Return the response as it begins, with every echo the specification asks for.

    `degraded` is what is known by now not to be honoured.
    """
    conversation = request.conversation
    response = Response(
        id=response_id,
        created_at=now,
        background=bool(request.background),
        model=model,
        instructions=request.instructions,
        max_output_tokens=request.max_output_tokens,
        max_tool_calls=request.max_tool_calls,
        parallel_tool_calls=_or(request.parallel_tool_calls, True),
        previous_response_id=request.previous_response_id,
        prompt_cache_key=request.prompt_cache_key,
        reasoning=_reasoning(request),
        safety_identifier=request.safety_identifier,
        store=_or(request.store, True),
        temperature=_or(request.temperature, 1.0),
        text=_text(request),
        tool_choice=_tool_choice(request),
        tools=[_echo_tool(tool) for tool in request.tools or ()],
        top_logprobs=_or(request.top_logprobs, 0),
        top_p=_or(request.top_p, 1.0),
        presence_penalty=_or(request.presence_penalty, 0.0),
        frequency_penalty=_or(request.frequency_penalty, 0.0),
        truncation=_or(request.truncation, "disabled"),
        metadata=request.metadata or {},
        user=UNSET if request.user is None else request.user,
        conversation=UNSET if conversation is None else _conversation(conversation),
    )
    if degraded:
        response.antiphon = Notes(degraded=tuple(degraded))
    return response


def _or(value: Any, default: Any) -> Any:  # any field's value
    return default if value is None else value


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
    text: dict[str, Any] = {"format": (asked.format if asked else None) or {"type": "text"}}
    if text["format"]["type"] == "json_schema":
        text["format"] = {"description": None, "strict": False} | text["format"]
    if asked and asked.verbosity:
        text["verbosity"] = asked.verbosity
    return text


def _echo_tool(tool: dict[str, Any]) -> dict[str, Any]:
    """Return the tool with the keys the specification requires of a function."""
    if tool.get("type") != "function":
        return tool
    return {"description": None, "parameters": None, "strict": None} | tool
