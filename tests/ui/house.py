"""A gateway with the dashboard, before a scripted model, and something to look at in it.

python -m tests.ui.house    serves one until Ctrl-C, and prints its address
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import aiohttp
import msgspec

from antiphon.backends.chat import ChatBackend
from antiphon.gateway.assemble import ServerSettings
from antiphon.models.prices import PriceSettings
from antiphon.routing.describe import ModelSettings
from antiphon.store.base import Store
from antiphon.store.sqlite.store import SqliteStore
from antiphon.testing import Script, ScriptedUpstream
from antiphon.testing.faults import Status
from antiphon.testing.gateway import Gateway, serve_gateway
from antiphon.testing.script import Call

__all__ = ["EVIL", "House", "open_house"]

EVIL: Final = (
    "<img src=x onerror=window.hacked=1>",
    "<script>window.hacked=1</script>",
    '"><svg onload=window.hacked=1>',
    "javascript:window.hacked=1",
    "</pre><iframe srcdoc='<script>parent.hacked=1</script>'>",
    "{{constructor.constructor('window.hacked=1')()}}",
)
"""Markup and code that a model, or a caller who chooses names, may send."""
_STORY: Final = (
    "A gateway keeps every event of a stream in its log, with the time at which it was written. "
    "So what happened can be seen again later, in the same order and at the same pace."
)
_TOOL: Final = {"type": "function", "name": "look_up", "parameters": {"type": "object"}}
_PRICE: Final = PriceSettings(input=Decimal("0.5"), output=Decimal("2"), cached=Decimal("0.1"))
_USAGE: Final = {
    "prompt_tokens": 1200,
    "completion_tokens": 34,
    "total_tokens": 1234,
    "prompt_tokens_details": {"cached_tokens": 800},
}


class House(msgspec.Struct, frozen=True):
    """A gateway, and the ids of what was asked there."""

    root: str
    gateway: Gateway
    store: Store
    story: str
    live: str
    """The events of the story as its client got them, as JSON."""
    evil: str
    called: str


def _script(body: dict[str, Any]) -> Script:
    model, messages = body["model"], body["messages"]
    asked = str(messages[-1].get("content"))
    if model == "broken":
        return Script(faults=[Status(500)])
    if "endless" in asked:
        return Script(text=["word "] * 100_000, delay=0.05)
    if "evil" in asked:
        return Script(text=list(EVIL), reasoning=EVIL[0])
    if "tool" in asked:
        return Script(calls=[Call("look_up", '{"word": "tempo", "count": 3}')])
    if "story" in asked:
        return Script(text=_STORY, reasoning="What to tell?", delay=0.02, usage=_USAGE)
    return Script(text="Yes.", usage=_USAGE)


@asynccontextmanager
async def open_house(folder: Path, *, require_keys: bool = False) -> AsyncIterator[House]:
    """Serve, and ask some questions first unless keys are required."""
    store = SqliteStore(folder / "antiphon.db")
    names = ("qwen3-32b", "smollm2", "broken", EVIL[0])
    prices = {"qwen3-32b": ModelSettings(price=_PRICE)}
    settings = ServerSettings(ui=True, require_keys=require_keys)
    async with ScriptedUpstream(_script, models=names) as upstream:
        backend = ChatBackend(upstream.base_url)
        async with serve_gateway(
            backend, store=store, settings=settings, models=prices, default_model=names[0]
        ) as gateway:
            root = gateway.base_url.removesuffix("/v1")
            if require_keys:
                yield House(root, gateway, store, "", "", "", "")
            else:
                yield await _fill(root, gateway, store)
    await store.close()


async def _fill(root: str, gateway: Gateway, store: Store) -> House:
    async with aiohttp.ClientSession() as session:
        url = f"{gateway.base_url}/responses"

        async def ask(**body: Any) -> list[Any]:
            async with session.post(url, json={"stream": True, **body}) as answer:
                if answer.status != 200:
                    return []
                lines = (await answer.text()).splitlines()
            data = [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]
            return [msgspec.json.decode(one) for one in data if one != "[DONE]"]

        for number in range(40):
            await ask(input=f"Question {number}", model=("qwen3-32b", "smollm2")[number % 3 == 0])
        await ask(input="Does it work?", model="broken")
        evil = await ask(input="evil", model=EVIL[0], user=EVIL[1], metadata={EVIL[2]: EVIL[0]})
        called = await ask(input="tool", tools=[_TOOL], model="smollm2")
        story = await ask(input="story", model="qwen3-32b")
    return House(
        root=root,
        gateway=gateway,
        store=store,
        story=story[0]["response"]["id"],
        live=msgspec.json.encode(story).decode(),
        evil=evil[0]["response"]["id"],
        called=called[0]["response"]["id"],
    )


async def _serve() -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with open_house(Path(folder)) as house:
            print(f"{house.root}/ui", flush=True)
            await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_serve())
