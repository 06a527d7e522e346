"""A server that speaks the Messages API on loopback, and is as strict as Anthropic's.

It signs its thinking with a key of its own and refuses blocks whose signature does not fit, calls
without their results, results that do not come first, and ids that the API does not take.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import msgspec
from aiohttp import web

from tests.wires.messages.answers import message, stream

__all__ = ["Cut", "MessagesUpstream", "Received", "Refusal", "serve_messages", "text"]

Json = dict[str, Any]

_ID: Final = re.compile(r"[a-zA-Z0-9_-]+")


class Refusal(msgspec.Struct):
    """An answer that is no message."""

    status: int
    kind: str = "api_error"
    message: str = "Sorry."
    headers: Mapping[str, str] = {}


class Cut(msgspec.Struct):
    """Bytes of a stream, after which the connection is closed."""

    data: bytes


class Received(msgspec.Struct):
    """A request that came."""

    path: str
    headers: Mapping[str, str]
    body: Json
    raw: bytes


Play = Mapping[str, Any] | Refusal | Cut


class MessagesUpstream:
    """What the server plays, one after the other, and what it was asked."""

    def __init__(self, key: bytes = b"claude") -> None:
        self.base_url = ""
        self.plays: list[Play] = []
        self.requests: list[Received] = []
        self.counted: list[Json] = []
        models = [{"type": "model", "id": name} for name in ("claude-opus-4-8", "claude-x")]
        self.pages: Sequence[Json] = [{"data": models, "has_more": False}]
        self._key = key

    def play(self, *plays: Play) -> None:
        self.plays[:] = plays

    def thinking(self, thought: str) -> Json:
        """Return a block of thinking that this server signed."""
        return {"type": "thinking", "thinking": thought, "signature": self._sign(thought)}

    def redacted(self, secret: str) -> Json:
        """Return a block that only this server can read."""
        return {"type": "redacted_thinking", "data": f"{secret}.{self._sign(secret)}"}

    @property
    def blocks(self) -> list[Json]:
        """All blocks of the last request."""
        return [block for one in self.requests[-1].body["messages"] for block in one["content"]]

    def _sign(self, thought: str) -> str:
        return hmac.new(self._key, thought.encode(), hashlib.sha256).hexdigest()

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.method == "GET":
            return self._models(request.query.get("after_id"))
        raw = await request.read()
        body = msgspec.json.decode(raw)
        if request.path.endswith("/count_tokens"):
            self.counted.append(body)
            return web.json_response({"input_tokens": 42})
        self.requests.append(Received(request.path, request.headers.copy(), body, raw))
        problem = self._problem(body)
        if problem is not None:
            return _refuse(Refusal(400, "invalid_request_error", problem))
        play = self.plays.pop(0)
        if isinstance(play, Refusal):
            return _refuse(play)
        return await _play(request, play, is_streamed=bool(body.get("stream")))

    def _models(self, after: str | None) -> web.Response:
        ids = [page["data"][-1]["id"] for page in self.pages]
        at = ids.index(after) + 1 if after in ids else 0
        return web.json_response(self.pages[at])

    # What the API refuses.

    def _problem(self, body: Json) -> str | None:
        if not isinstance(body.get("max_tokens"), int):
            return "max_tokens: Field required"
        messages = body["messages"]
        if not messages or messages[0]["role"] != "user":
            return "messages: first message must use the user role"
        waiting: list[str] = []
        for one in messages:
            problem = self._problem_in(one, waiting)
            if problem is not None:
                return problem
            waiting = [block["id"] for block in one["content"] if block["type"] == "tool_use"]
        return "tool_use ids were found without tool_result blocks" if waiting else None

    def _problem_in(self, one: Json, waiting: Sequence[str]) -> str | None:
        blocks = one["content"]
        results = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        first = [block.get("tool_use_id") for block in blocks[: len(waiting)]]
        if results != first or sorted(results) != sorted(waiting):
            return "tool_use ids were found without tool_result blocks immediately after"
        for block in blocks:
            if not self._is_signed(block):
                return f"Invalid `signature` in `{block['type']}` block"
            if block["type"] == "tool_use" and not _ID.fullmatch(block["id"]):
                return "tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'"
            if block["type"] == "text" and not block["text"].strip():
                return "text content blocks must be non-empty"
        return None

    def _is_signed(self, block: Json) -> bool:
        if block["type"] == "thinking":
            return bool(block["signature"] == self._sign(block["thinking"]))
        if block["type"] == "redacted_thinking":
            secret, _, signature = block["data"].partition(".")
            return bool(signature == self._sign(secret))
        return True


@asynccontextmanager
async def serve_messages(key: bytes = b"claude") -> AsyncIterator[MessagesUpstream]:
    """Run such a server; its base URL has no /v1, as Anthropic's."""
    upstream = MessagesUpstream(key)
    runner = web.ServerRunner(web.Server(upstream.answer))
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0]
    upstream.base_url = f"http://{host}:{port}"
    try:
        yield upstream
    finally:
        await runner.cleanup()


def text(said: str, **more: Any) -> Json:
    """Return a message of one text."""
    return message({"type": "text", "text": said}, **more)


def _refuse(play: Refusal) -> web.Response:
    error = {"type": "error", "error": {"type": play.kind, "message": play.message}}
    return web.json_response(error, status=play.status, headers=play.headers)


async def _play(
    request: web.BaseRequest, play: Mapping[str, Any] | Cut, *, is_streamed: bool
) -> web.StreamResponse:
    if not is_streamed and not isinstance(play, Cut):
        return web.json_response(play)
    answer = web.StreamResponse(headers={"content-type": "text/event-stream"})
    await answer.prepare(request)
    await answer.write(play.data if isinstance(play, Cut) else stream(play))
    if isinstance(play, Cut) and request.transport is not None:
        request.transport.close()
    return answer
