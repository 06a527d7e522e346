"""Usage in Anthropic's sense: `input_tokens` does not include what was read from a cache.

Ours does include it. Both numbers are reported, so a client that adds them up gets our total.
`SpentReader` is the other direction: fresh, cached and written input do not overlap there, and
their sum is our `input_tokens`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from antiphon.protocol.response import InputDetails, OutputDetails, Usage

__all__ = ["SpentReader", "first_usage", "usage_of"]

_FRESH: Final = "input_tokens"
_CACHED: Final = "cache_read_input_tokens"
_WRITTEN: Final = "cache_creation_input_tokens"
_OUTPUT: Final = "output_tokens"
_COUNTS: Final = (_FRESH, _CACHED, _WRITTEN, _OUTPUT)
# No answer costs as much; a number of more than 64 bits could not even be encoded.
_MOST: Final = 1 << 53


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


class SpentReader:
    """Reads what an answer costs. Each report of the server replaces the one before.

    Its numbers are totals so far, never additions. A field that is absent or null is as before.
    """

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._thought = 0
        self._steps: list[dict[str, int]] = []

    def take(self, usage: Mapping[str, Any]) -> bool:
        """Take a report; return whether it changed anything."""
        before = (dict(self._counts), self._thought, self._steps)
        self._counts |= _counts_in(usage)
        details = usage.get("output_tokens_details")
        if isinstance(details, dict) and _is_count(details.get("thinking_tokens")):
            self._thought = details["thinking_tokens"]
        steps = usage.get("iterations")
        if isinstance(steps, list) and steps:
            self._steps = [_counts_in(step) for step in steps if isinstance(step, dict)]
        return before != (self._counts, self._thought, self._steps)

    def usage(self) -> Usage | None:
        """Return the usage so far, or None if nothing was counted.

        With `iterations` it is their sum: the totals of the message leave out what a compaction
        or an advisor has cost.
        """
        if not self._counts and not self._steps:
            return None
        total = _sum(self._steps) if self._steps else self._counts
        cached, written = total.get(_CACHED, 0), total.get(_WRITTEN, 0)
        fresh, output = total.get(_FRESH, 0), total.get(_OUTPUT, 0)
        read = fresh + cached + written
        return Usage(
            input_tokens=read,
            input_tokens_details=InputDetails(cached_tokens=cached, cache_write_tokens=written),
            output_tokens=output,
            output_tokens_details=OutputDetails(reasoning_tokens=min(self._thought, output)),
            total_tokens=read + output,
        )

    @property
    def has_output(self) -> bool:
        """Whether the output was counted: each step of a message states it, or the message."""
        counted = self._steps or [self._counts]
        return all(_OUTPUT in step for step in counted)


def _counts_in(usage: Mapping[str, Any]) -> dict[str, int]:
    return {name: usage[name] for name in _COUNTS if _is_count(usage.get(name))}


def _is_count(value: object) -> bool:
    return type(value) is int and 0 <= value < _MOST


def _sum(steps: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total = dict.fromkeys(_COUNTS, 0)
    for step in steps:
        for name, count in step.items():
            total[name] += count
    return total
