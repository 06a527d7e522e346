"""Which models does the server have, and what can they do?

The server is asked for its list at most every few minutes, with the ETag of its last answer. An
old list is returned at once while a new one is fetched, by one request for all callers. When the
server fails, the last good list stays valid, and the server is asked again after its Retry-After
or after a quarter of a minute.

Each fact about a model comes from the first source that states it: overrides of the
configuration, then the server's entry, then the bundled table. The configuration comes first
because it is the only source that the user can correct. None: no source states it.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from antiphon.client.errors import (
    ClientError,
    InvalidAnswer,
    ServerUnreachable,
    TimedOut,
    error_from_answer,
    error_from_transport,
)
from antiphon.host.listeners import Listeners, Tasks
from antiphon.host.model_table import ModelFacts, ModelTable
from antiphon.models.listing import read_models
from antiphon.models.prices import Price
from antiphon.protocol.errors import BackendError
from antiphon.transport.http import HttpClient, Reply

__all__ = ["ModelAbilities", "ModelDescription", "ModelDirectory"]

_log = logging.getLogger("antiphon.host")

_TTL: Final = 300.0
_RETRY_AFTER: Final = 15.0
_TIMEOUT: Final = 10.0
_DATE: Final = re.compile(r"[-@](\d{4}-\d{2}-\d{2}|\d{8}|latest)$")


class ModelAbilities(msgspec.Struct, frozen=True, kw_only=True):
    """What a model can do. None: no source states it."""

    image_input: bool | None = None
    tool_calling: bool | None = None
    reasoning: bool | None = None
    reasoning_levels: tuple[str, ...] = ()


class ModelDescription(msgspec.Struct, frozen=True, kw_only=True):
    """A model as a chat application shows it. None: no source states it."""

    id: str
    name: str
    family: str
    capabilities: ModelAbilities
    context_window: int | None = None
    max_input_tokens: int | None = None
    max_output_tokens: int | None = None
    price: Price | None = None


class ModelDirectory:
    """The models of one server. It belongs to the event loop it is used in."""

    def __init__(
        self,
        client: HttpClient,
        base_url: str,
        *,
        table: ModelTable | None = None,
        ttl: float = _TTL,
        timeout: float = _TIMEOUT,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._url = f"{base_url.rstrip('/')}/models"
        self._table = table or ModelTable()
        self._ttl = ttl
        self._timeout = timeout
        self._clock = clock
        self._models: tuple[ModelDescription, ...] | None = None
        self._etag: str | None = None
        self._good_until = 0.0
        self._failure: ClientError | None = None
        self._refresh: asyncio.Task[ClientError | None] | None = None
        self._is_closed = False
        self.changes: Final[Listeners[tuple[ModelDescription, ...]]] = Listeners()
        """Informed of each list that differs from the one before it."""

    async def list(self, *, silent: bool = True) -> tuple[ModelDescription, ...]:
        """Return the models that can chat, in the server's order.

        Only the first list is waited for. Silent never raises: without a list there are no
        models. Otherwise the error is raised when there is nothing to show; while a server that
        failed is left alone, that is the error it gave.
        """
        if self._models is not None:
            if self._clock() >= self._good_until:
                self._start()
            return self._models
        error = await self._first_list()
        if error is not None and not silent:
            raise error
        return self.known

    async def refresh(self, *, silent: bool = True) -> tuple[ModelDescription, ...]:
        """Ask the server now, however new the list is, and return the models that can chat.

        If that fails, the error is raised; silent returns the last good list instead.
        """
        error = await self._fetched()
        if error is not None and not silent:
            raise error
        return self.known

    @property
    def known(self) -> tuple[ModelDescription, ...]:
        """The last good list. Nothing is asked for."""
        return self._models or ()

    def get(self, model_id: str) -> ModelDescription | None:
        """Return what is known of a model now, listed or not; None if that is nothing."""
        for model in self.known:
            if model.id == model_id:
                return model
        facts = self._table.facts(model_id)
        return None if facts == ModelFacts() else _describe(model_id, facts)

    async def close(self) -> None:
        """End what is under way. The last good list can still be read."""
        self._is_closed = True
        if self._refresh is not None:
            self._refresh.cancel()
            await asyncio.wait({self._refresh})

    def _start(self) -> asyncio.Task[ClientError | None] | None:
        """Start to fetch the list, unless that is under way."""
        if self._is_closed:
            return None
        if self._refresh is None or self._refresh.done():
            self._refresh = asyncio.create_task(self._fetch())
        return self._refresh

    async def _first_list(self) -> ClientError | None:
        is_running = self._refresh is not None and not self._refresh.done()
        if self._failure is not None and not is_running and self._clock() < self._good_until:
            return self._failure
        return await self._fetched()

    async def _fetched(self) -> ClientError | None:
        """Fetch the list, or wait for the request that is under way; return what went wrong."""
        task = self._start()
        if task is not None:
            # A caller that stops waiting must not cancel the request of the others.
            await asyncio.wait({task})
        if task is None or task.cancelled():
            return ServerUnreachable("the list of models was closed before the server answered")
        return task.result()

    async def _fetch(self) -> ClientError | None:
        """Fetch the list and keep it; return what went wrong."""
        try:
            await self._ask()
        except ClientError as error:
            wait = error.retry_after or _RETRY_AFTER
            self._good_until = self._clock() + min(wait, self._ttl)
            self._failure = error
            _log.debug("no new list of models: %s", type(error).__name__)
            return error
        self._good_until = self._clock() + self._ttl
        return None

    async def _ask(self) -> None:
        headers = {"If-None-Match": self._etag} if self._etag else {}
        try:
            async with asyncio.timeout(self._timeout):
                reply = await self._client.fetch("GET", self._url, headers=headers)
        except BackendError as error:
            raise error_from_transport(error) from error
        except TimeoutError as error:
            raise TimedOut("the server did not list its models in time") from error
        except RuntimeError as error:  # our own client was closed
            raise ServerUnreachable(f"the models cannot be listed: {error}") from error
        if reply.head.status == 304 and self._etag:
            _log.debug("models unchanged")
            return
        before, self._models = self._models, tuple(self._read(reply))
        self._etag = reply.head.headers.get("etag")
        _log.debug("models listed: %d", len(self._models))
        if before is not None and before != self._models:
            self.changes.notify(self._models, Tasks())

    def _read(self, reply: Reply) -> Iterator[ModelDescription]:
        head = reply.head
        if head.status != 200:
            redact = self._client.redact
            raise error_from_answer(head.status, reply.body, head.headers, redact=redact)
        try:
            models = read_models(reply.body)
        except BackendError as error:
            message = "the server's list of models cannot be read; check the base URL"
            raise InvalidAnswer(message) from error
        for model in models:
            if model.is_chat:
                yield _describe(model.id, self._table.describe(model))


def _describe(model_id: str, facts: ModelFacts) -> ModelDescription:
    bare = model_id.rpartition("/")[2]
    return ModelDescription(
        id=model_id,
        name=facts.name or model_id,
        family=facts.family or _DATE.sub("", bare),
        capabilities=ModelAbilities(
            image_input=facts.image_input,
            tool_calling=facts.tool_calling,
            reasoning=facts.reasoning,
            reasoning_levels=facts.reasoning_levels or (),
        ),
        context_window=facts.context_window,
        max_input_tokens=facts.max_input_tokens or _room_for_input(facts),
        max_output_tokens=_within(facts.max_output_tokens, facts.context_window),
        price=facts.price,
    )


def _within(figure: int | None, window: int | None) -> int | None:
    """Return the figure, limited to the window: the server may have made that smaller."""
    return figure if figure is None or window is None else min(figure, window)


def _room_for_input(facts: ModelFacts) -> int | None:
    """Return what the window leaves for input when the longest answer is kept free."""
    window, output = facts.context_window, facts.max_output_tokens
    if window is None or output is None or output >= window:
        return window
    return window - output
