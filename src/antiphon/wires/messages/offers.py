"""The tools of a plan, and which of them to call, in the words of the Messages API.

Tools that the caller runs are functions under their aliases. Those that the provider runs itself
(`toolbox.upstream`) have dated names there: a web search, a program, an MCP server. A tool of any
other kind is the provider's own, and is passed on as the caller wrote it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from antiphon.plans.plan import Plan
from antiphon.plans.toolbox import Offer
from antiphon.protocol.tools import Tool
from antiphon.wires.lower import functions_of
from antiphon.wires.messages.schemas import bound_schema, input_schema, is_closed
from antiphon.wires.messages.traits import Traits

__all__ = ["MCP_BETA", "Offered", "choose_tool", "offer_tools"]

MCP_BETA: Final = "mcp-client-2025-11-20"
"""What a request with MCP servers needs."""

_WEB_SEARCH: Final = "web_search_20260318"
_CODE: Final = "code_execution_20260521"
_OPEN: Final = "strict needs additionalProperties false in every object; sent without it"

_Entry = dict[str, Any]  # a JSON object in the words of the API


class Offered(NamedTuple):
    """What the model is offered: tools, and servers that have more."""

    tools: Sequence[_Entry] = ()
    servers: Sequence[_Entry] = ()
    notes: Sequence[str] = ()

    @property
    def has_server_tools(self) -> bool:
        """Whether the provider runs tools itself, and so may pause."""
        return any("input_schema" not in tool for tool in self.tools)


def offer_tools(plan: Plan, traits: Traits) -> Offered:
    """Return what the model is offered. It is shared: do not change it."""
    toolbox = plan.toolbox
    if not plan.shows_tools or not (toolbox.offers or toolbox.upstream):
        return Offered()
    return toolbox.derived.get(
        (offer_tools, traits.json_schema), lambda: _offer_all(plan, can_bind=traits.json_schema)
    )


def choose_tool(
    plan: Plan, traits: Traits, *, thinks: bool, report: list[str]
) -> dict[str, Any] | None:
    """Return tool_choice, or None if the model may choose freely."""
    policy = plan.policy
    if policy.mode == "none":
        return {"type": "none"}
    choice: dict[str, Any] = {"type": "auto"}
    if policy.mode == "required":
        if thinks or not traits.forced_choice:
            why = "a model that thinks" if thinks else "this model"
            report.append(f"tool_choice: {why} cannot be forced; it is asked to choose")
        elif policy.allowed is not None and len(policy.allowed) == 1:
            choice = {"type": "tool", "name": _name_of(next(iter(policy.allowed)))}
        else:
            choice = {"type": "any"}
    if plan.parallel_tool_calls is False:
        choice["disable_parallel_tool_use"] = True
    return None if choice == {"type": "auto"} else choice


def _offer_all(plan: Plan, *, can_bind: bool) -> Offered:
    notes: list[str] = []
    servers: list[_Entry] = []
    pairs = zip(plan.toolbox.offers, functions_of(plan), strict=True)
    tools = [_function(offer, function, can_bind, notes) for offer, function in pairs]
    for tool in plan.toolbox.upstream:
        write = _SERVER_TOOLS.get(str(tool["type"]))
        tools.append(dict(tool) if write is None else write(tool, servers, notes))
    return Offered(tools, servers, notes)


def _function(offer: Offer, function: Tool, can_bind: bool, notes: list[str]) -> _Entry:
    schema = input_schema(function.get("parameters"))
    tool: _Entry = {"name": function["name"]}
    if function.get("description"):
        tool["description"] = function["description"]
    tool["input_schema"] = schema
    if function.get("strict") and can_bind:
        bound, left_out = bound_schema(schema)
        if not is_closed(schema):
            notes.append(f"{offer.where}: {_OPEN}")
        elif left_out:
            notes.append(f"{offer.where}: strict cannot have {', '.join(left_out)}; left out")
            tool |= {"input_schema": bound, "strict": True}
        else:
            tool["strict"] = True
    if offer.tool.get("cache_control") is not None:
        tool["cache_control"] = offer.tool["cache_control"]
    return tool


def _name_of(kind: str) -> str:
    """Return the name of a tool; those of the provider are allowed by their kind."""
    return {"code_interpreter": "code_execution"}.get(kind, kind)


# Tools that the provider runs.


def _web_search(tool: Tool, servers: list[_Entry], notes: list[str]) -> _Entry:
    entry: _Entry = {"type": _WEB_SEARCH, "name": "web_search"}
    filters = tool.get("filters")
    given = {**tool, **(filters if isinstance(filters, dict) else {})}
    kept = ("allowed_domains", "blocked_domains", "max_uses", "user_location", "cache_control")
    entry |= {name: given[name] for name in kept if given.get(name) is not None}
    _note_rest(tool, (*kept, "type", "name", "filters"), notes)
    return entry


def _code(tool: Tool, servers: list[_Entry], notes: list[str]) -> _Entry:
    container = tool.get("container")
    if container not in (None, {"type": "auto"}):
        notes.append("tools (code_interpreter).container: the provider chooses one")
    _note_rest(tool, ("type", "container"), notes)
    return {"type": _CODE, "name": "code_execution"}


def _mcp(tool: Tool, servers: list[_Entry], notes: list[str]) -> _Entry:
    """Return the set of tools of a server, and add the server."""
    label = str(tool.get("server_label") or "mcp")
    server: _Entry = {"type": "url", "name": label, "url": tool.get("server_url") or ""}
    if tool.get("authorization"):
        server["authorization_token"] = tool["authorization"]
    servers.append(server)
    if tool.get("require_approval") not in (None, "never"):
        notes.append(f"tools (mcp {label}).require_approval: its tools are called without")
    read = ("type", "server_label", "server_url", "authorization", "require_approval")
    _note_rest(tool, (*read, "allowed_tools", "server_description"), notes)
    entry: _Entry = {"type": "mcp_toolset", "mcp_server_name": label}
    allowed = tool.get("allowed_tools")
    names = allowed.get("tool_names") if isinstance(allowed, dict) else allowed
    if isinstance(names, list):
        entry["default_config"] = {"enabled": False}
        entry["configs"] = {str(name): {"enabled": True} for name in names}
    return entry


def _note_rest(tool: Tool, read: Sequence[str], notes: list[str]) -> None:
    rest = (name for name, value in tool.items() if value is not None and name not in read)
    notes += [f"tools ({tool['type']}).{name}" for name in rest]


_Write = Callable[[Tool, list[_Entry], list[str]], _Entry]
_SERVER_TOOLS: Final[dict[str, _Write]] = {
    "web_search": _web_search,
    "code_interpreter": _code,
    "mcp": _mcp,
}
