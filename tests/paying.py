"""Charges of a turn for tests: with a ledger in memory."""

from __future__ import annotations

from antiphon.accounts.runs import NO_RUN, Run
from antiphon.engine.keep.pending_writes import Write
from antiphon.engine.run.turn_charges import TurnCharges
from antiphon.store.base.ledger import Ledger, Payer
from antiphon.store.memory import MemoryStore

__all__ = ["charges_of"]


def charges_of(
    ledger: Ledger | None = None, *, project: str = "alice", run: Run = NO_RUN
) -> TurnCharges:
    """Return what pays for one turn."""
    payer = Payer(project, run=run.id)
    return TurnCharges(ledger or MemoryStore().ledger, "resp_1", payer, "m", _refuse, run=run)


def _refuse(write: Write, *, is_in_doubt: bool = False) -> None:
    raise AssertionError("the ledger in memory takes every write")
