"""Times of events: beside the stream, batch by batch, for the owner of a response only."""

from __future__ import annotations

import asyncio
from typing import Any

from antiphon.backends.scripted import ScriptedBackend
from antiphon.gateway.assemble import ServerSettings
from antiphon.protocol.events import sequence_of
from antiphon.store.memory.store import MemoryStore
from antiphon.store.sqlite.store import SqliteStore
from antiphon.testing.gateway import Gateway, serve_gateway
from tests.asking import ask, ask_stream, events_of, request, terminal
from tests.server.api.organization.books import key_of


async def times_of(gateway: Gateway, response_id: str) -> dict[str, Any]:
    answer = await request(gateway, "GET", f"/responses/{response_id}/antiphon/times")
    assert answer.status == 200, answer.body
    found: dict[str, Any] = answer.json
    return found


async def test_every_event_of_a_stream_has_a_time(tmp_path: Any) -> None:
    store = SqliteStore(tmp_path / "a.db")
    async with serve_gateway(ScriptedBackend(), store=store) as gateway:
        events = await ask_stream(gateway, input="one two three four")
        response_id = terminal(events).id
        found = await times_of(gateway, response_id)
        replayed = await request(gateway, "GET", f"/responses/{response_id}?stream=true")
    await store.close()

    batches = found["batches"]
    assert found["response_id"] == response_id
    numbers = [number for one in batches for number in range(one["first"], one["last"] + 1)]
    assert numbers == [sequence_of(event) for event in events]
    times = [one["ms"] for one in batches]
    assert times == sorted(times)
    assert times[0] == 0
    # The stream itself is as it was.
    assert events_of(replayed.body) == events


async def test_a_turn_that_was_not_streamed_has_no_batches() -> None:
    async with serve_gateway(ScriptedBackend()) as gateway:
        answer = await ask(gateway, input="hi")
        assert (await times_of(gateway, answer.json["id"]))["batches"] == []


async def test_the_times_of_another_project_are_not_found() -> None:
    store = MemoryStore()
    settings = ServerSettings(require_keys=True)
    async with serve_gateway(ScriptedBackend(), store=store, settings=settings) as gateway:
        ann, bob = await asyncio.gather(key_of(store, "ann"), key_of(store, "bob"))
        answer = await ask(gateway, {"Authorization": f"Bearer {ann}"}, input="hi")
        path = f"/responses/{answer.json['id']}/antiphon/times"
        other = await request(gateway, "GET", path, headers={"Authorization": f"Bearer {bob}"})
    await store.close()
    assert other.status == 404
