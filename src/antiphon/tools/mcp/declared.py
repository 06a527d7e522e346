"""Which MCP servers does a request declare, and on which terms?

A label means a server that the operator has configured, unless the tool names a URL, which the
operator must have allowed. What cannot be honoured is refused or reported by its place, and no
message shows a secret.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from antiphon.plans.toolbox import DeclaredTool
from antiphon.protocol.errors import InvalidRequest, invalid
from antiphon.protocol.tools import Tool
from antiphon.tools.mcp.approval import ApprovalRule, ToolFilter, read_filter, read_rule
from antiphon.tools.mcp.definitions import Definition
from antiphon.tools.mcp.endpoints import Endpoint, read_headers, url_endpoint

__all__ = ["DeclaredServer", "Directory", "read_servers"]

_MAX_LABEL: Final = 64
_FIELDS: Final = frozenset(
    {
        "type",
        "server_label",
        "server_url",
        "connector_id",
        "tunnel_id",
        "server_description",
        "authorization",
        "headers",
        "allowed_tools",
        "require_approval",
        "defer_loading",
        "allowed_callers",
        "cache_control",
    }
)
_SECRETS: Final = ("authorization", "headers")
_PLACES: Final = ("server_url", "connector_id", "tunnel_id")


class Directory(msgspec.Struct, frozen=True):
    """The servers that may be used: those of the operator, and patterns of URLs."""

    endpoints: Mapping[str, Endpoint] = {}
    allow_urls: tuple[str, ...] = ()


class DeclaredServer(msgspec.Struct, frozen=True, kw_only=True):
    """A server as one request uses it."""

    label: str
    endpoint: Endpoint
    rule: ApprovalRule
    filter: ToolFilter
    description: str = ""
    is_deferred: bool = False
    where: str

    def allows(self, tool: Definition) -> bool:
        """Return whether caller and operator let this tool be used."""
        return self.allows_name(tool.name) and self.filter.matches(
            tool.name, is_read_only=tool.is_read_only
        )

    def allows_name(self, name: str) -> bool:
        """Return whether a tool of this name may be used, as far as its name decides."""
        operator = self.endpoint.allowed
        if operator is not None and name not in operator:
            return False
        return self.filter.names is None or name in self.filter.names

    def needs_approval(self, tool: Definition) -> bool:
        """Return whether a call of this tool needs the caller's approval."""
        return self.rule.needs_approval(
            tool.name,
            is_read_only=tool.is_read_only,
            trusts_read_only=self.endpoint.trusts_read_only,
        )


def read_servers(
    tools: Sequence[DeclaredTool], directory: Directory, *, is_searched: bool = False
) -> tuple[dict[str, DeclaredServer], list[str]]:
    """Return the declared servers by label, and what cannot be honoured.

    `is_searched` if tools with `defer_loading` can be found by a search.

    Raise InvalidRequest for a tool that cannot be right, or a server that may not be used.
    """
    servers: dict[str, DeclaredServer] = {}
    notes: list[str] = []
    for tool, where in tools:
        found = _read(tool, where, directory, notes, is_searched=is_searched)
        if found.label in servers:
            raise InvalidRequest(
                f"two tools have the server_label '{found.label}'",
                code="duplicate_tool",
                param=f"{where}.server_label",
            )
        servers[found.label] = found
    return servers, notes


def _read(
    tool: Tool, where: str, directory: Directory, notes: list[str], *, is_searched: bool
) -> DeclaredServer:
    label = tool.get("server_label")
    if not isinstance(label, str) or not 1 <= len(label) <= _MAX_LABEL or not label.isprintable():
        raise invalid(f"{where}.server_label", f"must be 1 to {_MAX_LABEL} printable characters")
    allowed, about = tool.get("allowed_tools"), tool.get("server_description")
    rule = read_rule(tool.get("require_approval"), where)
    endpoint = _with_secrets(tool, where, _find(tool, label, where, directory), notes)
    notes += [f"{where}.{name}" for name in tool if name not in _FIELDS and tool[name]]
    is_deferred = tool.get("defer_loading") is True
    if is_deferred and not is_searched:
        notes.append(f"{where}.defer_loading: nothing here could load its tools later")
    if rule.uses_read_only and not endpoint.trusts_read_only:
        notes.append(
            f"{where}.require_approval.never.read_only: the operator does not trust what this "
            "server claims; its tools need approval"
        )
    return DeclaredServer(
        label=label,
        endpoint=endpoint,
        rule=rule,
        filter=ToolFilter() if allowed is None else read_filter(allowed, f"{where}.allowed_tools"),
        description=about if isinstance(about, str) else "",
        is_deferred=is_deferred,
        where=where,
    )


def _find(tool: Tool, label: str, where: str, directory: Directory) -> Endpoint:
    """Return the server that is meant. Raise InvalidRequest if there is none."""
    named = [name for name in _PLACES if tool.get(name) is not None]
    if len(named) > 1:
        raise invalid(where, f"must have only one of {', '.join(_PLACES)}")
    configured = directory.endpoints.get(label)
    if not named:
        return configured or _refuse(where, "server_label", label)
    value = tool[named[0]]
    if named[0] == "server_url":
        if configured is not None and configured.url == value:
            return configured
        return url_endpoint(label, value, directory.allow_urls, where)
    found = directory.endpoints.get(value) if isinstance(value, str) else None
    if found is None or named[0] == "tunnel_id":
        return _refuse(where, named[0], value)
    return msgspec.structs.replace(found, label=label)


def _refuse(where: str, field: str, value: object) -> Endpoint:
    raise InvalidRequest(
        f"{where}.{field}: {str(value)[:80]!r} is no MCP server of this gateway; its operator can "
        "configure one of that name under [mcp.servers]",
        code="unsupported_tool",
        param=f"{where}.{field}",
    )


def _with_secrets(
    tool: Mapping[str, Any], where: str, endpoint: Endpoint, notes: list[str]
) -> Endpoint:
    """Return the endpoint with the caller's headers, where it takes them."""
    given = [name for name in _SECRETS if tool.get(name)]
    if given and not where.startswith("tools["):
        raise invalid(
            f"{where}.{given[0]}",
            "is not taken here: items are stored, and secrets must not be; put the tool into tools",
        )
    headers = read_headers(tool.get("authorization"), tool.get("headers"), where)
    if headers and not endpoint.takes_headers:
        notes += [f"{where}.{name}: the server has credentials of its own" for name in given]
        return endpoint
    return endpoint.with_headers(headers)
