"""How do the changes of many turns share a commit?

Changes wait in a queue; a lane takes all that wait, makes them in one transaction and answers
the callers after the commit. While one lane waits for the disk the other gathers the next
changes, so no change is delayed: alone, it is sent at once. Rules:

- A change is a kind and a value. A kind makes many values at once and returns for each a
  result, or an error that concerns this value alone.
- A change that fails affects no other: a failed group is tried again in halves.
- A group whose connection was lost is tried again while its callers wait, with `is_again` set:
  what a kind finds in the database may be its own work.
- Changes of one response are made in the order they came in, one transaction after another.
- Rows that many responses share, such as budgets, are locked at the end of a transaction and by
  one kind, all at once (`is_last`): so two transactions cannot wait for each other. Another kind
  leaves such work to it (`Later`).
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from antiphon.protocol.errors import StoreUnavailable
from antiphon.store.limits import MAX_WAITING, MAX_WAITING_BYTES
from antiphon.store.postgres.database import (
    LANES,
    Connection,
    Database,
    UncertainCommit,
    in_transaction,
)
from antiphon.store.postgres.errors import concerns_all, is_away, unavailable
from antiphon.store.pulse import Pulse

__all__ = ["Flusher", "Kind", "Later", "LeaseLapsed"]

_log = logging.getLogger(__name__)

_MAX_GROUP: Final = 500
_MAX_GROUP_BYTES: Final = 8 * 1024 * 1024
_RETRY_PAUSE: Final = 0.1

# Any: what a kind does with its values, and what comes of them, is between it and its caller.
_Make = Callable[[Connection, Sequence[Any], bool], Awaitable[Sequence[Any]]]


@dataclass(frozen=True)
class Kind:
    """How many values are written at once.

    `make` gets a connection, the values, and whether they may have been stored already; it
    returns a result for each. One that is a single statement needs no transaction around it.
    One that is last is made after all others of a transaction.
    """

    make: _Make
    is_one_statement: bool = False
    is_last: bool = False


class Later(NamedTuple):
    """The result of a value that is not complete before a kind that is last has made this."""

    kind: Kind
    value: Any


class LeaseLapsed(Exception):
    """This node's lease has run out by the database's clock: renew it, then try again."""


@dataclass(slots=True, eq=False)
class _Job:
    kind: Kind
    name: tuple[str, str]
    value: Any
    size: int
    deadline: float
    future: asyncio.Future[Any]

    def settle(self, result: Any) -> None:
        if self.future.done():  # the caller has left
            return
        if isinstance(result, BaseException):
            self.future.set_exception(result)
            self.future.exception()  # a caller that leaves now need not fetch it
        else:
            self.future.set_result(result)


class Flusher:
    """Makes changes for many callers at once.

    `renew` renews the node's lease; `ring` gets the id of each response after its commit.
    """

    def __init__(
        self,
        database: Database,
        renew: Callable[[], Awaitable[None]],
        ring: Callable[[str], None],
        patience: float,
    ) -> None:
        self._database = database
        self._renew = renew
        self._ring = ring
        self._patience = patience
        self._jobs: list[_Job] = []
        self.pulse = Pulse(lambda: len(self._jobs))
        """How the commits went."""
        self._bytes = 0
        self._posted: set[_Job] = set()
        self._under_way: set[str] = set()
        self._bell = asyncio.Event()
        self._is_closed = False
        self._lanes: list[asyncio.Task[None]] = []

    async def call(self, kind: Kind, name: tuple[str, str], value: Any, size: int) -> Any:
        """Make this change to the response of this name; return its result when durable."""
        job = self._add(kind, name, value, size, time.monotonic() + self._patience)
        # A caller that is cancelled leaves its change behind; one that waited in vain takes it
        # back, if it is not under way already.
        await asyncio.wait((job.future,), timeout=self._patience)
        if not job.future.done():
            job.future.cancel()
            raise unavailable(TimeoutError())
        return job.future.result()

    def post(self, kind: Kind, name: tuple[str, str], value: Any, size: int) -> None:
        """Make this change without a caller that waits. It is retried until the store is closed.

        Ordered before every later change of the same name.
        """
        self._add(kind, name, value, size, math.inf)

    async def until_posted(self) -> None:
        """Return when all that was posted so far is made, or after the time a caller waits."""
        if self._posted:
            await asyncio.wait([job.future for job in self._posted], timeout=self._patience)

    async def close(self) -> None:
        """Make the changes that wait, then end."""
        self._is_closed = True
        end = time.monotonic() + self._patience
        for job in self._posted:
            job.deadline = end
        self._bell.set()
        await asyncio.gather(*self._lanes)

    def _add(
        self, kind: Kind, name: tuple[str, str], value: Any, size: int, deadline: float
    ) -> _Job:
        if self._is_closed:
            raise StoreUnavailable("the store is closed")
        if len(self._jobs) >= MAX_WAITING or self._bytes + size > MAX_WAITING_BYTES:
            raise StoreUnavailable("too much is waiting to be stored; try again")
        job = _Job(kind, name, value, size, deadline, asyncio.get_running_loop().create_future())
        if deadline == math.inf:
            self._posted.add(job)
            job.future.add_done_callback(lambda _: self._forget(job))
        self._jobs.append(job)
        self._bytes += size
        self._bell.set()
        if not self._lanes:
            self._lanes = [asyncio.create_task(self._live()) for _ in range(LANES)]
        return job

    def _forget(self, job: _Job) -> None:
        self._posted.discard(job)
        if error := job.future.exception():
            _log.error("a change that no caller waited for was not stored: %s", error)

    async def _live(self) -> None:
        while True:
            await self._bell.wait()
            jobs = self._take()
            if jobs:
                await self._flush(jobs)
                self._under_way.difference_update(job.name[1] for job in jobs)
                self._bell.set()
            elif self._is_closed and not self._jobs:
                return
            else:
                self._bell.clear()

    def _take(self) -> list[_Job]:
        """Return what waits, oldest first, as much as may share a transaction."""
        taken: list[_Job] = []
        left: list[_Job] = []
        size = 0
        for job in self._jobs:
            if job.future.cancelled():
                self._bytes -= job.size
                continue
            is_full = len(taken) >= _MAX_GROUP or (taken and size + job.size > _MAX_GROUP_BYTES)
            if is_full or job.name[1] in self._under_way:
                left.append(job)
                continue
            taken.append(job)
            size += job.size
            self._under_way.add(job.name[1])
        self._jobs = left
        self._bytes -= size
        return taken

    async def _flush(self, jobs: list[_Job], *, is_again: bool = False) -> None:
        """Make these changes, and answer their callers."""
        while jobs:
            try:
                results = await self._commit(jobs, is_again)
            except LeaseLapsed:
                # Some of them may be stored: a lease can run out in the middle of a statement.
                jobs, is_again = await self._after_lapse(jobs), True
            except Exception as error:  # noqa: BLE001 # outermost frame of the lane
                if is_away(error) or concerns_all(error) or isinstance(error, StoreUnavailable):
                    jobs, is_again = await self._retry(jobs, error), True
                    continue
                if len(jobs) == 1:
                    _fail(jobs, error)
                    return
                await self._flush(jobs[: len(jobs) // 2], is_again=is_again)
                jobs = jobs[len(jobs) // 2 :]
            else:
                for job, result in zip(jobs, results, strict=True):
                    job.settle(result)
                    self._ring(job.name[1])
                return

    async def _commit(self, jobs: list[_Job], is_again: bool) -> list[Any]:
        results: list[Any] = [None] * len(jobs)

        async def make(connection: Connection) -> None:
            results[:] = [Later(job.kind, job.value) for job in jobs]
            for is_last in (False, True):
                for kind, places in _groups(results, is_last=is_last).items():
                    values = [results[place].value for place in places]
                    found = await kind.make(connection, values, is_again)
                    for place, result in zip(places, found, strict=True):
                        results[place] = result

        async with asyncio.timeout(self._patience), self._database.lane() as connection:
            began = time.monotonic()
            if jobs[0].kind.is_one_statement and len({job.kind for job in jobs}) == 1:
                await make(connection)
            else:
                await in_transaction(connection, make)
        self.pulse.note(time.monotonic() - began, len(jobs))
        return results

    async def _wait(self, jobs: list[_Job], error: BaseException) -> list[_Job]:
        """Give up those who have waited long enough; return the others after a moment."""
        now = time.monotonic() + _RETRY_PAUSE
        _fail([job for job in jobs if job.deadline <= now], error)
        rest = [job for job in jobs if job.deadline > now]
        if rest:
            await asyncio.sleep(_RETRY_PAUSE)
        return rest

    async def _retry(self, jobs: list[_Job], error: BaseException) -> list[_Job]:
        """Return those that are worth another attempt, after a moment."""
        if not isinstance(error, UncertainCommit) and not is_away(error):
            _fail([job for job in jobs if job not in self._posted], error)
        return await self._wait([job for job in jobs if not job.future.done()], error)

    async def _after_lapse(self, jobs: list[_Job]) -> list[_Job]:
        try:
            await self._renew()
        except StoreUnavailable as error:
            return await self._wait(jobs, error)
        return [job for job in jobs if not job.future.done()]


def _groups(results: Sequence[Any], *, is_last: bool) -> dict[Kind, list[int]]:
    """Return the places of what is still to be made, by kind."""
    groups: dict[Kind, list[int]] = {}
    for place, result in enumerate(results):
        if isinstance(result, Later) and result.kind.is_last == is_last:
            groups.setdefault(result.kind, []).append(place)
    return groups


def _fail(jobs: list[_Job], error: BaseException) -> None:
    for job in jobs:
        job.settle(unavailable(error))
