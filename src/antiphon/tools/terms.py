"""On which terms is a hosted tool run here? For people: the command line and the dashboard.

The settings decide; `gateway.tool_terms` words it. There is nothing secret in it, but addresses of
servers are, so only administrators are shown more than the type and the labels.
"""

from __future__ import annotations

import msgspec

__all__ = ["ServerTerms", "ToolTerms"]


class ServerTerms(msgspec.Struct, frozen=True):
    """An MCP server that requests may name by its label."""

    label: str
    terms: str


class ToolTerms(msgspec.Struct, frozen=True):
    """A type of tools, whether it is configured, and in words how, or why not."""

    type: str
    is_configured: bool
    terms: str
    servers: tuple[ServerTerms, ...] = ()
    details: tuple[str, ...] = ()
    """More lines, such as limits of the sandbox."""
