"""The answer of a store, for callers that wait and for callers that register a callback.

Like a future, with one difference: callbacks run inside `answer`, not in a later iteration of
the event loop. Every token of a stream is stored and sent in this way, and an iteration for
each of them would be a tenth of its cost. A promise belongs to one event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator
from functools import partial
from typing import Any, Generic, TypeVar

from antiphon.protocol.errors import StoreUnavailable

__all__ = ["Promise", "kept", "promised", "promised_soon"]

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

    @property
    def error(self) -> Exception | None:
        """What is raised to the callers; None also while there is no answer."""
        return self._error

    async def arrived(self) -> None:
        """Wait for the answer, whatever it is."""
        if not self._is_done:
            await self._arrival()

    def __await__(self) -> Generator[Any, None, _T]:
        if not self._is_done:
            yield from self._arrival()
        try:
            return self.result()
        finally:
            del self  # as in `result`

    def _arrival(self) -> asyncio.Future[None]:
        waiter: asyncio.Future[None] = self.loop.create_future()
        self._callbacks += (lambda _: None if waiter.done() else waiter.set_result(None),)
        return waiter


def kept(outcome: _T | Exception) -> Promise[_T]:
    """Return a promise that has its answer, or raises this error."""
    promise: Promise[_T] = Promise(asyncio.get_running_loop())
    promise.answer(outcome)
    return promise


def promised(start: Callable[[], Awaitable[_T]]) -> Promise[_T]:
    """Call this and return a promise of what it returns, or raises."""
    try:
        answer = start()
    except Exception as error:  # noqa: BLE001 # it is raised to the callers of the promise
        return kept(error)
    if isinstance(answer, Promise):
        return answer
    task = asyncio.ensure_future(answer)
    promise: Promise[_T] = Promise(task.get_loop())
    task.add_done_callback(partial(_pass_on, promise))
    return promise


def promised_soon(start: Callable[[], Awaitable[_T]]) -> Promise[_T]:
    """Do the same, but call it in the next pass of the event loop."""
    promise: Promise[_T] = Promise(asyncio.get_running_loop())
    promise.loop.call_soon(_start, promise, start)
    return promise


def _start(promise: Promise[_T], start: Callable[[], Awaitable[_T]]) -> None:
    promised(start).add_done_callback(partial(_pass_on, promise))
    del promise  # an error of `start` refers to the frames below its own, and so to this one


def _pass_on(promise: Promise[_T], answer: Promise[_T] | asyncio.Future[_T]) -> None:
    error = _error_of(answer)  # raised here, it would refer to this frame and so to the promise
    promise.answer(answer.result() if error is None else error)


def _error_of(answer: Promise[_T] | asyncio.Future[_T]) -> Exception | None:
    if isinstance(answer, Promise):
        return answer.error
    error = asyncio.CancelledError() if answer.cancelled() else answer.exception()
    if error is None or isinstance(error, Exception):
        return error
    return StoreUnavailable("the gateway ends; this may not be stored")
