"""Which thread uses a connection, and when do callers get their results?

A connection belongs to one thread, and jobs reach it through a backlog. The writer runs all
waiting jobs in one transaction (group commit) and answers the callers after the commit, with
one wake-up per event loop. Rules:

- A job that fails affects no other: a failed batch is tried again in halves.
- A job that returns an error has changed nothing: its caller gets it, the others go on.
- A connection that failed is closed, and the next job opens a new one.
- No caller waits for a locked database longer than `patience`.
- A job without a waiting caller waits a moment, so that it shares a commit with others.
- An urgent job goes first, and ends the transaction that is under way. The next one does some of
  the jobs that were left before it ends early too, so that these go on.
- Jobs that come often (`share`) make few commits: the next waits a moment for more (see `pace`).
- So do jobs that may come often (`gather`), while several callers share each commit.
- Writers of all processes take turns (see `queue`). Jobs that come while we wait for our turn
  run in the same transaction.
- Content that a job removed is also erased from the files before its caller is answered, unless
  that takes longer than `patience`, because a reader blocks it or the file is large: then it is
  erased afterwards.
- Content that another process removed, but did not erase before it was killed, is erased too.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from operator import attrgetter
from typing import Any, Final, Protocol, TypeVar

from antiphon.protocol.errors import StoreUnavailable
from antiphon.store.promise import Promise
from antiphon.store.pulse import Pulse
from antiphon.store.sqlite.backlog import Backlog, Job, Run, Together, Watch, deliver, watch_of
from antiphon.store.sqlite.connection import is_locked, unavailable
from antiphon.store.sqlite.erasure import Progress
from antiphon.store.sqlite.pace import Pace
from antiphon.store.sqlite.queue import WriteQueue
from antiphon.store.trouble import Trouble

__all__ = ["Reader", "Writer"]

_LINGER: Final = 0.01
# A job of `gather` waits this long for each caller that shared the last commit, if there were
# several, and no longer than that. A commit costs as much as half a request.
_GATHER_EACH: Final = 0.002
_GATHER: Final = 0.008
# After a transaction that ended early, so many jobs are done before the next ends early.
_LEAST: Final = 8
# Jobs that are done together, of which an urgent one waits for all; fewer while urgent jobs come.
# Each statement gives up the interpreter, which a busy event loop returns late.
_MOST_TOGETHER: Final = 1024
_FEW_TOGETHER: Final = 16
_URGENT_SECONDS: Final = 1.0
# Between attempts to erase while a reader blocks it; doubled each time. An attempt may delay
# others, so attempts become rare when no caller waits for them.
_FIRST_PAUSE: Final = 0.01
_LAST_PAUSE: Final = 1.0
_LAST_IDLE_PAUSE: Final = 60.0
# How often to check whether another process has left something to erase.
_LOOK: Final = 60.0
# Erasing reads the whole file. Where that takes long, it gets a tenth of the time.
_LONG: Final = 0.05
_REST: Final = 9
# Beyond `patience`, for a slow disk: a broken thread causes a 503, not a hang.
_GRACE: Final = 25.0
_LOCK_PAUSE: Final = 0.01
# How long erasing waits for its turn to write before it is tried again later.
_ERASE_WAIT: Final = 0.1

_is_removal: Final = attrgetter("is_removal")
_run_of: Final = attrgetter("run")
_log = logging.getLogger(__name__)
_T = TypeVar("_T")
_Values = Sequence[int | str] | Mapping[str, Any]


class _Worker:
    """A thread with a connection of its own."""

    def __init__(
        self,
        connect: Callable[[], sqlite3.Connection],
        patience: float,
        check: Callable[[], None],
        trouble: Trouble,
    ) -> None:
        self._connect = connect
        self._patience = patience
        self._check = check
        self._trouble = trouble
        self._open: sqlite3.Connection | None = None
        self._backlog = Backlog()
        self._watches: dict[asyncio.AbstractEventLoop, Watch] = {}
        self._last_watch: Watch | None = None
        self._thread = threading.Thread(target=self._live, name=type(self).__name__, daemon=True)
        self._thread.start()

    async def call(self, run: Run[_T], size: int = 0) -> _T:
        """Run this on the connection and return its result when it is done for good."""
        future: Promise[_T] = self._put(run, size)
        self._backlog.ring()
        try:
            return await future
        finally:
            del future  # an error refers to this frame: it would keep what could not be stored

    def _put(self, run: Run[Any], size: int, *, is_removal: bool = False) -> Job:
        """Add a job; return what its answer will be in. Does not wake the thread."""
        # Called for every token, and `get_running_loop` makes a system call.
        watch = self._last_watch
        if watch is None or watch.thread != threading.get_ident() or not watch.loop.is_running():
            watch = self._find_watch()
        job = Job(run, time.monotonic() + self._patience, watch)
        if is_removal:
            job.is_removal = True
        self._backlog.put(job, size)
        watch.expect(job)  # its answer comes in this thread, so not before this
        return job

    def _find_watch(self) -> Watch:
        """Return the watch of the loop that runs in this thread."""
        loop = asyncio.get_running_loop()
        self._last_watch = watch = self._watches.get(loop) or self._new_watch(loop)
        return watch

    def _new_watch(self, loop: asyncio.AbstractEventLoop) -> Watch:
        """Return the watch of a new loop; remove those of closed loops."""
        for other in list(self._watches):
            if other.is_closed():
                self._watches.pop(other, None)
        return self._watches.setdefault(loop, Watch(loop, _GRACE))

    async def close(self) -> None:
        """Run the waiting jobs, then end the thread. Closing twice is fine."""
        self._backlog.close()
        await asyncio.to_thread(self._thread.join)

    def _live(self) -> None:
        while (jobs := self._backlog.take()) is not None:
            self._do(jobs)
            del jobs  # while we wait for the next ones, the results of these may be megabytes
        self._drop()

    def _do(self, jobs: list[Job]) -> None:
        raise NotImplementedError

    def _connection(self) -> sqlite3.Connection:
        """Return the open connection, or a new one. Raise if it is not to be used any longer."""
        self._check()
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

    async def fetch(self, question: str, values: _Values = ()) -> list[Any]:
        """Return all rows that answer one question."""
        return await self.call(lambda connection: connection.execute(question, values).fetchall())

    def _do(self, jobs: list[Job]) -> None:
        for job in jobs:
            try:
                job.outcome = self._read(job)
            except Exception as error:  # noqa: BLE001 # outermost frame of the thread
                self._drop()
                job.outcome = fault = unavailable(error)
                self._trouble.report(fault.message)
            deliver([job])

    def _read(self, job: Job) -> object:
        if time.monotonic() > job.deadline:
            raise StoreUnavailable("the database did not answer in time; try again")
        connection = self._connection()
        connection.execute("BEGIN")
        result = job.run(connection)
        connection.execute("COMMIT")
        return result


class _Eraser(Protocol):
    def is_due(self, connection: sqlite3.Connection) -> bool: ...

    def step(self, connection: sqlite3.Connection) -> Progress: ...


class Writer(_Worker):
    """Does all waiting jobs in one transaction, in order."""

    def __init__(
        self,
        connect: Callable[[], sqlite3.Connection],
        patience: float,
        check: Callable[[], None],
        trouble: Trouble,
        eraser: _Eraser,
        queue: WriteQueue,
    ) -> None:
        self.is_ailing = False
        self.pulse = Pulse(lambda: len(self._backlog))
        """How the commits went."""
        self.on_commit: Callable[[list[Job]], None] | None = None
        """Called in the thread after a commit, before its callers are answered."""
        self._queue = queue
        self._eraser = eraser
        # Whether a pass through the file is running, and whether another must follow.
        self._is_erasing = False
        self._is_due = False
        # The jobs that wait for this pass, and for the next.
        self._erasing: list[Job] = []
        self._removed: list[Job] = []
        self._next_look = 0.0
        self._pause = _FIRST_PAUSE
        self._next_step = 0.0
        self._spent = 0.0
        self._pace = Pace()
        self._gather = 0.0
        # How many jobs the next transaction does before it stops for urgent ones.
        self._least = 0
        # Until when jobs are done a few together, because an urgent one came.
        self._few_until = 0.0
        super().__init__(connect, patience, check, trouble)

    @property
    def is_busy(self) -> bool:
        """Whether something is waiting or being written."""
        return self._backlog.is_busy

    async def execute(self, statement: str, values: _Values) -> int:
        """Run one statement; return how many rows it has changed."""
        return await self.call(lambda connection: connection.execute(statement, values).rowcount)

    def post(
        self,
        run: Run[object],
        size: int,
        *,
        is_removal: bool = False,
        on_failure: Callable[[StoreUnavailable], None] | None = None,
    ) -> None:
        """Run this before any later job, some time soon. No caller waits for it.

        `on_failure` is called in the writer's thread if it could not run.
        """
        job = Job(run, time.monotonic() + self._patience)
        job.is_removal = is_removal
        job.on_failure = on_failure
        if self._backlog.put(job, size):
            asyncio.get_running_loop().call_later(_LINGER, self._backlog.ring)

    def share(self, run: Run[_T], size: int) -> Promise[_T]:
        """Like `call`, but wait a moment for others if there was a commit just now."""
        future = self._put(run, size)
        if not self._backlog.is_coming:
            self._backlog.ring()
        return future

    def gather(self, run: Run[_T], size: int) -> Promise[_T]:
        """Like `call`, but wait a moment for others if several callers shared the last commit."""
        job = self._put(run, size)
        if not (self._gather and self._backlog.is_coming):
            self._backlog.ring()
        elif job.watch is not None:
            job.watch.ring_later(self._gather, self._backlog.ring)
        return job

    def call_or_share(self, run: Run[_T], size: int) -> Promise[_T]:
        """Like `call`, or like `share` when many share their commits anyway.

        A commit costs as much as twenty appends, so under load no job should have its own.
        """
        job = self._put(run, size)
        if not (self._pace.is_shared and self._backlog.is_coming):
            self._backlog.ring()
        return job

    def call_first(self, run: Run[_T], size: int) -> Promise[_T]:
        """Like `call`, but before all jobs that wait, and without waiting for those that run.

        The transaction that is under way ends with this job; what it has not done yet comes
        after that. The job must depend on no other that was not answered.
        """
        job = self._put(run, size)
        job.is_urgent = self._backlog.has_urgent = True
        self._backlog.ring()
        return job

    async def remove(self, run: Run[_T]) -> _T:
        """Like `call`, for a removal: the result True is returned once the content is erased."""
        future: Promise[_T] = self._put(run, 0, is_removal=True)
        self._backlog.ring()
        return await future

    def _live(self) -> None:
        while (jobs := self._backlog.take(self._rest(), self._pace.wait())) is not None:
            jobs = self._line_up(jobs)
            self._pace.begin(len(jobs))
            self._gather = _gathering(jobs, self._gather)
            self._do(jobs)
            del jobs  # while we wait for the next ones, these may be megabytes
            self._erase_some(time.monotonic())
        self._erase_last()
        self._drop()
        self._queue.close()

    def _line_up(self, jobs: list[Job]) -> list[Job]:
        """Wait for our turn to write; return the jobs, and those that came while we waited."""
        if not jobs or self._queue.enter(0.0):
            return jobs
        self._queue.enter(_time_left(jobs))
        return jobs + self._backlog.take_more()

    def _do(self, jobs: list[Job]) -> None:
        while jobs:  # if our turn did not come, SQLite's own lock decides
            try:
                connection = self._connection()
                connection.execute("BEGIN IMMEDIATE")
            except Exception as error:  # noqa: BLE001 # outermost frame of the thread
                jobs = self._give_up(jobs, error)
            else:
                self._commit(connection, jobs)
                return
        self._queue.leave()

    def _commit(self, connection: sqlite3.Connection, jobs: list[Job]) -> None:
        """Do the jobs, and those that are urgent; put back what has to wait for these."""
        left: list[Job] = []
        began = time.monotonic()
        try:
            left = self._run(connection, jobs)
            connection.execute("COMMIT")
        except Exception as error:  # noqa: BLE001 # outermost frame of the thread
            self._drop()
            jobs += left
            if len(jobs) == 1:
                self._queue.leave()
                self._fail(jobs, error)
            else:
                for half in (jobs[: len(jobs) // 2], jobs[len(jobs) // 2 :]):
                    self._queue.enter(_time_left(half))
                    self._do(half)
        else:
            self._queue.leave()
            self.pulse.note(time.monotonic() - began, len(jobs))
            if self.is_ailing or self._trouble.is_known:
                self._note_success(jobs)
            if self.on_commit is not None:
                self.on_commit(jobs)
            self._pace.end()
            deliver(self._keep_removals(jobs), self._pace.note_answered)
            if left:
                self._backlog.put_back(left)

    def _note_success(self, jobs: list[Job]) -> None:
        """Note that writing works again, unless all of these jobs were refused.

        Then nothing was written, and that proves nothing.
        """
        if any(not isinstance(job.outcome, Exception) for job in jobs):
            self.is_ailing = False
            self._trouble.end()

    def _run(self, connection: sqlite3.Connection, jobs: list[Job]) -> list[Job]:
        """Do the jobs, some at a time.

        Stop for urgent jobs: do these, add them to `jobs`, and return what was left undone. It is
        then in `jobs` no longer.
        """
        backlog = self._backlog
        least, self._least = self._least, 0
        if backlog.has_urgent and not least and (urgent := self._urgent(jobs, {*jobs})):
            return self._run_urgent(connection, jobs, urgent, {*jobs})
        has_urgent = backlog.has_urgent or time.monotonic() < self._few_until
        steps = _steps(jobs, _FEW_TOGETHER if has_urgent else _MOST_TOGETHER)
        for number, (together, some) in enumerate(steps, 1):
            if together is None:
                some[0].outcome = some[0].run(connection)
            else:
                _do_together(connection, together, some)
            if backlog.has_urgent and sum(len(some) for _, some in steps[:number]) >= least:
                undone = {job for _, rest in steps[number:] for job in rest}
                if urgent := self._urgent(jobs, undone):
                    return self._run_urgent(connection, jobs, urgent, undone)
        return []

    def _urgent(self, jobs: list[Job], undone: set[Job]) -> list[Job]:
        """Return the urgent jobs: those of a transaction that are not done, and those that wait."""
        urgent = [job for job in jobs if job.is_urgent and job in undone]
        return urgent + self._backlog.take_urgent()

    def _run_urgent(
        self,
        connection: sqlite3.Connection,
        jobs: list[Job],
        urgent: list[Job],
        undone: set[Job],
    ) -> list[Job]:
        self._few_until = time.monotonic() + _URGENT_SECONDS
        left = [job for job in jobs if job in undone and not job.is_urgent]
        jobs[:] = [*urgent, *(job for job in jobs if job not in undone)]
        try:
            for job in urgent:
                job.outcome = job.run(connection)
        except BaseException:
            jobs += left
            raise
        self._least = _LEAST if left else 0
        return left

    def _keep_removals(self, jobs: list[Job]) -> list[Job]:
        """Keep the jobs that removed something until it is erased; return the others."""
        if not any(map(_is_removal, jobs)):
            return jobs
        removed = [job for job in jobs if job.is_removed]
        if not removed:
            return jobs
        self._removed += removed
        self._is_due = True
        if self._pause > _LAST_PAUSE:
            self._pause, self._next_step = _FIRST_PAUSE, 0.0
        return [job for job in jobs if not job.is_removed]

    def _rest(self) -> float:
        """Return how long the thread may sleep."""
        if not (self._is_erasing or self._is_due):
            return max(0.0, self._next_look - time.monotonic())
        waiting = [job.deadline for job in (*self._erasing, *self._removed)]
        return max(0.0, min([self._next_step, *waiting]) - time.monotonic())

    def _look(self, now: float) -> None:
        """Check whether another process has left something to erase."""
        self._next_look = now + _LOOK
        try:
            self._is_due = self._eraser.is_due(self._connection())
        except (sqlite3.Error, OSError, StoreUnavailable):
            self._drop()

    def _erase_some(self, now: float) -> None:
        """Erase a part of what was removed, and answer the jobs whose removal is complete."""
        if not (self._is_erasing or self._is_due):
            if now < self._next_look:
                return  # no job waits for it either
            self._look(now)
        if self._is_due and not self._is_erasing:
            self._is_erasing, self._is_due = True, False
            self._erasing, self._removed = self._removed, []
        if self._is_erasing and now >= self._next_step:
            self._take_step(now)
        self._erasing = _answer_late(self._erasing, now)
        self._removed = _answer_late(self._removed, now)

    def _take_step(self, now: float) -> None:
        progress = self._step()
        if progress is Progress.BLOCKED:
            self._next_step = now + self._pause
            is_awaited = self._erasing or self._removed
            self._pause = min(self._pause * 2, _LAST_PAUSE if is_awaited else _LAST_IDLE_PAUSE)
            return
        self._pause = _FIRST_PAUSE
        self._spent += time.monotonic() - now
        if progress is Progress.DONE:
            deliver(self._erasing)
            self._is_erasing, self._erasing = False, []
            self._next_step = time.monotonic() + max(0.0, self._spent - _LONG) * _REST
            self._spent = 0.0

    def _step(self) -> Progress:
        self._queue.enter(_ERASE_WAIT)
        try:
            return self._eraser.step(self._connection())
        except (sqlite3.Error, OSError, StoreUnavailable):
            return Progress.BLOCKED
        except Exception:  # noqa: BLE001 # a fault in erasing must not stop the writer
            _log.exception("erasing deleted content failed")
            return Progress.BLOCKED
        finally:
            self._drop()
            self._queue.leave()

    def _erase_last(self) -> None:
        """Erase the rest if no reader blocks it, then answer all jobs."""
        end = time.monotonic() + self._patience
        while (now := time.monotonic()) < end and (self._is_erasing or self._is_due):
            self._next_step = 0.0
            self._erase_some(now)
            if self._pause > _FIRST_PAUSE:
                break
        deliver(self._erasing + self._removed)

    def _give_up(self, jobs: list[Job], error: Exception) -> list[Job]:
        """Fail the jobs that cannot wait longer for the transaction to begin; return the rest."""
        if not is_locked(error):
            self._drop()
            self._fail(jobs, error)
            return []
        now = time.monotonic()
        self._fail([job for job in jobs if job.deadline <= now], error)
        time.sleep(_LOCK_PAUSE)
        return [job for job in jobs if job.deadline > now]

    def _fail(self, jobs: list[Job], error: Exception) -> None:
        self.is_ailing = True
        for job in jobs:
            job.outcome = fault = unavailable(error)
            if job.on_failure is not None:
                job.on_failure(fault)
        if jobs:
            self._trouble.report(unavailable(error).message)
        deliver(jobs)


def _steps(jobs: list[Job], most: int) -> list[tuple[Together | None, list[Job]]]:
    """Return what to do one after the other: jobs of one kind together, but not too many.

    Those that can be done together come last, or first if `is_early`.
    """
    if len(jobs) == 1:
        return [(None, jobs)]
    early: dict[Together, list[Job]] = {}
    late: dict[Together, list[Job]] = {}
    single: list[tuple[Together | None, list[Job]]] = []
    kind: type | None = None
    alike: list[Job] | None = None
    for job in jobs:
        run = job.run
        if type(run) is not kind:
            kind, alike = type(run), None
            together: Together | None = getattr(run, "together", None)
            if together is not None:
                parts = early if getattr(run, "is_early", False) else late
                alike = parts.setdefault(together, [])
        if alike is None:
            single.append((None, [job]))
        else:
            alike.append(job)
    steps = [*early.items(), *single, *late.items()]
    if len(jobs) <= most:
        return steps
    return [
        (together, some[start : start + most])
        for together, some in steps
        for start in range(0, len(some), most)
    ]


def _do_together(connection: sqlite3.Connection, together: Together, jobs: list[Job]) -> None:
    results = together(connection, list(map(_run_of, jobs)))
    for job, result in zip(jobs, results, strict=True):
        job.outcome = result


def _gathering(jobs: list[Job], before: float) -> float:
    """Return how long the next callers wait for others; as before if these jobs have none."""
    callers = len(jobs) - [*map(watch_of, jobs)].count(None)
    if not callers:
        return before
    return min(_GATHER_EACH * callers, _GATHER) if callers > 1 else 0.0


def _time_left(jobs: list[Job]) -> float:
    """Return how many seconds the first of these jobs may still wait."""
    return min(job.deadline for job in jobs) - time.monotonic()


def _answer_late(jobs: list[Job], now: float) -> list[Job]:
    """Answer the jobs whose time is over; return the others."""
    late = [job for job in jobs if job.deadline <= now]
    deliver(late)
    return [job for job in jobs if job.deadline > now] if late else jobs
