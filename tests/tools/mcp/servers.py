"""Real MCP servers for tests: processes that are started, counted and stopped."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.clients.install import MCP_LOCK, node, node_modules

__all__ = ["DESK", "calls_in", "desk", "free_port", "npm_command"]

DESK = Path(__file__).with_name("desk.py")


def free_port() -> int:
    """Return a port that nothing listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def desk(log: Path, transport: str = "http") -> Iterator[str]:
    """Run the Python server over HTTP; yield its URL. Connections wait until it is ready."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        number = listener.fileno()
        process = subprocess.Popen(
            [sys.executable, str(DESK), str(log), transport, str(number)], pass_fds=[number]
        )
    try:
        yield f"http://127.0.0.1:{port}/{'sse' if transport == 'sse' else 'mcp'}"
    finally:
        process.kill()
        process.wait(30)


def calls_in(log: Path, name: str | None = None) -> list[dict[str, Any]]:
    """Return the calls that arrived at the server."""
    if not log.exists():
        return []
    calls = [json.loads(line) for line in log.read_text().splitlines()]
    return [call for call in calls if name in (None, call["name"])]


def npm_command(package: str, *arguments: str) -> tuple[str, ...]:
    """Return how to start a server from npm, installed if it is not there yet."""
    folder = node_modules(MCP_LOCK.parent) / "@modelcontextprotocol" / f"server-{package}"
    main = json.loads((folder / "package.json").read_text())["bin"]
    script = main if isinstance(main, str) else next(iter(main.values()))
    return str(node()), str(folder / script), *arguments
