"""Two gateways on one database: whatever one began, the other can go on with."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from antiphon.backends.scripted import Script, ScriptedBackend
from antiphon.plans.plan import Plan
from antiphon.protocol.deltas import Stopped, TextGrew
from antiphon.protocol.events import Event
from antiphon.protocol.items import text_of
from antiphon.protocol.machines.referee import judge_stream
from antiphon.store.base import Store
from antiphon.store.open import open_store
from antiphon.testing.gateway import Gateway, serve_gateway
from tests.asking import ask, events_of, request, terminal
from tests.postgres import fresh_database

STOP = Stopped("stop")


class Nodes:
    """Two gateways, and the model behind each of them."""

    def __init__(self, gateways: list[Gateway], backends: list[ScriptedBackend]) -> None:
        self.one, self.other = gateways
        self.backends = backends


class Slow:
    """A model that says one thing, and another when it is let."""

    def __init__(self) -> None:
        self.has_begun = asyncio.Event()
        self.go_on = asyncio.Event()

    def __call__(self, plan: Plan) -> Script:
        if text_of(plan.items[-1]["content"]) != "slow":
            yield TextGrew(text_of(plan.items[-1]["content"]).upper())
            yield STOP
            return
        yield TextGrew("so ")
        self.has_begun.set()
        yield self.go_on
        yield TextGrew("slow")
        yield STOP


@pytest.fixture(params=["sqlite", "postgres"])
async def url(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:{tmp_path / 'a.db'}"
        return
    async with fresh_database() as url:
        yield url


@asynccontextmanager
async def running(url: str, model: Slow) -> AsyncIterator[Nodes]:
    stores: list[Store] = [open_store(url) for _ in range(2)]
    backends = [ScriptedBackend(model) for _ in range(2)]
    async with (
        serve_gateway(backends[0], store=stores[0]) as one,
        serve_gateway(backends[1], store=stores[1]) as other,
    ):
        yield Nodes([one, other], backends)
    for store in stores:
        await store.close()


async def log_of(gateway: Gateway, response_id: str) -> list[Event]:
    answer = await request(gateway, "GET", f"/responses/{response_id}?stream=true")
    assert answer.status == 200, answer.body
    events = events_of(answer.body)
    assert judge_stream(events) == []
    return events


async def test_a_conversation_goes_on_and_forks_on_any_node(url: str) -> None:
    async with running(url, Slow()) as nodes:
        first = (await ask(nodes.one, input="root")).json["id"]
        forks = await asyncio.gather(
            ask(nodes.one, input="left", previous_response_id=first),
            ask(nodes.other, input="right", previous_response_id=first),
        )
        right = forks[1].json["id"]
        last = await ask(nodes.one, input="on", previous_response_id=right, stream=True)

    assert [answer.status for answer in forks] == [200, 200]
    assert terminal(events_of(last.body)).output_text == "ON"
    said = [text_of(item["content"]) for item in nodes.backends[0].plans[-1].items]
    assert said == ["root", "ROOT", "right", "RIGHT", "on"]


async def test_a_stream_is_followed_live_on_the_other_node(url: str) -> None:
    model = Slow()
    async with running(url, model) as nodes, asyncio.timeout(30):
        queued = (await ask(nodes.one, input="slow", background=True)).json["id"]
        await model.has_begun.wait()
        there = asyncio.create_task(log_of(nodes.other, queued))
        here = asyncio.create_task(log_of(nodes.one, queued))
        model.go_on.set()
        events = await there
        assert events == await here

    assert terminal(events).output_text == "so slow"


async def test_a_turn_is_cancelled_from_the_other_node(url: str) -> None:
    model = Slow()
    async with running(url, model) as nodes, asyncio.timeout(30):
        queued = (await ask(nodes.one, input="slow", background=True)).json["id"]
        await model.has_begun.wait()
        cancelled = await request(nodes.other, "POST", f"/responses/{queued}/cancel")
        again = await request(nodes.one, "POST", f"/responses/{queued}/cancel")

    assert cancelled.json["status"] == "cancelled"
    assert cancelled.json["output"][0]["content"][0]["text"] == "so "
    assert again.json == cancelled.json
    assert nodes.backends[0].stopped_early == 1


async def test_a_conversation_has_one_writer_among_all_nodes(url: str) -> None:
    model = Slow()
    async with running(url, model) as nodes, asyncio.timeout(30):
        name = (await request(nodes.one, "POST", "/conversations")).json["id"]
        queued = (await ask(nodes.one, input="slow", background=True, conversation=name)).json["id"]
        await model.has_begun.wait()
        refused = await ask(nodes.other, input="me too", conversation=name)
        model.go_on.set()
        await log_of(nodes.other, queued)
        after = await ask(nodes.other, input="now", conversation=name)
        items = (await request(nodes.one, "GET", f"/conversations/{name}/items?order=asc")).json

    assert (refused.status, refused.error["code"]) == (409, "conversation_locked")
    assert after.status == 200
    texts = [text_of(item["content"]) for item in items["data"]]
    assert texts == ["slow", "so slow", "now", "NOW"]


async def test_a_key_stands_for_one_run_on_all_nodes(url: str) -> None:
    async with running(url, Slow()) as nodes:
        headers = {"Idempotency-Key": "k1"}
        first = await ask(nodes.one, headers, input="once")
        again = await ask(nodes.other, headers, input="once")
        other = await ask(nodes.other, headers, input="twice")

    assert again.json == first.json
    assert other.status == 422
    assert [len(backend.plans) for backend in nodes.backends] == [1, 0]


async def test_what_is_deleted_on_one_node_is_gone_on_the_other(url: str) -> None:
    async with running(url, Slow()) as nodes:
        done = (await ask(nodes.one, input="gone")).json["id"]
        assert (await request(nodes.other, "GET", f"/responses/{done}")).status == 200
        await request(nodes.other, "DELETE", f"/responses/{done}")
        missing = await request(nodes.one, "GET", f"/responses/{done}")
        refused = await ask(nodes.one, input="on", previous_response_id=done)

    assert missing.status == 404
    assert refused.error["code"] == "previous_response_not_found"
