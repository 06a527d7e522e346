"""The figures of all targets side by side, as text.

A cell is the median of the repeats. Goals and ratios are ours, against the peers (`OURS`).
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from rivals import DOORS
from trial import Measure

__all__ = ["Samples", "print_busy", "print_notes", "print_table"]

OURS: Final = {"nginx": "antiphon", "litellm": "antiphon", "agentic": "antiphon-native"}
"""Which of ours a peer is compared with: the one that asks the upstream as the peer does."""
Samples = Mapping[tuple[str, str], Sequence[Measure]]
"""The measures of each repeat, by target and test."""

_WAITED: Final = 0.8
_CROWDED: Final = 0.2


class _Row(NamedTuple):
    label: str
    test: str
    read: Callable[[Measure], float]
    goal: str = ""
    is_cost: bool = True
    """Whether less is better, so that a ratio says something."""
    form: str = ".3g"
    is_added: bool = False
    """Whether the direct road's figure is taken off first."""


def _scaled(name: str, scale: float = 1.0) -> Callable[[Measure], float]:
    return lambda measure: float(getattr(measure, name)) * scale


_CPU_US: Final = _scaled("cpu", 1e6)
_MEMORY: Final = _scaled("memory")


def _hold_rows(streams: int, goals: Mapping[str, str]) -> Iterable[_Row]:
    test = f"hold_{streams}"
    head = f"{streams:,} streams, 20 tokens/s:"
    yield _Row(f"{head} CPU us per delta", test, _CPU_US, goals.get("cpu", ""))
    yield _Row("  first event, p99, ms", test, _scaled("first_p99"), form=".0f")
    yield _Row("  delay of an event, p50, ms", test, _scaled("delay_p50"), form=".2f")
    yield _Row(
        "  delay of an event, p99, ms", test, _scaled("delay_p99"), goals.get("p99", ""), form=".1f"
    )
    yield _Row("  delivered of the rate, %", test, _scaled("rate", 100), "100", is_cost=False)
    yield _Row("  not whole after 60 s", test, _scaled("lost"), "0", is_cost=False, form=".0f")
    yield _Row("  memory, MiB", test, _scaled("memory"), form=".0f")


def _door_rows(door: str) -> Iterable[_Row]:
    yield _Row(f"{DOORS[door]}: CPU ms per request", f"{door}_whole", _scaled("cpu", 1e3))
    yield _Row("  flat out, 16 streams: CPU us per delta", f"{door}_flat", _CPU_US)
    for test in ("whole", "flat"):
        label = f"  not whole, {'requests' if test == 'whole' else 'streams'}"
        yield _Row(label, f"{door}_{test}", _scaled("lost"), "0", is_cost=False, form=".0f")


_ROWS: Final = (
    _Row("start to first answer, s", "start", _scaled("seconds"), "<= 1", form=".2f"),
    _Row("memory, idle, MiB", "start", _scaled("memory"), "<= 60", form=".0f"),
    _Row("first event, p50, ms", "first", _scaled("first_p50"), form=".2f"),
    _Row("  more than direct", "first", _scaled("first_p50"), "<= 1", is_added=True, form=".2f"),
    _Row("CPU ms per request, 32 at once", "whole", _scaled("cpu", 1e3), "<= 0.6"),
    _Row("flat out, 16 streams: CPU us per delta", "flat", _CPU_US, "<= 12"),
    _Row("  the same, 16 tokens to a send", "flood", _CPU_US),
    *(row for door in DOORS for row in _door_rows(door)),
    *_hold_rows(200, {"cpu": "<= 120"}),
    *_hold_rows(400, {"p99": "<= 50"}),
    *_hold_rows(1000, {}),
    _Row("1,000 streams, 2 tokens/s: memory, MiB", "open_1000", _MEMORY, "<= 160", form=".0f"),
    _Row("  open at once", "open_1000", _scaled("at_once"), "1000", is_cost=False, form=".0f"),
    _Row("  not whole after 60 s", "open_1000", _scaled("lost"), "0", is_cost=False, form=".0f"),
)


def print_table(names: Sequence[str], samples: Samples) -> None:
    """Print the figures, the goals, and how many times more than ours the peers take."""
    bases = [name for name in OURS if name in names and OURS[name] in names]
    width = max(11, *(len(name) + 1 for name in names))
    head = "".join(f"{name:>{width}}" for name in names)
    ratios = "".join(f"{f'to {name}':>12}" for name in bases)
    print(f"{'':46}{head}{ratios}  goal")
    for row in _ROWS:
        values = {name: _median(row, samples.get((name, row.test), ())) for name in names}
        if row.is_added:
            values = _beyond_direct(values)
        if all(value is None for value in values.values()):
            continue
        cells = "".join(f"{_shown(row, name, values[name]):>{width}}" for name in names)
        shown = "".join(f"{_ratio(row, values[OURS[base]], values[base]):>12}" for base in bases)
        print(f"{row.label:46}{cells}{shown}  {row.goal}".rstrip())


def _beyond_direct(values: Mapping[str, float | None]) -> dict[str, float | None]:
    base = values.get("direct")
    return {
        name: None if value is None or base is None or name == "direct" else value - base
        for name, value in values.items()
    }


def _median(row: _Row, taken: Sequence[Measure]) -> float | None:
    return statistics.median(map(row.read, taken)) if taken else None


def _shown(row: _Row, name: str, value: float | None) -> str:
    if value is None or (name == "direct" and not value and row.is_cost):
        return "-"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:{row.form}}"


def _ratio(row: _Row, ours: float | None, theirs: float | None) -> str:
    """Return ours in theirs: 5x is five times as much, 1/90 a ninetieth."""
    if not row.is_cost or not ours or not theirs:
        return ""
    ratio = ours / theirs
    return f"{ratio:.1f}x" if ratio >= 1 else f"1/{1 / ratio:.{1 if ratio > 0.1 else 0}f}"


def print_busy(names: Sequence[str], samples: Samples) -> None:
    """Say who was busy in each test, and which servers waited for the others."""
    print("\nwho was busy, in cores: server, upstream, readers; everybody else on the machine")
    tests = list(dict.fromkeys(test for _, test in samples if test != "start"))
    for test in tests:
        cells = []
        for name in names:
            taken = samples.get((name, test), ())
            if taken:
                who = ("server", "upstream", "readers", "others")
                values = [statistics.median(one.busy[key] for one in taken) for key in who]
                mark = "*" if test in ("flat", "flood") and 0 < values[0] < _WAITED else ""
                cells.append(
                    f"{name}{mark} {values[0]:.2f} {values[1]:.2f} {values[2]:.2f};{values[3]:.2f}"
                )
        print(f"{test:15}{'  '.join(cells)}")
    print(
        f"* was busy for less than {_WAITED:.0%} of the time although it was asked for all it can:"
        " the upstream or\n  the readers were the limit, or others had the core"
    )
    others = statistics.mean(
        one.busy["others"] for taken in samples.values() for one in taken if one.busy
    )
    if others > _CROWDED:
        print(
            f"others used {others:.2f} cores meanwhile: costs are too high, by a quarter or more,"
            "\n  and delays are theirs as much as anybody's; run this again on an idle machine"
        )


def print_notes(names: Sequence[str], samples: Samples) -> None:
    """Say who could not keep up, and with how many it could."""
    for name in names:
        holds = {
            int(test.removeprefix("hold_")): taken
            for (target, test), taken in sorted(samples.items())
            if target == name and test.startswith("hold_")
        }
        kept = [streams for streams, taken in holds.items() if all(one.keeps_up for one in taken)]
        failed = sorted(set(holds) - set(kept))
        if not failed:
            continue
        worst = holds[failed[0]]
        rate = statistics.median(one.rate for one in worst)
        delay = statistics.median(one.delay_p99 for one in worst)
        first = statistics.median(one.first_p99 for one in worst)
        print(
            f"{name} cannot keep up with {failed[0]:,} streams: it delivers {rate:.0%} of the rate,"
            f" p99 delay {delay:,.0f} ms,"
            f" p99 of the first event {first:,.0f} ms, {sum(one.lost for one in worst)} not whole;"
            + (_kept(max(kept), holds[max(kept)]) if kept else " nor with fewer")
        )


def _kept(streams: int, taken: Sequence[Measure]) -> str:
    cpu = statistics.median(one.cpu for one in taken) * 1e6
    delay = statistics.median(one.delay_p99 for one in taken)
    return (
        f" with {streams:,} it does, at {cpu:,.0f} us per delta and a p99 delay of {delay:.0f} ms"
    )
