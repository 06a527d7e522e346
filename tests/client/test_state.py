"""Our client against our gateway: what the gateway keeps, cancels and goes on with."""

from __future__ import annotations

import asyncio

from antiphon import AsyncClient
from antiphon.backends.scripted import Script, ScriptedBackend
from antiphon.plans.plan import Plan
from antiphon.protocol.deltas import Stopped, TextGrew
from antiphon.store.base import Conversation
from antiphon.testing.gateway import serve_gateway

STOP = Stopped("stop")


async def test_a_background_response_is_created_polled_and_cancelled() -> None:
    said = asyncio.Event()

    def talk(_: Plan) -> Script:
        yield TextGrew("So far")
        said.set()
        yield asyncio.Event()

    async with (
        serve_gateway(ScriptedBackend(talk)) as gateway,
        AsyncClient(base_url=gateway.base_url) as client,
    ):
        queued = await client.create(model="scripted", input="hi", background=True)
        await said.wait()
        running = await client.retrieve(queued.id)
        cancelled = await client.cancel(queued.id)
        again = await client.cancel(queued.id)
        deleted = await client.delete(queued.id)

    assert (queued.status, running.status, cancelled.status) == (
        "queued",
        "in_progress",
        "cancelled",
    )
    assert cancelled.output_text == "So far"
    assert again == cancelled
    assert deleted.deleted


async def test_a_background_response_is_streamed() -> None:
    async with (
        serve_gateway(ScriptedBackend()) as gateway,
        AsyncClient(base_url=gateway.base_url) as client,
        client.stream(model="scripted", input="one two", background=True) as stream,
    ):
        text = [piece async for piece in stream.text()]
        response = await stream.final_response()

    assert text == ["one", " two"]
    assert response.status == "completed"
    assert response.background is True
    assert stream.deviations == []


async def test_a_conversation_is_gone_on_with() -> None:
    backend = ScriptedBackend()
    async with serve_gateway(backend) as gateway, AsyncClient(base_url=gateway.base_url) as client:
        conversations = gateway.store.conversations
        await conversations.create("local", Conversation("conv_1", 1), [])
        first = await client.create(model="scripted", input="one", conversation="conv_1")
        await client.create(model="scripted", input="two", conversation="conv_1")
        items = await conversations.items("local", "conv_1")

    assert first.conversation == {"id": "conv_1"}
    assert [len(plan.items) for plan in backend.plans] == [1, 3]
    assert items is not None and len(items) == 4
