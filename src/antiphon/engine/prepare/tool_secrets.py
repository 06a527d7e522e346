"""Secrets of tools in requests that are stored: sealed, or left out.

A caller may send `authorization` and `headers` for an MCP server with its tool. They are used for
one turn and never stored as they are. The request of a background response is stored until it
runs: there they are sealed for their owner. Where nothing can be sealed they are left out, and a
request that has to be run after a restart fails with that reason.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from antiphon.engine.prepare.seal import HOW_TO, Sealer
from antiphon.protocol.errors import InvalidRequest
from antiphon.protocol.tool_secrets import has_secrets, secrets_of, without_secrets
from antiphon.protocol.tools import Tool

__all__ = ["hide_secrets", "reveal_secrets"]

_FIELD: Final = "antiphon_sealed"
_KIND: Final = "tool secrets"
_MARKS: Final = (b"mcp", b"\\u00")  # the type of such a tool, which may be written escaped


def hide_secrets(body: bytes, owner: str, sealer: Sealer | None) -> bytes:
    """Return the body of a request as it may be stored."""
    if not any(mark in body for mark in _MARKS):
        return body
    request = msgspec.json.decode(body)
    tools = request.get("tools") if isinstance(request, dict) else None
    if not isinstance(tools, list) or not any(map(has_secrets, tools)):
        return body
    request["tools"] = [_hide(tool, owner, sealer) for tool in tools]
    return msgspec.json.encode(request)


def reveal_secrets(
    tools: list[Tool] | None, owner: str, sealer: Sealer | None
) -> list[Tool] | None:
    """Return the tools of a stored request as they were sent. Raise InvalidRequest if lost."""
    if not tools or not any(_FIELD in tool for tool in tools):
        return tools
    return [_reveal(tool, owner, sealer) if _FIELD in tool else tool for tool in tools]


def _hide(tool: Any, owner: str, sealer: Sealer | None) -> Any:  # whatever a caller has sent
    if not has_secrets(tool):
        return tool
    written = msgspec.json.encode(secrets_of(tool))
    sealed = "" if sealer is None else sealer.seal(owner, _KIND, written)
    return {**without_secrets(tool), _FIELD: sealed}


def _reveal(tool: Tool, owner: str, sealer: Sealer | None) -> Tool:
    sealed = tool[_FIELD]
    found = sealer.open(owner, _KIND, sealed) if sealer is not None and sealed else None
    if found is None:
        raise InvalidRequest(
            f"the credentials of the MCP server '{tool.get('server_label')}' were kept in memory "
            f"only, and the gateway was restarted before this response ran; {HOW_TO}",
            code="tool_secrets_lost",
            param="tools",
        )
    rest = {name: value for name, value in tool.items() if name != _FIELD}
    return {**rest, **msgspec.json.decode(found)}
