"""How fast are sandboxes, does a flood of output fill the gateway, and do attacks succeed?

    python bench/sandbox.py [--engine NAME] [--starts N] [--python VENV/bin/python]
    python bench/sandbox.py --attacks [--engine NAME]

Prints the time from start to ready, the time of a warm cell and of a shell command, the time of
plots if the interpreter has matplotlib, how the memory of this process grows while a cell writes
400 MB, and how long after its deadline a cell is gone. `--attacks` prints instead how the engines
do against every attack of the tests, as this user and, if this is root, as an ordinary one too.

Exits with 1 if a goal is missed, and with 2 if an engine cannot be had. Needs sandlock for the
engine with both. Bubblewrap is unpacked from Debian's package where the system has none.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.sandboxes import bubblewrap
from tests.tools.sandbox.attacks import ORDINARY, attack_all, attack_as, can_switch

from antiphon.tools.sandbox.base import CellEnd, SandboxLimits
from antiphon.tools.sandbox.box import RunningSandbox
from antiphon.tools.sandbox.engines import (
    ENGINES,
    EngineName,
    LocalEngine,
    make_engine,
    missing_parts,
)
from antiphon.tools.sandbox.probe import attack_engine
from antiphon.tools.sandbox.pythons import Interpreter, read_interpreter

SECONDS = 600.0
READY_GOALS = {"bwrap": 60.0, "bwrap+sandlock": 150.0}
LATE_GOAL = 200.0
GROWTH_GOAL = 5.0
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


def report(name: str, found: list[float]) -> float:
    """Print the median and the slow end. Return the median."""
    found = sorted(found)
    middle, slow = statistics.median(found), found[min(len(found) - 1, int(0.95 * len(found)))]
    print(f"  {name:36} p50 {middle:7.1f} ms   p95 {slow:7.1f} ms   worst {found[-1]:7.1f} ms")
    return middle


async def measure(engine: LocalEngine, folder: Path, starts: int) -> bool:
    """Print everything about one engine. Return whether it meets the goals."""
    print(engine.name)
    began = time.perf_counter()
    print(f"  {await attack_engine(engine)} in {time.perf_counter() - began:.2f} s")
    sandbox, ready = await start_often(engine, folder, starts)
    report("warm cell", await timed(lambda: run(sandbox, "x = 1\nx + 1"), 200))
    report("shell command", await timed(lambda: shell(sandbox), 50))
    if await run(sandbox, "import matplotlib") == "ok":
        report("first plot", await timed(lambda: run(sandbox, PLOT), 1))
        report("further plots", await timed(lambda: run(sandbox, PLOT), 10))
    grown = await flood(sandbox)
    late = [await lateness(sandbox) for _ in range(10)]
    report("after a deadline, until all is gone", late)
    await engine.close()
    return all(
        [
            judge("ready, p50, ms", ready, READY_GOALS[engine.name]),
            judge("growth of the gateway in a flood, MB", grown, GROWTH_GOAL),
            judge("gone after a deadline, worst, ms", max(late), LATE_GOAL),
        ]
    )


def judge(name: str, found: float, goal: float) -> bool:
    """Print a figure beside its goal. Return whether it is met."""
    print(f"  {name:36} {found:9.1f}   goal {goal:g}: {'met' if found <= goal else 'MISSED'}")
    return found <= goal


async def start_often(
    engine: LocalEngine, folder: Path, starts: int
) -> tuple[RunningSandbox, float]:
    """Start sandboxes one after the other. Return one, and the milliseconds until it is ready."""
    sandboxes: list[RunningSandbox] = []

    async def start() -> None:
        sandboxes.append(await engine.start(folder, SandboxLimits()))

    times = []
    for _ in range(starts):
        times += await timed(start, 1)
        if len(sandboxes) > 1:
            await sandboxes.pop().close()
    (sandbox,) = sandboxes
    return sandbox, report("ready", times)


async def flood(sandbox: RunningSandbox) -> float:
    """Return by how many megabytes this process grows while a cell writes 400."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    report("flood of 400 MB", await timed(lambda: run(sandbox, FLOOD), 1))
    return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024


async def lateness(sandbox: RunningSandbox) -> float:
    """Return how many milliseconds after its deadline a cell has ended."""
    await run(sandbox, "pass")
    began = time.perf_counter()
    async for _ in sandbox.run("while True: pass", 0.5):
        pass
    return 1000 * (time.perf_counter() - began - 0.5)


async def attack(names: Sequence[EngineName]) -> bool:
    """Print how the engines do against all attacks. Return whether one that is used held."""
    here: dict[str, dict[str, str]] = {name: await attack_all(make_engine(name)) for name in names}
    held = show_attacks(os.getuid(), here)
    if reason := can_switch():
        print(f"not attacked as another user: {reason}")
        return held
    with tempfile.TemporaryDirectory() as folder:
        found = await attack_as(ORDINARY, Path(folder), names)
    return show_attacks(found.uid, found.found) and held


def show_attacks(uid: int, found: Mapping[str, Mapping[str, str]]) -> bool:
    """Print a line for each attack. Return whether an engine held against all of them."""
    print(f"uid {uid}")
    for attack_name in next(iter(found.values())):
        cells = [f"{name}: {words[attack_name] or 'held'}" for name, words in found.items()]
        print(f"  {attack_name:52} {'   '.join(' '.join(cell.split()) for cell in cells)}")
    counts = {name: sum(map(bool, words.values())) for name, words in found.items()}
    for name, count in counts.items():
        print(f"  {name}: {count} of {len(found[name])} attacks succeeded")
    return 0 in counts.values()


def why_not(names: Sequence[EngineName]) -> str:
    """Return why an engine cannot be had here, or nothing."""
    reason = bubblewrap() or " and ".join(filter(None, map(missing_parts, names)))
    return " ".join(reason.split())


async def main() -> int:
    """Measure or attack the engines. Return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--engine", choices=ENGINES, action="append")
    parser.add_argument("--starts", type=int, default=30)
    parser.add_argument("--python")
    parser.add_argument("--attacks", action="store_true")
    options = parser.parse_args()
    names: Sequence[EngineName] = options.engine or ENGINES
    if reason := why_not(names):
        print(f"cannot measure {', '.join(names)}: {reason}", file=sys.stderr)
        return 2
    print(f"load {os.getloadavg()[0]:.1f}, uid {os.getuid()}")
    if options.attacks:
        return 0 if await attack(names) else 1
    python = read_interpreter(options.python) if options.python else None
    is_met = [await measure_here(name, python, options.starts) for name in names]
    return 0 if all(is_met) else 1


async def measure_here(name: EngineName, python: Interpreter | None, starts: int) -> bool:
    """Measure an engine in a folder of its own."""
    with tempfile.TemporaryDirectory() as folder:
        return await measure(make_engine(name, python), Path(folder), starts)


if __name__ == "__main__":
    raise SystemExit(asyncio.run(main()))
