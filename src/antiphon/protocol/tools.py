"""Tools and tool_choice: what the model may call.

A tool is a JSON object as it stands on the wire. `ToolPolicy` is tool_choice made plain:
every form of it comes down to a mode and, perhaps, a set of names.
"""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

__all__ = ["NAME_PATTERN", "Mode", "Tool", "ToolPolicy", "function_name"]

# A JSON object of open shape: Any is what a peer may put there.
Tool = dict[str, Any]
Mode = Literal["auto", "none", "required"]

NAME_PATTERN: Final = r"^[a-zA-Z0-9_-]{1,64}$"


class ToolPolicy(msgspec.Struct, frozen=True):
    """Which tools may be called. `allowed` is None for all of them.

    A named tool is `required` with one allowed name.
    """

    mode: Mode = "auto"
    allowed: frozenset[str] | None = None

    def allows(self, name: str) -> bool:
        """Say whether a call to this tool may be handed on."""
        return self.mode != "none" and (self.allowed is None or name in self.allowed)


def function_name(tool: Tool) -> str | None:
    """Return the name of a function tool, or None for any other kind."""
    return tool.get("name") if tool.get("type") == "function" else None
