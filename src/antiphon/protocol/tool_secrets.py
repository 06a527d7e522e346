"""Which fields of a tool are secrets of its caller?

They are sent to the server that the tool names, and to nothing and nobody else: no response
repeats them, and nothing stores them as they are.
"""

from __future__ import annotations

from typing import Any, Final

from antiphon.protocol.tools import Tool

__all__ = ["has_secrets", "secrets_of", "without_secrets"]

_SECRETS: Final = ("authorization", "headers")


def has_secrets(tool: object) -> bool:
    """Return whether a tool of a request holds secrets."""
    if not isinstance(tool, dict) or tool.get("type") != "mcp":
        return False
    return any(name in tool for name in _SECRETS)


def secrets_of(tool: Tool) -> dict[str, Any]:
    """Return the secrets of a tool."""
    return {name: tool[name] for name in _SECRETS if name in tool}


def without_secrets(tool: Tool) -> Tool:
    """Return the tool without its secrets, for everyone but its server."""
    if not has_secrets(tool):
        return tool
    return {name: value for name, value in tool.items() if name not in _SECRETS}
