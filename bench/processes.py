"""Processes that a benchmark starts, watches and ends: only its own, all on loopback.

CPU time is read from the kernel's clock of the process, in nanoseconds and with all threads;
where there is no such clock (it is a thing of Linux) the benchmark says so and stops.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

__all__ = [
    "HERE",
    "Process",
    "Trouble",
    "code_of",
    "cpu_seconds",
    "gateway",
    "load",
    "machine",
    "pinging",
    "run_loop",
    "scratch",
    "script",
]

HERE: Final = Path(__file__).resolve().parent
_START_SECONDS: Final = 15.0
_LOAD_SECONDS: Final = 150.0
_STOP_SECONDS: Final = 10.0
_PING_SECONDS: Final = 120.0


class Trouble(Exception):
    """The benchmark cannot go on; the message says why."""


class Process:
    """A child with a port."""

    def __init__(self, child: subprocess.Popen[str], port: int) -> None:
        self.pid = child.pid
        self.port = port

    @property
    def cpu(self) -> float:
        """CPU seconds so far."""
        return cpu_seconds(self.pid)

    @property
    def memory(self) -> float:
        """MiB of resident memory."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0]) / 1024


def cpu_seconds(pid: int) -> float:
    """Return the CPU seconds that a process has used, user and system, all threads."""
    if sys.platform != "linux":
        raise Trouble("the CPU time of another process is read as Linux has it; run this there")
    # The clock of another process, as clock_getcpuclockid(3) makes it.
    return time.clock_gettime((~pid << 3) | 2)


def run_loop(main: Coroutine[Any, Any, None]) -> None:
    """Run on the same event loop as the gateway does."""
    make_loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop
    with suppress(ImportError):
        from uvloop import new_event_loop as make_loop
    try:
        with asyncio.Runner(loop_factory=make_loop) as runner:
            runner.run(main)
    except KeyboardInterrupt:
        pass


@contextmanager
def code_of(tree: Path | None) -> Iterator[None]:
    """Let processes that are started meanwhile, and no others, run the code of a tree."""
    if tree is None:
        yield
        return
    os.environ["PYTHONPATH"] = str(tree / "src")
    try:
        yield
    finally:
        del os.environ["PYTHONPATH"]


@contextmanager
def script(name: str, *arguments: object) -> Iterator[Process]:
    """Run a script of this directory that prints its port in its first line."""
    command = [sys.executable, str(HERE / name), *map(str, arguments)]
    with _child(command) as child:
        assert child.stdout is not None
        line = child.stdout.readline()
        if not line.strip().isdigit():
            raise Trouble(f"{name} did not start")
        yield Process(child, int(line))


@contextmanager
def gateway(*flags: str, store: Path) -> Iterator[Process]:
    """Run `antiphon serve` with one worker on a free port."""
    command = [sys.executable, "-m", "antiphon", "serve", "--port", "0"]
    with _child([*command, "--store", f"sqlite:{store}", *flags]) as child:
        assert child.stdout is not None
        found = re.search(r"http://127\.0\.0\.1:(\d+)/", child.stdout.readline())
        if found is None:
            raise Trouble("antiphon serve did not start")
        yield Process(child, int(found[1]))


def load(process: Process, path: str, body: dict[str, object], **job: object) -> dict[str, float]:
    """Run the load process against this one; return its wall and CPU seconds."""
    job |= {"port": process.port, "path": path, "body": body}
    done = subprocess.run(
        [sys.executable, str(HERE / "load.py")],
        input=json.dumps(job),
        capture_output=True,
        text=True,
        timeout=_LOAD_SECONDS,
        check=False,
    )
    if done.returncode:
        raise Trouble(done.stderr.strip().splitlines()[-1])
    result: dict[str, float] = json.loads(done.stdout)
    return result


@contextmanager
def pinging(process: Process) -> Iterator[dict[str, float]]:
    """Run `pinger.py` meanwhile; its figures are there at the end, unless the process died."""
    found: dict[str, float] = {}
    command = [sys.executable, str(HERE / "pinger.py"), str(process.port), str(process.pid)]
    child = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=HERE
    )
    try:
        yield found
    finally:
        output, _ = child.communicate(timeout=_PING_SECONDS)
        if child.returncode == 0:
            found |= json.loads(output)


@contextmanager
def scratch() -> Iterator[Path]:
    """Make a directory on a real disk, where a commit costs what it costs."""
    HERE.joinpath("out").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=HERE / "out") as path:
        yield Path(path)


def machine() -> str:
    """Describe where the figures come from."""
    import platform

    load_average = os.getloadavg()[0]
    return (
        f"{time.strftime('%Y-%m-%d')}, {os.cpu_count()} cores, Python {platform.python_version()}, "
        f"{platform.system()} {platform.machine()}, load average {load_average:.1f}"
    )


@contextmanager
def _child(command: Sequence[str]) -> Iterator[subprocess.Popen[str]]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("ANTIPHON_")}
    # A gateway logs every request: its log is written, as for a user, but only trouble is shown.
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as log:
        child = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=log, text=True, env=environment, cwd=HERE.parent
        )
        try:
            yield child
        finally:
            child.terminate()
            try:
                child.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
            if child.stdout is not None:
                child.stdout.close()
            log.seek(0)
            sys.stderr.writelines(line for line in log if " INFO " not in line)
