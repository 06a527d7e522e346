"""Codex, as a user has it: its configuration, one run of it, and how to read what it says.

`Codex.ask` runs `codex exec --json` to its end. The transport is the user's choice of provider:
a provider of one's own speaks HTTP, the built-in one with another base URL prefers a WebSocket.
`served` asks the gateway's own counters which it was.
"""

from __future__ import annotations

import asyncio
import json
import re
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal

from antiphon.testing import Call
from antiphon.testing.gateway import Gateway
from tests.clients.house import MODEL, Done, House, Json, environment, run
from tests.clients.install import node_modules

__all__ = [
    "SCREEN",
    "Codex",
    "Transport",
    "catalog",
    "items",
    "messages",
    "offered",
    "pairs",
    "served",
    "shell",
    "texts",
]

Transport = Literal["http", "websocket"]

SCREEN: Final = f"""\
[models.{MODEL}]
context_length = 200000
modalities = ["text", "image"]
"""
"""What antiphon.toml says of a model that sees images."""

_COMMON: Final = """\
model = "{model}"
check_for_update_on_startup = false
show_raw_agent_reasoning = true
"""
_PROVIDERS: Final[Mapping[Transport, str]] = {
    "http": """\
model_provider = "antiphon"
{more}
[model_providers.antiphon]
name = "antiphon"
base_url = "{base_url}"
model_catalog_url = "{base_url}/models"
wire_api = "responses"
""",
    "websocket": """\
openai_base_url = "{base_url}"
{more}
""",
}
_TABLES: Final = """
[analytics]
enabled = false
"""
_FLAGS: Final = ("exec", "--json", "--skip-git-repo-check", "-s", "danger-full-access")


class Codex:
    """Codex in a home of its own, pointed at a gateway."""

    def __init__(
        self,
        home: Path,
        work: Path,
        base_url: str,
        transport: Transport,
        *,
        keys: str = "",
        tables: str = "",
        model: str = MODEL,
    ) -> None:
        """`keys` and `tables` are added to config.toml: at the top and at the end."""
        self.work = work
        self._home = home / ".codex"
        self._home.mkdir(exist_ok=True)
        provider = _PROVIDERS[transport].format(base_url=base_url, more=keys)
        text = _COMMON.format(model=model) + provider + _TABLES + tables
        (self._home / "config.toml").write_text(text, "utf-8")
        self._environment = environment(home, CODEX_HOME=str(self._home), CODEX_API_KEY="unused")

    async def ask(self, *arguments: str | Path) -> Done:
        """Run one turn, which must succeed."""
        done = await self.try_to_ask(*arguments)
        assert done.code == 0, done.out + done.err
        return done

    async def try_to_ask(self, *arguments: str | Path) -> Done:
        """Run one turn, however it ends. A command such as `resume` comes first."""
        program = node_modules() / ".bin" / "codex"
        return await run(program, *_FLAGS, *arguments, cwd=self.work, env=self._environment)


def shell(command: str, id: str = "call_1") -> Call:
    """Return a call of Codex's shell tool."""
    return Call("exec_command", json.dumps({"cmd": command}), id=id)


def offered(body: Json) -> list[str]:
    """Return the names of the tools that the model is offered."""
    return [tool["function"]["name"] for tool in body.get("tools") or ()]


def messages(done: Done) -> list[str]:
    """Return what Codex shows as the model's answers."""
    return [item["text"] for item in items(done, "agent_message")]


def items(done: Done, kind: str) -> list[Json]:
    """Return the items of a kind that Codex reports as completed, in order."""
    ended = [event["item"] for event in done.events if event["type"] == "item.completed"]
    return [item for item in ended if item["type"] == kind]


def texts(body: Json, role: str) -> list[str]:
    """Return what the messages of a role say to the model, in order."""
    said = [message["content"] for message in body["messages"] if message["role"] == role]
    return [_text(content) for content in said if content]


def _text(content: str | Sequence[Mapping[str, Any]]) -> str:
    if isinstance(content, str):
        return content
    return "".join(part.get("text", "") for part in content)


def pairs(body: Json) -> list[tuple[str, str, str]]:
    """Return name, arguments and output of each call in a history.

    Each output must follow its call before anybody else speaks, and each call must have one.
    """
    found: list[tuple[str, str, str]] = []
    waiting: dict[str, tuple[str, str]] = {}
    for message in body["messages"]:
        if message["role"] == "tool":
            name, arguments = waiting.pop(message["tool_call_id"])
            found.append((name, arguments, _text(message["content"])))
            continue
        assert not waiting, f"nobody answered {waiting}"
        for call in message.get("tool_calls") or ():
            assert call["id"] not in waiting
            waiting[call["id"]] = (call["function"]["name"], call["function"]["arguments"])
    assert not waiting, f"nobody answered {waiting}"
    return found


async def served(house: House) -> dict[str, int]:
    """Return how many requests the gateway has answered, by route and status."""
    url = house.base_url.removesuffix("/v1") + "/metrics"
    text = await asyncio.to_thread(_get, url)
    found = re.findall(r"^antiphon_requests_total\{(.*)\} (\S+)$", text, re.MULTILINE)
    counts: dict[str, int] = {}
    for labels, count in found:
        values = dict(re.findall(r'(\w+)="([^"]*)"', labels))
        counts[f"{values['route']} {values['status']}"] = int(float(count))
    return counts


async def catalog(house: House | Gateway, folder: Path, **changes: Any) -> str:
    """Return the key that gives Codex the gateway's models with changes, as a file."""
    models = json.loads(await asyncio.to_thread(_get, f"{house.base_url}/models"))["models"]
    path = folder / "catalog.json"
    path.write_text(json.dumps({"models": [{**model, **changes} for model in models]}))
    return f"model_catalog_json = {json.dumps(str(path))}"


def _get(url: str) -> str:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(url, timeout=60) as answer:
        return str(answer.read().decode())
