"""What of a request can be done where the only tools are functions of the caller's?

Shapes were checked when the request was read. Rule: nothing is dropped in silence. What would
make the answer wrong is refused by name; what only loses something is listed in `degraded`.
"""

from __future__ import annotations

from typing import Final

import msgspec

from antiphon.protocol.errors import InvalidRequest
from antiphon.protocol.request import CreateResponse, read_policy
from antiphon.protocol.tools import Tool, ToolPolicy, function_name

__all__ = ["Checked", "check_request"]

# Asking for what we always do is no degradation; asking for the rest is.
_SEALED: Final = "reasoning.encrypted_content"
_INCLUDED: Final = frozenset({"message.output_text.logprobs", _SEALED})

_TOOL_FIELDS: Final = frozenset({"type", "name", "description", "parameters", "strict"})


class Checked(msgspec.Struct, frozen=True):
    """What was found out about a request."""

    tools: list[Tool]
    policy: ToolPolicy
    degraded: list[str]


def check_request(
    request: CreateResponse, *, can_seal: bool = False, how_to_seal: str = ""
) -> Checked:
    """Return what can be run of this request. Raise InvalidRequest for what must not be lost.

    `how_to_seal` is said with what needs sealing where nothing can be sealed.
    """
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
    if request.only_compacts or request.generate is False:
        policy = ToolPolicy("none")
    unsealed = [] if can_seal else _needs_sealing(request)
    degraded.extend(f"{what}: {how_to_seal}" if how_to_seal else what for what in unsealed)
    degraded.extend(_unhonoured(request))
    return Checked(functions, policy, degraded)


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


def _needs_sealing(request: CreateResponse) -> list[str]:
    found = [f"include ({name})" for name in request.include or () if name == _SEALED]
    return found if request.compact_threshold is None else [*found, "context_management"]


def _unhonoured(request: CreateResponse) -> list[str]:
    found = [f"include ({name})" for name in request.include or () if name not in _INCLUDED]
    for index, entry in enumerate(request.context_management or ()):
        if entry.type != "compaction":
            found.append(f"context_management[{index}] ({entry.type}): nobody here knows it")
        elif entry.compact_threshold is None:
            found.append(f"context_management[{index}]: it has no compact_threshold")
    if request.stream_options and request.stream_options.include_obfuscation:
        found.append("stream_options.include_obfuscation")
    return found
