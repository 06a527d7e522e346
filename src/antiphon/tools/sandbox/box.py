"""A running sandbox: cells and commands, their deadlines, and what ends them.

A request ends in one of these ways: the kernel reports its end; the deadline passes; a limit of
memory or disk is passed; the processes end; the caller goes away. In all cases but the first
everything in the sandbox is killed at once, and the next request starts it again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from antiphon.tools.sandbox.base import (
    CellEnd,
    CellOutput,
    SandboxFailed,
    SandboxLimits,
    ShellEnd,
)
from antiphon.tools.sandbox.channel import CellReport, ShellReport
from antiphon.tools.sandbox.process import SandboxProcess
from antiphon.tools.sandbox.usage import folder_bytes
from antiphon.tools.sandbox.watch import Watch

__all__ = ["RunningSandbox"]

Start = Callable[[], Awaitable[SandboxProcess]]
_TIMEOUT: Final = "timeout"
_MEMORY_KILL: Final = 137
_HOPELESS: Final = 2
"""So many times its limit the folder may have, for a request that deletes files to be run."""


class RunningSandbox:
    """Implements `Sandbox` over a process that `start` makes."""

    def __init__(
        self, start: Start, process: SandboxProcess, folder: Path, limits: SandboxLimits
    ) -> None:
        self._start = start
        self._process = process
        self._folder = folder
        self._limits = limits
        self._disk = folder_bytes(folder)
        self._is_closed = False
        self._is_busy = False
        self._why = ""

    @property
    def is_alive(self) -> bool:
        """Whether the interpreter runs and has its variables."""
        channel = self._process.channel
        return not (channel.is_closed or channel.fault) and self._process.exit_code is None

    @property
    def pid(self) -> int:
        """The process whose descendants are the sandbox."""
        return self._process.pid

    async def run(self, code: str, seconds: float) -> AsyncIterator[CellOutput | CellEnd]:
        """Run a cell; yield its output as it comes, and its end at last."""
        request = {"do": "cell", "code": code}
        async with self._request(request, seconds, self._limits.output_bytes):
            while outputs := await self._next_outputs():
                for output in outputs:
                    yield output
        yield self._cell_end()

    async def shell(
        self, command: str, seconds: float, output_bytes: int | None = None
    ) -> AsyncIterator[CellOutput | ShellEnd]:
        """Run a command with /bin/sh in /mnt/data, in the same sandbox as the cells."""
        kept = self._limits.output_bytes if output_bytes is None else output_bytes
        async with self._request({"do": "shell", "command": command}, seconds, kept):
            while outputs := await self._next_outputs():
                for output in outputs:
                    yield output
        yield self._shell_end()

    async def close(self) -> None:
        """Kill everything in it. The folder stays."""
        self._is_closed = True
        await self._process.end()

    @asynccontextmanager
    async def _request(
        self, request: dict[str, str], seconds: float, output_bytes: int
    ) -> AsyncGenerator[None, None]:
        """Send a request and keep its deadline and limits while the block reads its output.

        After the block either `_why` is set or the channel has the report. If the block is left
        early, everything is killed.
        """
        if self._is_busy:
            raise SandboxFailed("the sandbox is in use")
        self._is_busy, self._why = True, ""
        try:
            await self._revive()
            async with self._watched(seconds) as watch:
                await self._process.channel.send(request, output_bytes)
                yield
                await self._settle(watch)
        finally:
            self._is_busy = False

    @asynccontextmanager
    async def _watched(self, seconds: float) -> AsyncGenerator[Watch, None]:
        deadline = asyncio.get_running_loop().call_later(seconds, self._kill, _TIMEOUT)
        watch = Watch(self._process.pid, self._folder, self._limits, self._disk, self._kill)
        try:
            yield watch
        finally:
            deadline.cancel()
            watch.stop()
            if self._process.channel.report is None:
                self._kill("cancelled")
                await self._process.end()

    async def _next_outputs(self) -> list[CellOutput]:
        """Wait for output and return it; return nothing after the end of the request."""
        channel = self._process.channel
        while True:
            is_last = channel.report is not None or bool(channel.fault)
            if outputs := channel.take():
                return outputs
            if is_last:
                return []
            await channel.changed.wait()

    async def _settle(self, watch: Watch) -> None:
        """Wait for the processes if they ended; look at the limits once more."""
        if self._process.channel.report is None:
            await self._process.end()
            self._why = self._why or self._reason()
        self._disk = await watch.look()
        if self._why:
            await self._process.end()

    def _reason(self) -> str:
        """Why did the processes end by themselves?"""
        if self._process.channel.fault == "exit" and self._process.exit_code == _MEMORY_KILL:
            return "memory"
        return self._process.channel.fault

    async def _revive(self) -> None:
        if self._is_closed:
            raise SandboxFailed("the sandbox is closed")
        if self._disk > _HOPELESS * self._limits.disk_bytes:
            self._disk = await asyncio.to_thread(folder_bytes, self._folder)
        if self._disk > _HOPELESS * self._limits.disk_bytes:
            raise SandboxFailed("the files of the sandbox take too much room; delete some")
        if not self.is_alive:
            await self._process.end()
            self._process = await self._start()

    def _kill(self, why: str) -> None:
        self._why = self._why or why
        self._process.kill()

    def _cell_end(self) -> CellEnd:
        channel = self._process.channel
        if self._why == _TIMEOUT:
            return CellEnd("timeout", cut_bytes=channel.cut_bytes)
        if self._why or not isinstance(channel.report, CellReport):
            return CellEnd("killed", cut_bytes=channel.cut_bytes, why=self._why or "protocol")
        report = channel.report
        return CellEnd(report.outcome, report.traceback, channel.cut_bytes)

    def _shell_end(self) -> ShellEnd:
        channel = self._process.channel
        if self._why or not isinstance(channel.report, ShellReport):
            return ShellEnd(None, channel.cut_bytes, self._why or "protocol")
        return ShellEnd(channel.report.exit_code, channel.cut_bytes)
