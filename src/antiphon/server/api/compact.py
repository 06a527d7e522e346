"""Two questions about a context that no response comes of: make it short, and how long is it?

POST /v1/responses/compact and POST /v1/responses/input_tokens take the body of a response. Its
context is put together as for a real turn, and nothing of it is stored or locked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

import msgspec
from aiohttp import web

from antiphon.accounts.runs import read_run
from antiphon.engine.prepare.context_size import ContextSize
from antiphon.engine.prepare.count import count_tokens
from antiphon.engine.prepare.history import conversation_of
from antiphon.engine.prepare.seal import HOW_TO
from antiphon.engine.prepare.validate import refuse_degraded
from antiphon.engine.run import compact as compaction
from antiphon.engine.run.turn import Turn
from antiphon.protocol.errors import InvalidRequest, NotBuilt, no_conversation
from antiphon.protocol.items import item_type
from antiphon.protocol.request import CreateResponse
from antiphon.server.api.body import read_create, read_data
from antiphon.server.api.pages import as_listed
from antiphon.server.app import Call, Route, note_degraded, note_limits
from antiphon.store.base import Size

__all__ = ["ROUTES"]


async def compact(call: Call) -> web.StreamResponse:
    """Answer with the items that take the place of the whole context."""
    engine = call.app.engine
    request = await _read(call)
    if not request.model:
        raise InvalidRequest("model is missing", code="missing_required_parameter", param="model")
    if engine.sealer is None:
        raise NotBuilt(f"nothing can be compacted here: {HOW_TO}")
    async with call.app.room_for_turn(call.owner):
        turn = await _begin(call, request)
        call.entry.model, call.entry.upstream = turn.model, turn.served_by.provider
        with call.app.running(turn):
            try:
                done = await compaction.compact(
                    turn.route, turn.plan, call.owner, engine.sealer, engine.mint, turn.charges
                )
            except asyncio.CancelledError:
                if turn.interruption is None:
                    raise
                raise turn.interruption from None
            finally:
                await asyncio.shield(turn.charges.close())
    call.entry.note_usage(done.usage)
    if call.is_strict:
        refuse_degraded(done.degraded)
    body: dict[str, Any] = {
        "id": turn.response_id,
        "object": "response.compaction",
        "created_at": engine.now(),
        "output": [as_listed(item) for item in done.output],
        "usage": done.usage,
    }
    notes: dict[str, Any] = {"usage": "estimated"} if done.is_estimated else {}
    if turn.charges.cost is not None:
        notes["cost"] = turn.charges.cost
    if notes:
        body["antiphon"] = notes
    answer = _answer(call, body, [*turn.degraded, *done.degraded])
    note_limits(answer, turn.charges)
    return answer


async def input_tokens(call: Call) -> web.StreamResponse:
    """Answer with the number of tokens that this request would send to the model."""
    request = await _read(call)
    async with call.app.room_for_turn(call.owner):
        turn = await _begin(call, request)
        count = await count_tokens(turn.route.first.backend, turn.plan)
    body: dict[str, Any] = {"object": "response.input_tokens", "input_tokens": count.tokens}
    if count.is_estimated:
        body["antiphon"] = {"usage": "estimated"}
    return _answer(call, body, turn.degraded)


async def _begin(call: Call, request: CreateResponse) -> Turn:
    return await call.app.engine.begin(
        request,
        call.principal,
        strict=call.is_strict,
        run=read_run(call.request.headers, call.principal),
        hold=call.held,
        body_bytes=len(await read_data(call)),
    )


async def _read(call: Call) -> CreateResponse:
    """Return the request as one that leaves no trace."""
    request = await read_create(call)
    request.stream = request.background = request.generate = None
    name = conversation_of(request)
    if name is None or request.previous_response_id is not None:
        return request
    # A turn would become the writer of the conversation; for a look, its items are enough.
    engine = call.app.engine
    size = ContextSize(
        engine.setup.context_limits,
        call.held,
        Size(len(request.items), len(await read_data(call))),
    )
    earlier = await engine.store.conversations.items(
        call.owner, name, admit=size.admit_conversation
    )
    if earlier is None:
        raise no_conversation(name, "conversation")
    known = {item.get("id") for item in earlier}
    own = [
        item
        for item in request.items
        if item_type(item) != "item_reference" or item["id"] not in known
    ]
    request.input = [*earlier, *own]
    request.conversation = None
    return request


def _answer(call: Call, body: dict[str, Any], degraded: Sequence[str]) -> web.Response:
    answer = call.json(msgspec.json.encode(body))
    note_degraded(answer, degraded)
    return answer


ROUTES: Final = [
    Route("POST", "/v1/responses/compact", compact),
    Route("POST", "/v1/responses/input_tokens", input_tokens),
]
