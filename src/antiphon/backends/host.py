"""The models of an editor, which an extension of it offers over the bridge protocol.

The file of the editor (`host_file`) states where it listens. One connection (`host_link`) carries
all requests of this process; it is opened with the first, and again when it has ended: the file
is read each time, because an editor that starts again listens elsewhere. A connection that had
been in use and ends before anything came for a request was closed while the editor went away: the
request is sent again, once, on a new one.

Cancelling a run cancels the request at the editor, and that stops the model.
"""

from __future__ import annotations

import asyncio
import copy
import os
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from antiphon.backends.base import Ask, DeltaSink, ModelInfo, Relayed
from antiphon.backends.breaker import Breaker
from antiphon.backends.host_file import Editor, read_editor_file
from antiphon.backends.host_inbox import Inbox
from antiphon.backends.host_link import STALL_SECONDS, HostLink, open_link
from antiphon.backends.host_owner import listening_users
from antiphon.backends.patience import Patience
from antiphon.plans.capabilities import Capabilities
from antiphon.plans.plan import Plan
from antiphon.protocol.deltas import Delta
from antiphon.protocol.errors import BackendError, NotBuilt
from antiphon.transport.aside import aside_if
from antiphon.transport.exchange import late
from antiphon.transport.http import Limits, Sending
from antiphon.wires.host.answers import Received, Unreadable
from antiphon.wires.host.exchange import HostExchange
from antiphon.wires.host.faults import fault_of, invalid_answer
from antiphon.wires.host.messages import Count, Counted, Failed, ListModels, ModelEntry, Models
from antiphon.wires.host.request import CAPABILITIES, countable

__all__ = ["HostBackend"]

_COUNT_SECONDS: Final = 10.0
_LIST_SECONDS: Final = 30.0
_MAX_MODELS: Final = 10_000
_MAX_TOKENS: Final = 10**9


class HostBackend:
    """The models of the editor that has written the file at `path`.

    `name` is the provider's, for the breaker, and the account that thoughts are of. `stall` is how
    long one reader may hold up the others. `jitter` and `sleep` are there for tests.
    """

    def __init__(
        self,
        path: Path,
        *,
        limits: Limits | None = None,
        name: str = "editor",
        breaker: Breaker | None = None,
        stall: float = STALL_SECONDS,
        jitter: Callable[[], float] = random.random,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.capabilities: Capabilities = CAPABILITIES
        self.patience = Patience(name, breaker, jitter=jitter, sleep=sleep)
        self._path = path
        self._limits = limits or Limits()
        self._account = name
        self._stall = stall
        self._link: HostLink | None = None
        self._opening: asyncio.Task[HostLink] | None = None

    async def open(self, plan: Plan) -> Ask:
        """Return the request for this plan, as the editor is sent it."""
        exchange = await aside_if(plan.is_large, HostExchange, plan, self._account)
        run = partial(self._run, plan, exchange)
        return Ask(exchange.degraded, run, body=lambda: exchange.body)

    async def _run(self, plan: Plan, exchange: HostExchange, sink: DeltaSink) -> None:
        """Send the request, and read its answer into the sink."""
        reading = _Reading(exchange, sink, partial(self.patience.note_success, plan.model))
        try:
            async with (
                _within(self._limits.wall, f"it took {self._limits.wall:g} seconds"),
                self._asking(exchange.line, self._limits.first_byte) as (first, inbox),
            ):
                exchange.body = b""  # it is not sent again
                await reading.answer(first, inbox, self._limits.idle)
        except BackendError as error:
            await reading.break_off(error)
        if exchange.fault is not None:
            raise exchange.fault

    async def count(self, plan: Plan) -> int | None:
        """Return the input tokens of this plan if the editor can count all of them."""
        messages = await aside_if(plan.is_large, countable, plan, self._account)
        if messages is None:
            return None
        counted = await self._question(
            lambda request_id: Count(id=request_id, model=plan.model, contents=messages),
            _COUNT_SECONDS,
        )
        if not isinstance(counted, Counted) or len(counted.tokens) != len(messages):
            raise invalid_answer("it does not count what it was asked to")
        if not all(0 <= tokens <= _MAX_TOKENS for tokens in counted.tokens):
            raise invalid_answer("its counts are not numbers of tokens")
        return sum(counted.tokens)

    def relay(
        self, path: str, body: bytes, *, is_streamed: bool, sending: Sending
    ) -> AbstractAsyncContextManager[Relayed]:
        """Refuse: there is no HTTP server."""
        raise NotBuilt(f"the models of an editor do not answer {path}")

    async def models(self) -> Sequence[ModelInfo]:
        """Return what the editor offers. Raise BackendError if it does not answer."""
        listed = await self._question(
            lambda request_id: ListModels(id=request_id, refresh=True), _LIST_SECONDS
        )
        if not isinstance(listed, Models):
            raise invalid_answer("it does not list its models")
        return [_model_info(entry) for entry in listed.models[:_MAX_MODELS] if entry.id]

    async def close(self) -> None:
        """Close the connection."""
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.gather(self._opening, return_exceptions=True)
        if self._link is not None:
            self._link.close()

    # Requests on the connection.

    async def _question(
        self, question: Callable[[int], ListModels | Count], seconds: float
    ) -> Received:
        """Return the one answer to a question. Raise BackendError if it is an error."""

        def line_for(request_id: int) -> bytes:
            return msgspec.json.encode(question(request_id)) + b"\n"

        async with self._asking(line_for, seconds) as (first, _):
            answer = first[0]
        match answer:
            case Failed():
                raise fault_of(answer.error)
            case Unreadable():
                raise invalid_answer(answer.why)
        return answer

    @asynccontextmanager
    async def _asking(
        self, line_for: Callable[[int], bytes], seconds: float
    ) -> AsyncIterator[tuple[list[Received], Inbox]]:
        """Send a request; yield what came first, and where the rest comes.

        The request is cancelled if its answer has not ended at the end of the block.
        """
        async with _within(seconds):
            link, first, inbox = await self._begin(line_for)
        try:
            yield first, inbox
        finally:
            link.leave(inbox)

    async def _begin(
        self, line_for: Callable[[int], bytes]
    ) -> tuple[HostLink, list[Received], Inbox]:
        """Send a request and wait for its first message; again if the connection was stale."""
        link = await self._connect()
        was_used = link.is_used
        try:
            return (link, *await _send(link, line_for))
        except BackendError as error:
            if not was_used or link.is_open or error.code != "upstream_closed":
                raise
        link = await self._connect()
        return (link, *await _send(link, line_for))

    async def _connect(self) -> HostLink:
        """Return the connection, opened once for all who wait; a failure is tried again."""
        if self._link is not None and self._link.is_open:
            return self._link
        if self._opening is None or self._opening.done():
            self._opening = asyncio.create_task(self._open_link())
            self._opening.add_done_callback(_note_result)
        try:
            return await asyncio.shield(self._opening)
        except BackendError as error:
            raise copy.copy(error) from None  # all who wait get one, and add to it

    async def _open_link(self) -> HostLink:
        editor = await asyncio.to_thread(_find_editor, self._path)
        limit = self._limits.connect
        self._link = await open_link(
            editor, limit, self._stall, partial(_check_listener, self._path)
        )
        return self._link


class _Reading:
    """Reads one answer into a sink, as it arrives."""

    def __init__(
        self, exchange: HostExchange, sink: DeltaSink, on_speech: Callable[[], None]
    ) -> None:
        self._exchange = exchange
        self._sink = sink
        self._on_speech = on_speech
        self._has_spoken = False

    async def answer(self, messages: list[Received], inbox: Inbox, idle: float) -> None:
        """Read an answer that begins with these messages, up to its end."""
        await self._give(self._exchange.feed(messages))
        while not self._exchange.is_over:
            async with _within(idle):
                messages = await inbox.take()
            await self._give(self._exchange.feed(messages))

    async def break_off(self, error: BackendError) -> None:
        """Push what is left of an answer that ends with this error."""
        await self._give(self._exchange.end(error))

    async def _give(self, batch: Sequence[Delta]) -> None:
        if not batch:
            return
        if not self._has_spoken:
            self._has_spoken = True
            self._on_speech()
        if not self._sink.push(batch):
            await self._sink.drained()


def _find_editor(path: Path) -> Editor:
    """Return what the file states, unless another user listens there. It reads small files."""
    editor = read_editor_file(path)
    users = listening_users(editor.host, editor.port)
    if users and users != {os.geteuid()}:
        raise _foreign(path, editor)
    return editor


def _check_listener(path: Path, editor: Editor) -> None:
    """Raise BackendError unless our own user listens where we are connected, if that is known."""
    users = listening_users(editor.host, editor.port)
    if users is not None and users != {os.geteuid()}:
        raise _foreign(path, editor)


def _foreign(path: Path, editor: Editor) -> BackendError:
    return BackendError(
        f"another user listens at {editor.host}:{editor.port}, which the file {path} names; "
        "the editor does not run any longer: start it again, or remove the file",
        code="upstream_auth",
    )


async def _send(link: HostLink, line_for: Callable[[int], bytes]) -> tuple[list[Received], Inbox]:
    """Send a request on this connection, and return what came first."""
    inbox = await link.send(line_for)
    try:
        return await inbox.take(), inbox
    except BaseException:
        link.leave(inbox)
        raise


@asynccontextmanager
async def _within(seconds: float, what: str = "") -> AsyncIterator[None]:
    """Raise BackendError if the block takes longer than that."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        raise late(what) from None


def _note_result(opening: asyncio.Task[HostLink]) -> None:
    """Mark a failure as seen, also if all who waited for it were cancelled."""
    if not opening.cancelled():
        opening.exception()


def _model_info(entry: ModelEntry) -> ModelInfo:
    modalities = ("text", "image") if entry.image_input else ("text",)
    max_input = _limit(entry.max_input_tokens)
    return ModelInfo(
        id=entry.id,
        owned_by="editor",
        display_name=entry.name or None,
        family=entry.family or None,
        # Editors state no window of both; a prompt that fits here fits there.
        context_length=_limit(entry.context_window) or max_input,
        max_input_tokens=max_input,
        max_output_tokens=_limit(entry.max_output_tokens),
        modalities=None if entry.image_input is None else modalities,
        supports_tools=entry.tool_calling,
        reasoning=entry.reasoning,
        reasoning_levels=entry.reasoning_levels if entry.reasoning else None,
        price=entry.price,
    )


def _limit(tokens: int | None) -> int | None:
    """Return a limit, or None for a number that cannot be one."""
    return tokens if tokens is not None and 0 < tokens <= _MAX_TOKENS else None
