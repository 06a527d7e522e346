"""Runs whose model calls tools by their aliases, as a chat model does."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from antiphon.backends.base import DeltaSink
from antiphon.plans.toolbox import Toolbox
from antiphon.protocol.deltas import Delta
from antiphon.protocol.errors import BackendError
from antiphon.wires.lift import CallLifter

__all__ = ["lifted"]

Run = Callable[[DeltaSink], Awaitable[None]]


def lifted(run: Run, toolbox: Toolbox) -> Run:
    """Return the run with its calls lifted: they are of the caller's own tools."""

    async def run_lifted(sink: DeltaSink) -> None:
        lifter = CallLifter(toolbox)
        try:
            await run(_LiftingSink(lifter, sink))
        except BackendError:
            if (held := lifter.release()) and not sink.push(held):
                await sink.drained()
            raise

    return run_lifted


class _LiftingSink:
    def __init__(self, lifter: CallLifter, sink: DeltaSink) -> None:
        self._lifter = lifter
        self._sink = sink
        self.drained = sink.drained

    def push(self, batch: Sequence[Delta]) -> bool:
        return self._sink.push(self._lifter.feed(batch))
