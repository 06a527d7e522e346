"""What was measured, as a table for people and as JSON for programs.

Sizes are totals, times medians of a turn. Ratios are to the first mode that has turns, and
compare the turns that both have, so that a mode which broke off is not called cheap. The table
is two, one below the other, because one would be wider than a terminal.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from antiphon.cli.bench.run import BenchPlan, MeasuredMode, MeasuredTurn
from antiphon.cli.terminal import columns
from antiphon.version import __version__

__all__ = ["as_json", "base_of", "table"]

_NOTHING: Final = "-"
_SENT: Final = ("mode", "turns", "bytes sent", "", "items", "~tokens sent", "")
_TOOK: Final = ("mode", "input", "cached", "output", "first event", "latency", "")
_SUMS: Final = (
    "requests",
    "bytes_sent",
    "items_sent",
    "tokens_sent",
    "input_tokens",
    "cached_tokens",
    "output_tokens",
)
_MEDIANS: Final = ("first_event_seconds", "first_text_seconds", "seconds")

_Fold = Callable[[list[float]], float]


def base_of(measured: Sequence[MeasuredMode]) -> MeasuredMode:
    """Return the mode that the others are compared with."""
    return next((mode for mode in measured if mode.turns), measured[0])


def table(measured: Sequence[MeasuredMode]) -> str:
    """Return two rows for each mode, what it sent and what it took, and why others failed."""
    base = base_of(measured)
    totals = [(mode.mode, _totals(mode, base)) for mode in measured]
    failures = [f"{mode.mode} failed in {mode.failure}" for mode in measured if mode.failure]
    blocks = [
        columns([_SENT, *(_sent(name, sums) for name, sums in totals)], is_numeric=True),
        columns([_TOOK, *(_took(name, sums) for name, sums in totals)], is_numeric=True),
        failures,
    ]
    return "\n\n".join("\n".join(block) for block in blocks if block)


def as_json(
    plan: BenchPlan, urls: dict[str, str], measured: Sequence[MeasuredMode], *, is_scripted: bool
) -> bytes:
    """Return everything: what was asked for, the totals and every turn."""
    report: dict[str, Any] = {
        "antiphon": __version__,
        "model": plan.model,
        "turns": plan.turns,
        "prompt_words": plan.prompt_words,
        "prompts": plan.prompts or None,
        "max_output_tokens": plan.max_output_tokens,
        "is_scripted": is_scripted,
        "modes": [
            {
                "mode": mode.mode,
                "base_url": urls[mode.mode],
                "failure": mode.failure,
                "totals": _totals(mode, base_of(measured)),
                "turns": mode.turns,
            }
            for mode in measured
        ],
    }
    return msgspec.json.format(msgspec.json.encode(report)) + b"\n"


def _totals(mode: MeasuredMode, base: MeasuredMode) -> dict[str, Any]:
    return {
        "turns": len(mode.turns),
        **{name: _fold(sum, mode.turns, name) for name in _SUMS},
        "is_counted": all(turn.is_counted for turn in mode.turns),
        **{name: _fold(statistics.median, mode.turns, name) for name in _MEDIANS},
        "bytes_ratio": _ratio(sum, mode, base, "bytes_sent"),
        "tokens_ratio": _ratio(sum, mode, base, "tokens_sent"),
        "seconds_ratio": _ratio(statistics.median, mode, base, "seconds"),
    }


def _sent(mode: str, totals: dict[str, Any]) -> tuple[str, ...]:
    return (
        mode,
        str(totals["turns"]),
        _count(totals["bytes_sent"]),
        _times(totals["bytes_ratio"]),
        _count(totals["items_sent"]),
        _count(totals["tokens_sent"], "~"),
        _times(totals["tokens_ratio"]),
    )


def _took(mode: str, totals: dict[str, Any]) -> tuple[str, ...]:
    mark = "" if totals["is_counted"] else "~"
    return (
        mode,
        _count(totals["input_tokens"], mark),
        _count(totals["cached_tokens"], mark),
        _count(totals["output_tokens"], mark),
        _time(totals["first_event_seconds"]),
        _time(totals["seconds"]),
        _times(totals["seconds_ratio"]),
    )


def _fold(fold: _Fold, turns: Sequence[MeasuredTurn], name: str) -> float | None:
    """Return the sum or the median of a measurement, over the turns that have it."""
    known = [value for turn in turns if (value := getattr(turn, name)) is not None]
    return fold(known) if known else None


def _ratio(fold: _Fold, mode: MeasuredMode, base: MeasuredMode, name: str) -> float | None:
    """Return how often the base fits into the mode, over the turns that both have."""
    both = min(len(mode.turns), len(base.turns))
    ours, theirs = (_fold(fold, one.turns[:both], name) for one in (mode, base))
    return ours / theirs if ours is not None and theirs is not None else None


def _count(value: float | None, mark: str = "") -> str:
    return _NOTHING if value is None else f"{mark}{value:,.0f}"


def _times(ratio: float | None) -> str:
    return _NOTHING if ratio is None else f"{ratio:.2f}x"


def _time(seconds: float | None) -> str:
    if seconds is None:
        return _NOTHING
    return f"{seconds * 1e3:.1f} ms" if seconds < 1 else f"{seconds:.2f} s"
