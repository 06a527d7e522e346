"""POST /v1/responses, and what can be done with a response afterwards."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from functools import partial
from typing import Final

import msgspec
from aiohttp import web

from antiphon.engine.keep.recovery import keep_request
from antiphon.engine.run.sinks import show_all
from antiphon.engine.run.turn import Turn
from antiphon.protocol.codec import Dialect, encode_response
from antiphon.protocol.errors import InvalidRequest, ResponseDeleted, no_response
from antiphon.protocol.events import Event
from antiphon.protocol.request import CreateResponse
from antiphon.protocol.response import Response
from antiphon.server.api.body import read_create, read_data
from antiphon.server.api.idempotency import First, Run
from antiphon.server.api.pages import cut_page, read_page_query
from antiphon.server.api.request_keys import REPLAYED
from antiphon.server.app import Call, Route, note_degraded
from antiphon.server.delivery.sse import SseSink
from antiphon.server.request_log import noting

__all__ = ["ROUTES"]

_MAX_DIGITS: Final = 18
_BOOLEANS: Final = {"true": True, "1": True, "false": False, "0": False}


async def create(call: Call) -> web.StreamResponse:
    """Run a turn; answer with its response, or with its events as they come."""
    dialect = call.dialect
    request = await read_create(call)
    app, headers = call.app, call.request.headers
    guard = partial(app.keys.guarding, call.key_id)
    run_of = app.once.admit(call.owner, headers, await read_data(call), request, guard)
    async with await run_of as run:
        if run.first is not None:
            return await _repeat(call, request, run.first, dialect)
        if request.background:
            return await _create_in_background(call, request, run, dialect)
        with app.room_for_turn():
            turn = await app.engine.begin(
                request,
                call.principal,
                strict=call.is_strict,
                response_id=run.response_id,
                hold=call.held,
                body_bytes=len(await read_data(call)),
            )
            with app.running(turn), noting(call.entry, turn):
                if request.stream:
                    return await _stream_turn(call, turn, run, dialect)
                response = await run.respond(turn)
    return _whole(call, response, turn.degraded, dialect)


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
    if not is_streamed:
        return call.json(encode_response(response, dialect))
    return await _stream_log(call, call.path_id, dialect, after)


async def cancel(call: Call) -> web.StreamResponse:
    """Cancel a background response; return it as it ended."""
    dialect = call.dialect
    response = await call.app.engine.background.cancel(call.owner, call.path_id)
    return call.json(encode_response(response, dialect))


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


async def _create_in_background(
    call: Call, request: CreateResponse, run: Run, dialect: Dialect
) -> web.StreamResponse:
    background = call.app.engine.background
    with background.room():
        data = await read_data(call)
        turn = await call.app.engine.begin(
            request,
            call.principal,
            strict=call.is_strict,
            response_id=run.response_id,
            hold=call.held,
            body_bytes=len(data),
        )
        kept = keep_request(data, is_strict=call.is_strict)
        call.entry.note_turn(turn)
        response = await background.submit(turn, kept)
        call.entry.note_end(response)
        call.give_hold()
    run.note_accepted()
    if request.stream:
        return await _stream_log(call, response.id, dialect, degraded=turn.degraded)
    return _whole(call, response, turn.degraded, dialect)


async def _repeat(
    call: Call, request: CreateResponse, first: First, dialect: Dialect
) -> web.StreamResponse:
    """Answer with what the same request was answered with before."""
    call.entry.note_end(first.response)
    notes = first.response.antiphon
    degraded = notes.degraded if notes else ()
    if not request.stream:
        answer = _whole(call, first.response, degraded, dialect)
        answer.headers[REPLAYED] = "1"
        return answer
    stream = _event_stream(call, degraded)
    stream.headers[REPLAYED] = "1"
    return await _write_events(call, stream, first.events(), dialect)


async def _stream_turn(call: Call, turn: Turn, run: Run, dialect: Dialect) -> web.StreamResponse:
    def head() -> web.StreamResponse:  # until here, a fault is an HTTP error
        call.entry.note_first_event()
        return _event_stream(call, turn.degraded)

    async with SseSink(call.request, head, dialect, call.app.limits) as sink:
        await run.run(turn, sink)
        await sink.end()
        return sink.response


async def _stream_log(
    call: Call,
    response_id: str,
    dialect: Dialect,
    after: int = -1,
    degraded: tuple[str, ...] = (),
) -> web.StreamResponse:
    call.reserve(0)
    answer = _event_stream(call, degraded)
    batches = call.app.engine.follow(call.owner, response_id, after)
    return await _write_events(call, answer, batches, dialect)


async def _write_events(
    call: Call,
    answer: web.StreamResponse,
    batches: AsyncGenerator[list[Event], None],
    dialect: Dialect,
) -> web.StreamResponse:
    async with (
        aclosing(batches),
        SseSink(call.request, lambda: answer, dialect, call.app.limits) as sink,
    ):
        await sink.drained()  # its first event may take long
        with call.app.reading(call):
            async for batch in batches:
                await show_all(sink, batch)
            await sink.end()
    return answer


def _whole(
    call: Call, response: Response, degraded: tuple[str, ...], dialect: Dialect
) -> web.Response:
    answer = call.json(encode_response(response, dialect))
    note_degraded(answer, degraded)
    return answer


def _event_stream(call: Call, degraded: tuple[str, ...]) -> web.StreamResponse:
    answer = web.StreamResponse()
    answer.content_type = "text/event-stream"
    answer.charset = "utf-8"
    answer.headers["Cache-Control"] = "no-cache"
    answer.headers["X-Accel-Buffering"] = "no"
    call.sign(answer)
    note_degraded(answer, degraded)
    return answer


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
]
