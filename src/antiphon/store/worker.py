"""Who touches a connection, and when do callers hear of it?

A connection belongs to one thread, and jobs reach it through a backlog. The writer does all
that is waiting in one transaction (group commit) and tells the callers after the commit, with
one wake-up per event loop. Rules:

- A job that fails takes no other with it: a failed batch is tried again in halves.
- A connection that failed is closed, and the next job opens a new one.
- Nobody waits for a locked database longer than `patience`.
- A job nobody waits for lingers a moment, so that it shares a commit with others.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, Final, TypeVar

from antiphon.protocol.errors import StoreUnavailable
from antiphon.store.connection import is_locked, unavailable

__all__ = ["MAX_WAITING", "MAX_WAITING_BYTES", "Reader", "Writer"]

MAX_WAITING: Final = 10_000
MAX_WAITING_BYTES: Final = 256 * 1024 * 1024

_LINGER: Final = 0.01
# Beyond `patience`, for a slow disk: a thread that has gone wrong is a 503, not a hang.
_GRACE: Final = 25.0
_LOCK_PAUSE: Final = 0.01

_T = TypeVar("_T")
_Run = Callable[[sqlite3.Connection], _T]


class _Job:
    """One thing to do on a connection; `future` is None if nobody waits for it."""

    __slots__ = ("deadline", "error", "future", "result", "run")

    def __init__(self, run: _Run[Any], deadline: float, future: asyncio.Future[Any] | None) -> None:
        self.run = run
        self.deadline = deadline
        self.future = future
        self.result: Any = None  # whatever `run` returns
        self.error: StoreUnavailable | None = None

    def resolve(self) -> None:
        """Tell who waits. Runs in the event loop; the caller may have left."""
        if self.future is None or self.future.done():
            return
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.result)


class _Backlog:
    """Jobs on their way to a thread. Bounded in number and bytes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._bell: SimpleQueue[None] = SimpleQueue()
        self._is_rung = False
        self._is_closed = False
        self._jobs: list[_Job] = []
        self._bytes = 0
        self.is_busy = False

    def put(self, job: _Job, size: int) -> bool:
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

    def take(self) -> list[_Job] | None:
        """Wait for the bell and return all jobs; None when closed and nothing is left."""
        with self._lock:
            self.is_busy = bool(self._jobs)
        self._bell.get()
        with self._lock:
            jobs, self._jobs = self._jobs, []
            self._bytes = 0
            self._is_rung = self._is_closed
            return None if self._is_closed and not jobs else jobs

    def close(self) -> None:
        """Take no more jobs."""
        with self._lock:
            self._is_closed = True
            # Once for what is left, once for the end.
            self._bell.put(None)
            self._bell.put(None)


class _Worker:
    """A thread with a connection of its own."""

    def __init__(self, connect: Callable[[], sqlite3.Connection], patience: float) -> None:
        self._connect = connect
        self._patience = patience
        self._open: sqlite3.Connection | None = None
        self._backlog = _Backlog()
        self._thread = threading.Thread(target=self._live, name=type(self).__name__, daemon=True)
        self._thread.start()

    async def call(self, run: _Run[_T], size: int = 0) -> _T:
        """Run this on the connection and return its result when it is done for good."""
        future: asyncio.Future[_T] = asyncio.get_running_loop().create_future()
        self._backlog.put(_Job(run, time.monotonic() + self._patience, future), size)
        self._backlog.ring()
        try:
            async with asyncio.timeout(self._patience + _GRACE):
                return await future
        except TimeoutError:
            raise StoreUnavailable("the database did not answer in time; try again") from None

    async def close(self) -> None:
        """Do what is waiting, then end the thread. Closing twice is fine."""
        self._backlog.close()
        await asyncio.to_thread(self._thread.join)

    def _live(self) -> None:
        while (jobs := self._backlog.take()) is not None:
            self._do(jobs)
        self._drop()

    def _do(self, jobs: list[_Job]) -> None:
        raise NotImplementedError

    def _connection(self) -> sqlite3.Connection:
        if self._open is None:
            self._open = self._connect()
        return self._open

    def _drop(self) -> None:
        connection, self._open = self._open, None
        if connection is not None:
            with suppress(sqlite3.Error):
                connection.close()


class Reader(_Worker):
    """Does jobs one by one; each sees one state of the database."""

    def _do(self, jobs: list[_Job]) -> None:
        for job in jobs:
            try:
                job.result = self._read(job)
            except Exception as error:  # noqa: BLE001 # outermost frame of the thread
                self._drop()
                job.error = unavailable(error)
            _deliver([job])

    def _read(self, job: _Job) -> object:
        if time.monotonic() > job.deadline:
            raise StoreUnavailable("the database did not answer in time; try again")
        connection = self._connection()
        connection.execute("BEGIN")
        result = job.run(connection)
        connection.execute("COMMIT")
        return result


class Writer(_Worker):
    """Does all waiting jobs in one transaction, in order."""

    def __init__(self, connect: Callable[[], sqlite3.Connection], patience: float) -> None:
        super().__init__(connect, patience)
        self.is_ailing = False

    @property
    def is_busy(self) -> bool:
        """Whether something is waiting or being written."""
        return self._backlog.is_busy

    def post(self, run: _Run[object], size: int) -> None:
        """Run this before any later job, some time soon. Nobody hears whether it worked."""
        if self._backlog.put(_Job(run, time.monotonic() + self._patience, None), size):
            asyncio.get_running_loop().call_later(_LINGER, self._backlog.ring)

    def _do(self, jobs: list[_Job]) -> None:
        while jobs:
            try:
                connection = self._connection()
                connection.execute("BEGIN IMMEDIATE")
            except Exception as error:  # noqa: BLE001 # outermost frame of the thread
                jobs = self._give_up(jobs, error)
            else:
                self._commit(connection, jobs)
                return

    def _commit(self, connection: sqlite3.Connection, jobs: list[_Job]) -> None:
        try:
            for job in jobs:
                job.result = job.run(connection)
            connection.execute("COMMIT")
        except Exception as error:  # noqa: BLE001 # outermost frame of the thread
            self._drop()
            if len(jobs) == 1:
                self._fail(jobs, error)
            else:
                self._do(jobs[: len(jobs) // 2])
                self._do(jobs[len(jobs) // 2 :])
        else:
            self.is_ailing = False
            _deliver(jobs)

    def _give_up(self, jobs: list[_Job], error: Exception) -> list[_Job]:
        """Fail what cannot wait any longer for the transaction to begin; return the rest."""
        if not is_locked(error):
            self._drop()
            self._fail(jobs, error)
            return []
        now = time.monotonic()
        self._fail([job for job in jobs if job.deadline <= now], error)
        time.sleep(_LOCK_PAUSE)
        return [job for job in jobs if job.deadline > now]

    def _fail(self, jobs: list[_Job], error: Exception) -> None:
        self.is_ailing = True
        for job in jobs:
            job.error = unavailable(error)
        _deliver(jobs)


def _deliver(jobs: list[_Job]) -> None:
    """Wake each event loop once, for all of its callers."""
    loops: dict[asyncio.AbstractEventLoop, list[_Job]] = {}
    for job in jobs:
        if job.future is not None:
            loops.setdefault(job.future.get_loop(), []).append(job)
    for loop, callers in loops.items():
        with suppress(RuntimeError):  # the loop was closed: nobody waits there
            loop.call_soon_threadsafe(_resolve, callers)


def _resolve(jobs: list[_Job]) -> None:
    for job in jobs:
        job.resolve()
