"""How does the cost grow with conversation, streams, context, store and workers?

The gateway alone, one worker, durable SQLite. Streams are measured like the tests of peers.py, the
server on one core and the rest on another. The contexts are those of contexts.py, the conversation
is that of chain.py, the store that of full_store.py. Two workers against one run on all cores,
which they share with upstream and readers.

    python bench/scale.py [--quick] [--only PARTS] [--json FILE] [--plot FILE]

Parts: conversation, streams, context, store, workers. Takes half an hour, two minutes with --quick.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

import chain
import contexts
import full_store
from disk import describe_disk
from plot import Panel, Point, draw
from processes import Trouble, machine, scratch
from rivals import TARGETS, Target
from trial import Measure, Trial, run_upstream, try_target
from verdict import judge_file

__all__ = ["PARTS", "main"]

_STREAMS: Final = (1, 10, 50, 100, 200, 400, 700, 1000, 1400, 2000)
_FEW_STREAMS: Final = (1, 10, 100, 400)
_TURNS: Final = 9_990  # of two items each: a gateway takes 20,000 at most
_AT_ONCE: Final = (1, 8, 32, 64)


class _Settings(NamedTuple):
    quick: bool

    @property
    def seconds(self) -> float:
        return 0.7 if self.quick else 1.5

    @property
    def repeats(self) -> int:
        return 1 if self.quick else 3


@contextmanager
def _started(*targets: Target, is_pinned: bool = True) -> Iterator[list[Trial]]:
    """Start several, of which one is asked at a time: one that waits costs next to nothing."""
    with ExitStack() as stack:
        directory = stack.enter_context(scratch())
        stand = stack.enter_context(run_upstream(is_pinned=is_pinned))
        yield [stack.enter_context(try_target(it, stand, directory)) for it in targets]


# Streams.


def _measure_streams(settings: _Settings) -> list[Panel]:
    print(f"How many streams at once, 20 tokens a second each ({machine()})\n")
    print("streams   CPU us a delta   delay p50, ms   p99, ms   first p99, ms   got   MiB   cores")
    done: dict[int, Measure] = {}
    model = "short" if settings.quick else "paced"
    with (
        scratch() as directory,
        run_upstream() as stand,
        try_target(TARGETS["antiphon"], stand, directory) as trial,
    ):
        for streams in _FEW_STREAMS if settings.quick else _STREAMS:
            record = directory / "stream.sse"
            one = trial.hold(streams, model=model, record=record)
            if one.lost:
                print(f"{streams:7,}   {one.lost:,} streams are not whole after a minute")
                break
            _check(one, record)
            done[streams] = one
            print(
                f"{streams:7,}   {one.cpu * 1e6:14.0f}   {one.delay_p50:13.2f}"
                f"   {one.delay_p99:7.1f}   {one.first_p99:13.0f}"
                f"  {one.rate:4.0%}   {one.memory:3.0f}   {one.busy['server']:.2f}"
                f"{'' if one.keeps_up else '  does not keep up'}",
                flush=True,
            )
        print(describe_disk(directory))
    lines = {
        "CPU us per delta": [(float(n), one.cpu * 1e6) for n, one in done.items()],
        "delay p50, ms": [(float(n), one.delay_p50) for n, one in done.items()],
        "delay p99, ms": [(float(n), one.delay_p99) for n, one in done.items()],
    }
    return [Panel("Streams at 20 tokens a second", "streams at once", "us, ms", lines)]


def _check(measure: Measure, record: Path | None = None) -> None:
    if measure.lost:
        raise Trouble(f"{measure.lost} answers are not whole {measure.refusal}")
    objections = judge_file(record) if record else []
    if objections:
        raise Trouble(f"the referee objects: {objections[0]}")


# Contexts.


def _measure_contexts(settings: _Settings) -> list[Panel]:
    print(f"How large a context, with 24 tools, sent whole and streamed ({machine()})\n")
    sizes = contexts.SIZES[:4] if settings.quick else contexts.SIZES
    found = contexts.measure(settings.repeats, sizes, {"now": None})
    print(f"   KiB{'CPU ms, not stored':>22}{'stored':>12}{'longest wait, ms':>20}")
    lines: dict[str, list[Point]] = {}
    for size in sizes:
        cells = []
        for way in contexts.GOALS:
            costs = found["now", way, size]
            cpu = statistics.median(one.cpu for one in costs) * 1e3
            lines.setdefault(way, []).append((float(size), cpu))
            cells.append(cpu)
        longest = statistics.median(one.longest for one in costs) * 1e3
        print(f"{size:6,}{cells[0]:22.2f}{cells[1]:12.2f}{longest:20.1f}")
    return [Panel("Size of the context", "KiB of input", "CPU ms per request", lines)]


# The conversation.


def _measure_conversation(settings: _Settings) -> list[Panel]:
    rows = chain.main(250 if settings.quick else _TURNS)
    again = [(float(row.turn), row.read_again * 1e3) for row in rows if row.read_again is not None]
    lines = {
        "remembered": [(float(row.turn), row.remembered * 1e3) for row in rows],
        "read again": again,
    }
    return [Panel("Length of the conversation", "turn", "CPU ms per turn", lines)]


# The store.


def _measure_store(settings: _Settings) -> list[Panel]:
    rows = full_store.main(10_000 if settings.quick else 1_000_000)
    kinds = rows[0].costs
    lines = {
        kind: [(float(row.responses), row.costs[kind][0] * 1e3) for row in rows] for kind in kinds
    }
    return [Panel("Size of the store", "responses stored", "CPU ms per request", lines)]


# Workers.


def _measure_workers(settings: _Settings) -> list[Panel]:
    print(f"Two workers against one, on all cores ({machine()})\n")
    tests: dict[str, Callable[[Trial], Measure]] = {
        f"stored requests, {count} at once": partial(_ask_whole, settings.seconds, count)
        for count in _AT_ONCE
    }
    tests |= {
        "deltas of 32 streams, flat out": lambda trial: trial.flat(settings.seconds, readers=32),
        "deltas of 64 streams, flat out": lambda trial: trial.flat(settings.seconds, readers=64),
    }
    taken: dict[tuple[str, int], list[Measure]] = {}
    with _started(TARGETS["antiphon"], TARGETS["antiphon-2"], is_pinned=False) as trials:
        for _, test, trial in itertools.product(range(settings.repeats), tests, trials):
            measure = tests[test](trial)
            _check(measure)
            taken.setdefault((test, trial.target.workers), []).append(measure)
    _print_workers(list(tests), taken)
    lines = {
        f"{workers} worker{'s' if workers > 1 else ''}": [
            (float(count), _cost(taken[f"stored requests, {count} at once", workers]))
            for count in _AT_ONCE
        ]
        for workers in (1, 2)
    }
    return [Panel("Workers", "stored requests at once", "CPU us per request", lines)]


def _ask_whole(seconds: float, readers: int, trial: Trial) -> Measure:
    return trial.whole(seconds, readers=readers)


def _cost(many: list[Measure]) -> float:
    return statistics.median(one.cpu for one in many) * 1e6


def _print_workers(tests: list[str], taken: Mapping[tuple[str, int], list[Measure]]) -> None:
    print(f"{'':32}{'a second':>18}{'CPU us each':>18}{'cores of the server':>22}")
    print(f"{'workers':32}{'1':>9}{'2':>9}{'1':>9}{'2':>9}{'1':>11}{'2':>11}   2 to 1")
    for test in tests:
        pair = [taken[test, workers] for workers in (1, 2)]
        rates = [statistics.median(one.units / one.seconds for one in many) for many in pair]
        costs = [_cost(many) for many in pair]
        busy = [statistics.median(one.busy["server"] for one in many) for many in pair]
        cells = [f"{rate:9,.0f}" for rate in rates]
        cells += [f"{cost:9.1f}" for cost in costs]
        cells += [f"{share:11.2f}" for share in busy]
        print(f"{test:32}{''.join(cells)}   {rates[1] / rates[0]:.2f}x")
    last = taken[tests[-1], 2][-1].busy
    print(
        f"upstream and readers, which share the cores: {last['upstream']:.2f} and"
        f" {last['readers']:.2f} in the last test; everybody else {last['others']:.2f}"
    )


PARTS: Final = {
    "conversation": _measure_conversation,
    "streams": _measure_streams,
    "context": _measure_contexts,
    "store": _measure_store,
    "workers": _measure_workers,
}


def main(
    *,
    quick: bool = False,
    only: str = "",
    json_file: Path | None = None,
    plot_file: Path | None = None,
) -> None:
    """Measure the parts, print their tables, draw the plot."""
    names = [name.strip() for name in only.split(",") if name.strip()] or list(PARTS)
    unknown = [name for name in names if name not in PARTS]
    if unknown:
        raise Trouble(f"there is no part {unknown[0]!r}; there are {', '.join(PARTS)}")
    panels: list[Panel] = []
    for number, name in enumerate(names):
        if number:
            print()
        panels += PARTS[name](_Settings(quick))
    if json_file is not None:
        figures = {"machine": machine(), "panels": [panel._asdict() for panel in panels]}
        json_file.write_text(json.dumps(figures, indent=2))
    if plot_file is not None:
        plot_file.parent.mkdir(parents=True, exist_ok=True)
        plot_file.write_text(draw(panels))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="How does the cost grow?")
    parser.add_argument("--quick", action="store_true", help="fewer points, shorter tests")
    parser.add_argument("--only", default="", metavar="PARTS", help=", ".join(PARTS))
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the points")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw them, as SVG")
    return parser.parse_args()


if __name__ == "__main__":
    given = _arguments()
    try:
        main(quick=given.quick, only=given.only, json_file=given.json, plot_file=given.plot)
    except Trouble as trouble:
        sys.exit(f"scale.py: {trouble}")
