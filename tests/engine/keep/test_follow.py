"""Following a stream: from memory, from the store, and from one to the other."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from pathlib import Path

import pytest

from antiphon.backends.scripted import Script, ScriptedBackend
from antiphon.plans.plan import Plan
from antiphon.protocol.deltas import Stopped, TextGrew
from antiphon.protocol.errors import NotFound
from antiphon.protocol.events import Event, sequence_of
from antiphon.protocol.machines.referee import judge_stream
from antiphon.store.memory import MemoryStore
from antiphon.store.sqlite import SqliteStore
from antiphon.testing.gateway import serve_gateway
from tests.asking import ask, request, terminal

STOP = Stopped("stop")


async def test_a_reader_that_falls_behind_misses_nothing() -> None:
    ended = asyncio.Event()

    def talk(_: Plan) -> Script:
        yield from (TextGrew(f"{number} ") for number in range(3000))
        yield STOP

    async with serve_gateway(ScriptedBackend(talk)) as gateway:
        queued = (await ask(gateway, input="hi", background=True)).json
        engine = gateway.app.engine
        engine.observe = lambda response: ended.set()
        events: list[Event] = []
        async with aclosing(engine.follow("local", queued["id"])) as batches:
            async for batch in batches:
                events += batch
                if len(events) > 10:
                    await ended.wait()

    assert [sequence_of(event) for event in events] == list(range(len(events)))
    assert judge_stream(events) == []
    assert terminal(events).output_text.endswith("2999 ")


async def test_a_reader_of_the_middle_gets_only_what_follows() -> None:
    go_on = asyncio.Event()
    backend = ScriptedBackend([[TextGrew("a"), go_on, TextGrew("b"), STOP]])
    async with serve_gateway(backend) as gateway:
        queued = (await ask(gateway, input="hi", background=True)).json
        async with aclosing(gateway.app.engine.follow("local", queued["id"], 4)) as batches:
            first = await anext(batches)
            go_on.set()
            rest = [event async for batch in batches for event in batch]

    assert sequence_of(first[0]) == 5
    assert [sequence_of(event) for event in first + rest] == list(range(5, 6 + len(rest)))


async def test_a_response_that_is_not_there_cannot_be_followed() -> None:
    async with serve_gateway(ScriptedBackend()) as gateway:
        with pytest.raises(NotFound):
            await anext(gateway.app.engine.follow("local", "resp_none"))
        done = (await ask(gateway)).json
        with pytest.raises(NotFound):
            await anext(gateway.app.engine.follow("bob", done["id"]))


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_a_response_that_is_deleted_takes_its_readers_with_it(
    kind: str, tmp_path: Path
) -> None:
    store = MemoryStore() if kind == "memory" else SqliteStore(tmp_path / "a.db")
    backend = ScriptedBackend([[TextGrew("a"), asyncio.Event(), STOP]])
    async with serve_gateway(backend, store=store) as gateway:
        queued = (await ask(gateway, input="hi", background=True)).json
        async with aclosing(gateway.app.engine.follow("local", queued["id"])) as batches:
            await anext(batches)
            await request(gateway, "DELETE", f"/responses/{queued['id']}")
            with pytest.raises(NotFound):
                async with asyncio.timeout(60):
                    async for _ in batches:
                        pass
    await store.close()


async def test_a_response_without_a_log_is_told_when_it_has_ended() -> None:
    go_on, begun = asyncio.Event(), asyncio.Event()

    def talk(_: Plan) -> Script:
        yield TextGrew("a ")
        begun.set()
        yield go_on
        yield TextGrew("b")
        yield STOP

    async with serve_gateway(ScriptedBackend(talk)) as gateway:
        asking = asyncio.create_task(ask(gateway, input="hi"))
        await begun.wait()
        turns = gateway.app._turns.values()
        follower = gateway.app.engine.follow("local", next(iter(turns)).response_id)
        reading = asyncio.create_task(anext(follower))
        await asyncio.sleep(0)
        assert not reading.done()
        go_on.set()
        answer, events = await asking, await reading
        await follower.aclose()

    assert judge_stream(events) == []
    assert terminal(events).output == answer.json["output"]
