"""A native Responses server for tests: it plays the answers it was given, in order."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Literal

import msgspec

from antiphon.protocol.codec import DONE, Dialect, encode_response, encode_sse
from antiphon.protocol.deltas import Delta
from antiphon.protocol.events import Event
from antiphon.protocol.response import Response
from tests.building import build
from tests.transport.raw import Connection, RawServer, Request, chunk, head, raw_server

__all__ = ["Answer", "NativeServer", "error", "events", "native", "response", "whole"]


class Answer(msgspec.Struct, kw_only=True):
    """One answer: pieces of a body, and what happens after the last of them."""

    pieces: Sequence[bytes]
    status: int = 200
    content_type: str = "text/event-stream"
    headers: Mapping[str, str] = {}
    then: Literal["end", "reset", "stall"] = "end"


class NativeServer:
    """What was asked."""

    def __init__(self, raw: RawServer) -> None:
        self.raw = raw

    @property
    def base_url(self) -> str:
        return f"{self.raw.url}/v1"

    @property
    def requests(self) -> list[Request]:
        return self.raw.requests

    def body(self, number: int) -> dict[str, Any]:
        """Return the JSON of a request, counted from 0."""
        body: dict[str, Any] = msgspec.json.decode(self.raw.requests[number].body)
        return body


@asynccontextmanager
async def native(
    *answers: Answer | Callable[[Request], Answer],
) -> AsyncIterator[NativeServer]:
    """Run the server. A request beyond the last answer gets that one again.

    A function in place of an answer returns the one for its request.
    """
    waiting = list(answers)

    async def script(request: Request, connection: Connection) -> None:
        found = waiting.pop(0) if len(waiting) > 1 else waiting[0]
        answer = found if isinstance(found, Answer) else found(request)
        extra = [f"{name}: {value}" for name, value in answer.headers.items()]
        await connection.write(
            head(answer.content_type, *extra, status=f"{answer.status} Something")
        )
        for piece in answer.pieces:
            await connection.write(chunk(piece))
        if answer.then == "stall":
            await connection.until_closed()
            raw.closed.set()
        elif answer.then == "reset":
            connection.reset()
        else:
            await connection.write(chunk(b""))

    async with raw_server(script) as raw:
        yield NativeServer(raw)


def events(stream: Sequence[Event], *, dialect: Dialect = "openai", **settings: Any) -> Answer:
    """Return these events as a stream, each in a write of its own."""
    return Answer(pieces=[*(encode_sse(event, dialect) for event in stream), DONE], **settings)


def response(*deltas: Delta, dialect: Dialect = "openai", **settings: Any) -> Answer:
    """Return the stream that these deltas make."""
    return events(build(deltas), dialect=dialect, **settings)


def whole(answer: Response) -> Answer:
    """Return a response in one piece."""
    return Answer(pieces=[encode_response(answer)], content_type="application/json")


def error(status: int, code: str | None = None, message: str = "no", **headers: str) -> Answer:
    """Return a refusal in OpenAI's shape."""
    body = {"error": {"message": message, "type": "some_error", "code": code, "param": None}}
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Answer(
        pieces=[msgspec.json.encode(body)],
        status=status,
        content_type="application/json",
        headers=named,
    )
