"""A client of any Responses server, asynchronous.

    async with AsyncClient(base_url="http://127.0.0.1:4680/v1") as client:
        response = await client.create(model="m", input="Hello")

One policy decides about another try (`transport.retry`), and only until the first event is
here: output that was seen once is not produced twice. With `session`, turns form a thread: the
server is sent what is new, and all of it once if it has lost the thread, unseen by the caller.
The library never runs a tool: it hands the call over. A client belongs to one event loop.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from types import TracebackType
from typing import Final, Self, TypedDict, TypeVar, Unpack
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from antiphon.client.conversation import ConversationCache
from antiphon.client.errors import (
    BadCall,
    ClientError,
    InvalidAnswer,
    QuotaExceeded,
    ServerUnreachable,
    StreamBroken,
    ThreadGone,
    TimedOut,
    error_from_answer,
    error_from_body,
    error_from_transport,
)
from antiphon.client.parameters import Params
from antiphon.client.request import build_request
from antiphon.client.resources import Deleted, ItemPage, Model, read_deleted, read_models, read_page
from antiphon.client.road import Road
from antiphon.client.settings import ApiKey, Timeouts, WireApi, read_settings
from antiphon.client.stream import AsyncStream, Wire, broken, read_batch
from antiphon.client.tool_limits import ToolLimits
from antiphon.client.turn import Turn
from antiphon.protocol.accumulator import ResponseAccumulator
from antiphon.protocol.codec import decode_response
from antiphon.protocol.errors import BackendError, BrokenStream
from antiphon.protocol.events import ErrorEvent, Event, ResponseInProgress, ResponseQueued
from antiphon.protocol.items import Item
from antiphon.protocol.response import Response
from antiphon.transport.http import Head, HttpClient
from antiphon.transport.retry import WAIT_BUDGET, read_retry_after, retry_delay
from antiphon.transport.stream import ByteStream, open_stream

__all__ = ["AsyncClient", "ClientOptions"]

_log: Final = logging.getLogger("antiphon.client")
_MAX_ERROR: Final = 1024 * 1024
_EVENTS: Final = "text/event-stream"
# What was slow, nonsense or unpaid will be so again.
_HOPELESS: Final = (TimedOut, InvalidAnswer, QuotaExceeded)
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
        self._timeouts = timeouts or Timeouts()
        self.http: Final = HttpClient(
            key=settings.key, headers=settings.headers, limits=self._timeouts.limits()
        )
        self._asks_for_key = callable(settings.key)
        self._max_retries = max_retries
        self._tool_limits = tool_limits or ToolLimits()
        self.wire_api: Final[WireApi] = wire_api
        self._sleep = sleep
        self._jitter = jitter

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
        return AsyncStream(lambda: self._run(turn, self._open), turn.remember, self._redact)

    # What the server keeps.

    async def retrieve(self, response_id: str) -> Response:
        """Return a stored response."""
        return _read_response(await self._fetch("GET", _response_path(response_id)))

    async def delete(self, response_id: str) -> Deleted:
        """Delete a stored response."""
        return read_deleted(await self._fetch("DELETE", _response_path(response_id)), response_id)

    async def cancel(self, response_id: str) -> Response:
        """Stop a response that runs in the background."""
        path = f"{_response_path(response_id)}/cancel"
        return _read_response(await self._fetch("POST", path, body=b"{}"))

    async def input_items(
        self,
        response_id: str,
        *,
        after: str | None = None,
        limit: int | None = None,
        order: str | None = None,
    ) -> ItemPage:
        """Return a page of what a response was asked with, newest first unless told otherwise."""
        asked = {"after": after, "limit": limit, "order": order}
        query = urlencode({name: value for name, value in asked.items() if value is not None})
        path = f"{_response_path(response_id)}/input_items"
        return read_page(await self._fetch("GET", f"{path}?{query}" if query else path))

    async def iterate_input_items(
        self, response_id: str, *, order: str = "asc"
    ) -> AsyncGenerator[Item, None]:
        """Yield all that a response was asked with, page after page."""
        after: str | None = None
        while True:
            page = await self.input_items(response_id, after=after, limit=100, order=order)
            for item in page.items:
                yield item
            last = page.last_id or (page.items[-1].get("id") if page.items else None)
            if not page.has_more or not last or last == after:
                return
            after = last

    async def models(self) -> list[Model]:
        """Return the models that the server offers."""
        return read_models(await self._fetch("GET", "/models"))

    # How a turn is run.

    def _prepare(self, params: Params, wire_api: WireApi | None) -> Turn:
        wire = wire_api or self.wire_api
        request = build_request(params, self._tool_limits, wire)
        return Turn(request, self.cache, wire, self.base_url)

    async def _run(self, turn: Turn, once: Callable[[Turn], Awaitable[_T]]) -> _T:
        """Run a turn; if the server has lost the thread, once more with the full history."""
        turn.begin()
        try:
            return await self._try(lambda: once(turn))
        except ThreadGone:
            if not turn.fall_back():
                raise
        return await self._try(lambda: once(turn))

    async def _try(self, once: Callable[[], Awaitable[_T]]) -> _T:
        attempt, budget, may_ask_again = 1, WAIT_BUDGET, self._asks_for_key
        while True:
            try:
                return await once()
            except ClientError as error:
                if may_ask_again and error.status == 401:
                    # The key may have expired on the way; the next attempt asks for another.
                    may_ask_again = False
                    continue
                self._redact(error)
                self._hint(error)
                wait = self._wait_after(error, attempt, budget)
                if wait is None:
                    raise
                _log.debug(
                    "attempt %d failed (HTTP %d); next in %.2f s", attempt, error.status, wait
                )
            await self._sleep(wait)
            attempt += 1
            budget -= wait

    def _wait_after(self, error: ClientError, attempt: int, budget: float) -> float | None:
        if isinstance(error, _HOPELESS) or error.should_retry is False:
            return None
        is_lost = isinstance(error, ServerUnreachable | StreamBroken) or error.should_retry
        return retry_delay(
            503 if is_lost else error.status,
            attempt,
            error.retry_after,
            self._jitter(),
            budget=budget,
            max_attempts=self._max_retries + 1,
        )

    async def _open(self, turn: Turn) -> Wire:
        """Return an answer whose first event is here."""
        road = turn.road(is_streamed=True)
        body = await self._post(turn, road, patience=None)
        try:
            if body.head.content_type.endswith("json"):
                first = self._events_of(body.head, await self._read(body), road)
                road.is_done = True
            else:
                _check_type(body.head)
                first = await read_batch(body, road)
        except BackendError as error:
            raise error_from_transport(error) from error
        except BaseException:
            body.close()
            raise
        if not first or isinstance(first[0], ErrorEvent):
            body.close()
            raise self._false_start(body.head, road, first)
        return Wire(body, road, first)

    def _false_start(self, head: Head, road: Road, events: list[Event]) -> ClientError:
        """Return why a stream did not begin: it said nothing, or nothing but an error."""
        if events and isinstance(events[0], ErrorEvent):
            told = {"message": events[0].message, "code": events[0].code, "param": events[0].param}
            data = msgspec.json.encode({"error": told})
            error = error_from_body(data, head.headers, redact=self.http.redact)
            if error is not None:
                return error
        return broken(road.fault or BrokenStream("the stream has no events"), None)

    async def _answer(self, turn: Turn) -> Response:
        """Return the whole answer, even of a server that streams although nobody asked."""
        road = turn.road(is_streamed=False)
        async with await self._post(turn, road, patience=self._timeouts.answer) as body:
            try:
                if body.head.content_type == _EVENTS:
                    return await _follow(body, road)
                return self._whole(body.head, await self._read(body), road)
            except ClientError as error:
                # Some of the answer was here: it is not produced twice.
                error.should_retry = False
                raise

    def _whole(self, head: Head, data: bytes, road: Road) -> Response:
        events = self._events_of(head, data, road)
        if len(events) == 1 and isinstance(events[0], ResponseQueued | ResponseInProgress):
            # In the background: it comes back before it is done.
            return events[0].response
        accumulator = ResponseAccumulator()
        accumulator.feed_all(events)
        return _finish(accumulator, road)

    def _events_of(self, head: Head, data: bytes, road: Road) -> list[Event]:
        """Return the events of an answer in one piece. Raise what it amounts to if it is none."""
        events = road.whole(data)
        if events:
            return events
        if (error := error_from_body(data, head.headers, redact=self.http.redact)) is not None:
            raise error
        if isinstance(road.fault, BackendError):
            raise broken(road.fault, None)
        raise _unreadable(head, road.fault.message if road.fault else "it says nothing")

    async def _read(self, body: ByteStream) -> bytes:
        try:
            return await body.read_all(self.http.limits.body)
        except BackendError as error:
            raise error_from_transport(error) from error

    async def _post(self, turn: Turn, road: Road, *, patience: float | None) -> ByteStream:
        data = road.request
        _log.debug("posting %d bytes to %s", len(data), road.path)
        try:
            body = await open_stream(
                self.http,
                self.base_url + road.path,
                data,
                headers={
                    "Accept": "application/json" if patience else _EVENTS,
                    "Idempotency-Key": turn.idempotency_key,
                },
                patience=patience,
            )
        except BackendError as error:
            raise error_from_transport(error) from error
        if not 200 <= body.head.status < 300:
            raise await self._refusal(body, turn.thread_id)
        return body

    async def _refusal(self, body: ByteStream, thread_id: str | None) -> ClientError:
        head = body.head
        try:
            text = await body.read_all(_MAX_ERROR)
        except BackendError:
            text = b""
        return error_from_answer(
            head.status,
            text,
            head.headers,
            retry_after=_retry_after(head),
            thread=thread_id,
            redact=self.http.redact,
        )

    async def _fetch(self, method: str, path: str, *, body: bytes | None = None) -> bytes:
        async def once() -> bytes:
            try:
                reply = await self.http.fetch(method, self.base_url + path, body=body)
            except BackendError as error:
                raise error_from_transport(error) from error
            head = reply.head
            if not 200 <= head.status < 300:
                raise error_from_answer(
                    head.status,
                    reply.body,
                    head.headers,
                    retry_after=_retry_after(head),
                    redact=self.http.redact,
                )
            return reply.body

        return await self._try(once)

    def _hint(self, error: ClientError) -> None:
        """Say what is nearly always wrong when there is nothing at the path."""
        if error.status == 404 and not urlsplit(self.base_url).path:
            error.add_note(f"does the base URL end in /v1? It is {self.base_url}")

    def _redact(self, error: ClientError) -> None:
        """Take our own key out of whatever the server said."""
        error.message = self.http.redact(error.message)
        error.args = (error.message,)


async def _follow(body: ByteStream, road: Road) -> Response:
    accumulator = ResponseAccumulator()
    while events := await read_batch(body, road):
        accumulator.feed_all(events)
    await body.finish()
    return _finish(accumulator, road)


def _finish(accumulator: ResponseAccumulator, road: Road) -> Response:
    try:
        return accumulator.finish()
    except BrokenStream as error:
        raise broken(road.fault or error, accumulator.response) from None


def _retry_after(head: Head) -> float | None:
    return read_retry_after(head.headers, time.time())


def _check_type(head: Head) -> None:
    # Some servers name no type, or that of any text; what their bytes are will show.
    if head.content_type not in (_EVENTS, "text/plain", ""):
        raise _unreadable(head, f"it is {head.content_type[:80]}, not a stream of events")


def _unreadable(head: Head, why: str) -> InvalidAnswer:
    return InvalidAnswer(
        f"the server's answer is none of a Responses server: {why}; check the base URL",
        status=head.status,
        code="server_invalid_response",
        request_id=head.headers.get("x-request-id"),
    )


def _read_response(body: bytes) -> Response:
    try:
        return decode_response(body)
    except BrokenStream as error:
        raise InvalidAnswer(f"the server's answer is no response: {error.message}") from None


def _response_path(response_id: str) -> str:
    if not response_id:
        raise BadCall("a response id must not be empty", param="response_id")
    return f"/responses/{quote(response_id, safe='')}"
