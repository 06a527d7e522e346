"""A client of any Responses server, asynchronous.

    async with AsyncClient(base_url="http://127.0.0.1:4680/v1") as client:
        response = await client.create(model="m", input="Hello")

A request is retried (`client.sender`) only until the first event is here: output that was seen
once is not produced twice. With `session`, turns form a thread: the server is sent what is new,
and all of it once if it has lost the thread, without the caller noticing. The library never runs
a tool: it returns the call. A client belongs to one event loop.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from types import TracebackType
from typing import Final, Self, TypedDict, TypeVar, Unpack

import msgspec

from antiphon.client.conversation import ConversationCache
from antiphon.client.conversation_api import AsyncConversations
from antiphon.client.errors import (
    BadCall,
    ClientError,
    InvalidAnswer,
    OutputMissing,
    ThreadGone,
    error_from_body,
    error_from_event,
    error_from_transport,
)
from antiphon.client.follow import MAX_RECONNECTS, Following
from antiphon.client.parameters import Params
from antiphon.client.request import build_question, build_request
from antiphon.client.resources import (
    Compaction,
    Deleted,
    InputTokens,
    ItemPage,
    Model,
    iterate_pages,
    read_compaction,
    read_deleted,
    read_input_tokens,
    read_models,
    read_page,
)
from antiphon.client.sender import (
    EVENT_STREAM,
    Sender,
    check_is_stream,
    path_to,
    unreadable,
    with_query,
)
from antiphon.client.session_turn import SessionTurn
from antiphon.client.settings import ApiKey, Timeouts, WireApi, read_settings
from antiphon.client.stream import AsyncStream, OpenAnswer, broken, read_batch
from antiphon.client.tool_limits import ToolLimits
from antiphon.client.wires import Wire
from antiphon.protocol.codec import decode_response
from antiphon.protocol.errors import BackendError, BrokenStream
from antiphon.protocol.events import ErrorEvent, Event, ResponseInProgress, ResponseQueued
from antiphon.protocol.items import Item
from antiphon.protocol.machines.accumulator import ResponseAccumulator
from antiphon.protocol.response import Response
from antiphon.transport.http import Head
from antiphon.transport.stream import ByteStream

__all__ = ["AsyncClient", "ClientOptions"]

_T = TypeVar("_T")


class ClientOptions(TypedDict, total=False):
    """What a client can be made with."""

    base_url: str | None
    api_key: ApiKey | None
    organization: str | None
    project: str | None
    headers: Mapping[str, str] | None
    timeouts: Timeouts | None
    max_retries: int
    tool_limits: ToolLimits | None
    cache: ConversationCache | None
    wire_api: WireApi
    environ: Mapping[str, str] | None
    sleep: Callable[[float], Awaitable[None]]
    jitter: Callable[[], float]


class AsyncClient:
    """Asks a Responses server, or a chat server as if it were one (`wire_api="chat"`).

    `api_key` may be a function, which is asked for every request. `max_retries` counts attempts
    after the first. `cache` is where threads are remembered; give one to share it. `sleep` and
    `jitter` are there for tests.
    """

    def __init__(
        self,
        *,
        base_url: str | None = None,
        api_key: ApiKey | None = None,
        organization: str | None = None,
        project: str | None = None,
        headers: Mapping[str, str] | None = None,
        timeouts: Timeouts | None = None,
        max_retries: int = 1,
        tool_limits: ToolLimits | None = None,
        cache: ConversationCache | None = None,
        wire_api: WireApi = "responses",
        environ: Mapping[str, str] | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        settings = read_settings(
            os.environ if environ is None else environ,
            base_url=base_url,
            api_key=api_key,
            organization=organization,
            project=project,
            headers=headers,
        )
        self.base_url: Final = settings.base_url
        self.cache: Final = ConversationCache() if cache is None else cache
        self._sender = Sender(
            settings, timeouts or Timeouts(), max_retries=max_retries, sleep=sleep, jitter=jitter
        )
        self.http: Final = self._sender.http
        self.conversations: Final = AsyncConversations(self._sender)
        self._tool_limits = tool_limits or ToolLimits()
        self.wire_api: Final[WireApi] = wire_api

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self.http.close()

    # Turns.

    async def create(
        self, *, wire_api: WireApi | None = None, **params: Unpack[Params]
    ) -> Response:
        """Ask, and return the response when it is whole. Its `status` says how it ended."""
        turn = self._prepare(params, wire_api)
        response = await self._run(turn, self._answer)
        turn.remember(response)
        return response

    def stream(self, *, wire_api: WireApi | None = None, **params: Unpack[Params]) -> AsyncStream:
        """Ask, and return the response as it comes into being. Nothing is sent until entered."""
        turn = self._prepare(params, wire_api)
        return AsyncStream(
            lambda: self._run(turn, self._open), turn.remember, self._sender.redact_error
        )

    def follow(
        self,
        response_id: str,
        *,
        starting_after: int | None = None,
        max_reconnects: int = MAX_RECONNECTS,
    ) -> AsyncStream:
        """Return the events of a stored response, live or finished, each of them once.

        They begin after the sequence number `starting_after`, else with the first. A connection
        that is lost is replaced, `max_reconnects` times in a row without a new event at most.
        """
        path = _response_path(response_id)
        following = Following(
            self._sender, path, after=starting_after, max_reconnects=max_reconnects
        )
        return AsyncStream(
            following.begin, redact=self._sender.redact_error, is_whole=starting_after is None
        )

    # What the server keeps.

    async def retrieve(self, response_id: str) -> Response:
        """Return a stored response."""
        return _read_response(await self._sender.fetch("GET", _response_path(response_id)))

    async def delete(self, response_id: str) -> Deleted:
        """Delete a stored response."""
        return read_deleted(
            await self._sender.fetch("DELETE", _response_path(response_id)), response_id
        )

    async def cancel(self, response_id: str) -> Response:
        """Stop a response that runs in the background."""
        path = f"{_response_path(response_id)}/cancel"
        return _read_response(await self._sender.fetch("POST", path, body=b"{}"))

    async def input_items(
        self,
        response_id: str,
        *,
        after: str | None = None,
        limit: int | None = None,
        order: str | None = None,
    ) -> ItemPage:
        """Return a page of what a response was asked with, newest first unless told otherwise."""
        path = f"{_response_path(response_id)}/input_items"
        path = with_query(path, after=after, limit=limit, order=order)
        return read_page(await self._sender.fetch("GET", path))

    async def iterate_input_items(
        self, response_id: str, *, order: str = "asc"
    ) -> AsyncGenerator[Item, None]:
        """Yield all that a response was asked with, page after page."""
        async for item in iterate_pages(
            lambda after: self.input_items(response_id, after=after, limit=100, order=order)
        ):
            yield item

    async def models(self) -> list[Model]:
        """Return the models that the server offers."""
        return read_models(await self._sender.fetch("GET", "/models"))

    # Questions about a context.

    async def input_tokens(self, **params: Unpack[Params]) -> InputTokens:
        """Return how many tokens a request would send to the model. Nothing is run or stored."""
        return read_input_tokens(await self._ask_about("/responses/input_tokens", params))

    async def compact(self, **params: Unpack[Params]) -> Compaction:
        """Return items that take the place of a long context: give them as the next input."""
        return read_compaction(await self._ask_about("/responses/compact", params))

    async def _ask_about(self, path: str, params: Params) -> bytes:
        if self.wire_api == "chat":
            raise BadCall(f"{path} needs a Responses server: a chat server has nothing like it")
        body = build_question(params, self._tool_limits)
        return await self._sender.fetch("POST", path, body=msgspec.json.encode(body))

    # How a turn is run.

    def _prepare(self, params: Params, wire_api: WireApi | None) -> SessionTurn:
        wire = wire_api or self.wire_api
        request = build_request(params, self._tool_limits, wire)
        return SessionTurn(request, self.cache, wire, self.base_url)

    async def _run(self, turn: SessionTurn, once: Callable[[SessionTurn], Awaitable[_T]]) -> _T:
        """Run a turn; if the thread cannot be continued, once more with the full history."""
        turn.begin()
        try:
            return await self._sender.retrying(lambda: once(turn))
        except (ThreadGone, OutputMissing):
            if not turn.fall_back():
                raise
        return await self._sender.retrying(lambda: once(turn))

    async def _open(self, turn: SessionTurn) -> OpenAnswer:
        """Return an answer whose first event is here."""
        wire = turn.wire(is_streamed=True)
        body = await self._post(turn, wire, is_streamed=True)
        try:
            if body.head.content_type.endswith("json"):
                first = self._events_of(body.head, await self._sender.read(body), wire)
                wire.is_done = True
            else:
                check_is_stream(body.head)
                first = await read_batch(body, wire)
        except BackendError as error:
            raise error_from_transport(error) from error
        except BaseException:
            body.close()
            raise
        if not first or isinstance(first[0], ErrorEvent):
            body.close()
            raise self._false_start(body.head, wire, first)
        return OpenAnswer(body, wire, first)

    async def _post(self, turn: SessionTurn, wire: Wire, *, is_streamed: bool) -> ByteStream:
        return await self._sender.post(
            wire.path,
            wire.request,
            key=turn.idempotency_key,
            thread_id=turn.thread_id,
            is_streamed=is_streamed,
        )

    def _false_start(self, head: Head, wire: Wire, events: list[Event]) -> ClientError:
        """Return why a stream did not begin: it has no event, or nothing but an error."""
        if events and isinstance(events[0], ErrorEvent):
            return error_from_event(events[0], head.headers, redact=self.http.redact)
        return broken(wire.fault or BrokenStream("the stream has no events"), None)

    async def _answer(self, turn: SessionTurn) -> Response:
        """Return the whole answer, even of a server that streams although nobody asked."""
        wire = turn.wire(is_streamed=False)
        async with await self._post(turn, wire, is_streamed=False) as body:
            try:
                if body.head.content_type == EVENT_STREAM:
                    return await _read_to_end(body, wire)
                return self._whole(body.head, await self._sender.read(body), wire)
            except ClientError as error:
                # Some of the answer was here: it is not produced twice.
                error.should_retry = False
                raise

    def _whole(self, head: Head, data: bytes, wire: Wire) -> Response:
        events = self._events_of(head, data, wire)
        if len(events) == 1 and isinstance(events[0], ResponseQueued | ResponseInProgress):
            # In the background: it comes back before it is done.
            return events[0].response
        accumulator = ResponseAccumulator()
        accumulator.feed_all(events)
        return _finish(accumulator, wire)

    def _events_of(self, head: Head, data: bytes, wire: Wire) -> list[Event]:
        """Return the events of an answer in one piece. Raise what it amounts to if it is none."""
        events = wire.whole(data)
        if events:
            return events
        if (error := error_from_body(data, head.headers, redact=self.http.redact)) is not None:
            raise error
        if isinstance(wire.fault, BackendError):
            raise broken(wire.fault, None)
        raise unreadable(head, wire.fault.message if wire.fault else "it says nothing")


async def _read_to_end(body: ByteStream, wire: Wire) -> Response:
    accumulator = ResponseAccumulator()
    while events := await read_batch(body, wire):
        accumulator.feed_all(events)
    await body.finish()
    return _finish(accumulator, wire)


def _finish(accumulator: ResponseAccumulator, wire: Wire) -> Response:
    try:
        return accumulator.finish()
    except BrokenStream as error:
        raise broken(wire.fault or error, accumulator.response) from None


def _read_response(body: bytes) -> Response:
    try:
        return decode_response(body)
    except BrokenStream as error:
        raise InvalidAnswer(f"the server's answer is no response: {error.message}") from None


def _response_path(response_id: str) -> str:
    return path_to("/responses", response_id, "response_id")
