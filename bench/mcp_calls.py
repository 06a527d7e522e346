"""What does the gateway add to the call of an MCP tool?

A Python server with the official library answers over streamable HTTP, in a process of its own.
The same tool is called directly over one open connection, and through a gateway whose model calls
it and then answers. What a response costs without any tool is subtracted twice, once for each
round of the model; the rest, beyond the direct call, is what the gateway adds: the loop, the
intent in the store, and the events.

    python bench/mcp_calls.py [--calls 100]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import aiohttp

from antiphon.backends.scripted import ScriptedBackend, Step
from antiphon.gateway.mcp import open_mcp
from antiphon.plans.plan import Plan
from antiphon.protocol.deltas import CallMade, Stopped, TextGrew
from antiphon.store.memory import MemoryStore
from antiphon.store.sqlite import SqliteStore
from antiphon.testing.gateway import serve_gateway
from antiphon.tools.mcp.connection import Connection
from antiphon.tools.mcp.endpoints import Endpoint
from antiphon.tools.mcp.settings import McpServer, McpSettings

__all__ = ["main"]

GOAL_MS: Final = 5.0
_WARM_UP: Final = 10
_SERVER: Final = """
import sys
from mcp.server.mcpserver import MCPServer
server = MCPServer("bench", log_level="CRITICAL")
@server.tool(structured_output=False)
def add(a: int, b: int) -> str:
    return str(a + b)
server.run("streamable-http", port=int(sys.argv[1]))
"""
_TOOL: Final = {"type": "mcp", "server_label": "bench", "require_approval": "never"}


async def main(calls: int) -> int:
    """Measure and print; return 1 if the gateway adds more than the goal."""
    port = _free_port()
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", _SERVER, str(port))
    url = f"http://127.0.0.1:{port}/mcp"
    print(f"{calls} calls of each kind, one after the other; medians in ms, p95 in brackets")
    try:
        await _listening(port)
        added = [await _measure(url, calls, store) for store in ("memory", "sqlite")]
    finally:
        process.kill()
        await process.wait()
    print(f"goal: at most {GOAL_MS} ms more at the median")
    return 0 if max(added) <= GOAL_MS else 1


async def _measure(url: str, calls: int, kind: str) -> float:
    """Print what calls cost with this kind of store; return what the gateway adds."""
    with tempfile.TemporaryDirectory() as folder:
        store = MemoryStore() if kind == "memory" else SqliteStore(Path(folder) / "bench.db")
        servers = {"bench": McpServer(url=url)}
        runner = await open_mcp(McpSettings(servers=servers), {}, store, "ap-")
        assert runner is not None
        connection = Connection(Endpoint(label="bench", url=url), 8 * 2**20)
        await connection.open()
        async with (
            serve_gateway(ScriptedBackend(_play), store=store, tools=[runner]) as gateway,
            aiohttp.ClientSession() as session,
        ):
            ask = _asking(session, f"{gateway.base_url}/responses")
            listed = (await ask({"tools": [_TOOL]}))["output"][0]
            given = [listed, {"role": "user", "content": "call"}]
            direct, plain, tool = await _timed(
                calls,
                lambda: connection.call("add", {"a": 2, "b": 3}, 60),
                lambda: ask({"input": "say"}),
                lambda: ask({"input": given, "tools": [_TOOL]}),
            )
        await connection.close()
        await store.close()
    medians = [statistics.median(times) for times in (direct, plain, tool)]
    added = medians[2] - 2 * medians[1] - medians[0]
    print(f"  {kind:7} direct {_shown(direct)}, response without a tool {_shown(plain)}")
    print(f"  {kind:7} response with a call {_shown(tool)}: {added:+.1f}")
    return added


def _play(plan: Plan) -> list[Step]:
    last = plan.items[-1]
    if plan.toolbox.functions and last.get("type") != "function_call_output":
        return [[CallMade("bench__add", json.dumps({"a": 2, "b": 3})), Stopped("stop")]]
    return [TextGrew("ok"), Stopped("stop")]


def _asking(session: aiohttp.ClientSession, url: str) -> Callable[[dict[str, Any]], Awaitable[Any]]:
    async def ask(body: dict[str, Any]) -> Any:
        async with session.post(url, json={"input": "call", **body}) as answer:
            found = await answer.json()
            assert answer.status == 200, found
            return found

    return ask


async def _timed(calls: int, *acts: Callable[[], Awaitable[Any]]) -> list[list[float]]:
    """Return how long each takes. They take turns, so the load of the machine meets all alike."""
    found: list[list[float]] = [[] for _ in acts]
    for number in range(_WARM_UP + calls):
        for times, act in zip(found, acts, strict=True):
            began = time.perf_counter()
            await act()
            if number >= _WARM_UP:
                times.append((time.perf_counter() - began) * 1000)
    return found


def _shown(times: list[float]) -> str:
    return f"{statistics.median(times):6.1f} ({statistics.quantiles(times, n=20)[-1]:.1f})"


def _free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def _listening(port: int) -> None:
    while True:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            await asyncio.sleep(0.05)
        else:
            writer.close()
            return


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--calls", type=int, default=100)
    sys.exit(asyncio.run(main(parser.parse_args().calls)))
