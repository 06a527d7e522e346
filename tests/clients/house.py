"""A whole house for a client: a scripted model, and `antiphon serve` as a process before it.

The model is a chat-completions server on loopback that plays what the test tells it, turn by
turn, and keeps what it was sent. The gateway can be restarted on its port, as a user would do it
in the middle of a conversation. A client gets a home of its own and no way out of this machine.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import msgspec

from antiphon.testing import Script, ScriptedUpstream, Status
from tests.clients.install import node

__all__ = ["MODEL", "Done", "House", "Json", "Turn", "content", "environment", "open_house", "run"]

Json = dict[str, Any]
Turn = Script | Callable[[Json], Script]

MODEL: Final = "scripted-model"
PATIENCE: Final = 120.0
_START: Final = 60.0
_STOP: Final = 20.0
_LOG_LINES: Final = 200
_NOWHERE: Final = "http://127.0.0.1:9"
# What keeps clients from sending reports about their use to their makers.
_SILENT: Final = {
    "AGNO_TELEMETRY": "false",
    "ANONYMIZED_TELEMETRY": "False",
    "CREWAI_DISABLE_TELEMETRY": "true",
    "CREWAI_TRACING_ENABLED": "false",
    "DO_NOT_TRACK": "1",
    "HAYSTACK_TELEMETRY_ENABLED": "False",
    "MASTRA_TELEMETRY_DISABLED": "true",
    "OPENAI_AGENTS_DISABLE_TRACING": "1",
    "OTEL_SDK_DISABLED": "true",
}


class Done(msgspec.Struct, frozen=True):
    """A program that has ended: its exit code and what it printed."""

    code: int
    out: str
    err: str

    @property
    def events(self) -> list[Json]:
        """The printed lines that are JSON objects."""
        lines = [line for line in self.out.splitlines() if line.startswith("{")]
        return [msgspec.json.decode(line) for line in lines]


class House:
    """A scripted model and the gateway before it."""

    def __init__(
        self,
        folder: Path,
        store: str,
        settings: str,
        models: Sequence[str],
        env: Mapping[str, str],
    ) -> None:
        self.folder = folder
        self.base_url = ""
        """Where clients find the gateway; the same after a restart."""
        self.log: list[str] = []
        """What the gateways printed last, for when a test fails."""
        self._turns: list[Turn] = []
        self._store = store
        self._settings = settings
        self._more = env
        self._gateway: asyncio.subprocess.Process | None = None
        self._listener: asyncio.Task[None] | None = None
        self.upstream = ScriptedUpstream(self._next, models=models)

    def play(self, *turns: Turn) -> None:
        """Let the model answer with these from now on, one for each request."""
        self._turns[:] = turns

    @property
    def unplayed(self) -> int:
        """How many turns nobody has asked for yet."""
        return len(self._turns)

    @property
    def asked(self) -> list[Json]:
        """The bodies of all chat requests, oldest first."""
        return [request.json for request in self.upstream.requests]

    def _next(self, body: Json) -> Script:
        if not self._turns:
            return Script(faults=[Status(400, "the script has no more turns")])
        turn = self._turns.pop(0)
        return turn if isinstance(turn, Script) else turn(body)

    async def start(self) -> None:
        """Start the gateway; return when it serves."""
        config = self._write_settings()
        port = self.base_url.removesuffix("/v1").rpartition(":")[2] or "0"
        self._gateway = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "antiphon", "serve", "--port", port, "--store", self._store),
            *("--upstream", self.upstream.base_url, "--config", str(config)),
            cwd=self.folder,
            env=environment(self.folder, **_import_path(), **self._more),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        serving = asyncio.get_running_loop().create_future()
        self._listener = asyncio.create_task(self._listen(self._gateway, serving))
        self.base_url = await asyncio.wait_for(serving, _START)

    def _write_settings(self) -> Path:
        path = self.folder / "antiphon.toml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{self._settings}\n", "utf-8")
        return path

    async def _listen(
        self, gateway: asyncio.subprocess.Process, serving: asyncio.Future[str]
    ) -> None:
        """Keep the last lines, so that the gateway never waits for a reader."""
        assert gateway.stdout is not None
        async for raw in gateway.stdout:
            line = raw.decode("utf-8", "replace").rstrip()
            self.log = [*self.log[1 - _LOG_LINES :], line]
            if (found := re.search(r" serves (http://\S+)", line)) and not serving.done():
                serving.set_result(found[1])
        if not serving.done():
            serving.set_exception(RuntimeError("the gateway ended:\n" + "\n".join(self.log)))

    async def stop(self) -> None:
        """Stop the gateway as Ctrl-C does, and wait until it has ended."""
        gateway, listener = self._gateway, self._listener
        if gateway is None or listener is None:
            return
        if gateway.returncode is None:
            gateway.send_signal(signal.SIGINT)
        try:
            await asyncio.wait_for(gateway.wait(), _STOP)
        except TimeoutError:
            gateway.kill()
            await gateway.wait()
            raise
        finally:
            await listener
            self._gateway = None

    async def restart(self) -> None:
        """Stop the gateway and start it again at the same address, on the same store."""
        await self.stop()
        await self.start()


def _import_path() -> dict[str, str]:
    """Let the gateway be the code that is tested, also where it is not installed."""
    path = os.environ.get("PYTHONPATH")
    return {"PYTHONPATH": path} if path else {}


@asynccontextmanager
async def open_house(
    folder: Path,
    *turns: Turn,
    store: str = "memory:",
    settings: str = "",
    models: Sequence[str] = (MODEL,),
    env: Mapping[str, str] = MappingProxyType({}),
) -> AsyncIterator[House]:
    """Run a scripted model and a gateway before it.

    `settings` is what antiphon.toml shall say, `env` what the gateway's environment shall hold.
    `sqlite:` as the store stands for a file in `folder`, which outlives a restart.
    """
    where = f"sqlite:{folder / 'antiphon.db'}" if store == "sqlite:" else store
    house = House(folder, where, settings, models, env)
    house.play(*turns)
    async with house.upstream:
        await house.start()
        try:
            yield house
            assert not house.unplayed, f"nobody asked for the last {house.unplayed} turns"
        finally:
            await house.stop()


def environment(home: Path, **more: str) -> dict[str, str]:
    """Return the environment of a client: a home of its own, and only loopback to talk to."""
    temporary = home / "tmp"
    temporary.mkdir(parents=True, exist_ok=True)
    return {
        "PATH": f"{node().parent}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(home),
        "XDG_CONFIG_HOME": str(home / ".config"),
        "XDG_CACHE_HOME": str(home / ".cache"),
        "XDG_DATA_HOME": str(home / ".local" / "share"),
        "XDG_STATE_HOME": str(home / ".local" / "state"),
        "TMPDIR": str(temporary),
        "LANG": "C.UTF-8",
        "NO_COLOR": "1",
        "HTTP_PROXY": _NOWHERE,
        "HTTPS_PROXY": _NOWHERE,
        "ALL_PROXY": _NOWHERE,
        "NO_PROXY": "127.0.0.1,localhost",
        "NODE_USE_ENV_PROXY": "1",
        **_SILENT,
        **more,
    }


def content(path: Path) -> str:
    """Return what a client left in a file; empty if there is none."""
    return path.read_text("utf-8") if path.exists() else ""


async def run(
    *command: str | Path,
    cwd: Path,
    env: Mapping[str, str],
    patience: float = PATIENCE,
) -> Done:
    """Run a client to its end; it and what it started are killed if it takes too long."""
    process = await asyncio.create_subprocess_exec(
        *map(str, command),
        cwd=cwd,
        env=env,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    try:
        out, err = await asyncio.wait_for(process.communicate(), patience)
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    assert process.returncode is not None
    return Done(process.returncode, out.decode("utf-8"), err.decode("utf-8"))
