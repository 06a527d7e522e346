"""What of a request can be done, what is done differently, and what must be refused?

Shapes were checked when the request was read. Here it is held against what this gateway can
do. Rule: nothing is dropped in silence. What changes the answer is refused by name; what only
loses something is listed in `degraded`, and refused too when the caller asked for strictness.
"""

from __future__ import annotations

from typing import Final

import msgspec

from antiphon.protocol.errors import InvalidRequest, NotBuilt
from antiphon.protocol.request import CreateResponse, read_policy
from antiphon.protocol.tools import Tool, ToolPolicy, function_name

__all__ = ["Checked", "refuse_degraded", "validate"]

# Asking for what we always do is no degradation; asking for the rest is.
_INCLUDED_ANYWAY: Final = frozenset({"message.output_text.logprobs"})

_TOOL_FIELDS: Final = frozenset({"type", "name", "description", "parameters", "strict"})


class Checked(msgspec.Struct, frozen=True):
    """What was found out about a request."""

    tools: list[Tool]
    policy: ToolPolicy
    degraded: list[str]


def validate(request: CreateResponse) -> Checked:
    """Return what can be run of this request. Raise InvalidRequest or NotBuilt otherwise."""
    _refuse_unbuilt(request)
    functions: list[Tool] = []
    degraded: list[str] = []
    for index, tool in enumerate(request.tools or ()):
        if function_name(tool) is None:
            degraded.append(f"tools[{index}] ({tool['type']}): nobody here can run it")
        else:
            functions.append(tool)
            asked = (name for name, value in tool.items() if value and name not in _TOOL_FIELDS)
            degraded.extend(f"tools[{index}].{name}" for name in asked)
    _refuse_repeated_names(functions)
    policy = read_policy(request.tool_choice)
    policy = _runnable_policy(policy, request, functions, degraded)
    degraded.extend(_unhonoured(request))
    return Checked(functions, policy, degraded)


def refuse_degraded(degraded: list[str]) -> None:
    """Raise InvalidRequest for a strict caller if anything could not be honoured."""
    if degraded:
        name = degraded[0].split(":")[0].split(" ")[0]
        raise InvalidRequest(
            f"strict mode: cannot honour {'; '.join(degraded)}",
            code="unsupported_parameter",
            param=name,
        )


def _refuse_unbuilt(request: CreateResponse) -> None:
    if request.background:
        raise NotBuilt("background responses are not in this version", param="background")
    if request.conversation is not None:
        raise NotBuilt(
            "conversations are not in this version; use previous_response_id",
            param="conversation",
        )
    if request.prompt is not None:
        raise InvalidRequest(
            "prompt templates live at OpenAI; send instructions and input instead",
            code="unsupported_parameter",
            param="prompt",
        )
    if request.input is None and not request.previous_response_id and not request.instructions:
        raise InvalidRequest("input is missing", code="missing_required_parameter", param="input")


def _refuse_repeated_names(functions: list[Tool]) -> None:
    seen: set[str] = set()
    for tool in functions:
        if tool["name"] in seen:
            raise InvalidRequest(
                f"two tools are named '{tool['name']}'", code="duplicate_tool", param="tools"
            )
        seen.add(tool["name"])


def _runnable_policy(
    policy: ToolPolicy, request: CreateResponse, functions: list[Tool], degraded: list[str]
) -> ToolPolicy:
    """Narrow the policy to tools that exist; refuse to force what nobody can run."""
    names = {tool["name"] for tool in functions}
    allowed = policy.allowed
    if allowed is not None:
        missing = sorted(allowed - names)
        offered = {_tool_label(tool) for tool in request.tools or ()}
        for name in missing:
            if name not in offered:
                raise InvalidRequest(
                    f"tool_choice names '{name}', which is not among the tools",
                    code="invalid_value",
                    param="tool_choice",
                )
        degraded.extend(f"tool_choice ({name}): nobody here can run it" for name in missing)
        allowed = allowed & names
    can_call = bool(names if allowed is None else allowed)
    if policy.mode == "required" and not can_call:
        raise InvalidRequest(
            "tool_choice forces a tool, but there is none that can be run here",
            code="unsupported_tool",
            param="tool_choice",
        )
    return ToolPolicy(policy.mode, allowed)


def _tool_label(tool: Tool) -> str:
    name = tool.get("name")
    return name if isinstance(name, str) else str(tool.get("type"))


def _unhonoured(request: CreateResponse) -> list[str]:
    found = [f"include ({name})" for name in request.include or () if name not in _INCLUDED_ANYWAY]
    if request.stream_options and request.stream_options.include_obfuscation:
        found.append("stream_options.include_obfuscation")
    return found
