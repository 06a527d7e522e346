"""The contract of the sandbox: programs of models run here, and nowhere else.

An `Engine` starts sandboxes. Each has one folder of the host as its /mnt/data, no network, no
other file of the host that is not needed to run Python, and limits. In it runs an interpreter
that keeps its variables between cells, and shell commands beside it. A sandbox is used by one
caller at a time.

An engine is used only after it has been attacked and has held (`probe`). Without one, no program
is run: never unprotected.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Final, Literal, Protocol

import msgspec

__all__ = [
    "CellEnd",
    "CellOutput",
    "Engine",
    "Sandbox",
    "SandboxFailed",
    "SandboxLimits",
    "ShellEnd",
]

_MIB = 1024 * 1024
_NONE: Final[Mapping[str, Path]] = MappingProxyType({})


class SandboxLimits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a sandbox may take. Configurable under `[sandbox]`."""

    memory_bytes: Annotated[int, msgspec.Meta(ge=64 * _MIB)] = 1024 * _MIB
    """What one process may take, and all of them together."""
    processes: Annotated[int, msgspec.Meta(ge=8)] = 32
    open_files: Annotated[int, msgspec.Meta(ge=32)] = 256
    file_bytes: Annotated[int, msgspec.Meta(gt=0)] = 256 * _MIB
    """How large one file may become."""
    disk_bytes: Annotated[int, msgspec.Meta(gt=0)] = 1024 * _MIB
    """How large all files of /mnt/data may become together."""
    output_bytes: Annotated[int, msgspec.Meta(gt=0)] = 1 * _MIB
    """How much of the output of a cell is kept; the rest is counted, and the cut is stated."""
    image_bytes: Annotated[int, msgspec.Meta(gt=0)] = 8 * _MIB
    """How large one displayed image may be."""
    cell_seconds: Annotated[float, msgspec.Meta(gt=0)] = 60.0


class CellOutput(msgspec.Struct, frozen=True):
    """Something that a cell has put out: text of stdout or stderr, or a displayed PNG image."""

    kind: Literal["stdout", "stderr", "image"]
    text: str = ""
    image: bytes = b""


class CellEnd(msgspec.Struct, frozen=True):
    """A cell has ended. After `timeout` and `killed` the variables are lost.

    `traceback` is set for `error`. `cut_bytes` counts the output that was not kept.
    """

    outcome: Literal["ok", "error", "timeout", "killed"]
    traceback: str = ""
    cut_bytes: int = 0
    why: str = ""
    """Why it was killed, for caller and model: memory, disk, exit."""


class ShellEnd(msgspec.Struct, frozen=True):
    """A shell command has ended. Without `exit_code` it was killed, and all variables are lost."""

    exit_code: int | None
    cut_bytes: int = 0
    why: str = ""
    """Why it has no exit code: timeout, memory, disk, exit (of the interpreter)."""


class SandboxFailed(Exception):
    """The sandbox cannot be started or used. Caller and model may read the text."""


class Sandbox(Protocol):
    """A running sandbox."""

    @property
    def is_alive(self) -> bool:
        """Whether the interpreter runs and has its variables."""
        ...

    def run(self, code: str, seconds: float) -> AsyncIterator[CellOutput | CellEnd]:
        """Run a cell; yield its output as it comes, and its end at last.

        An asynchronous generator. A dead interpreter is started again first. If the caller stops
        iterating or is cancelled, everything in the sandbox is killed.
        """
        ...

    def shell(
        self, command: str, seconds: float, output_bytes: int | None = None
    ) -> AsyncIterator[CellOutput | ShellEnd]:
        """Run a command with /bin/sh in /mnt/data, in the same sandbox as the cells."""
        ...

    async def close(self) -> None:
        """Kill everything in it. The folder stays."""
        ...


class Engine(Protocol):
    """Starts sandboxes."""

    @property
    def name(self) -> str:
        """For messages: which sandboxes it is made of."""
        ...

    async def start(
        self, folder: Path, limits: SandboxLimits, *, readable: Mapping[str, Path] = _NONE
    ) -> Sandbox:
        """Start a sandbox whose /mnt/data is this folder.

        `readable` are further folders, read-only: from the absolute path inside, such as
        /mnt/skills/NAME, to the folder of the host. Raise SandboxFailed.
        """
        ...

    async def close(self) -> None:
        """Kill all sandboxes."""
        ...
