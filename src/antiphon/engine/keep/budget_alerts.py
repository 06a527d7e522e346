"""Which budgets have passed a threshold that an operator must know of?

The budgets are looked at every few seconds, so a turn does nothing for it. The thresholds are the
`soft` percentages of a budget, of what was spent, and 100: that is passed also when a request was
refused, because a budget with a small rest refuses what may need more. Each threshold is reported
once for each period and ceiling, over all processes: that it was, and the notices of it, are
stored in one step. Ceilings that callers set for their own runs are not reported.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from antiphon.accounts.amounts import amount_of, share_of, split_scope
from antiphon.protocol.machines.builder import Mint
from antiphon.store.base import Notice, Store
from antiphon.store.base.ledger import BudgetState, Refused

__all__ = ["THRESHOLD", "BudgetAlerts"]

THRESHOLD: Final = "budget.threshold"
_ALL: Final = 100
_PERCENTS: Final = 128
"""More than there are percents: a later period is always higher."""


class BudgetAlerts:
    """Makes the notices of budgets for these endpoints, which are known by their names."""

    def __init__(
        self, endpoints: Sequence[str], store: Store, *, now: Callable[[], int], mint: Mint
    ) -> None:
        self._endpoints = tuple(endpoints)
        self._store = store
        self._now = now
        self._mint = mint
        self._refused: set[str] = set()
        self._noted: dict[str, int] = {}

    @property
    def is_wanted(self) -> bool:
        """Whether there is an endpoint to inform."""
        return bool(self._endpoints)

    def use(self, endpoints: Sequence[str]) -> None:
        """Inform these from now on."""
        self._endpoints = tuple(endpoints)

    def note_refused(self, refused: Refused) -> None:
        """Note that a budget had no room for a request."""
        if refused.by == "budget" and self._endpoints:
            self._refused.add(refused.id)

    async def look(self) -> int:
        """Store notices of the thresholds that were passed; return how many thresholds."""
        refused, self._refused = self._refused, set()
        if not self._endpoints:
            return 0
        count = 0
        for state in await self._store.ledger.budgets(with_ceilings=False):
            budget = state.budget
            percent = _passed(state, has_refused=budget.id in refused)
            if percent is None:
                continue
            mark = f"warned {budget.id} {budget.ceiling}"
            value = state.period_start * _PERCENTS + percent
            if self._noted.get(mark, -1) < value:
                notices = self._notices(state, percent)
                count += await self._store.notices.add_once(mark, value, notices)
                self._noted[mark] = value
        return count

    def _notices(self, state: BudgetState, percent: int) -> list[Notice]:
        project, _ = split_scope(state.budget.scope, state.budget.scope_id)
        data = msgspec.json.encode(_data(state, percent)).decode()
        return [
            Notice(
                id=self._mint("evt"),
                owner=project or "",
                response_id=data,
                type=THRESHOLD,
                created_at=self._now(),
                endpoint=endpoint,
            )
            for endpoint in self._endpoints
        ]


def _passed(state: BudgetState, *, has_refused: bool) -> int | None:
    """Return the highest threshold that is passed, if one is."""
    share = _ALL if has_refused else share_of(state.spent, state.budget.ceiling)
    return max((one for one in (*state.budget.soft, _ALL) if share >= one), default=None)


def _data(state: BudgetState, percent: int) -> dict[str, str | int | None]:
    budget = state.budget
    project, name = split_scope(budget.scope, budget.scope_id)
    return {
        "id": budget.id,
        "threshold": percent,
        "scope": budget.scope,
        "scope_id": name,
        "project_id": project,
        "unit": budget.unit,
        "limit": amount_of(budget.unit, budget.ceiling),
        "spent": amount_of(budget.unit, state.spent),
        "period": budget.period,
        "period_start": state.period_start,
    }
