"""What did one call of a model use, in parts that do not overlap?

Peers count the same tokens in different ways: OpenAI's input contains what was read from the
cache, Anthropic's does not. Each wire translates its peer's figures into `Usage`, which is
OpenAI's form; this module splits that into parts that sum up to the whole. Everything that costs
money is computed from these parts.
"""

from __future__ import annotations

from typing import Final

import msgspec

from antiphon.protocol.response import InputDetails, OutputDetails, Usage

__all__ = ["MOST_TOKENS", "NO_TOKENS", "TokenCounts", "add_counts", "counts_of", "usage_of"]

MOST_TOKENS: Final = 10**9
"""No call has more input or more output. At the highest price, what costs that fits 64 bits."""


class TokenCounts(msgspec.Struct, frozen=True, omit_defaults=True):
    """Tokens by part. No token is in two parts, and none is negative."""

    fresh: int = 0
    """Input that the model had to read."""
    cached: int = 0
    """Input that the server had kept."""
    cache_write: int = 0
    """Input that the server keeps from now on."""
    output: int = 0
    """Output without reasoning."""
    reasoning: int = 0

    @property
    def input_total(self) -> int:
        """All input."""
        return self.fresh + self.cached + self.cache_write

    @property
    def output_total(self) -> int:
        """All output."""
        return self.output + self.reasoning

    @property
    def total(self) -> int:
        """Everything."""
        return self.fresh + self.cached + self.cache_write + self.output + self.reasoning


NO_TOKENS = TokenCounts()


def counts_of(usage: Usage) -> TokenCounts:
    """Return the parts of a usage. What details claim beyond the whole is ignored.

    A figure that no call can have is taken as the nearest one that a call can have: a store could
    not keep what it costs.
    """
    given = _within(usage.input_tokens, MOST_TOKENS)
    cached = _within(usage.input_tokens_details.cached_tokens, given)
    written = _within(usage.input_tokens_details.cache_write_tokens, given - cached)
    made = _within(usage.output_tokens, MOST_TOKENS)
    reasoning = _within(usage.output_tokens_details.reasoning_tokens, made)
    return TokenCounts(
        fresh=given - cached - written,
        cached=cached,
        cache_write=written,
        output=made - reasoning,
        reasoning=reasoning,
    )


def usage_of(counts: TokenCounts) -> Usage:
    """Return the usage that has these parts."""
    return Usage(
        input_tokens=counts.input_total,
        input_tokens_details=InputDetails(
            cached_tokens=counts.cached, cache_write_tokens=counts.cache_write
        ),
        output_tokens=counts.output_total,
        output_tokens_details=OutputDetails(reasoning_tokens=counts.reasoning),
        total_tokens=counts.total,
    )


def add_counts(one: TokenCounts, other: TokenCounts) -> TokenCounts:
    """Return both together."""
    return TokenCounts(
        one.fresh + other.fresh,
        one.cached + other.cached,
        one.cache_write + other.cache_write,
        one.output + other.output,
        one.reasoning + other.reasoning,
    )


def _within(part: int, whole: int) -> int:
    return min(max(0, part), whole)
