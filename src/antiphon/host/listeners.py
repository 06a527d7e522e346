"""Who is told, and who waits for it?

Listeners must not raise. One that does is no reason to keep the others waiting: its error goes to
`sys.excepthook`, which prints it unless the application says otherwise. What an asynchronous
listener returns runs as a task of the event loop that tells; `Tasks.wait` waits for it.
"""

from __future__ import annotations

import asyncio
import inspect
import sys
import threading
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

__all__ = ["Listeners", "Tasks"]

_T = TypeVar("_T")


class Tasks:
    """What asynchronous listeners still do with what they were told."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[None]] = set()

    def add(self, task: asyncio.Task[None]) -> None:
        """Keep a task until it is done."""
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def wait(self) -> None:
        """Wait until all are done."""
        if self._running:
            await asyncio.wait(self._running)


class Listeners(Generic[_T]):
    """Those who are told. Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listeners: dict[object, Callable[[_T], object]] = {}
        # An event loop holds its tasks only weakly, and nobody may wait for these.
        self._tasks = Tasks()

    def add(self, listener: Callable[[_T], object]) -> Callable[[], None]:
        """Tell this one too, from now on. Return a function that stops it."""
        registration = object()
        with self._lock:
            self._listeners[registration] = listener

        def remove() -> None:
            with self._lock:
                self._listeners.pop(registration, None)

        return remove

    def tell(self, update: _T, tasks: Tasks) -> None:
        """Tell all of them; `tasks` gets what is not done when this returns."""
        with self._lock:
            listeners = list(self._listeners.values())
        for listener in listeners:
            try:
                taking = listener(update)
                if inspect.isawaitable(taking):
                    self._start(taking, tasks)
            except Exception as error:  # noqa: BLE001  whatever it is, it is not the teller's
                _report(error)

    def _start(self, taking: Awaitable[object], tasks: Tasks) -> None:
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            if inspect.iscoroutine(taking):
                taking.close()
            raise TypeError("an asynchronous usage listener needs a running event loop") from None
        task = loop.create_task(_finish(taking))
        tasks.add(task)
        self._tasks.add(task)


async def _finish(taking: Awaitable[object]) -> None:
    try:
        await taking
    except Exception as error:  # noqa: BLE001  whatever it is, it is not the teller's
        _report(error)


def _report(error: Exception) -> None:
    """Hand an error that nobody can be given to Python, as one that nobody caught."""
    error.add_note("raised by a usage listener, which must not raise; the turn is not affected")
    sys.excepthook(type(error), error, error.__traceback__)
