"""An MCP server over HTTP that misbehaves as a test wants it to.

`Hostile` answers the handshake like any server; `listing` and `calling` then write whatever bytes
they like.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from tests.transport.raw import Connection, RawServer, Request, chunk, head, raw_server, reply

__all__ = ["Answer", "Hostile", "drip", "endless", "hang", "result", "streamed", "tool"]

Answer = Callable[[dict[str, Any], Connection], Awaitable[None]]


def tool(name: str = "echo", **fields: Any) -> dict[str, Any]:
    """Return an entry of a list of tools."""
    return {"name": name, "inputSchema": {"type": "object"}, **fields}


def result(value: object) -> Answer:
    """Return an answer with this result."""

    async def answer(message: dict[str, Any], connection: Connection) -> None:
        body = {"jsonrpc": "2.0", "id": message["id"], "result": value}
        await connection.write(reply(json.dumps(body).encode()))

    return answer


def endless(megabytes: int, *, content_type: str = "application/json") -> Answer:
    """Return an answer that is one text of so many megabytes."""

    async def answer(message: dict[str, Any], connection: Connection) -> None:
        begin = b'{"jsonrpc":"2.0","id":%d,"result":{"content":[{"type":"text","text":"'
        prefix = b"data: " if content_type == "text/event-stream" else b""
        await connection.write(head(content_type) + chunk(prefix + begin % message["id"]))
        piece = chunk(b"x" * 2**20)
        for _ in range(megabytes):
            await connection.write(piece)
        await connection.write(chunk(b'"}]}}\n\n') + chunk(b""))

    return answer


def streamed(*events: bytes) -> Answer:
    """Return an answer that is a stream of these events and then stays open."""

    async def answer(_: dict[str, Any], connection: Connection) -> None:
        await connection.write(head("text/event-stream") + b"".join(map(chunk, events)))
        await connection.until_closed()

    return answer


class Hostile:
    """What the server does, and what it saw."""

    def __init__(self, listing: Answer | None = None, calling: Answer | None = None) -> None:
        self.listing = listing or result({"tools": [tool()]})
        self.calling = calling or result({"content": [{"type": "text", "text": "ok"}]})
        self.calls: list[dict[str, Any]] = []
        self.lists = 0
        self.raw = RawServer()

    @property
    def url(self) -> str:
        """Where it answers."""
        return f"{self.raw.url}/mcp"

    @asynccontextmanager
    async def serve(self, host: str = "127.0.0.1") -> AsyncIterator[Hostile]:
        """Run it."""
        async with raw_server(self._answer, host=host) as self.raw:
            yield self

    async def _answer(self, request: Request, connection: Connection) -> None:
        if request.method != "POST":
            await connection.write(reply(b"", status="405 Method Not Allowed"))
            return
        message = json.loads(request.body)
        if "id" not in message:
            await connection.write(reply(b"", status="202 Accepted"))
            return
        match message["method"]:
            case "initialize":
                version = message["params"]["protocolVersion"]
                info = {"name": "hostile", "version": "1"}
                await result(
                    {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}
                )(message, connection)
            case "tools/list":
                self.lists += 1
                await self.listing(message, connection)
            case "tools/call":
                self.calls.append(message["params"])
                await self.calling(message, connection)
            case method:
                error = {"code": -32601, "message": f"no {method}"}
                body = {"jsonrpc": "2.0", "id": message["id"], "error": error}
                await connection.write(reply(json.dumps(body).encode()))


async def hang(_: dict[str, Any], connection: Connection) -> None:
    """Never answer."""
    await connection.until_closed()


async def drip(_: dict[str, Any], connection: Connection) -> None:
    """Answer with one byte at a time, without end."""
    await connection.write(head("application/json"))
    while True:
        await connection.write(chunk(b" "))
        await asyncio.sleep(0.05)
