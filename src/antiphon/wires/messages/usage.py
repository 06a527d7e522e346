"""Usage in Anthropic's sense: `input_tokens` does not include what was read from a cache.

Ours does include it. Both numbers are reported, so a client that adds them up gets our total.
"""

from __future__ import annotations

from typing import Any

from antiphon.protocol.response import Usage

__all__ = ["first_usage", "usage_of"]


def usage_of(usage: Usage | None) -> dict[str, Any]:
    """Return the usage of a response that has ended."""
    if usage is None:
        return first_usage(0)
    details = usage.input_tokens_details
    cached, written = details.cached_tokens, details.cache_write_tokens
    return {
        "input_tokens": max(0, usage.input_tokens - cached - written),
        "cache_creation_input_tokens": written,
        "cache_read_input_tokens": cached,
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"thinking_tokens": usage.output_tokens_details.reasoning_tokens},
    }


def first_usage(prompt_tokens: int) -> dict[str, Any]:
    """Return what `message_start` reports: the length of the prompt, and no output yet."""
    return {
        "input_tokens": prompt_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
        "output_tokens": 0,
    }
