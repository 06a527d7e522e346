"""A process and its children: how much CPU and memory they use, and on which cores.

Servers start workers, and what counts is the sum. CPU is read from the kernel's clock of each
process, in nanoseconds and with all threads; a child that has ended is not counted any more.
Memory is what is resident, so pages that two processes share are counted twice.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from processes import Trouble, cpu_seconds

__all__ = ["Family", "busy_seconds", "cores", "free_port", "pin", "run_server"]

_STOP_SECONDS: Final = 10.0
_MIB: Final = 1 << 20
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")
_TICK: Final = os.sysconf("SC_CLK_TCK")


class Family:
    """A process that was started here and everything it started."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def members(self) -> list[int]:
        """Return the ids of all that live now, the parent first."""
        parents: dict[int, list[int]] = {}
        for path in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = path.read_text().rpartition(")")[2].split()
            except (FileNotFoundError, ProcessLookupError):
                continue
            parents.setdefault(int(fields[1]), []).append(int(path.parent.name))
        found = [self.pid]
        for pid in found:
            found += parents.get(pid, [])
        return found

    @property
    def cpu(self) -> float:
        """CPU seconds so far."""
        return sum(_or_nothing(cpu_seconds, pid) for pid in self.members())

    @property
    def memory(self) -> float:
        """MiB of resident memory."""
        return sum(_or_nothing(_resident, pid) for pid in self.members()) / _MIB


def _or_nothing(read: Callable[[int], float], pid: int) -> float:
    try:
        return read(pid)
    except OSError:  # it has just ended
        return 0.0


def _resident(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE


def busy_seconds() -> float:
    """Return the CPU seconds that anybody has used on this machine."""
    fields = Path("/proc/stat").read_text().splitlines()[0].split()[1:]
    user, nice, system, _idle, _waiting, *interrupts = map(int, fields[:8])
    return (user + nice + system + sum(interrupts)) / _TICK


def cores() -> list[int]:
    """Return the cores that may be used, or none where that cannot be chosen."""
    if not hasattr(os, "sched_getaffinity"):
        return []
    return sorted(os.sched_getaffinity(0))


def pin(pid: int, chosen: Sequence[int]) -> None:
    """Keep a process, and what it will start, on these cores. With none, do nothing."""
    if chosen:
        os.sched_setaffinity(pid, chosen)


def free_port() -> int:
    """Return a port that nobody listens on at the moment."""
    with socket.create_server(("127.0.0.1", 0)) as sock:
        port: int = sock.getsockname()[1]
        return port


@contextmanager
def run_server(
    command: Sequence[str], *, log: Path, environment: Mapping[str, str], on: Sequence[int]
) -> Iterator[Family]:
    """Run a server in a session of its own; end all of it afterwards."""
    with log.open("ab") as output:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=dict(environment),
            cwd=log.parent,
            start_new_session=True,
        )
    try:
        pin(child.pid, on)
        yield Family(child.pid)
        if child.poll() is not None:
            raise Trouble(f"{Path(command[0]).name} ended by itself; see {log}")
    finally:
        _stop(child)


def _stop(child: subprocess.Popen[bytes]) -> None:
    """End the process, and then whatever is left of its session."""
    child.terminate()
    with suppress(subprocess.TimeoutExpired):
        child.wait(_STOP_SECONDS)
    deadline = time.monotonic() + _STOP_SECONDS
    while time.monotonic() < deadline:
        try:
            os.killpg(child.pid, signal.SIGKILL)
        except ProcessLookupError:
            break
        child.poll()
        time.sleep(0.01)
    child.wait(_STOP_SECONDS)
