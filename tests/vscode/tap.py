"""What did VS Code send to the gateway, and what came back?

A tap stands between the two, passes everything on as it is, and keeps what the tests look at.
Its address stays the same when the gateway restarts. It can refuse requests itself, or answer
them with bytes that a test wrote.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import aiohttp
import msgspec
from aiohttp import web

__all__ = ["Canned", "Exchange", "Tap", "open_tap"]

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


class Canned(msgspec.Struct, frozen=True):
    """An answer that the tap gives instead of the gateway."""

    status: int
    body: bytes
    mime: str = "application/json"
    headers: Mapping[str, str] = {}


class Tap:
    """Passes requests on to the gateway and keeps each with its answer."""

    def __init__(self, gateway: str, session: aiohttp.ClientSession) -> None:
        self.base_url = ""
        self.exchanges: list[Exchange] = []
        """The requests to /responses, oldest first, once their answers have ended."""
        self.keys: list[str | None] = []
        """The header `Authorization` of each of them, as it arrives."""
        self.canned: list[Canned] = []
        """The answers to the next requests to /responses."""
        self.play: Callable[[dict[str, Any]], Canned | None] = lambda body: None
        """What to answer to a request to /responses, if the gateway is not to be asked."""
        self.pages: dict[str, Canned] = {}
        """What to answer to a GET, by its path, if the gateway is not to be asked."""
        self._gateway = gateway.removesuffix("/v1")
        self._session = session

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Pass one request on, and its answer back piece by piece."""
        body = await request.read()
        if request.method == "GET" and (page := self.pages.get(request.path)):
            return web.Response(status=page.status, body=page.body, content_type=page.mime)
        is_turn = request.method == "POST" and request.path.endswith("/responses")
        if is_turn:
            self.keys.append(request.headers.get("Authorization"))
        if is_turn and (canned := self._canned(msgspec.json.decode(body))):
            self.exchanges.append(Exchange(msgspec.json.decode(body), canned.status, canned.body))
            headers = {"content-type": canned.mime, **canned.headers}
            return web.Response(status=canned.status, body=canned.body, headers=headers)
        async with self._session.request(
            request.method,
            f"{self._gateway}{request.path_qs}",
            data=body,
            headers=_passed(request.headers),
        ) as answer:
            reply = web.StreamResponse(status=answer.status, headers=_passed(answer.headers))
            await reply.prepare(request)
            told = bytearray()
            with contextlib.suppress(ConnectionResetError):  # the client has gone, and so do we
                async for piece in answer.content.iter_any():
                    told += piece[: _MAX_BYTES - len(told)]
                    await reply.write(piece)
        if is_turn:
            self.exchanges.append(Exchange(msgspec.json.decode(body), answer.status, bytes(told)))
        with contextlib.suppress(ConnectionResetError):
            await reply.write_eof()
        return reply

    def _canned(self, body: dict[str, Any]) -> Canned | None:
        return self.canned.pop(0) if self.canned else self.play(body)


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
