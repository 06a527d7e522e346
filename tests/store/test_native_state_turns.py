"""Native state is stored with a turn in every store, comes back, and is never shown."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from antiphon.backends.scripted import Step
from antiphon.protocol.deltas import NativeState
from antiphon.protocol.native_state import NATIVE
from antiphon.store.base import Store
from antiphon.testing.gateway import Gateway, serve_gateway
from tests.asking import Answer, ask, request
from tests.faults.house import PATIENCE
from tests.server.test_native_state import ALONE, CALLING, DONE, LOOK, RESULT, SIGNED, Model

LONG = "word " * 8_000


@asynccontextmanager
async def served(store: Store, *before: list[Step]) -> AsyncIterator[tuple[Gateway, Model]]:
    model = Model((*before, CALLING, DONE, DONE))
    async with asyncio.timeout(PATIENCE), serve_gateway(model, store=store) as gateway:
        yield gateway, model


def check_hidden(*answers: Answer) -> None:
    """Fail if an answer shows native state, sealed or not."""
    for answer in answers:
        assert answer.status == 200, answer.body
        assert NATIVE.encode() not in answer.body
        assert b'"encrypted_content":"' not in answer.body


@pytest.mark.parametrize("is_streamed", [False, True])
async def test_a_response_is_continued_with_its_native_state(
    store: Store, is_streamed: bool
) -> None:
    async with served(store) as (gateway, model):
        key = {"Idempotency-Key": "k1"}
        first = await ask(gateway, key, tools=[LOOK], stream=is_streamed)
        again = await ask(gateway, key, tools=[LOOK], stream=is_streamed)
        name = await newest(store)
        second = await ask(gateway, previous_response_id=name, input=[RESULT], tools=[LOOK])
        path = f"/responses/{name}"
        shown = await request(gateway, "GET", path)
        events = await request(gateway, "GET", f"{path}?stream=true")

    assert model.states == [SIGNED, ALONE]
    kinds = [item["type"] for item in shown.json["output"]]
    assert kinds == ["reasoning", "reasoning", "function_call"]
    check_hidden(first, again, second, shown, events)


async def newest(store: Store) -> str:
    claim = await store.claims.find("local", "key:k1")
    assert claim is not None
    return claim.response_id


async def test_a_long_history_from_memory_has_its_native_state(store: Store) -> None:
    async with served(store, DONE) as (gateway, model):
        first = await ask(gateway, input=LONG, tools=[LOOK])
        name = first.json["id"]
        second = await ask(gateway, previous_response_id=name, input="more", tools=[LOOK])
        name = second.json["id"]
        assert gateway.app.engine.threads.find("local", name) is not None
        third = await ask(gateway, previous_response_id=name, input=[RESULT], tools=[LOOK])

    assert model.states == [SIGNED, ALONE]
    check_hidden(first, second, third)


async def test_a_conversation_has_the_native_state_of_its_turns(store: Store) -> None:
    async with served(store) as (gateway, model):
        made = await request(gateway, "POST", "/conversations", {})
        name = made.json["id"]
        first = await ask(gateway, conversation=name, tools=[LOOK], store=False)
        second = await ask(gateway, conversation=name, input=[RESULT], tools=[LOOK])
        listed = await request(gateway, "GET", f"/conversations/{name}/items")
        thought = next(item for item in listed.json["data"] if item["type"] == "reasoning")
        one = await request(gateway, "GET", f"/conversations/{name}/items/{thought['id']}")

    assert model.states == [SIGNED, ALONE]
    check_hidden(first, second, listed, one)


async def test_a_referenced_item_has_its_native_state(store: Store) -> None:
    async with served(store) as (gateway, model):
        first = await ask(gateway, tools=[LOOK])
        names = [item["id"] for item in first.json["output"]]
        given: list[Any] = [{"type": "item_reference", "id": name} for name in names]
        second = await ask(gateway, input=[*given, RESULT], tools=[LOOK])
        listed = await request(gateway, "GET", f"/responses/{second.json['id']}/input_items")

    assert model.states == [SIGNED, ALONE]
    check_hidden(first, second, listed)


async def test_another_process_continues_with_native_state(pair: tuple[Store, Store]) -> None:
    async with served(pair[0]) as (gateway, _):
        first = await ask(gateway, tools=[LOOK])
    async with served(pair[1]) as (gateway, model):
        name = first.json["id"]
        await ask(gateway, previous_response_id=name, input=[RESULT], tools=[LOOK])

    assert model.states == [SIGNED, ALONE]


async def test_native_state_goes_back_as_it_came(store: Store) -> None:
    state = NativeState("gemini", bytes(range(256)), "next", "account")
    model = Model(([state, *CALLING[3:]], DONE))
    async with asyncio.timeout(PATIENCE), serve_gateway(model, store=store) as gateway:
        first = await ask(gateway, tools=[LOOK])
        name = first.json["id"]
        await ask(gateway, previous_response_id=name, input=[RESULT], tools=[LOOK])

    assert model.states == [state]
