"""Real VS Code: its server as a process, its window in a browser, and a user at the chat.

It gets a home, a user directory and an extension directory of its own, no telemetry, no updates,
and nobody to talk to but this machine. The model is set up as a user does it: with a group in
`chatLanguageModels.json`, or by installing the extension from its file.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import shutil
import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final

import msgspec

from antiphon.cli.connect.recipes import RECIPES
from antiphon.cli.connect.target import Target
from antiphon.host.models import ModelAbilities, ModelDescription
from tests.clients.house import MODEL, environment, run
from tests.clients.install import node
from tests.vscode.install import browser

__all__ = ["Answer", "Editor", "Setup", "code_command", "custom_endpoint", "open_editor"]

_PATIENCE: Final = 600.0
_STOP: Final = 30.0
_MAX_LINE: Final = 1024 * 1024
_NAME: Final = "Scripted model"
_SETTINGS: Final[Mapping[str, object]] = {
    "chat.allowAnonymousAccess": True,
    "chat.byokUtilityModelDefault": "none",
    "extensions.autoCheckUpdates": False,
    "extensions.autoUpdate": False,
    "remote.autoForwardPorts": False,
    "security.workspace.trust.enabled": False,
    "telemetry.telemetryLevel": "off",
    "update.mode": "none",
    "workbench.enableExperiments": False,
    "workbench.secondarySideBar.defaultVisibility": "visible",
    "workbench.startupEditor": "none",
}


class Answer(msgspec.Struct, frozen=True):
    """What the chat panel shows of the latest answer."""

    answer: str
    errors: tuple[str, ...]
    tools: tuple[str, ...]
    """The steps with tools, as the panel puts them."""
    thinking: tuple[str, ...]


class Setup(msgspec.Struct, frozen=True, kw_only=True):
    """How VS Code is set up before it starts."""

    model: str
    """The name of the model that is chosen in the picker."""
    opens_list: bool = False
    """Whether the list of models is opened first, for providers that are asked only then."""
    files: Mapping[str, str] = {}
    """Files of the user, beside `settings.json`."""
    settings: Mapping[str, object] = {}
    machine: Mapping[str, object] = {}
    """Settings that a workspace must not change; they belong to the machine of the server."""
    vsix: Sequence[Path] = ()
    """Extensions to install."""
    folders: Sequence[Path] = ()
    """Extensions to copy."""
    environ: Mapping[str, str] = {}


def custom_endpoint(base_url: str, name: str = _NAME) -> Setup:
    """Return a setup with the gateway at `base_url` as an endpoint of VS Code's own provider."""
    model = ModelDescription(
        id=MODEL,
        name=name,
        family="",
        capabilities=ModelAbilities(),
        context_window=128_000,
        max_output_tokens=8_000,
    )
    connected = RECIPES["vscode"].piece(Target(base_url, (model,)))
    return Setup(model=name, opens_list=True, files={"chatLanguageModels.json": connected.paste()})


class Editor:
    """The chat of an open VS Code."""

    def __init__(self, driver: asyncio.subprocess.Process) -> None:
        self._driver = driver

    async def start_chat(self) -> None:
        """Begin a conversation that remembers nothing."""
        await self.order("start")

    async def ask(self, text: str) -> Answer:
        """Type a question, and return the answer when it has ended."""
        return msgspec.convert(await self.order("ask", text=text), Answer)

    async def unfold(self) -> str:
        """Open the steps of the latest answer; return all that is to be seen of it then."""
        return str(await self.order("unfold"))

    async def take_picture(self, path: Path) -> None:
        """Write a PNG of the window."""
        await self.order("picture", path=str(path))

    async def order(self, name: str, **rest: object) -> Any:  # Any: each order has its own answer
        """Have the driver do something; raise RuntimeError with its words if it cannot."""
        stdin, stdout = self._driver.stdin, self._driver.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(msgspec.json.encode({"do": name, **rest}) + b"\n")
        await stdin.drain()
        line = await asyncio.wait_for(stdout.readline(), _PATIENCE)
        answer = msgspec.json.decode(line or b'{"error": "the driver has ended"}')
        if "error" in answer:
            raise RuntimeError(f"{name}: {answer['error']}")
        return answer["ok"]


@asynccontextmanager
async def open_editor(
    app: Path, folder: Path, workspace: Path, setup: Setup, pictures: Path
) -> AsyncIterator[Editor]:
    """Run the VS Code of `app` on a workspace, with its model chosen.

    `folder` becomes its home. A window that does not get ready leaves its picture.
    """
    _write_settings(folder / "data", setup)
    await _install(app, folder, setup)
    async with AsyncExitStack() as stack:
        url = await stack.enter_async_context(_serve(app, folder, workspace, setup))
        program = Path(__file__).parent / "driver.mjs"
        driver = await stack.enter_async_context(
            _process(folder, [node(), program, app, browser(), folder / "browser"], {})
        )
        editor = Editor(driver)
        try:
            await editor.order("open", url=url, model=setup.model, loads=setup.opens_list)
        except RuntimeError:
            await editor.take_picture(pictures / "open.png")
            raise
        yield editor


def _write_settings(data: Path, setup: Setup) -> None:
    user, machine = data / "User", data / "Machine"
    user.mkdir(parents=True)
    machine.mkdir()
    (machine / "settings.json").write_text(json.dumps(setup.machine), "utf-8")
    (user / "settings.json").write_text(json.dumps({**_SETTINGS, **setup.settings}), "utf-8")
    for name, text in setup.files.items():
        (user / name).write_text(text, "utf-8")


async def _install(app: Path, folder: Path, setup: Setup) -> None:
    for source in setup.folders:
        shutil.copytree(source, folder / "extensions" / f"tests.{source.name}-0.0.1")
    for vsix in setup.vsix:
        done = await run(
            *code_command(app, folder),
            *("--install-extension", vsix),
            cwd=folder,
            env=environment(folder, SHELL="/bin/sh"),
            patience=_PATIENCE,
        )
        assert done.code == 0, f"{vsix} could not be installed: {done.out}{done.err}"


def code_command(app: Path, folder: Path) -> list[str | Path]:
    """Return the command of the editor, whose data and extensions are in a folder."""
    return [
        *(node(), app / "node_modules" / "code-server" / "out" / "node" / "entry.js"),
        *("--user-data-dir", folder / "data", "--extensions-dir", folder / "extensions"),
    ]


@asynccontextmanager
async def _serve(app: Path, folder: Path, workspace: Path, setup: Setup) -> AsyncIterator[str]:
    """Run the server of VS Code; yield the address of its window."""
    command = [
        *code_command(app, folder),
        *("--auth", "none", "--bind-addr", "127.0.0.1:0", "--ignore-last-opened"),
        *("--disable-telemetry", "--disable-update-check", "--disable-workspace-trust"),
        workspace,
    ]
    async with _process(folder, command, setup.environ) as server:
        assert server.stdout is not None
        address = await asyncio.wait_for(_read_address(server.stdout), _PATIENCE)
        listener = asyncio.create_task(_drain(server.stdout))
        try:
            yield f"{address}?folder={workspace}"
        finally:
            listener.cancel()
            await asyncio.gather(listener, return_exceptions=True)


async def _read_address(out: asyncio.StreamReader) -> str:
    said = ""
    async for line in out:
        said += line.decode("utf-8", "replace")
        if found := re.search(r"HTTP server listening on (http://\S+)", said):
            return found[1]
    raise RuntimeError(f"VS Code did not start:\n{said}")


async def _drain(out: asyncio.StreamReader) -> None:
    """Read on, so that the server never waits for a reader."""
    while await out.read(_MAX_LINE):
        pass


@asynccontextmanager
async def _process(
    folder: Path, command: Sequence[str | Path], environ: Mapping[str, str]
) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run a program until it is no longer needed; then it and all that it started end."""
    with (folder / "errors.log").open("ab") as errors:
        process = await asyncio.create_subprocess_exec(
            *map(str, command),
            cwd=folder,
            env=environment(folder, SHELL="/bin/sh", **environ),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=errors,
            limit=_MAX_LINE,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        await _end(process)


async def _end(process: asyncio.subprocess.Process) -> None:
    """Tell it that nobody is there any more, then to stop, then stop it."""
    assert process.stdin is not None
    process.stdin.close()
    for step in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, step)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), _STOP)
