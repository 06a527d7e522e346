"""POST /v1/chat/completions: the chat API, in front of every model."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Final

from aiohttp import web

from antiphon.server.api.turns import answer_turn
from antiphon.server.app import Call, Route
from antiphon.wires.chat.door import ChatDoor

__all__ = ["ROUTES"]


def create(call: Call) -> Awaitable[web.StreamResponse]:
    """Run a turn; answer with its completion, or with its chunks as they come."""
    app = call.app
    door = ChatDoor(store=app.doors.store, seals=app.engine.sealer is not None)
    return answer_turn(call, door)


ROUTES: Final = [Route("POST", "/v1/chat/completions", create)]
