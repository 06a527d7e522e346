"""How numbers of the ledger are shown to people: tokens, dollars, shares and times.

Small numbers are exact and large ones are short. A cost that is not known is the word "unknown",
and a cost of which a part is not known ends in "+?". It is never shown as 0.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Final

from antiphon.accounts.amounts import amount_of
from antiphon.gateway.errors import BadSettings
from antiphon.models.prices import NANO
from antiphon.protocol.token_counts import NO_TOKENS, TokenCounts, add_counts
from antiphon.store.base.ledger import Unit, UsageRow

__all__ = [
    "Total",
    "amount_words",
    "moment",
    "read_since",
    "short_amount",
    "short_cost",
    "short_count",
]

_EXACT_BELOW: Final = 10_000
_UNITS: Final = ((10**12, "T"), (10**9, "B"), (10**6, "M"), (10**3, "k"))
_SINCE: Final = re.compile(r"(\d{1,5})([mhdw])")
_SECONDS: Final = {"m": 60, "h": 3600, "d": 86_400, "w": 604_800}


class Total:
    """The sum of some rows."""

    def __init__(self, rows: Iterable[UsageRow]) -> None:
        self.used: TokenCounts = NO_TOKENS
        self.calls = self.responses = self.cost = self.unpriced = self.estimated = 0
        """`estimated` counts tokens that no provider has reported."""
        for row in rows:
            self.used = add_counts(self.used, row.used)
            self.calls += row.charges
            self.responses += row.requests
            self.cost += row.cost
            self.unpriced += row.unpriced
            self.estimated += 0 if row.basis == "reported" else row.used.total

    def add(self, other: Total) -> None:
        """Add another sum to this one."""
        self.used = add_counts(self.used, other.used)
        self.calls += other.calls
        self.responses += other.responses
        self.cost += other.cost
        self.unpriced += other.unpriced
        self.estimated += other.estimated

    @property
    def cost_words(self) -> str:
        """The cost, as far as it is known."""
        if self.calls and self.unpriced == self.calls:
            return "unknown"
        return short_cost(self.cost) + (" +?" if self.unpriced else "")

    @property
    def known_cost(self) -> int | None:
        """The cost in nano-dollars; None if no part of it is known."""
        return None if self.calls and self.unpriced == self.calls else self.cost

    @property
    def estimated_words(self) -> str:
        """How many percent of the tokens no provider has reported."""
        if not self.estimated:
            return "0 %"
        share = self.estimated * 1000 // max(1, self.used.total)
        return f"{share // 10}.{share % 10} %" if share else "< 0.1 %"


def short_count(count: int) -> str:
    """Return a count, of which a large one has three digits: 9,999 or 12.3k or 938k."""
    if count < _EXACT_BELOW:
        return f"{count:,}"
    size, unit = next(pair for pair in _UNITS if count >= pair[0])
    whole = count // size
    decimals = 2 if whole < 10 else 1 if whole < 100 else 0
    parts = count * 10**decimals // size
    return f"{whole}{f'.{parts % 10**decimals:0{decimals}}' if decimals else ''}{unit}"


def short_cost(nano_dollars: int) -> str:
    """Return an amount in dollars: to the cent, below a dollar to four decimals.

    What is below a tenth of a cent has two digits that count: rounded to four decimals, a cost
    could look like twice what it is.
    """
    if nano_dollars >= NANO or not nano_dollars:
        cents = (nano_dollars + NANO // 200) // (NANO // 100)
        return f"${cents // 100:,}.{cents % 100:02}"
    decimals = max(4, 11 - len(str(nano_dollars))) if nano_dollars < NANO // 1000 else 4
    step = NANO // 10 ** min(decimals, 9)
    parts = (nano_dollars + step // 2) // step
    return f"${parts * step // NANO}.{parts * step % NANO:09}"[: 3 + min(decimals, 9)]


def amount_words(unit: Unit, amount: int) -> str:
    """Return an amount of a budget, to the last digit."""
    if unit == "tokens":
        is_round = amount >= _EXACT_BELOW and amount % 10 ** (len(str(amount)) - 3) == 0
        return f"{short_count(amount) if is_round else f'{amount:,}'} tokens"
    whole, _, part = str(amount_of(unit, amount)).partition(".")
    return f"${int(whole):,}.{part}"


def short_amount(unit: Unit, amount: int) -> str:
    """Return an amount that was used, rounded."""
    return short_count(amount) if unit == "tokens" else short_cost(amount)


def moment(seconds: float) -> str:
    """Return a time in UTC."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")


def read_since(text: str, now: float) -> int:
    """Return the time that is meant by 90m, 24h, 7d, 4w or a date. Raise BadSettings."""
    found = _SINCE.fullmatch(text.strip())
    if found is not None:
        return max(0, int(now) - int(found[1]) * _SECONDS[found[2]])
    try:
        day = datetime.fromisoformat(text.strip())
    except ValueError:
        raise BadSettings(
            f"--since {text!r} must be a span such as 90m, 24h, 7d or 4w, or a date such as "
            f"{(datetime.now(UTC) - timedelta(days=7)).date()}"
        ) from None
    return int((day if day.tzinfo else day.replace(tzinfo=UTC)).timestamp())
