"""What waits for a thread, and how do callers hear what came of it?

Jobs are bounded in number and bytes: whoever comes too late is refused, nobody is forgotten.
Each event loop is woken once for all of its callers, and has one timer for those whose time
may run out: a timer for each would cost more than all the rest that a loop does for a job.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, Final, TypeVar

from antiphon.protocol.errors import StoreUnavailable

__all__ = [
    "MAX_WAITING",
    "MAX_WAITING_BYTES",
    "Backlog",
    "Job",
    "Run",
    "Together",
    "Watch",
    "deliver",
]

MAX_WAITING: Final = 10_000
MAX_WAITING_BYTES: Final = 256 * 1024 * 1024

_T = TypeVar("_T")
Run = Callable[[sqlite3.Connection], _T | Exception]
Together = Callable[[sqlite3.Connection, Sequence[Any]], Sequence[Any]]
"""Does several runs of a kind at once: the attribute `together` of each of them."""


class Job:
    """One thing to do on a connection; `future` is None if nobody waits for it."""

    __slots__ = ("deadline", "error", "future", "is_removal", "result", "run", "then", "watch")

    def __init__(self, run: Run[Any], deadline: float, watch: Watch | None = None) -> None:
        self.run = run
        self.deadline = deadline
        self.watch = watch
        self.future: asyncio.Future[Any] | None = watch.expect(self) if watch else None
        self.is_removal = False
        self.then: Callable[[], None] | None = None  # called when the answer is given
        self.result: Any = None  # whatever `run` returns
        self.error: StoreUnavailable | None = None

    @property
    def is_removed(self) -> bool:
        """Whether this removed something."""
        return self.is_removal and self.result is True

    def resolve(self) -> None:
        """Tell who waits. Runs in the event loop; the caller may have left."""
        future = self.future
        if future is None:
            return
        if self.watch is not None:
            self.watch.forget(self)
        if future.done():
            return
        if self.error is not None:
            future.set_exception(self.error)
        elif isinstance(self.result, Exception):
            future.set_exception(self.result)
        else:
            future.set_result(self.result)


class Backlog:
    """Jobs on their way to a thread. Bounded in number and bytes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._bell: SimpleQueue[None] = SimpleQueue()
        self._is_rung = False
        self._is_closed = False
        self._jobs: list[Job] = []
        self._bytes = 0
        self.is_busy = False
        # Whether the thread will look for jobs soon without being woken.
        self.is_coming = False

    def put(self, job: Job, size: int) -> bool:
        """Add a job; say whether it is the first of a new batch. Does not wake the thread."""
        with self._lock:
            if self._is_closed:
                raise StoreUnavailable("the store is closed")
            if len(self._jobs) >= MAX_WAITING or self._bytes + size > MAX_WAITING_BYTES:
                raise StoreUnavailable("too much is waiting to be stored; try again")
            self._jobs.append(job)
            self._bytes += size
            self.is_busy = True
            return len(self._jobs) == 1

    def ring(self) -> None:
        """Wake the thread."""
        with self._lock:
            if not self._is_rung:
                self._is_rung = True
                self._bell.put(None)

    def take(self, seconds: float | None = None, nap: float = 0.0) -> list[Job] | None:
        """Wait for the bell and return all jobs; None when closed and nothing is left.

        Return no jobs when the time is over. After a `nap` in which the bell may ring, take
        what has come without it. There is none after a nap that brought no jobs.
        """
        with self._lock:
            self.is_busy = bool(self._jobs)
        if self.is_coming:
            if self._hears_bell(nap if seconds is None else min(nap, seconds)):
                return self._take_all()
            with self._lock:
                self.is_coming = bool(self._jobs)
            if self.is_coming:
                return self._take_all(is_rung=False)
        return self._take_all() if self._hears_bell(seconds) else []

    def _hears_bell(self, seconds: float | None) -> bool:
        try:
            self._bell.get(timeout=seconds)
        except Empty:
            return False
        return True

    def _take_all(self, *, is_rung: bool = True) -> list[Job] | None:
        with self._lock:
            jobs, self._jobs = self._jobs, []
            self._bytes = 0
            self.is_coming = bool(jobs)
            if is_rung:
                self._is_rung = self._is_closed
            return None if self._is_closed and not jobs else jobs

    def close(self) -> None:
        """Take no more jobs."""
        with self._lock:
            self._is_closed = True
            # Once for what is left, once for the end.
            self._bell.put(None)
            self._bell.put(None)


class Watch:
    """Gives up on answers that do not come, for the callers of one event loop.

    `grace` is how long after its deadline a job is given up, by `time.monotonic`.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, grace: float) -> None:
        self.loop = loop
        self._grace = grace
        # All have equally long, so the first is the oldest.
        self._waiting: dict[Job, None] = {}
        self._is_armed = False

    def expect(self, job: Job) -> asyncio.Future[Any]:
        """Return a future that is answered by the job, or with StoreUnavailable when it is late."""
        self._waiting[job] = None
        if not self._is_armed:
            self._arm(job)
        return self.loop.create_future()

    def forget(self, job: Job) -> None:
        """Note that there is an answer, or nobody who could give one."""
        self._waiting.pop(job, None)

    def _arm(self, job: Job) -> None:
        self._is_armed = True
        left = job.deadline + self._grace - time.monotonic()
        self.loop.call_later(max(0.0, left), self._look)

    def _look(self) -> None:
        """Give up on what is late, and look again when the next one may be."""
        now = time.monotonic()
        self._is_armed = False
        for job in list(self._waiting):
            if job.deadline + self._grace > now:
                self._arm(job)
                break
            self.forget(job)
            if job.future is not None and not job.future.done():
                late = StoreUnavailable("the database did not answer in time; try again")
                job.future.set_exception(late)


def deliver(jobs: list[Job]) -> None:
    """Wake each event loop once, for all of its callers."""
    loops: dict[asyncio.AbstractEventLoop, list[Job]] = {}
    for job in jobs:
        if job.future is not None:
            loops.setdefault(job.future.get_loop(), []).append(job)
    for loop, callers in loops.items():
        with suppress(RuntimeError):  # the loop was closed: nobody waits there
            loop.call_soon_threadsafe(_resolve, callers)


def _resolve(jobs: list[Job]) -> None:
    for job in jobs:
        job.resolve()
        if job.then is not None:
            job.then()
