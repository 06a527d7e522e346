"""What does a model cost?

Prices are list prices in US dollars for a million tokens; `table` has those of well-known models.
An amount is computed in whole units: a price is a whole number of pico-dollars per token, and
the cost of a response is rounded once, to nano-dollars.
"""

from __future__ import annotations

from typing import Final

import msgspec

from antiphon.protocol.response import Usage

__all__ = ["Price"]

_PICO_PER_DOLLAR_A_MILLION: Final = 1_000_000
_NANO: Final = 1_000_000_000


class Price(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """US dollars for a million tokens; `cached` is for input that the server had kept."""

    input: float
    output: float
    cached: float | None = None

    def nano_dollars(self, usage: Usage) -> int:
        """Return what a response cost, rounded half to even."""
        # Some servers also count what they kept for later; only what was sent can be cached.
        kept = min(usage.input_tokens_details.cached_tokens, usage.input_tokens)
        picos = (usage.input_tokens - kept) * _picos(self.input)
        picos += kept * _picos(self.input if self.cached is None else self.cached)
        picos += usage.output_tokens * _picos(self.output)
        return round(picos, -3) // 1000

    def cost(self, usage: Usage) -> float:
        """Return what a response cost, in US dollars."""
        return self.nano_dollars(usage) / _NANO


def _picos(dollars: float) -> int:
    """Return pico-dollars per token from dollars per million tokens."""
    return round(dollars * _PICO_PER_DOLLAR_A_MILLION)
