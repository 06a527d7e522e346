"""A model behind a chat completions server.

Says the plan in the server's words, posts it, and reads the answer as it comes: a batch for
each read of the wire. Attempts are repeated only while nothing has been said. Closing the
generator, or cancelling whoever waits for it, hangs up at once, and that stops the model.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Final

from antiphon.backends.base import Listener, ModelInfo
from antiphon.backends.breaker import Breaker
from antiphon.backends.counting import count_prompt
from antiphon.models.listing import read_models
from antiphon.plans.plan import Plan
from antiphon.protocol.deltas import Degraded, Delta
from antiphon.protocol.errors import BackendError
from antiphon.transport.aside import aside_if
from antiphon.transport.http import Head, HttpClient, Limits, Secret
from antiphon.transport.retry import WAIT_BUDGET, read_retry_after, retry_delay
from antiphon.transport.stream import ByteStream, open_stream
from antiphon.wires.chat.emulation import Emulation, emulate
from antiphon.wires.chat.faults import fault_from_body
from antiphon.wires.chat.profiles import Profile, profile_for
from antiphon.wires.chat.request import encode_request, names_in_text, write_request
from antiphon.wires.chat.stream import ChatStream

__all__ = ["ChatBackend"]

_log = logging.getLogger(__name__)
_BUSY: Final = 429
_EVENTS: Final = "text/event-stream"
_MAX_ERROR: Final = 64 * 1024
# Usage and the end mark follow the finish_reason at once, or not at all.
_AFTERWORD: Final = 5.0


class _Nobody:
    """Takes nothing."""

    def note_asked(self) -> None: ...

    def take(self, batch: Sequence[Delta]) -> bool:
        return False


_NOBODY: Final = _Nobody()


class ChatBackend:
    """Any server that speaks `POST {base_url}/chat/completions`.

    `profile` says what the server takes; without one it is guessed from the URL. `proxies`
    allows those of the environment. `name` is the provider's, for the log and the breaker.
    `jitter` and `sleep` are there for tests.
    """

    def __init__(
        self,
        base_url: str,
        *,
        key: Secret | None = None,
        profile: Profile | str | None = None,
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
        self._key = key
        self._profile = (
            profile if isinstance(profile, Profile) else profile_for(profile or base_url)
        )
        self._client = HttpClient(key=key, headers=headers, limits=limits, proxies=proxies)
        self._name = name
        self._breaker = breaker or Breaker(time.monotonic)
        self._jitter = jitter
        self._sleep = sleep

    @property
    def enforces(self) -> frozenset[str]:
        """What the server holds its model to by itself."""
        given = {"format": self._profile.json_schema, "arguments": self._profile.enforces_strict}
        return frozenset(name for name, is_so in given.items() if is_so)

    def stream(self, plan: Plan) -> AsyncGenerator[Sequence[Delta], None]:
        """Run the model; yield what happens. Raise BackendError when it cannot go on."""
        return self.stream_to(plan, _NOBODY)

    def stream_to(self, plan: Plan, listener: Listener) -> AsyncGenerator[Sequence[Delta], None]:
        """Like `stream`, but what the listener takes is not yielded."""
        emulation = emulate(plan, self._profile)
        if emulation is None:
            return self._attempts(plan, listener)
        return _emulated(self._attempts(emulation.plan, _NOBODY), emulation)

    async def _attempts(
        self, plan: Plan, listener: Listener
    ) -> AsyncGenerator[Sequence[Delta], None]:
        """Ask until there is an answer, or no hope of one."""
        data, report = await aside_if(plan.is_large, encode_request, plan, self._profile)
        if report:
            yield [Degraded(what) for what in report]
        attempt, budget = 1, WAIT_BUDGET
        deployment = f"{self._name}/{plan.model}"
        may_retry = self._breaker.may_try(deployment)
        while True:
            has_spoken = False
            listener.note_asked()
            try:
                async with (
                    await self._ask(data, plan) as wire,
                    aclosing(self._read(wire, plan, listener)) as batches,
                ):
                    async for batch in batches:
                        if not has_spoken:
                            self._breaker.note_success(deployment)
                            has_spoken, data = True, b""  # it is not sent again
                        yield batch
                return
            except BackendError as error:
                self._redact(error)
                wait = None if has_spoken else self._wait_after(error, attempt, budget)
                if not may_retry and error.status != _BUSY:
                    wait = None
                self._report(error, deployment, attempt, wait, has_spoken=has_spoken)
                if wait is None:
                    raise
            await self._sleep(wait)
            attempt += 1
            budget -= wait

    async def count(self, plan: Plan) -> int | None:
        """Return the tokens of the prompt if the server can count it."""
        emulation = emulate(plan, self._profile)
        shown = plan if emulation is None else emulation.plan
        body, _ = await aside_if(plan.is_large, write_request, shown, self._profile)
        return await count_prompt(self._client, self._base, body, self._profile)

    async def models(self) -> Sequence[ModelInfo]:
        """Return what the server offers. Raise BackendError if it does not say."""
        reply = await self._client.fetch("GET", f"{self._base}/models")
        if reply.head.status != 200:
            error = fault_from_body(
                reply.head.status,
                reply.body,
                _retry_after(reply.head),
                has_key=self._key is not None,
            )
            self._redact(error)
            raise error
        return read_models(reply.body)

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def _ask(self, data: bytes, plan: Plan) -> ByteStream:
        """Return what the server answers with, or raise what its refusal amounts to."""
        wire = await open_stream(
            self._client,
            f"{self._base}/chat/completions",
            data,
            headers={"Accept": _EVENTS if plan.stream else "application/json"},
            # An answer that is not streamed has its first byte when the model has its last.
            patience=None if plan.stream else self._client.limits.idle,
        )
        try:
            await _check_status(wire, has_key=self._key is not None)
        except BaseException:
            wire.close()
            raise
        return wire

    def _read(
        self, wire: ByteStream, plan: Plan, listener: Listener
    ) -> AsyncGenerator[Sequence[Delta], None]:
        """Yield what the answer tells; raise what went wrong after all that came."""
        reader = ChatStream(
            think_tags=self._profile.think_tags,
            names=names_in_text(plan, self._profile),
            max_line=self._client.limits.line,
        )
        if _is_event_stream(wire.head, plan.stream):
            return _read_events(wire, reader, _Ear(reader, listener))
        return self._read_whole(wire, reader)

    async def _read_whole(
        self, wire: ByteStream, reader: ChatStream
    ) -> AsyncGenerator[Sequence[Delta], None]:
        yield reader.whole(await wire.read_all(self._client.limits.body))
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

    def _report(
        self,
        error: BackendError,
        deployment: str,
        attempt: int,
        wait: float | None,
        *,
        has_spoken: bool,
    ) -> None:
        """Log a failed attempt; if it was the last one, let the breaker know."""
        if wait is None:
            is_its_own = self._breaker.note_failure(deployment, error)
            may_pass = is_its_own and self._breaker.is_open(deployment)
            if error.retry_after is None and may_pass:
                error.retry_after = math.ceil(self._breaker.seconds_left(deployment))
        level = logging.WARNING if error.status >= 500 or error.status == _BUSY else logging.DEBUG
        when = "after the answer had begun" if has_spoken else f"at attempt {attempt}"
        then = "giving up" if wait is None else f"next attempt in {wait:.1f} s"
        cause = _own_words(error)
        _log.log(level, "upstream %s failed %s: %s; %s", deployment, when, cause, then)

    def _redact(self, error: BackendError) -> None:
        """Take our own key out of whatever the upstream said."""
        if self._key is None:
            return
        error.message = self._key.redact(error.message)
        error.args = (error.message,)
        error.code = self._key.redact(error.code) if error.code else error.code
        error.param = self._key.redact(error.param) if error.param else error.param


class _Ear:
    """Hears what comes while the reader of a stream waits, and keeps what is left to be told."""

    def __init__(self, reader: ChatStream, listener: Listener) -> None:
        self.batch: Sequence[Delta] = ()
        self.refusal: BackendError | None = None
        """Raised by the listener, and no fault of the upstream's."""
        self._reader = reader
        self._listener = listener

    def hear(self, piece: bytes) -> bool:
        """Read this; say whether there is nothing to be done about it, and more may come."""
        reader = self._reader
        batch = self.batch = reader.feed(piece)
        if reader.is_about_to_end:
            return False
        try:
            return not batch or self._listener.take(batch)
        except BackendError as error:
            self.refusal = error
            raise


async def _read_events(
    wire: ByteStream, reader: ChatStream, ear: _Ear
) -> AsyncGenerator[Sequence[Delta], None]:
    """Yield a batch for each read of the wire that was not taken."""
    piece: bytes | None = None
    broken: BackendError | None = None
    while piece != b"" and reader.fault is None and not reader.is_done:
        try:
            piece = await wire.read_or_hear(ear.hear)
        except BackendError as error:
            if ear.refusal is not None:
                raise
            piece, broken = b"", error
        batch = ear.batch
        if piece is not None:
            batch = reader.feed(piece) if piece else reader.end(broken)
        if batch:
            yield batch
        if reader.has_reason:
            wire.hurry(_AFTERWORD)
    if piece != b"" and reader.is_done:
        await wire.finish()
    if reader.fault is not None:
        raise reader.fault


async def _check_status(wire: ByteStream, *, has_key: bool) -> None:
    """Raise what the server's refusal amounts to, if it refuses."""
    status = wire.head.status
    if 200 <= status < 300:
        return
    try:
        body = await wire.read_all(_MAX_ERROR)
    except BackendError:
        body = b""
    raise fault_from_body(status, body, _retry_after(wire.head), has_key=has_key)


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


async def _emulated(
    batches: AsyncGenerator[Sequence[Delta], None], emulation: Emulation
) -> AsyncGenerator[Sequence[Delta], None]:
    async with aclosing(batches):
        try:
            async for batch in batches:
                yield emulation.feed(batch)
        except BackendError:
            if rest := emulation.release():
                yield rest
            raise


def _own_words(error: BackendError) -> str:
    """Return the cause without what the upstream wrote, which may quote a conversation."""
    cause = error.__cause__
    reason = f" ({type(cause).__name__}: {cause})" if isinstance(cause, OSError) else ""
    seen = error.upstream_status
    answered = f"HTTP {seen} from the upstream, " if seen is not None else ""
    return f"{error.code}, {answered}HTTP {error.status} for the caller{reason}"


def _retry_after(head: Head) -> float | None:
    return read_retry_after(head.headers, time.time())
