"""A gateway in a process of its own whose settings are reloaded, and what it reports of that."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from tests.asking import Answer
from tests.cli.processes import WATCHDOG_SECONDS, Served, start
from tests.gateway.managers import Manager

__all__ = ["Reloaded", "provider", "reloaded"]


def provider(name: str, base_url: str) -> str:
    """Return the settings of a provider."""
    return f'[providers.{name}]\nbase_url = "{base_url}"\n'


class Reloaded:
    """The gateway, its file, and the service manager that it reports to."""

    def __init__(self, served: Served, config: Path, manager: Manager) -> None:
        self.served = served
        self.base_url = served.base_url
        self._config = config
        self._manager = manager

    async def reload(self, config: str | None = None) -> str:
        """Write this file and reload it; return what is reported of that."""
        if config is not None:
            self._config.write_text(config)
        self.served.process.send_signal(signal.SIGHUP)
        seen = await asyncio.to_thread(self._manager.until, "READY=1")
        begun, status, _ = seen
        assert begun.startswith("RELOADING=1\nMONOTONIC_USEC="), seen
        return status.removeprefix("STATUS=")

    def wait_for(self, message: str) -> None:
        """Wait until the service manager has got this message."""
        self._manager.until(message)

    @property
    def log(self) -> str:
        """What it has logged."""
        return self.served.errors.read_text()

    async def request(self, method: str, path: str, body: object = None, **more: Any) -> Answer:
        """Ask on a new connection, which any worker may take."""
        timeout = aiohttp.ClientTimeout(total=WATCHDOG_SECONDS)
        data = None if body is None else msgspec.json.encode(body)
        headers = {"Content-Type": "application/json"} if data else {}
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.request(
                method, self.base_url + path, data=data, headers=headers, **more
            ) as got,
        ):
            return Answer(got.status, got.headers, await got.read())

    async def ask(self, model: str = "echo", **body: Any) -> Answer:
        """Create a response."""
        return await self.request("POST", "/responses", {"model": model, "input": "hi"} | body)

    async def models(self) -> set[str]:
        """Return the names of the models that are served."""
        listed = (await self.request("GET", "/models")).json["data"]
        return {one["id"] for one in listed}

    async def metrics(self) -> bytes:
        """Return the counts."""
        url = self.base_url.removesuffix("/v1") + "/metrics"
        async with aiohttp.ClientSession() as session, session.get(url) as got:
            return await got.read()

    def workers(self) -> set[int]:
        """Return the processes that it has started."""
        pid = self.served.process.pid
        return set(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))


@asynccontextmanager
async def reloaded(
    home: Path, config: str, *flags: str, extra: Mapping[str, str] | None = None
) -> AsyncIterator[Reloaded]:
    """Run a gateway with these settings until the end."""
    manager = Manager(home / "notify")
    path = home / "antiphon.toml"
    path.write_text(config)
    environ = {"NOTIFY_SOCKET": str(manager.path), **(extra or {})}
    served = await asyncio.to_thread(start, *flags, home=home, extra=environ)
    try:
        await asyncio.to_thread(manager.until, "READY=1")
        yield Reloaded(served, path, manager)
        if served.process.poll() is None:
            assert await asyncio.to_thread(served.stop) == 0, served.errors.read_text()
    finally:
        if served.process.poll() is None:
            served.process.kill()
            served.process.wait()
        assert served.process.stdout is not None
        served.process.stdout.close()
        manager.close()
