"""Clients that send back only calls: native state is kept for them, in every store."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from antiphon.backends.scripted import Step
from antiphon.gateway.assemble import ServerSettings
from antiphon.protocol.deltas import CallMade, NativeState, ReasoningGrew, Stopped, TextGrew
from antiphon.protocol.items import Item, item_type, text_of
from antiphon.protocol.native_state import NATIVE
from antiphon.server.auth import new_key
from antiphon.server.doors import DoorSettings
from antiphon.store.base import Store
from antiphon.testing.gateway import Gateway, serve_gateway
from tests.asking import Answer, request
from tests.faults.house import PATIENCE
from tests.server.test_native_state import ALONE, DONE, SIGNED, Model

CHAT_TOOL: Any = {
    "type": "function",
    "function": {"name": "look", "parameters": {"type": "object"}},
}
TOOL: Any = {"name": "look", "input_schema": {"type": "object"}}
USER = {"role": "user", "content": "hi"}
CALLING: list[Step] = [
    ReasoningGrew("hm"),
    SIGNED,
    ALONE,
    TextGrew("I look."),
    CallMade("look", "{}", call_id="c1"),
    CallMade("look", '{"at":"it"}', call_id="c2"),
    Stopped("stop"),
]
NEXT = NativeState("gemini", b"g", "next")


async def chat(gateway: Gateway, *more: Any, stream: bool = False, **headers: str) -> Answer:
    body = {"messages": [USER, *more], "tools": [CHAT_TOOL], "stream": stream}
    answer = await request(gateway, "POST", "/chat/completions", body, headers)
    assert answer.status == 200, answer.body
    assert NATIVE.encode() not in answer.body
    return answer


def assistant(*ids: str, **more: Any) -> dict[str, Any]:
    calls = [
        {"id": name, "type": "function", "function": {"name": "look", "arguments": "{}"}}
        for name in ids
    ]
    return {"role": "assistant", "content": "I look.", "tool_calls": calls, **more}


def results(*ids: str) -> list[dict[str, Any]]:
    return [{"role": "tool", "tool_call_id": name, "content": "seen"} for name in ids]


def kinds(model: Model) -> list[str]:
    return [item_type(item) for item in model.plans[-1].items]


@pytest.mark.parametrize("stream", [False, True])
async def test_a_chat_client_that_drops_reasoning_continues_with_native_state(
    store: Store, stream: bool
) -> None:
    model = Model((CALLING, DONE, DONE))
    async with asyncio.timeout(PATIENCE), serve_gateway(model, store=store) as gateway:
        await chat(gateway, stream=stream)
        history = [assistant("c1", "c2"), *results("c1", "c2")]
        await chat(gateway, *history, stream=stream)
        first = model.plans[-1].items
        await chat(gateway, *history, {"role": "assistant", "content": "done"}, USER)

    assert model.states == [SIGNED, ALONE]
    assert kinds(model)[1:6] == ["reasoning", "reasoning", "message", *["function_call"] * 2]
    assert text_of(first[1]["content"]) == "hm"
    later = model.plans[-1].items[: len(first)]
    assert [without_id(item) for item in later] == [without_id(item) for item in first]


def without_id(item: Item) -> Item:
    return {key: value for key, value in item.items() if key != "id"}


async def test_reasoning_that_a_chat_client_sends_back_as_text_is_not_doubled(
    store: Store,
) -> None:
    model = Model((CALLING, DONE))
    async with asyncio.timeout(PATIENCE), serve_gateway(model, store=store) as gateway:
        await chat(gateway)
        await chat(gateway, assistant("c1", reasoning_content="hm"), *results("c1"))

    assert model.states == [SIGNED, ALONE]


async def test_a_chat_client_that_echoes_reasoning_details_carries_native_state(
    store: Store,
) -> None:
    model = Model((CALLING, DONE))
    async with asyncio.timeout(PATIENCE), serve_gateway(model, store=store) as gateway:
        first = await chat(gateway)
        message = first.json["choices"][0]["message"]
        await store.native_states.expire(1 << 40)
        await chat(gateway, message, *results("c1", "c2"))

    assert model.states == [SIGNED, ALONE]


async def test_each_call_of_a_chat_answer_keeps_its_own_state(store: Store) -> None:
    script = [NEXT, CALLING[4], NativeState("gemini", b"h", "next"), *CALLING[5:]]
    model = Model((script, DONE))
    async with asyncio.timeout(PATIENCE), serve_gateway(model, store=store) as gateway:
        await chat(gateway)
        await chat(gateway, assistant("c1", "c2"), *results("c1", "c2"))

    pairs = ["reasoning", "function_call"] * 2
    # The first state began the turn, so it stands before the text that the client sent back.
    assert kinds(model)[1:6] == ["reasoning", "message", "function_call", *pairs[:2]]
    states = [state.data for state in model.states if state is not None]
    assert states == [b"g", b"h"]


async def test_owners_do_not_share_native_state(store: Store) -> None:
    settings = ServerSettings(require_keys=True)
    model = Model((CALLING, DONE, DONE))
    async with (
        asyncio.timeout(PATIENCE),
        serve_gateway(model, store=store, settings=settings) as gateway,
    ):
        (alice, first), (bob, second) = new_key("alice", 0), new_key("bob", 0)
        await store.add_key(first)
        await store.add_key(second)
        await chat(gateway, Authorization=f"Bearer {alice}")
        history = [assistant("c1", "c2"), *results("c1", "c2")]
        await chat(gateway, *history, Authorization=f"Bearer {bob}")
        assert model.states == []
        await chat(gateway, *history, Authorization=f"Bearer {alice}")

    assert model.states == [SIGNED, ALONE]


@pytest.mark.parametrize("stream", [False, True])
async def test_a_messages_client_without_thinking_continues_with_native_state(
    store: Store, stream: bool
) -> None:
    model = Model((CALLING, DONE))
    async with asyncio.timeout(PATIENCE), serve_gateway(model, store=store) as gateway:
        body = {"model": "scripted", "max_tokens": 99, "tools": [TOOL], "messages": [USER]}
        first = await request(gateway, "POST", "/messages", {**body, "stream": stream})
        assert b'"type":"thinking"' not in first.body
        assert NATIVE.encode() not in first.body
        uses = [
            {"type": "tool_use", "id": name, "name": "look", "input": {}}
            for name in tool_use_ids(first)
        ]
        answers = [
            {"type": "tool_result", "tool_use_id": use["id"], "content": "seen"} for use in uses
        ]
        history = [{"role": "assistant", "content": uses}, {"role": "user", "content": answers}]
        await request(gateway, "POST", "/messages", {**body, "messages": [USER, *history]})

    assert model.states == [SIGNED, ALONE]


def tool_use_ids(answer: Answer) -> list[str]:
    if answer.body.startswith(b"{"):
        blocks = answer.json["content"]
    else:
        lines = answer.body.decode().splitlines()
        events = [msgspec.json.decode(line[6:]) for line in lines if line.startswith("data: ")]
        blocks = [event.get("content_block", {}) for event in events]
    return [block["id"] for block in blocks if block.get("type") == "tool_use"]


async def test_messages_with_thinking_keep_nothing_here(store: Store) -> None:
    model = Model((CALLING,))
    async with asyncio.timeout(PATIENCE), serve_gateway(model, store=store) as gateway:
        thinking = {"type": "enabled", "budget_tokens": 1024}
        body = {"model": "scripted", "max_tokens": 2000, "tools": [TOOL], "thinking": thinking}
        await request(gateway, "POST", "/messages", {**body, "messages": [USER]})

    assert await store.native_states.find("local", ["c1", "c2"], 0) == {}


async def test_nothing_is_kept_if_that_is_turned_off(store: Store) -> None:
    model = Model((CALLING, DONE))
    settings = ServerSettings(doors=DoorSettings(keep_state=False))
    async with (
        asyncio.timeout(PATIENCE),
        serve_gateway(model, store=store, settings=settings) as gateway,
    ):
        await chat(gateway)
        await chat(gateway, assistant("c1"), *results("c1"))

    assert model.states == []
    assert await store.native_states.find("local", ["c1", "c2"], 0) == {}
