"""A TCP server for tests that answers a request with exactly the bytes a script writes."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

__all__ = ["Connection", "RawServer", "Request", "chunk", "head", "raw_server", "reply"]


@dataclass
class Request:
    """One request as it arrived."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Connection:
    """The server's side of a connection: write anything, wait until the client has closed."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def write(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def until_closed(self) -> None:
        """Return when the client has hung up."""
        try:
            while await self.reader.read(65536):
                pass
        except ConnectionError:
            pass

    def reset(self) -> None:
        """Hang up in the rudest way."""
        self.writer.transport.abort()


Script = Callable[[Request, Connection], Awaitable[None]]


@dataclass
class RawServer:
    """What the server saw. `closed` is set when a client has left a script that was not done."""

    url: str = ""
    requests: list[Request] = field(default_factory=list)
    connections: int = 0
    closed: asyncio.Event = field(default_factory=asyncio.Event)


def head(content_type: str, *extra: str, status: str = "200 OK") -> bytes:
    """Return the head of a chunked answer."""
    lines = [f"HTTP/1.1 {status}", f"Content-Type: {content_type}", "Transfer-Encoding: chunked"]
    return "\r\n".join([*lines, *extra, "", ""]).encode()


def chunk(data: bytes) -> bytes:
    """Return the data as one chunk of a chunked body; the empty one ends it."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def reply(
    body: bytes, *extra: str, status: str = "200 OK", content_type: str = "application/json"
) -> bytes:
    """Return a whole answer."""
    lines = [f"HTTP/1.1 {status}", f"Content-Type: {content_type}", f"Content-Length: {len(body)}"]
    return "\r\n".join([*lines, *extra, "", ""]).encode() + body


@asynccontextmanager
async def raw_server(
    script: Script, *, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1"
) -> AsyncIterator[RawServer]:
    """Serve on an ephemeral port of the loopback; the script answers each request."""
    seen = RawServer()
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        seen.connections += 1
        try:
            while (request := await _read_request(reader)) is not None:
                seen.requests.append(request)
                await script(request, Connection(reader, writer))
        except ConnectionError:
            # The client left while the script was still writing.
            seen.closed.set()
        except asyncio.CancelledError:
            pass
        finally:
            writer.transport.abort()
            tasks.discard(task)

    server = await asyncio.start_server(serve, host, 0, limit=2**20, ssl=tls)
    port = server.sockets[0].getsockname()[1]
    name = f"[{host}]" if ":" in host else host
    seen.url = f"{'https' if tls else 'http'}://{name}:{port}"
    try:
        yield seen
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _read_request(reader: asyncio.StreamReader) -> Request | None:
    try:
        raw = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    first, *lines = raw.decode("latin-1").rstrip("\r\n").split("\r\n")
    method, path, _ = first.split(" ", 2)
    headers = {name.lower(): value.strip() for name, _, value in (x.partition(":") for x in lines)}
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return Request(method, path, headers, body)
