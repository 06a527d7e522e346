"""A turn without a model: what `generate: false` asks for.

A client that is about to send a long context announces it; the turn is stored and can be
continued, and nothing is generated.
"""

from __future__ import annotations

from antiphon.engine.run.rounds import Policy, Rounds
from antiphon.plans.plan import Plan
from antiphon.protocol.deltas import Stopped
from antiphon.protocol.response import Usage

__all__ = ["NoModel"]


class NoModel(Policy):
    """Ask nothing, at no cost."""

    async def prepare(self, plan: Plan, rounds: Rounds) -> None:
        """End the answer before it begins."""
        rounds.spend(Usage())
        rounds.stop(Stopped("stop"))
