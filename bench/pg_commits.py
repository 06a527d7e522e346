"""How many batches of events per second do several nodes store in one PostgreSQL?

Each node is a process with a store of its own; its streams append one batch after the other. The
figure shows what the commits of one node cost the others. With `--before`, the nodes of another
tree run too, in turn on the same server.

    python bench/pg_commits.py [--nodes 4] [--streams 32] [--seconds 5] [--before TREE]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]


async def run_node(url: str, streams: int, seconds: float) -> None:
    """Append on all streams for this long; print how often, and how long each took."""
    from antiphon.protocol.response import Response
    from antiphon.store.base import Batch
    from antiphon.store.postgres import PostgresStore

    store = PostgresStore(url, patience=60.0)
    took: list[float] = []

    async def stream(name: str) -> None:
        response = Response(id=name, status="in_progress", model="m", created_at=int(time.time()))
        await store.begin("bench", response, [], batch=Batch(0, 0, b"x" * 120))
        number, end = 1, time.monotonic() + seconds
        while time.monotonic() < end:
            start = time.monotonic()
            await store.append("bench", name, Batch(number, number, b"x" * 120))
            took.append(time.monotonic() - start)
            number += 1

    await asyncio.gather(*(stream(f"resp_{os.getpid()}_{number}") for number in range(streams)))
    await store.close()
    print(json.dumps(took))


def measure(tree: Path, url: str, nodes: int, streams: int, seconds: float) -> str:
    """Run the nodes of one tree; return a line about them."""
    options = ["--node", url, "--streams", str(streams), "--seconds", str(seconds)]
    environ = os.environ | {"PYTHONPATH": str(tree / "src")}
    command = [sys.executable, str(Path(__file__).resolve()), *options]
    running = [
        subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True)
        for _ in range(nodes)
    ]
    took = sorted(one for child in running for one in json.loads(child.communicate()[0]))
    p99 = took[int(len(took) * 0.99)]
    return (
        f"{len(took) / seconds:8.0f} batches/s   "
        f"p50 {statistics.median(took) * 1e3:6.1f} ms   p99 {p99 * 1e3:6.1f} ms"
    )


async def main(nodes: int, streams: int, seconds: float, before: Path | None) -> None:
    """Measure each tree twice, in turn."""
    sys.path.insert(0, str(ROOT))
    from tests.postgres import fresh_database

    trees = {"before": before} if before else {}
    trees["this tree"] = ROOT
    for _ in range(2):
        for name, tree in trees.items():
            async with fresh_database() as url:
                line = await asyncio.to_thread(measure, tree, url, nodes, streams, seconds)
            print(f"{name:10} {line}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--streams", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--before", type=Path, help="another tree to compare with")
    parser.add_argument("--node", metavar="URL", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.node:
        asyncio.run(run_node(given.node, given.streams, given.seconds))
    else:
        before = given.before.resolve() if given.before else None
        asyncio.run(main(given.nodes, given.streams, given.seconds, before))
