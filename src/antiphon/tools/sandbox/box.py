"""A running sandbox: one request at a time, on processes that are started again when they ended."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path
from typing import Final

from antiphon.tools.sandbox.base import (
    CellEnd,
    CellOutput,
    SandboxFailed,
    SandboxLimits,
    ShellEnd,
)
from antiphon.tools.sandbox.process import SandboxProcess
from antiphon.tools.sandbox.request import Request
from antiphon.tools.sandbox.usage import folder_bytes

__all__ = ["RunningSandbox"]

Start = Callable[[], Awaitable[SandboxProcess]]
_HOPELESS: Final = 2
"""So many times its limit the folder may have, for a request that deletes files to be run."""


class RunningSandbox:
    """Implements `Sandbox` over processes that `start` makes."""

    def __init__(
        self, start: Start, process: SandboxProcess, folder: Path, limits: SandboxLimits
    ) -> None:
        self._start = start
        self._process = process
        self._folder = folder
        self._limits = limits
        self._disk = folder_bytes(folder)
        self.is_closed = False
        self._is_busy = False

    @property
    def is_alive(self) -> bool:
        """Whether the interpreter runs and has its variables."""
        channel = self._process.channel
        return not (channel.is_closed or channel.fault) and self._process.exit_code is None

    @property
    def pid(self) -> int:
        """The process whose descendants are the sandbox."""
        return self._process.pid

    async def run(self, code: str, seconds: float) -> AsyncGenerator[CellOutput | CellEnd, None]:
        """Run a cell; yield its output as it comes, and its end at last."""
        async with await self._take() as request:
            try:
                await request.send("cell", code, seconds, self._limits.output_bytes)
                while outputs := await request.next_outputs():
                    for output in outputs:
                        yield output
            finally:
                self._release(request)
        yield request.cell_end()

    async def shell(
        self, command: str, seconds: float, output_bytes: int | None = None
    ) -> AsyncGenerator[CellOutput | ShellEnd, None]:
        """Run a command with /bin/sh in /mnt/data, in the same sandbox as the cells."""
        kept = self._limits.output_bytes if output_bytes is None else output_bytes
        async with await self._take() as request:
            try:
                await request.send("shell", command, seconds, kept)
                while outputs := await request.next_outputs():
                    for output in outputs:
                        yield output
            finally:
                self._release(request)
        yield request.shell_end()

    async def close(self) -> None:
        """Kill everything in it. The folder stays."""
        self.is_closed = True
        await self._process.end()

    async def _take(self) -> Request:
        """Return a request on live processes. Raise SandboxFailed."""
        if self._is_busy:
            raise SandboxFailed("the sandbox is in use")
        self._is_busy = True
        try:
            await self._revive()
            return Request(self._process, self._folder, self._limits, self._disk)
        except BaseException:
            self._is_busy = False
            raise

    def _release(self, request: Request) -> None:
        self._is_busy = False
        self._disk = request.disk

    async def _revive(self) -> None:
        if self.is_closed:
            raise SandboxFailed("the sandbox is closed")
        if self._disk > _HOPELESS * self._limits.disk_bytes:
            self._disk = await asyncio.to_thread(folder_bytes, self._folder)
        if self._disk > _HOPELESS * self._limits.disk_bytes:
            raise SandboxFailed("the files of the sandbox take too much room; delete some")
        if not self.is_alive:
            await self._process.end()
            self._process = await self._start()
