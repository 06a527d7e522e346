"""Claude Code, as a user has it: its environment, one run of it, and how to read what it prints.

`ClaudeCode.ask` runs `claude -p` to its end, with the tools it may use without a question.
"""

from __future__ import annotations

import json
import platform
import sys
from pathlib import Path
from typing import Final

import pytest

from antiphon.testing import Call
from tests.clients.house import MODEL, Done, Json, environment, run
from tests.clients.install import CLAUDE_LOCK, node_modules

__all__ = ["ONLY_LINUX", "ClaudeCode", "bash", "result", "shown"]

ONLY_LINUX: Final = pytest.mark.skipif(
    (sys.platform, platform.machine()) != ("linux", "x86_64"),
    reason="only the program for Linux on x86-64 is pinned",
)
_PROGRAM: Final = Path("@anthropic-ai/claude-code-linux-x64/claude")
_FLAGS: Final = ("--output-format", "stream-json", "--verbose", "--allowedTools", "Bash,Read")


class ClaudeCode:
    """Claude Code in a home of its own, pointed at a gateway."""

    def __init__(self, home: Path, work: Path, base_url: str) -> None:
        self.work = work
        self._environment = environment(
            home,
            ANTHROPIC_BASE_URL=base_url.removesuffix("/v1"),
            ANTHROPIC_AUTH_TOKEN="none",
            ANTHROPIC_MODEL=MODEL,
            ANTHROPIC_DEFAULT_HAIKU_MODEL=MODEL,
            CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="1",
            CLAUDE_CONFIG_DIR=str(home / ".claude"),
        )

    async def ask(self, prompt: str, *arguments: str) -> Done:
        """Run one turn, which must succeed."""
        done = await self.try_to_ask(prompt, *arguments)
        assert done.code == 0, done.out + done.err
        return done

    async def try_to_ask(self, prompt: str, *arguments: str) -> Done:
        """Run one turn, however it ends; `-c` goes on with the conversation before."""
        program = node_modules(CLAUDE_LOCK.parent) / _PROGRAM
        given = ("-p", prompt, *arguments, *_FLAGS)
        return await run(program, *given, cwd=self.work, env=self._environment)


def bash(command: str, id: str) -> Call:
    """Return a call of Claude Code's shell tool."""
    return Call("Bash", json.dumps({"command": command, "description": "Runs."}), id=id)


def result(done: Done) -> Json:
    """Return what Claude Code prints last: how the turn ended."""
    (last,) = [event for event in done.events if event["type"] == "result"]
    return last


def shown(done: Done, kind: str) -> list[Json]:
    """Return the blocks of a type that Claude Code shows as the model's, in order."""
    messages = [event["message"] for event in done.events if event["type"] == "assistant"]
    blocks = [block for message in messages for block in message["content"]]
    return [block for block in blocks if block["type"] == kind]
