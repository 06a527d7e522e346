"""Native state of a provider comes back to it, and nobody else ever sees it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest

from antiphon.backends.scripted import ScriptedBackend, Step
from antiphon.engine.prepare import seal
from antiphon.protocol.deltas import CallMade, NativeState, ReasoningGrew, Stopped, TextGrew
from antiphon.protocol.items import item_type
from antiphon.protocol.native_state import NATIVE, native_of, state_of
from antiphon.testing.gateway import Gateway, serve_gateway
from tests.asking import ask, request
from tests.faults.house import PATIENCE
from tests.talking import talk

LOOK: Final = {"type": "function", "name": "look", "parameters": {"type": "object"}}
SIGNED: Final = NativeState("messages", b"\x00signed\xff", None, "team")
ALONE: Final = NativeState("messages", b"redacted", None, "team")
CALLING: Final[list[Step]] = [
    ReasoningGrew("hm"),
    SIGNED,
    ALONE,
    CallMade("look", "{}", call_id="c1"),
    Stopped("stop"),
]
DONE: Final[list[Step]] = [TextGrew("done"), Stopped("stop")]
SEALED: Final = ["reasoning.encrypted_content"]
RESULT: Final = {"type": "function_call_output", "call_id": "c1", "output": "seen"}


class Model(ScriptedBackend):
    """A model that calls a tool with native state, then answers; it keeps what it was asked."""

    @property
    def states(self) -> list[NativeState | None]:
        """The native states of the reasoning items in the last plan."""
        items = self.plans[-1].items
        return [state_of(item) for item in items if item_type(item) == "reasoning"]


@asynccontextmanager
async def served(*scripts: list[Step], **more: Any) -> AsyncIterator[tuple[Gateway, Model]]:
    model = Model(scripts or (CALLING, DONE))
    async with asyncio.timeout(PATIENCE), serve_gateway(model, **more) as gateway:
        yield gateway, model


async def test_sealed_native_state_is_on_the_item_of_the_next_plan() -> None:
    user = {"role": "user", "content": "hi"}
    async with served() as (gateway, model):
        first = await ask(gateway, input=[user], tools=[LOOK], include=SEALED, store=False)
        history = [user, *first.json["output"], RESULT]
        second = await ask(gateway, input=history, tools=[LOOK], include=SEALED, store=False)

    assert model.states == [SIGNED, ALONE]
    signed = next(item for item in model.plans[-1].items if state_of(item) == SIGNED)
    assert native_of(signed, "messages", "team") == SIGNED
    assert NATIVE.encode() not in first.body + second.body


async def test_native_state_of_a_plan_is_not_stored_with_the_input() -> None:
    async with served() as (gateway, _):
        first = await ask(gateway, tools=[LOOK], include=SEALED)
        again = {"previous_response_id": first.json["id"], "input": [RESULT], "tools": [LOOK]}
        second = await ask(gateway, **again)
        history = await gateway.store.history("local", second.json["id"])

    assert history is not None
    assert not any(NATIVE in item for item in history.items)


async def test_what_is_not_stored_and_not_asked_for_has_no_native_state() -> None:
    async with served() as (gateway, _):
        answer = await ask(gateway, tools=[LOOK], store=False)

    kinds = [item["type"] for item in answer.json["output"]]
    assert kinds == ["reasoning", "function_call"]
    assert "antiphon" not in answer.json or "degraded" not in answer.json["antiphon"]


async def test_a_socket_continues_what_is_not_stored_with_its_native_state() -> None:
    async with served() as (gateway, model), talk(gateway.base_url) as socket:
        body: dict[str, Any] = {"model": "scripted", "tools": [LOOK], "store": False}
        first = await socket.turn(input="hi", **body)
        name = first["response"]["id"]
        last = await socket.turn(previous_response_id=name, input=[RESULT], **body)

    assert model.states == [SIGNED, ALONE]
    assert NATIVE not in str(first) + str(last)


async def test_without_sealing_the_loss_of_native_state_is_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(seal, "can_seal", lambda: False)
    async with served() as (gateway, _):
        answer = await ask(gateway, tools=[LOOK])

    (note,) = answer.json["antiphon"]["degraded"]
    assert note.startswith("reasoning: the state of the provider is not kept: sealing needs")
    assert [item["type"] for item in answer.json["output"]] == ["reasoning", "function_call"]


async def test_what_a_caller_sends_under_the_private_key_is_not_sent_on() -> None:
    thought = {"type": "reasoning", "summary": [], NATIVE: {"wire": "messages", "data": "AA=="}}
    user = {"role": "user", "content": "hi"}
    async with served(DONE) as (gateway, model):
        answer = await ask(gateway, input=[user, thought, user])
        path = f"/responses/{answer.json['id']}/input_items"
        listed = await request(gateway, "GET", path)

    assert model.states == [None]
    assert NATIVE.encode() not in listed.body
