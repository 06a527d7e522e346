"""Claude Code, as a user has it: what `antiphon connect` writes, what `antiphon run` starts."""

from __future__ import annotations

import json
import platform
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from antiphon.plans.estimate import estimate_tokens
from antiphon.testing import Call, Script
from tests.clients.codex import offered, pairs
from tests.clients.house import MODEL, Done, House, Json, content, environment, run
from tests.clients.install import CLAUDE_LOCK, node_modules

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        (sys.platform, platform.machine()) != ("linux", "x86_64"),
        reason="only the program for Linux on x86-64 is pinned",
    ),
]

_ANTIPHON = (sys.executable, "-m", "antiphon")
_ASK = ("-p", "Six times seven?", "--allowedTools", "Bash")
_PROMPT_LIMIT = 4_000


def _programs() -> Path:
    return node_modules(CLAUDE_LOCK.parent) / "@anthropic-ai" / "claude-code-linux-x64"


def _bash(command: str, id: str) -> Call:
    return Call("Bash", json.dumps({"command": command}), id=id)


def _play(house: House) -> None:
    """Call the shell twice at once, then answer."""
    calls = [_bash("echo $((6 * 7)) | tee answer", "call_1"), _bash("echo again", "call_2")]
    house.play(Script(calls=calls), Script(text="It is forty-two."))


def _check(house: House, done: Done, work: Path) -> None:
    """Both commands ran, their output reached the model, and the answer reached the user."""
    assert (done.code, done.out) == (0, "It is forty-two.\n"), done.out + done.err
    assert content(work / "answer") == "42\n"
    assert [output for _, _, output in pairs(house.asked[-1])] == ["42", "again"]


async def _run_claude(
    house: House, work: Path, env: Mapping[str, str], *flags: str, model: str = MODEL
) -> Done:
    upstream = ("--upstream", house.upstream.base_url, "--model", model)
    return await run(
        *(*_ANTIPHON, "run", "claude", *upstream, *flags, "--", *_ASK),
        cwd=work,
        env={**env, "PATH": f"{_programs()}:{env['PATH']}"},
    )


@pytest.mark.turn("claude-code", "works with what `antiphon connect claude-code --write` wrote")
@pytest.mark.turn("claude-code", "runs two commands that the model calls at once")
async def test_what_connect_writes_is_all_that_claude_code_needs(
    house: House, home: Path, work: Path
) -> None:
    env = environment(home)
    settings = home / ".claude" / "settings.json"
    connect = (*_ANTIPHON, "connect", "claude-code", "--url", house.base_url)
    written = await run(*connect, "--write", cwd=work, env=env)
    assert written.code == 0, written.err

    _play(house)
    done = await run(_programs() / "claude", *_ASK, cwd=work, env=env)
    undone = await run(*connect, "--undo", cwd=work, env=env)

    _check(house, done, work)
    assert {body["model"] for body in house.asked} == {MODEL}
    assert undone.code == 0 and house.base_url not in content(settings)


@pytest.mark.turn("claude-code", "is started with a gateway of its own by `antiphon run claude`")
async def test_one_command_starts_a_gateway_and_claude_code(
    house: House, home: Path, work: Path
) -> None:
    """Settings of the user that point elsewhere, and a login, do not hinder it."""
    settings = home / ".claude" / "settings.json"
    settings.parent.mkdir()
    before = json.dumps({"env": {"ANTHROPIC_BASE_URL": "http://127.0.0.1:9"}})
    settings.write_text(before)
    _play(house)
    done = await _run_claude(house, work, environment(home, ANTHROPIC_API_KEY="sk-of-the-user"))
    _check(house, done, work)
    assert content(settings) == before


@pytest.mark.turn(
    "claude-code", "has one tool and a short prompt with `antiphon run claude --small`"
)
async def test_a_small_model_gets_one_tool_and_few_words(
    house: House, home: Path, work: Path
) -> None:
    _play(house)
    done = await _run_claude(house, work, environment(home), "--small")
    _check(house, done, work)
    first = house.asked[0]
    assert offered(first) == ["Bash"]
    assert _prompt_tokens(first) <= _PROMPT_LIMIT
    assert "with one tool and a prompt of 600 tokens" in done.err


def _prompt_tokens(body: Json) -> int:
    return estimate_tokens([json.dumps(body["messages"]), json.dumps(body["tools"])])
