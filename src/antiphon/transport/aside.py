"""Run work that would block the event loop in a thread beside it, one piece after the other.

There is one thread for it. Python code in a thread releases the interpreter every half
millisecond if the loop waits for it, so the loop keeps running; with several such threads the
loop would have to wait for each of them. The work must not be one long call of C code, which
releases the interpreter only at its end: cut it into pieces of a few milliseconds.

Owners take turns: the queue of one owner delays the next piece of another by one piece.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import ContextVar
from functools import partial
from threading import Lock
from typing import Any, Final, ParamSpec, TypeVar

__all__ = ["aside", "aside_if", "work_for", "works_for"]

_P = ParamSpec("_P")
_T = TypeVar("_T")

# The thread starts with the first work, so a process that forks before that is fine.
_THREAD: Final = ThreadPoolExecutor(1, thread_name_prefix="aside")
_owner: ContextVar[str] = ContextVar("owner", default="")

_Job = tuple["Future[Any]", Callable[[], Any]]  # Any: each job has a result of its own


def work_for(owner: str) -> None:
    """Let this task, and those that it starts from now on, take turns as this owner."""
    _owner.set(owner)


def works_for() -> str:
    """Return the owner this task works for; empty if it works for the gateway itself."""
    return _owner.get()


async def aside(work: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
    """Return what `work` returns, or raise what it raises, while the loop keeps running.

    A caller that is cancelled returns at once; work that has begun is finished and dropped.
    """
    done: Future[_T] = Future()
    _waiting.put(_owner.get(), (done, partial(work, *args, **kwargs)))
    # One run for each job, whichever that turns out to be.
    _THREAD.submit(_run_next)
    return await asyncio.wrap_future(done)


async def aside_if(
    is_large: bool, work: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs
) -> _T:
    """Run large work beside the loop, and small work at once: a thread would cost more."""
    if is_large:
        return await aside(work, *args, **kwargs)
    return work(*args, **kwargs)


class _Waiting:
    """The jobs that wait, by owner. The owner whose turn is next comes first."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._jobs: dict[str, deque[_Job]] = {}

    def put(self, owner: str, job: _Job) -> None:
        with self._lock:
            self._jobs.setdefault(owner, deque()).append(job)

    def take(self) -> _Job:
        with self._lock:
            owner = next(iter(self._jobs))
            jobs = self._jobs.pop(owner)
            job = jobs.popleft()
            if jobs:
                self._jobs[owner] = jobs  # now the last one
            return job


_waiting: Final = _Waiting()


def _run_next() -> None:
    done, work = _waiting.take()
    if not done.set_running_or_notify_cancel():
        return
    try:
        result = work()
    except BaseException as error:  # noqa: BLE001 - raised where it is awaited
        done.set_exception(error)
    else:
        done.set_result(result)
