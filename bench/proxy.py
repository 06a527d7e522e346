"""What does it cost to pass the same bytes on without looking at them?

Two references for the gateway, each a process of its own that prints its port:

    | pump   | bytes from socket to socket, one upstream connection per client, no HTTP at all   |
    | relay  | aiohttp's server and client, a request at a time, its body passed on as it comes   |

    python bench/proxy.py pump|relay UPSTREAM_PORT [PORT]
"""

from __future__ import annotations

import asyncio
import sys
from typing import cast

from aiohttp import ClientSession, DummyCookieJar, TCPConnector, web

__all__ = ["pump", "relay"]


class _End(asyncio.Protocol):
    """One end of a pump: what it receives, the other end sends."""

    def __init__(self) -> None:
        self.other: _End | None = None
        self._transport: asyncio.Transport | None = None
        self._waiting: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if self.other is None:
            self._waiting.append(data)
        else:
            self.other.send(data)

    def send(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)

    def join(self, other: _End) -> None:
        self.other = other
        for data in self._waiting:
            other.send(data)

    def pause_writing(self) -> None:
        if self.other is not None and self.other._transport is not None:
            self.other._transport.pause_reading()

    def resume_writing(self) -> None:
        if self.other is not None and self.other._transport is not None:
            self.other._transport.resume_reading()

    def connection_lost(self, _: BaseException | None) -> None:
        if self.other is not None and self.other._transport is not None:
            self.other._transport.close()


class _ClientEnd(_End):
    def __init__(self, upstream_port: int) -> None:
        super().__init__()
        self._upstream_port = upstream_port

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._connecting = asyncio.ensure_future(self._connect())

    async def _connect(self) -> None:
        loop = asyncio.get_running_loop()
        _, upstream = await loop.create_connection(_End, "127.0.0.1", self._upstream_port)
        upstream.join(self)
        self.join(upstream)


async def pump(upstream_port: int, port: int = 0) -> None:
    """Pass bytes on until the process is ended."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(
        lambda: _ClientEnd(upstream_port), "127.0.0.1", port, backlog=1024
    )
    _announce(server.sockets[0].getsockname()[1])
    await server.serve_forever()


async def relay(upstream_port: int, port: int = 0) -> None:
    """Pass requests on until the process is ended."""
    connector = TCPConnector(limit=0)
    async with ClientSession(connector=connector, cookie_jar=DummyCookieJar()) as session:

        async def handle(request: web.BaseRequest) -> web.StreamResponse:
            url = f"http://127.0.0.1:{upstream_port}{request.rel_url}"
            body = await request.content.read()  # request.read() stops at a MiB
            headers = {"Content-Type": request.content_type}
            async with session.request(request.method, url, data=body, headers=headers) as upstream:
                if upstream.content_length is not None:
                    return web.Response(body=await upstream.read())
                answer = web.StreamResponse()
                answer.content_type = upstream.content_type
                await answer.prepare(request)
                async for data in upstream.content.iter_any():
                    await answer.write(data)
                await answer.write_eof()
                return answer

        server = web.Server(handle, access_log=None)
        loop = asyncio.get_running_loop()
        listener = await loop.create_server(server, "127.0.0.1", port, backlog=1024)
        _announce(listener.sockets[0].getsockname()[1])
        await listener.serve_forever()


def _announce(port: int) -> None:
    sys.stdout.write(f"{port}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    from processes import run_loop

    run_loop({"pump": pump, "relay": relay}[sys.argv[1]](*map(int, sys.argv[2:4])))
