"""Turns without a reader: queued, run, cancelled, and taken over from the dead.

A turn is durable as `queued` before its caller gets its id, with its request, so that another
process can run it. Whoever began it runs it; when that process dies, whoever notices first
claims it: what was still queued is run there, what had begun ends as failed, because a model
is never run twice into one log. Both queue and room are bounded. Owners share them: waiting
turns of different owners are run in turn, and no owner can take the last fifth of all places.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import aclosing, contextmanager
from typing import Final

from antiphon.accounts.fair_queue import FairQueue
from antiphon.engine.keep.follow import follow
from antiphon.engine.keep.live import Live
from antiphon.engine.run.turn import Turn, TurnCancelled
from antiphon.protocol.errors import (
    AntiphonError,
    InvalidRequest,
    Overloaded,
    QueueFull,
    no_response,
)
from antiphon.protocol.response import DONE_STATUSES, Response
from antiphon.store.base import Store

__all__ = ["Background"]

# After every event: a follower from here gets only the end.
_BEYOND: Final = 2**53
_CANCEL_SECONDS: Final = 10.0
_LAST_WORDS_SECONDS: Final = 2.0
# One place in so many is for owners that have few.
_RESERVED: Final = 5
_log = logging.getLogger(__name__)


class Background:
    """The background turns of this process: `at_once` run, `waiting` more may wait."""

    def __init__(self, store: Store, live: Live, *, at_once: int, waiting: int) -> None:
        self._store = store
        self._live = live
        self._most = at_once + waiting
        self._room = FairQueue(at_once)
        self._tasks: dict[tuple[str, str], tuple[asyncio.Task[None], Turn]] = {}
        self._submitting: set[asyncio.Task[Response]] = set()
        self._owners: dict[str, int] = {}
        """How many turns of each owner run, wait, or are about to be submitted."""
        self.is_closed = False

    def resize(self, at_once: int, waiting: int) -> None:
        """Have so many places from now on. Turns that have one keep it."""
        self._most = at_once + waiting
        self._room.places = at_once
        self._room.wake()

    @property
    def count(self) -> int:
        """How many turns run or wait here."""
        return len(self._tasks)

    @contextmanager
    def room(self, owner: str) -> Iterator[None]:
        """Hold a place for a turn of this owner that is about to be submitted.

        Raise QueueFull, or Overloaded when the process is about to end.
        """
        if self.is_closed:
            raise Overloaded("the server is going away; try again in a moment")
        if sum(self._owners.values()) >= self._most:
            raise QueueFull(f"{self._most} background responses run or wait; try again later")
        share = self._most - self._most // _RESERVED
        if self._owners.get(owner, 0) >= share:
            raise QueueFull(f"{share} background responses of yours run or wait; try again later")
        self._count(owner, 1)
        try:
            yield
        finally:
            self._count(owner, -1)

    def _count(self, owner: str, change: int) -> None:
        count = self._owners.get(owner, 0) + change
        if count:
            self._owners[owner] = count
        else:
            self._owners.pop(owner, None)

    async def submit(self, turn: Turn, request: bytes) -> Response:
        """Queue a turn, durably; return its response as it now is.

        `request` is what `recovery` needs to run it elsewhere.
        """
        task = asyncio.create_task(self._queue(turn, request))
        self._submitting.add(task)
        task.add_done_callback(self._submitting.discard)
        return await asyncio.shield(task)  # also if its caller leaves

    def take_over(self, turn: Turn) -> None:
        """Run a turn that another process had queued."""
        turn.take_over()
        self._start(turn)

    async def cancel(
        self, owner: str, response_id: str, *, outlives_reader: bool = False
    ) -> Response:
        """Cancel a background response, wherever it runs; return it when it has ended.

        One that has ended already is returned as it is. `outlives_reader` if the others go on
        too when their client leaves: then they can be cancelled as well.
        """
        store = self._store
        response = await store.get(owner, response_id)
        if response is None:
            raise no_response(response_id)
        if response.status in DONE_STATUSES:
            return response
        if not response.background and not outlives_reader:
            raise InvalidRequest(
                "only a response in the background can be cancelled; to stop any other, "
                "close its connection",
                code="response_not_cancellable",
            )
        # Also if it runs here: another process may have taken it over since.
        await store.ask_cancel(owner, response_id)
        self.interrupt(owner, response_id, TurnCancelled("the response was cancelled"))
        return await self._ended(owner, response_id)

    def interrupt(self, owner: str, response_id: str, error: AntiphonError) -> bool:
        """End a turn that runs or waits here; return whether there is one."""
        task, turn = self._tasks.get((owner, response_id), (None, None))
        if task is None or turn is None:
            return False
        turn.interrupt(task, error)
        return True

    async def drain(self, seconds: float) -> None:
        """Let running turns end, up to a limit; those that still wait are left to others."""
        self.is_closed = True
        if self._submitting:
            await asyncio.wait(self._submitting, timeout=seconds)
        for task, turn in list(self._tasks.values()):
            if not turn.is_running:
                task.cancel()
        running = {task for task, turn in self._tasks.values() if turn.is_running}
        if running:
            await asyncio.wait(running, timeout=seconds)
        late = [(task, turn) for task, turn in self._tasks.values() if not task.done()]
        for task, turn in late:
            turn.interrupt(task, Overloaded("the server went away in mid-turn"))
        if late:
            await asyncio.wait([task for task, _ in late], timeout=_LAST_WORDS_SECONDS)

    async def _queue(self, turn: Turn, request: bytes) -> Response:
        response = await turn.queue(request)
        if self.is_closed:
            turn.hold.release()  # durable: the process that claims the turn runs it
        else:
            self._start(turn)
        return response

    def _start(self, turn: Turn) -> None:
        key = turn.owner, turn.response_id
        task = asyncio.create_task(self._run(turn))
        self._tasks[key] = task, turn
        self._count(turn.owner, 1)
        task.add_done_callback(lambda task: self._forget(key, turn, task))

    def _forget(self, key: tuple[str, str], turn: Turn, task: asyncio.Task[None]) -> None:
        self._tasks.pop(key, None)
        self._count(turn.owner, -1)
        if task.cancelled() and _is_interrupted(turn) and not turn.is_running:
            self._start(turn)  # cancelled before its first step: its end is not stored yet
            return
        turn.hold.release()
        if task.cancelled():
            return
        if (error := task.exception()) is not None:
            _log.error("background response %s broke", key[1], exc_info=error)

    async def _run(self, turn: Turn) -> None:
        if _is_interrupted(turn):
            await turn.run_queued()  # only its end is to be stored
            return
        try:
            await self._room.enter(turn.owner)
        except asyncio.CancelledError:
            if not _is_interrupted(turn):
                raise  # the process ends: the process that claims the turn runs it
            await turn.run_queued()
            return
        try:
            await turn.run_queued()
        finally:
            self._room.leave(turn.owner)

    async def _ended(self, owner: str, response_id: str) -> Response:
        try:
            async with (
                asyncio.timeout(_CANCEL_SECONDS),
                aclosing(follow(self._store, self._live, owner, response_id, _BEYOND)) as batches,
            ):
                async for _ in batches:
                    pass
        except TimeoutError:
            _log.warning("response %s takes long to cancel", response_id)
        response = await self._store.get(owner, response_id)
        if response is None:
            raise no_response(response_id)
        return response


def _is_interrupted(turn: Turn) -> bool:
    """Return whether the turn was interrupted; that may change at every await."""
    return turn.interruption is not None
