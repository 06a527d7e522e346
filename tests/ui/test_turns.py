"""Rounds, trees and conversations in a real browser, on a real gateway.

Heavy: only scripts/test-more runs it, which installs a browser first (`tests.ui.install`).
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from tests.clients.install import node, node_modules
from tests.ui.house_turns import open_turns
from tests.ui.install import NPM
from tests.vscode.install import browser

pytestmark = pytest.mark.heavy

_FLOWS = Path(__file__).parent / "turns.mjs"
_PATIENCE = 1200


async def test_every_flow_works_without_a_violation(tmp_path: Path) -> None:
    async with open_turns(tmp_path) as facts:
        arguments = [
            str(node_modules(NPM)),
            str(browser()),
            str(tmp_path / "profile"),
            msgspec.json.encode(facts).decode(),
        ]
        run = await asyncio.create_subprocess_exec(
            str(node()), str(_FLOWS), *arguments, stdout=asyncio.subprocess.PIPE
        )
        try:
            async with asyncio.timeout(_PATIENCE):
                output, _ = await run.communicate()
        finally:
            if run.returncode is None:
                run.kill()
    results = [msgspec.json.decode(line) for line in output.splitlines()]
    print(*(one["flow"] for one in results), sep="\n")
    assert run.returncode == 0
    assert {one["flow"]: one["error"] for one in results if one["error"]} == {}
    assert len(results) >= 30
