"""One VS Code for all tests of it, and why an ordinary run of the tests leaves them out.

They need a browser and half a gigabyte of VS Code, so they are collected only with
`--vscode-app`, which `scripts/test-vscode` passes.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio

from tests.clients.house import House, open_house
from tests.vscode.editor import Editor, custom_endpoint, open_editor
from tests.vscode.install import browser, version
from tests.vscode.studio import Studio, open_studio
from tests.vscode.tap import Tap, open_tap


def pytest_addoption(parser: pytest.Parser) -> None:
    """Take where VS Code is, and where pictures of it go."""
    parser.addoption("--vscode-app", metavar="DIRECTORY", help="where VS Code was installed")
    parser.addoption("--pictures", metavar="DIRECTORY", help="keep a picture of each test there")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave these tests out where nobody said which VS Code to run."""
    return None if config.getoption("--vscode-app", None) else True


def pytest_report_header(config: pytest.Config) -> str | None:
    """Say what is about to run."""
    app = config.getoption("--vscode-app", None)
    return f"VS Code {version(Path(app))} in {browser().name}" if app else None


class Desk(msgspec.Struct, frozen=True):
    """VS Code at a workspace, the tap on its line, and the house with gateway and model."""

    editor: Editor
    tap: Tap
    house: House
    workspace: Path


@pytest_asyncio.fixture(loop_scope="session", scope="session")
async def opened(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Desk]:
    """VS Code with its window open, its model chosen; once for all tests."""
    folder = tmp_path_factory.mktemp("vscode")
    workspace = folder / "workspace"
    workspace.mkdir()
    home = folder / "home"
    home.mkdir()
    app = Path(request.config.getoption("--vscode-app"))
    pictures = Path(request.config.getoption("--pictures") or folder)
    async with (
        open_house(folder / "house", store="sqlite:", settings='reasoning_as = "summary"') as house,
        open_tap(house.base_url) as tap,
        open_editor(app, home, workspace, custom_endpoint(tap.base_url), pictures) as editor,
    ):
        yield Desk(editor, tap, house, workspace)


@pytest_asyncio.fixture(loop_scope="session")
async def desk(opened: Desk, request: pytest.FixtureRequest) -> AsyncIterator[Desk]:
    """The open VS Code in a new conversation; a picture of it is taken at the end."""
    await opened.editor.start_chat()
    opened.tap.exchanges.clear()
    opened.house.upstream.requests.clear()
    yield opened
    if pictures := request.config.getoption("--pictures"):
        await opened.editor.take_picture(Path(pictures) / f"{request.node.name}.png")


@pytest_asyncio.fixture(loop_scope="session", scope="session")
async def furnished(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Studio]:
    """VS Code with the extension installed from its file; once for all tests of it."""
    folder = tmp_path_factory.mktemp("extension")
    app = Path(request.config.getoption("--vscode-app"))
    pictures = Path(request.config.getoption("--pictures") or folder)
    async with open_studio(app, folder, pictures) as studio:
        yield studio


@pytest_asyncio.fixture(loop_scope="session")
async def studio(furnished: Studio, request: pytest.FixtureRequest) -> AsyncIterator[Studio]:
    """VS Code with the extension, in a new conversation; a picture is taken at the end."""
    await furnished.probe.order("run", command="notifications.clearAll")
    await furnished.editor.start_chat()
    await furnished.editor.order("choose", model="Scripted model")
    furnished.tap.exchanges.clear()
    furnished.house.upstream.requests.clear()
    yield furnished
    furnished.tap.canned.clear()
    furnished.tap.pages.clear()
    furnished.tap.play = lambda body: None
    if pictures := request.config.getoption("--pictures"):
        await furnished.editor.take_picture(Path(pictures) / f"{request.node.name}.png")
