"""A model behind an HTTP server, whichever API it speaks: the wire knows that.

Posts what an exchange of the wire writes, and gives it the answer to read as it arrives: a batch
for each read of the connection. Cancelling a run closes the connection at once, and that stops
the model. A failed request is not repeated here.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Final

from antiphon.backends.base import Ask, DeltaRefused, DeltaSink, ModelInfo, Relayed
from antiphon.backends.breaker import Breaker
from antiphon.backends.counting import count_by_asking
from antiphon.backends.patience import Patience
from antiphon.plans.capabilities import Capabilities
from antiphon.plans.plan import Plan
from antiphon.protocol.deltas import Delta
from antiphon.protocol.errors import BackendError
from antiphon.protocol.long_body import LongBody
from antiphon.transport.aside import aside
from antiphon.transport.exchange import LEAVING, too_long
from antiphon.transport.http import Head, HttpClient, Limits, Reply, Secret, Sending
from antiphon.transport.retry import read_limit_reset, read_retry_after
from antiphon.transport.stream import ByteStream, open_stream
from antiphon.transport.token import TokenSource
from antiphon.transport.tracing import trace_headers
from antiphon.wires.wire import Exchange, Wire

__all__ = ["HttpBackend"]

_EVENTS: Final = "text/event-stream"
_MAX_ERROR: Final = 64 * 1024
_MAX_PAGES: Final = 100
# Usage and the end mark follow the reason why the model stopped at once, or not at all.
_AFTERWORD: Final = 5.0


class HttpBackend:
    """Any server that speaks the API of `wire` below `base_url`.

    `key` goes into the header that the wire names; tokens that expire are bearer tokens
    everywhere. `proxies` allows those of the environment. `name` is the provider's, for the log
    and the breaker. `jitter` and `sleep` are there for tests.
    """

    def __init__(
        self,
        base_url: str,
        wire: Wire,
        *,
        key: Secret | TokenSource | None = None,
        limits: Limits | None = None,
        headers: Mapping[str, str] | None = None,
        proxies: bool = False,
        name: str = "upstream",
        breaker: Breaker | None = None,
        jitter: Callable[[], float] = random.random,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        if not base_url.startswith(("http://", "https://")):
            raise ValueError("base_url must begin with http:// or https://")
        self._base = base_url.rstrip("/")
        self._has_key = key is not None
        self._wire = wire
        self._client = HttpClient(
            key=key,
            key_header=wire.key_header if isinstance(key, Secret) else "Authorization",
            headers={**wire.headers, **(headers or {})},
            limits=limits,
            proxies=proxies,
        )
        self.patience = Patience(name, breaker, jitter=jitter, sleep=sleep)
        self.capabilities: Capabilities = wire.capabilities

    async def open(self, plan: Plan) -> Ask:
        """Return the request for this plan, as the server is sent it."""
        write, line = self._wire.exchange, self._client.limits.line
        exchange = await aside(write, plan, line) if plan.is_large else write(plan, line)
        sending = Sending()
        run = partial(self._run, plan, exchange, sending)
        return Ask(exchange.degraded, run, lambda: sending.is_taken, lambda: exchange.body)

    async def _run(self, plan: Plan, exchange: Exchange, sending: Sending, sink: DeltaSink) -> None:
        """Send the request once, and read its answer into the sink."""
        reading = _Reading(exchange, sink, partial(self.patience.note_success, plan.model))
        try:
            async with await self._send(
                exchange.path, exchange.body, exchange.headers, plan.stream, sending
            ) as answer:
                try:
                    if _is_event_stream(answer.head, plan.stream):
                        await reading.events(answer)
                    else:
                        await reading.whole(answer, self._client.limits.body)
                except BackendError as error:
                    error.has_answered = True  # the server may bill for it
                    raise
        except BackendError as error:
            self._redact(error)
            raise
        except LEAVING:
            reading.rest(await sending.linger(), sending, plan.stream)
            raise

    async def count(self, plan: Plan) -> int | None:
        """Return the input tokens of this plan if the server can count them."""
        count = partial(self._wire.count, plan)
        return await count_by_asking(self._client, self._base, count, is_large=plan.is_large)

    @asynccontextmanager
    async def relay(
        self, path: str, body: bytes, *, is_streamed: bool, sending: Sending
    ) -> AsyncIterator[Relayed]:
        """Pass a body on to another path of the server; it is not sent twice."""
        try:
            async with await self._send(path, body, {}, is_streamed, sending) as answer:
                try:
                    yield Relayed(_is_event_stream(answer.head, is_streamed), answer)
                except BackendError as error:
                    error.has_answered = True  # as above
                    raise
        except BackendError as error:
            self._redact(error)
            raise

    async def models(self) -> Sequence[ModelInfo]:
        """Return what the server offers, all pages. Raise BackendError if it does not answer.

        A server whose pages lead back to an earlier one has no more to list.
        """
        found: list[ModelInfo] = []
        read: set[str] = set()
        path: str | None = self._wire.models_path
        while path is not None and path not in read and len(read) < _MAX_PAGES:
            read.add(path)
            page, path = self._wire.read_models((await self._fetch(path)).body)
            found += page
        return found

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def _fetch(self, path: str) -> Reply:
        reply = await self._client.fetch("GET", f"{self._base}{path}")
        if reply.head.status != 200:
            error = self._refusal(reply.head, reply.body)
            self._redact(error)
            raise error
        return reply

    async def _send(
        self,
        path: str,
        body: bytes | LongBody,
        headers: Mapping[str, str],
        is_streamed: bool,
        sending: Sending,
    ) -> ByteStream:
        """Return the server's answer, or raise the error that its refusal stands for."""
        answer = await open_stream(
            self._client,
            f"{self._base}{path}",
            body,
            headers={
                **headers,
                **trace_headers(),
                "Accept": _EVENTS if is_streamed else "application/json",
            },
            # An answer that is not streamed has its first byte when the model has its last.
            patience=None if is_streamed else self._client.limits.idle,
            sending=sending,
        )
        if 200 <= answer.head.status < 300:
            return answer
        try:
            raise await self._read_refusal(answer)
        finally:
            answer.close()

    async def _read_refusal(self, answer: ByteStream) -> BackendError:
        try:
            body = await answer.read_all(_MAX_ERROR)
        except BackendError:
            body = b""
        return self._refusal(answer.head, body)

    def _refusal(self, head: Head, body: bytes) -> BackendError:
        retry_after = read_retry_after(head.headers, time.time())
        if retry_after is None and head.status == 429:
            retry_after = read_limit_reset(head.headers, time.time())
        return self._wire.refusal(head.status, body, retry_after, has_key=self._has_key)

    def _redact(self, error: BackendError) -> None:
        """Remove our own keys from the text of the upstream."""
        redact = self._client.redact
        error.message = redact(error.message)
        error.args = (error.message,)
        error.code = redact(error.code) if error.code else error.code
        error.param = redact(error.param) if error.param else error.param


class _Reading:
    """Reads one answer into a sink, as it arrives."""

    def __init__(self, exchange: Exchange, sink: DeltaSink, on_speech: Callable[[], None]) -> None:
        self._exchange = exchange
        self._sink = sink
        self._on_speech = on_speech
        self._has_spoken = False
        self._is_behind = False  # the sink returned False, and `drained` was not awaited since
        self._body = bytearray()  # of an answer that is not a stream

    async def events(self, answer: ByteStream) -> None:
        """Read a stream of events; raise what went wrong after everything that came was pushed."""
        exchange = self._exchange
        piece: bytes | None = None
        broken: BackendError | None = None
        while piece != b"" and exchange.fault is None and not exchange.is_done:
            try:
                piece = await answer.read_or_hear(self._hear)
            except BackendError as error:
                piece, broken = b"", error
            if self._is_behind:  # also if the connection broke before we could wait
                await self._drained()
            if piece is not None:
                await self._give(exchange.feed(piece) if piece else exchange.end(broken))
            if exchange.has_stopped:
                answer.hurry(_AFTERWORD)
        if piece != b"" and exchange.is_done:
            await answer.finish()
        if exchange.fault is not None:
            raise exchange.fault

    def rest(self, data: bytes, sending: Sending, is_streamed: bool) -> None:
        """Push what had arrived when the reader left: the model has produced it."""
        head, exchange = sending.head, self._exchange
        if head is None or not sending.is_taken or exchange.fault is not None or exchange.is_done:
            return
        with suppress(DeltaRefused, *LEAVING):
            if _is_event_stream(head, is_streamed):
                self._push(exchange.feed(data))
            elif sending.is_whole:
                self._push(exchange.whole(bytes(self._body + data)))

    async def whole(self, answer: ByteStream, limit: int) -> None:
        """Read an answer that is not a stream."""
        while piece := await answer.read():
            self._body += piece
            if len(self._body) > limit:
                raise too_long(limit)
        await self._give(self._exchange.whole(bytes(self._body)))
        if self._exchange.fault is not None:
            raise self._exchange.fault

    def _hear(self, piece: bytes) -> bool:
        """Push what these bytes hold; return whether the connection may go on at once."""
        batch = self._exchange.feed(piece)
        if batch and self._has_spoken:
            self._is_behind = not self._sink.push(batch)
        else:
            self._push(batch)
        return not (self._is_behind or self._exchange.is_about_to_end)

    def _push(self, batch: Sequence[Delta]) -> None:
        if not self._has_spoken and self._exchange.has_begun:
            self._has_spoken = True
            self._exchange.drop_body()
            self._on_speech()
        elif not batch:
            return
        self._is_behind = not self._sink.push(batch)

    async def _give(self, batch: Sequence[Delta]) -> None:
        self._push(batch)
        if self._is_behind:
            await self._drained()

    async def _drained(self) -> None:
        self._is_behind = False
        await self._sink.drained()


def _is_event_stream(head: Head, is_streamed: bool) -> bool:
    """Return whether the answer is a stream, by its type; without one, as it was asked for."""
    kind = head.content_type
    if kind == _EVENTS:
        return True
    if kind.endswith("json"):
        return False
    if not kind:
        return is_streamed
    raise BackendError(
        f"the upstream answers with {kind[:80]} instead of JSON or events; check its base_url",
        code="upstream_invalid_response",
    )
