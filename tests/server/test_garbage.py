"""What a turn held is freed when the turn is over, without the garbage collector.

Objects that refer to each other wait for a collection of the oldest generation. Under load that
comes rarely, and memory grows until it does.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Awaitable, Callable
from itertools import product

import aiohttp
import pytest

from antiphon.backends.chat import ChatBackend
from antiphon.engine.run.turn import Turn
from antiphon.gateway.assemble import ServerSettings
from antiphon.protocol.machines.builder import ResponseBuilder
from antiphon.testing import ScriptedUpstream
from antiphon.testing.faults import Cut, Stall, Status
from antiphon.testing.gateway import Gateway, serve_gateway
from antiphon.testing.script import Json, Script, echo
from tests.asking import ask, ask_stream, request, terminal
from tests.talking import talk

_KINDS = (Turn, ResponseBuilder)
_TOOL = {"type": "function", "name": "look", "parameters": {"type": "object"}}


@pytest.fixture
async def gateway(request: pytest.FixtureRequest) -> AsyncIterator[Gateway]:
    settings = ServerSettings(on_disconnect=request.param)
    async with (
        ScriptedUpstream(play) as upstream,
        serve_gateway(ChatBackend(upstream.base_url), settings=settings) as gateway,
    ):
        yield gateway


def play(body: Json) -> Script:
    """Fail as the last message wants it, otherwise echo."""
    faults = {"refuse": Status(400), "cut": Cut(3), "stall": Stall(2)}
    fault = faults.get(body["messages"][-1]["content"])
    return echo(body) if fault is None else Script(text="one two three", faults=[fault])


async def streamed(gateway: Gateway) -> None:
    await ask_stream(gateway, model="echo")


async def streamed_with_a_tool(gateway: Gateway) -> None:
    await ask_stream(gateway, model="echo", tools=[_TOOL])


async def whole(gateway: Gateway) -> None:
    assert (await ask(gateway, model="echo")).status == 200


async def over_a_websocket(gateway: Gateway) -> None:
    async with talk(gateway.base_url) as conversation:
        await conversation.turn(model="echo", input="hello")


async def in_the_background(gateway: Gateway) -> None:
    made = (await ask(gateway, model="echo", background=True)).json
    while made["status"] in ("queued", "in_progress"):
        await asyncio.sleep(0.01)
        made = (await request(gateway, "GET", f"/responses/{made['id']}")).json


async def through_the_chat_door(gateway: Gateway) -> None:
    said = [{"role": "user", "content": "hello"}]
    body = {"model": "echo", "messages": said, "stream": True}
    assert (await request(gateway, "POST", "/chat/completions", body)).status == 200


async def refused(gateway: Gateway) -> None:
    assert (await ask(gateway, model="echo", input="refuse")).status == 400


async def cut(gateway: Gateway) -> None:
    events = await ask_stream(gateway, model="echo", input="cut")
    assert terminal(events).status == "failed"


async def left(gateway: Gateway) -> None:
    """Leave in the middle of the stream."""
    async with aiohttp.ClientSession() as session:
        body = {"model": "echo", "input": "stall", "stream": True}
        async with session.post(gateway.base_url + "/responses", json=body) as answer:
            assert answer.status == 200
            await answer.content.readany()
            answer.close()


RUNS = [
    *(streamed, streamed_with_a_tool, whole, over_a_websocket, in_the_background),
    *(through_the_chat_door, refused, cut),
]
# A turn that outlives its client: see `test_on_disconnect`.
CASES = [("cancel", left), *product(("cancel", "finish"), RUNS)]


@pytest.mark.parametrize(
    ("gateway", "run"),
    CASES,
    indirect=["gateway"],
    ids=[f"{mode}-{run.__name__}" for mode, run in CASES],
)
async def test_a_finished_turn_is_freed_at_once(
    gateway: Gateway, run: Callable[[Gateway], Awaitable[None]]
) -> None:
    await run(gateway)  # what is imported or cached once is not counted
    gc.collect()
    gc.disable()
    known = held()  # by other tests of this process
    try:
        for _ in range(3):
            await run(gateway)
        async with asyncio.timeout(60):
            while held() - known:  # noqa: ASYNC110 - nothing reports that an object is freed
                await asyncio.sleep(0.01)
    finally:
        gc.enable()


def held() -> set[int]:
    """Return which turns and builders are alive, by their id."""
    return {id(one) for one in gc.get_objects() if isinstance(one, _KINDS)}
