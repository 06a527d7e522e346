"""What does a model cost?

Bundled prices are the maker's list prices in US dollars for a million tokens, as of
`PRICES_FROM`, without surcharges for long contexts. A price that is not certain is left out. An
amount is computed in whole units: a price is a whole number of pico-dollars per token, and the
cost of a response is rounded once, to nano-dollars.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from antiphon.protocol.response import Usage

__all__ = ["PRICES", "PRICES_FROM", "Price"]

PRICES_FROM: Final = "2026-11-15"

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


_GPT_5: Final = Price(1.25, 10, 0.125)
_GPT_5_2: Final = Price(1.75, 14, 0.175)
_SONNET: Final = Price(3, 15, 0.3)
_OPUS: Final = Price(5, 25, 0.5)
_OLD_OPUS: Final = Price(15, 75, 1.5)

PRICES: Final[Mapping[str, Price]] = {
    "gpt-3.5-turbo": Price(0.5, 1.5),
    "gpt-4": Price(30, 60),
    "gpt-4-0125-preview": Price(10, 30),
    "gpt-4-1106-preview": Price(10, 30),
    "gpt-4-turbo": Price(10, 30),
    "gpt-4o": Price(2.5, 10, 1.25),
    "gpt-4o-2024-05-13": Price(5, 15),
    "gpt-4o-mini": Price(0.15, 0.6, 0.075),
    "chatgpt-4o-latest": Price(5, 15),
    "gpt-4.1": Price(2, 8, 0.5),
    "gpt-4.1-mini": Price(0.4, 1.6, 0.1),
    "gpt-4.1-nano": Price(0.1, 0.4, 0.025),
    "o1": Price(15, 60, 7.5),
    "o1-mini": Price(1.1, 4.4, 0.55),
    "o1-preview": Price(15, 60, 7.5),
    "o1-pro": Price(150, 600),
    "o3": Price(2, 8, 0.5),
    "o3-mini": Price(1.1, 4.4, 0.55),
    "o3-pro": Price(20, 80),
    "o3-deep-research": Price(10, 40, 2.5),
    "o4-mini": Price(1.1, 4.4, 0.275),
    "o4-mini-deep-research": Price(2, 8, 0.5),
    "codex-mini-latest": Price(1.5, 6, 0.375),
    "gpt-5": _GPT_5,
    "gpt-5-chat-latest": _GPT_5,
    "gpt-5-codex": _GPT_5,
    "gpt-5-mini": Price(0.25, 2, 0.025),
    "gpt-5-nano": Price(0.05, 0.4, 0.005),
    "gpt-5-pro": Price(15, 120),
    "gpt-5.1": _GPT_5,
    "gpt-5.1-chat-latest": _GPT_5,
    "gpt-5.1-codex": _GPT_5,
    "gpt-5.1-codex-max": _GPT_5,
    "gpt-5.1-codex-mini": Price(0.25, 2, 0.025),
    "gpt-5.2": _GPT_5_2,
    "gpt-5.2-chat-latest": _GPT_5_2,
    "gpt-5.2-codex": _GPT_5_2,
    "gpt-5.2-pro": Price(21, 168),
    "gpt-5.3-codex": _GPT_5_2,
    "gpt-5.3-chat-latest": _GPT_5_2,
    "gpt-5.4": Price(2.5, 15, 0.25),
    "gpt-5.4-mini": Price(0.75, 4.5, 0.075),
    "gpt-5.4-nano": Price(0.2, 1.25, 0.02),
    "gpt-5.4-pro": Price(30, 180),
    "gpt-5.5": Price(5, 30, 0.5),
    "gpt-5.5-pro": Price(30, 180),
    "claude-haiku-4.5": Price(1, 5, 0.1),
    "claude-sonnet-4": _SONNET,
    "claude-sonnet-4.5": _SONNET,
    "claude-sonnet-4.6": _SONNET,
    "claude-opus-4": _OLD_OPUS,
    "claude-opus-4.1": _OLD_OPUS,
    "claude-opus-4.5": _OPUS,
    "claude-opus-4.6": _OPUS,
    "gemini-2.5-flash": Price(0.3, 2.5, 0.03),
    "gemini-2.5-flash-lite": Price(0.1, 0.4, 0.01),
    "gemini-2.5-pro": Price(1.25, 10, 0.125),
}
"""Prices by family; `table` gives the families their names."""
