"""What did VS Code send to the gateway, and what came back?

A tap stands between the two, passes everything on as it is, and keeps what the tests look at.
Its address stays the same when the gateway restarts.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import aiohttp
import msgspec
from aiohttp import web

__all__ = ["Exchange", "Tap", "open_tap"]

_MAX_BYTES: Final = 16 * 1024 * 1024
_MAX_SECONDS: Final = 120
# They are about one connection, and there are two; or a length that chunks have not.
_HOP: Final = frozenset({"host", "connection", "keep-alive", "transfer-encoding", "content-length"})


class Exchange(msgspec.Struct, frozen=True):
    """A request for a response, its status, and what was answered."""

    body: dict[str, Any]
    status: int
    answer: bytes

    @property
    def response_id(self) -> str:
        """The id of the response that was streamed."""
        found = re.search(rb'"id":\s*"(resp_[\w-]+)"', self.answer)
        assert found is not None, "there is no response in the answer"
        return found[1].decode()

    @property
    def error_code(self) -> str | None:
        """The code of the error that was answered instead of a stream."""
        code: str | None = msgspec.json.decode(self.answer)["error"]["code"]
        return code


class Tap:
    """Passes requests on to the gateway and keeps each with its answer."""

    def __init__(self, gateway: str, session: aiohttp.ClientSession) -> None:
        self.base_url = ""
        self.exchanges: list[Exchange] = []
        """The requests to /responses, oldest first, once their answers have ended."""
        self._gateway = gateway.removesuffix("/v1")
        self._session = session

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Pass one request on, and its answer back piece by piece."""
        body = await request.read()
        async with self._session.request(
            request.method,
            f"{self._gateway}{request.path_qs}",
            data=body,
            headers=_passed(request.headers),
        ) as answer:
            reply = web.StreamResponse(status=answer.status, headers=_passed(answer.headers))
            await reply.prepare(request)
            told = bytearray()
            async for piece in answer.content.iter_any():
                told += piece[: _MAX_BYTES - len(told)]
                await reply.write(piece)
        if request.method == "POST" and request.path.endswith("/responses"):
            self.exchanges.append(Exchange(msgspec.json.decode(body), answer.status, bytes(told)))
        await reply.write_eof()
        return reply


def _passed(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.lower() not in _HOP}


@asynccontextmanager
async def open_tap(gateway: str) -> AsyncIterator[Tap]:
    """Run a tap before the gateway at this base URL."""
    connector = aiohttp.TCPConnector(force_close=True)  # none outlives the gateway it was made to
    timeout = aiohttp.ClientTimeout(total=_MAX_SECONDS)
    async with aiohttp.ClientSession(
        connector=connector, timeout=timeout, auto_decompress=False
    ) as session:
        tap = Tap(gateway, session)
        app = web.Application(client_max_size=_MAX_BYTES)
        app.router.add_route("*", "/{path:.*}", tap.handle)
        runner = web.AppRunner(app)
        await runner.setup()
        try:
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            host, port = runner.addresses[0][:2]
            tap.base_url = f"http://{host}:{port}/v1"
            yield tap
        finally:
            await runner.cleanup()
