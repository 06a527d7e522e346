"""VS Code with the extension, and all that stands behind and beside it.

The extension is installed from its file. A second one, the probe, uses the editor's API for the
tests and has a scripted model. The gateway has the editor as a provider.
"""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from tests.clients.house import MODEL, House, open_house
from tests.vscode.editor import Editor, Setup, custom_endpoint, open_editor
from tests.vscode.probe import PROBE_FOLDER, Probe, await_probe
from tests.vscode.tap import Tap, open_tap
from tests.vscode.vsix import build

__all__ = ["KNOWN", "SMALL", "Studio", "open_studio"]

SMALL = "small-model"
KNOWN = "gpt-4o"
"""A model whose tokenizer is known."""
SETTINGS = f"""
[models."{MODEL}"]
display_name = "Scripted model"
context_length = 128000
max_output_tokens = 8000
modalities = ["text", "image"]

[models."{SMALL}"]
display_name = "Small model"
context_length = 50000
max_output_tokens = 4000
"""


class Studio(msgspec.Struct, frozen=True):
    """VS Code with the extension, and all that stands behind and beside it."""

    editor: Editor
    tap: Tap
    house: House
    probe: Probe
    workspace: Path
    home: Path
    offer: Path
    """The file that names where the editor offers its own models."""


@asynccontextmanager
async def open_studio(app: Path, folder: Path, pictures: Path) -> AsyncIterator[Studio]:
    """Run VS Code with the extension, in a folder of its own."""
    workspace, home = folder / "workspace", folder / "home"
    workspace.mkdir()
    home.mkdir()
    models = (MODEL, SMALL, KNOWN)
    offer = home / ".local" / "share" / "antiphon" / "editor.json"
    settings = f'{SETTINGS}\n[providers.editor]\nwire_api = "host"\npath = "{offer}"\n'
    async with (
        open_house(folder / "house", store="sqlite:", settings=settings, models=models) as house,
        open_tap(house.base_url) as tap,
        await_probe() as probe,
    ):
        setup = Setup(
            model="Scripted model",
            machine={"antiphon.url": tap.base_url, "antiphon.command": str(_program())},
            files=custom_endpoint(tap.base_url, "Custom model").files,
            vsix=[build(folder / "antiphon.vsix")],
            folders=[PROBE_FOLDER],
            # The last two are for a gateway that the extension starts.
            environ={
                **probe.environ,
                **_import_path(),
                "ANTIPHON_UPSTREAM": house.upstream.base_url,
                "ANTIPHON_STORE": "memory:",
            },
        )
        async with open_editor(app, home, workspace, setup, pictures) as editor:
            found = await probe.found()
            yield Studio(editor, tap, house, found, workspace, home, offer)


def _program() -> Path:
    return Path(sys.executable).parent / "antiphon"


def _import_path() -> dict[str, str]:
    """Let the bridge be the code that is tested, also where it is not installed."""
    path = os.environ.get("PYTHONPATH")
    return {"PYTHONPATH": path} if path else {}
