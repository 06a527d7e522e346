"""One error tree for both wires: the same situation raises the same error on each of them.

Every situation is played by a real server on the loopback, once in the words of the Responses
API and once in those of chat completions. The row of the table says what must be raised, with
which attributes, what arrived before it (`partial`), and how many requests were sent.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Literal

import msgspec
import pytest

from antiphon.client import AsyncClient, Client, errors
from antiphon.client.settings import Timeouts
from antiphon.protocol.codec import encode_sse
from antiphon.protocol.deltas import Stopped, TextGrew
from antiphon.protocol.events import ErrorEvent, ResponseFailed
from antiphon.protocol.response import Failure, Response
from tests.building import build
from tests.client.calling import KINDS, calling
from tests.client.native import Answer, NativeServer, events, native, response
from tests.transport.raw import Request

WireName = Literal["responses", "chat"]
Json = dict[str, Any]

WIRES: tuple[WireName, ...] = ("responses", "chat")
JSON = "application/json"
PATIENT = Timeouts(connect=30, idle=30, answer=30)
IMPATIENT = Timeouts(connect=30, idle=2, answer=2)  # long enough for a busy machine
BUSY: Json = {"message": "Too busy.", "code": "server_is_busy", "type": "server_error"}
SPENT: Json = {"message": "Slow down.", "code": "rate_limit_exceeded", "type": "rate_limit_error"}


class Raised(msgspec.Struct, frozen=True):
    """What a caller sees of an error, and how many requests it took."""

    kind: type[errors.ClientError]
    status: int = 0
    code: str | None = None
    param: str | None = None
    retry_after: float | None = None
    request_id: str | None = None
    partial: str | None = None
    """The text that arrived before it; None if there is no partial response."""
    requests: int = 1


def begun(wire: WireName) -> list[bytes]:
    """Return the beginning of a stream that says "one two", with nothing after it."""
    if wire == "responses":
        said = build([TextGrew("one "), TextGrew("two")])
        cut = next(i for i, event in enumerate(said) if event.type == "response.output_text.done")
        return [encode_sse(event) for event in said[:cut]]
    return [chunk(role="assistant", content=""), chunk(content="one "), chunk(content="two")]


def error_event(wire: WireName, error: Json) -> bytes:
    """Return an error as it stands in a stream."""
    if wire == "chat":
        return b"data: %b\n\n" % json.dumps({"error": error}).encode()
    event = ErrorEvent(
        sequence_number=9, code=error["code"], message=error["message"], param=error.get("param")
    )
    return encode_sse(event)


def chunk(finish_reason: str | None = None, **delta: object) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
    return b"data: %b\n\n" % json.dumps({"choices": [choice]}).encode()


Play = Callable[[WireName], Answer]


def stream(*, then: Any = "end", after: Callable[[WireName], bytes] | None = None) -> Play:
    """Play a stream that says "one two", then perhaps something else, and stops there."""
    return lambda wire: Answer(pieces=[*begun(wire), *([after(wire)] if after else [])], then=then)


def first(data: Callable[[WireName], bytes] | bytes = b"", *, then: Any = "end") -> Play:
    """Play a stream that begins with this."""

    def play(wire: WireName) -> Answer:
        piece = data if isinstance(data, bytes) else data(wire)
        return Answer(pieces=[piece] if piece else [], then=then)

    return play


def body(
    data: bytes | Json, status: int = 200, kind: str = JSON, then: Any = "end", **headers: str
) -> Play:
    """Play an answer that is no stream."""
    raw = data if isinstance(data, bytes) else json.dumps(data).encode()
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda wire: Answer(
        pieces=[raw] if raw else [], status=status, content_type=kind, headers=named, then=then
    )


def refusal(status: int, code: str | None = None, message: str = "No.", **headers: str) -> Play:
    """Play an error with a body in OpenAI's shape."""
    error = {"message": message, "type": "some_error", "code": code, "param": "input"}
    return body({"error": error}, status, x_request_id="req_1", **headers)


def raised(kind: type[errors.ClientError], **facts: Any) -> Raised:
    return Raised(kind, **facts)


def refused(kind: type[errors.ClientError], status: int, **facts: Any) -> Raised:
    """Return what a refusal raises."""
    found = {"code": "some_error", "param": "input", "request_id": "req_1", **facts}
    return Raised(kind, status, **found)


BROKEN, SILENT = errors.StreamBroken, errors.TimedOut
UNREADABLE = raised(errors.InvalidAnswer, status=200, code="server_invalid_response")
LOST_OUTPUT = "No tool output found for function call call_1."

# What is raised when a stream was asked for. Where nothing arrived before the fault, a retry is
# allowed; an answer in one piece is not asked for twice once its head has arrived.
TABLE: dict[str, tuple[Play, Raised]] = {
    # After output.
    "cut": (stream(then="reset"), raised(BROKEN, code="server_closed", partial="one two")),
    "ended early": (stream(), raised(BROKEN, code="stream_broken", partial="one two")),
    "silent": (stream(then="stall"), raised(SILENT, code="server_timeout", partial="one two")),
    "error event": (
        stream(after=lambda wire: error_event(wire, BUSY)),
        raised(BROKEN, code="server_is_busy", partial="one two"),
    ),
    "limit event": (
        stream(after=lambda wire: error_event(wire, SPENT)),
        raised(BROKEN, code="rate_limit_exceeded", partial="one two"),
    ),
    "garbage": (
        stream(after=lambda wire: b"data: {nonsense\n\n"),
        raised(BROKEN, code="server_invalid_response", partial="one two"),
    ),
    # Before output.
    "silent at once": (first(then="stall"), raised(SILENT, code="server_timeout")),
    "cut at once": (
        first(b": hello\n\n", then="reset"),
        raised(BROKEN, code="server_closed", requests=2),
    ),
    "no events": (first(), raised(BROKEN, code="stream_broken", requests=2)),
    "only the end mark": (
        first(b"data: [DONE]\n\n"),
        raised(BROKEN, code="stream_broken", requests=2),
    ),
    "error event at once": (
        first(lambda wire: error_event(wire, BUSY)),
        raised(errors.ServerFailed, status=502, code="server_is_busy", requests=2),
    ),
    "limit event at once": (
        first(lambda wire: error_event(wire, SPENT)),
        raised(errors.RateLimited, status=429, code="rate_limit_exceeded", requests=2),
    ),
    "garbage at once": (first(b"data: {nonsense\n\n"), UNREADABLE),
    "no object at once": (first(b"data: 7\n\n"), UNREADABLE),
    # Bodies.
    "a page": (body(b"<html>", kind="text/html"), UNREADABLE),
    "no JSON": (body(b"<html>"), UNREADABLE),
    "other JSON": (body({"hello": 1}), UNREADABLE),
    "a JSON list": (body(b"[]"), UNREADABLE),
    "an empty body": (body(b""), UNREADABLE),
    "a cut body": (
        body(b'{"id":', then="reset"),
        raised(BROKEN, code="server_closed", requests=2),
    ),
    "a silent body": (body(b'{"id":', then="stall"), raised(SILENT, code="server_timeout")),
    "an error under 200": (
        body({"error": BUSY}),
        raised(errors.ServerFailed, status=502, code="server_is_busy", requests=2),
    ),
    "a limit under 200": (
        body({"error": SPENT}),
        raised(errors.RateLimited, status=429, code="rate_limit_exceeded", requests=2),
    ),
}
REFUSALS: dict[str, tuple[Play, Raised]] = {
    "400": (refusal(400, "bad"), refused(errors.ValidationFailed, 400, code="bad")),
    "400 too long": (
        refusal(400, "context_length_exceeded"),
        refused(errors.ContextTooLong, 400, code="context_length_exceeded"),
    ),
    "400 no output": (
        refusal(400, message=LOST_OUTPUT),
        refused(errors.OutputMissing, 400),
    ),
    "401": (refusal(401, "bad_key"), refused(errors.AuthFailed, 401, code="bad_key")),
    "402": (refusal(402), refused(errors.QuotaExceeded, 402)),
    "403": (refusal(403), refused(errors.AuthFailed, 403)),
    "404": (refusal(404), refused(errors.ResourceNotFound, 404)),
    "404 thread": (
        refusal(404, "previous_response_not_found"),
        refused(errors.ThreadGone, 404, code="previous_response_not_found"),
    ),
    "409": (refusal(409), refused(errors.Conflict, 409)),
    "410": (refusal(410), refused(errors.ThreadGone, 410)),
    "418": (refusal(418), refused(errors.ServerRefused, 418)),
    "422": (refusal(422), refused(errors.ValidationFailed, 422)),
    "429": (
        refusal(429, retry_after="40"),
        refused(errors.RateLimited, 429, retry_after=40.0),
    ),
    "429 quota": (
        refusal(429, "insufficient_quota"),
        refused(errors.QuotaExceeded, 429, code="insufficient_quota"),
    ),
    "500": (refusal(500), refused(errors.ServerFailed, 500, requests=2)),
    "503": (
        refusal(503, retry_after="2"),
        refused(errors.ServerFailed, 503, retry_after=2.0, requests=2),
    ),
    "301": (refusal(301), refused(errors.InvalidAnswer, 301)),
    "400 page": (
        body(b"<h1>No</h1>", 400, "text/html"),
        raised(errors.ValidationFailed, status=400),
    ),
    "502 page": (
        body(b"<h1>No</h1>", 502, "text/html"),
        raised(errors.ServerFailed, status=502, requests=2),
    ),
    "503 empty": (body(b"", 503), raised(errors.ServerFailed, status=503, requests=2)),
}


async def observe(
    kind: str, wire: WireName, base_url: str, *, is_streamed: bool, timeouts: Timeouts = PATIENT
) -> errors.ClientError:
    """Ask there and return the error that is raised."""
    async with calling(kind, base_url, wire_api=wire, timeouts=timeouts) as caller:
        if is_streamed:
            seen = await caller.follow(model="m", input="x")
            assert isinstance(seen.error, errors.ClientError)
            return seen.error
        with pytest.raises(errors.ClientError) as caught:
            await caller.create(model="m", input="x")
        return caught.value


def facts_of(error: errors.ClientError, requests: int) -> Raised:
    return Raised(
        type(error),
        error.status,
        error.code,
        error.param,
        error.retry_after,
        error.request_id,
        error.partial.output_text if error.partial else None,
        requests,
    )


each_way = pytest.mark.parametrize("is_streamed", [True, False], ids=["streamed", "whole"])
each_wire = pytest.mark.parametrize("wire", WIRES)
each_kind = pytest.mark.parametrize("kind", KINDS)


@pytest.mark.requirement("22-A4")
@each_way
@each_wire
@each_kind
@pytest.mark.parametrize("situation", [*TABLE, *REFUSALS])
async def test_a_situation_raises_the_same_error_on_both_wires(
    situation: str, kind: str, wire: WireName, is_streamed: bool
) -> None:
    play, expected = (TABLE | REFUSALS)[situation]
    if not is_streamed and situation in TABLE:
        expected = msgspec.structs.replace(expected, requests=1)
    timeouts = IMPATIENT if expected.kind is SILENT else PATIENT
    async with native(play(wire)) as server:
        error = await observe(
            kind, wire, server.base_url, is_streamed=is_streamed, timeouts=timeouts
        )
        assert facts_of(error, len(server.requests)) == expected
    assert "upstream" not in str(error)


@each_way
@each_wire
@each_kind
@pytest.mark.parametrize("why", ["refused", "unknown host", "no TLS"])
async def test_a_server_that_cannot_be_reached_is_unreachable_on_both_wires(
    why: str, kind: str, wire: WireName, is_streamed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(*args: object, **more: object) -> list[Any]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    async def no_tls(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Plain\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(no_tls, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    base_url = {"refused": "http://127.0.0.1:1/v1", "no TLS": f"https://127.0.0.1:{port}/v1"}.get(
        why, "http://nowhere.test/v1"
    )
    if why == "unknown host":
        monkeypatch.setattr(socket, "getaddrinfo", unknown)
    async with server:
        error = await observe(kind, wire, base_url, is_streamed=is_streamed)
    expected = raised(errors.ServerUnreachable, code="server_unreachable")
    assert facts_of(error, requests=1) == expected


def short(wire: WireName) -> Answer:
    if wire == "responses":
        return response(TextGrew("one two"), Stopped("length"))
    return Answer(pieces=[*begun(wire), chunk("length"), b"data: [DONE]\n\n"])


def failed(wire: WireName) -> Answer:
    """Return the answer of a model that makes no call, although one is required."""
    if wire == "chat":
        return Answer(pieces=[*begun(wire), chunk("stop"), b"data: [DONE]\n\n"])
    failure = Failure("tool_choice_violated", "no call")
    ended = Response(id="resp_1", status="failed", error=failure)
    begun_events = build([TextGrew("one "), TextGrew("two")])[:-2]
    return events([*begun_events, ResponseFailed(sequence_number=50, response=ended)])


@each_way
@each_wire
@each_kind
async def test_a_response_that_failed_or_is_incomplete_is_returned_on_both_wires(
    kind: str, wire: WireName, is_streamed: bool
) -> None:
    tool = {"type": "function", "name": "f", "parameters": {"type": "object"}}
    found: list[Response | None] = []
    async with (
        native(short(wire), failed(wire)) as server,
        calling(kind, server.base_url, wire_api=wire) as caller,
    ):
        for choice in ("auto", "required"):
            asked: Json = {"model": "m", "input": "x", "tools": [tool], "tool_choice": choice}
            if is_streamed:
                found.append((await caller.follow(**asked)).response)
            else:
                found.append(await caller.create(**asked))
    cut, broken = found
    assert cut is not None and broken is not None
    assert (cut.status, cut.output_text) == ("incomplete", "one two")
    assert (broken.status, broken.output_text) == ("failed", "one two")
    assert broken.error is not None and broken.error.code == "tool_choice_violated"


@each_wire
@each_kind
@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"model": "m"}, errors.MissingInput),
        ({"model": "m", "input": "x", "messages": []}, errors.AmbiguousInput),
        ({"model": "m", "input": "x", "tools": [{"type": "function"}]}, errors.BadTool),
    ],
)
async def test_a_wrong_call_is_refused_before_anything_is_sent_on_both_wires(
    kind: str, wire: WireName, asked: Json, expected: type[errors.BadCall]
) -> None:
    async with native(short(wire)) as server:
        async with calling(kind, server.base_url, wire_api=wire) as caller:
            with pytest.raises(expected) as caught:
                await caller.create(**asked)
            assert type((await caller.follow(**asked)).error) is expected
        assert server.requests == []
    assert (caught.value.status, caught.value.partial) == (0, None)


@asynccontextmanager
async def stalling(wire: WireName) -> AsyncIterator[tuple[NativeServer, asyncio.Event]]:
    """Yield a server that says "one two" and no more, and an event for its first request."""
    asked = asyncio.Event()

    def answer(request: Request) -> Answer:
        asked.set()
        return stream(then="stall")(wire)

    async with native(answer) as server:
        yield server, asked


@each_way
@each_wire
async def test_cancelling_the_task_hangs_up_and_stays_a_cancellation_on_both_wires(
    wire: WireName, is_streamed: bool
) -> None:
    async with (
        stalling(wire) as (server, asked),
        AsyncClient(base_url=server.base_url, wire_api=wire, environ={}) as client,
    ):

        async def ask() -> None:
            if not is_streamed:
                await client.create(model="m", input="x")
            async with client.stream(model="m", input="x") as answer:
                await answer.final_response()

        task = asyncio.create_task(ask())
        async with asyncio.timeout(30):
            await asked.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await server.raw.closed.wait()


@each_wire
async def test_a_stream_that_is_left_early_has_no_final_response_on_both_wires(
    wire: WireName,
) -> None:
    async with (
        stalling(wire) as (server, _),
        AsyncClient(base_url=server.base_url, wire_api=wire, environ={}) as client,
    ):
        async with client.stream(model="m", input="x") as answer:
            async for piece in answer.text():
                if piece == "two":
                    break
        with pytest.raises(errors.StreamBroken, match="closed before its end") as caught:
            await answer.final_response()
    assert facts_of(caught.value, 1) == raised(BROKEN, code="stream_broken", partial="one two")


@each_wire
async def test_closing_the_synchronous_client_ends_a_waiting_call_on_both_wires(
    wire: WireName,
) -> None:
    async with stalling(wire) as (server, asked), asyncio.timeout(30):
        client = Client(base_url=server.base_url, wire_api=wire, environ={})
        waiting = asyncio.create_task(asyncio.to_thread(client.create, model="m", input="x"))
        await asked.wait()
        await asyncio.to_thread(client.close)
        with pytest.raises(RuntimeError, match="the client is closed"):
            await waiting
