"""Ask a backend in tests, without a turn."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from antiphon.backends.base import Backend
from antiphon.plans.plan import Plan
from antiphon.protocol.deltas import Degraded, Delta

__all__ = ["Collected", "play", "play_into", "said"]


class Collected:
    """A sink that keeps what it is given. Before each answer of `waits`, it asks to be awaited."""

    def __init__(self, *waits: bool) -> None:
        self.batches: list[Sequence[Delta]] = []
        self.has_more = asyncio.Event()
        self.waited = 0
        self._waits = list(waits)

    @property
    def deltas(self) -> list[Delta]:
        return [delta for batch in self.batches for delta in batch]

    def push(self, batch: Sequence[Delta]) -> bool:
        self.batches.append(batch)
        self.has_more.set()
        return not (self._waits and self._waits.pop(0))

    async def drained(self) -> None:
        self.waited += 1

    async def settled(self) -> None:
        """Nothing is kept here."""


async def play_into(sink: Collected, backend: Backend, plan: Plan) -> None:
    """Run a plan into a sink; what cannot be honoured is a batch of its own, before the others."""
    ask = await backend.open(plan)
    if ask.degraded:
        sink.batches.append([Degraded(note) for note in ask.degraded])
    await ask.run(sink)


async def play(backend: Backend, plan: Plan) -> list[Sequence[Delta]]:
    """Return the batches that a backend pushes for a plan."""
    sink = Collected()
    await play_into(sink, backend, plan)
    return sink.batches


async def said(backend: Backend, plan: Plan) -> list[Delta]:
    """Return the same, delta by delta."""
    return [delta for batch in await play(backend, plan) for delta in batch]
