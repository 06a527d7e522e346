"""POST /v1/messages and /v1/messages/count_tokens: Anthropic's API, in front of every model."""

from __future__ import annotations

from typing import Final

import msgspec
from aiohttp import web

from antiphon.engine.prepare.count import count_tokens
from antiphon.protocol.errors import AntiphonError, ContextOverflow, InvalidRequest
from antiphon.server.api.body import read_data
from antiphon.server.api.turns import answer_turn
from antiphon.server.app import Call, Route, note_degraded
from antiphon.transport.aside import aside_if
from antiphon.wires.messages.door import (
    MessagesAsked,
    MessagesDoor,
    estimate_prompt,
    write_error,
)
from antiphon.wires.messages.errors import overflow_words, status_of

__all__ = ["ROUTES"]

_COUNTED: Final = "x-antiphon-count"


async def create(call: Call) -> web.StreamResponse:
    """Run a turn; answer with its message, or with its events as they come."""
    try:
        return await answer_turn(call, _door(call))
    except ContextOverflow as error:
        raise ContextOverflow(await _overflow_words(call, error)) from error
    except AntiphonError as error:
        error.status = status_of(error.status)
        raise


async def count(call: Call) -> web.StreamResponse:
    """Answer with the number of tokens that this request would send to the model.

    No model runs for it. A header states whether the number is exact or an estimate.
    """
    try:
        asked = await _read(call)
        try:
            return await _count(call, asked)
        except InvalidRequest as error:
            raise _door(call).rename(await read_data(call), call.request.headers, error) from None
    except AntiphonError as error:
        error.status = status_of(error.status)
        raise


async def _count(call: Call, asked: MessagesAsked) -> web.StreamResponse:
    engine, request = call.app.engine, asked.request
    request.stream = request.generate = None
    request.store = False
    async with call.app.room_for_turn(call.owner):
        turn = await engine.begin(
            request,
            call.principal,
            strict=call.is_strict,
            carries_state=call.app.doors.keep_state and not asked.returns_state,
            returns_items=asked.returns_items,
            carries_items=call.app.doors.keep_state,
            hold=call.held,
            body_bytes=len(await read_data(call)),
        )
        found = await count_tokens(turn.route.first.backend, turn.plan)
    answer = call.json(msgspec.json.encode({"input_tokens": found.tokens}))
    answer.headers[_COUNTED] = "estimate" if found.is_estimated else "exact"
    note_degraded(answer, turn.degraded)
    return answer


def _door(call: Call) -> MessagesDoor:
    app = call.app
    return MessagesDoor(can_seal=app.engine.sealer is not None, store=app.doors.store)


async def _read(call: Call) -> MessagesAsked:
    data = await read_data(call)
    is_large = len(data) > call.app.limits.parse_on_loop_bytes
    return await aside_if(is_large, _door(call).read, data, call.request.headers)


async def _overflow_words(call: Call, error: ContextOverflow) -> str:
    """Return the words that make a client compact, with numbers where any are known."""
    request = (await _read(call)).request
    route = await call.app.engine.catalog.route(request.model)
    return overflow_words(error, estimate_prompt(request), route.context_length)


ROUTES: Final = [
    Route("POST", "/v1/messages", create, write_error=write_error),
    Route("POST", "/v1/messages/count_tokens", count, write_error=write_error),
]
