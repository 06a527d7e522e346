"""Which budgets and rate limits does a process know of, without asking its database each time?

Budgets of runs are not among them: each run may have one, so there may be very many. Whether a run
has a budget is asked of the database, once there are such budgets at all.
"""

from __future__ import annotations

import msgspec

from antiphon.store.base.ledger import Payer

__all__ = ["KnownLimits"]


class KnownLimits(msgspec.Struct, frozen=True):
    """The scopes that have a budget, and those that have a limit for a model or for all.

    It is that of a version. The ceilings of runs do not change the version.
    """

    version: int = -1
    has_runs: bool = False
    """Whether any run has a budget."""
    budgets: frozenset[tuple[str, str]] = frozenset()
    """Scope and `scope_id`, without runs."""
    limits: frozenset[tuple[str, str, str]] = frozenset()

    def apply_to(self, payer: Payer, model: str) -> bool:
        """Return whether one of these applies to a payer."""
        if not self.budgets and not self.limits:
            return False
        return any(
            place in self.budgets or (*place, "") in self.limits or (*place, model) in self.limits
            for place in payer.scope_ids().items()
        )

    def run_to_ask_for(self, payer: Payer) -> str | None:
        """Return the `scope_id` of the payer's run, if that may have a budget."""
        return payer.scope_ids().get("run") if self.has_runs and payer.run is not None else None
