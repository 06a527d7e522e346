"""A program with a real client in it, on stage: a gateway before it, a scripted upstream behind.

Every turn of a program asks for a model that has the turn's own name. So the upstream knows which
script to play, and a test finds what its turn sent upstream without counting requests. The
program runs once for all tests of a module; what it prints is its report, a JSON object of the
turns with what the client's user saw, or with the error that the client threw.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, Final

import msgspec

from antiphon.backends.chat import ChatBackend
from antiphon.gateway.mcp import open_mcp
from antiphon.store.memory import MemoryStore
from antiphon.testing import Call, Script, ScriptedUpstream, Status, serve_gateway
from antiphon.tools.base import ToolRunner
from antiphon.tools.mcp.settings import McpServer, McpSettings
from tests.clients.house import Json, Turn, environment, run
from tests.clients.install import NODE_LOCK, PYTHON_LOCK, node, node_modules, python

__all__ = [
    "Hosting",
    "Json",
    "Performance",
    "Scripts",
    "calling",
    "no_tools",
    "perform",
    "roles",
    "tool_messages",
    "tool_named",
]

# For each turn what the model answers, request by request; the last answer repeats.
Scripts = Mapping[str, Sequence[Turn]]
Hosting = Callable[[], AbstractAsyncContextManager[Sequence[ToolRunner]]]

_PROGRAMS: Final = Path(__file__).parent / "programs"
_LAST_WORDS: Final = 4000


@asynccontextmanager
async def no_tools() -> AsyncIterator[Sequence[ToolRunner]]:
    """Host no tools."""
    yield ()


class Performance(msgspec.Struct, frozen=True):
    """What the user of the client saw, and what the upstream was sent, turn by turn."""

    report: dict[str, Json]
    sent: dict[str, list[Json]]

    def seen(self, turn: str) -> Any:  # Any: what the program says of this turn
        """Return what the client's user saw in a turn; fail with the client's own error."""
        outcome = self.report.get(turn)
        assert outcome is not None, f"the program has no turn {turn!r}"
        assert "error" not in outcome, f"the client failed: {outcome['error']}"
        return outcome["value"]

    def raised(self, turn: str) -> str:
        """Return the error that the client raised in a turn; fail if it returned something."""
        outcome = self.report.get(turn)
        assert outcome is not None, f"the program has no turn {turn!r}"
        assert "error" in outcome, f"the client returned {outcome['value']!r}"
        return str(outcome["error"])

    def bodies(self, turn: str) -> list[Json]:
        """Return the chat requests of a turn, in order of arrival."""
        return self.sent.get(turn, [])


def perform(
    program: str,
    scripts: Scripts,
    folder: Path,
    lock: Path | None = None,
    mcp: str = "",
    tools: Hosting = no_tools,
) -> Performance:
    """Run a program of the folder `programs` to its end, with servers of its own.

    It finds the gateway in `ANTIPHON_URL`, and prints nothing but its report. `folder` is the
    client's home. The program runs with the packages of `lock`, or else with those that most
    programs of its language share. `mcp` is the URL of an MCP server, which the gateway knows as
    `desk` and the program finds in `MCP_URL`. `tools` runs what other hosted tools need, and
    yields their runners.
    """
    return asyncio.run(_perform(_command(program, folder, lock), scripts, folder, mcp, tools))


def calling(word: str, arguments: str, call_id: str) -> Turn:
    """Answer with a call of the tool whose name has this word in it, whatever it is called here.

    The model knows a tool of a namespace, or of a kind without a name, by a name of our making.
    """

    def answer(body: Json) -> Script:
        name = tool_named(word, body)
        if name is None:
            names = [tool["function"]["name"] for tool in body.get("tools") or ()]
            return Script(faults=[Status(400, f"one tool is to be called {word!r}: {names}")])
        return Script(calls=[Call(name, arguments, call_id)])

    return answer


def tool_named(word: str, body: Json) -> str | None:
    """Return the name of the one tool of a chat request with this word in it, or None."""
    names = [tool["function"]["name"] for tool in body.get("tools") or ()]
    found = [name for name in names if word in name]
    return found[0] if len(found) == 1 else None


def roles(body: Json) -> list[str]:
    """Return who speaks in a chat request, in order."""
    return [message["role"] for message in body["messages"]]


def tool_messages(body: Json) -> dict[str, str]:
    """Return the tool outputs of a chat request by the ids of their calls.

    Fails when an output has no call before it, or a call no output after it.
    """
    called: list[str] = []
    told: dict[str, str] = {}
    for message in body["messages"]:
        called += [call["id"] for call in message.get("tool_calls") or ()]
        if message["role"] == "tool":
            assert message["tool_call_id"] in called, "an output without its call"
            told[message["tool_call_id"]] = _text(message["content"])
    assert sorted(called) == sorted(told), "a call without its output, or two of one id"
    return told


def _text(content: str | list[Json]) -> str:
    if isinstance(content, str):
        return content
    return "".join(part.get("text") or "" for part in content)


def _command(program: str, folder: Path, lock: Path | None) -> list[str]:
    """Return what starts the program.

    Node.js looks for packages beside the program's file, so it gets a copy beside them.
    """
    if program.endswith(".py"):
        return [str(python(lock or PYTHON_LOCK)), str(_PROGRAMS / program)]
    stage = folder / "program"
    stage.mkdir(parents=True)
    for path in _PROGRAMS.glob("*.mjs"):
        shutil.copy(path, stage)
    (stage / "node_modules").symlink_to(node_modules((lock or NODE_LOCK).parent))
    return [str(node()), str(stage / program)]


async def _perform(
    command: Sequence[str], scripts: Scripts, folder: Path, mcp: str, tools: Hosting
) -> Performance:
    sent: dict[str, list[Json]] = {}

    def play(body: Json) -> Script:
        turn = body["model"]
        bodies = sent.setdefault(turn, [])
        bodies.append(body)
        answer = scripts[turn][min(len(bodies), len(scripts[turn])) - 1]
        return answer if isinstance(answer, Script) else answer(body)

    async with ScriptedUpstream(play, models=list(scripts)) as upstream, tools() as others:
        backend, store = ChatBackend(upstream.base_url), MemoryStore()
        servers = {"desk": McpServer(url=mcp)} if mcp else {}
        runner = await open_mcp(McpSettings(servers=servers), {}, store, "ap-")
        runners = [*others] if runner is None else [*others, runner]
        async with serve_gateway(backend, store=store, tools=runners) as gateway:
            url = gateway.base_url
            env = environment(folder, ANTIPHON_URL=url, MCP_URL=mcp, OPENAI_API_KEY="none")
            done = await run(*command, cwd=folder, env=env)
    assert done.code == 0, f"the program ended with {done.code}: {done.err[-_LAST_WORDS:]}"
    return Performance(msgspec.json.decode(done.out, type=dict[str, Json]), sent)
