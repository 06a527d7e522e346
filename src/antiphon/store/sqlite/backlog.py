"""How do jobs reach a thread, and their results the callers?

Jobs are bounded in number and bytes: a job beyond that is refused, and no accepted job is
dropped. Each event loop is woken once for all of its callers, and has one timer for those whose
time may run out: a timer for each would cost more than everything else a loop does for a job.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from operator import attrgetter
from queue import Empty, SimpleQueue
from typing import Any, Final, TypeVar

from antiphon.protocol.errors import StoreUnavailable
from antiphon.store.limits import MAX_WAITING, MAX_WAITING_BYTES
from antiphon.store.promise import Promise

__all__ = ["Backlog", "Job", "Run", "Together", "Watch", "deliver", "watch_of"]

# Callers that are answered in one pass of the event loop: each of them has work to do then.
_ANSWERED_AT_ONCE: Final = 4

watch_of: Final = attrgetter("watch")
_T = TypeVar("_T")
Run = Callable[[sqlite3.Connection], _T | Exception]
Together = Callable[[sqlite3.Connection, Sequence[Any]], Sequence[Any]]
"""Does several runs of one kind together: the attribute `together` of each of them."""


class Job(Promise[Any]):
    """One thing to do on a connection, and the promise that it is done."""

    is_removal = False
    outcome: Any = None
    """What `run` has returned, or why it could not run: the answer, once it may be delivered."""
    is_urgent = False
    """Whether it goes before all others. It must depend on no job that was not answered."""
    on_failure: Callable[[StoreUnavailable], None] | None = None
    """Called in the thread if it could not run, for a job without a waiting caller."""

    def __init__(self, run: Run[Any], deadline: float, watch: Watch | None = None) -> None:
        self.run = run
        self.deadline = deadline
        self.watch = watch
        """The watch of the waiting caller, which is to `expect` it; None if no caller waits."""
        if watch is not None:
            self.loop = watch.loop

    @property
    def is_removed(self) -> bool:
        """Whether this removed something."""
        return self.is_removal and self.outcome is True


class Backlog:
    """Jobs on their way to a thread. Bounded in number and bytes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._bell: SimpleQueue[None] = SimpleQueue()
        self._is_rung = False
        self._is_closed = False
        self._jobs: list[Job] = []
        self._bytes = 0
        # Whether the thread does jobs that it has taken.
        self._is_working = False
        # Whether the thread will take jobs soon without being woken.
        self.is_coming = False
        self.has_urgent = False
        """Whether one of the jobs that wait, or were taken, may be urgent."""

    def put(self, job: Job, size: int) -> bool:
        """Add a job; return whether it is the first of a new batch. Does not wake the thread."""
        with self._lock:
            jobs = self._jobs
            waiting = len(jobs)
            size += self._bytes
            if self._is_closed:
                raise StoreUnavailable("the store is closed")
            if waiting >= MAX_WAITING or size > MAX_WAITING_BYTES:
                raise StoreUnavailable("too much is waiting to be stored; try again")
            jobs.append(job)
            self._bytes = size
        return not waiting

    def __len__(self) -> int:
        return len(self._jobs)

    @property
    def is_busy(self) -> bool:
        """Whether jobs wait or are being done."""
        with self._lock:
            return self._is_working or bool(self._jobs)

    def ring(self) -> None:
        """Wake the thread, if there is something to do for it."""
        with self._lock:
            if self._jobs and not self._is_rung:
                self._is_rung = True
                self._bell.put(None)

    def take(self, seconds: float | None = None, nap: float = 0.0) -> list[Job] | None:
        """Wait for the bell and return all jobs; None when closed and nothing is left.

        Return no jobs when the time is over. After a `nap` in which the bell may ring, take
        the jobs that came without it. After a nap without jobs there is no further nap.
        """
        self._is_working = False
        if self.is_coming:
            is_rung = self._hears_bell(nap if seconds is None else min(nap, seconds))
            jobs = self._take_all(is_rung=is_rung)
            if is_rung or jobs != []:
                return jobs
        return self._take_all(is_rung=True) if self._hears_bell(seconds) else []

    def take_more(self) -> list[Job]:
        """Return the jobs that came since others were taken. For the thread that took them."""
        with self._lock:
            jobs, self._jobs = self._jobs, []
            self._bytes = 0
            if self._is_rung and not self._is_closed:
                self._bell.get_nowait()
                self._is_rung = False
            return jobs

    def take_urgent(self) -> list[Job]:
        """Return the urgent jobs. For the thread, while it has taken others."""
        with self._lock:
            urgent = [job for job in self._jobs if job.is_urgent]
            self._jobs = [job for job in self._jobs if not job.is_urgent]
            self.has_urgent = False
            return urgent

    def put_back(self, jobs: list[Job]) -> None:
        """Put back jobs that were taken, before all others; their bytes count no longer.

        Wakes the thread.
        """
        with self._lock:
            self._jobs[:0] = jobs
            self._is_rung = True
            self._bell.put(None)  # also when closed: there must be one more for the end

    def _hears_bell(self, seconds: float | None) -> bool:
        try:
            self._bell.get(timeout=seconds)
        except Empty:
            return False
        return True

    def _take_all(self, *, is_rung: bool) -> list[Job] | None:
        with self._lock:
            jobs, self._jobs = self._jobs, []
            self._bytes = 0
            self.is_coming = self._is_working = bool(jobs)
            if is_rung:
                self._is_rung = self._is_closed
            return None if self._is_closed and not jobs else jobs

    def close(self) -> None:
        """Accept no further jobs."""
        with self._lock:
            self._is_closed = True
            # Once for what is left, once for the end.
            self._bell.put(None)
            self._bell.put(None)


class Watch:
    """Answers jobs that take too long, for the callers of one event loop.

    `grace` is how long after its deadline a job is given up, by `time.monotonic`.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, grace: float) -> None:
        self.loop = loop
        self.thread = threading.get_ident()
        """The one in which the loop runs."""
        self._grace = grace
        # All have the same time, so the first is the oldest.
        self._waiting: dict[Job, None] = {}
        self._is_armed = False
        self._ring_at = 0.0

    def ring_later(self, seconds: float, ring: Callable[[], None]) -> None:
        """Call `ring` in so many seconds, unless it will be called before that anyway."""
        now = time.monotonic()
        if now >= self._ring_at:
            self._ring_at = now + seconds
            self.loop.call_later(seconds, ring)

    def expect(self, job: Job) -> None:
        """Answer this job with StoreUnavailable if it is late."""
        self._waiting[job] = None
        if not self._is_armed:
            self._arm(job)

    def forget(self, job: Job) -> None:
        """Stop watching a job: it was answered."""
        self._waiting.pop(job, None)

    def resolve(self, jobs: list[Job], on_answered: Callable[[], None] | None) -> None:
        """Answer the callers; after some of them, let the loop do other things before the next."""
        waiting = self._waiting
        some = jobs if len(jobs) <= _ANSWERED_AT_ONCE else jobs[:_ANSWERED_AT_ONCE]
        for job in some:
            if job not in waiting:
                continue  # it was late, and its caller was answered
            del waiting[job]
            try:
                job.answer(job.outcome)
            except BaseException:
                # The loop reports the callback that failed; the other callers get their answers.
                rest = jobs[jobs.index(job) + 1 :]
                self.loop.call_soon(self.resolve, rest, on_answered)
                raise
        if some is not jobs:
            self.loop.call_soon(self.resolve, jobs[_ANSWERED_AT_ONCE:], on_answered)
        elif on_answered is not None:
            on_answered()

    def _arm(self, job: Job) -> None:
        self._is_armed = True
        left = job.deadline + self._grace - time.monotonic()
        self.loop.call_later(max(0.0, left), self._look)

    def _look(self) -> None:
        """Answer the jobs that are late, and check again when the next one may be."""
        now = time.monotonic()
        self._is_armed = False
        for job in list(self._waiting):
            if job.deadline + self._grace > now:
                self._arm(job)
                break
            self.forget(job)
            if not job.done():
                job.answer(StoreUnavailable("the database did not answer in time; try again"))


def deliver(jobs: list[Job], on_answered: Callable[[], None] | None = None) -> None:
    """Wake each event loop once, for all of its callers.

    `on_answered` is called in each of these loops when its callers were answered. The list of jobs
    belongs to the loops from now on: do not change it.
    """
    watches = dict.fromkeys(map(watch_of, jobs))
    for watch in watches:
        if watch is not None:
            callers = jobs if len(watches) == 1 else [job for job in jobs if job.watch is watch]
            try:  # noqa: SIM105 # at each commit, and `suppress` takes 25 steps
                watch.loop.call_soon_threadsafe(watch.resolve, callers, on_answered)
            except RuntimeError:
                pass  # the loop was closed, and its waiters with it
