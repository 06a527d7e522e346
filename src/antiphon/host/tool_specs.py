"""The tools of a host, as function tools and a tool_choice.

Nothing here checks names or sizes; the client does.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from antiphon.client.errors import BadTool
from antiphon.client.function_tools import FunctionTool
from antiphon.protocol.tools import Mode, Tool

__all__ = ["ToolSpec", "translate_tool_mode", "translate_tools"]

_MODES: Final[tuple[Mode, ...]] = ("auto", "required", "none")


class ToolSpec(msgspec.Struct, frozen=True):
    """A tool as hosts describe it: LanguageModelChatTool in VS Code."""

    name: str
    description: str
    input_schema: Mapping[str, Any] | None = None


def translate_tools(tools: Sequence[ToolSpec | FunctionTool]) -> list[Tool]:
    """Return the tools as function tools. Raise BadTool for anything that is not a tool.

    Those of a host are not `strict`, which is the default of the API: a host's
    schema rarely keeps the rules of that mode, and servers refuse one that does not.
    """
    return [_translate_tool(tool, place) for place, tool in enumerate(tools)]


def _translate_tool(tool: object, place: int) -> Tool:
    if isinstance(tool, FunctionTool):
        return dict(tool.definition)
    if not isinstance(tool, ToolSpec):
        kind = type(tool).__name__
        raise BadTool(
            f"tools[{place}]", f"it is of type {kind}; give a ToolSpec or function_tool(…)"
        )
    return {
        "type": "function",
        "name": tool.name,
        "description": tool.description,
        "parameters": _plain(tool.input_schema or {"type": "object", "properties": {}}),
        "strict": False,
    }


def translate_tool_mode(mode: Mode) -> str:
    """Return the tool_choice of a tool mode. Raise ValueError for an unknown mode."""
    if mode not in _MODES:
        raise ValueError(f"the tool mode must be one of {', '.join(_MODES)}, not {mode!r}")
    return mode


def _plain(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema of any kind of mappings as one of dicts."""
    plain: dict[str, Any] = json.loads(json.dumps(schema, default=dict))
    return plain
