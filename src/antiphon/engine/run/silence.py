"""A turn without a model: what `generate: false` asks for.

A client that is about to send a long context says so beforehand; the turn is remembered and
can be continued, and nothing is generated.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence

from antiphon.backends.base import ModelInfo
from antiphon.plans.plan import Plan
from antiphon.protocol.deltas import Delta, Stopped, UsageKnown
from antiphon.protocol.response import Usage

__all__ = ["Silence"]


class Silence:
    """A backend that says nothing, and costs nothing."""

    async def stream(self, plan: Plan) -> AsyncGenerator[Sequence[Delta], None]:
        """Stop at once."""
        yield [UsageKnown(Usage()), Stopped("stop")]

    async def models(self) -> Sequence[ModelInfo]:
        """Return nothing: nobody chooses silence by name."""
        return []

    async def close(self) -> None:
        """Do nothing."""
