"""Ways to ask a gateway in tests, over a real socket."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

import aiohttp
import msgspec

from antiphon.protocol.codec import decode_event
from antiphon.protocol.events import (
    Event,
    ResponseCompleted,
    ResponseFailed,
    ResponseIncomplete,
)
from antiphon.protocol.machines.referee import judge_stream
from antiphon.protocol.response import Response
from antiphon.protocol.sse import SseDecoder
from antiphon.testing.gateway import Gateway

_LONG = 1024 * 1024

__all__ = ["Answer", "ask", "ask_stream", "events_of", "request", "terminal"]


class Answer(msgspec.Struct):
    """What came back: status, headers, and the body as it stands and as JSON."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.body)

    @property
    def error(self) -> dict[str, Any]:
        error: dict[str, Any] = self.json["error"]
        return error


async def request(
    gateway: Gateway,
    method: str,
    path: str,
    body: object = None,
    headers: Mapping[str, str] | None = None,
) -> Answer:
    """Ask for any path below /v1; a body that is bytes goes out as it stands."""
    given = body if isinstance(body, bytes | None) else msgspec.json.encode(body)
    # The client library wants long bodies as files.
    data = io.BytesIO(given) if given and len(given) > _LONG else given
    types = {} if data is None else {"Content-Type": "application/json"}
    sent = {**types, **(headers or {})}
    async with (
        aiohttp.ClientSession() as session,
        session.request(method, gateway.base_url + path, data=data, headers=sent) as answer,
    ):
        return Answer(answer.status, answer.headers, await answer.read())


async def ask(gateway: Gateway, headers: Mapping[str, str] | None = None, /, **body: Any) -> Answer:
    """Create a response without streaming; a bare text input is enough."""
    return await request(gateway, "POST", "/responses", {"input": "hello"} | body, headers)


async def ask_stream(
    gateway: Gateway, headers: Mapping[str, str] | None = None, /, **body: Any
) -> list[Event]:
    """Create a response as a stream, let the referee judge it, and return its events."""
    answer = await ask(gateway, headers, stream=True, **body)
    assert answer.status == 200, answer.body
    events = events_of(answer.body)
    assert judge_stream(events) == []
    return events


def events_of(body: bytes) -> list[Event]:
    """Return the events of a whole SSE body, which must end as the protocol says."""
    assert (b"\n\n" + body).endswith(b"\n\ndata: [DONE]\n\n"), body[-200:]
    decoder = SseDecoder()
    frames = decoder.feed(body) + decoder.end()
    return [decode_event(frame.data) for frame in frames[:-1]]


def terminal(events: list[Event]) -> Response:
    """Return the response of the last event."""
    last = events[-1]
    assert isinstance(last, ResponseCompleted | ResponseFailed | ResponseIncomplete)
    return last.response
