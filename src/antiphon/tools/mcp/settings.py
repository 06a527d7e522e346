"""What can be set about MCP servers: the table `[mcp]`.

A server is reached under a URL or started as a process. Secrets are never written here: a header
or a variable is named, and its value comes from the environment.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec

__all__ = ["McpServer", "McpSettings", "Transport"]

_MIB: Final = 1024 * 1024

Transport = Literal["streamable-http", "sse"]
Seconds = Annotated[float, msgspec.Meta(gt=0, le=3600)]


class McpServer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An MCP server that callers may use by its label, the name of its table."""

    url: str | None = None
    """Where it answers, if it is reached over HTTP. Any address: the operator chose it."""
    transport: Transport = "streamable-http"
    command: str | None = None
    """The program to start, if it speaks over stdin and stdout. No shell reads it."""
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}
    """Variables of the process. Beside these and `env_names` it inherits only PATH, HOME, …"""
    env_names: tuple[str, ...] = ()
    """Names of variables that it inherits, such as that of its API key."""
    cwd: str | None = None
    headers: dict[str, str] = {}
    """Headers of every request, if they are no secrets."""
    header_envs: dict[str, str] = {}
    """Headers whose value is secret: the name of the environment variable that holds it."""
    key_env: str | None = None
    """The name of the environment variable that holds the bearer token, never the token."""
    caller_headers: bool = False
    """Whether `authorization` and `headers` of a caller's tool are sent to this server."""
    allowed_tools: tuple[str, ...] | None = None
    """The tools that may be used, if not all of them."""
    trust_read_only: bool = False
    """Whether a tool that the server calls read-only needs no approval where callers allow that."""
    connect_seconds: Seconds = 10.0
    call_seconds: Seconds = 60.0


class McpSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The MCP servers, and the limits of all of them."""

    servers: dict[str, McpServer] = {}
    allow_urls: tuple[str, ...] = ()
    """Patterns of URLs that callers may name as `server_url`; only public addresses are used."""
    connections: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 64
    """How many connections to servers may be open."""
    owner_connections: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 16
    """How many of them may belong to one owner."""
    idle_seconds: Seconds = 300.0
    """How long a connection stays open that no turn uses."""
    body_bytes: Annotated[int, msgspec.Meta(ge=64 * 1024, le=256 * _MIB)] = 8 * _MIB
    """How long one message of a server may be."""

    @property
    def is_used(self) -> bool:
        """Whether any server may be used."""
        return bool(self.servers or self.allow_urls)
