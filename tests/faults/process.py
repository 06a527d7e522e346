"""A real gateway in a process of its own, to be stopped, killed, limited and measured."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from tests.asking import Answer
from tests.faults.house import PATIENCE

__all__ = ["GatewayProcess", "serve_process"]

_MIB = 1024 * 1024


class GatewayProcess:
    """`antiphon serve` while it runs."""

    def __init__(self, process: asyncio.subprocess.Process, base_url: str) -> None:
        self.base_url = base_url
        self._process = process

    @property
    def pid(self) -> int:
        """The process, or the parent of the workers."""
        return self._process.pid

    async def request(self, method: str, path: str, body: object = None) -> Answer:
        """Ask for any path below /v1."""
        data = None if body is None else msgspec.json.encode(body)
        timeout = aiohttp.ClientTimeout(total=PATIENCE)
        headers = {} if data is None else {"Content-Type": "application/json"}
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.request(method, self.base_url + path, data=data, headers=headers) as answer,
        ):
            return Answer(answer.status, answer.headers, await answer.read())

    async def ask(self, **body: Any) -> Answer:
        """Create a response."""
        return await self.request("POST", "/responses", {"input": "hello"} | body)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process."""
        self._process.send_signal(number)

    async def ended(self) -> int:
        """Wait for the end of the process; return its exit code."""
        async with asyncio.timeout(PATIENCE):
            return await self._process.wait()

    async def kill(self) -> None:
        """Kill it as `kill -9` does."""
        self._process.kill()
        await self.ended()

    def workers(self) -> list[int]:
        """Return the processes it has started."""
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children")
        return [int(number) for number in children.read_text().split()]

    def memory(self) -> float:
        """Return the memory that it holds now, in MiB."""
        return self._status("VmRSS")

    def forget_peak(self) -> None:
        """Let the highest memory be that of now."""
        Path(f"/proc/{self.pid}/clear_refs").write_text("5")

    def peak_memory(self) -> float:
        """Return the most memory that it has held, in MiB."""
        return self._status("VmHWM")

    def limit_files(self, size: int | None) -> None:
        """Let no file grow beyond this size, as on a full disk; None takes the limit away."""
        import resource  # there is none on Windows

        limit = resource.RLIM_INFINITY if size is None else size
        hard = resource.prlimit(self.pid, resource.RLIMIT_FSIZE)[1]
        resource.prlimit(self.pid, resource.RLIMIT_FSIZE, (limit, hard))

    def limit_open_files(self) -> None:
        """Let the process open no further file or connection."""
        import resource  # there is none on Windows

        opened = {int(file.name) for file in Path(f"/proc/{self.pid}/fd").iterdir()}
        lowest = next(number for number in range(len(opened) + 1) if number not in opened)
        hard = resource.prlimit(self.pid, resource.RLIMIT_NOFILE)[1]
        resource.prlimit(self.pid, resource.RLIMIT_NOFILE, (lowest, hard))

    def allow_open_files(self) -> None:
        """Let it open as many as the system allows."""
        import resource

        hard = resource.prlimit(self.pid, resource.RLIMIT_NOFILE)[1]
        resource.prlimit(self.pid, resource.RLIMIT_NOFILE, (hard, hard))

    def _status(self, name: str) -> float:
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            field, _, value = line.partition(":")
            if field == name:
                return int(value.split()[0]) * 1024 / _MIB
        raise LookupError(name)


@asynccontextmanager
async def serve_process(
    folder: Path,
    upstream: str,
    *,
    workers: int = 1,
    limits: Mapping[str, float] = {},
    upstream_limits: Mapping[str, float] = {},
    more: str = "",
) -> AsyncIterator[GatewayProcess]:
    """Run `antiphon serve` on a free port with its store in this folder; kill it in the end.

    `more` is added to its configuration.
    """
    config = folder / "antiphon.toml"
    config.write_text(
        f'port = 0\nupstream = "{upstream}"\ndefault_model = "echo"\nworkers = {workers}\n'
        f'store = "sqlite:{folder / "antiphon.db"}"\n'
        + _table("limits", limits)
        + _table("upstream_limits", upstream_limits)
        + more
    )
    environment = {k: v for k, v in os.environ.items() if not k.startswith("ANTIPHON_")}
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "antiphon", "serve", "--config", str(config), "--log-level", "warning"),
        stdout=asyncio.subprocess.PIPE,
        env=environment,
        cwd=folder,
    )
    try:
        yield GatewayProcess(process, await _read_url(process))
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        process._transport.close()  # type: ignore[attr-defined]  # asyncio closes pipes late


def _table(name: str, values: Mapping[str, float]) -> str:
    return f"[{name}]\n" + "".join(f"{key} = {value}\n" for key, value in values.items())


async def _read_url(process: asyncio.subprocess.Process) -> str:
    """Return the URL that the process says it serves, once it answers there."""
    assert process.stdout is not None
    async with asyncio.timeout(PATIENCE):
        line = (await process.stdout.readline()).decode()
        url = line.split()[-1]
        assert url.startswith("http://"), line
        health = url.replace("/v1", "/healthz")
        async with aiohttp.ClientSession() as session, session.get(health) as answer:
            assert answer.status == 200, await answer.read()
    return url
