"""How long do stored requests wait when two workers share one SQLite file?

Each round asks one worker and two workers the same: so many requests at once, not streamed,
stored durably. Printed are the median and the 99th percentile of the time to the whole answer,
and the answers a second. With `--before TREE` (a checkout of another version) that version is
measured in the same run, in turn with this one, so that both see the same machine.

    python bench/workers.py [--at-once 128] [--seconds 4] [--rounds 3] [--before TREE]
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Final, NamedTuple

from disk import describe_disk
from processes import HERE, Trouble, machine, scratch
from rivals import Target, antiphon
from trial import Measure, Trial, run_upstream, try_target

__all__ = ["main"]

_WORKERS: Final = (1, 2)


class _Row(NamedTuple):
    version: str
    workers: int


def _targets(before: Path | None) -> dict[_Row, Target]:
    trees = {} if before is None else {"before": before.resolve()}
    return {
        _Row(version, workers): Target(
            f"{version}-{workers}",
            antiphon(workers, tree / "src"),
            is_ours=True,
            workers=workers,
            store=True,
        )
        for version, tree in {**trees, "now": HERE.parent}.items()
        for workers in _WORKERS
    }


def main(*, at_once: int, seconds: float, rounds: int, before: Path | None) -> None:
    """Measure all versions in turn and print the table."""
    print(f"Two workers against one on one SQLite file, {at_once} requests at once ({machine()})\n")
    taken: dict[_Row, list[Measure]] = {}
    with ExitStack() as stack:
        directory = stack.enter_context(scratch())
        stand = stack.enter_context(run_upstream(is_pinned=False))
        trials: dict[_Row, Trial] = {
            row: stack.enter_context(try_target(target, stand, directory))
            for row, target in _targets(before).items()
        }
        for _, (row, trial) in itertools.product(range(rounds), trials.items()):
            measure = trial.whole(seconds, readers=at_once)
            if measure.lost:
                raise Trouble(f"{measure.lost} answers are not whole {measure.refusal}")
            taken.setdefault(row, []).append(measure)
        disk = describe_disk(directory)
    _print(taken)
    print(disk)


def _print(taken: dict[_Row, list[Measure]]) -> None:
    print("version   workers   p50, ms   p99, ms   worst p99   a second   to one worker")
    for row, many in taken.items():
        p99s = [one.answer_p99 for one in many]
        p50 = statistics.median(one.answer_p50 for one in many)
        rate = _rate(many)
        alone = _rate(taken[row._replace(workers=1)])
        print(
            f"{row.version:<9} {row.workers:7}   {p50:7.0f}   {statistics.median(p99s):7.0f}"
            f"   {max(p99s):9.0f}   {rate:8,.0f}   {rate / alone:12.2f}x"
        )


def _rate(many: list[Measure]) -> float:
    return statistics.median(one.units / one.seconds for one in many)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="How long do requests of two workers wait?")
    parser.add_argument("--at-once", type=int, default=128, help="requests at the same time")
    parser.add_argument("--seconds", type=float, default=4.0, help="how long each round takes")
    parser.add_argument("--rounds", type=int, default=3, help="how often each is asked")
    parser.add_argument("--before", type=Path, metavar="TREE", help="a checkout to compare with")
    return parser.parse_args()


if __name__ == "__main__":
    given = _arguments()
    try:
        main(
            at_once=given.at_once,
            seconds=given.seconds,
            rounds=given.rounds,
            before=given.before,
        )
    except Trouble as trouble:
        sys.exit(f"workers.py: {trouble}")
