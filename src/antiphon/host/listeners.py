"""Listeners for updates, and the tasks of those that are asynchronous.

Listeners must not raise. The error of one that does goes to `sys.excepthook`, which prints it
unless the application has replaced it, and the others are called all the same. The awaitable of
an asynchronous listener runs as a task of the current event loop; `Tasks.wait` waits for it.
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
    """The unfinished tasks of asynchronous listeners."""

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
    """The listeners of one kind of update. Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listeners: dict[object, Callable[[_T], object]] = {}
        # An event loop holds its tasks only weakly, and these may not be awaited by anyone.
        self._tasks = Tasks()

    def add(self, listener: Callable[[_T], object]) -> Callable[[], None]:
        """Add a listener. Return a function that removes it."""
        registration = object()
        with self._lock:
            self._listeners[registration] = listener

        def remove() -> None:
            with self._lock:
                self._listeners.pop(registration, None)

        return remove

    def notify(self, update: _T, tasks: Tasks) -> None:
        """Call all listeners; unfinished asynchronous ones are added to `tasks`."""
        with self._lock:
            listeners = list(self._listeners.values())
        for listener in listeners:
            try:
                taking = listener(update)
                if inspect.isawaitable(taking):
                    self._start(taking, tasks)
            except Exception as error:  # noqa: BLE001  any error of a listener is its own
                _report(error)

    def _start(self, taking: Awaitable[object], tasks: Tasks) -> None:
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            if inspect.iscoroutine(taking):
                taking.close()
            raise TypeError("an asynchronous listener needs a running event loop") from None
        task = loop.create_task(_finish(taking))
        tasks.add(task)
        self._tasks.add(task)


async def _finish(taking: Awaitable[object]) -> None:
    try:
        await taking
    except Exception as error:  # noqa: BLE001  any error of a listener is its own
        _report(error)


def _report(error: Exception) -> None:
    """Pass an error to Python as an uncaught one: no caller could handle it."""
    error.add_note("raised by a listener, which must not raise; the turn is not affected")
    sys.excepthook(type(error), error, error.__traceback__)
