"""A server with an embeddings API on loopback. Texts with the same words have near vectors."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import struct
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from antiphon.tools.index.embed_api import EmbeddingsUpstream
from antiphon.transport.secret import Secret

__all__ = ["KEY", "EmbeddingsServer", "embeddings_server"]

KEY = "embed-key-0123456789"
_SIZE = 64


class EmbeddingsServer:
    """Counts what it is asked, and fails as it is told."""

    def __init__(self) -> None:
        self.url = ""
        self.bodies: list[dict[str, Any]] = []
        self.statuses: list[int] = []
        """What the next requests are answered with instead."""
        self.answer: Any = None
        """What is answered to every request instead of embeddings."""
        self.form = "float"
        self.reports = True
        """Whether its usage is in the answers."""
        self.billed = 0
        """Tokens of all texts that were embedded."""
        self.asked = asyncio.Event()
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    def embedder(self, **options: Any) -> EmbeddingsUpstream:
        """Return what asks this server."""
        return EmbeddingsUpstream(self.url, Secret(KEY), model="words-64", **options)

    async def handle(self, request: web.Request) -> web.Response:
        body = json.loads(await request.read())
        assert request.headers["Authorization"] == f"Bearer {KEY}"
        self.bodies.append(body)
        self.asked.set()
        await self.may_answer.wait()
        if self.statuses:
            status = self.statuses.pop(0)
            error = {"error": {"message": f"no, {KEY}"}}
            return web.json_response(error, status=status, headers={"Retry-After": "0"})
        if self.answer is not None:
            return web.json_response(self.answer)
        data = [
            {"object": "embedding", "index": at, "embedding": self._shape(vector_of(text))}
            for at, text in enumerate(body["input"])
        ]
        data.reverse()  # the order is in `index`
        answer = {"object": "list", "data": data, "model": body["model"]}
        tokens = sum(map(tokens_of, body["input"]))
        if self.reports:
            answer["usage"] = {"prompt_tokens": tokens, "total_tokens": tokens}
        self.billed += tokens
        return web.json_response(answer)

    def _shape(self, numbers: list[float]) -> Any:
        if self.form == "float":
            return numbers
        return base64.b64encode(struct.pack(f"<{len(numbers)}f", *numbers)).decode()


def tokens_of(text: str) -> int:
    """Return what is billed for a text."""
    return -(-len(text.encode()) // 4)


def vector_of(text: str) -> list[float]:
    numbers = [0.001] * _SIZE
    for word in re.findall(r"\w+", text.lower()):
        numbers[zlib.crc32(word.encode()) % _SIZE] += 1.0
    return numbers


@asynccontextmanager
async def embeddings_server() -> AsyncIterator[EmbeddingsServer]:
    """Run the server."""
    server = EmbeddingsServer()
    app = web.Application(client_max_size=1 << 26)
    app.router.add_post("/v1/embeddings", server.handle)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    server.url = f"http://127.0.0.1:{port}/v1"
    try:
        yield server
    finally:
        server.may_answer.set()
        await runner.cleanup()
