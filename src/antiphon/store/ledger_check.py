"""Do the books agree with the charges? Nothing is corrected here.

Pure: a store passes every charge, its budgets and its sums in one state. Rules, as in the module
of the contract: I2 budgets equal the sums over charges. I3 no budget is overdrawn, except by a
new ceiling and by charges that cost more than was held. I4 a charge is held or settled, not half
of both. I5 the sums by time equal those over charges, and totals equal those over the sums. I7
every held charge has a writer that is alive. Where old charges were swept, sums may be greater
than what is left of the charges.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from antiphon.store.base.ledger import Charge, LedgerProblem
from antiphon.store.ledger_rules import BudgetRow, amount_of
from antiphon.store.ledger_sums import (
    LEVELS,
    WIDTHS,
    UsageKey,
    UsageSum,
    add_sum,
    keys_of,
    sum_of,
    totals_of,
)

__all__ = ["BookCheck"]

_MOST_NAMED: Final = 5
_NOTHING: Final = UsageSum()


class _Proof:
    """What the charges of one budget come to."""

    def __init__(self, row: BudgetRow) -> None:
        self.row = row
        self.spent = 0
        self.held = 0
        self.overrun = 0
        self.overruns: list[str] = []

    def add(self, charge: Charge) -> None:
        if charge.reserved_at < self.row.period_start:
            return
        unit = self.row.budget.unit
        held = amount_of(unit, charge.held, charge.held_cost)
        if charge.state == "held":
            self.held += held
        elif charge.state == "settled":
            spent = amount_of(unit, charge.used, charge.cost)
            self.spent += spent
            if spent > held:
                self.overrun += spent - held
                self.overruns.append(_name(charge))


class BookCheck:
    """Takes every charge (`add`), then finds what the books contradict (`problems`).

    `swept_before` is the time before which settled charges may have been removed,
    `totalled_before` that before which there are totals, among the sums of a negative width.
    """

    def __init__(
        self,
        budgets: Iterable[BudgetRow],
        sums: Mapping[int, Mapping[UsageKey, UsageSum]],
        swept_before: float,
        totalled_before: int = 0,
    ) -> None:
        self._proofs = [_Proof(row) for row in budgets]
        self._by_scope: dict[tuple[str, str], list[_Proof]] = {}
        for proof in self._proofs:
            budget = proof.row.budget
            self._by_scope.setdefault((budget.scope, budget.scope_id), []).append(proof)
        self._sums = sums
        self._found: dict[int, dict[UsageKey, UsageSum]] = {width: {} for width in WIDTHS}
        self._swept_before = swept_before
        self._totalled_before = totalled_before
        self._problems: list[LedgerProblem] = []

    def add(self, charge: Charge, *, is_request: bool, is_alive: bool) -> None:
        """Count a charge. `is_alive` is whether the writer of a held one is."""
        is_held = charge.state == "held"
        if is_held == (charge.outcome is not None and charge.settled_at is not None):
            self._report("I4", _name(charge), f"is {charge.state} and has an outcome or lacks one")
        if is_held and not is_alive:
            self._report("I7", _name(charge), "is held and its writer is not alive")
        if self._by_scope:
            for scope in charge.payer.scope_ids().items():
                for proof in self._by_scope.get(scope, ()):
                    proof.add(charge)
        if charge.state == "settled" and charge.basis is not None and charge.outcome is not None:
            one = sum_of(charge, is_request=is_request)
            for width, sums in self._found.items():
                key = keys_of(charge, width)
                sums[key] = add_sum(sums.get(key, _NOTHING), one)

    def problems(self) -> list[LedgerProblem]:
        """Return what the books contradict."""
        for proof in self._proofs:
            self._check_budget(proof)
        for width, found in self._found.items():
            self._check_sums(width, found, self._sums.get(width, {}))
            for level in LEVELS:
                self._check_totals(width, level)
        return self._problems

    def _check_budget(self, proof: _Proof) -> None:
        row, budget = proof.row, proof.row.budget
        if row.held != proof.held:
            self._report("I2", budget.id, f"holds {row.held}, its charges {proof.held}")
        is_whole = row.period_start >= self._swept_before
        if row.spent < proof.spent or (is_whole and row.spent != proof.spent):
            self._report("I2", budget.id, f"has spent {row.spent}, its charges {proof.spent}")
        over = row.used - budget.ceiling - row.excess - proof.overrun
        if is_whole and over > 0:
            named = ", ".join(proof.overruns[:_MOST_NAMED]) or "none"
            self._report(
                "I3",
                budget.id,
                f"is overdrawn by {over} beyond the charges that cost more than held: {named}",
            )

    def _check_sums(
        self, width: int, found: Mapping[UsageKey, UsageSum], kept: Mapping[UsageKey, UsageSum]
    ) -> None:
        for key in sorted(found.keys() | kept.keys(), key=str):
            expected, stored = found.get(key, _NOTHING), kept.get(key, _NOTHING)
            is_whole = key.start >= self._swept_before
            if stored.charges < expected.charges or (is_whole and stored != expected):
                self._report("I5", f"{width} s from {key.start}", f"{key} is wrong: {stored}")

    def _check_totals(self, width: int, level: int) -> None:
        before = self._totalled_before // width * width
        expected = totals_of(self._sums.get(width, {}), level, before)
        stored_sums = self._sums.get(-level * width, {})
        kept = {key: one for key, one in stored_sums.items() if key.start < before}
        for key in sorted(expected.keys() | kept.keys(), key=str):
            stored = kept.get(key, _NOTHING)
            if stored != expected.get(key, _NOTHING):
                self._report("I5", f"total of {width} s from {key.start}", f"{key}: {stored}")

    def _report(self, rule: str, subject: str, message: str) -> None:
        self._problems.append(LedgerProblem(rule, subject, message))


def _name(charge: Charge) -> str:
    return f"{charge.response_id}/{charge.number}"
