"""Native state of a provider comes back to it, and nobody else ever sees it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from antiphon.backends.scripted import ScriptedBackend, Step
from antiphon.protocol.deltas import CallMade, NativeState, ReasoningGrew, Stopped, TextGrew
from antiphon.protocol.items import item_type
from antiphon.protocol.native_state import NATIVE, native_of, state_of
from antiphon.testing.gateway import Gateway, serve_gateway
from tests.asking import ask
from tests.faults.house import PATIENCE

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
