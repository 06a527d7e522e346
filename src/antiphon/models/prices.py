"""What does a model cost?

Prices are list prices in US dollars for a million tokens; `table` has those of well-known models.
An amount is computed in whole units: a price is a whole number of pico-dollars per token, and
the cost of a call is rounded once, to nano-dollars. `PriceSettings` reads the decimal numbers
of an operator, which a binary fraction would change.
"""

from __future__ import annotations

from decimal import ROUND_HALF_EVEN, Decimal
from typing import Final

import msgspec

from antiphon.protocol.response import Usage
from antiphon.protocol.token_counts import TokenCounts, counts_of

__all__ = ["NANO", "Price", "PriceSettings", "dollars_of", "nano_dollars_of", "nanos"]

_PICO_PER_DOLLAR_A_MILLION: Final = 1_000_000
NANO: Final = 1_000_000_000
"""Nano-dollars of a dollar."""
_HIGHEST: Final = 1_000_000
_DECIMALS: Final = Decimal("0.000001")


class Price(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """US dollars for a million tokens.

    `cached` is for input that the server had kept, `cache_write` for input that it keeps from
    now on; where they are None, such input costs what any other does.
    """

    input: float
    output: float
    cached: float | None = None
    cache_write: float | None = None

    def nano_dollars(self, usage: Usage) -> int:
        """Return what a response cost, rounded half to even."""
        return self.cost_of(counts_of(usage))

    def cost_of(self, counts: TokenCounts) -> int:
        """Return what these tokens cost in nano-dollars, rounded half to even."""
        picos = counts.fresh * _picos(self.input)
        picos += counts.cached * _picos(self.input if self.cached is None else self.cached)
        written = self.input if self.cache_write is None else self.cache_write
        picos += counts.cache_write * _picos(written)
        picos += counts.output_total * _picos(self.output)
        return round(picos, -3) // 1000

    def most_of(self, counts: TokenCounts) -> int:
        """Return the most that these tokens may cost: all input at its highest price."""
        highest = max(self.input, self.cached or 0, self.cache_write or 0)
        picos = counts.input_total * _picos(highest) + counts.output_total * _picos(self.output)
        return -(-picos // 1000)

    def output_for(self, nano_dollars: int, given: TokenCounts) -> int | None:
        """Return how many tokens of output this buys beside the input; None if output is free."""
        each = _picos(self.output)
        spare = nano_dollars - self.most_of(given)
        return spare * 1000 // each if each else None

    def cost(self, usage: Usage) -> float:
        """Return what a response cost, in US dollars."""
        return self.nano_dollars(usage) / NANO


class PriceSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A price as an operator writes it: numbers, or decimal numbers as texts."""

    input: Decimal
    output: Decimal
    cached: Decimal | None = None
    cache_write: Decimal | None = None

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value: Decimal | None = getattr(self, name)
            if value is None:
                continue
            if not value.is_finite() or not 0 <= value <= _HIGHEST:
                raise ValueError(f"{name} must be between 0 and {_HIGHEST:,} dollars per million")
            if value != value.quantize(_DECIMALS):
                raise ValueError(f"{name} may have 6 decimals at most")

    @property
    def price(self) -> Price:
        """The same price to compute with. Six decimals are exact in it."""
        return Price(
            input=float(self.input),
            output=float(self.output),
            cached=None if self.cached is None else float(self.cached),
            cache_write=None if self.cache_write is None else float(self.cache_write),
        )


def nanos(dollars: Decimal | None) -> int | None:
    """Return a price for one piece in nano-dollars. Raise ValueError if it cannot be one."""
    if dollars is None:
        return None
    whole = dollars * NANO
    if not dollars.is_finite() or not 0 <= dollars <= _HIGHEST or whole != int(whole):
        raise ValueError("a price must be a number of dollars with 9 decimals at most")
    return int(whole)


def nano_dollars_of(text: str) -> int:
    """Return an amount in dollars, such as "2.00", in nano-dollars.

    Raise ValueError for anything but a plain decimal number of at most nine decimals.
    """
    whole, point, part = text.partition(".")
    is_plain = whole.isascii() and whole.isdecimal() and (part.isdecimal() or not point)
    if not is_plain or not part.isascii() or len(part) > 9 or len(whole) > 9:
        raise ValueError(f"{text!r} is not an amount in dollars")
    return int(whole) * NANO + int(part.ljust(9, "0") or 0)


def dollars_of(nano_dollars: int) -> str:
    """Return an amount as a decimal number of dollars, with two decimals at least."""
    amount = Decimal(nano_dollars).scaleb(-9).quantize(Decimal("1e-9"), ROUND_HALF_EVEN)
    whole, _, part = f"{amount:f}".partition(".")
    return f"{whole}.{part.rstrip('0').ljust(2, '0')}"


def _picos(dollars: float) -> int:
    """Return pico-dollars per token from dollars per million tokens."""
    return round(dollars * _PICO_PER_DOLLAR_A_MILLION)
