"""Coding agents that know only chat completions, with what `antiphon connect` writes for them."""

from __future__ import annotations

import json
import platform
import sys
from pathlib import Path

import pytest

from antiphon.testing import Call, Script
from tests.clients.codex import offered, pairs
from tests.clients.house import House, Json, content, environment, run
from tests.clients.install import (
    AGENTS_LOCK,
    AIDER_LOCK,
    IS_PYTHON_OF_AIDER,
    node,
    node_modules,
    python,
)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        (sys.platform, platform.machine()) != ("linux", "x86_64"),
        reason="only the programs for Linux on x86-64 are pinned",
    ),
]

_QUESTION = "Six times seven?"
_COMMAND = "echo $((6 * 7)) | tee answer"
_ANSWER = "It is forty-two."


def _program(*parts: str) -> Path:
    return node_modules(AGENTS_LOCK.parent).joinpath(*parts)


async def _connect(client: str, house: House, home: Path, work: Path, *flags: str) -> None:
    """Run `antiphon connect` for a client, which must succeed."""
    command = (sys.executable, "-m", "antiphon", "connect", client, "--url", house.base_url)
    done = await run(*command, *flags, cwd=work, env=environment(home))
    assert done.code == 0, done.err


def _play(house: House, tool: str, arguments: Json) -> None:
    """Call the shell once, then answer."""

    def call(body: Json) -> Script:
        assert tool in offered(body)
        return Script(calls=[Call(tool, json.dumps(arguments), id="call_1")])

    house.play(call, Script(text=_ANSWER))


def _check(house: House, work: Path) -> None:
    """The command ran, and its output reached the model."""
    assert content(work / "answer") == "42\n"
    ((_, _, output),) = pairs(house.asked[-1])
    assert "42" in output


@pytest.mark.turn("cline", "works with what `antiphon connect cline --write` wrote")
@pytest.mark.turn("cline", "runs a command with its shell tool and answers", transport="http")
async def test_cline_runs_a_command(house: House, home: Path, work: Path) -> None:
    await _connect("cline", house, home, work, "--write")
    _play(house, "run_commands", {"commands": [_COMMAND]})
    cline = _program("@cline", "cli-linux-x64", "bin", "cline")
    done = await run(cline, "--json", _QUESTION, cwd=work, env=environment(home))
    (result,) = [event for event in done.events if event["type"] == "run_result"]
    assert (result["finishReason"], result["text"]) == ("completed", _ANSWER), done.out + done.err
    _check(house, work)
    await _connect("cline", house, home, work, "--undo")
    settings = home / ".cline" / "data" / "settings" / "providers.json"
    assert house.base_url not in content(settings)


@pytest.mark.turn("continue", "works with what `antiphon connect continue --write` wrote")
@pytest.mark.turn("continue", "runs a command with its shell tool and answers", transport="http")
async def test_continue_runs_a_command(house: House, home: Path, work: Path) -> None:
    await _connect("continue", house, home, work, "--write")
    _play(house, "Bash", {"command": _COMMAND})
    cn = _program("@continuedev", "cli", "dist", "cn.js")
    env = environment(home, CONTINUE_TELEMETRY_ENABLED="0")
    done = await run(node(), cn, "-p", _QUESTION, "--allow", "Bash", cwd=work, env=env)
    assert (done.code, done.out.strip()) == (0, _ANSWER), done.out + done.err
    _check(house, work)
    await _connect("continue", house, home, work, "--undo")
    assert not (home / ".continue" / "config.yaml").exists()


def _edit(number: int) -> Script:
    """Write a number to a file, in the format of Aider, which uses no tools."""
    return Script(text=f"I write it.\n\nanswer\n```\n{number}\n```\n")


@pytest.mark.skipif(not IS_PYTHON_OF_AIDER, reason="Aider needs a Python before 3.13")
@pytest.mark.turn("aider", "works with what `antiphon connect aider --write` wrote")
@pytest.mark.turn(
    "aider", "edits a file, tests it, and edits it again after the failure", transport="http"
)
async def test_aider_edits_again_after_a_failed_test(house: House, home: Path, work: Path) -> None:
    await _connect("aider", house, home, work, "--write")
    house.play(_edit(41), _edit(42))
    aider = python(AIDER_LOCK).parent / "aider"
    check = "grep -x 42 answer || { echo wrong: $(cat answer); false; }"
    done = await run(
        *(aider, "--message", _QUESTION, "--yes-always", "--no-git", "--no-check-update"),
        *("--auto-test", "--test-cmd", check, "answer"),
        cwd=work,
        env=environment(home),
    )
    assert done.code == 0, done.out + done.err
    assert content(work / "answer") == "42\n", done.out + done.err
    first, second = house.asked
    assert first["stream"] is True
    assert first["messages"][-1]["content"].startswith(_QUESTION)
    assert "wrong: 41" in second["messages"][-1]["content"]
    assert sum("POST /v1/chat/completions 200" in line for line in house.log) == 2
    await _connect("aider", house, home, work, "--undo")
    assert not (home / ".aider.conf.yml").exists()
