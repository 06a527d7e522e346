"""One request for a turn, through any door: read it, run it, answer it.

    body -> door.read -> CreateResponse -> claim of its key -> room -> turn -> encoder or whole

Every door has the same limits, memory, request log, metrics and idempotency, because they are
here and a door is only a reader and a writer. The caller was authenticated before.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable
from contextlib import aclosing
from functools import partial
from typing import Final

from aiohttp import HttpVersion11, web

from antiphon.accounts.runs import read_run
from antiphon.engine.keep.recovery import keep_request
from antiphon.engine.prepare.tool_secrets import hide_secrets
from antiphon.engine.run.sinks import show_all
from antiphon.engine.run.turn import Turn
from antiphon.protocol.errors import InvalidRequest
from antiphon.protocol.events import Event
from antiphon.protocol.response import Response
from antiphon.routing.affinity import SESSION_HEADER
from antiphon.server.api.body import read_data
from antiphon.server.api.idempotency import Admission, PriorAnswer
from antiphon.server.api.request_keys import REPLAYED
from antiphon.server.app import Call, note_degraded, note_served
from antiphon.server.delivery.sse import SseSink
from antiphon.server.request_log import noting
from antiphon.transport.aside import aside, aside_if
from antiphon.wires.door import Asked, Door, EventEncoder

__all__ = ["answer_turn", "event_stream", "stream_log"]

_STREAM: Final = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-cache",
    "X-Accel-Buffering": "no",
}


async def answer_turn(call: Call, door: Door) -> web.StreamResponse:
    """Run the turn that a body asks for; answer whole, or with its events as they come."""
    app, headers = call.app, call.request.headers
    data = await read_data(call)
    is_large = len(data) > app.limits.parse_on_loop_bytes
    asked = await aside(door.read, data, headers) if is_large else door.read(data, headers)
    try:
        return await _answer(call, door, asked, data)
    except InvalidRequest as error:
        raise await aside_if(is_large, door.rename, data, headers, error) from None


async def _answer(call: Call, door: Door, asked: Asked, data: bytes) -> web.StreamResponse:
    app, headers, request = call.app, call.request.headers, asked.request
    guard = partial(app.keys.guarding, call.principal)
    admitted = app.idempotency.admit(
        call.principal, headers, data, request, guard, call.entry.route
    )
    async with await admitted as admission:
        if admission.prior is not None:
            return await _repeat(call, asked, admission.prior)
        if request.background:
            return await _run_in_background(call, asked, admission, data)
        async with app.room_for_turn(call.owner):
            turn = await _begin(call, asked, admission, len(data))
            turn.streams_overflow = door.streams_overflow
            with app.running(turn), noting(call.entry, turn):
                if request.stream:
                    return await _stream_turn(call, asked, turn, admission)
                response = await admission.respond(turn)
    answer = _whole(call, asked, response, turn.degraded)
    note_served(answer, turn)
    return answer


async def stream_log(
    call: Call,
    response_id: str,
    encoder: EventEncoder,
    after: int = -1,
    degraded: tuple[str, ...] = (),
) -> web.StreamResponse:
    """Answer with the events of a response after a sequence number, live if it still runs."""
    call.reserve(0)
    answer = event_stream(call, degraded)
    batches = call.app.engine.follow(call.owner, response_id, after)
    return await _write_events(call, answer, batches, encoder)


def _begin(call: Call, asked: Asked, admission: Admission, body_bytes: int) -> Awaitable[Turn]:
    keeps_state = call.app.doors.keep_state
    return call.app.engine.begin(
        asked.request,
        call.principal,
        strict=call.is_strict,
        response_id=admission.response_id,
        session=call.request.headers.get(SESSION_HEADER),
        run=read_run(call.request.headers, call.principal),
        carries_state=keeps_state and not asked.returns_state,
        returns_items=asked.returns_items,
        carries_items=keeps_state,
        hold=call.held,
        body_bytes=body_bytes,
    )


async def _run_in_background(
    call: Call, asked: Asked, admission: Admission, data: bytes
) -> web.StreamResponse:
    background = call.app.engine.background
    with background.room(call.owner):
        turn = await _begin(call, asked, admission, len(data))
        body = hide_secrets(data, call.owner, call.app.engine.sealer)
        kept = keep_request(
            body,
            call.principal,
            read_run(call.request.headers, call.principal),
            is_strict=call.is_strict,
        )
        call.entry.note_turn(turn)
        response = await background.submit(turn, kept)
        call.entry.note_end(response)
        call.give_hold()
    admission.note_accepted()
    if asked.request.stream:
        return await stream_log(call, response.id, asked.encoder(), degraded=turn.degraded)
    return _whole(call, asked, response, turn.degraded)


async def _repeat(call: Call, asked: Asked, prior: PriorAnswer) -> web.StreamResponse:
    """Answer with what the same request was answered with before."""
    call.entry.note_end(prior.response)
    notes = prior.response.antiphon
    degraded = notes.degraded if notes else ()
    if not asked.request.stream:
        answer = _whole(call, asked, prior.response, degraded)
        answer.headers[REPLAYED] = "1"
        return answer
    stream = event_stream(call, degraded)
    stream.headers[REPLAYED] = "1"
    return await _write_events(call, stream, prior.events(), asked.encoder())


async def _stream_turn(
    call: Call, asked: Asked, turn: Turn, admission: Admission
) -> web.StreamResponse:
    def head() -> web.StreamResponse:  # until here, a fault is an HTTP error
        call.entry.note_first_event()
        answer = event_stream(call, turn.degraded)
        note_served(answer, turn)
        return answer

    async with SseSink(call.request, head, asked.encoder(), call.app.limits) as sink:
        await admission.run(turn, sink)
        await sink.end()
        return sink.response


async def _write_events(
    call: Call,
    answer: web.StreamResponse,
    batches: AsyncGenerator[list[Event], None],
    encoder: EventEncoder,
) -> web.StreamResponse:
    async with (
        aclosing(batches),
        SseSink(call.request, lambda: answer, encoder, call.app.limits) as sink,
    ):
        await sink.drained()  # its first event may take long
        with call.app.reading(call):
            async for batch in batches:
                await show_all(sink, batch)
            await sink.end()
    return answer


def _whole(call: Call, asked: Asked, response: Response, degraded: tuple[str, ...]) -> web.Response:
    answer = call.json(asked.write_whole(response))
    note_degraded(answer, degraded)
    return answer


def event_stream(call: Call, degraded: tuple[str, ...]) -> web.StreamResponse:
    """Return the head of an answer of server-sent events.

    It leaves with the first of them, in one write, unless the writer is asked to send it before.
    Over HTTP/1.0, which knows no chunks, it leaves at once.
    """
    answer: web.StreamResponse
    if call.request.version < HttpVersion11:
        answer = web.StreamResponse(headers=_STREAM)
    else:
        answer = web.Response(headers=_STREAM)
        answer.enable_chunked_encoding()
    call.sign(answer)
    note_degraded(answer, degraded)
    return answer
