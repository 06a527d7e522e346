"""Who waits for whom on a WebSocket?

Requests without a `stream_id` are one lane, and each `stream_id` is a lane of its own. A lane
answers its requests one after the other, in the order in which they came; lanes run beside each
other. A lane is there only while it has something to do, so an idle socket has none.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

from antiphon.engine.budget import Hold
from antiphon.engine.run.turn import Turn
from antiphon.protocol.errors import AntiphonError, CallerError
from antiphon.server.limits import ServerLimits

__all__ = ["Lane", "Lanes"]


class _TooManyLanes(CallerError):
    status = 429
    code = "too_many_streams"


class _QueueFull(CallerError):
    status = 429
    code = "websocket_queue_full"


class Lane:
    """One line of requests: those that wait, and the turn that runs."""

    __slots__ = ("stream_id", "task", "turn", "waiting")

    def __init__(self, stream_id: str | None) -> None:
        self.stream_id = stream_id
        self.waiting: deque[tuple[bytes, Hold]] = deque()
        self.turn: Turn | None = None
        self.task: asyncio.Task[None]

    def drop_waiting(self) -> int:
        """Drop the requests that have not begun; return how many there were."""
        count = len(self.waiting)
        for _, hold in self.waiting:
            hold.release()
        self.waiting.clear()
        return count


class Lanes:
    """The lanes of one socket. `answer` answers one request of a lane."""

    __slots__ = ("_answer", "_bytes", "_count", "_lanes", "_limits", "_on_idle")

    def __init__(
        self,
        answer: Callable[[Lane, bytes, Hold], Awaitable[None]],
        on_idle: Callable[[], None],
        limits: ServerLimits,
    ) -> None:
        self._answer = answer
        self._on_idle = on_idle
        self._limits = limits
        self._lanes: dict[str | None, Lane] = {}
        self._count = 0
        self._bytes = 0

    def put(self, stream_id: str | None, data: bytes, hold: Hold) -> None:
        """Queue a request. Raise CallerError if there is no room for it.

        `hold` is its memory, which is released when it has been answered or dropped.
        """
        limits = self._limits
        lane = self._lanes.get(stream_id)
        if lane is None and len(self._lanes) >= limits.websocket_lanes:
            raise _TooManyLanes(
                f"{limits.websocket_lanes} streams are busy on this WebSocket; wait for one to end"
            )
        if self._count >= limits.websocket_queue:
            raise _QueueFull(f"{self._count} requests wait on this WebSocket; send fewer at a time")
        if self._count and self._bytes + len(data) > limits.body_bytes:
            raise _QueueFull(
                f"the requests that wait are larger than {limits.body_bytes} bytes together"
            )
        if lane is None:
            lane = self._lanes[stream_id] = Lane(stream_id)
            lane.task = asyncio.create_task(self._run(lane))
        lane.waiting.append((data, hold))
        self._count += 1
        self._bytes += len(data)

    def drop_waiting(self) -> list[str | None]:
        """Forget the requests that have not begun; return the lane of each."""
        dropped: list[str | None] = []
        for lane in self._lanes.values():
            dropped += [lane.stream_id] * lane.drop_waiting()
        self._count = self._bytes = 0
        return dropped

    async def settle(self, seconds: float, error: AntiphonError, grace: float) -> None:
        """Wait for what runs; end as failed what takes too long."""
        if self._lanes:
            await asyncio.wait({lane.task for lane in self._lanes.values()}, timeout=seconds)
        late = list(self._lanes.values())
        for lane in late:
            if lane.turn is not None:
                lane.turn.interrupt(lane.task, error)
            else:
                lane.task.cancel()
        if late:
            await asyncio.wait({lane.task for lane in late}, timeout=grace)

    async def stop(self) -> None:
        """Stop what runs at once: nobody is there to hear it."""
        tasks = {lane.task for lane in self._lanes.values()}
        for lane in self._lanes.values():
            lane.task.cancel()
            lane.drop_waiting()
        if tasks:
            await asyncio.wait(tasks)

    async def _run(self, lane: Lane) -> None:
        try:
            while lane.waiting:
                data, hold = lane.waiting.popleft()
                self._count -= 1
                self._bytes -= len(data)
                try:
                    await self._answer(lane, data, hold)
                finally:
                    hold.release()
        except ConnectionError:
            pass  # the peer has gone; whoever reads from it notices
        finally:
            del self._lanes[lane.stream_id]
            if not self._lanes:
                self._on_idle()
