"""What does it cost to send a model so many bytes, and nothing else?

A process that prints its port. `GET /N` makes it ask the upstream, over the HTTP client that the
gateway has, with a body of N bytes that lies ready; the answer is read and thrown away.

    python bench/sender.py UPSTREAM_PORT
"""

from __future__ import annotations

import asyncio
import sys
from typing import Final

from aiohttp import ClientSession, DummyCookieJar, TCPConnector, web
from processes import run_loop

__all__ = ["send"]

_HEAD: Final = b'{"model":"whole","messages":[{"role":"user","content":"'
_TAIL: Final = b'"}]}'
_MAX_BYTES: Final = 64 * 1024 * 1024


async def send(upstream_port: int) -> None:
    """Ask as often as one is asked, until the process is ended."""
    url = f"http://127.0.0.1:{upstream_port}/v1/chat/completions"
    bodies: dict[int, bytes] = {}
    async with ClientSession(
        connector=TCPConnector(limit=0), cookie_jar=DummyCookieJar()
    ) as session:

        async def handle(request: web.BaseRequest) -> web.StreamResponse:
            size = min(int(request.path.strip("/")), _MAX_BYTES)
            if size not in bodies:
                bodies.clear()
                bodies[size] = _HEAD + b"x" * (size - len(_HEAD) - len(_TAIL)) + _TAIL
            headers = {"Content-Type": "application/json"}
            async with session.post(url, data=bodies[size], headers=headers) as answer:
                await answer.read()
            return web.Response()

        server = web.Server(handle, access_log=None)
        loop = asyncio.get_running_loop()
        listener = await loop.create_server(server, "127.0.0.1", 0)
        sys.stdout.write(f"{listener.sockets[0].getsockname()[1]}\n")
        sys.stdout.flush()
        await listener.serve_forever()


if __name__ == "__main__":
    run_loop(send(int(sys.argv[1])))
