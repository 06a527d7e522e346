"""A command at a real terminal: a pseudo one, with a person who types and reads.

Reading waits for words and never for a time; the watchdog only ends a test that would hang.
"""

from __future__ import annotations

import asyncio
import codecs
import os
import re
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from tests.cli.processes import WATCHDOG_SECONDS, environment

__all__ = ["CTRL_D", "ENTER", "Terminal", "at_terminal"]

CTRL_D: Final = "\x04"
ENTER: Final = "\r"
_LOGIN: Final = """\
import os, sys
out = os.dup(1)
os.login_tty(0)
if not os.isatty(out):
    os.dup2(out, 1)
os.execv(sys.executable, [sys.executable, "-m", "antiphon", *sys.argv[1:]])
"""
# What only moves the cursor, hides it or switches something, and each turn of the spinner.
_NOT_TEXT: Final = re.compile(r"\x1b\[\?\d+[hlc]|\x1b\[\d*[ABCDHJKq]|\r(?=\r)|\r[⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏]")
_RESETS: Final = re.compile(r"(\x1b\[[1-9][0-9;]*m[^\x1b]*\x1b\[0m)|\x1b\[0m")
# The editor goes over spaces instead of writing them.
_SPACES: Final = re.compile(r"(?:\x08|\x1b\[(\d+)D)\x1b\[(\d+)C")


def _as_text(raw: str) -> str:
    """Return what a person reads, with the styles."""
    text = _SPACES.sub(lambda found: " " * (int(found[2]) - int(found[1] or 1)), raw)
    return _RESETS.sub(lambda found: found[1] or "", _NOT_TEXT.sub("", text))


class Terminal:
    """What was said so far, as text and as it came, and a way to type."""

    def __init__(self, master: int, process: asyncio.subprocess.Process) -> None:
        self.raw = ""
        self.said = ""
        self._heard = 0
        self._is_over = False
        self._master = master
        self._process = process
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._more = asyncio.Event()
        asyncio.get_running_loop().add_reader(master, self._read)

    def type(self, keys: str) -> None:
        """Press keys."""
        os.write(self._master, keys.encode())

    async def interrupt(self) -> None:
        """Press Ctrl-C when the program waits.

        While an answer arrives it is a signal, and at the prompt a key.
        """
        async with asyncio.timeout(WATCHDOG_SECONDS):
            while self._is_busy():  # noqa: ASYNC110 - a process that waits sets no event
                await asyncio.sleep(0)
        self.type("\x03")

    async def until_raw(self, words: str) -> None:
        """Wait until this is among all that the terminal was sent."""
        async with asyncio.timeout(WATCHDOG_SECONDS):
            while words not in self.raw:
                assert not self._is_over, f"{words!r} was never sent, but: {self.raw!r}"
                self._more.clear()
                await self._more.wait()

    async def until(self, words: str) -> str:
        """Wait for words that were not waited for yet; return what was said up to them."""
        try:
            async with asyncio.timeout(WATCHDOG_SECONDS):
                while (found := self.said.find(words, self._heard)) < 0:
                    assert not self._is_over, f"{words!r} was never said, but: {self.said!r}"
                    self._more.clear()
                    await self._more.wait()
        except TimeoutError:
            raise AssertionError(f"{words!r} was never said, but: {self.said!r}") from None
        heard, self._heard = self._heard, found + len(words)
        return self.said[heard : self._heard]

    async def end(self) -> int:
        """Wait for the program to end; return its exit code."""
        async with asyncio.timeout(WATCHDOG_SECONDS):
            return await self._process.wait()

    def _is_busy(self) -> bool:
        """Say whether the program does something, where the system tells."""
        status = Path(f"/proc/{self._process.pid}/stat")
        return status.exists() and status.read_text().rpartition(")")[2].split()[0] != "S"

    def _read(self) -> None:
        try:
            data = os.read(self._master, 65536)
        except OSError:  # how a terminal says that nobody is left
            data = b""
        if not data:
            self._is_over = True
            asyncio.get_running_loop().remove_reader(self._master)
        self.raw += self._decoder.decode(data)
        self.said = _as_text(self.raw)
        self._more.set()


@asynccontextmanager
async def at_terminal(
    *arguments: str, home: Path, extra: Mapping[str, str] | None = None, stdout: int | None = None
) -> AsyncIterator[Terminal]:
    """Run a command at a terminal of its own until the end; its stdout may go elsewhere."""
    import pty

    master, slave = pty.openpty()
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        _LOGIN,
        *arguments,
        cwd=home,
        env=environment(home, {"TERM": "xterm", "PYTHONUTF8": "1"} | dict(extra or {})),
        stdin=slave,
        stdout=slave if stdout is None else stdout,
        stderr=slave,
    )
    os.close(slave)
    try:
        yield Terminal(master, process)
    finally:
        asyncio.get_running_loop().remove_reader(master)
        if process.returncode is None:
            process.kill()
        await process.wait()
        os.close(master)
