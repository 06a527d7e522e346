"""An MCP server with search tools over stdio, for tests: JSON, text, nothing, and a failure."""

from __future__ import annotations

import json

from mcp.server.mcpserver import MCPServer

__all__: list[str] = []

server = MCPServer("search", log_level="CRITICAL")


@server.tool(description="Searches.", structured_output=False)
def find(q: str) -> str:
    """Return results as JSON."""
    pages = [
        {"title": f"About {q}", "url": "https://one.example/a", "snippet": "first words"},
        {"title": "Elsewhere", "url": "https://other.example/b", "snippet": "second words"},
    ]
    return json.dumps({"meta": {"q": q}, "results": pages})


@server.tool(description="Searches.", structured_output=False)
def broken(q: str) -> str:
    """Fail."""
    raise ValueError(f"no search for {q} today")


server.run("stdio")
