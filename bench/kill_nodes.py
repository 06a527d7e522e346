"""Gateways that a crash test starts, kills and starts again: only its own, all on loopback."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import aiohttp
from processes import HERE, Trouble

__all__ = ["Node", "database"]

_START_SECONDS: Final = 30.0
_STOP_SECONDS: Final = 45.0


class Node:
    """One `antiphon serve` on a free port, which keeps its name through its deaths."""

    def __init__(self, name: str, directory: Path, *, store: str, upstream: str) -> None:
        self.name = name
        self.url = ""
        self.is_up = False
        self.life = 0
        """Counts its starts and its deaths."""
        self.started_at = 0.0
        self.source: Path | None = None
        """The folder `src` of another version, which the next start runs instead of this one."""
        self._flags = ("--store", store, "--upstream", upstream, "--log-level", "warning")
        self.directory = directory
        self._log = directory / f"{name}.log"
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Start, and return when it answers."""
        environment = {k: v for k, v in os.environ.items() if not k.startswith("ANTIPHON_")}
        if self.source is not None:
            environment["PYTHONPATH"] = str(self.source)
        self.started_at = time.monotonic()
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "antiphon", "serve", "--port", "0", *self._flags),
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                env=environment,
                cwd=self.directory,
            )
        assert self._process.stdout is not None
        try:
            async with asyncio.timeout(_START_SECONDS):
                line = (await self._process.stdout.readline()).decode()
                found = re.search(r"http://127\.0\.0\.1:\d+", line)
                if found is None:
                    raise Trouble(f"{self.name} did not start: {self.last_words}")
                self.url = f"{found[0]}/v1"
                await self._until_ready(found[0])
        except TimeoutError:
            raise Trouble(f"{self.name} did not answer in time: {self.last_words}") from None
        self.is_up = True
        self.life += 1

    async def kill(self) -> float:
        """End it as a power cut would; return when that was, by the clock of the loop."""
        assert self._process is not None
        self.is_up = False
        self.life += 1
        moment = time.monotonic()
        self._process.send_signal(signal.SIGKILL)
        await self._reap()
        return moment

    async def stop(self) -> None:
        """End it as it should be ended, if it runs."""
        if self._process is None or self._process.returncode is not None:
            return
        self.is_up = False
        self._process.terminate()
        try:
            async with asyncio.timeout(_STOP_SECONDS):
                await self._reap()
        except TimeoutError:
            self._process.kill()
            await self._reap()

    @property
    def last_words(self) -> str:
        """The last line of its log."""
        lines = self._log.read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it said nothing"

    @property
    def tracebacks(self) -> int:
        """How often it ran into something that nobody had thought of."""
        return self._log.read_text(errors="replace").count("Traceback (most recent call last)")

    async def _until_ready(self, root: str) -> None:
        async with aiohttp.ClientSession() as session:
            while True:
                try:
                    async with session.get(f"{root}/readyz") as answer:
                        if answer.status == 200:
                            return
                except aiohttp.ClientConnectionError:
                    pass
                await asyncio.sleep(0.02)

    async def _reap(self) -> None:
        assert self._process is not None
        await self._process.wait()
        self._process._transport.close()  # type: ignore[attr-defined]  # asyncio closes pipes late


@asynccontextmanager
async def database(kind: str, directory: Path) -> AsyncIterator[str]:
    """Yield the URL of a store that is new: a file, or a database on a server of our own."""
    if kind == "sqlite":
        yield f"sqlite:{directory / 'store.db'}"
        return
    sys.path.insert(0, str(HERE.parent))
    from tests.postgres import fresh_database

    async with fresh_database() as url:
        yield url
