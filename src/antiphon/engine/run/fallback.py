"""Ask another deployment when one fails before its model has produced anything.

After the first delta there is no fallback: what was forwarded must not be produced twice. What
the failed deployment could not honour of the request stays reported.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import msgspec

from antiphon.engine.run.rounds import Next, Policy, RoundEnd, Rounds
from antiphon.plans.plan import Plan
from antiphon.routing.candidates import Candidate, may_fall_back

__all__ = ["Fallback"]


class Fallback(Policy):
    """Go through `others`, best first, until one answers. Their own retries come before that."""

    def __init__(self, others: Sequence[Candidate]) -> None:
        self._others = deque(others)
        self._plan: Plan | None = None

    async def prepare(self, plan: Plan, rounds: Rounds) -> Plan:
        """Keep the plan that each deployment is asked with."""
        self._plan = plan
        return plan

    async def after(self, end: RoundEnd, rounds: Rounds) -> Next | None:
        """Return the same round at the next deployment, if nothing was produced so far."""
        if end.error is None or end.has_spoken or rounds.has_begun or self._plan is None:
            return None
        if not self._others or not may_fall_back(end.error):
            return None
        other = self._others.popleft()
        return Next(msgspec.structs.replace(self._plan, model=other.model), other.backend)
