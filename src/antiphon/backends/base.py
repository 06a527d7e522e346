"""The contract between a turn and a model.

A backend turns a frozen `Plan` into an `Ask`, which pushes batches of deltas into a sink, or
raises a `BackendError`. It never sees ids, indexes or done-events. A batch is what one read of
the wire brought: deltas that arrived together are pushed together. Cancelling `run` stops the
model.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

import msgspec

from antiphon.backends.patience import Patience
from antiphon.models.facts import ModelInfo
from antiphon.plans.capabilities import Capabilities
from antiphon.plans.plan import Plan
from antiphon.protocol.deltas import Delta
from antiphon.protocol.errors import AntiphonError
from antiphon.protocol.long_body import LongBody
from antiphon.transport.http import Sending

__all__ = ["Ask", "Backend", "DeltaRefused", "DeltaSink", "ModelInfo", "Relayed"]


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


def _always() -> bool:
    return True


def _no_body() -> bytes:
    return b""


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
    is_taken: Callable[[], bool] = _always
    """Returns whether the model may have worked for it: the request went out, and was not refused.

    It is asked when `run` has ended, in whichever way.
    """
    body: Callable[[], bytes | LongBody] = _no_body
    """Returns what the upstream is sent, until it has answered; nothing if there is no wire."""


class Relayed(msgspec.Struct, frozen=True):
    """The answer to a request that was passed on as it is."""

    is_streamed: bool
    """Whether it is a stream of events; otherwise it is JSON."""
    pieces: AsyncIterable[bytes]
    """The body as it arrives. Raises BackendError if it breaks off."""


class Backend(Protocol):
    """One way of reaching models."""

    @property
    def capabilities(self) -> Capabilities:
        """What it does by itself."""
        ...

    @property
    def patience(self) -> Patience | None:
        """How to wait before a failed request is repeated; None if it never is."""
        ...

    async def open(self, plan: Plan) -> Ask:
        """Return the request for this plan. Nothing is sent before it is run."""
        ...

    async def count(self, plan: Plan) -> int | None:
        """Return the input tokens that the usage of this plan would report.

        None if that is not known, for this plan or just now.
        """
        ...

    def relay(
        self, path: str, body: bytes, *, is_streamed: bool, sending: Sending
    ) -> AbstractAsyncContextManager[Relayed]:
        """Pass a body on to another path of the server, as it is.

        `sending` learns what becomes of it; a caller that leaves has to call its `linger`.
        Raise BackendError if the server refuses it, NotBuilt if there is no such server.
        """
        ...

    async def models(self) -> Sequence[ModelInfo]:
        """Return what can be asked for. Raise BackendError if that cannot be learnt now."""
        ...

    async def close(self) -> None:
        """Close connections, threads and weights."""
        ...
