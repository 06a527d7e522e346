"""Codex on a model of an editor: it runs commands and changes files, with one connection."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from antiphon.backends.host import HostBackend
from antiphon.testing import serve_gateway
from antiphon.transport.http import Limits
from tests.clients.codex import Codex, Transport, catalog, items, messages
from tests.host_upstream import call, serve_editor, text

pytestmark = pytest.mark.slow

PATCH = "*** Begin Patch\n*** Add File: new.txt\n+first\n*** End Patch\n"


@pytest.mark.parametrize("transport", ["http", "websocket"])
async def test_codex_runs_a_command_and_a_patch(
    home: Path, work: Path, tmp_path: Path, transport: Transport
) -> None:
    async with serve_editor(tmp_path / "editor.json") as editor:
        backend = HostBackend(editor.path, limits=Limits(connect=60.0))
        async with serve_gateway({"editor": backend}) as gateway, asyncio.timeout(240):
            editor.play(
                [editor.thought("I look first."), call("exec_command", "c1", cmd="echo seen")],
                [call("apply_patch", "c2", input=PATCH)],
                text("Done."),
            )
            keys = await catalog(gateway, home)
            codex = Codex(home, work, gateway.base_url, transport, keys=keys, model="gpt-5")
            done = await codex.ask("Do it.")

    assert editor.problems == []
    assert messages(done) == ["Done."]
    (command,) = items(done, "command_execution")
    assert "seen" in command["aggregated_output"]
    assert (work / "new.txt").read_text() == "first\n"
    assert len(editor.hellos) == 1
    sent = [part["type"] for message in editor.messages for part in message["content"]]
    assert sent.count("tool_call") == sent.count("tool_result") == 2
    assert "thinking" in sent
