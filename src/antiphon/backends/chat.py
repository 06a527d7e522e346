"""A model behind a chat completions server.

Says the plan in the server's words, posts it, and reads the answer as it comes: a batch for
each read of the wire. Attempts are repeated only while nothing has been said. Closing the
generator, or cancelling whoever waits for it, hangs up at once, and that stops the model.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Final

import msgspec

from antiphon.backends.base import ModelInfo
from antiphon.backends.counting import count_prompt
from antiphon.chat.faults import fault_from_body
from antiphon.chat.profiles import Profile, profile_for
from antiphon.chat.request import write_request
from antiphon.chat.stream import ChatStream
from antiphon.protocol.deltas import Degraded, Delta
from antiphon.protocol.errors import BackendError
from antiphon.protocol.plan import Plan
from antiphon.transport.http import Head, HttpClient, Limits, Secret
from antiphon.transport.retry import WAIT_BUDGET, read_retry_after, retry_delay
from antiphon.transport.stream import ByteStream, open_stream

__all__ = ["ChatBackend"]

_EVENTS: Final = "text/event-stream"
_MAX_ERROR: Final = 64 * 1024
_MAX_MODELS: Final = 10_000
# Usage and the end mark follow the finish_reason at once, or not at all.
_AFTERWORD: Final = 5.0
_CONTEXT_FIELDS: Final = ("context_length", "max_model_len", "context_window", "max_context_length")


class ChatBackend:
    """Any server that speaks `POST {base_url}/chat/completions`.

    `profile` says what the server takes; without one it is guessed from the URL. `jitter` and
    `sleep` are there for tests.
    """

    def __init__(
        self,
        base_url: str,
        *,
        key: Secret | None = None,
        profile: Profile | str | None = None,
        limits: Limits | None = None,
        headers: Mapping[str, str] | None = None,
        jitter: Callable[[], float] = random.random,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        if not base_url.startswith(("http://", "https://")):
            raise ValueError("base_url must begin with http:// or https://")
        self._base = base_url.rstrip("/")
        self._key = key
        self._profile = (
            profile if isinstance(profile, Profile) else profile_for(profile or base_url)
        )
        self._client = HttpClient(key=key, headers=headers, limits=limits)
        self._jitter = jitter
        self._sleep = sleep

    async def stream(self, plan: Plan) -> AsyncGenerator[Sequence[Delta], None]:
        """Run the model; yield what happens. Raise BackendError when it cannot go on."""
        body, report = write_request(plan, self._profile)
        if report:
            yield [Degraded(what) for what in report]
        data = msgspec.json.encode(body)
        attempt, budget = 1, WAIT_BUDGET
        while True:
            has_spoken = False
            try:
                async with aclosing(self._attempt(data, is_streamed=plan.stream)) as batches:
                    async for batch in batches:
                        has_spoken = True
                        yield batch
                return
            except BackendError as error:
                self._redact(error)
                wait = None if has_spoken else self._wait_after(error, attempt, budget)
                if wait is None:
                    raise
            await self._sleep(wait)
            attempt += 1
            budget -= wait

    async def count(self, plan: Plan) -> int | None:
        """Return the tokens of the prompt if the server can count it."""
        body, _ = write_request(plan, self._profile)
        return await count_prompt(self._client, self._base, body, self._profile)

    async def models(self) -> Sequence[ModelInfo]:
        """Return what the server offers. Raise BackendError if it does not say."""
        reply = await self._client.fetch("GET", f"{self._base}/models")
        if reply.head.status != 200:
            error = fault_from_body(reply.head.status, reply.body, _retry_after(reply.head))
            self._redact(error)
            raise error
        return _read_models(reply.body)

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def _attempt(
        self, data: bytes, *, is_streamed: bool
    ) -> AsyncGenerator[Sequence[Delta], None]:
        limits = self._client.limits
        wire = await open_stream(
            self._client,
            f"{self._base}/chat/completions",
            data,
            headers={"Accept": _EVENTS if is_streamed else "application/json"},
            # An answer that is not streamed has its first byte when the model has its last.
            patience=None if is_streamed else limits.idle,
        )
        async with wire:
            await _check_status(wire)
            reader = ChatStream(think_tags=self._profile.think_tags, max_line=limits.line)
            if _is_event_stream(wire.head, is_streamed):
                async with aclosing(_read_events(wire, reader)) as batches:
                    async for batch in batches:
                        yield batch
            else:
                yield reader.whole(await wire.read_all(limits.body))
            if reader.fault is not None:
                raise reader.fault

    def _wait_after(self, error: BackendError, attempt: int, budget: float) -> float | None:
        return retry_delay(
            error.status,
            attempt,
            error.retry_after,
            self._jitter(),
            code=error.code,
            budget=budget,
        )

    def _redact(self, error: BackendError) -> None:
        """Take our own key out of whatever the upstream said."""
        if self._key is None:
            return
        error.message = self._key.redact(error.message)
        error.args = (error.message,)
        error.code = self._key.redact(error.code) if error.code else error.code
        error.param = self._key.redact(error.param) if error.param else error.param


async def _check_status(wire: ByteStream) -> None:
    """Raise what the server's refusal amounts to, if it refuses."""
    status = wire.head.status
    if 200 <= status < 300:
        return
    try:
        body = await wire.read_all(_MAX_ERROR)
    except BackendError:
        body = b""
    raise fault_from_body(status, body, _retry_after(wire.head))


def _is_event_stream(head: Head, is_streamed: bool) -> bool:
    """Say whether the answer is a stream, whatever was asked for; without a type, what was."""
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


async def _read_events(
    wire: ByteStream, reader: ChatStream
) -> AsyncGenerator[Sequence[Delta], None]:
    while isinstance(piece := await _next_piece(wire), bytes) and piece:
        if batch := reader.feed(piece):
            yield batch
        if reader.is_done:
            await wire.finish()
            return
        if reader.fault is not None:
            return
        if reader.has_reason:
            wire.hurry(_AFTERWORD)
    if batch := reader.end(piece if isinstance(piece, BackendError) else None):
        yield batch


async def _next_piece(wire: ByteStream) -> bytes | BackendError:
    """Return what came, nothing at the end, or how the connection broke."""
    try:
        return await anext(wire, b"")
    except BackendError as error:
        return error


def _retry_after(head: Head) -> float | None:
    return read_retry_after(head.headers, time.time())


def _read_models(body: bytes) -> list[ModelInfo]:
    try:
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        value = None
    entries = value.get("data") if isinstance(value, dict) else value
    if not isinstance(entries, list):
        raise BackendError(
            "the upstream's list of models cannot be read", code="upstream_invalid_response"
        )
    return [
        _read_model(entry)
        for entry in entries[:_MAX_MODELS]
        if isinstance(entry, dict) and isinstance(entry.get("id"), str)
    ]


def _read_model(entry: dict[str, Any]) -> ModelInfo:
    meta = entry.get("meta")
    sizes = [entry.get(field) for field in _CONTEXT_FIELDS]
    sizes.append(meta.get("n_ctx") or meta.get("n_ctx_train") if isinstance(meta, dict) else None)
    created = entry.get("created")
    owner = entry.get("owned_by")
    return ModelInfo(
        id=entry["id"],
        created=created if isinstance(created, int) else 0,
        owned_by=owner if isinstance(owner, str) else "upstream",
        context_length=next((size for size in sizes if isinstance(size, int) and size > 0), None),
    )
