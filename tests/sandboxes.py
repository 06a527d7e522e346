"""Sandboxes for tests: bubblewrap from Debian where the system has none, and a folder to run in.

A test that needs an engine which cannot be had here is skipped and says why; with
ANTIPHON_NEEDS_SANDBOX=1 it fails.

    python -m tests.sandboxes    fetches bubblewrap and prints where it is
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from antiphon.tools.sandbox.base import CellEnd, CellOutput, SandboxLimits, ShellEnd
from antiphon.tools.sandbox.box import RunningSandbox
from antiphon.tools.sandbox.engines import EngineName, LocalEngine, make_engine, missing_parts
from antiphon.tools.sandbox.pythons import Interpreter
from tests import debian

__all__ = ["PATIENCE", "Ran", "bubblewrap", "engine", "opened", "run", "shell"]

PATIENCE = 60.0


class Ran:
    """What a cell or a command has put out, and how it ended."""

    def __init__(self) -> None:
        self.stdout = self.stderr = ""
        self.images: list[bytes] = []
        self.pieces: list[CellOutput] = []
        self.end: CellEnd = CellEnd("killed")
        self.exit: ShellEnd = ShellEnd(None)

    def add(self, output: CellOutput | CellEnd | ShellEnd) -> None:
        """Note one thing that came out."""
        match output:
            case CellEnd():
                self.end = output
            case ShellEnd():
                self.exit = output
            case CellOutput():
                self.pieces.append(output)
                self.stdout += output.text if output.kind == "stdout" else ""
                self.stderr += output.text if output.kind == "stderr" else ""
                self.images += [output.image] if output.kind == "image" else []


@functools.cache
def bubblewrap() -> str:
    """Put bubblewrap on the PATH of this process. Return why it cannot be had, or nothing."""
    try:
        found = debian.install("bwrap", "bubblewrap", "sandbox", "--version")
    except debian.Missing as error:
        return str(error)
    os.environ["PATH"] = f"{os.environ.get('PATH', '')}{os.pathsep}{found.parent}"
    return ""


def engine(name: EngineName, python: Interpreter | None = None) -> LocalEngine:
    """Return an engine, or skip the test."""
    if reason := bubblewrap() or missing_parts(name):
        if os.environ.get("ANTIPHON_NEEDS_SANDBOX") == "1":
            pytest.fail(f"{name} cannot be used: {reason}")
        pytest.skip(f"{name} cannot be used: {reason}")
    return make_engine(name, python)


@asynccontextmanager
async def opened(
    maker: LocalEngine, folder: Path, limits: SandboxLimits | None = None
) -> AsyncIterator[RunningSandbox]:
    """Yield a sandbox and close it."""
    sandbox = await maker.start(folder, limits or SandboxLimits())
    try:
        yield sandbox
    finally:
        await sandbox.close()


async def run(sandbox: RunningSandbox, code: str, seconds: float = PATIENCE) -> Ran:
    """Run a cell to its end."""
    ran = Ran()
    async for output in sandbox.run(code, seconds):
        ran.add(output)
    return ran


async def shell(sandbox: RunningSandbox, command: str, seconds: float = PATIENCE) -> Ran:
    """Run a command to its end."""
    ran = Ran()
    async for output in sandbox.shell(command, seconds):
        ran.add(output)
    return ran


def main() -> int:
    """Fetch bubblewrap, and print where it is. Return the exit code."""
    if reason := bubblewrap():
        print(reason, file=sys.stderr)
        return 1
    print(debian.find("bwrap", "bubblewrap", "sandbox"))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
