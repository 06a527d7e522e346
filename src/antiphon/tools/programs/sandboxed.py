"""Run a program once in a sandbox of its own, as far as the recorded results reach.

A sandbox is started for each run and ended after it: no program sees what another one left. It has
no network, an empty folder, and the JavaScript engine as its only further file.
"""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from antiphon.tools.base import ToolFailed
from antiphon.tools.containers.service import ContainerService
from antiphon.tools.programs.settings import ProgramSettings
from antiphon.tools.sandbox.base import CellEnd, Sandbox, SandboxFailed
from antiphon.tools.sandbox.locked_folder import make_folder

__all__ = [
    "LIBRARY",
    "ProgramCall",
    "ProgramRecord",
    "ProgramResult",
    "ProgramState",
    "Programs",
    "find_library",
]

LIBRARY: Final = "/mnt/quickjs.abi3.so"
"""Where the engine is inside."""
_CELL: Final = Path(__file__).with_name("inside.py")
_TOO_LONG: Final = "it took too long and was stopped"


class ProgramCall(msgspec.Struct, frozen=True):
    """A call that a program makes. `arguments` are JSON."""

    name: str
    arguments: str


class ProgramResult(msgspec.Struct, frozen=True):
    """What a call returns in the program."""

    value: Any
    is_error: bool = False


class ProgramRecord(msgspec.Struct, frozen=True):
    """A call that the program made before, and its result."""

    name: str
    arguments: str | None
    """None if the item of the call does not have them: then the order of the calls counts."""
    result: ProgramResult


class ProgramOutput(msgspec.Struct, frozen=True):
    """What a program emitted."""

    type: Literal["text", "image"]
    text: str = ""
    url: str = ""


class ProgramState(msgspec.Struct, frozen=True):
    """How far a program came."""

    status: Literal["done", "waiting", "failed"]
    error: str = ""
    output: list[ProgramOutput] = []
    calls: list[ProgramCall] = []


def find_library() -> Path | None:
    """Return the file of the JavaScript engine; None if it is not installed."""
    spec = importlib.util.find_spec("_quickjs")
    return Path(spec.origin) if spec is not None and spec.origin else None


class Programs:
    """Runs the programs of this process, some at a time."""

    def __init__(self, containers: ContainerService, settings: ProgramSettings) -> None:
        self.settings = settings
        self._containers = containers
        self._room = asyncio.Semaphore(settings.running)

    async def why_not(self) -> str:
        """Return why no program can run here; nothing if one can."""
        if find_library() is None:
            return "quickjs-ng is not installed (pip install 'antiphon[sandbox]')"
        return await self._containers.why_not()

    async def run(
        self, code: str, names: Sequence[str], records: Sequence[ProgramRecord]
    ) -> ProgramState:
        """Return the state of a program after these results. Raise ToolFailed if it cannot run."""
        given = {
            "code": code,
            "names": names,
            "records": records,
            "memory_bytes": self.settings.memory_bytes,
            "most_calls": self.settings.calls,
        }
        literal = ascii(msgspec.json.encode(given).decode())
        cell = f"{_CELL.read_text()}\nmain({literal})"
        async with self._room:
            try:
                return await self._run(cell)
            except SandboxFailed as error:
                raise ToolFailed(str(error)) from None

    async def _run(self, cell: str) -> ProgramState:
        library, engine = find_library(), await self._containers.engine()
        assert library is not None, "why_not() was not asked"
        folder = await asyncio.to_thread(make_folder, self._containers.settings.folder)
        try:
            sandbox = await engine.start(
                folder.path / "data", self._containers.limits, readable={LIBRARY: library}
            )
            try:
                return await _run_cell(sandbox, cell, self.settings.seconds)
            finally:
                await sandbox.close()
        finally:
            await asyncio.to_thread(folder.remove)


async def _run_cell(sandbox: Sandbox, cell: str, seconds: float) -> ProgramState:
    printed: list[str] = []
    end = CellEnd("killed")
    async with aclosing(sandbox.run(cell, seconds)) as given:  # type: ignore[type-var]  # a generator
        async for one in given:
            if isinstance(one, CellEnd):
                end = one
            elif one.kind == "stdout":
                printed.append(one.text)
    if end.outcome == "timeout":
        return ProgramState("failed", _TOO_LONG)
    if end.cut_bytes:
        return ProgramState("failed", "its output is too long")
    if end.outcome == "killed":
        return ProgramState("failed", f"it was killed: {end.why or 'it ended'}")
    try:
        return msgspec.json.decode("".join(printed), type=ProgramState)
    except msgspec.DecodeError:
        why = end.traceback.strip().rpartition("\n")[2] or "it did not report its end"
        raise ToolFailed(f"the JavaScript engine does not run in the sandbox: {why}") from None
