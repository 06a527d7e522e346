"""One cell or command in a sandbox: its deadline, its limits, and how it ends.

A request ends in one of these ways: the kernel reports its end; the deadline passes; a limit of
memory or disk is passed; the processes end; the caller goes away. In all cases but the first
everything in the sandbox is killed at once.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final, Literal, Self

from antiphon.tools.sandbox.base import CellEnd, CellOutput, SandboxLimits, ShellEnd
from antiphon.tools.sandbox.channel import CellReport, ShellReport
from antiphon.tools.sandbox.process import SandboxProcess
from antiphon.tools.sandbox.watch import Watch

__all__ = ["Request"]

_KINDS: Final = {"cell": b"C", "shell": b"S"}
_TIMEOUT: Final = "timeout"


class Request:
    """An asynchronous context manager around the reading of the output.

    `disk` is the size of the folder, before the request and, at the end, after it.
    """

    def __init__(
        self, process: SandboxProcess, folder: Path, limits: SandboxLimits, disk: int
    ) -> None:
        self.disk = disk
        self._process = process
        self._channel = process.channel
        self._why = ""
        self._watch = Watch(process.pid, folder, limits, disk, self._kill)
        self._deadline: asyncio.TimerHandle | None = None

    async def send(
        self, kind: Literal["cell", "shell"], text: str, seconds: float, output_bytes: int
    ) -> None:
        """Send it to the kernel; its time runs from now on."""
        loop = asyncio.get_running_loop()
        self._deadline = loop.call_later(seconds, self._kill, _TIMEOUT)
        await self._channel.send(_KINDS[kind], text, output_bytes)

    async def next_outputs(self) -> list[CellOutput]:
        """Wait for output and return it; return nothing after the end of the request."""
        while True:
            is_last = self._channel.report is not None or bool(self._channel.fault)
            if outputs := self._channel.take():
                return outputs
            if is_last:
                await self._settle()
                return []
            await self._channel.changed.wait()

    def cell_end(self) -> CellEnd:
        """Return the end of a cell, after the last output."""
        cut = self._channel.cut_bytes
        if self._why == _TIMEOUT:
            return CellEnd("timeout", cut_bytes=cut)
        if self._why or not isinstance(self._channel.report, CellReport):
            return CellEnd("killed", cut_bytes=cut, why=self._why or "protocol")
        words = self._channel.report.traceback
        return CellEnd("error" if words else "ok", words, cut)

    def shell_end(self) -> ShellEnd:
        """Return the end of a command, after the last output."""
        cut = self._channel.cut_bytes
        if self._why or not isinstance(self._channel.report, ShellReport):
            return ShellEnd(None, cut, self._why or "protocol")
        return ShellEnd(self._channel.report.exit_code, cut)

    async def __aenter__(self) -> Self:
        self._channel.report = None
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        """Keep nothing running: a request without a report is killed."""
        self._watch.stop()
        if self._deadline is not None:
            self._deadline.cancel()
        if self._why or self._channel.report is None:
            await self._process.end()

    async def _settle(self) -> None:
        """Wait for the processes if they ended; look at the limits once more."""
        if self._channel.report is None:
            await self._process.end()
            self._why = self._why or self._channel.fault
        self.disk = await self._watch.look()

    def _kill(self, why: str) -> None:
        self._why = self._why or why
        self._process.kill()
