"""The ledger equals the provider's bill, however a turn ends.

An upstream on loopback keeps the bill. Every ending is tried in every mode, with and without a
round of a hosted tool before it, stored and not stored. Where the upstream reported, the ledger
has the same tokens; where it did not, they are counted within 3 percent. Nothing stays held.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from itertools import product
from typing import Any, Final

import aiohttp
import pytest

from antiphon.backends.chat import ChatBackend
from antiphon.models.prices import PriceSettings
from antiphon.protocol.errors import StoreUnavailable
from antiphon.protocol.response import Response
from antiphon.routing.describe import ModelSettings
from antiphon.routing.settings import DeploymentSettings, RouteSettings
from antiphon.store.base.ledger import Charge
from antiphon.store.memory import MemoryStore
from antiphon.testing.gateway import Gateway, serve_gateway
from antiphon.testing.tools import ScriptedTool
from antiphon.transport.http import Limits
from tests.billing import Bill, Json, Play, billing_upstream
from tests.talking import talk
from tests.transport.test_dial import full_port

PROMPT: Final = "tell me about the sea and all that lives in it " * 200
HOSTED: Final = {"type": "mcp", "server_label": "test"}
TOOL: Final = {
    "type": "function",
    "name": "look",
    "parameters": {
        "type": "object",
        "properties": {"at": {"type": "integer"}},
        "required": ["at"],
        "additionalProperties": False,
    },
    "strict": True,
}
PRICE: Final = PriceSettings(input=Decimal("1.25"), output=Decimal(10), cached=Decimal("0.125"))
PATIENCE: Final = 60.0


@dataclass(frozen=True)
class Ending:
    """What the upstream does in the calls of a turn, and what the client does."""

    plays: Sequence[Play]
    leaves: bool = False
    """Whether the client leaves when the upstream waits."""
    needs_tool: bool = False
    is_streamed: bool = False
    """Whether it can only happen when the upstream streams."""
    loses_store: bool = False
    idle: float | None = None


ENDINGS: Final[dict[str, Ending]] = {
    "completed": Ending([Play()]),
    "long": Ending([Play(pieces=400)]),
    "cached": Ending([Play(cached=512)]),
    "reasoning": Ending([Play(thoughts=7)]),
    "length": Ending([Play(finish="length")]),
    "content_filter": Ending([Play(finish="content_filter")]),
    "tool_call": Ending([Play(calls='{"at":1}')], needs_tool=True),
    "repair": Ending([Play(calls='{"at":"x"}'), Play(calls='{"at":1}')], needs_tool=True),
    "retry": Ending([Play(status=429), Play()]),
    "retry_after_overload": Ending([Play(status=503), Play()]),
    "dropped": Ending([Play(drops=True)]),
    "400": Ending([Play(status=400)]),
    "401": Ending([Play(status=401)]),
    "404": Ending([Play(status=404)]),
    "500": Ending([Play(status=500)]),
    "broken_early": Ending([Play(pieces=0, breaks="reset")]),
    "broken_late": Ending([Play(pieces=40, breaks="reset")], is_streamed=True),
    "closed_without_end": Ending([Play(pieces=40, breaks="closed")], is_streamed=True),
    "error_in_stream": Ending([Play(pieces=40, breaks="error")], is_streamed=True),
    "usage_then_broken": Ending([Play(breaks="reset", is_early=True)], is_streamed=True),
    "no_usage": Ending([Play(usage=None)]),
    "no_usage_small_pieces": Ending([Play(usage=None, text="a", pieces=60)], is_streamed=True),
    "no_usage_large_pieces": Ending([Play(usage=None, text="12345678" * 5, tokens=10)]),
    "output_of_zero": Ending([Play(usage="zero")]),
    "usage_without_output": Ending([Play(usage="input")]),
    "usage_of_zeros": Ending([Play(usage="zeros")]),
    "left_before_output": Ending([Play(pieces=0, breaks="stall")], leaves=True),
    "left_after_one": Ending([Play(pieces=1, breaks="stall")], leaves=True),
    "left_late": Ending([Play(pieces=40, breaks="stall")], leaves=True),
    "left_with_output_on_its_way": Ending([Play(pieces=10, breaks="stall", late=20)], leaves=True),
    "left_while_thinking": Ending([Play(pieces=0, thoughts=9, breaks="stall")], leaves=True),
    "silent": Ending([Play(pieces=6, breaks="stall")], is_streamed=True, idle=0.2),
    "store_fails": Ending([Play()], loses_store=True),
}


class LosingStore(MemoryStore):
    """A store that cannot write the first end of a turn."""

    def __init__(self) -> None:
        super().__init__()
        self.losses = 0

    async def finish(self, owner: str, response: Response, **rest: Any) -> None:
        if not self.losses:
            self.losses += 1
            raise StoreUnavailable("the disk is full")
        await super().finish(owner, response, **rest)


Mode = Callable[[Gateway, Bill, bool, Json], Awaitable[Json | None]]
"""Asks in one way; returns the response if there is one. It leaves when the upstream waits."""


async def _post(gateway: Gateway, path: str, body: Json, bill: Bill, leaves: bool) -> bytes | None:
    timeout = aiohttp.ClientTimeout(total=PATIENCE)
    async with aiohttp.ClientSession(timeout=timeout) as session:
        asking = asyncio.create_task(_read(session, f"{gateway.base_url}{path}", body))
        if not leaves:
            return await asking
        await asyncio.wait_for(bill.stalled.wait(), PATIENCE)
        await _shown(gateway)
        asking.cancel()
        await asyncio.wait({asking})
    await asyncio.wait_for(bill.left.wait(), PATIENCE)
    return None


async def _shown(gateway: Gateway) -> None:
    """Let what the upstream has sent arrive before the client leaves."""
    await asyncio.sleep(0.05)


async def _read(session: aiohttp.ClientSession, url: str, body: Json) -> bytes:
    async with session.post(url, json=body) as answer:
        return await answer.read()


def _last(body: bytes | None) -> Json | None:
    """Return the response of the terminal event of a stream."""
    if body is None or not body.startswith(b"event"):
        return None
    events = [json.loads(line[6:]) for line in body.split(b"\n") if line.startswith(b"data: {")]
    found: Json = events[-1].get("response")
    return found


async def stream(gateway: Gateway, bill: Bill, leaves: bool, body: Json) -> Json | None:
    return _last(await _post(gateway, "/responses", {**body, "stream": True}, bill, leaves))


async def whole(gateway: Gateway, bill: Bill, leaves: bool, body: Json) -> Json | None:
    answer = await _post(gateway, "/responses", body, bill, leaves)
    found: Json | None = None if answer is None else json.loads(answer)
    return found if found and found.get("object") == "response" else None


async def background(gateway: Gateway, bill: Bill, leaves: bool, body: Json) -> Json | None:
    async with aiohttp.ClientSession() as session:
        asked = {**body, "background": True}
        async with session.post(f"{gateway.base_url}/responses", json=asked) as answer:
            begun = await answer.json()
        url = f"{gateway.base_url}/responses/{begun['id']}"
        if leaves:
            await asyncio.wait_for(bill.stalled.wait(), PATIENCE)
            await _shown(gateway)
            async with session.post(f"{url}/cancel") as answer:
                found: Json = await answer.json()
                return found
        while True:
            async with session.get(url) as answer:
                found = await answer.json()
            if found["status"] not in ("queued", "in_progress"):
                return found
            await asyncio.sleep(0.01)


async def websocket(gateway: Gateway, bill: Bill, leaves: bool, body: Json) -> Json | None:
    async with talk(gateway.base_url) as wire:
        await wire.ask(**{**body, "model": "m"})
        if leaves:
            await asyncio.wait_for(bill.stalled.wait(), PATIENCE)
            await _shown(gateway)
            return None
        last = (await wire.events())[-1]
    found: Json | None = last.get("response")
    return found


async def chat_door(
    gateway: Gateway, bill: Bill, leaves: bool, body: Json, *, is_streamed: bool = True
) -> Json | None:
    tools = [_as_function(tool) for tool in body.get("tools") or ()]
    asked: Json = {"model": "m", "messages": [{"role": "user", "content": PROMPT}]}
    asked |= {"stream": is_streamed}
    asked |= {"store": body["store"]} | ({"tools": tools} if tools else {})
    await _post(gateway, "/chat/completions", asked, bill, leaves)
    return None


async def messages_door(
    gateway: Gateway, bill: Bill, leaves: bool, body: Json, *, is_streamed: bool = True
) -> Json | None:
    asked: Json = {"model": "m", "messages": [{"role": "user", "content": PROMPT}]}
    asked |= {"stream": is_streamed, "max_tokens": 4096}
    tools = [
        {"name": tool["name"], "input_schema": tool["parameters"]}
        for tool in body.get("tools") or ()
        if tool["type"] == "function"
    ]
    await _post(gateway, "/messages", asked | ({"tools": tools} if tools else {}), bill, leaves)
    return None


def _as_function(tool: Json) -> Json:
    if tool["type"] != "function":
        return tool
    return {"type": "function", "function": {k: v for k, v in tool.items() if k != "type"}}


MODES: Final[dict[str, Mode]] = {
    "stream": stream,
    "whole": whole,
    "background": background,
    "websocket": websocket,
    "chat": chat_door,
    "chat_whole": partial(chat_door, is_streamed=False),
    "messages": messages_door,
    "messages_whole": partial(messages_door, is_streamed=False),
}
WHOLE: Final = ("whole", "chat_whole", "messages_whole")


async def _instantly(_: float) -> None:
    return


@asynccontextmanager
async def billed_gateway(
    plays: Sequence[Play], store: MemoryStore, idle: float | None = None
) -> AsyncIterator[tuple[Gateway, Bill]]:
    limits = Limits() if idle is None else Limits(idle=idle)
    async with billing_upstream(plays) as bill:
        backend = ChatBackend(bill.url, limits=limits, sleep=_instantly)
        settings = {"m": ModelSettings(price=PRICE, context_length=200_000)}
        async with serve_gateway(
            backend, store=store, models=settings, default_model="m", tools=[ScriptedTool()]
        ) as gateway:
            yield gateway, bill


async def settled(store: MemoryStore) -> list[Charge]:
    """Return all charges, the first one first, when none is held any more."""
    async with asyncio.timeout(PATIENCE):
        while True:
            found = (await store.ledger.charges(limit=1000))[::-1]
            if found and all(charge.state != "held" for charge in found):
                return sorted(found, key=lambda charge: charge.number)
            await asyncio.sleep(0.005)


def check_bill(bill: Bill, charges: Sequence[Charge]) -> None:
    """Hold the ledger against the bill, call by call."""
    paid = [charge for charge in charges if charge.outcome != "released"]
    assert len(paid) == len(bill.calls), (paid, bill.calls)
    for charge, billed in zip(paid, bill.calls, strict=True):
        used = charge.used
        if charge.basis == "reported":
            assert (used.input_total, used.output_total) == (billed.input, billed.output)
            assert (used.cached, used.reasoning) == (
                billed.cached,
                billed.reasoning if billed.output else 0,
            )
        else:  # only the charges of a process that died are assumed
            assert charge.basis == "counted"
            assert abs(used.input_total - billed.input) <= 0.03 * billed.input + 1
            assert abs(used.output_total - billed.output) <= 0.03 * billed.output + 1
        assert charge.cost == _cost(charge)
        held = charge.held
        assert held.input_total >= billed.input
    released = [charge for charge in charges if charge.outcome == "released"]
    assert all(charge.used.total == 0 and not charge.cost for charge in released)


def _cost(charge: Charge) -> int:
    """Return what it costs in nano-dollars, computed in another way than the gateway does."""
    used = charge.used
    micros = used.fresh * PRICE.input + used.cached * Decimal("0.125")
    return round((micros + used.output_total * PRICE.output) * 1000)


def check_response(response: Json | None, charges: Sequence[Charge]) -> None:
    """A response states the sum of its charges."""
    if response is None or response.get("usage") is None:
        return
    usage = response["usage"]
    assert usage["input_tokens"] == sum(charge.used.input_total for charge in charges)
    assert usage["output_tokens"] == sum(charge.used.output_total for charge in charges)
    cost = response["antiphon"]["cost"]
    nanos = sum(charge.cost or 0 for charge in charges)
    assert Decimal(cost["usd"]) * 10**9 == nanos
    bases = {charge.basis for charge in charges if charge.outcome != "released"} or {"reported"}
    assert cost["basis"] == ("counted" if "counted" in bases else "reported")


CASES: Final = [
    (mode, name)
    for mode, (name, ending) in product(MODES, ENDINGS.items())
    if not (ending.is_streamed and mode in WHOLE)
]


@pytest.mark.parametrize(("mode", "name"), CASES)
async def test_the_ledger_equals_the_bill(mode: str, name: str) -> None:
    ending = ENDINGS[name]
    for is_stored, has_round in product((True, False), (False, True)):
        if (mode == "background" and not is_stored) or (mode.startswith("messages") and has_round):
            continue
        if has_round and ending.needs_tool:
            continue
        await _try(mode, ending, is_stored=is_stored, has_round=has_round)


async def _try(mode: str, ending: Ending, *, is_stored: bool, has_round: bool) -> None:
    first = [Play(calls="{}")] if has_round else []
    tools = [HOSTED] if has_round else [TOOL] if ending.needs_tool else []
    store = LosingStore() if ending.loses_store else MemoryStore()
    body: Json = {"input": PROMPT, "store": is_stored} | ({"tools": tools} if tools else {})
    async with billed_gateway([*first, *ending.plays], store, ending.idle) as (gateway, bill):
        response = await MODES[mode](gateway, bill, ending.leaves, body)
        await gateway.app.engine.pending_writes.settle()
        charges = await settled(store)
        check_bill(bill, charges)
        check_response(response, charges)
        assert await store.ledger.check() == []
    await store.close()


async def _held(store: MemoryStore) -> None:
    """Return when a charge is held."""
    async with asyncio.timeout(PATIENCE):
        while True:
            found = await store.ledger.charges()
            if any(charge.state == "held" for charge in found):
                return
            await asyncio.sleep(0.005)


@pytest.mark.parametrize("mode", ["stream", "whole", "background", "chat"])
async def test_a_request_that_did_not_go_out_costs_nothing(mode: str) -> None:
    store, bill = MemoryStore(), Bill()
    with full_port() as port:
        backend = ChatBackend(f"http://127.0.0.1:{port}/v1", sleep=_instantly)
        async with serve_gateway(backend, store=store, default_model="m") as gateway:
            body: Json = {"model": "m", "input": PROMPT, "store": mode == "background"}
            asking = asyncio.ensure_future(MODES[mode](gateway, bill, True, body))
            await _held(store)
            bill.stalled.set()
            bill.left.set()
            await asking
            charge, *more = await settled(store)
            assert (charge.outcome, charge.used.total, more) == ("released", 0, [])
    await store.close()


async def test_both_attempts_of_a_failover_are_on_their_own_bills() -> None:
    async with (
        billing_upstream([Play(status=503)]) as first,
        billing_upstream([Play()]) as second,
    ):
        store = MemoryStore()
        deployments = [DeploymentSettings(provider=name, model="m") for name in ("first", "second")]
        routes = {"r": RouteSettings(deployments=tuple(deployments), affinity="none")}
        backends = {
            "first": ChatBackend(first.url, sleep=_instantly),
            "second": ChatBackend(second.url, sleep=_instantly),
        }
        async with serve_gateway(
            backends, store=store, routes=routes, models={"m": ModelSettings(price=PRICE)}
        ) as gateway:
            await stream(gateway, second, False, {"model": "r", "input": PROMPT})
            charges = await settled(store)
            assert [charge.outcome for charge in charges][-1] == "completed"
            assert len(first.calls) + len(second.calls) == 1
            check_bill(second, charges)
        await store.close()
