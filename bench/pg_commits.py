"""How many batches of events per second do several nodes store in one PostgreSQL?

Each node is a process with a store of its own; its streams append one batch after the other. The
figure shows what the commits of one node cost the others, the CPU of the nodes and of the server's
processes for each batch, and the commits of the server. The same work on SQLite, with one node,
stands beside it. With `--before`, the nodes of another tree run too, in turn on the same server.

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
from typing import Any, Final

from disk import describe_disk
from family import Family
from pg_limits import own_database
from processes import machine, scratch

ROOT: Final = Path(__file__).resolve().parents[1]


async def run_node(url: str, streams: int, seconds: float) -> None:
    """Append on all streams for this long; print how long each took, and the CPU for all."""
    from antiphon.protocol.response import Response
    from antiphon.store.base import Batch
    from antiphon.store.open import open_store

    store = open_store(url)
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

    began = time.process_time()
    await asyncio.gather(*(stream(f"resp_{os.getpid()}_{number}") for number in range(streams)))
    spent = time.process_time() - began
    await store.close()
    print(json.dumps({"took": took, "cpu": spent}))


def measure(tree: Path, url: str, nodes: int, streams: int, seconds: float) -> tuple[str, int]:
    """Run the nodes of one tree; return a line about them, and how many batches they stored."""
    options = ["--node", url, "--streams", str(streams), "--seconds", str(seconds)]
    environ = os.environ | {"PYTHONPATH": str(tree / "src")}
    command = [sys.executable, str(Path(__file__).resolve()), *options]
    running = [
        subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True)
        for _ in range(nodes)
    ]
    found = [json.loads(child.communicate()[0]) for child in running]
    took = sorted(one for node in found for one in node["took"])
    cpu = sum(node["cpu"] for node in found) / len(took)
    p99 = took[int(len(took) * 0.99)]
    line = (
        f"{len(took) / seconds:8.0f} batches/s   "
        f"p50 {statistics.median(took) * 1e3:6.1f} ms   p99 {p99 * 1e3:6.1f} ms   "
        f"CPU of the nodes {cpu * 1e6:5.0f} us a batch"
    )
    return line, len(took)


class _Server:
    """The processes of a PostgreSQL server on this machine, as one connection finds them."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        backend = Path(f"/proc/{connection.get_server_pid()}/stat").read_text()
        self._parent = int(backend.rpartition(")")[2].split()[1])

    def cpu(self) -> float:
        """CPU seconds so far, also of processes that have ended."""
        ended = Path(f"/proc/{self._parent}/stat").read_text().rpartition(")")[2].split()[13:15]
        return Family(self._parent).cpu + sum(map(int, ended)) / os.sysconf("SC_CLK_TCK")

    async def commits(self) -> int:
        """Return how many transactions were committed in all databases."""
        await self._connection.execute("SELECT pg_stat_force_next_flush()")
        return int(await self._connection.fetchval("SELECT sum(xact_commit) FROM pg_stat_database"))


async def measure_server(tree: Path, nodes: int, streams: int, seconds: float) -> str:
    """Run the nodes on a new database; return their line with what the server did."""
    import asyncpg

    async with own_database() as url:
        connection = await asyncpg.connect(url)
        server = _Server(connection)
        cpu, commits = server.cpu(), await server.commits()
        line, count = await asyncio.to_thread(measure, tree, url, nodes, streams, seconds)
        spent, made = server.cpu() - cpu, await server.commits() - commits
        await connection.close()
    return f"{line}   of the server {spent / count * 1e6:5.0f} us   {made / seconds:5.0f} commits/s"


async def main(nodes: int, streams: int, seconds: float, before: Path | None) -> None:
    """Measure each tree twice, in turn, and SQLite with one node."""
    trees = {"before": before} if before else {}
    trees["this tree"] = ROOT
    with scratch() as folder:
        print(f"{machine()}\n{describe_disk(folder)}\n")
        for number in range(2):
            for name, tree in trees.items():
                store = f"sqlite:{folder / f'{name}-{number}.db'}"
                line, _ = await asyncio.to_thread(measure, tree, store, 1, streams, seconds)
                print(f"{name:10} SQLite      1 node   {line}", flush=True)
                for count in sorted({1, nodes}):
                    line = await measure_server(tree, count, streams, seconds)
                    print(f"{name:10} PostgreSQL {count:2} nodes  {line}", flush=True)


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
