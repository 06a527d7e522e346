"""One answer as parts: who reads it, who stops it, and how it ended.

    async for part in provider.stream(model, messages):
        ...

The request is sent when the iteration begins. An answer is read once. Leaving the loop early
closes the connection, which stops the model; `async with provider.stream(…) as answer` does so
at once, without waiting for the event loop to collect the iteration.

The application's `cancel` event is watched by one task per answer. It interrupts only what is
awaited through `CancelGuard.wait`, never the application's own code.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import Self, TypeVar

from antiphon.host.errors import TurnCancelled
from antiphon.host.outcome import Outcome
from antiphon.protocol.response import Response
from antiphon.wires.host.parts import ResponsePart

__all__ = ["AnswerStream", "Batches", "CancelGuard"]

Batches = AsyncGenerator[list[ResponsePart], None]
"""The parts of an answer, as many at a time as one read of the wire brought."""

_T = TypeVar("_T")


class CancelGuard:
    """Waits for something, unless the application cancels first.

    `partial` returns what has arrived by then, for the error.
    """

    def __init__(
        self,
        cancel: asyncio.Event | None,
        partial: Callable[[], Response | None] = lambda: None,
    ) -> None:
        self._cancel = cancel
        self._partial = partial
        self._watcher: asyncio.Task[object] | None = None
        self._waiting: asyncio.Task[object] | None = None

    async def wait(self, work: Awaitable[_T]) -> _T:
        """Return what the work returns. Raise TurnCancelled when `cancel` is set."""
        if self._cancel is None:
            return await work
        if self._cancel.is_set():
            if asyncio.iscoroutine(work):
                work.close()
            raise TurnCancelled(self._partial())
        return await self._wait(self._cancel, work)

    async def _wait(self, cancel: asyncio.Event, work: Awaitable[_T]) -> _T:
        """Let the watcher cancel this task, as `asyncio.timeout` does, and only while it waits."""
        if self._watcher is None:
            self._watcher = asyncio.ensure_future(cancel.wait())
            self._watcher.add_done_callback(self._interrupt)
        task = asyncio.current_task()
        before = task.cancelling() if task else 0
        self._waiting = task
        try:
            return await work
        except asyncio.CancelledError:
            if task and cancel.is_set() and task.uncancel() <= before:
                raise TurnCancelled(self._partial()) from None
            raise
        finally:
            self._waiting = None

    def _interrupt(self, watcher: asyncio.Task[object]) -> None:
        if self._waiting is not None and not watcher.cancelled():
            self._waiting.cancel()

    async def close(self) -> None:
        """Stop watching."""
        if self._watcher is not None:
            self._watcher.cancel()
            await asyncio.gather(self._watcher, return_exceptions=True)


class AnswerStream:
    """The parts of one answer. Iterate over it once; then `outcome` has the result."""

    def __init__(
        self,
        read: Callable[[AnswerStream], Batches],
        cancel: asyncio.Event | None = None,
        partial: Callable[[], Response | None] = lambda: None,
    ) -> None:
        self._read = read
        self._batches: Callable[[], Batches | None] = lambda: None
        self._has_begun = False
        self._outcome: Outcome | None = None
        self.guard = CancelGuard(cancel, partial)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *reason: object) -> None:
        await self.close()

    async def __aiter__(self) -> AsyncGenerator[ResponsePart, None]:
        """Yield every part. An answer that is not whole raises after all its parts."""
        async with aclosing(self.batches()) as batches:
            async for batch in batches:
                for part in batch:
                    yield part

    def batches(self) -> Batches:
        """Return the parts in batches: what one read of the wire brought."""
        if self._has_begun:
            raise RuntimeError("an answer is read once; ask again for another")
        self._has_begun = True
        batches = self._read(self)
        # Weak: if the loop over it is left, nothing else keeps it open.
        self._batches = weakref.ref(batches)
        return batches

    async def close(self) -> None:
        """Hang up, and let the model stop. Closing twice does nothing."""
        self._has_begun = True
        batches = self._batches()
        if batches is not None:
            await batches.aclose()

    @property
    def outcome(self) -> Outcome:
        """How the answer ended. Raise RuntimeError as long as it has not."""
        if self._outcome is None:
            raise RuntimeError("the answer has not ended; read all its parts first")
        return self._outcome

    def end(self, outcome: Outcome) -> None:
        """Note how the answer ended."""
        self._outcome = outcome
