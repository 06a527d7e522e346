"""How large a context may be: refused by its size, before anything of it is read."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from antiphon.backends.scripted import ScriptedBackend
from antiphon.gateway.assemble import ServerSettings
from antiphon.server.limits import ServerLimits
from antiphon.store.base import Store
from antiphon.store.memory import MemoryStore
from antiphon.store.sqlite import SqliteStore, history
from antiphon.testing.gateway import Gateway, serve_gateway
from tests.asking import ask, request

LIMITS = ServerLimits(context_items=10, context_bytes=20_000)


def messages(count: int, text: str = "hi") -> list[dict[str, Any]]:
    return [{"role": "user", "content": text} for _ in range(count)]


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    made: Store = MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "db")
    yield made
    await made.close()


@asynccontextmanager
async def served(store: Store | None = None) -> AsyncIterator[Gateway]:
    settings = ServerSettings(limits=LIMITS)
    async with serve_gateway(ScriptedBackend(), store=store, settings=settings) as gateway:
        yield gateway


async def test_a_request_with_too_many_items_is_refused_by_name() -> None:
    async with served() as gateway:
        fits = await ask(gateway, input=messages(10))
        refused = await ask(gateway, input=messages(11))

    assert fits.status == 200
    assert refused.status == 400
    assert refused.error["code"] == "context_too_large"
    assert refused.error["param"] == "input"
    assert "11 items; at most 10" in refused.error["message"]


async def test_a_chain_is_refused_when_it_has_grown_too_long(store: Store) -> None:
    async with served(store) as gateway:
        first = await ask(gateway, input=messages(8))
        refused = await ask(gateway, input=messages(2), previous_response_id=first.json["id"])
        shorter = await ask(gateway, input=messages(1), previous_response_id=first.json["id"])

    assert refused.status == 400
    assert refused.error["code"] == "context_too_large"
    assert refused.error["param"] == "previous_response_id"
    assert shorter.status == 200


async def test_a_chain_of_few_long_items_is_refused_by_its_bytes(store: Store) -> None:
    async with served(store) as gateway:
        first = await ask(gateway, input=messages(1, "x" * 9_950))
        refused = await ask(gateway, input="and?", previous_response_id=first.json["id"])

    assert first.status == 200
    assert refused.error["code"] == "context_too_large"
    assert "at most 20000 are taken" in refused.error["message"]


async def test_a_chain_that_is_too_large_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[bytes] = []

    def note(*question: Any, **more: Any) -> list[bytes]:
        bodies = read_step(*question, **more)
        read.extend(bodies)
        return bodies

    read_step = history._read_step
    monkeypatch.setattr(history, "_read_step", note)
    store = SqliteStore(tmp_path / "db")
    async with served(store) as gateway:
        first = await ask(gateway, input=messages(9))
        await ask(gateway, input=[], previous_response_id=first.json["id"])
        assert read
        read.clear()
        refused = await ask(gateway, input="and?", previous_response_id=first.json["id"])
        assert refused.error["code"] == "context_too_large"
        assert read == []
    await store.close()


async def test_a_conversation_that_is_too_large_is_refused_and_left_unlocked(store: Store) -> None:
    async with served(store) as gateway:
        made = await request(gateway, "POST", "/conversations", {"items": messages(9)})
        name = made.json["id"]
        refused = await ask(gateway, input=messages(2), conversation=name)
        path = f"/conversations/{name}/items"
        added = await request(gateway, "POST", path, {"items": messages(1)})
        counted = await request(
            gateway,
            "POST",
            "/responses/input_tokens",
            {"conversation": name, "input": messages(1)},
        )

    assert refused.status == 400
    assert refused.error["code"] == "context_too_large"
    assert refused.error["param"] == "conversation"
    assert added.status == 200
    assert counted.error["code"] == "context_too_large"


async def test_items_that_are_referred_to_count_too() -> None:
    async with served() as gateway:
        references = []
        for _ in range(3):
            first = await ask(gateway, input=messages(1, "x" * 9_000))
            listed = await request(gateway, "GET", f"/responses/{first.json['id']}/input_items")
            references.append({"type": "item_reference", "id": listed.json["data"][0]["id"]})
        fits = await ask(gateway, input=references[:1])
        refused = await ask(gateway, input=references)

    assert fits.status == 200
    assert refused.error["code"] == "context_too_large"


async def test_a_websocket_refuses_what_it_remembers_when_it_has_grown_too_long() -> None:
    async with (
        served() as gateway,
        aiohttp.ClientSession() as session,
        session.ws_connect(f"{gateway.base_url}/responses") as wire,
    ):
        body = {"type": "response.create", "store": False, "input": messages(8)}
        await wire.send_json(body)
        event = await wire.receive_json()
        while event["type"] != "response.completed":
            event = await wire.receive_json()
        again = {"previous_response_id": event["response"]["id"], "input": messages(2)}
        await wire.send_json(body | again)
        refused = await wire.receive_json()

    assert refused["error"]["code"] == "context_too_large"


async def test_instructions_that_every_event_would_repeat_are_bounded() -> None:
    async with serve_gateway(ScriptedBackend()) as gateway:
        refused = await ask(gateway, instructions="x" * (4 * 1024 * 1024))

    assert refused.status == 400
    assert refused.error["code"] == "context_too_large"
    assert refused.error["param"] == "instructions"
