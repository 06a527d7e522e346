"""`on_disconnect = "finish"`: a client leaves, and the call that is under way goes on to its end.

The upstream waits in the middle of its answer until the gateway has noticed that the client has
left. Then it goes on, and the ledger must have the figures that it has billed.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final

import aiohttp
import pytest

from antiphon.backends.chat import ChatBackend
from antiphon.backends.scripted import ScriptedBackend
from antiphon.engine.run.reader import Reader
from antiphon.gateway.assemble import ServerSettings
from antiphon.protocol.response import Response
from antiphon.routing.describe import ModelSettings
from antiphon.server.limits import ServerLimits
from antiphon.store.base.ledger import Charge
from antiphon.store.memory import MemoryStore
from antiphon.testing.gateway import Gateway, serve_gateway
from antiphon.testing.tools import ScriptedTool, ToolStep
from antiphon.tools.base import HostedCall, ToolLimits
from antiphon.transport.http import Limits
from tests.billing import PIECE, Bill, Json, Play, billing_upstream
from tests.engine.run.test_hosted import LOOK, calling, saying
from tests.engine.test_bill import HOSTED, PATIENCE, PRICE, PROMPT, check_bill, settled
from tests.faults.house import until
from tests.server.test_garbage import held
from tests.talking import talk

PAUSED: Final = Play(pieces=5, late=7, pauses=True)
"""Twelve tokens if it is streamed, five if it is whole."""
_RETRIES: Final = "x-stainless-retry-count"
FINISH: Final = ServerSettings(on_disconnect="finish")


@dataclass(frozen=True)
class Place:
    """A gateway, its upstream, and what becomes of a client."""

    gateway: Gateway
    bill: Bill
    store: MemoryStore
    left: asyncio.Event
    """Set when the gateway has noticed that a client has left."""

    async def leave(self, path: str, body: Json) -> None:
        """Ask, and leave when the upstream pauses."""
        async with aiohttp.ClientSession(headers={_RETRIES: "0"}) as session:
            asking = asyncio.create_task(_post(session, f"{self.gateway.base_url}{path}", body))
            await self._leave(asking)
        await asyncio.wait_for(self.left.wait(), PATIENCE)

    async def leave_socket(self, body: Json) -> None:
        """Ask over a WebSocket, and close it when the upstream pauses."""
        async with talk(self.gateway.base_url) as wire:
            await wire.ask(**body)
            await asyncio.wait_for(self.bill.stalled.wait(), PATIENCE)
        await asyncio.wait_for(self.left.wait(), PATIENCE)

    async def _leave(self, asking: asyncio.Task[bytes]) -> None:
        await asyncio.wait_for(self.bill.stalled.wait(), PATIENCE)
        asking.cancel()
        with suppress(asyncio.CancelledError):
            await asking

    async def charges(self) -> list[Charge]:
        """Return the charges when all are settled, held against the bill."""
        found = await settled(self.store)
        check_bill(self.bill, found)
        await until(lambda: self.gateway.app.metrics.turns == 0)
        return found

    async def response(self) -> Response:
        """Return the only response that is stored, when it has ended."""
        (charge, *_) = await self.charges()
        found = await self.store.get("local", charge.response_id)
        assert found is not None
        return found


async def _post(session: aiohttp.ClientSession, url: str, body: Json) -> bytes:
    async with session.post(url, json=body) as answer:
        return await answer.read()


Open = Callable[..., Any]


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Open:
    """Return what opens a place, where plays are played."""
    left = asyncio.Event()
    leave = Reader.leave

    def note(reader: Reader) -> None:
        leave(reader)
        left.set()

    monkeypatch.setattr(Reader, "leave", note)

    @asynccontextmanager
    async def opened(
        plays: Sequence[Play],
        tool: ScriptedTool | None = None,
        settings: ServerSettings = FINISH,
        idle: float | None = None,
    ) -> AsyncIterator[Place]:
        store, limits = MemoryStore(), Limits() if idle is None else Limits(idle=idle)

        async def pause(_: float) -> None:
            bill.stalled.set()
            await bill.resumed.wait()

        async with (
            billing_upstream(plays) as bill,
            serve_gateway(
                ChatBackend(bill.url, limits=limits, sleep=pause),
                store=store,
                models={"m": ModelSettings(price=PRICE, context_length=200_000)},
                default_model="m",
                tools=[tool or ScriptedTool()],
                settings=settings,
            ) as gateway,
        ):
            yield Place(gateway, bill, store, left)
        await store.close()

    return opened


def body_of(path: str, *, stream: bool, store: bool) -> Json:
    """Return a request for a door."""
    body: Json = {"model": "m", "stream": stream, "store": store}
    if path == "/responses":
        return body | {"input": PROMPT}
    asked = body | {"messages": [{"role": "user", "content": PROMPT}]}
    return asked | {"max_tokens": 4096} if path == "/messages" else asked


@pytest.mark.parametrize("store", [True, False], ids=["stored", "not_stored"])
@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("path", ["/responses", "/chat/completions", "/messages"])
async def test_a_call_whose_client_has_left_is_charged_as_the_upstream_reports(
    place: Open, path: str, *, stream: bool, store: bool
) -> None:
    async with place([PAUSED]) as here:
        await here.leave(path, body_of(path, stream=stream, store=store))
        assert here.gateway.app.metrics.turns == 1  # it has its place until it ends
        here.bill.resumed.set()
        (charge,) = await here.charges()

    assert not here.bill.left.is_set()
    assert (charge.outcome, charge.basis) == ("completed", "reported")
    assert charge.used.output_total == (12 if stream else 5)


@pytest.mark.parametrize("store", [True, False], ids=["stored", "not_stored"])
async def test_so_is_one_over_a_websocket(place: Open, *, store: bool) -> None:
    async with place([PAUSED]) as here:
        await here.leave_socket({"model": "m", "input": PROMPT, "store": store})
        here.bill.resumed.set()
        (charge,) = await here.charges()
        await until(lambda: not here.gateway.app.socket_cache.used)  # the socket has gone

    assert (charge.outcome, charge.basis, charge.used.output_total) == ("completed", "reported", 12)


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
async def test_the_whole_answer_is_stored(place: Open, *, stream: bool) -> None:
    async with place([PAUSED]) as here:
        await here.leave("/responses", body_of("/responses", stream=stream, store=True))
        here.bill.resumed.set()
        response = await here.response()

    assert response.status == "completed"
    assert response.output_text == PIECE * (12 if stream else 5)


async def test_a_retry_gets_the_answer_that_its_first_try_came_to(place: Open) -> None:
    body = body_of("/responses", stream=True, store=True)
    async with place([PAUSED]) as here, aiohttp.ClientSession() as session:
        await here.leave("/responses", body)
        again = {_RETRIES: "1"}
        url = f"{here.gateway.base_url}/responses"
        asking = asyncio.ensure_future(session.post(url, json=body, headers=again))
        here.bill.resumed.set()
        async with await asking as answer:
            found = await answer.text()
        (charge,) = await here.charges()

    assert answer.headers["x-antiphon-replayed"] == "1"
    assert charge.response_id in found
    assert "response.completed" in found


async def test_a_turn_that_has_outlived_its_client_is_freed_at_once(place: Open) -> None:
    async with place([PAUSED]) as here:
        gc.collect()
        gc.disable()
        known = held()  # by other tests of this process
        try:
            await here.leave("/responses", body_of("/responses", stream=True, store=True))
            assert held() - known
            here.bill.resumed.set()
            await here.charges()
            await until(lambda: not held() - known)
        finally:
            gc.enable()


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("store", [True, False], ids=["stored", "not_stored"])
async def test_so_does_a_retry_with_a_key(place: Open, *, stream: bool, store: bool) -> None:
    body = body_of("/responses", stream=stream, store=store)
    async with (
        place([PAUSED, Play()]) as here,
        aiohttp.ClientSession(headers={"Idempotency-Key": "k"}) as session,
    ):
        url = f"{here.gateway.base_url}/responses"
        await here._leave(asyncio.create_task(_post(session, url, body)))
        await asyncio.wait_for(here.left.wait(), PATIENCE)
        here.bill.resumed.set()
        (charge,) = await here.charges()
        async with session.post(url, json=body) as answer:
            found = await answer.text()

    assert answer.headers.get("x-antiphon-replayed") == "1"
    assert charge.response_id in found
    assert len(here.bill.requests) == 1


async def test_no_hosted_tool_starts_after_the_client_has_left(place: Open) -> None:
    tool = ScriptedTool(has_effects=False)
    calls = Play(calls="{}", pauses=True)
    async with place([calls, Play()], tool) as here:
        await here.leave("/responses", {"input": PROMPT, "tools": [HOSTED], "stream": True})
        here.bill.resumed.set()
        (charge,) = await here.charges()
        response = await here.response()

    assert tool.calls == []
    assert charge.basis == "reported"
    assert response.status == "cancelled"


async def test_a_hosted_tool_that_runs_ends_and_the_model_is_not_asked_again(place: Open) -> None:
    resumed = asyncio.Event()
    tool = ScriptedTool(lambda call: [resumed, "done"])
    async with place([Play(calls="{}"), Play()], tool) as here:
        here.bill.stalled.set()
        body = {"input": PROMPT, "tools": [HOSTED], "stream": True}
        async with aiohttp.ClientSession() as session:
            url = f"{here.gateway.base_url}/responses"
            asking = asyncio.create_task(_post(session, url, body))
            await until(lambda: tool.at_once == 1)
            await here._leave(asking)
        await asyncio.wait_for(here.left.wait(), PATIENCE)
        resumed.set()
        response = await here.response()

    assert (tool.at_once, tool.cancelled) == (0, 0)
    assert response.status == "cancelled"
    assert response.output[-1]["output"] == "done"
    assert len(here.bill.calls) == 1


async def test_nor_to_sum_up_what_the_tool_has_found(place: Open) -> None:
    resumed = asyncio.Event()
    tool = ScriptedTool(lambda call: [resumed, "word " * 9000], has_effects=False)
    rule = {"type": "compaction", "compact_threshold": 4000}
    async with place([Play(calls="{}"), Play(), Play()], tool) as here:
        here.bill.stalled.set()
        body = {"input": PROMPT, "tools": [HOSTED], "stream": True, "context_management": [rule]}
        async with aiohttp.ClientSession() as session:
            url = f"{here.gateway.base_url}/responses"
            asking = asyncio.create_task(_post(session, url, body))
            await until(lambda: tool.at_once == 1)
            await here._leave(asking)
        await asyncio.wait_for(here.left.wait(), PATIENCE)
        resumed.set()
        response = await here.response()

    assert response.status == "cancelled"
    assert len(here.bill.requests) == 1


async def test_all_hosted_tools_that_run_end_while_others_wait(place: Open) -> None:
    going: list[asyncio.Event] = []

    def script(call: HostedCall) -> list[ToolStep]:
        going.append(asyncio.Event())
        return [going[-1], "done"]

    tool, store = ScriptedTool(script, has_effects=False), MemoryStore()
    async with (
        place([]) as here,
        serve_gateway(
            ScriptedBackend([calling(LOOK, LOOK, LOOK), saying("no one asks for this")]),
            store=store,
            tools=[tool],
            tool_limits=ToolLimits(at_once=2),
            settings=FINISH,
        ) as gateway,
        aiohttp.ClientSession() as session,
    ):
        body = {"input": "?", "tools": [HOSTED], "stream": True}
        asking = asyncio.create_task(_post(session, f"{gateway.base_url}/responses", body))
        await until(lambda: len(going) == 2)
        here.bill.stalled.set()
        await here._leave(asking)
        await asyncio.wait_for(here.left.wait(), PATIENCE)
        going[0].set()
        await until(lambda: tool.at_once < 2)
        going[1].set()
        await until(lambda: gateway.app.metrics.turns == 0)
        (charge, *_) = await store.ledger.charges()
        response = await store.get("local", charge.response_id)
    await store.close()

    assert (len(tool.calls), tool.cancelled) == (2, 0)
    assert response is not None
    assert [item.get("output") for item in response.output] == ["done", "done"]


async def test_a_call_that_fails_is_not_tried_again(place: Open) -> None:
    async with place([Play(status=503), Play()]) as here:  # it pauses before the next try
        await here.leave("/responses", body_of("/responses", stream=True, store=True))
        here.bill.resumed.set()
        await here.charges()

    assert len(here.bill.requests) == 1


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
async def test_it_can_be_cancelled(place: Open, *, stream: bool) -> None:
    async with place([PAUSED]) as here, aiohttp.ClientSession() as session:
        await here.leave("/responses", body_of("/responses", stream=stream, store=True))
        (charge,) = await here.store.ledger.charges()
        url = f"{here.gateway.base_url}/responses/{charge.response_id}"
        async with session.post(f"{url}/cancel") as answer:
            found = await answer.json()
        await asyncio.wait_for(here.bill.left.wait(), PATIENCE)
        (charge,) = await here.charges()

    if stream:  # the other had not begun, and left nothing
        assert (answer.status, found["status"]) == (200, "cancelled")
    assert charge.outcome == "cancelled"


async def test_another_process_can_cancel_it(place: Open) -> None:
    async with place([PAUSED]) as here:
        await here.leave("/responses", body_of("/responses", stream=True, store=True))
        (charge,) = await here.store.ledger.charges()
        await here.store.ask_cancel("local", charge.response_id)
        response = await here.response()

    assert response.status == "cancelled"
    assert here.bill.left.is_set()


async def test_a_gateway_that_stops_waits_for_it_and_then_ends_it(place: Open) -> None:
    limits = ServerLimits(drain_seconds=0.01)
    settings = ServerSettings(on_disconnect="finish", limits=limits)
    async with place([PAUSED], settings=settings) as here:
        await here.leave("/responses", body_of("/responses", stream=True, store=True))
        await here.gateway.app.drain()
        response = await here.response()

    assert response.status == "failed"
    assert response.error is not None
    assert response.error.code == "server_overloaded"
    assert response.output_text == PIECE * 5


async def test_an_upstream_that_falls_silent_ends_it(place: Open) -> None:
    async with place([PAUSED], idle=0.5) as here:
        await here.leave("/responses", body_of("/responses", stream=True, store=True))
        await asyncio.wait_for(here.bill.left.wait(), PATIENCE)
        (charge,) = await here.charges()

    assert (charge.outcome, charge.basis) == ("failed", "counted")


async def test_by_default_the_call_ends_with_its_client(place: Open) -> None:
    async with place([PAUSED], settings=ServerSettings()) as here:
        async with aiohttp.ClientSession() as session:
            url = f"{here.gateway.base_url}/responses"
            body = body_of("/responses", stream=True, store=True)
            await here._leave(asyncio.create_task(_post(session, url, body)))
        await asyncio.wait_for(here.bill.left.wait(), PATIENCE)
        (charge,) = await here.charges()

    assert (charge.outcome, charge.basis) == ("cancelled", "counted")
