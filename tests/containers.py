"""A double of the sandbox for tests: the contract of `tools.sandbox.base` without protection.

It runs the code of the tests in this process, with its folder in place of /mnt/data, and commands
with the shell of this machine. Code of a model must never reach it. Some texts stand for what
cannot be done here: `SLEEP` for a cell that takes too long, `DIE` for one that is killed, `HANG`
for one that waits for `FakeEngine.go_on`.
"""

from __future__ import annotations

import asyncio
import io
import time
import traceback
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from antiphon.backends.base import Backend
from antiphon.server.ids import IdMint
from antiphon.store.base import Store
from antiphon.store.memory import MemoryStore
from antiphon.testing.gateway import Gateway, serve_gateway
from antiphon.tools.base import ToolLimits
from antiphon.tools.code_interpreter import CodeInterpreter
from antiphon.tools.containers.service import ContainerService, FoundEngine
from antiphon.tools.containers.settings import CodeSettings, ContainerSettings
from antiphon.tools.sandbox.base import (
    CellEnd,
    CellOutput,
    Engine,
    SandboxFailed,
    SandboxLimits,
    ShellEnd,
)

PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010806000000"
    "1f15c4890000000d49444154789c6360f8cfc000000301010018dd8db00000000049454e44ae426082"
)


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = int(time.time())

    def __call__(self) -> int:
        return self.now


class FakeEngine:
    """Starts doubles. `started` are their folders, `open` those that are not closed."""

    name = "double"

    def __init__(self) -> None:
        self.started: list[Path] = []
        self.limits: list[SandboxLimits] = []
        self.readable: dict[str, Path] = {}
        self.open: list[FakeSandbox] = []
        self.go_on = asyncio.Event()
        self.hangs = asyncio.Event()
        self.is_broken = False
        self.closed = asyncio.Event()

    async def start(
        self, folder: Path, limits: SandboxLimits, *, readable: Mapping[str, Path] | None = None
    ) -> FakeSandbox:
        if self.is_broken:
            raise SandboxFailed("the sandbox does not start")
        self.started.append(folder)
        self.limits.append(limits)
        self.readable |= readable or {}
        sandbox = FakeSandbox(self, folder)
        self.open.append(sandbox)
        return sandbox

    async def close(self) -> None:
        for sandbox in list(self.open):
            await sandbox.close()


class FakeSandbox:
    """Runs code in this process."""

    def __init__(self, engine: FakeEngine, folder: Path) -> None:
        self._engine = engine
        self.folder = folder
        self.is_alive = True
        self._variables: dict[str, Any] = {}

    async def run(self, code: str, seconds: float) -> AsyncIterator[CellOutput | CellEnd]:
        if not self.is_alive:
            self._variables, self.is_alive = {}, True
        shown: list[CellOutput] = []
        end = CellEnd("ok")
        try:
            if "HANG" in code:
                self._engine.hangs.set()
                await self._engine.go_on.wait()
            exec(self._here(code), self._prepared(shown))  # the tests wrote it
        except BaseException as error:
            if isinstance(error, asyncio.CancelledError | GeneratorExit):
                self.is_alive = False
                raise
            end = CellEnd("error", traceback="".join(traceback.format_exception_only(error)))
        for name, outcome in (("SLEEP", "timeout"), ("DIE", "killed")):
            if name in code:
                self.is_alive = False
                end = CellEnd(outcome, why="memory" if name == "DIE" else "")  # type: ignore[arg-type]  # one of its words
        for one in shown:
            yield one
        yield end

    def _here(self, text: str) -> str:
        for inside, path in self._engine.readable.items():
            text = text.replace(inside, str(path))
        return text.replace("/mnt/data", str(self.folder))

    def _prepared(self, shown: list[CellOutput]) -> dict[str, Any]:
        def say(*words: object) -> None:
            text = " ".join(map(str, words)).replace(str(self.folder), "/mnt/data")
            shown.append(CellOutput("stdout", f"{text}\n"))

        self._variables |= {
            "print": say,
            "here": self.folder.joinpath,
            "display": lambda image: shown.append(CellOutput("image", image=image)),
            "PNG": PNG,
            **dict.fromkeys(("HANG", "SLEEP", "DIE")),
        }
        return self._variables

    async def shell(
        self, command: str, seconds: float, output_bytes: int | None = None
    ) -> AsyncIterator[CellOutput | ShellEnd]:
        if "SLEEP" in command:
            yield ShellEnd(None)
            return
        process = await asyncio.create_subprocess_shell(
            self._here(command),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd=self.folder,
        )
        assert process.stdout is not None and process.stderr is not None
        most, size = output_bytes or 1 << 20, 0
        try:
            while out := await process.stdout.read(1 << 16):
                text = out[: max(0, most - size)].decode()
                size += len(out)
                yield CellOutput("stdout", text.replace(str(self.folder), "/mnt/data"))
            if err := (await process.stderr.read())[:most]:
                yield CellOutput("stderr", err.decode().replace(str(self.folder), "/mnt/data"))
            await process.wait()
        finally:
            if process.returncode is None:
                self.is_alive = False
                process.kill()
                await process.communicate()  # closes the pipes
        if "DIE" in command:
            raise SandboxFailed("the sandbox has gone")
        yield ShellEnd(process.returncode, max(0, size - most))

    async def close(self) -> None:
        self.is_alive = False
        if self in self._engine.open:
            self._engine.open.remove(self)
            self._engine.closed.set()


def make_service(
    store: Store | None = None,
    engine: Engine | None = None,
    clock: Clock | None = None,
    limits: SandboxLimits | None = None,
    **settings: Any,
) -> ContainerService:
    """Return a service with a double, unless an engine is given."""
    chosen = engine or FakeEngine()

    async def found() -> FoundEngine:
        return FoundEngine(chosen)

    return ContainerService(
        store or MemoryStore(),
        IdMint(),
        clock or Clock(),
        find_engine=found,
        settings=ContainerSettings(**settings),
        limits=limits,
    )


async def upload(store: Store, name: str, data: bytes, owner: str = "local") -> str:
    """Store a file of a caller's; return its id."""
    from antiphon.store.base import StoredFile

    writer = await store.blobs.create(owner)
    await writer.write(data)
    file = StoredFile(
        id=f"file-{name}",
        filename=name,
        purpose="user_data",
        created_at=1,
        blob=await writer.finish(),
    )
    await store.files.add(owner, file)
    return file.id


async def read_blob(store: Store, blob: str, owner: str = "local") -> bytes:
    """Return the content of a blob."""
    data = io.BytesIO()
    while piece := await store.blobs.read(owner, blob, data.tell(), 1 << 20):
        data.write(piece)
    return data.getvalue()


@asynccontextmanager
async def serve_code(
    backend: Backend, service: ContainerService, tool_limits: ToolLimits | None = None
) -> AsyncIterator[Gateway]:
    """Run a gateway with a code interpreter over this service."""
    tools = [CodeInterpreter(service, CodeSettings(inline_image_bytes=1000))]
    async with serve_gateway(
        backend,
        store=service.store,
        tools=tools,
        tool_limits=tool_limits,
        containers=service,
    ) as gateway:
        yield gateway
