"""A server with OpenAI's Images API on loopback: whole answers, streams, edits, failures."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final, Literal

import msgspec
from aiohttp import web

__all__ = ["IMAGE", "KEY", "ImagesDouble", "images_upstream"]

KEY: Final = "image-key-that-must-not-leak"
IMAGE: Final = base64.b64encode(b"\x89PNG final").decode()
_DETAILS: Final = {
    "size": "1024x1024",
    "quality": "low",
    "background": "opaque",
    "output_format": "png",
}

Mishap = Literal["refused", "broken stream", "error event", "url", "html", "empty"]


class ImagesDouble:
    """What was asked for, and what goes wrong next."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.mishap: Mishap | None = None
        self.url = ""

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Make an image."""
        if request.headers.get("Authorization") != f"Bearer {KEY}":
            return _error(401, f"the key {request.headers.get('Authorization')} is wrong")
        fields = await _fields(request)
        self.asked.append((request.path, fields))
        match self.mishap:
            case "refused":
                return _error(400, f"Your request with {KEY} was rejected by the safety system")
            case "html":
                return web.Response(text="<html>", content_type="text/html")
            case "url":
                return web.json_response({"data": [{"url": "https://images.example/1"}]})
            case "empty":
                return web.json_response({"data": []})
        if str(fields.get("stream")).lower() == "true":
            return await self._stream(request, int(fields["partial_images"]))
        answer = {"created": 1, "data": [{"b64_json": IMAGE}], **_DETAILS}
        return web.json_response(answer)

    async def _stream(self, request: web.Request, partial: int) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        family = "image_edit" if request.path.endswith("edits") else "image_generation"
        for index in range(partial):
            data = base64.b64encode(b"part %d" % index).decode()
            fields = {"b64_json": data, "partial_image_index": index, **_DETAILS}
            await _send(response, f"{family}.partial_image", fields)
        if self.mishap == "error event":
            await _send(response, "error", {"error": {"message": "the server is overloaded"}})
        elif self.mishap != "broken stream":
            await _send(response, f"{family}.completed", {"b64_json": IMAGE, **_DETAILS})
        return response


@asynccontextmanager
async def images_upstream() -> AsyncIterator[ImagesDouble]:
    """Serve the Images API; `url` ends in `/v1`."""
    double = ImagesDouble()
    app = web.Application(client_max_size=64 * 1024 * 1024)
    app.router.add_post("/v1/images/generations", double.handle)
    app.router.add_post("/v1/images/edits", double.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    double.url = f"http://{host}:{port}/v1"
    try:
        yield double
    finally:
        await runner.cleanup()


async def _fields(request: web.Request) -> dict[str, Any]:
    if request.content_type == "application/json":
        found: dict[str, Any] = msgspec.json.decode(await request.read())
        return found
    form = await request.post()
    fields: dict[str, Any] = {}
    for name, value in form.items():
        fields[name] = value
        if isinstance(value, web.FileField):
            fields[name] = value.content_type, value.file.read()
    return fields


async def _send(response: web.StreamResponse, kind: str, fields: dict[str, Any]) -> None:
    data = msgspec.json.encode({"type": kind, **fields})
    await response.write(b"event: %b\ndata: %b\n\n" % (kind.encode(), data))


def _error(status: int, message: str) -> web.Response:
    error = {"message": message, "type": "image_generation_user_error", "code": "x"}
    return web.json_response({"error": error}, status=status)
