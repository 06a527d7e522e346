"""The playground, keys, files, tools, health and logins in a real browser, on real gateways.

Heavy: only scripts/test-more runs it, which installs a browser first (`tests.ui.install`).
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import msgspec
import pytest

from tests.clients.install import node, node_modules
from tests.tools.mcp.servers import calls_in
from tests.ui.install import NPM
from tests.ui.workshop import open_workshop
from tests.vscode.install import browser

pytestmark = pytest.mark.heavy

_FLOWS = Path(__file__).parent / "work.mjs"
_PATIENCE = 1500


async def test_every_flow_works_without_a_violation(tmp_path: Path) -> None:
    async with open_workshop(tmp_path) as workshop:
        facts = {
            **workshop.facts,
            "python": sys.executable,
            "script": str(tmp_path / "asked.py"),
        }
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
        added = calls_in(workshop.log, "add")
    results = [msgspec.json.decode(line) for line in output.splitlines()]
    print(*(one["flow"] for one in results), sep="\n")
    assert run.returncode == 0
    assert {one["flow"]: one["error"] for one in results if one["error"]} == {}
    assert len(results) >= 60
    # One was approved and one needed no approval; the one that was denied did not run.
    assert [call["arguments"] for call in added] == [{"a": 2, "b": 3}] * 2
