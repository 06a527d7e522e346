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
from antiphon.version import __version__

__all__ = ["as_json", "base_of", "table"]

_NOTHING: Final = "-"
_SENT: Final = ("mode", "turns", "bytes sent", "", "items", "~tokens sent", "")
_TOOK: Final = ("mode", "input", "cached", "output", "first event", "latency", "")


def base_of(measured: Sequence[MeasuredMode]) -> MeasuredMode:
    """Return the mode that the others are compared with."""
    return next((mode for mode in measured if mode.turns), measured[0])


def table(measured: Sequence[MeasuredMode]) -> str:
    """Return two rows for each mode, what it sent and what it took, and why others failed."""
    base = base_of(measured)
    totals = [(mode.mode, _totals(mode, base)) for mode in measured]
    failures = [f"{mode.mode} failed in {mode.failure}" for mode in measured if mode.failure]
    blocks = [
        _aligned([_SENT, *(_sent(name, sums) for name, sums in totals)]),
        _aligned([_TOOK, *(_took(name, sums) for name, sums in totals)]),
        failures,
    ]
    return "\n\n".join("\n".join(block) for block in blocks if block)


def _aligned(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if number else cell.ljust(width)
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


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
        "requests": _sum(mode.turns, lambda turn: turn.requests),
        "bytes_sent": _sum(mode.turns, _bytes),
        "items_sent": _sum(mode.turns, lambda turn: turn.items_sent),
        "tokens_sent": _sum(mode.turns, _tokens),
        "input_tokens": _sum(mode.turns, lambda turn: turn.input_tokens),
        "cached_tokens": _sum(mode.turns, lambda turn: turn.cached_tokens),
        "output_tokens": _sum(mode.turns, lambda turn: turn.output_tokens),
        "is_counted": all(turn.is_counted for turn in mode.turns),
        "first_event_seconds": _median(mode.turns, lambda turn: turn.first_event_seconds),
        "first_text_seconds": _median(mode.turns, lambda turn: turn.first_text_seconds),
        "seconds": _median(mode.turns, _seconds),
        "bytes_ratio": _ratio(mode, base, _bytes, sum),
        "tokens_ratio": _ratio(mode, base, _tokens, sum),
        "seconds_ratio": _ratio(mode, base, _seconds, statistics.median),
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


def _bytes(turn: MeasuredTurn) -> float:
    return turn.bytes_sent


def _tokens(turn: MeasuredTurn) -> float:
    return turn.tokens_sent


def _seconds(turn: MeasuredTurn) -> float:
    return turn.seconds


def _known(
    turns: Sequence[MeasuredTurn], value: Callable[[MeasuredTurn], float | None]
) -> list[float]:
    return [found for turn in turns if (found := value(turn)) is not None]


def _sum(
    turns: Sequence[MeasuredTurn], value: Callable[[MeasuredTurn], float | None]
) -> float | None:
    known = _known(turns, value)
    return sum(known) if known else None


def _median(
    turns: Sequence[MeasuredTurn], value: Callable[[MeasuredTurn], float | None]
) -> float | None:
    known = _known(turns, value)
    return statistics.median(known) if known else None


def _ratio(
    mode: MeasuredMode,
    base: MeasuredMode,
    value: Callable[[MeasuredTurn], float],
    fold: Callable[[list[float]], float],
) -> float | None:
    """Return how often the base fits into the mode, over the turns that both have."""
    both = min(len(mode.turns), len(base.turns))
    if not both:
        return None
    ours, theirs = (fold([value(turn) for turn in one.turns[:both]]) for one in (mode, base))
    return ours / theirs


def _count(value: float | None, mark: str = "") -> str:
    return _NOTHING if value is None else f"{mark}{value:,.0f}"


def _times(ratio: float | None) -> str:
    return _NOTHING if ratio is None else f"{ratio:.2f}x"


def _time(seconds: float | None) -> str:
    if seconds is None:
        return _NOTHING
    return f"{seconds * 1e3:.1f} ms" if seconds < 1 else f"{seconds:.2f} s"
