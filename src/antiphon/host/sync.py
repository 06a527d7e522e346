"""The same provider for programs without an event loop.

It runs `Provider` in the event loop of a synchronous `Client`, so the two can never differ.
Parts cross over in batches. `progress` and the loop over a stream run in the caller's thread.

A `threading.Event` cannot be awaited, so the one that cancels an answer is looked at every
`_LOOK` seconds while a part is waited for, and before each wait.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Final, Self

from antiphon.client.sync import Blocking, Client, blocking
from antiphon.host.answer import AnswerStream, Batches
from antiphon.host.errors import TurnCancelled
from antiphon.host.model_table import ModelTable
from antiphon.host.options import RespondOptions
from antiphon.host.outcome import Outcome
from antiphon.host.provider import Provider, ProviderSettings
from antiphon.host.usage import UsageTracker
from antiphon.wires.host.parts import Message, ResponsePart

__all__ = ["SyncAnswerStream", "SyncProvider"]

_LOOK: Final = 0.02
_ASYNCHRONOUS: Final = (
    "progress must be a plain function here; antiphon.host.Provider awaits others"
)


class SyncAnswerStream:
    """The parts of one answer. Iterate over it once; then `outcome` has the result."""

    def __init__(
        self,
        client: Client,
        begin: Callable[[asyncio.Event], AnswerStream],
        cancel: threading.Event | None = None,
    ) -> None:
        self._client = client
        self._wish = cancel
        self._watcher: asyncio.Task[None] | None = None
        self._cancel = asyncio.Event()
        self._answer = begin(self._cancel)
        self._batches: Batches | None = None
        self._reading = asyncio.Lock()
        self._stopped: TurnCancelled | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *reason: object) -> None:
        self.close()

    def __iter__(self) -> Generator[ResponsePart, None, None]:
        """Yield every part. An answer that is not whole raises after all its parts."""
        batches = self._batches = self._answer.batches()
        try:
            while (batch := self._client.run(self._following(batches))) is not None:
                if isinstance(batch, TurnCancelled):
                    raise batch
                yield from batch
        finally:
            self.close()

    def close(self) -> None:
        """Hang up, and let the model stop. Closing twice does nothing.

        If another thread waits for a part, TurnCancelled is raised there.
        """
        if not self._client.is_closed:
            self._client.run(self._close())

    async def _close(self) -> None:
        """Let the answer itself notice that it is cancelled, so that it is counted."""
        self._cancel.set()
        if self._watcher is not None:
            self._watcher.cancel()
        async with self._reading:
            if self._batches is None:
                await self._answer.close()
                return
            try:
                await anext(self._batches, None)
            except TurnCancelled as error:
                self._stopped = error

    async def _following(self, batches: Batches) -> list[ResponsePart] | TurnCancelled | None:
        """Return the next parts, None at the end, or that the answer was cancelled.

        The error is returned, not raised: after Ctrl-C the caller has stopped waiting for this
        task, and an error that is not retrieved would be printed.
        """
        async with self._reading:
            if self._stopped is not None:
                return self._stopped
            self._watch()
            try:
                return await anext(batches, None)
            except TurnCancelled as error:
                return error

    def _watch(self) -> None:
        """Cancel the answer when the caller's event is set, now or while waiting for a part."""
        if self._wish is None:
            return
        if self._wish.is_set():
            self._cancel.set()
        elif self._watcher is None:
            self._watcher = asyncio.create_task(self._obey(self._wish))

    async def _obey(self, wish: threading.Event) -> None:
        while not wish.is_set():  # noqa: ASYNC110  an event of threads cannot be awaited
            await asyncio.sleep(_LOOK)
        self._cancel.set()

    @property
    def outcome(self) -> Outcome:
        """How the answer ended. Raise RuntimeError as long as it has not."""
        return self._answer.outcome


class SyncProvider(Blocking[Provider]):
    """Provider, synchronous: the same parameters, the same methods. Enter it, or close it."""

    def __init__(
        self,
        client: Client,
        settings: ProviderSettings | None = None,
        *,
        table: ModelTable | None = None,
        usage: UsageTracker | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        if not isinstance(client, Client):
            raise TypeError("SyncProvider needs a Client; with an AsyncClient it is Provider")
        provider = Provider(
            client.asynchronous, settings, table=table, usage=usage, environ=environ
        )
        super().__init__(client._portal, provider)
        self.usage: Final = provider.usage
        self.tokens: Final = provider.tokens
        self._client = client

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *reason: object) -> None:
        self.close()

    def close(self) -> None:
        """End what is under way. The client stays open: it was given to us."""
        if not self._client.is_closed:
            self._client.run(self._asynchronous.close())

    models = blocking(Provider.models)
    measure_tokens = blocking(Provider.measure_tokens)

    def count_tokens(self, model: str, content: str | Message) -> int:
        """Return how many tokens a text or a message has for this model. Made to be fast."""
        return self._asynchronous.count_tokens(model, content)

    def stream(
        self,
        model: str,
        messages: Sequence[Message],
        options: RespondOptions | None = None,
        cancel: threading.Event | None = None,
    ) -> SyncAnswerStream:
        """Ask the model, and return the parts of its answer, to be iterated over.

        Nothing is sent until the iteration begins. Setting `cancel`, from any thread, hangs up
        and raises TurnCancelled here; if it is set already, nothing is sent. `close()` of what
        is returned stops the answer too, also from another thread.
        """
        return SyncAnswerStream(
            self._client,
            lambda stop: self._asynchronous.stream(model, messages, options, stop),
            cancel,
        )

    def respond(
        self,
        model: str,
        messages: Sequence[Message],
        options: RespondOptions | None = None,
        progress: Callable[[ResponsePart], object] = lambda part: None,
        cancel: threading.Event | None = None,
    ) -> Outcome:
        """Ask the model; hand each part of the answer to `progress`; return how it ended.

        `progress` is called in this thread. If it raises, the turn is stopped. `cancel` and
        errors are those of `stream`. Ctrl-C (KeyboardInterrupt) hangs up as well.
        """
        with self.stream(model, messages, options, cancel) as answer:
            for part in answer:
                shown = progress(part)
                if inspect.isawaitable(shown):
                    if inspect.iscoroutine(shown):
                        shown.close()
                    raise TypeError(_ASYNCHRONOUS)
        return answer.outcome
