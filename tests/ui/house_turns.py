"""A gateway that keeps upstream requests, with forks, a conversation, repairs and tool runs in it.

python -m tests.ui.house_turns    serves one until Ctrl-C, and prints the address of a response
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
from antiphon.store.sqlite.store import SqliteStore
from antiphon.testing import Script, ScriptedTool, ScriptedUpstream
from antiphon.testing.faults import Status
from antiphon.testing.gateway import serve_gateway
from antiphon.testing.script import Call
from tests.ui.house import EVIL

__all__ = ["open_turns"]

MODEL: Final = "qwen3-32b"
_PRICE: Final = PriceSettings(input=Decimal("0.5"), output=Decimal("2"), cached=Decimal("0.1"))
_SCHEMA: Final = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
    "required": ["city", "days"],
    "additionalProperties": False,
}
_FORM: Final = {"type": "json_schema", "name": "trip", "schema": _SCHEMA, "strict": True}
_LOOK: Final = {"type": "mcp", "server_label": "test", "server_url": "https://mcp.example"}
_WEATHER: Final = {
    "type": "function",
    "name": "get_weather",
    "description": "Returns the weather of a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
}
_SLOW: Final = 0.03


def _script() -> Any:
    """Return what the upstream answers: the first trip fails once and is invalid once."""
    trips = [
        Script(faults=[Status(503)]),
        Script(text='{"city": "Lisbon"}', delay=_SLOW),
        Script(text='{"city": "Lisbon", "days": 3}', delay=_SLOW),
    ]

    def answer(body: dict[str, Any]) -> Script:
        said = [str(one.get("content")) for one in body["messages"]]
        last = body["messages"][-1]
        if "evil" in said[-1]:
            return Script(text=list(EVIL))
        if any("trip" in one for one in said) and trips:
            return trips.pop(0)
        if "library" in said[-1]:
            name = body["tools"][0]["function"]["name"]
            return Script(calls=[Call(name, '{"title": "Os Lusiadas"}')], delay=_SLOW)
        if last["role"] == "tool":
            return Script(text="It is on the second floor, shelf 4.", delay=_SLOW)
        return Script(text=_answer(said[-1]), delay=_SLOW)

    return answer


def _answer(asked: str) -> str:
    if "beach" in asked:
        return "Take the train to Cascais; the beach is five minutes from the station."
    if "museum" in asked:
        return "Two: the tile museum in the morning, and the coach museum after lunch."
    return "Three days are enough: one for the hills, one for Belém, one to sit in a café."


@asynccontextmanager
async def open_turns(folder: Path) -> AsyncIterator[dict[str, Any]]:
    """Serve, ask, and yield where it is and what was asked."""
    store = SqliteStore(folder / "antiphon.db")
    settings = ServerSettings(ui=True, keep_upstream_requests=True)
    tool = ScriptedTool(lambda call: ["second floor, shelf 4"])
    async with (
        ScriptedUpstream(_script(), models=(MODEL,)) as upstream,
        serve_gateway(
            ChatBackend(upstream.base_url),
            store=store,
            settings=settings,
            models={MODEL: ModelSettings(price=_PRICE)},
            default_model=MODEL,
            tools=[tool],
        ) as gateway,
    ):
        root = gateway.base_url.removesuffix("/v1")
        facts = await _fill(gateway.base_url)
        async with serve_gateway(
            ChatBackend(upstream.base_url), store=store, default_model=MODEL
        ) as forgetful:
            facts["plain"] = await _ask_once(forgetful.base_url)
        sent = {"sent": [one.json for one in upstream.requests]}
        yield {"root": root, "roots": [root], "corpus": EVIL, **sent, **facts}
    await store.close()


async def _ask_once(base: str) -> str:
    """Ask a gateway that does not keep what it sends."""
    async with aiohttp.ClientSession() as session:
        asked = {"input": "How many days are enough?"}
        async with session.post(f"{base}/responses", json=asked) as answer:
            return str(msgspec.json.decode(await answer.read())["id"])


async def _fill(base: str) -> dict[str, Any]:
    async with aiohttp.ClientSession() as session:

        async def post(path: str, **body: Any) -> dict[str, Any]:
            async with session.post(f"{base}{path}", json=body) as answer:
                assert answer.status == 200, await answer.text()
                found: dict[str, Any] = msgspec.json.decode(await answer.read())
                return found

        async def ask(said: str, **body: Any) -> str:
            async with session.post(
                f"{base}/responses", json={"input": said, "stream": True, **body}
            ) as answer:
                assert answer.status == 200, await answer.text()
                lines = (await answer.text()).splitlines()
            first = next(line for line in lines if line.startswith("data: "))
            return str(msgspec.json.decode(first.removeprefix("data: "))["response"]["id"])

        guide = "You are a guide to Lisbon. Answer in one sentence."
        first = await ask("How many days do I need in Lisbon?", instructions=guide)
        second = await ask(
            "Which museum should I see?", previous_response_id=first, instructions=guide
        )
        third = await ask(
            "And a beach nearby?", previous_response_id=second, instructions=guide, top_p=0.9
        )
        fork = await ask(
            "Rather a beach than a museum?",
            previous_response_id=first,
            instructions="You are a guide who knows the weather.",
            tools=[_WEATHER],
            temperature=0.2,
        )
        form = {"input": "Plan my trip as JSON.", "text": {"format": _FORM}}
        repaired = (await post("/responses", **form))["id"]
        hosted = await ask("Where in the library is it?", tools=[_LOOK])
        talk = (await post("/conversations", metadata={"topic": "Lisbon"}))["id"]
        turns = [await ask(text, conversation=talk) for text in ("How many days?", "Which museum?")]
        side = await ask("A beach instead?", previous_response_id=turns[0])
        named = {"metadata": {EVIL[2]: EVIL[0]}, "instructions": EVIL[1], "user": EVIL[0]}
        evil = await ask(f"evil {EVIL[0]}", **named)
        worse = await ask(f"evil {EVIL[1]}", previous_response_id=evil, instructions=EVIL[2])
        other = await ask(f"evil {EVIL[4]}", previous_response_id=evil, instructions=EVIL[5])
    return {
        "chain": [first, second, third],
        "fork": fork,
        "repaired": repaired,
        "hosted": hosted,
        "conversation": talk,
        "turns": turns,
        "side": side,
        "evil": [evil, worse, other],
    }


async def _serve() -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with open_turns(Path(folder)) as facts:
            print(f"{facts['root']}/ui/responses/{facts['chain'][2]}", flush=True)
            await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_serve())
