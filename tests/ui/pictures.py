"""Take the pictures of the dashboard for docs/ui, in both colour schemes.

python -m tests.ui.pictures
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Any, Final

import msgspec

from tests.clients.install import ROOT, node, node_modules
from tests.ui.house import open_house
from tests.ui.house_turns import open_turns
from tests.ui.install import NPM
from tests.ui.workshop import open_workshop
from tests.vscode.install import browser

_FOLDER: Final = ROOT / "docs" / "ui"
_SCRIPT: Final = Path(__file__).parent / "pictures.mjs"
_WORK: Final = Path(__file__).parent / "pictures_work.mjs"


async def _take_turns() -> int:
    """Take those of rounds, trees and conversations."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        async with open_turns(folder) as facts:
            run = await asyncio.create_subprocess_exec(
                str(node()),
                str(_SCRIPT.with_name("pictures_turns.mjs")),
                str(node_modules(NPM)),
                str(browser()),
                str(folder / "profile"),
                msgspec.json.encode(facts).decode(),
                str(_FOLDER),
            )
            return await run.wait()


async def _take() -> int:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        async with open_house(folder) as house:
            facts = {
                "root": house.root,
                "story": house.story,
                "live": msgspec.json.decode(house.live),
            }
            failed = await _run(_SCRIPT, folder / "profile", facts)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        async with open_workshop(folder, embedded=False) as workshop:
            return failed or await _run(_WORK, folder / "profile", workshop.facts)


async def _run(script: Path, profile: Path, facts: dict[str, Any]) -> int:
    arguments = (node_modules(NPM), browser(), profile)
    run = await asyncio.create_subprocess_exec(
        str(node()),
        str(script),
        *map(str, arguments),
        msgspec.json.encode(facts).decode(),
        str(_FOLDER),
    )
    return await run.wait()


if __name__ == "__main__":
    raise SystemExit(asyncio.run(_take()) or asyncio.run(_take_turns()))
