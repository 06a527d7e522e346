"""The answer of a store, for callers that wait and for callers that register a callback.

Like a future, with one difference: callbacks run inside `answer`, not in a later iteration of
the event loop. Every token of a stream is stored and sent in this way, and an iteration for
each of them would be a tenth of its cost. A promise belongs to one event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from typing import Any, Generic, TypeVar

__all__ = ["Promise"]

_T = TypeVar("_T")


class Promise(Generic[_T]):
    """An answer that comes once. It cannot be cancelled; a caller can stop waiting."""

    _is_done = False
    _result: _T | None = None
    _error: Exception | None = None
    _callbacks: tuple[Callable[[Promise[_T]], None], ...] = ()

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop

    def done(self) -> bool:
        """Return whether the answer has arrived."""
        return self._is_done

    def result(self) -> _T:
        """Return the answer, or raise it."""
        if self._error is not None:
            try:
                raise self._error
            finally:
                del self  # the error refers to this frame, and this frame to the error
        if not self._is_done:
            raise asyncio.InvalidStateError("there is no answer yet")
        return self._result  # type: ignore[return-value] # it was set

    def answer(self, outcome: _T | Exception) -> None:
        """Set the answer, or raise this error to the callers, and run the callbacks. Only once."""
        if self._is_done:
            raise asyncio.InvalidStateError("it was answered before")
        self._is_done = True
        if isinstance(outcome, Exception):
            self._error = outcome
        else:
            self._result = outcome
        callbacks, self._callbacks = self._callbacks, ()
        for callback in callbacks:
            callback(self)

    def add_done_callback(self, callback: Callable[[Promise[_T]], None]) -> None:
        """Call this, which must not raise, when the answer arrives: now, if it has."""
        if self._is_done:
            callback(self)
        else:
            self._callbacks += (callback,)

    def __await__(self) -> Generator[Any, None, _T]:
        if not self._is_done:
            waiter: asyncio.Future[None] = self.loop.create_future()
            self._callbacks += (lambda _: None if waiter.done() else waiter.set_result(None),)
            yield from waiter
        try:
            return self.result()
        finally:
            del self  # as in `result`
