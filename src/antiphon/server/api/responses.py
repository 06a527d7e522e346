"""POST /v1/responses, and what can be done with a response afterwards."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Final

import msgspec
from aiohttp import web

from antiphon.protocol.codec import encode_response
from antiphon.protocol.errors import InvalidRequest, ResponseDeleted, no_response
from antiphon.protocol.includes import Hidden, hidden_in_stream
from antiphon.protocol.machines.log import packed_at
from antiphon.protocol.times import ResponseTimes, TimedBatch
from antiphon.server.api.pages import cut_page, read_include, read_page_query
from antiphon.server.api.turns import answer_turn, stream_log
from antiphon.server.app import Call, Route
from antiphon.wires.responses.door import ResponsesDoor, ResponsesEncoder

__all__ = ["ROUTES"]

_MAX_DIGITS: Final = 18
_BOOLEANS: Final = {"true": True, "1": True, "false": False, "0": False}


def create(call: Call) -> Awaitable[web.StreamResponse]:
    """Run a turn; answer with its response, or with its events as they come."""
    return answer_turn(call, ResponsesDoor(call.dialect, call.inputs))


async def retrieve(call: Call) -> web.StreamResponse:
    """Return a stored response, finished or not; or its events, from any of them on."""
    dialect = call.dialect
    query = call.request.query
    is_streamed = _is_true(query.get("stream", "false"), "stream")
    after = _sequence_number(query.get("starting_after"), is_streamed=is_streamed)
    # What is reserved here is kept while the log, which repeats the output, is replayed.
    response = await call.app.engine.store.get(call.owner, call.path_id, admit=call.reserve_read())
    if response is None:
        raise no_response(call.path_id)
    include = read_include(call)
    if not is_streamed:
        return call.json(encode_response(Hidden(include).response(response), dialect))
    agent = call.request.headers.get("User-Agent", "")
    encoder = ResponsesEncoder(dialect, agent, hidden_in_stream(response.tools, include))
    return await stream_log(call, call.path_id, encoder, after)


async def times(call: Call) -> web.StreamResponse:
    """Return when the events of a response were written, batch by batch."""
    store = call.app.engine.store
    # The log repeats the output: what is reserved for that is kept while it is read.
    response = await store.get(call.owner, call.path_id, admit=call.reserve_read())
    log = response and await store.read_log(call.owner, call.path_id)
    if not log:
        raise no_response(call.path_id)
    batches = [
        TimedBatch(first=batch.first, last=batch.last, ms=packed_at(batch.body))
        for batch in (log.batches if log.is_kept else ())
    ]
    found = ResponseTimes(
        response_id=log.response.id, created_at=log.response.created_at, batches=batches
    )
    return call.json(msgspec.json.encode(found))


async def cancel(call: Call) -> web.StreamResponse:
    """Cancel a response in the background, or one that outlives its reader; return its end."""
    dialect, app = call.dialect, call.app
    outlives_reader = app.engine.setup.on_disconnect == "finish"
    if outlives_reader:
        app.cancel(call.owner, call.path_id)
    response = await app.engine.background.cancel(
        call.owner, call.path_id, outlives_reader=outlives_reader
    )
    return call.json(encode_response(Hidden().response(response), dialect))


async def delete(call: Call) -> web.StreamResponse:
    """Remove a response and its items for good."""
    if not await call.app.engine.delete(call.owner, call.path_id):
        raise no_response(call.path_id)
    call.app.interrupt(call.owner, call.path_id, ResponseDeleted())
    body = {"id": call.path_id, "object": "response.deleted", "deleted": True}
    return call.json(msgspec.json.encode(body))


async def input_items(call: Call) -> web.StreamResponse:
    """Return a page of the items this response was given."""
    items = await call.app.engine.store.input_items(
        call.owner, call.path_id, admit=call.reserve_read()
    )
    if items is None:
        raise no_response(call.path_id)
    return call.json(await cut_page(items, read_page_query(call)))


def _is_true(text: str, param: str) -> bool:
    if text.lower() not in _BOOLEANS:
        raise InvalidRequest(f"{param} must be true or false", code="invalid_value", param=param)
    return _BOOLEANS[text.lower()]


def _sequence_number(text: str | None, *, is_streamed: bool) -> int:
    if text is None:
        return -1
    if not is_streamed or not text.isdecimal() or len(text) > _MAX_DIGITS:
        raise InvalidRequest(
            "starting_after must be the sequence_number of an event, with stream=true",
            code="invalid_value",
            param="starting_after",
        )
    return int(text)


_RESPONSE: Final = "/v1/responses/{id}"
ROUTES: Final = [
    Route("POST", "/v1/responses", create),
    Route("GET", _RESPONSE, retrieve),
    Route("DELETE", _RESPONSE, delete),
    Route("GET", f"{_RESPONSE}/input_items", input_items),
    Route("POST", f"{_RESPONSE}/cancel", cancel),
    Route("GET", f"{_RESPONSE}/antiphon/times", times),
]
