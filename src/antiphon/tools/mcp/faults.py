"""What can go wrong with an MCP server, in the words of an `mcp_call`.

A server's own text is shortened, and never holds a header that we sent: callers and models read
these messages.
"""

from __future__ import annotations

from typing import Any, Final

__all__ = ["MAX_MESSAGE", "PROTOCOL_ERROR", "McpFault", "http_fault", "protocol_fault"]

MAX_MESSAGE: Final = 500
PROTOCOL_ERROR: Final = -32603
"""The JSON-RPC code of an internal error, for faults that have no code of their own."""


class McpFault(Exception):
    """A server could not be reached, refused, or answered with what is not MCP.

    `error` is the object that an `mcp_call` has as its error.
    """

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(str(error.get("message", "")))
        self.error = error

    @property
    def message(self) -> str:
        """What happened, in one sentence."""
        return str(self.error.get("message", ""))


def protocol_fault(message: str, code: int = PROTOCOL_ERROR) -> McpFault:
    """Return the fault of a server that breaks the protocol, or answers with an error of it."""
    return McpFault({"type": "mcp_protocol_error", "code": code, "message": _short(message)})


def http_fault(message: str, status: int) -> McpFault:
    """Return the fault of a server that refuses by an HTTP status."""
    return McpFault({"type": "http_error", "code": status, "message": _short(message)})


def _short(message: str) -> str:
    flat = " ".join(message.split())
    return flat if len(flat) <= MAX_MESSAGE else f"{flat[: MAX_MESSAGE - 1]}…"
