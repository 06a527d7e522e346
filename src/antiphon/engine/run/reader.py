"""What becomes of a turn when its reader leaves?

By default it is cancelled with its reader. With `on_disconnect = "finish"` it has no reader from
then on, as a turn in the background has none, and the call of the model that is under way goes
on to its end, so that its exact usage is known. Nothing else is begun then: no further call of a
model, and no hosted tool. The task of the request waits meanwhile, so whatever it holds is held
until the turn has ended: its place, its memory, its claim.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Literal

from antiphon.engine.run.sinks import NO_READER, EventSink, ReaderGone
from antiphon.protocol.events import Event

__all__ = ["OnDisconnect", "Reader", "outlive"]

OnDisconnect = Literal["cancel", "finish"]


class Reader:
    """The sink of a turn that outlives its reader: shows nothing any more when that has left."""

    def __init__(self, sink: EventSink) -> None:
        self._sink = sink
        self.has_left = False

    def show(self, events: list[Event]) -> bool:
        """Take these events; return whether more may follow at once."""
        return self._sink.show(events)

    async def drained(self) -> None:
        """Wait until more may follow, or the reader has left."""
        try:
            await self._sink.drained()
        except ConnectionError:
            self.leave()

    def leave(self) -> None:
        """Show nothing from now on."""
        self._sink, self.has_left = NO_READER, True


async def outlive(
    reader: Reader, work: Coroutine[object, object, None], is_interrupted: Callable[[], bool]
) -> None:
    """Do the work to its end, also if this task is cancelled because the reader has left.

    Then raise the cancellation, or ReaderGone. A cancellation that is an interruption of the turn
    ends the work.
    """
    task = asyncio.create_task(work)
    left: asyncio.CancelledError | None = None
    was_interrupted = False
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as cancelled:
            if is_interrupted() and not was_interrupted:
                was_interrupted = True
                task.cancel()
            else:
                reader.leave()
                left = cancelled.with_traceback(None)  # which holds the task and its turn
    try:
        if left is not None:
            raise left from _error_of(task)
        await task
    finally:
        del left, task  # their tracebacks hold this frame
    if reader.has_left:
        raise ReaderGone("the client has gone")


def _error_of(task: asyncio.Task[None]) -> BaseException | None:
    return None if task.cancelled() else task.exception()
