"""Repeat a request that failed before the model produced anything.

The backend decides when that is worth it and how long to wait first (`Patience`): it knows its
server. This policy counts the attempts. It stands last, so it repeats what was asked, unchanged.
"""

from __future__ import annotations

from antiphon.backends.patience import Patience
from antiphon.engine.run.rounds import Next, Policy, RoundEnd, Rounds
from antiphon.plans.plan import Plan
from antiphon.transport.retry import WAIT_BUDGET

__all__ = ["Retry"]


class Retry(Policy):
    """Ask again after a fault, within the limits of the backend's patience."""

    def __init__(self) -> None:
        self._patience: Patience | None = None
        self._attempt = 1
        self._budget = WAIT_BUDGET
        self._may_retry = True

    async def prepare(self, plan: Plan, rounds: Rounds) -> Plan:
        """Begin to count the attempts of a new request."""
        self._attempt, self._budget = 1, WAIT_BUDGET
        self._patience = rounds.backend.patience
        if self._patience is not None:
            self._may_retry = self._patience.may_try(plan.model)
        return plan

    async def after(self, end: RoundEnd, rounds: Rounds) -> Next | None:
        """Wait and return the same round again, or None if there is no hope in that."""
        if end.error is None or self._patience is None:
            return None
        wait = self._patience.wait_after(
            end.plan.model,
            end.error,
            attempt=self._attempt,
            budget=self._budget,
            may_retry=self._may_retry,
            has_spoken=end.has_spoken,
        )
        if wait is None:
            return None
        await self._patience.sleep(wait)
        self._attempt += 1
        self._budget -= wait
        return Next(end.plan, continues=True)
