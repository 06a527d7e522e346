"""The contract between a turn and a model.

A backend turns a frozen `Plan` into an `Ask`, which pushes batches of deltas into a sink, or
raises a `BackendError`. It never sees ids, indexes or done-events. A batch is what one read of
the wire brought: deltas that arrived together are pushed together. Cancelling `run` stops the
model.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

import msgspec

from antiphon.backends.patience import Patience
from antiphon.models.facts import ModelInfo
from antiphon.plans.plan import Plan
from antiphon.protocol.deltas import Delta
from antiphon.protocol.errors import AntiphonError

__all__ = ["Ask", "Backend", "Capabilities", "DeltaRefused", "DeltaSink", "ModelInfo"]


class DeltaSink(Protocol):
    """Takes what a model produces."""

    def push(self, batch: Sequence[Delta]) -> bool:
        """Take a batch; after a False, `drained` must be awaited before the next.

        It is taken in either case. An empty batch means that the model has begun to answer, and
        that nothing can be forwarded yet. Raise DeltaRefused if the turn cannot go on.
        """
        ...

    async def drained(self) -> None:
        """Wait until more can be taken."""
        ...


class DeltaRefused(Exception):
    """A sink cannot take what it was given, for this reason. No backend handles this error."""

    def __init__(self, reason: AntiphonError) -> None:
        super().__init__(str(reason))
        self.reason = reason


class Ask(msgspec.Struct, frozen=True):
    """One request to a model, ready to be sent.

    `run` sends it and pushes what the model produces into the sink. It raises BackendError when
    the model cannot go on. The last delta of a whole answer is `Stopped`; `UsageKnown` comes
    before it or in the same batch.
    """

    degraded: Sequence[str]
    """What the request cannot express of the plan."""
    run: Callable[[DeltaSink], Awaitable[None]]


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """What a backend does by itself, so that others need not."""

    enforces: frozenset[str] = frozenset()
    """What its model cannot but do, and need not be checked. "format": a text that `plan.format`
    asks for; "arguments": those of strict functions."""
    counts: bool = False
    """Whether `count` may know the length of a request."""
    patience: Patience | None = None
    """When a failed request is repeated; None if it is not."""


class Backend(Protocol):
    """One way of reaching models."""

    @property
    def capabilities(self) -> Capabilities:
        """What it does by itself."""
        ...

    async def open(self, plan: Plan) -> Ask:
        """Return the request for this plan. Nothing is sent before it is run."""
        ...

    async def count(self, plan: Plan) -> int | None:
        """Return the input tokens that the usage of this plan would report.

        None if that is not known, for this plan or just now.
        """
        ...

    async def models(self) -> Sequence[ModelInfo]:
        """Return what can be asked for. Raise BackendError if that cannot be learnt now."""
        ...

    async def close(self) -> None:
        """Close connections, threads and weights."""
        ...
