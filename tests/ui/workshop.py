"""A gateway to work with in the dashboard: models, tools, files, keys and a login.

python -m tests.ui.workshop    serves one until Ctrl-C, and prints its address

The models are scripted, beside the embedded one. The MCP server is a real process, the index of
files is the gateway's own. A second gateway needs a key or a token of an issuer on loopback.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import msgspec

from antiphon.backends.chat import ChatBackend
from antiphon.backends.local import LocalBackend
from antiphon.gateway.assemble import ServerSettings
from antiphon.gateway.config import Settings
from antiphon.gateway.mcp import open_mcp, read_directory
from antiphon.gateway.tool_terms import tool_terms
from antiphon.models.prices import PriceSettings
from antiphon.routing.describe import ModelSettings
from antiphon.store.base import Project
from antiphon.store.sqlite.store import SqliteStore
from antiphon.testing import Script, ScriptedUpstream
from antiphon.testing.faults import Status
from antiphon.testing.gateway import Gateway, serve_gateway
from antiphon.testing.script import Call
from antiphon.tools.base import ToolLimits
from antiphon.tools.index.file_index import FileIndex
from antiphon.tools.mcp.settings import McpServer, McpSettings
from antiphon.tools.tool_search import ToolSearch
from tests.server.api.organization.books import charge, key_of
from tests.server.test_issuers import Issuer, run_issuer
from tests.tools.mcp.servers import DESK
from tests.ui.house import EVIL

__all__ = ["EMBEDDED", "Workshop", "open_workshop"]

EMBEDDED: Final = "smollm2-135m"
_PRICE: Final = PriceSettings(input=Decimal("0.5"), output=Decimal(2))
_NAMES: Final = ("qwen3-32b", "small", "broken", EVIL[0])
_LONG: Final = " ".join(f"word{number}" for number in range(2000))


class Workshop(msgspec.Struct, frozen=True):
    """Where both gateways are, and what the flows need to know."""

    facts: dict[str, Any]
    gateway: Gateway
    issuer: Issuer
    log: Path
    """What the MCP server was asked."""


def _script(body: dict[str, Any]) -> Script:
    messages = body["messages"]
    last = messages[-1]
    asked = str(last.get("content"))
    if body["model"] == "broken":
        return Script(faults=[Status(500)])
    if last["role"] == "tool":
        return Script(text=f"The tool gave: {asked}")
    if "weather" in asked:
        return Script(calls=[Call("get_weather", '{"city": "Oslo"}')])
    if "add" in asked:
        return Script(calls=[Call("desk__add", '{"a": 2, "b": 3}')])
    if "evil" in asked:
        call = Call("get_weather", msgspec.json.encode({"city": EVIL[1]}).decode())
        return Script(text=list(EVIL), reasoning=EVIL[0], calls=[call])
    if "forever" in asked:
        return Script(text=_LONG, delay=0.05)
    if "think" in asked:
        return Script(text="Done.", reasoning="First this, then that.")
    told = sum(one["role"] == "user" for one in messages)
    return Script(text=f"{body['model']} heard message {told}: {_heard(last['content'])}")


def _heard(content: Any) -> str:
    """Return the texts of a message, and the types of its other parts."""
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
    return " ".join(part.get("text") or part["type"] for part in parts)


@asynccontextmanager
async def open_workshop(folder: Path, *, embedded: bool = True) -> AsyncIterator[Workshop]:
    """Serve both gateways; without `embedded` no weights are needed."""
    log = folder / "calls.jsonl"
    desk = McpServer(command=sys.executable, args=(str(DESK), str(log), "stdio"))
    mcp = McpSettings(servers={"desk": desk})
    store = SqliteStore(folder / "open.db")
    locked_store = SqliteStore(folder / "locked.db")
    async with AsyncExitStack() as stack:
        stack.push_async_callback(store.close)
        stack.push_async_callback(locked_store.close)
        upstream = await stack.enter_async_context(ScriptedUpstream(_script, models=_NAMES))
        issuer = await stack.enter_async_context(run_issuer())
        runner = await open_mcp(mcp, {}, store, "ap-")
        assert runner is not None
        shown = McpSettings(servers={"desk": McpServer(command="python", args=("desk.py",))})
        terms = tool_terms(Settings(mcp=shown), read_directory(shown, {}).endpoints)
        backends: dict[str, Any] = {"farm": ChatBackend(upstream.base_url)}
        if embedded:
            backends["local"] = LocalBackend(threads=1, context=2048)
        gateway = await stack.enter_async_context(
            serve_gateway(
                backends,
                store=store,
                settings=ServerSettings(ui=True, tool_terms=terms),
                models={"qwen3-32b": ModelSettings(price=_PRICE)},
                tools=[ToolSearch(), runner],
                tool_limits=ToolLimits(list_seconds=120),
                index=FileIndex(store),
                default_model=_NAMES[0],
            )
        )
        await locked_store.projects.create(Project("lab", "The lab", 1_700_000_000))
        locked = await stack.enter_async_context(
            serve_gateway(
                ChatBackend(upstream.base_url),
                store=locked_store,
                settings=ServerSettings(
                    ui=True,
                    require_keys=True,
                    issuers=(issuer.settings(client_id="board", roles={"boss": "admin"}),),
                ),
            )
        )
        facts = await _facts(gateway, locked, issuer)
        yield Workshop(facts, gateway, issuer, log)


async def _facts(gateway: Gateway, locked: Gateway, issuer: Issuer) -> dict[str, Any]:
    await gateway.store.projects.create(Project("acme", "Acme", 1_700_000_000))
    await charge(gateway.store, "acme", model="qwen3-32b")
    roots = [one.base_url.removesuffix("/v1") for one in (gateway, locked)]
    return {
        "root": roots[0],
        "locked": roots[1],
        "issuer": issuer.url,
        "roots": [*roots, issuer.url],
        "corpus": EVIL,
        "embedded": EMBEDDED,
        "keys": {
            role: await key_of(locked.store, "lab", role, name=f"the {role}")
            for role in ("user", "viewer", "admin", "metrics")
        },
    }


async def _serve() -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with open_workshop(Path(folder), embedded=False) as workshop:
            print(f"{workshop.facts['root']}/ui", msgspec.json.encode(workshop.facts).decode())
            sys.stdout.flush()
            await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_serve())
