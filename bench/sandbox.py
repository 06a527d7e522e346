"""How fast are sandboxes, and does a flood of output fill the gateway?

    python bench/sandbox.py [--engine NAME] [--starts N] [--python VENV/bin/python]

Prints the time from start to ready, the time of a warm cell and of a shell command, the time of
plots if the interpreter has matplotlib, and how the memory of this process grows while a cell
writes 400 MB. Needs bubblewrap, and sandlock for the engine with both.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import resource
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from antiphon.tools.sandbox.base import CellEnd, SandboxLimits
from antiphon.tools.sandbox.box import RunningSandbox
from antiphon.tools.sandbox.engines import ENGINES, LocalEngine, make_engine
from antiphon.tools.sandbox.probe import attack_engine
from antiphon.tools.sandbox.pythons import read_interpreter

SECONDS = 600.0
PLOT = "import matplotlib.pyplot as plt\nplt.plot(range(100))\nplt.show()"
FLOOD = "import os\nfor _ in range(400): os.write(1, b'x' * (1 << 20))"


async def run(sandbox: RunningSandbox, code: str) -> str:
    """Run a cell. Return how it ended."""
    async for output in sandbox.run(code, SECONDS):
        if isinstance(output, CellEnd):
            return output.outcome
    return "nothing"


async def shell(sandbox: RunningSandbox) -> None:
    """Run a command that does nothing."""
    async for _ in sandbox.shell("true", SECONDS):
        pass


async def timed(work: Callable[[], Awaitable[object]], times: int) -> list[float]:
    """Return the milliseconds of each run."""
    found = []
    for _ in range(times):
        began = time.perf_counter()
        await work()
        found.append(1000 * (time.perf_counter() - began))
    return sorted(found)


def report(name: str, found: list[float]) -> None:
    """Print the median and the slow end."""
    found = sorted(found)
    slow = found[min(len(found) - 1, int(0.95 * len(found)))]
    print(f"  {name:34} p50 {statistics.median(found):7.1f} ms   p95 {slow:7.1f} ms")


async def measure(engine: LocalEngine, folder: Path, starts: int) -> None:
    """Print everything about one engine."""

    async def start() -> None:
        sandboxes.append(await engine.start(folder, SandboxLimits()))

    sandboxes: list[RunningSandbox] = []
    print(engine.name)
    began = time.perf_counter()
    print(f"  {await attack_engine(engine)} in {time.perf_counter() - began:.2f} s")
    times = []
    for _ in range(starts):
        times += await timed(start, 1)
        if len(sandboxes) > 1:
            await sandboxes.pop().close()
    report("ready", sorted(times))
    (sandbox,) = sandboxes
    report("warm cell", await timed(lambda: run(sandbox, "x = 1\nx + 1"), 200))
    report("shell command", await timed(lambda: shell(sandbox), 50))
    if await run(sandbox, "import matplotlib") == "ok":
        report("first plot", await timed(lambda: run(sandbox, PLOT), 1))
        report("further plots", await timed(lambda: run(sandbox, PLOT), 10))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    report("flood of 400 MB", await timed(lambda: run(sandbox, FLOOD), 1))
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    print(f"  memory of the gateway grew by {grown:.1f} MB")
    report("after a deadline, until all is gone", [await late(sandbox) for _ in range(5)])
    await engine.close()


async def late(sandbox: RunningSandbox) -> float:
    """Return how many milliseconds after its deadline a cell has ended."""
    await run(sandbox, "pass")
    began = time.perf_counter()
    async for _ in sandbox.run("while True: pass", 0.5):
        pass
    return 1000 * (time.perf_counter() - began - 0.5)


async def main() -> None:
    """Measure the engines."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--engine", choices=ENGINES, action="append")
    parser.add_argument("--starts", type=int, default=30)
    parser.add_argument("--python")
    arguments = parser.parse_args()
    python = read_interpreter(arguments.python) if arguments.python else None
    print(f"load {os.getloadavg()[0]:.1f}, uid {os.getuid()}")
    for name in arguments.engine or ENGINES:
        with tempfile.TemporaryDirectory() as folder:
            await measure(make_engine(name, python), Path(folder), arguments.starts)


if __name__ == "__main__":
    asyncio.run(main())
