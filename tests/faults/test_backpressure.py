"""Clients that read slowly or not at all: they hold the model back, and are cut in the end."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable

from antiphon.backends.base import DeltaSink, ModelInfo
from antiphon.backends.scripted import ScriptedBackend, Step
from antiphon.protocol.deltas import Stopped, TextGrew
from antiphon.testing import Script
from antiphon.testing.gateway import Gateway, serve_gateway
from tests.asking import ask
from tests.faults.house import PATIENCE, limited, open_house, settled, stored, until
from tests.faults.listening import listen, open_request

PIECE = "x" * 32_768
LONG = Script(text=[PIECE] * 900)  # 29 MB, under the limit of one answer
SMALL_BUFFER = 4096


async def running(gateway: Gateway) -> str:
    """Return the id of the one response that runs."""
    await until(lambda: bool(gateway.app._turns))
    (turn,) = gateway.app._turns.values()
    return turn.response_id


async def test_a_client_who_does_not_read_holds_the_upstream_back_and_is_cut() -> None:
    async with open_house(LONG, settings=limited(write_stall_seconds=2.0)) as house:
        tasks = asyncio.all_tasks()
        _, writer = await open_request(
            house.gateway.address, {"input": "x", "stream": True}, receive_buffer=SMALL_BUFFER
        )
        response_id = await running(house.gateway)
        received = await house.upstream.received()
        async with asyncio.timeout(PATIENCE):
            await received.client_left.wait()
        kept = await stored(house.gateway, response_id, "cancelled")
        writer.close()
        await settled(house.gateway, tasks)

    # What lies in the buffers of two sockets; without back-pressure it would be everything.
    assert received.chunks_sent < len(LONG.text)
    assert kept.usage is not None
    assert kept.usage.output_tokens > 0


async def test_a_client_who_reads_slowly_gets_everything_in_order() -> None:
    script = Script(text=[f"<{number}>" + "x" * 4000 for number in range(1000)])
    async with open_house(script, settings=limited(write_stall_seconds=PATIENCE)) as house:
        reader, writer = await open_request(
            house.gateway.address, {"input": "x", "stream": True}, receive_buffer=SMALL_BUFFER
        )
        seen = bytearray()
        while not seen.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n"):
            data = await asyncio.wait_for(reader.read(65_536), PATIENCE)
            assert data, "the gateway hung up"
            seen += data
        writer.close()

    numbers = [int(number) for number in re.findall(rb'"delta":"<(\d+)>', seen)]
    assert numbers == list(range(1000))
    assert house.upstream.requests[0].client_left_at is None


async def test_a_stalled_client_does_not_hold_up_the_others() -> None:
    async with open_house([LONG, Script(text="one two")]) as house:
        _, writer = await open_request(
            house.gateway.address, {"input": "x", "stream": True}, receive_buffer=SMALL_BUFFER
        )
        await running(house.gateway)
        async with listen(house.gateway.base_url) as listener:
            await listener.rest()
        writer.transport.abort()

    assert listener.text == "one two"


async def test_a_client_who_does_not_read_a_whole_answer_is_cut_too() -> None:
    long: list[Step] = [TextGrew("x" * 16_000_000), Stopped("stop")]
    settings = limited(write_stall_seconds=2.0)
    async with serve_gateway(ScriptedBackend([long]), settings=settings) as gateway:
        tasks = asyncio.all_tasks()
        _, writer = await open_request(gateway.address, {"input": "x"}, receive_buffer=SMALL_BUFFER)
        await until(lambda: not asyncio.all_tasks() <= tasks)
        # Only the gateway can end this: nobody reads, and nobody hangs up.
        await settled(gateway, tasks)
        writer.close()


class Counting(ScriptedBackend):
    """A model that never ends, and counts how often it was asked to go on."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0

    async def play(self, steps: Iterable[Step], sink: DeltaSink) -> None:
        while True:
            await asyncio.sleep(0)
            self.asked += 1
            if not sink.push([TextGrew("x" * 1024)]):
                await sink.drained()

    async def models(self) -> list[ModelInfo]:
        return [ModelInfo("endless")]


async def test_a_model_is_not_asked_for_more_than_the_client_takes() -> None:
    backend = Counting()
    async with serve_gateway(backend, settings=limited(write_stall_seconds=2.0)) as gateway:
        tasks = asyncio.all_tasks()
        _, writer = await open_request(
            gateway.address, {"input": "x", "stream": True}, receive_buffer=SMALL_BUFFER
        )
        response_id = await running(gateway)
        kept = await stored(gateway, response_id, "cancelled")
        await settled(gateway, tasks)
        writer.close()

    assert len(kept.output_text) == 1024 * backend.asked
    # The kernel's buffers take some megabytes; ours add a quarter of one.
    assert backend.asked < 64 * 1024


async def test_a_client_that_is_cut_leaves_room_for_the_next() -> None:
    settings = limited(write_stall_seconds=3.0, turns=1)
    async with open_house([LONG, Script(text="ok")], settings=settings) as house:
        tasks = asyncio.all_tasks()
        _, writer = await open_request(
            house.gateway.address, {"input": "x", "stream": True}, receive_buffer=SMALL_BUFFER
        )
        await running(house.gateway)
        full = await ask(house.gateway)
        await settled(house.gateway, tasks)
        writer.close()
        answer = await ask(house.gateway)

    assert (full.status, answer.status) == (503, 200)
