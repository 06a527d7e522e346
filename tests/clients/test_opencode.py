"""opencode with what `antiphon connect opencode --write` writes: one turn with its shell tool."""

from __future__ import annotations

import json
import platform
import sys
from pathlib import Path

import pytest

from antiphon.testing import Call, Script
from tests.clients.codex import offered, pairs
from tests.clients.house import MODEL, House, Json, content, environment, run
from tests.clients.install import OPENCODE_LOCK, node_modules

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        (sys.platform, platform.machine()) != ("linux", "x86_64"),
        reason="only the program for Linux on x86-64 is pinned",
    ),
]


def play(body: Json) -> Script:
    """Name the session, call the shell, or answer: opencode asks for the first two at once."""
    if "bash" not in offered(body):
        return Script(text="Six times seven")
    if pairs(body):
        return Script(text="It is forty-two.")
    arguments = {"command": "echo $((6 * 7)) | tee answer", "description": "Multiplies."}
    return Script(calls=[Call("bash", json.dumps(arguments), id="call_1")])


@pytest.mark.turn("opencode", "works with what `antiphon connect opencode --write` wrote")
@pytest.mark.turn("opencode", "runs a command with its shell tool and answers", transport="http")
async def test_a_command_runs_and_its_output_reaches_the_model(
    house: House, home: Path, work: Path
) -> None:
    env = environment(home, OPENCODE_DISABLE_AUTOUPDATE="1", OPENCODE_DISABLE_MODELS_FETCH="1")
    connect = (sys.executable, "-m", "antiphon", "connect", "opencode", "--url", house.base_url)
    written = await run(*connect, "--write", cwd=work, env=env)
    assert written.code == 0, written.err

    house.play(play, play, play)
    program = node_modules(OPENCODE_LOCK.parent) / "opencode-linux-x64" / "bin" / "opencode"
    asking = ("run", "--format", "json", "--model", f"antiphon/{MODEL}", "Six times seven?")
    done = await run(program, *asking, cwd=work, env=env)

    assert done.code == 0, done.out + done.err
    (used,) = [event["part"] for event in done.events if event["type"] == "tool_use"]
    assert used["state"]["output"] == content(work / "answer") == "42\n"
    assert [e["part"]["text"] for e in done.events if e["type"] == "text"] == ["It is forty-two."]
    last = house.asked[-1]
    assert [(name, output) for name, _, output in pairs(last)] == [("bash", "42\n")]
