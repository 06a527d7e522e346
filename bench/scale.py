"""How does the cost grow with the streams, the context, the conversation and the workers?

The gateway alone, one worker, durable SQLite. Streams and contexts are measured like the tests
of peers.py, the server on one core and the rest on another; a context also beside a relay that
passes the same bytes on without looking at them, which is what nobody can save. The conversation
is chain.py. Two workers against one run on all cores, which they share with upstream and readers.

    python bench/scale.py [--quick] [--only PARTS] [--json FILE] [--plot FILE]

Parts: conversation, streams, context, workers. The plot has the first three.
"""

from __future__ import annotations

import argparse
import itertools
import json
import re
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from plot import Panel, draw
from processes import HERE, Trouble, machine, scratch
from rivals import TARGETS, Launch, Place, Target
from trial import Measure, Trial, run_upstream, try_target
from upstream import LAST_WORD
from verdict import judge_file

__all__ = ["PARTS", "main"]

_STREAMS: Final = (1, 10, 50, 100, 200, 400, 700, 1000)
_FEW_STREAMS: Final = (1, 10, 100, 400)
_KIB: Final = (1, 16, 256, 1024, 4096)
_MESSAGE: Final = 1000
_TURNS: Final = 1000
_CHAIN_SECONDS: Final = 900.0
_COST: Final = re.compile(r"([\d.]+) +[\d.]+x")
"""In a row of chain.py: the CPU ms of a turn, which stand before what they are of the first."""
_SENTENCE: Final = "The keeper of the lighthouse wrote down what the night had brought. "


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
            done[streams] = one = trial.hold(streams, model=model, record=record)
            _check(one, record)
            print(
                f"{streams:7,}   {one.cpu * 1e6:14.0f}   {one.delay_p50:13.2f}"
                f"   {one.delay_p99:7.1f}   {one.first_p99:13.0f}"
                f"  {one.rate:4.0%}   {one.memory:3.0f}   {one.busy['server']:.2f}"
                f"{'' if one.keeps_up else '  does not keep up'}"
            )
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


def _relay(place: Place) -> Launch:
    words = ["relay", str(place.upstream), str(place.port)]
    return Launch([sys.executable, str(HERE / "proxy.py"), *words])


_RELAY: Final = Target("relay", _relay, path="/v1/chat/completions")


def _measure_contexts(settings: _Settings) -> list[Panel]:
    print(f"How large a context, in one stored request that is not streamed ({machine()})\n")
    with _started(TARGETS["antiphon"], _RELAY) as trials:
        taken: dict[tuple[str, int], list[float]] = {}
        for _, size, trial in itertools.product(range(settings.repeats), _KIB, trials):
            cost = _ask_with_context(trial, size, settings).cpu
            taken.setdefault((trial.target.name, size), []).append(cost)
        costs = {
            trial.target.name: {
                size: statistics.median(taken[trial.target.name, size]) for size in _KIB
            }
            for trial in trials
        }
    print("   KiB   CPU ms a request   CPU us per KiB   relay, ms   us per KiB   to relay")
    smallest = {name: points[_KIB[0]] for name, points in costs.items()}
    for size in _KIB:
        ours, theirs = costs["antiphon"][size], costs["relay"][size]
        slopes = [
            f"{(cpu - smallest[name]) / (size - _KIB[0]) * 1e6:.1f}" if size > _KIB[0] else ""
            for name, cpu in (("antiphon", ours), ("relay", theirs))
        ]
        print(
            f"{size:6,}   {ours * 1e3:16.2f}   {slopes[0]:>14}   {theirs * 1e3:9.2f}"
            f"   {slopes[1]:>10}   {ours / theirs:7.1f}x"
        )
    print("us per KiB: beyond the cost of the smallest request")
    lines = {
        name: [(float(size), cpu * 1e3) for size, cpu in points.items()]
        for name, points in costs.items()
    }
    return [Panel("Size of the context", "KiB of request", "CPU ms per request", lines)]


def _ask_with_context(trial: Trial, kib: int, settings: _Settings) -> Measure:
    said = list(_conversation(kib * 1024))
    body: dict[str, object] = {"model": "whole"}
    body |= {"input": said, "store": True} if trial.target.is_ours else {"messages": said}
    measure = trial.ask(body, readers=1, units=0, seconds=settings.seconds, marker=LAST_WORD)
    _check(measure)
    return measure


def _conversation(size: int) -> Iterator[dict[str, str]]:
    """Yield messages that are so many bytes of JSON together, about."""
    roles = itertools.cycle(("user", "assistant"))
    text = (_SENTENCE * (_MESSAGE // len(_SENTENCE) + 1))[:_MESSAGE]
    overhead = len(json.dumps({"role": "assistant", "content": ""})) + 1
    while size > overhead:
        yield {"role": next(roles), "content": text[: size - overhead]}
        size -= _MESSAGE + overhead


# The conversation.


def _measure_conversation(settings: _Settings) -> list[Panel]:
    turns = 250 if settings.quick else _TURNS
    done = subprocess.run(
        [sys.executable, str(HERE / "chain.py"), str(turns)],
        stdout=subprocess.PIPE,
        text=True,
        timeout=_CHAIN_SECONDS,
        check=False,
    )
    print(done.stdout.rstrip())
    if done.returncode:
        raise Trouble("chain.py failed")
    rows = [
        (float(line.split()[0].replace(",", "")), _COST.findall(line))
        for line in done.stdout.splitlines()
        if _COST.search(line)
    ]
    lines = {
        name: [(turn, float(costs[number])) for turn, costs in rows if len(costs) > number]
        for number, name in enumerate(("remembered", "read anew"))
    }
    return [Panel("Length of the conversation", "turn", "CPU ms per turn", lines)]


# Workers.


def _measure_workers(settings: _Settings) -> list[Panel]:
    print(f"Two workers against one, on all cores ({machine()})\n")
    tests: dict[str, Callable[[Trial], Measure]] = {
        "stored requests, 32 at once": lambda trial: trial.whole(settings.seconds, readers=32),
        "stored requests, 64 at once": lambda trial: trial.whole(settings.seconds, readers=64),
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
    return []


def _print_workers(tests: list[str], taken: Mapping[tuple[str, int], list[Measure]]) -> None:
    print(f"{'':32}{'a second':>18}{'CPU us each':>18}{'cores of the server':>22}")
    print(f"{'workers':32}{'1':>9}{'2':>9}{'1':>9}{'2':>9}{'1':>11}{'2':>11}   2 to 1")
    for test in tests:
        pair = [taken[test, workers] for workers in (1, 2)]
        rates = [statistics.median(one.units / one.seconds for one in many) for many in pair]
        costs = [statistics.median(one.cpu for one in many) * 1e6 for many in pair]
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
