"""A Python MCP server with a few tools, for tests: over stdio, streamable HTTP or SSE.

    python desk.py LOG TRANSPORT [SOCKET]

SOCKET is the descriptor of a socket that listens already, so nobody else can have its port. Each
call is written to LOG as one line of JSON, so tests count calls where they arrive.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
from pathlib import Path
from typing import Any

import uvicorn
from mcp.server.mcpserver import Image, MCPServer
from mcp_types import ToolAnnotations

__all__: list[str] = []

_LOG = Path(sys.argv[1])
server = MCPServer("desk", log_level="CRITICAL")


def _note(name: str, **given: object) -> None:
    line = json.dumps({"name": name, "arguments": given, "pid": os.getpid()}) + "\n"
    descriptor = os.open(_LOG, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(descriptor, line.encode())
    os.close(descriptor)


@server.tool(description="Adds two whole numbers.", structured_output=False)
def add(a: int, b: int) -> str:
    """Add."""
    _note("add", a=a, b=b)
    return str(a + b)


@server.tool(
    description="Looks into the drawer.",
    annotations=ToolAnnotations(read_only_hint=True),
    structured_output=False,
)
def peek() -> str:
    """Look."""
    _note("peek")
    return "a pencil"


@server.tool(description="Waits.", structured_output=False)
async def wait(seconds: float) -> str:
    """Wait; a cancelled wait is noted too."""
    _note("wait", seconds=seconds)
    try:
        await asyncio.sleep(seconds)
    except asyncio.CancelledError:
        _note("wait-cancelled")
        raise
    return "done"


@server.tool(description="Fails.", structured_output=False)
def fail() -> str:
    """Fail."""
    _note("fail")
    raise RuntimeError("the drawer is stuck")


@server.tool(description="Draws a picture.", structured_output=False)
def draw() -> Image:
    """Return an image."""
    _note("draw")
    return Image(data=b"\x89PNG\r\n\x1a\n" + bytes(300), format="png")


@server.tool(description="Counts letters.")
def count(text: str) -> dict[str, int]:
    """Return structured content."""
    _note("count", text=text)
    return {"letters": len(text)}


def _serve(app: Any) -> None:  # Any: an application of the library
    listener = socket.socket(fileno=int(sys.argv[3]))
    uvicorn.Server(uvicorn.Config(app, log_level="critical")).run([listener])


if __name__ == "__main__":
    match sys.argv[2]:
        case "stdio":
            server.run("stdio")
        case "sse":
            _serve(server.sse_app())
        case kind:
            _serve(server.streamable_http_app(json_response=kind == "json"))
