"""POST /v1/chat/completions: the chat API, in front of every model."""

from __future__ import annotations

from typing import Final

from aiohttp import web

from antiphon.protocol.errors import InvalidRequest
from antiphon.server.api.body import read_data
from antiphon.server.api.turns import answer_turn
from antiphon.server.app import Call, Route
from antiphon.transport.aside import aside_if
from antiphon.wires.chat.door import ChatDoor

__all__ = ["ROUTES"]


async def create(call: Call) -> web.StreamResponse:
    """Run a turn; answer with its completion, or with its chunks as they come."""
    app = call.app
    door = ChatDoor(store=app.doors.store, seals=app.engine.sealer is not None)
    try:
        return await answer_turn(call, door)
    except InvalidRequest as error:
        raise await _in_words_of_caller(call, door, error) from error


async def _in_words_of_caller(call: Call, door: ChatDoor, error: InvalidRequest) -> InvalidRequest:
    """Return an error of a request that was read, with the names that the body has.

    The body is read again for it; one that cannot be read raises what it raised before.
    """
    data = await read_data(call)
    is_large = len(data) > call.app.limits.parse_on_loop_bytes
    asked = await aside_if(is_large, door.read, data, call.request.headers)
    return asked.ask.names.rename(error)


ROUTES: Final = [Route("POST", "/v1/chat/completions", create)]
