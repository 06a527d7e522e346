"""Reservations, settlements and payers for tests of the ledger, and a clock that can be set."""

from __future__ import annotations

from typing import Any

from antiphon.protocol.token_counts import NO_TOKENS, TokenCounts
from antiphon.store.base.ledger import Payer, Reservation, Settlement

__all__ = ["NOON", "Clock", "ending", "wanted"]

NOON = 1_700_049_600.0
"""Wednesday, 15 November 2023, 12:00 in UTC."""


class Clock:
    """The time of a store, which stands still until it is set."""

    def __init__(self, now: float = NOON) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def wanted(
    response_id: str, number: int = 0, cost: int | None = 10, tokens: int = 10, **more: Any
) -> Reservation:
    """A charge of the project "p" that holds this much; `more` are fields of it or its payer."""
    payer = {
        name: more.pop(name) for name in ("key", "user", "conversation", "run") if name in more
    }
    return Reservation(
        response_id=response_id,
        number=number,
        payer=Payer(more.pop("project", "p"), **payer),
        model=more.pop("model", "m"),
        held=TokenCounts(fresh=tokens - tokens // 2, output=tokens // 2),
        held_cost=cost,
        **more,
    )


def ending(
    response_id: str, number: int = 0, cost: int | None = 7, tokens: int = 8, **more: Any
) -> Settlement:
    """What such a charge came to."""
    fields: dict[str, Any] = {"outcome": "completed", "basis": "reported", **more}
    used = NO_TOKENS if fields["outcome"] == "released" else TokenCounts(fresh=5, output=tokens - 5)
    return Settlement(response_id=response_id, number=number, used=used, cost=cost, **fields)
