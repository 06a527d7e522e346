"""Paths that are passed on to the provider of the model, as they are.

    POST /v1/embeddings      vectors for texts
    POST /v1/completions     text for a prompt, as JSON or as a stream

No turn runs: nothing is stored, repaired or sent again. Keys, limits, memory, the log and the
metrics are those of every request. Of the body, only `model` is changed, to the name that the
provider knows. An answer that breaks off is cut off here too.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

import msgspec
from aiohttp import web

from antiphon.backends.base import Relayed
from antiphon.engine.budget import COPIES
from antiphon.engine.prepare.validate import refuse_degraded
from antiphon.protocol.errors import BackendError, InvalidRequest
from antiphon.protocol.response import Usage
from antiphon.routing.choice import choose_first
from antiphon.server.api.body import read_data, read_json
from antiphon.server.api.request_keys import read_key
from antiphon.server.api.turns import event_stream
from antiphon.server.app import Call, Route, note_degraded
from antiphon.transport.aside import aside_if
from antiphon.wires.chat.chunks import read_usage

__all__ = ["ROUTES"]

_KEY_UNUSED: Final = "Idempotency-Key: requests to this path are passed on each time"
# The usage of a stream is in its last event but one.
_TAIL_BYTES: Final = 4096


class _Counted(msgspec.Struct):
    usage: Any = None


_read_counted = msgspec.json.Decoder(_Counted).decode


async def relay(path: str, call: Call) -> web.StreamResponse:
    """Pass the request on to the provider of its model; answer with what it answers."""
    app, data = call.app, await read_data(call)
    body = await read_json(call)
    if not isinstance(body, dict):
        raise InvalidRequest("the body must be a JSON object", code="invalid_type")
    model = body.get("model")
    if not isinstance(model, str) or not model:
        raise InvalidRequest("model is missing", code="missing_required_parameter", param="model")
    degraded = [] if read_key(call.request.headers) is None else [_KEY_UNUSED]
    if call.is_strict:
        refuse_degraded(degraded)
    route = await app.engine.catalog.route(model)
    chosen = choose_first(route)
    served_by = chosen.candidate
    call.entry.model, call.entry.upstream = model, served_by.provider
    is_large = len(data) > app.limits.parse_on_loop_bytes
    sent = await aside_if(is_large, msgspec.json.encode, {**body, "model": served_by.model})
    is_streamed = bool(body.get("stream"))
    with app.room_for_turn(), app.reading(call), route.board.seat(served_by, chosen.reason):
        async with served_by.backend.relay(path, sent, is_streamed=is_streamed) as relayed:
            answer = _stream if relayed.is_streamed else _whole
            return await answer(call, relayed, degraded)


async def _whole(call: Call, relayed: Relayed, degraded: list[str]) -> web.StreamResponse:
    """Answer with JSON once all of it has arrived."""
    limit = call.app.limits.body_bytes
    found = bytearray()
    async for piece in relayed.pieces:
        found += piece
        if len(found) > limit:
            raise BackendError(
                f"the upstream's answer is longer than {limit} bytes",
                code="upstream_invalid_response",
            )
        call.reserve(len(found) * COPIES)
    data = bytes(found)
    is_large = len(data) > call.app.limits.parse_on_loop_bytes
    _note_usage(call, await aside_if(is_large, _usage_of, data))
    answer = call.json(data)
    note_degraded(answer, degraded)
    return answer


async def _stream(call: Call, relayed: Relayed, degraded: list[str]) -> web.StreamResponse:
    """Answer with the events as they come. The head waits for the first of them."""
    answer = event_stream(call, tuple(degraded))
    tail = b""
    async for piece in relayed.pieces:
        if not answer.prepared:
            call.entry.note_first_event()
            await answer.prepare(call.request)
        await answer.write(piece)
        tail = (tail + piece)[-_TAIL_BYTES:]
    if not answer.prepared:
        raise BackendError("the upstream sent no event", code="upstream_closed")
    for line in tail.splitlines():
        if line.startswith(b"data: {"):
            _note_usage(call, _usage_of(line[6:]))
    await answer.write_eof()
    return answer


def _usage_of(data: bytes) -> Usage | None:
    """Return the usage that an answer reports, if it does."""
    try:
        usage = _read_counted(data).usage
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return read_usage(usage) if isinstance(usage, dict) else None


def _note_usage(call: Call, usage: Usage | None) -> None:
    if usage is not None:
        call.entry.note_usage(usage)
        call.app.metrics.note_usage(usage)


ROUTES: Final = [
    Route("POST", "/v1/embeddings", partial(relay, "/embeddings")),
    Route("POST", "/v1/completions", partial(relay, "/completions")),
]
