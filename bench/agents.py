"""What do agents cost? Every figure that an agent's work depends on, with its goal, in one run.

An agent sends its whole context with 24 tools, streams its answers beside many others, through
whichever door its client speaks. The gateway of this tree is measured in turn with that of another
checkout (`--before`) and with its peers, all in front of the same upstream: servers on one core,
upstream and readers on another. All servers run all the time, and one is asked at a time. What is
measured and how is that of peers.py; one stream of each of our tests is judged by the referee.

    python bench/agents.py [--peers DIR] [--before TREE] [--rounds 3] [--quick] [--only PARTS]
                           [--json FILE]

Parts: context, token, many, request, first, native, workers, conversation. A row has the medians of
the rounds, the median of the ratios of each round's pair, and in `beside` the peers with what ours
is of theirs. peers.py says how peers are installed. Takes a quarter of an hour, four minutes with
--quick, which has one round and fewer sizes.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import itertools
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import chain
import msgspec
from contexts import agent_history
from disk import describe_disk
from family import cores
from processes import HERE, Trouble, machine, scratch
from readers import TURN
from rivals import TARGETS, Missing, Target, antiphon
from stamped import TOKENS
from trial import Measure, Stand, Trial, run_upstream, try_target
from verdict import judge_file

__all__ = ["PARTS", "main"]

_TOOLS: Final = 24
_KIB: Final = (256, 1024, 4096)
_STREAMS: Final = 200
_MANY: Final = 1000
_KNEE: Final = (200, 400, 600, 800, 1000, 1250, 1500, 1750, 2000)
_DELIVERED: Final = 0.98
_TURNS: Final = 1000
_CROWDED: Final = 0.2
_OLD, _NEW = "before", "now"
_NATIVE: Final = "-native"


class Figure(NamedTuple):
    """A row of the table: the samples of each target, in the order of the rounds."""

    label: str
    samples: Mapping[str, Sequence[float]]
    goal: str = ""
    is_met: Callable[[Mapping[str, float]], bool] | None = None
    form: str = ".3g"

    @property
    def medians(self) -> dict[str, float]:
        return {name: statistics.median(taken) for name, taken in self.samples.items() if taken}


def _at_most(limit: float) -> Callable[[Mapping[str, float]], bool]:
    return lambda found: found[_NEW] <= limit


def _at_least(limit: float) -> Callable[[Mapping[str, float]], bool]:
    return lambda found: found[_NEW] >= limit


class _Samples:
    """What was measured, by test and target."""

    def __init__(self) -> None:
        self._taken: dict[str, dict[str, list[float]]] = {}

    def add(self, test: str, target: str, value: float) -> None:
        self._taken.setdefault(test, {}).setdefault(target, []).append(value)

    def __getitem__(self, test: str) -> dict[str, list[float]]:
        return self._taken.get(test, {})

    def __contains__(self, test: str) -> bool:
        return test in self._taken


class _Bench:
    """The servers that run, and what was noted about them."""

    def __init__(
        self, stand: Stand, directory: Path, peers: Path | None, rounds: int, quick: bool
    ) -> None:
        self._stand = stand
        self._directory = directory
        self._peers = peers
        self.quick = quick
        self.rounds = rounds
        self.trials: dict[str, Trial] = {}
        self.notes: list[str] = []
        self.others: list[float] = []
        self.judged = 0

    @property
    def seconds(self) -> float:
        return 0.7 if self.quick else 2.0

    @property
    def model(self) -> str:
        return "short" if self.quick else "paced"

    def start(self, stack: ExitStack, target: Target) -> None:
        """Start a target, or note why it is not there."""
        _report(f"starting {target.name}")
        try:
            trial = try_target(target, self._stand, self._directory, self._peers)
            self.trials[target.name] = stack.enter_context(trial)
        except Missing as missing:
            self.notes.append(f"{target.name} is not here: {missing}")
        except Trouble as trouble:
            self.notes.append(f"{target.name} was given up: {trouble}")

    def turns(self, *names: str, once: Sequence[str] = ()) -> Iterator[tuple[str, Trial]]:
        """Yield the targets of each round, forwards and backwards; some in the first only."""
        for number in range(self.rounds):
            chosen = [*names, *(() if number else once)]
            for name in chosen[:: -1 if number % 2 else 1]:
                if name in self.trials:
                    yield name, self.trials[name]

    def check(self, name: str, measure: Measure, record: Path | None = None) -> Measure | None:
        """Return the measure of a test, or None if a peer did not answer.

        Raise Trouble if our answers are not whole and right.
        """
        self.others.append(measure.busy["others"])
        is_ours = name.removesuffix(_NATIVE).partition("-")[0] in (_OLD, _NEW)
        if measure.lost:
            text = f"{name}: {measure.lost} answers are not whole {measure.refusal[-200:]!r}"
            if is_ours:
                raise Trouble(text)
            self.notes.append(text)
            return None
        if record is not None and is_ours:
            self.judged += 1
            objections = judge_file(record)
            if objections:
                raise Trouble(f"{name}: the referee objects: {objections[0]}")
        return measure

    def record(self, test: str) -> Path:
        return self._directory / f"{test}.sse"


def _report(text: str) -> None:
    print(f"  {time.strftime('%H:%M:%S')} {text} …", file=sys.stderr, flush=True)


# A context that is sent whole.


def _context_body(target: Target, kib: int, *, is_stored: bool) -> dict[str, object]:
    body = target._replace(tools=_TOOLS, store=is_stored).body("brief", is_stream=True)
    last = [{"type": "input_text", "text": f"Go on with {TURN}."}]
    items = agent_history(kib * 1024)[:-1]
    items.append({"type": "message", "role": "user", "content": last})
    return body | {"input": items}


def _ask_context(bench: _Bench, name: str, trial: Trial, kib: int, is_stored: bool) -> float | None:
    """Return the CPU us for each KiB of a request, or None if a peer does not take it."""
    body = _context_body(trial.target, kib, is_stored=is_stored)
    size = len(json.dumps(body, separators=(",", ":"))) / 1024
    seconds = bench.seconds
    measure = trial.ask(body, readers=1, units=TOKENS["brief"], seconds=seconds, limit=45.0)
    if bench.check(name, measure) is None:
        return None
    return measure.cpu * TOKENS["brief"] * 1e6 / size


def _plain(kib: int) -> float:
    """Return the CPU us for each KiB of decoding a request with msgspec and encoding it."""
    data = json.dumps(_context_body(TARGETS["antiphon"], kib, is_stored=False)).encode()
    taken = []
    for _ in range(5):
        began = time.process_time()
        msgspec.json.encode(msgspec.json.decode(data))
        taken.append(time.process_time() - began)
    return min(taken) * 1e6 / (len(data) / 1024)


def _contexts(bench: _Bench, ours: Sequence[str], once: Sequence[str], text: str) -> list[Figure]:
    figures = []
    sizes = _KIB[:1] if bench.quick else _KIB
    for is_stored, kib in itertools.product((False, True), sizes):
        how = "stored" if is_stored else "not stored"
        _report(f"context of {kib:,} KiB, {how}")
        samples: dict[str, list[float]] = {}
        for name, trial in bench.turns(*ours, once=once):
            if name == "litellm" and is_stored:
                continue
            cost = _ask_context(bench, name, trial, kib, is_stored)
            if cost is not None:
                samples.setdefault(name.removesuffix(_NATIVE), []).append(cost)
        samples["msgspec"] = [_plain(kib)]
        limit = 18.0 if is_stored else 10.0
        label = f"{text}context of {kib:,} KiB, 24 tools, {how}: CPU us per KiB"
        figures.append(Figure(label, samples, f"<= {limit:.0f}", _at_most(limit)))
    return figures


def _measure_context(bench: _Bench) -> list[Figure]:
    return _contexts(bench, (_OLD, _NEW), ("litellm", "ogx"), "")


# Streams.


def _hold(bench: _Bench, name: str, trial: Trial, target: Target, streams: int) -> Measure | None:
    record = bench.record(f"{name}-{streams}")
    record.unlink(missing_ok=True)
    asked = trial.asked_as(target)
    measure = asked.hold(streams, model=bench.model, record=record)
    is_judged = target.path.endswith("/responses")
    return bench.check(name, measure, record if is_judged else None)


_DOORS: Final[Mapping[str, Callable[[Target], Target]]] = {
    "SSE": lambda target: target,
    "WebSocket": lambda target: target._replace(is_socket=True),
    "chat door": lambda target: target.through("chat", store=True),
    "Messages door": lambda target: target.through("messages", store=True),
}


def _measure_token(bench: _Bench) -> list[Figure]:
    taken = _Samples()
    for name, trial in bench.turns("nginx", _OLD, _NEW):
        doors = _DOORS if name != "nginx" else {"nginx": lambda target: target}
        for door, change in doors.items():
            _report(f"{_STREAMS} streams, {name}, {door}")
            target = change(trial.target._replace(tools=_TOOLS))
            measure = _hold(bench, name, trial, target, _STREAMS)
            if measure is None:
                continue
            taken.add(door, name, measure.cpu * 1e6)
            taken.add(f"{door} p50", name, measure.delay_p50)
            taken.add(f"{door} p99", name, measure.delay_p99)
    head = f"{_STREAMS} streams, 24 tools"
    figures = [
        Figure(
            f"{head}, {door}: CPU us per token",
            {**taken[door], "nginx": taken["nginx"].get("nginx", [])},
            "<= 100, <= 3.6 nginx",
            lambda found: found[_NEW] <= 100 and found[_NEW] <= 3.6 * found.get("nginx", 1e9),
        )
        for door in _DOORS
    ]
    for quantile, limit in (("p50", 5.0), ("p99", 15.0)):
        samples = dict(taken[f"SSE {quantile}"])
        samples["nginx"] = taken[f"nginx {quantile}"].get("nginx", [])
        label = f"{head}, SSE: delay of an event, {quantile}, ms"
        figures.append(Figure(label, samples, f"<= {limit:.0f}", _at_most(limit)))
    return figures


def _measure_many(bench: _Bench) -> list[Figure]:
    taken = _Samples()
    for name, trial in bench.turns("nginx", _OLD, _NEW):
        _report(f"{_MANY:,} streams, {name}")
        measure = _hold(bench, name, trial, trial.target, _MANY)
        if measure is None:
            continue
        taken.add("cpu", name, measure.cpu * 1e6)
        taken.add("rate", name, measure.rate * 100)
    knees = {name: [_knee(bench, name)] for name in (_OLD, _NEW) if name in bench.trials}
    head = f"{_MANY:,} streams, 20 tokens/s"
    return [
        Figure(f"{head}: CPU us per token", taken["cpu"], "<= 45", _at_most(45.0)),
        Figure(f"{head}: delivered, %", taken["rate"], ">= 98", _at_least(98.0)),
        Figure("the knee: most streams with 98 % delivered", knees, form=",.0f"),
    ]


def _knee(bench: _Bench, name: str) -> float:
    """Return the most streams that get nearly all of their tokens on time."""
    most = 0
    for streams in _KNEE[1::2] if bench.quick else _KNEE:
        _report(f"{streams:,} streams, {name}, where is the knee")
        measure = _hold(bench, name, bench.trials[name], bench.trials[name].target, streams)
        if measure is None or measure.rate < _DELIVERED:
            break
        most = streams
    return float(most)


# Requests.


def _measure_request(bench: _Bench) -> list[Figure]:
    samples: dict[str, list[float]] = {}
    for name, trial in bench.turns("nginx", _OLD, _NEW, once=("litellm", "ogx")):
        _report(f"stored requests, {name}")
        measure = bench.check(name, trial.whole(bench.seconds))
        if measure is not None:
            samples.setdefault(name, []).append(measure.cpu * 1e3)
    label = "stored request, 32 at once: CPU ms"
    return [Figure(label, samples, "<= 0.30", _at_most(0.30))]


def _measure_first(bench: _Bench) -> list[Figure]:
    taken: dict[str, list[float]] = {}
    for name, trial in bench.turns("direct", "nginx", _OLD, _NEW, once=("litellm", "ogx")):
        _report(f"first event, {name}")
        asked = trial.asked_as(trial.target._replace(tools=_TOOLS))
        record = bench.record(f"{name}-first") if name in (_OLD, _NEW) else None
        measure = bench.check(name, asked.first(bench.seconds, record=record), record)
        if measure is not None:
            taken.setdefault(name, []).append(measure.first_p50)
    direct = statistics.median(taken.pop("direct"))
    samples = {name: [value - direct for value in values] for name, values in taken.items()}
    label = "first event, 24 tools, stored: p50 beyond direct, ms"
    return [Figure(label, samples, "<= 0.8", _at_most(0.8), ".2f")]


# In front of a Responses server.


def _measure_native(bench: _Bench) -> list[Figure]:
    taken = _Samples()
    ours = (_OLD + _NATIVE, _NEW + _NATIVE)
    for name, trial in bench.turns("nginx", *ours, "agentic"):
        short = name.removesuffix(_NATIVE)
        target = trial.target._replace(path="/v1/responses")
        tools = target._replace(tools=_TOOLS)
        _report(f"in front of a Responses server, {name}")
        whole = bench.check(name, trial.asked_as(target).whole(bench.seconds))
        first = bench.check(name, trial.asked_as(tools).first(bench.seconds))
        held = _hold(bench, name, trial, tools, _STREAMS)
        if whole is not None:
            taken.add("request", short, whole.cpu * 1e3)
        if first is not None:
            taken.add("first", short, first.first_p50)
        if held is not None:
            taken.add("token", short, held.cpu * 1e6)
            taken.add("p50", short, held.delay_p50)
            taken.add("p99", short, held.delay_p99)
    head = "Responses upstream:"
    rows = [
        Figure(f"{head} stored request, 32 at once: CPU ms", taken["request"]),
        Figure(f"{head} first event, 24 tools, p50, ms", taken["first"], form=".2f"),
        Figure(f"{head} {_STREAMS} streams, 24 tools: CPU us per token", taken["token"]),
        Figure(f"{head} delay of an event, p50, ms", taken["p50"]),
        Figure(f"{head} delay of an event, p99, ms", taken["p99"]),
    ]
    return rows + [
        figure._replace(goal="", is_met=None)
        for figure in _contexts(bench, (*ours, "agentic"), (), f"{head} ")
    ]


# Workers, on all cores.


class _Shared(NamedTuple):
    """What a test of a server with one or two workers showed."""

    rate: float
    cpu: float
    left: float
    """Cores that upstream, readers and everybody else did not use."""


def _share(measure: Measure) -> _Shared:
    busy = measure.busy
    used = busy["upstream"] + busy["readers"] + busy["others"]
    rate = measure.units / measure.seconds
    return _Shared(rate, measure.cpu, max(0.01, len(cores()) - used))


def _measure_workers(bench: _Bench) -> list[Figure]:
    tests: dict[str, Callable[[Trial], Measure]] = {
        "stored requests, 32 at once": lambda trial: trial.whole(bench.seconds, readers=32),
        "32 streams, flat out": lambda trial: trial.flat(bench.seconds, readers=32),
    }
    names = [f"{name}-{count}" for name in _trees(bench) for count in (1, 2)]
    taken: dict[tuple[str, str], list[_Shared]] = {}
    for name, trial in bench.turns(*names):
        for test, run in tests.items():
            _report(f"workers, {name}, {test}")
            measure = bench.check(name, run(trial))
            assert measure is not None, "ours are whole or raise"
            taken.setdefault((test, name), []).append(_share(measure))
    figures = []
    for test in tests:
        pairs = {
            tree: list(zip(taken[test, f"{tree}-1"], taken[test, f"{tree}-2"], strict=True))
            for tree in _trees(bench)
        }
        head = f"two workers, {test}"
        costs = {tree: [two.cpu / one.cpu for one, two in many] for tree, many in pairs.items()}
        rates = {tree: [two.rate / one.rate for one, two in many] for tree, many in pairs.items()}
        # What the free cores would do if each unit cost what it costs one worker.
        shares = {
            tree: [two.rate * one.cpu / two.left for one, two in many]
            for tree, many in pairs.items()
        }
        figures += [
            Figure(f"{head}: CPU of each, to one", costs, "<= 1.10", _at_most(1.10)),
            Figure(f"{head}: throughput, to one", rates),
            Figure(f"{head}: of what free cores can do", shares, ">= 0.9", _at_least(0.9)),
        ]
    return figures


def _trees(bench: _Bench) -> list[str]:
    return [name for name in (_OLD, _NEW) if f"{name}-1" in bench.trials]


# The conversation.


def _measure_conversation(trees: Mapping[str, Path], *, quick: bool, rounds: int) -> list[Figure]:
    turns = 100 if quick else _TURNS
    taken = _Samples()
    for _, (name, tree) in itertools.product(range(rounds), trees.items()):
        _report(f"a conversation of {turns:,} turns, {name}")
        with contextlib.redirect_stdout(io.StringIO()):
            last = chain.main(turns, tree)[-1]
        assert last.read_again is not None
        taken.add("again", name, last.read_again * 1e3)
        taken.add("remembered", name, last.remembered * 1e3)
    head = f"turn {turns:,} of a conversation"
    goal, is_met = ("", None) if quick else ("<= 6", _at_most(6.0))
    return [
        Figure(f"{head}, read again: CPU ms", taken["again"], goal, is_met),
        Figure(f"{head}, remembered: CPU ms", taken["remembered"]),
    ]


# The table.


def _print_figures(figures: Sequence[Figure]) -> None:
    for figure in figures:
        found = figure.medians
        cells = [figure.label, _cell(figure, _OLD), _cell(figure, _NEW), _ratio(figure)]
        beside = [
            f"{name} {value:{figure.form}} ({_times(found.get(_NEW, 0.0), value)})"
            for name, value in found.items()
            if name not in (_OLD, _NEW)
        ]
        verdict = ""
        if figure.is_met is not None and _NEW in found:
            verdict = "yes" if figure.is_met(found) else "no"
        print(f"| {' | '.join([*cells, ', '.join(beside), figure.goal, verdict])} |", flush=True)


def _cell(figure: Figure, name: str) -> str:
    value = figure.medians.get(name)
    return "" if value is None else f"{value:{figure.form}}"


def _ratio(figure: Figure) -> str:
    """Return the median of what ours is of the other tree's in the same round."""
    pairs = list(zip(figure.samples.get(_NEW, ()), figure.samples.get(_OLD, ()), strict=False))
    ratios = [new / old for new, old in pairs if old > 0]
    return f"{statistics.median(ratios):.2f}" if ratios else ""


def _times(ours: float, theirs: float) -> str:
    if ours <= 0 or theirs <= 0:
        return "-"
    ratio = ours / theirs
    return f"{ratio:.1f}x" if ratio >= 1 else f"1/{1 / ratio:.1f}"


PARTS: Final[Mapping[str, Callable[[_Bench], list[Figure]]]] = {
    "context": _measure_context,
    "token": _measure_token,
    "many": _measure_many,
    "request": _measure_request,
    "first": _measure_first,
    "native": _measure_native,
}
_OTHER_PARTS: Final = ("workers", "conversation")


def _ours(name: str, tree: Path, workers: int = 1, wire: str = "chat") -> Target:
    prepare = antiphon(workers, tree / "src", wire=wire)
    return Target(name, prepare, is_ours=True, workers=workers, store=True)


@contextmanager
def _started(
    targets: Sequence[Target], rest: tuple[Path | None, int, bool], *, is_pinned: bool
) -> Iterator[_Bench]:
    with ExitStack() as stack:
        directory = stack.enter_context(scratch())
        stand = stack.enter_context(run_upstream(is_pinned=is_pinned))
        bench = _Bench(stand, directory, *rest)
        for target in targets:
            bench.start(stack, target)
        print(describe_disk(directory) + "\n\n" + _HEAD, flush=True)
        yield bench
        print()
        _print_notes(bench)


_HEAD: Final = "| figure | before | now | ratio | beside | goal | reached |\n" + "|---" * 7 + "|"


def _print_notes(bench: _Bench) -> None:
    for note in bench.notes:
        print(note)
    if bench.judged:
        print(f"the referee judged {bench.judged} of our streams: no objection")
    others = statistics.mean(bench.others) if bench.others else 0.0
    crowded = "; run this again on an idle machine" if others > _CROWDED else ""
    print(f"everybody else on the machine used {others:.2f} cores{crowded}\n", flush=True)


def main(
    *,
    peers: Path | None = None,
    before: Path | None = None,
    rounds: int | None = None,
    quick: bool = False,
    only: str = "",
    json_file: Path | None = None,
) -> None:
    """Measure the parts and print their rows as they are done."""
    known = (*PARTS, *_OTHER_PARTS)
    names = [name.strip() for name in only.split(",") if name.strip()] or list(known)
    unknown = [name for name in names if name not in known]
    if unknown:
        raise Trouble(f"there is no part {unknown[0]!r}; there are {', '.join(known)}")
    trees = ({_OLD: before.resolve()} if before else {}) | {_NEW: HERE.parent}
    rest = (peers and peers.resolve(), rounds or (1 if quick else 3), quick)
    print(f"What agents cost ({machine()}), medians of {rest[1]}")
    done: list[Figure] = []

    def show(figures: list[Figure]) -> None:
        done.extend(figures)
        _print_figures(figures)
        if json_file is not None:
            rows: list[Any] = [[one.label, one.goal, dict(one.samples)] for one in done]
            json_file.write_text(json.dumps({"machine": machine(), "figures": rows}, indent=2))

    if any(name in PARTS for name in names):
        with _started(_pinned(trees, names), rest, is_pinned=True) as bench:
            for name in names:
                if name in PARTS:
                    show(PARTS[name](bench))
    if "workers" in names:
        targets = [_ours(f"{name}-{n}", tree, n) for name, tree in trees.items() for n in (1, 2)]
        with _started(targets, rest, is_pinned=False) as bench:
            show(_measure_workers(bench))
    if "conversation" in names:
        print(_HEAD)
        show(_measure_conversation(trees, quick=quick, rounds=rest[1]))


def _pinned(trees: Mapping[str, Path], names: Sequence[str]) -> list[Target]:
    """Return the targets that these parts need."""
    found = [TARGETS["direct"], TARGETS["nginx"]]
    if set(names) & (set(PARTS) - {"native"}):
        found += [_ours(name, tree) for name, tree in trees.items()]
    if set(names) & {"context", "request", "first"}:
        found += [TARGETS["litellm"], TARGETS["ogx"]]
    if "native" in names:
        found += [_ours(name + _NATIVE, tree, wire="responses") for name, tree in trees.items()]
        found.append(TARGETS["agentic"])
    return found


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="What do agents cost?")
    parser.add_argument("--peers", type=Path, metavar="DIR", help="where other gateways are")
    parser.add_argument("--before", type=Path, metavar="TREE", help="a checkout to compare with")
    parser.add_argument("--rounds", type=int, metavar="N", help="how often each is measured")
    parser.add_argument("--quick", action="store_true", help="one round, shorter, fewer sizes")
    parser.add_argument(
        "--only", default="", metavar="PARTS", help=", ".join((*PARTS, *_OTHER_PARTS))
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every sample")
    return parser.parse_args()


if __name__ == "__main__":
    given = _arguments()
    try:
        main(
            peers=given.peers,
            before=given.before,
            rounds=given.rounds,
            quick=given.quick,
            only=given.only,
            json_file=given.json,
        )
    except Trouble as trouble:
        sys.exit(f"agents.py: {trouble}")
