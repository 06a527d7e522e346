"""How many streams can one PostgreSQL take? A model, and its comparison with a real one.

A discrete-event model of workers, their lanes and commit groups, the cores and the disk of the
database, and the lock of NOTIFY. Its inputs are figures that `pg_limits.py` and short runs of real
stores measured on the machine at hand. It is compared with 1,000 writers on four real stores, of
which it knows runs with fewer writers; the table then shows sizes that cannot be measured here,
with the costs of one store.

    python bench/scale_model.py [--limits FILE] [--rounds 2] [--table FILE] [--plot FILE]
"""

from __future__ import annotations

import argparse
import asyncio
import heapq
import itertools
import json
import os
import random
import statistics
import sys
import time
from collections import deque
from collections.abc import Awaitable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from pg_limits import measure, own_database
from plot import Panel, draw

__all__ = ["Costs", "Shape", "simulate"]

_LANES: Final = 2
_MAX_GROUP: Final = 500
_CALIBRATION: Final = 128
_FEW: Final = 16
_HALF: Final = 500
_TOKENS_A_SECOND: Final = 20
_TOKEN_BYTES: Final = 120
_CPU_A_TOKEN: Final = 88e-6
"""Of a worker, for everything else than the commit (docs/topics/speed.md)."""
_NODE_CORES: Final = 8
_NODES: Final = (1, 5, 20)
_STREAMS: Final = (1_000, 10_000, 100_000)
_LINGERS: Final = (0.05, 0.25)


class Costs(NamedTuple):
    """What was measured. Seconds, and bytes."""

    worker_batch: float
    """CPU of a worker for a batch."""
    worker_commit: float
    """CPU of a worker for a commit, besides its batches."""
    database_batch: float
    """Time of a core of the database for a batch."""
    database_commit: float
    """Time of a core of the database for a commit, besides its batches."""
    flushes: tuple[float, ...]
    """Samples of how long a commit of one batch takes: most of it waits for the disk."""
    wal_batch: float
    segment_byte: float
    """Time of the database for a byte of a segment."""


class Shape(NamedTuple):
    """What is simulated. `interval` is the pause between two batches of a stream; 0 is none."""

    workers: int
    streams: int
    interval: float
    is_segments: bool = False
    is_notify_inside: bool = False
    database_cores: int = 16
    is_one_machine: bool = False
    """All workers share one thread, and this thread the cores of the database, as in the
    comparison."""


class Result(NamedTuple):
    per_second: float
    p50: float
    p99: float
    commits: float
    queue: float
    wal: float


class _Worker:
    def __init__(self, number: int) -> None:
        self.number = number
        self.waiting: deque[tuple[float, int]] = deque()
        self.free_lanes = _LANES


class _Model:
    """The state of a run. Events are (time, number, what, value)."""

    def __init__(self, shape: Shape, costs: Costs, seconds: float, seed: int) -> None:
        self._shape, self._costs, self._seconds = shape, costs, seconds
        self._random = random.Random(seed)
        self._workers = [_Worker(number) for number in range(shape.workers)]
        self._threads = [0.0] * (1 if shape.is_one_machine else shape.workers)
        self._cores = [0.0] * shape.database_cores
        self._events: list[tuple[float, int, str, Any]] = []
        self._numbers = itertools.count()
        self._flush_end = 0.0
        self._next_flush: list[Any] = []
        self._delays: list[float] = []
        self._commits = self._queued = self._takes = 0

    def run(self) -> Result:
        for stream in range(self._shape.streams):
            self._at(self._random.random() * (self._shape.interval or 0.01), "batch", stream)
        warm = self._seconds / 4
        while self._events and self._events[0][0] < self._seconds:
            now, _, what, value = heapq.heappop(self._events)
            getattr(self, f"_{what}")(now, value)
        late = sorted(self._delays[int(len(self._delays) / 4) :]) or [float("inf")]
        done = len(self._delays) * 0.75 / (self._seconds - warm)
        commits = self._commits / self._seconds
        return Result(
            done,
            statistics.median(late),
            late[int(len(late) * 0.99)],
            commits,
            self._queued / max(self._takes, 1),
            done * (self._costs.wal_batch if not self._shape.is_segments else self._bytes * 1.07),
        )

    @property
    def _bytes(self) -> float:
        tokens = max(self._shape.interval * _TOKENS_A_SECOND, 1)
        return _TOKEN_BYTES * tokens

    def _at(self, time: float, what: str, value: Any) -> None:
        heapq.heappush(self._events, (time, next(self._numbers), what, value))

    def _batch(self, now: float, stream: int) -> None:
        worker = self._workers[stream % len(self._workers)]
        worker.waiting.append((now, stream))
        self._take(now, worker)

    def _take(self, now: float, worker: _Worker) -> None:
        """Let a free lane take what waits, and give it to the database."""
        if not worker.free_lanes or not worker.waiting:
            return
        worker.free_lanes -= 1
        self._queued += len(worker.waiting)
        self._takes += 1
        group = [worker.waiting.popleft() for _ in range(min(len(worker.waiting), _MAX_GROUP))]
        # Half of the work is before the commit, half after it: callers are woken and ask again.
        cpu = self._costs.worker_commit + self._costs.worker_batch * len(group)
        sent = self._compute(now, worker, cpu / 2)
        ready = max(sent, heapq.heappop(self._cores))
        if self._shape.is_segments:
            work = self._costs.segment_byte * self._bytes * len(group)
        else:
            work = self._costs.database_batch * len(group)
        work += self._costs.database_commit
        heapq.heappush(self._cores, ready + work)
        self._at(ready + work, "commit", (worker, group))

    def _compute(self, now: float, worker: _Worker, seconds: float) -> float:
        """Use the thread of a worker, and on one machine also a core; return when that is done."""
        thread = worker.number % len(self._threads)
        start = max(now, self._threads[thread])
        if self._shape.is_one_machine:
            start = max(start, heapq.heappop(self._cores))
            heapq.heappush(self._cores, start + seconds)
        self._threads[thread] = start + seconds
        return start + seconds

    def _commit(self, now: float, commit: Any) -> None:
        """Wait for the disk: with others that came meanwhile, or alone behind the lock."""
        if self._shape.is_notify_inside:
            self._flush_end = max(now, self._flush_end) + self._disk()
            self._at(self._flush_end, "done", [commit])
        elif now >= self._flush_end:
            self._flush_end = now + self._disk()
            self._at(self._flush_end, "flushed", [commit])
        else:
            self._next_flush.append(commit)

    def _disk(self) -> float:
        return self._random.choice(self._costs.flushes)

    def _flushed(self, now: float, commits: list[Any]) -> None:
        if self._next_flush:
            self._flush_end = now + self._disk()
            self._at(self._flush_end, "flushed", self._next_flush)
            self._next_flush = []
        self._done(now, commits)

    def _done(self, now: float, commits: list[Any]) -> None:
        for worker, group in commits:
            self._commits += 1
            cpu = self._costs.worker_commit + self._costs.worker_batch * len(group)
            end = self._compute(now, worker, cpu / 2)
            step = self._costs.worker_batch / 2
            for place, (came, stream) in enumerate(group, 1 - len(group)):
                told = end + place * step
                self._delays.append(told - came)
                self._at(max(told, came + self._shape.interval), "batch", stream)
            self._at(end, "free", worker)

    def _free(self, now: float, worker: _Worker) -> None:
        worker.free_lanes += 1
        self._take(now, worker)


def simulate(shape: Shape, costs: Costs, *, seconds: float = 4.0, seed: int = 1) -> Result:
    """Run the model for this many simulated seconds."""
    return _Model(shape, costs, seconds, seed).run()


# What one real store costs, and four of them.


class Run(NamedTuple):
    """What real stores did: batches per second, their times, and CPU seconds for each."""

    per_second: float
    p50: float
    p99: float
    cpu: float
    group: float
    """Batches in a commit."""


async def _write(url: str, nodes: int, writers: int, seconds: float) -> Run:
    """Append on real stores, one batch of each writer after the other."""
    from antiphon.protocol.response import Response
    from antiphon.store.base import Batch
    from antiphon.store.postgres import PostgresStore

    stores = [PostgresStore(url, patience=60.0) for _ in range(nodes)]
    took: list[float] = []
    mark = f"{time.monotonic_ns()}"
    begun = [asyncio.Event() for _ in range(writers)]
    go = asyncio.Event()
    end = 0.0

    async def write(number: int) -> None:
        store, name = stores[number % nodes], f"resp_{mark}_{number}"
        response = Response(id=name, status="in_progress", model="m", created_at=int(time.time()))
        await store.begin("bench", response, [], batch=Batch(0, 0, b"x" * _TOKEN_BYTES))
        begun[number].set()
        await go.wait()
        for place in itertools.count(1):
            start = time.monotonic()
            if start > end:
                return
            await store.append("bench", name, Batch(place, place, b"x" * _TOKEN_BYTES))
            took.append(time.monotonic() - start)

    tasks = [asyncio.create_task(write(number)) for number in range(writers)]
    ready = asyncio.gather(*(one.wait() for one in begun))
    await asyncio.wait({ready, *tasks}, return_when=asyncio.FIRST_COMPLETED)
    if not ready.done():  # a writer failed
        await asyncio.gather(*tasks)
    before = [sum(store.pulse.sizes[:-1]) for store in stores]
    start, cpu = time.monotonic(), time.process_time()
    end = start + seconds
    go.set()
    await asyncio.gather(*tasks)
    lasted, spent = time.monotonic() - start, time.process_time() - cpu
    commits = sum(sum(store.pulse.sizes[:-1]) for store in stores) - sum(before)
    for store in stores:
        await store.close()
    rest = sorted(took[len(took) // 4 :])
    p99 = rest[int(len(rest) * 0.99)]
    median = statistics.median(rest)
    return Run(len(took) / lasted, median, p99, spent / len(took), len(took) / commits)


def calibrate(
    limits: dict[str, Any],
    samples: Sequence[float],
    few: Run,
    many: Run,
    shape: Shape,
) -> Costs:
    """Return the costs with which the model is as fast as real stores of this shape were.

    `few` and `many` are runs with few writers, and with those of the shape. Their groups have other
    sizes, so their CPU shows what a batch and what a commit costs a worker. `samples` are times of
    commits. What is left is the work of the database.
    """
    commit_cpu = max((few.cpu - many.cpu) / (1 / few.group - 1 / many.group), 0.0)
    batch_cpu = max(many.cpu - commit_cpu / many.group, 0.0)
    blob, cores = limits["segment"], os.cpu_count() or 1
    segment = max(blob["median"] - statistics.median(samples), 1e-4) / blob["bytes"]
    commit = min(cores / one["none"] for one in limits["notify"])
    wal = limits["groups"][-1]["wal_bytes"]
    low, high = 0.0, 2e-3
    for _ in range(12):
        middle = (low + high) / 2
        costs = Costs(batch_cpu, commit_cpu, middle, commit, tuple(samples), wal, segment)
        is_fast = simulate(shape, costs, seconds=2.0).per_second > many.per_second
        low, high = (middle, high) if is_fast else (low, middle)
    return costs


async def _flushes(url: str, seconds: float) -> list[float]:
    """Return samples of the time of a commit of one row."""
    import asyncpg

    connection = await asyncpg.connect(url)
    await connection.execute("CREATE TABLE IF NOT EXISTS commits (x BIGINT)")
    samples, end = [], time.monotonic() + seconds
    while (start := time.monotonic()) < end:
        await connection.execute("INSERT INTO commits VALUES (1)")
        samples.append(time.monotonic() - start)
    await connection.close()
    return samples


async def _sampled(url: str, work: Awaitable[Run], seconds: float) -> tuple[Run, list[float]]:
    """Return what the stores did, and samples of commits by another process meanwhile."""
    command = (sys.executable, __file__, "--sample", url, str(seconds))
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    run = await work
    printed, _ = await process.communicate()
    return run, json.loads(printed)


async def validate(limits: dict[str, Any], rounds: int) -> tuple[Costs, list[str]]:
    """Compare 1,000 writers on four stores with the model, several times.

    The model knows the same four stores with 128 and with 500 writers. The costs that are returned
    are those of one store, which is what a worker has.
    """
    lines = ["| round | | batches/s | p50, ms | p99, ms |", "|---|---|---|---|---|"]
    for number in range(1, rounds + 1):
        async with own_database() as url:
            idle = await _flushes(url, 1.0)
            one = [await _write(url, 1, writers, 2.0) for writers in (_FEW, _CALIBRATION)]
            few = await _write(url, 4, _CALIBRATION, 3.0)
            many, samples = await _sampled(url, _write(url, 4, _HALF, 4.0), 4.0)
            real = await _write(url, 4, 2 * _HALF, 6.0)
        cores = os.cpu_count() or 1
        half = Shape(4, _HALF, 0.0, database_cores=cores, is_one_machine=True)
        model = simulate(
            half._replace(streams=2 * _HALF),
            calibrate(limits, samples, few, many, half),
            seconds=6.0,
        )
        single = half._replace(workers=1, streams=_CALIBRATION)
        costs = calibrate(limits, idle, *one, single)
        pairs = zip(model[:3], real[:3], strict=True)
        off = [guess / found - 1 for guess, found in pairs]
        lines += [
            _comparison(f"{number}", "measured", real),
            _comparison("", "model", model),
            f"| | off by | {off[0]:+.0%} | {off[1]:+.0%} | {off[2]:+.0%} |",
        ]
        for name, run in (
            ("one store, 16", one[0]),
            ("one store, 128", one[1]),
            ("four stores, 128", few),
            ("four stores, 500", many),
            ("four, 1,000", real),
        ):
            print(
                f"{name:18} {run.per_second:8,.0f} batches/s, {run.cpu * 1e6:5.1f} us of CPU each,"
                f" {run.group:4.0f} in a commit, thread {run.cpu * run.per_second:.0%} busy",
                file=sys.stderr,
            )
    return costs, lines


def _comparison(number: str, name: str, found: Run | Result) -> str:
    return (
        f"| {number} | {name} | {found.per_second:,.0f} | {found.p50 * 1e3:.1f}"
        f" | {found.p99 * 1e3:.1f} |"
    )


# The table.


def _rows(costs: Costs) -> list[tuple[int, Shape, Result]]:
    found = []
    for nodes, streams, linger in itertools.product(_NODES, _STREAMS, _LINGERS):
        for is_segments, is_inside in itertools.product((False, True), (False, True)):
            shape = Shape(nodes * _NODE_CORES, streams, linger, is_segments, is_inside)
            seconds = max(0.6, min(4.0, 200_000 / (streams / linger)))
            found.append((nodes, shape, simulate(shape, costs, seconds=seconds)))
    return found


def _table(rows: Sequence[tuple[int, Shape, Result]]) -> list[str]:
    lines = [
        "| nodes | streams | linger, ms | store | NOTIFY | batches/s | of offered | p50, ms"
        " | p99, ms | commits/s | queue | WAL, MB/s | node cores busy |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for nodes, shape, result in rows:
        offered = shape.streams / shape.interval
        busy = shape.streams * _TOKENS_A_SECOND * _CPU_A_TOKEN / (nodes * _NODE_CORES)
        lines.append(
            f"| {nodes} | {shape.streams:,} | {shape.interval * 1e3:.0f}"
            f" | {'segments' if shape.is_segments else 'rows'}"
            f" | {'inside' if shape.is_notify_inside else 'outside'}"
            f" | {result.per_second:,.0f} | {min(result.per_second / offered, 1):.0%}"
            f" | {result.p50 * 1e3:.0f} | {result.p99 * 1e3:.0f} | {result.commits:,.0f}"
            f" | {result.queue:,.0f} | {result.wal / 1e6:.1f} | {busy:.0%} |"
        )
    return lines


def _panels(costs: Costs) -> list[Panel]:
    panels = []
    for linger in _LINGERS:
        lines: dict[str, list[tuple[float, float]]] = {}
        for is_segments, is_inside in itertools.product((False, True), (False, True)):
            name = f"{'segments' if is_segments else 'rows'}, {'in' if is_inside else 'out'}"
            for streams in (1_000, 3_000, 10_000, 30_000, 100_000):
                shape = Shape(160, streams, linger, is_segments, is_inside)
                seconds = max(0.6, min(4.0, 200_000 / (streams / linger)))
                result = simulate(shape, costs, seconds=seconds)
                lines.setdefault(name, []).append((float(streams), result.p99 * 1e3))
        title = f"20 nodes, a batch every {linger * 1e3:.0f} ms"
        panels.append(Panel(title, "streams", "p99 of an event, ms", lines))
    return panels


def main() -> None:
    """Calibrate, compare, and print or write the table and the plot."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--limits", type=Path, metavar="FILE", help="written by pg_limits.py")
    parser.add_argument("--rounds", type=int, default=2, help="of the comparison")
    parser.add_argument("--table", type=Path, metavar="FILE", help="write the table")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw it, as SVG")
    parser.add_argument("--sample", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.sample:
        url, seconds = given.sample
        print(json.dumps(asyncio.run(_flushes(url, float(seconds)))))
        return
    limits = json.loads(given.limits.read_text()) if given.limits else asyncio.run(_limits())
    costs, lines = asyncio.run(validate(limits, given.rounds))
    print("\n".join(lines), flush=True)
    table = _table(_rows(costs))
    print("\n".join(["", *table]))
    if given.table:
        given.table.write_text("\n".join([*lines, "", *table, ""]))
    if given.plot:
        given.plot.write_text(draw(_panels(costs)))


async def _limits() -> dict[str, Any]:
    async with own_database() as url:
        return await measure(url, 2.0)


if __name__ == "__main__":
    main()
