"""The contract between a turn and a model.

A backend turns a frozen `Plan` into batches of deltas, or raises a `BackendError`. It never
sees ids, indexes or done-events. A batch is what one read of the wire brought: whatever
arrived together goes out together, in one write. Closing the generator early stops the model.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Protocol, runtime_checkable

from antiphon.models.facts import ModelInfo
from antiphon.plans.plan import Plan
from antiphon.protocol.deltas import Delta

__all__ = ["Backend", "Counter", "Listener", "ModelInfo", "enforced", "stream_to"]


class Backend(Protocol):
    """One way of reaching models."""

    def stream(self, plan: Plan) -> AsyncGenerator[Sequence[Delta], None]:
        """Run the model; yield what happens. Raise BackendError when it cannot go on.

        The first batch may hold `Degraded` deltas alone; it is yielded before anything is
        sent to the model. An empty batch says that the model speaks, and that nothing can be
        told of it yet. The last delta of a whole answer is `Stopped`; `UsageKnown` comes before
        it or in the same batch.
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


class Listener(Protocol):
    """Whoever reads a stream, for what need not wait until it wakes up."""

    def note_asked(self) -> None:
        """The model is about to be asked, after all that is reported before that."""
        ...

    def take(self, batch: Sequence[Delta]) -> bool:
        """Take a batch the moment it is here; say whether it was taken."""
        ...


def stream_to(
    backend: Backend, plan: Plan, listener: Listener
) -> AsyncGenerator[Sequence[Delta], None]:
    """Run the model; yield what happens, but for what the listener has taken.

    A backend that has a `stream_to` may offer it whatever comes while its reader waits. What
    was offered and not taken is yielded next.
    """
    run = getattr(backend, "stream_to", None)
    batches: AsyncGenerator[Sequence[Delta], None]
    batches = backend.stream(plan) if run is None else run(plan, listener)
    return batches


def enforced(backend: Backend) -> frozenset[str]:
    """Return what a backend's `enforces` says its model cannot but do; nothing without one.

    It need not be checked then. "format": a text that `plan.format` asks for; "arguments":
    those of strict functions.
    """
    # Asked with every request: a check of the whole protocol takes ten times as long.
    found: frozenset[str] = getattr(backend, "enforces", frozenset())
    return found
