"""Tools and tool_choice of a Messages request, as ours.

A tool with an `input_schema` is a function. Tools that Anthropic's servers run have a dated type: a
web search is offered as our hosted one, any other stays as it is. Which of them can be run, and
what is reported as left out, is decided later, where the backend is known.
"""

from __future__ import annotations

from typing import Any, Final

from antiphon.protocol.errors import InvalidRequest
from antiphon.protocol.items import Item
from antiphon.protocol.request import MAX_TOOLS
from antiphon.protocol.tool_list import ToolList
from antiphon.protocol.tools import Tool

__all__ = ["read_choice", "read_tools", "split_tools"]

# How the input is streamed is up to us: it always is.
_READ: Final = frozenset({"type", "name", "input_schema", "eager_input_streaming"})
_WEB_SEARCH: Final = "web_search_"


def read_tools(tools: object) -> list[Tool] | None:
    """Return the tools. A list that was kept from an earlier request gives the same as then."""
    if tools is None:
        return None
    if not isinstance(tools, list):
        raise InvalidRequest("tools must be a list", code="invalid_type", param="tools")
    if isinstance(tools, ToolList):
        return tools.derived.get(read_tools, lambda: ToolList(_read_all(tools), tools.nodes))
    return _read_all(tools)


def split_tools(tools: list[Tool] | None) -> tuple[list[Tool] | None, list[Item]]:
    """Return the tools of a request, and an item that carries those that are too many for it.

    The Messages API has no such limit, and agents with many MCP servers send hundreds.
    """
    if tools is None or len(tools) <= MAX_TOOLS:
        return tools, []
    return tools[:MAX_TOOLS], [{"type": "additional_tools", "tools": tools[MAX_TOOLS:]}]


def read_choice(choice: object) -> tuple[str | dict[str, Any] | None, bool | None]:
    """Return tool_choice, and whether several calls at once are allowed; None if not said."""
    if choice is None:
        return None, None
    kind = choice.get("type") if isinstance(choice, dict) else None
    if not isinstance(choice, dict) or not isinstance(kind, str):
        raise InvalidRequest(
            "tool_choice.type is missing",
            code="missing_required_parameter",
            param="tool_choice.type",
        )
    parallel = False if choice.get("disable_parallel_tool_use") is True else None
    match kind:
        case "auto" | "none":
            return kind, parallel
        case "any":
            return "required", parallel
        case "tool":
            return {"type": "function", "name": choice.get("name")}, parallel
    raise InvalidRequest(
        f"tool_choice.type must be auto, any, tool or none, not '{kind}'",
        code="invalid_value",
        param="tool_choice.type",
    )


def _read_all(tools: list[Any]) -> list[Tool]:
    return [_tool(tool, f"tools[{index}]") for index, tool in enumerate(tools)]


def _tool(tool: object, where: str) -> Tool:
    if not isinstance(tool, dict):
        raise InvalidRequest(f"{where} must be an object", code="invalid_type", param=where)
    kind = tool.get("type")
    if kind is None or kind == "custom":
        return _function(tool, where)
    return {**tool, "type": "web_search"} if str(kind).startswith(_WEB_SEARCH) else tool


def _function(tool: dict[str, Any], where: str) -> Tool:
    schema = tool.get("input_schema")
    if not isinstance(schema, dict):
        raise InvalidRequest(
            f"{where}.input_schema must be an object",
            code="missing_required_parameter" if schema is None else "invalid_type",
            param=f"{where}.input_schema",
        )
    more = {name: value for name, value in tool.items() if name not in _READ}
    return {"type": "function", "name": tool.get("name"), "parameters": schema, **more}
