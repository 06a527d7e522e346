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
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from typing import Final, Self, TypedDict, Unpack

import msgspec

from antiphon.client.answer import OpenAnswer, read_batch
from antiphon.client.conversation import ConversationCache
from antiphon.client.conversation_api import AsyncConversations
from antiphon.client.errors import (
    UNREADABLE,
    BadCall,
    ClientError,
    OutputMissing,
    StreamBroken,
    ThreadGone,
    error_from_body,
    error_from_event,
    unreadable,
)
from antiphon.client.file_api import AsyncFiles
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
    read_response,
)
from antiphon.client.sender import (
    EVENT_STREAM,
    Sender,
    check_is_stream,
    path_to,
    with_query,
)
from antiphon.client.session_turn import SessionTurn
from antiphon.client.settings import ApiKey, Timeouts, WireApi, read_settings
from antiphon.client.stream import AsyncStream
from antiphon.client.tool_limits import ToolLimits
from antiphon.client.vector_store_api import AsyncVectorStores
from antiphon.client.wires import Wire
from antiphon.protocol.events import ErrorEvent, Event, ResponseInProgress, ResponseQueued
from antiphon.protocol.items import Item
from antiphon.protocol.response import Response
from antiphon.transport.http import Head
from antiphon.transport.stream import ByteStream

__all__ = ["AsyncClient", "ClientOptions"]


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
        self.files: Final = AsyncFiles(self._sender)
        self.vector_stores: Final = AsyncVectorStores(self._sender)
        self._tool_limits = tool_limits or ToolLimits()
        self.wire_api: Final[WireApi] = wire_api

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *reason: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self.http.close()

    # Turns.

    async def create(
        self, *, wire_api: WireApi | None = None, **params: Unpack[Params]
    ) -> Response:
        """Ask, and return the response when it is whole. Its `status` is how it ended."""
        async with self._ask(params, wire_api, is_streamed=False) as answer:
            return await answer.final_response()

    def stream(self, *, wire_api: WireApi | None = None, **params: Unpack[Params]) -> AsyncStream:
        """Ask, and return the response as it comes into being. Nothing is sent until entered."""
        return self._ask(params, wire_api, is_streamed=True)

    def follow(
        self,
        response_id: str,
        *,
        starting_after: int | None = None,
        include: Sequence[str] = (),
        max_reconnects: int = MAX_RECONNECTS,
    ) -> AsyncStream:
        """Return the events of a stored response, live or finished, each of them once.

        They begin after the sequence number `starting_after`, else with the first. A connection
        that is lost is replaced, `max_reconnects` times in a row without a new event at most.
        `include` is what hosted items show, as in `create`; every connection asks for it.
        """
        path = _response_path(response_id)
        following = Following(
            self._sender,
            path,
            after=starting_after,
            max_reconnects=max_reconnects,
            include=include,
        )
        return AsyncStream(
            following.begin, redact=self._sender.redact_error, is_whole=starting_after is None
        )

    # What the server keeps.

    async def retrieve(self, response_id: str) -> Response:
        """Return a stored response."""
        return read_response(await self._sender.fetch("GET", _response_path(response_id)))

    async def delete(self, response_id: str) -> Deleted:
        """Delete a stored response."""
        return read_deleted(
            await self._sender.fetch("DELETE", _response_path(response_id)), response_id
        )

    async def cancel(self, response_id: str) -> Response:
        """Stop a response that runs in the background."""
        path = f"{_response_path(response_id)}/cancel"
        return read_response(await self._sender.fetch("POST", path, body=b"{}"))

    async def input_items(
        self,
        response_id: str,
        *,
        after: str | None = None,
        limit: int | None = None,
        order: str | None = None,
    ) -> ItemPage:
        """Return a page of what a response was asked with, newest first by default."""
        path = f"{_response_path(response_id)}/input_items"
        path = with_query(path, after=after, limit=limit, order=order)
        return read_page(await self._sender.fetch("GET", path))

    def iterate_input_items(
        self, response_id: str, *, order: str = "asc"
    ) -> AsyncGenerator[Item, None]:
        """Yield all that a response was asked with, page after page."""
        return iterate_pages(
            lambda after: self.input_items(response_id, after=after, limit=100, order=order)
        )

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

    def _ask(self, params: Params, wire_api: WireApi | None, *, is_streamed: bool) -> AsyncStream:
        wire = wire_api or self.wire_api
        request = build_request(params, self._tool_limits, wire)
        turn = SessionTurn(request, self.cache, wire, self.base_url)
        return AsyncStream(
            lambda: self._run(turn, is_streamed), turn.remember, self._sender.redact_error
        )

    async def _run(self, turn: SessionTurn, is_streamed: bool) -> OpenAnswer:
        """Run a turn; if the thread cannot be continued, run it again with the full history."""
        turn.begin()
        try:
            return await self._sender.retrying(lambda: self._open(turn, is_streamed))
        except (ThreadGone, OutputMissing):
            if not turn.fall_back():
                raise
        return await self._sender.retrying(lambda: self._open(turn, is_streamed))

    async def _open(self, turn: SessionTurn, is_streamed: bool) -> OpenAnswer:
        """Send the request once; return the answer when its first event has arrived."""
        wire = turn.wire(is_streamed=is_streamed)
        body = await self._sender.post(
            wire.path,
            wire.request,
            key=turn.idempotency_key,
            thread_id=turn.thread_id,
            is_streamed=is_streamed,
        )
        try:
            return await self._begin(body, wire, is_streamed)
        except BaseException as error:
            body.close()
            if isinstance(error, ClientError) and not is_streamed:
                error.should_retry = False  # the model may have run: do not produce it twice
            raise

    async def _begin(self, body: ByteStream, wire: Wire, is_streamed: bool) -> OpenAnswer:
        """Read the first events, whether or not the answer is streamed as it was asked to be."""
        kind, ending = body.head.content_type, None
        if kind.endswith("json") if is_streamed else kind != EVENT_STREAM:
            events = self._read_whole(body.head, await self._sender.read(body), wire)
            if not is_streamed and isinstance(events[-1], ResponseQueued | ResponseInProgress):
                ending = events[-1].response  # in the background: it returns before it is done
        else:
            check_is_stream(body.head)
            events = await read_batch(body, wire)
        if events and isinstance(events[0], ErrorEvent):
            raise error_from_event(events[0], body.head.headers, redact=self.http.redact)
        if not events:
            raise _no_events(body.head, wire.fault)
        return OpenAnswer(body, wire, events, ending)

    def _read_whole(self, head: Head, data: bytes, wire: Wire) -> list[Event]:
        """Return the events of an answer in one piece. Raise the error that it is instead."""
        events = wire.whole(data)
        wire.is_done = True
        if events and not isinstance(events[0], ErrorEvent):
            return events
        error = error_from_body(data, head.headers, redact=self.http.redact)
        raise error or _no_events(head, wire.fault)


def _no_events(head: Head, fault: ClientError | None) -> ClientError:
    """Return why an answer has no events."""
    if fault is not None and fault.code == UNREADABLE:
        return unreadable(head.status, head.headers, fault.message)
    return fault or StreamBroken("the stream has no events", code="stream_broken")


def _response_path(response_id: str) -> str:
    return path_to("/responses", response_id, "response_id")
