"""POST /v1/responses, and what can be done with a response afterwards."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Final

import msgspec
from aiohttp import web

from antiphon.engine.turn import Turn
from antiphon.protocol.body import decode_body
from antiphon.protocol.codec import Dialect, encode_response
from antiphon.protocol.errors import InvalidRequest, NotBuilt, NotFound, SlowRequest
from antiphon.protocol.items import Item
from antiphon.protocol.request import read_request
from antiphon.server.app import Call, Route
from antiphon.server.sse import SseWriter

__all__ = ["ROUTES"]

_MAX_HEADER: Final = 4096
_LEFT_OUT: Final[dict[str, Item]] = {
    "output_text": {"annotations": []},
    "input_image": {"detail": "auto"},
}


async def create(call: Call) -> web.StreamResponse:
    """Run a turn; answer with its response, or with its events as they come."""
    dialect = call.dialect
    request = read_request(await _read_json(call))
    with call.app.room_for_turn():
        turn = await call.app.engine.begin(request, call.owner, strict=call.is_strict)
        with call.app.running(turn):
            if request.stream:
                return await _stream(call, turn, dialect)
            response = await turn.run()
    answer = call.json(encode_response(response, dialect))
    _add_headers(answer, turn)
    return answer


async def retrieve(call: Call) -> web.StreamResponse:
    """Return a stored response, finished or not."""
    if call.request.query.get("stream", "").lower() == "true":
        raise NotBuilt("resuming a stream is not in this version", param="stream")
    response = await call.app.engine.store.get(call.owner, call.path_id)
    if response is None:
        raise _no_response(call.path_id)
    return call.json(encode_response(response, call.dialect))


async def delete(call: Call) -> web.StreamResponse:
    """Remove a response and its items for good."""
    if not await call.app.engine.store.delete(call.owner, call.path_id):
        raise _no_response(call.path_id)
    body = {"id": call.path_id, "object": "response.deleted", "deleted": True}
    return call.json(msgspec.json.encode(body))


async def input_items(call: Call) -> web.StreamResponse:
    """Return a page of the items this response was given."""
    items = await call.app.engine.store.input_items(call.owner, call.path_id)
    if items is None:
        raise _no_response(call.path_id)
    query = call.request.query
    page = _page(
        [_as_listed(item) for item in items],
        after=query.get("after"),
        limit=_limit(query.get("limit", "20")),
        order=query.get("order", "desc"),
    )
    return call.json(msgspec.json.encode(page))


async def upgrade(call: Call) -> web.StreamResponse:
    """Say that there is no WebSocket here; 426 makes clients fall back to HTTP."""
    raise _NoWebSocket("WebSocket mode is not in this version; use POST /v1/responses")


async def not_built(call: Call) -> web.StreamResponse:
    """Say that this part of the API is not there yet."""
    raise NotBuilt(f"{call.request.method} {call.request.rel_url.raw_path} is not in this version")


class _NoWebSocket(NotBuilt):
    status = 426
    code = "websocket_not_supported"


async def _stream(call: Call, turn: Turn, dialect: Dialect) -> web.StreamResponse:
    async with aclosing(turn.events()) as batches:
        first = await anext(batches)  # until here, a fault is an HTTP error
        answer = web.StreamResponse()
        answer.content_type = "text/event-stream"
        answer.charset = "utf-8"
        answer.headers["Cache-Control"] = "no-cache"
        answer.headers["X-Accel-Buffering"] = "no"
        answer.headers["Server"] = "antiphon"
        answer.headers["x-request-id"] = call.request_id
        _add_headers(answer, turn)
        async with SseWriter(call.request, answer, dialect, call.app.limits) as writer:
            await writer.write(first)
            async for batch in batches:
                await writer.write(batch)
            await writer.end()
    return answer


def _add_headers(answer: web.StreamResponse, turn: Turn) -> None:
    if turn.degraded:
        text = "; ".join(turn.degraded).encode("ascii", "replace").decode()
        answer.headers["x-antiphon-degraded"] = "".join(
            char if char.isprintable() else "?" for char in text[:_MAX_HEADER]
        )


async def _read_json(call: Call) -> object:
    limits = call.app.limits
    if call.request.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise InvalidRequest("send the body uncompressed", code="unsupported_encoding")
    try:
        async with asyncio.timeout(limits.body_seconds):
            data = await call.request.read()
    except TimeoutError:
        raise SlowRequest(f"the body did not arrive within {limits.body_seconds} s") from None
    if len(data) > limits.parse_on_loop_bytes:
        return await asyncio.to_thread(decode_body, data)
    return decode_body(data)


def _no_response(response_id: str) -> NotFound:
    return NotFound(f"Response with id '{response_id}' not found.", code="response_not_found")


def _as_listed(item: Item) -> Item:
    """Return an item as lists show it: with the fields that a caller may leave out."""
    kind = item["type"]
    if kind in ("function_call", "function_call_output"):
        return {"status": "completed"} | item
    if kind != "message":
        return item
    content = item["content"]
    if isinstance(content, str):
        is_answer = item["role"] == "assistant"
        content = [{"type": "output_text" if is_answer else "input_text", "text": content}]
    parts = [_LEFT_OUT.get(part["type"], {}) | part for part in content]
    return {"status": "completed"} | item | {"content": parts}


def _limit(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 100:
        raise InvalidRequest("limit must be 1 to 100", code="invalid_value", param="limit")
    return int(text)


def _page(items: list[Item], *, after: str | None, limit: int, order: str) -> dict[str, object]:
    if order not in ("asc", "desc"):
        raise InvalidRequest("order must be asc or desc", code="invalid_value", param="order")
    if order == "desc":
        items = items[::-1]
    start = 0
    if after is not None:
        ids = [item["id"] for item in items]
        if after not in ids:
            raise InvalidRequest(
                f"after names the item '{after}', which is not in this list",
                code="invalid_value",
                param="after",
            )
        start = ids.index(after) + 1
    page = items[start : start + limit]
    return {
        "object": "list",
        "data": page,
        "first_id": page[0]["id"] if page else None,
        "last_id": page[-1]["id"] if page else None,
        "has_more": start + limit < len(items),
    }


_RESPONSE: Final = "/v1/responses/{id}"
ROUTES: Final = [
    Route("POST", "/v1/responses", create),
    Route("GET", "/v1/responses", upgrade),
    Route("GET", _RESPONSE, retrieve),
    Route("DELETE", _RESPONSE, delete),
    Route("GET", f"{_RESPONSE}/input_items", input_items),
    Route("POST", f"{_RESPONSE}/cancel", not_built),
    Route("POST", "/v1/responses/compact", not_built),
    Route("POST", "/v1/responses/input_tokens", not_built),
    Route("POST", "/v1/conversations", not_built),
    *(Route(method, "/v1/conversations/{id}", not_built) for method in ("GET", "POST", "DELETE")),
    *(Route(method, "/v1/conversations/{id}/items", not_built) for method in ("GET", "POST")),
]
