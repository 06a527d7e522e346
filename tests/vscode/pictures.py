"""The pictures of the extension in its README and in docs/howto/vscode.md, taken in real VS Code.

python -m tests.vscode.pictures    writes editors/vscode/pictures/*.png
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from antiphon.testing import Call, Script
from tests.clients.install import ROOT
from tests.vscode.install import install
from tests.vscode.studio import Studio, open_studio
from tests.vscode.test_extension_chat import ENTRY, counted, refusal

__all__ = ["FOLDER", "main"]

FOLDER: Final = ROOT / "editors" / "vscode" / "pictures"
_NOTES: Final = {"heron.md": "Seen at dawn, near the weir.\n", "crane.md": "Two, flying south.\n"}
_ANSWER: Final = (
    "Your notes mention two birds:\n\n"
    "- **Heron**: seen at dawn, near the weir.\n"
    "- **Crane**: two of them, flying south.\n\n"
    "The cranes are on their way to the winter quarters; the heron stays."
)
_SIZE: Final = {"width": 940, "height": 720}
_WHOLE: Final = {"x": 0, "y": 0, **_SIZE}
_BELOW: Final = {"x": 240, "y": 400, "width": 700, "height": 320}


def _reading(path: Path, call_id: str) -> Call:
    arguments = json.dumps({"filePath": str(path), "startLine": 1, "endLine": 9})
    return Call("read_file", arguments, call_id)


async def _take(studio: Studio, name: str, clip: Mapping[str, int]) -> None:
    await studio.editor.order("picture", path=str(FOLDER / f"{name}.png"), clip=clip)


async def _take_all(studio: Studio) -> None:
    files = [studio.workspace / name for name in _NOTES]
    for file in files:
        file.write_text(_NOTES[file.name], "utf-8")
    for command in ("closeSidebar", "maximizeAuxiliaryBar"):
        await studio.probe.order("run", command=f"workbench.action.{command}")
    await studio.editor.order("resize", **_SIZE)
    calls = [_reading(file, f"call_{place}") for place, file in enumerate(files)]
    studio.house.play(
        Script(reasoning="The notes are two files; I read both.", calls=calls),
        Script(text=_ANSWER, usage=counted(34_210, 61, 30_789)),
    )
    await studio.editor.ask("Which birds are in my notes?")
    await studio.editor.unfold()
    await _take(studio, "chat", _WHOLE)
    await studio.editor.order(
        "hover", selector=f'.statusbar-item[id="{ENTRY}"]', shows="last turn", settles=True
    )
    await _take(studio, "usage", _BELOW)
    await studio.editor.start_chat()
    studio.tap.canned.append(refusal(401, "an API key is required"))
    await studio.editor.ask("Which bird was first?")
    await studio.editor.order("notified", text="an API key is required")
    await _take(studio, "key", _WHOLE)


async def main() -> None:
    """Open the editor, and take all pictures."""
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        async with open_studio(install(), Path(folder), FOLDER) as studio:
            await _take_all(studio)


if __name__ == "__main__":
    asyncio.run(main())
    print(*sorted(FOLDER.iterdir()), sep="\n", file=sys.stderr)
