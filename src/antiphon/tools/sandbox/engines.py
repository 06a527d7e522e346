"""How are sandboxes made? Of bubblewrap with sandlock inside, or of bubblewrap alone.

An engine only starts sandboxes; whether it is good enough to be used is found out by `probe.py`.
sandlock alone is no engine: it has no process namespace, so a process that leaves its session
outlives a killed gateway, and it can only show the folder as /mnt/data by rewriting paths.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal

from antiphon.tools.sandbox.base import SandboxFailed, SandboxLimits
from antiphon.tools.sandbox.box import RunningSandbox
from antiphon.tools.sandbox.bwrap import HOME, INSIDE, SYSTEM_LINKS, environment, wrap
from antiphon.tools.sandbox.process import Command, SandboxProcess, start_process
from antiphon.tools.sandbox.pythons import Interpreter, own_interpreter
from antiphon.tools.sandbox.seccomp import deny_filter

__all__ = ["ENGINES", "EngineName", "LocalEngine", "make_engine", "missing_parts"]

EngineName = Literal["bwrap+sandlock", "bwrap"]
ENGINES: Final[tuple[EngineName, ...]] = ("bwrap+sandlock", "bwrap")
"""All there are, the strongest first."""
_HERE: Final = Path(__file__).parent


def missing_parts(name: EngineName) -> str:
    """Return what must be installed before the engine can be used, or nothing."""
    missing = []
    if shutil.which("bwrap") is None:
        missing.append("bubblewrap (Debian: apt install bubblewrap)")
    if "sandlock" in name and importlib.util.find_spec("sandlock") is None:
        missing.append("sandlock (pip install 'antiphon[sandbox]')")
    return " and ".join(missing)


def make_engine(name: EngineName, python: Interpreter | None = None) -> LocalEngine:
    """Return an engine that runs this interpreter. Raise SandboxFailed if a part is missing."""
    if sys.platform != "linux":
        raise SandboxFailed("sandboxes need Linux")
    if missing := missing_parts(name):
        raise SandboxFailed(f"{missing} is not installed")
    return LocalEngine(name, python or own_interpreter())


class LocalEngine:
    """Starts sandboxes as processes of this machine."""

    def __init__(self, name: EngineName, python: Interpreter) -> None:
        self._name = name
        self._python = python
        self._running: set[RunningSandbox] = set()

    @property
    def name(self) -> EngineName:
        """For messages: which sandboxes it is made of."""
        return self._name

    async def start(
        self, folder: Path, limits: SandboxLimits, *, readable: Mapping[str, Path] | None = None
    ) -> RunningSandbox:
        """Start a sandbox whose /mnt/data is this folder. Raise SandboxFailed."""
        command = self.command(folder, limits, readable or {})

        async def begin() -> SandboxProcess:
            return await start_process(command, limits.image_bytes)

        sandbox = RunningSandbox(begin, await begin(), folder, limits)
        self._running = {other for other in self._running if not other.is_closed} | {sandbox}
        return sandbox

    async def close(self) -> None:
        """Kill all sandboxes."""
        running, self._running = self._running, set()
        for sandbox in running:
            await sandbox.close()

    def command(self, folder: Path, limits: SandboxLimits, readable: Mapping[str, Path]) -> Command:
        """Return the command that starts a sandbox of this kind."""
        folder = Path(os.path.realpath(folder))
        if self._name == "bwrap":
            return self._bwrap(folder, limits, readable)
        return self._both(folder, limits, readable)

    def _bwrap(self, folder: Path, limits: SandboxLimits, readable: Mapping[str, Path]) -> Command:
        program = deny_filter()
        words = wrap(
            _bwrap_program(),
            self._python.program,
            folder,
            limits,
            folders=self._python.folders,
            hidden=self._python.hidden,
            files={"kernel.py": _HERE / "kernel.py"},
            readable=readable,
            options=("--info-fd", "{info}", *(("--seccomp", "{filter}") if program else ())),
        )
        return Command((*words, *self._kernel(limits, f"{INSIDE}/kernel.py")), True, program)

    def _both(self, folder: Path, limits: SandboxLimits, readable: Mapping[str, Path]) -> Command:
        own = own_interpreter()
        folders = (*self._python.folders, *own.folders)
        sandlock = _sandlock_folder()
        words = wrap(
            _bwrap_program(),
            self._python.program,
            folder,
            limits,
            folders=folders,
            hidden=(*self._python.hidden, *_only_of(own, self._python)),
            files={
                "kernel.py": _HERE / "kernel.py",
                "launch.py": _HERE / "launch.py",
                "sandlock": sandlock,
            },
            readable=readable,
            options=("--info-fd", "{info}"),
        )
        kernel = self._kernel(limits, f"{INSIDE}/kernel.py")
        system = ["/usr", "/etc", *(path for path in SYSTEM_LINKS if Path(path).exists())]
        paths = [*system, *folders, INSIDE, *readable]
        plan = {
            "sandlock": INSIDE,
            "sandbox": {**_policy(limits, paths), "env": environment(self._python.program)},
            "command": kernel,
        }
        launch = (own.program, *own.options, f"{INSIDE}/launch.py", json.dumps(plan))
        return Command((*words, *launch), True)

    def _kernel(self, limits: SandboxLimits, path: str) -> tuple[str, ...]:
        names = ("memory_bytes", "file_bytes", "open_files", "processes", "image_bytes")
        chosen = [f"{name}={getattr(limits, name)}" for name in names]
        return (self._python.program, *self._python.options, path, *chosen)


def _policy(limits: SandboxLimits, readable: list[str]) -> dict[str, Any]:
    """Return the arguments of sandlock's sandbox.

    Its limit of memory is not used: it kills where the limit of the process raises MemoryError.
    """
    devices = ["/dev/null", "/dev/zero", "/dev/urandom", "/dev/random", "/proc"]
    return {
        "fs_readable": [*dict.fromkeys(readable), *devices],
        "fs_writable": [HOME, "/tmp", "/dev/shm", "/dev/null"],  # noqa: S108 - inside
        "extra_deny_syscalls": ["memfd_create"],
        "clean_env": True,
        "max_processes": limits.processes,
        "max_open_files": limits.open_files,
        "no_coredump": True,
        "cwd": HOME,
    }


def _only_of(own: Interpreter, python: Interpreter) -> list[str]:
    """Return what is hidden of our interpreter, unless the other one reads its packages there."""
    return [path for path in own.hidden if not _is_in(path, python.folders)]


def _is_in(path: str, folders: tuple[str, ...]) -> bool:
    return any(Path(path).is_relative_to(folder) for folder in folders)


def _bwrap_program() -> str:
    found = shutil.which("bwrap")
    if found is None:
        raise SandboxFailed("bubblewrap is not installed")
    return found


def _sandlock_folder() -> Path:
    spec = importlib.util.find_spec("sandlock")
    if spec is None or spec.origin is None:
        raise SandboxFailed("sandlock is not installed")
    return Path(os.path.realpath(spec.origin)).parent
