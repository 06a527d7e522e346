"""What does the road through each gateway cost? Ours beside its peers, in one run.

Every target is started alone in front of the same upstream, measured and ended; rounds are
interleaved. What counts is CPU of the server's whole family of processes for one unit of work,
which other load on the machine disturbs least; delays and the start are by the clock. Every
answer is checked to be whole, and one stream of each of our tests is judged by the referee.

    python bench/peers.py [--peers DIR] [--quick] [--repeat N] [--json FILE] [--only NAMES]
                           [--doors]

nginx is found on the PATH or, unpacked from its package, in DIR/debs/root; LiteLLM, OGX and
open-responses-server in DIR/venv-litellm, DIR/venv-ogx and DIR/venv-ors, agentic-api in
DIR/venv-agentic. Who is missing is left out, and a line says how to install it. Needs Linux.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Final

from family import cores
from processes import Trouble, machine, scratch
from rivals import DOORS, TARGETS, Missing, Target
from tables import print_busy, print_notes, print_table
from trial import Measure, Stand, Trial, run_upstream, try_target
from verdict import judge_file

__all__ = ["TARGETS", "main"]

REPEATS: Final = 3
_HOLDS: Final = (200, 400, 1000)
_OPEN: Final = 1000
_FEWER: Final = (100, 50, 25)
_MAX_CPU: Final = 25.0
_SLOW: Final = 1e-4
"""CPU seconds per delta from which on a second test at full speed would show nothing new."""


class _Session:
    """All rounds: what was measured, and what there is to say about it."""

    def __init__(self, peers: Path | None, *, quick: bool, only_doors: bool) -> None:
        self._peers = peers
        self._quick = quick
        self._only_doors = only_doors
        self.samples: dict[tuple[str, str], list[Measure]] = {}
        self.notes: dict[str, str] = {}
        self.judged: list[str] = []
        self.objections: list[str] = []

    def run_round(self, targets: list[Target], stand: Stand) -> None:
        for target in targets:
            if target.name in self.notes:
                continue
            print(f"  {target.name} …", file=sys.stderr, flush=True)
            with scratch() as directory:
                try:
                    with try_target(target, stand, directory, self._peers) as trial:
                        self._measure(trial, directory)
                except Missing as missing:
                    self.notes[target.name] = f"{target.name} is not here: {missing}"
                except Trouble as trouble:
                    self.notes[target.name] = f"{target.name} was given up: {trouble}"

    def _measure(self, trial: Trial, directory: Path) -> None:
        if trial.start_seconds:
            self._note(trial, "start", _start_measure(trial))
        for test, run in self._tests(trial):
            record = directory / f"{test}.sse"
            self._note(trial, test, run(record))
            if trial.target.is_ours and record.exists():
                self._judge(trial, test, record)

    def _tests(self, trial: Trial) -> Iterator[tuple[str, Callable[[Path], Measure]]]:
        """Yield the tests; which come last depends on how the first went."""
        seconds = 1.0 if self._quick else 2.5
        yield "first", lambda record: trial.first(seconds, record=record)
        if not trial.target.is_stream_only:
            yield "whole", lambda _: trial.whole(seconds)
        yield "flat", lambda record: trial.flat(seconds, record=record)
        if self.samples[trial.target.name, "flat"][-1].cpu < _SLOW:
            yield "flood", lambda record: trial.flat(seconds, model="flood", record=record)
        if trial.target.has_doors:
            yield from _door_tests(trial, seconds)
        if not self._only_doors:
            yield from self._hold_tests(trial)

    def _hold_tests(self, trial: Trial) -> Iterator[tuple[str, Callable[[Path], Measure]]]:
        for streams in _HOLDS:
            if self._is_too_much(trial, streams):
                break
            yield self._hold(trial, streams)
        if not self._is_too_much(trial, _HOLDS[-1]):
            yield f"open_{_OPEN}", lambda record: trial.hold(_OPEN, model="slow", record=record)
        for streams in _FEWER:
            if self._kept_up(trial, _HOLDS[0]) or self._kept_up(trial, streams * 2):
                break
            yield self._hold(trial, streams)

    def _hold(self, trial: Trial, streams: int) -> tuple[str, Callable[[Path], Measure]]:
        model = "short" if self._quick else "paced"
        return f"hold_{streams}", lambda record: trial.hold(streams, model=model, record=record)

    def _is_too_much(self, trial: Trial, streams: int) -> bool:
        """Say whether so many streams would take minutes, by what the first test of them cost."""
        first = self.samples.get((trial.target.name, f"hold_{_HOLDS[0]}"))
        if first is None:
            return False
        return first[-1].units / _HOLDS[0] * streams * first[-1].cpu > _MAX_CPU

    def _kept_up(self, trial: Trial, streams: int) -> bool:
        taken = self.samples.get((trial.target.name, f"hold_{streams}"))
        return taken is not None and taken[-1].keeps_up

    def _note(self, trial: Trial, test: str, measure: Measure) -> None:
        self.samples.setdefault((trial.target.name, test), []).append(measure)

    def _judge(self, trial: Trial, test: str, record: Path) -> None:
        name = f"{trial.target.name} {test}"
        self.judged.append(name)
        self.objections += [f"{name}: {text}" for text in judge_file(record)]


def _door_tests(trial: Trial, seconds: float) -> Iterator[tuple[str, Callable[[Path], Measure]]]:
    """Yield a request and a stream through each further door."""
    for door in DOORS:
        through = trial.through(door)
        through.warm_up()
        yield f"{door}_whole", partial(_ask_whole, through, seconds)
        yield f"{door}_flat", partial(_ask_flat, through, seconds)


def _ask_whole(trial: Trial, seconds: float, _record: Path) -> Measure:
    return trial.whole(seconds)


def _ask_flat(trial: Trial, seconds: float, _record: Path) -> Measure:
    return trial.flat(seconds)


def _start_measure(trial: Trial) -> Measure:
    """Return the start as a measure: its seconds and the memory after it."""
    nothing = Measure(0, 0.0, 0.0, 0, 0, "", 1.0, *[0.0] * 6, 0, 0.0, {})
    return nothing._replace(seconds=trial.start_seconds, memory=trial.idle_memory)


def main(
    *,
    peers: Path | None = None,
    quick: bool = False,
    repeats: int | None = None,
    only: str = "",
    only_doors: bool = False,
    json_file: Path | None = None,
) -> None:
    """Measure everybody and print the tables."""
    repeats = repeats or (1 if quick else REPEATS)
    targets = _chosen(only)
    peers = peers and peers.resolve()
    print(f"CPU of the server's processes ({machine()})")
    session = _Session(peers, quick=quick, only_doors=only_doors)
    is_pinned = len(cores()) > 1
    with run_upstream() as stand:
        for number in range(repeats):
            session.run_round(targets[:: -1 if number % 2 else 1], stand)
    where = "servers on one core, upstream and readers on another" if is_pinned else "not pinned"
    print(f"medians of {repeats}; {where}\n")
    names = [target.name for target in targets if (target.name, "first") in session.samples]
    print_table(names, session.samples)
    print()
    print_notes(names, session.samples)
    for note in session.notes.values():
        print(note)
    print_busy(names, session.samples)
    _print_verdict(session)
    if json_file is not None:
        figures = [
            {"target": target, "test": test, "samples": [one._asdict() for one in taken]}
            for (target, test), taken in session.samples.items()
        ]
        json_file.write_text(json.dumps({"machine": machine(), "figures": figures}, indent=2))
    if session.objections:
        raise Trouble("the referee objects to our streams")


def _chosen(only: str) -> list[Target]:
    names = [name.strip() for name in only.split(",") if name.strip()] or list(TARGETS)
    unknown = [name for name in names if name not in TARGETS]
    if unknown:
        raise Trouble(f"there is no {unknown[0]!r}; there are {', '.join(TARGETS)}")
    return [TARGETS[name] for name in names]


def _print_verdict(session: _Session) -> None:
    if session.judged:
        print(
            f"\nthe referee judged {len(session.judged)} of our streams, one of each test: ", end=""
        )
        print("no objection" if not session.objections else "")
        for text in session.objections[:20]:
            print(f"  {text}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="What does the road through each gateway cost?")
    parser.add_argument("--peers", type=Path, metavar="DIR")
    parser.add_argument("--quick", action="store_true", help="shorter tests, one round")
    parser.add_argument("--repeat", type=int, metavar="N")
    parser.add_argument("--only", default="", metavar="NAMES", help=", ".join(TARGETS))
    parser.add_argument("--doors", action="store_true", help="no tests with many paced streams")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every sample")
    return parser.parse_args()


if __name__ == "__main__":
    given = _arguments()
    try:
        main(
            peers=given.peers,
            quick=given.quick,
            repeats=given.repeat,
            only=given.only,
            only_doors=given.doors,
            json_file=given.json,
        )
    except Trouble as trouble:
        sys.exit(f"peers.py: {trouble}")
