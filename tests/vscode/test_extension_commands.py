"""What the user does with the extension: its commands and settings, and a gateway it starts."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

import pytest
import pytest_asyncio

from antiphon.testing import Script
from tests.clients.house import MODEL
from tests.vscode.studio import KNOWN, SMALL, Studio
from tests.vscode.tap import Canned

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="session")]


def _free_port() -> int:
    """Return a port at which nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


@pytest_asyncio.fixture(loop_scope="session")
async def restored(studio: Studio) -> AsyncIterator[Studio]:
    """The editor, whose settings are as before in the end."""
    found = await studio.probe.order("settings", names=["antiphon.url", "antiphon.command"])
    yield studio
    await studio.probe.order("configure", setting="antiphon.startGateway", value=False)
    for name, value in found.items():
        await studio.probe.order("configure", setting=name, value=value)
    await studio.probe.order("model", model=f"antiphon/{MODEL}", exists=True)


async def test_a_server_that_answers_is_described(studio: Studio) -> None:
    await studio.probe.order("run", command="antiphon.checkServer", wait=False)

    shown = await studio.editor.order("notified", text="answers and has the models")

    assert f"{MODEL}, {SMALL}, {KNOWN}" in shown
    assert studio.tap.base_url in shown


async def test_the_dashboard_of_the_server_is_opened(studio: Studio) -> None:
    await studio.probe.order("run", command="antiphon.openDashboard", wait=False)

    port = urlsplit(studio.tap.base_url).port
    opened = await studio.editor.order("opened", text=str(port))

    assert opened.endswith("/ui")


async def test_a_server_without_a_dashboard_says_so(studio: Studio) -> None:
    studio.tap.pages["/ui"] = Canned(404, b"{}")
    await studio.probe.order("run", command="antiphon.openDashboard", wait=False)

    await studio.editor.order("notified", text="has no dashboard")


async def test_another_server_is_chosen_by_its_url(restored: Studio) -> None:
    url = f"http://127.0.0.1:{_free_port()}/v1"
    await restored.probe.order("run", command="antiphon.selectEndpoint", wait=False)
    await restored.editor.order("fill", prompt="Another server", text="Another")
    await restored.editor.order("fill", prompt="usually ends in /v1", text=url, replaces=True)

    await restored.probe.order("model", model=f"antiphon/{MODEL}", exists=False)
    await restored.probe.order("run", command="antiphon.checkServer", wait=False)
    problem = await restored.editor.order("notified", text="Start Local Gateway")
    found = await restored.probe.order("settings", names=["antiphon.url"])

    assert found == {"antiphon.url": url}
    assert url.removeprefix("http://").removesuffix("/v1") in problem


async def test_a_missing_program_is_named_with_what_to_do(restored: Studio) -> None:
    await restored.probe.order("configure", setting="antiphon.command", value="/nowhere/antiphon")
    await restored.probe.order("run", command="antiphon.checkServer", wait=False)

    shown = await restored.editor.order("notified", text="Choose Program", button="How to Install")
    await restored.editor.order("tab", title="Preview readme.md")
    await restored.probe.order("run", command="workbench.action.closeAllEditors")

    assert "antiphon.command names /nowhere/antiphon, which is not a program." in shown
    assert "How to Install" in shown


async def test_a_gateway_is_started_when_nothing_answers(restored: Studio) -> None:
    """It finds its upstream in the environment of the editor, as `antiphon serve` does."""
    url = f"http://127.0.0.1:{_free_port()}/v1"
    restored.house.play(Script(text="From a gateway of the window."))

    await restored.probe.order("configure", setting="antiphon.startGateway", value=True)
    await restored.probe.order("configure", setting="antiphon.url", value=url)
    await restored.probe.order("model", model=f"antiphon/{MODEL}", exists=True)
    asked = await restored.probe.ask(f"antiphon/{MODEL}", "Who are you?")

    assert (asked.text, asked.error) == ("From a gateway of the window.", None)
    assert restored.tap.exchanges == []
