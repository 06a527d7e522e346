"""The contract between a turn and a model.

A backend turns a frozen `Plan` into batches of deltas, or raises a `BackendError`. It never
sees ids, indexes or done-events. A batch is what one read of the wire brought: whatever
arrived together goes out together, in one write. Closing the generator early stops the model.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Protocol, runtime_checkable

import msgspec

from antiphon.protocol.deltas import Delta
from antiphon.protocol.plan import Plan

__all__ = ["Backend", "Counter", "ModelInfo"]


class ModelInfo(msgspec.Struct, frozen=True):
    """A model that a backend offers."""

    id: str
    created: int = 0
    owned_by: str = "antiphon"
    context_length: int | None = None


class Backend(Protocol):
    """One way of reaching models."""

    def stream(self, plan: Plan) -> AsyncGenerator[Sequence[Delta], None]:
        """Run the model; yield what happens. Raise BackendError when it cannot go on.

        The first batch may hold `Degraded` deltas alone; it is yielded before anything is
        sent to the model. The last delta of a whole answer is `Stopped`; `UsageKnown` comes
        before it or in the same batch.
        """
        ...

    async def models(self) -> Sequence[ModelInfo]:
        """Return what can be asked for. Raise BackendError if that cannot be learnt now."""
        ...

    async def close(self) -> None:
        """Let go of connections, threads and weights."""
        ...


@runtime_checkable
class Counter(Protocol):
    """A backend that can tell how long a request is without running it."""

    async def count(self, plan: Plan) -> int | None:
        """Return the input tokens that the usage of this plan would report.

        None if that cannot be told, for this plan or just now.
        """
        ...
