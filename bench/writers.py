"""How long does a commit wait when two processes write to one SQLite file?

Stores without a gateway: each process keeps 16 small writes under way. Commits cost the disk
more than the processor, so this shows the waiting also on a busy machine, where bench/workers.py
shows mostly the neighbours. *For the lock* is the share of the time in which the writing threads
waited for their turn. With `--before TREE` another version is measured in turn with this.

    python bench/writers.py [--seconds 2] [--rounds 4] [--before TREE]
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Final, NamedTuple

from disk import describe_disk
from processes import HERE, Trouble, machine, scratch

__all__ = ["main", "write"]

_AT_ONCE: Final = 16
_GRACE_SECONDS: Final = 60.0


class _Found(NamedTuple):
    waits: list[float]
    """How long each write took."""
    queued: float
    """Seconds in which the writing thread waited for its turn."""


async def write(path: Path, seconds: float) -> _Found:
    """Write to the store at this path all the time; return how long that took."""
    from antiphon.store.sqlite import SqliteStore
    from antiphon.store.sqlite.queue import WriteQueue

    enter, queued = WriteQueue.enter, [0.0]

    def enter_timed(queue: WriteQueue, seconds: float) -> bool:
        began = time.monotonic()
        try:
            return enter(queue, seconds)
        finally:
            queued[0] += time.monotonic() - began

    WriteQueue.enter = enter_timed  # type: ignore[assignment,method-assign] # timed
    store, waits = SqliteStore(path), []
    end = time.monotonic() + seconds

    async def write_on() -> None:
        while (began := time.monotonic()) < end:
            await store.ping()
            waits.append(time.monotonic() - began)

    await asyncio.gather(*(write_on() for _ in range(_AT_ONCE)))
    await store.close()
    return _Found(waits, queued[0])


def main(*, seconds: float, rounds: int, before: Path | None) -> None:
    """Measure all versions in turn and print the table."""
    print(f"Processes that write to one SQLite file, {_AT_ONCE} writes each ({machine()})\n")
    trees = {} if before is None else {"before": before.resolve()}
    trees["now"] = HERE.parent
    taken: dict[tuple[str, int], list[float]] = {}
    queued: dict[tuple[str, int], float] = {}
    with scratch() as directory:
        disk = describe_disk(directory)
        for number, (version, count) in itertools.product(
            range(rounds), itertools.product(trees, (1, 2))
        ):
            path = directory / f"{version}-{count}-{number}.db"
            found = _run(trees[version] / "src", path, seconds, count)
            taken.setdefault((version, count), []).extend(found.waits)
            queued[version, count] = queued.get((version, count), 0.0) + found.queued
    print(
        "version   processes   p50, ms   p99, ms   p99.9, ms   longest, ms   writes a second"
        "   for the lock"
    )
    for (version, count), waits in taken.items():
        waits.sort()
        cells = [waits[int(len(waits) * share)] * 1e3 for share in (0.5, 0.99, 0.999)]
        print(
            f"{version:<9} {count:9}   {cells[0]:7.1f}   {cells[1]:7.1f}   {cells[2]:9.1f}"
            f"   {waits[-1] * 1e3:11.0f}   {len(waits) / seconds / rounds:15,.0f}"
            f"   {queued[version, count] / seconds / rounds / count:12.0%}"
        )
    print(disk)


def _run(source: Path, path: Path, seconds: float, count: int) -> _Found:
    """Let so many processes of this version write at once; return all that they found."""
    command = [sys.executable, __file__, "--seconds", str(seconds), "--write-to", str(path)]
    environment = {**os.environ, "PYTHONPATH": str(source)}
    children = [
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
        for _ in range(count)
    ]
    waits: list[float] = []
    queued = 0.0
    for child in children:
        output, _ = child.communicate(timeout=seconds + _GRACE_SECONDS)
        if child.returncode:
            raise Trouble("a process that writes has failed")
        found = _Found(*json.loads(output))
        waits += found.waits
        queued += found.queued
    return _Found(waits, queued)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="How long does a commit wait for others?")
    parser.add_argument("--seconds", type=float, default=2.0, help="how long each round takes")
    parser.add_argument("--rounds", type=int, default=4, help="how often each is measured")
    parser.add_argument("--before", type=Path, metavar="TREE", help="a checkout to compare with")
    parser.add_argument("--write-to", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    given = _arguments()
    try:
        if given.write_to is not None:
            sys.stdout.write(json.dumps(asyncio.run(write(given.write_to, given.seconds))))
        else:
            main(seconds=given.seconds, rounds=given.rounds, before=given.before)
    except Trouble as trouble:
        sys.exit(f"writers.py: {trouble}")
