"""The tools of a plan and its policy, as Gemini takes them.

What the caller runs becomes a function; what the server runs itself (`hosted`) becomes a tool of
its own. Gemini has no switch against parallel calls: that is reported, and the gate of the turn
lets only the first call through.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Any, Final

import msgspec

from antiphon.plans.plan import Plan
from antiphon.protocol.tools import Tool
from antiphon.wires.gemini.names import name_for
from antiphon.wires.gemini.profiles import HOSTED, Generation, Profile
from antiphon.wires.gemini.schemas import write_parameters
from antiphon.wires.lower import functions_of

__all__ = ["put_tools"]

Body = dict[str, Any]
"""A JSON object in the words of Gemini."""

_MODES: Final = {"auto": "AUTO", "required": "ANY", "none": "NONE"}
_NOT_TOLD: Final = frozenset({"type", "name", "cache_control"})


def put_tools(
    plan: Plan, profile: Profile, generation: Generation, body: Body, report: list[str]
) -> None:
    """Put `tools` and `toolConfig` into the body."""
    functions = functions_of(plan)
    hosted = _hosted(plan, report) if plan.shows_tools else []
    if hosted and functions and not generation.mixes_tools:
        report += [f"tools ({name}): this model takes it only without functions" for name in hosted]
        hosted = []
    tools: list[Any] = [{name: {}} for name in hosted]
    config: Body = {}
    if functions:
        encoded, lost = plan.toolbox.derived.get(
            (put_tools, profile.json_schema), lambda: _declare(plan, profile)
        )
        report += lost
        tools.insert(0, encoded)
        config["functionCallingConfig"] = _calling(plan)
        _report_policy(plan, report)
    if hosted and generation.mixes_tools:
        config["includeServerSideToolInvocations"] = True
    if tools:
        body["tools"] = tools
    if config:
        body["toolConfig"] = config


def _declare(plan: Plan, profile: Profile) -> tuple[msgspec.Raw, list[str]]:
    """Return the functions as JSON, which is made once for a toolbox, and what they lost."""
    report: list[str] = []
    aliases = plan.toolbox.aliases
    declared = [_declaration(one, aliases, profile, report) for one in functions_of(plan)]
    return msgspec.Raw(msgspec.json.encode({"functionDeclarations": declared})), report


def _declaration(tool: Tool, aliases: Container[str], profile: Profile, report: list[str]) -> Body:
    declaration: Body = {"name": name_for(tool["name"], aliases)}
    if tool.get("description"):
        declaration["description"] = tool["description"]
    schema = tool.get("parameters")
    if profile.json_schema:
        if schema:
            declaration["parametersJsonSchema"] = schema
        return declaration
    parameters, lost = write_parameters(schema)
    if lost:
        report.append(f"tools ({tool['name']}): its parameters lose {', '.join(lost)}")
    if parameters is not None:
        declaration["parameters"] = parameters
    return declaration


def _calling(plan: Plan) -> Body:
    """Return which functions may be called; of some, those that are allowed and arguments held.

    A policy that allows only tools that the server runs allows no function.
    """
    policy = plan.policy
    allowed = policy.allowed
    aliases = plan.toolbox.aliases
    names = [name_for(alias, aliases) for alias in sorted(aliases & (allowed or frozenset()))]
    if allowed is not None and not names:
        return {"mode": "NONE"}
    mode = _MODES[policy.mode]
    if mode == "AUTO" and (names or _is_strict(plan)):
        mode = "VALIDATED"
    return {"mode": mode, "allowedFunctionNames": names} if names else {"mode": mode}


def _is_strict(plan: Plan) -> bool:
    return any(offer.tool.get("strict") for offer in plan.toolbox.offers)


def _report_policy(plan: Plan, report: list[str]) -> None:
    if plan.parallel_tool_calls is False:
        report.append("parallel_tool_calls: this server may still call several at once")


def _hosted(plan: Plan, report: list[str]) -> list[str]:
    """Return the tools of the server that are asked for, each once."""
    names: dict[str, None] = {}
    allowed = plan.policy.allowed
    for tool in plan.toolbox.upstream if plan.policy.mode != "none" else ():
        kind = str(tool.get("type"))
        if allowed is None or kind in allowed:
            names[HOSTED[kind]] = None
            lost = [name for name, value in tool.items() if value and name not in _NOT_TOLD]
            report += [f"tools ({kind}).{name}: Gemini's tool has no such setting" for name in lost]
    return list(names)
