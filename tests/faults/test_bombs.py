"""Upstreams that send far too much: caps hold, memory stays, and others do not notice.

The gateway runs in a process of its own, whose memory is read from /proc.
"""

from __future__ import annotations

import asyncio
import sys
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from antiphon.testing import Endless, Gzip, HugeLine, Script, ScriptedUpstream, Split
from antiphon.testing.script import Json
from tests.asking import Answer, events_of, terminal
from tests.faults.house import PATIENCE
from tests.faults.process import GatewayProcess, serve_process
from tests.transport.raw import Connection, Request, chunk, head, raw_server, reply

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

MAX_GROWTH = 32.0
"""What a bomb may cost, in MiB."""

WHOLE = b'{"choices":[{"message":{"content":"an answer"},"finish_reason":"stop"}]}'
PIECES = [f" {number % 10}" for number in range(100_000)]


def script_for(body: Json) -> Script:
    """Explode as the user asks; answer anybody else."""
    text = body["messages"][-1]["content"]
    text = text if isinstance(text, str) else text[0]["text"]
    return {
        "line": Script(text="so far", faults=[HugeLine(after=3)]),
        "line first": Script(text="so far", faults=[HugeLine()]),
        "endless": Script(text="so far", faults=[Endless(3)]),
        "gzip": Script(text="0" * 1_000_000, faults=[Gzip()]),
        "tiny": Script(text=PIECES, faults=[Split((65_536,))]),
        "long": Script(text=["word " * 70] * 20_000, faults=[Split((65_536,))]),
    }.get(text, Script(text="an answer"))


@asynccontextmanager
async def under_watch(process: GatewayProcess, growth: float = MAX_GROWTH) -> AsyncIterator[None]:
    """Hold the memory against its limit, and let others ask all the while."""
    for _ in range(20):
        await process.ask()
        await process.ask(stream=True)
    before = process.memory()
    process.forget_peak()
    others = asyncio.create_task(_ask_on(process))
    try:
        yield
    finally:
        others.cancel()
        answered = (await asyncio.gather(others, return_exceptions=True))[0]
    assert isinstance(answered, asyncio.CancelledError), answered
    assert process.peak_memory() - before <= growth
    after = await process.ask()
    assert after.json["status"] == "completed"


async def _ask_on(process: GatewayProcess) -> None:
    """Ask for something small, over and over: each answer must come, and be right."""
    while True:
        async with asyncio.timeout(PATIENCE):
            assert (await process.request("GET", "/../healthz")).status == 200
            assert (await process.ask()).json["status"] == "completed"
        await asyncio.sleep(0.01)


async def test_a_line_of_300_mb_is_cut_at_its_limit(tmp_path: Path) -> None:
    async with (
        ScriptedUpstream(script_for) as upstream,
        serve_process(tmp_path, upstream.base_url) as process,
        under_watch(process),
    ):
        first = await process.ask(input="line first", stream=True)
        answer = await process.ask(input="line", stream=True)

    assert (first.status, first.error["code"]) == (502, "upstream_invalid_response")
    response = terminal(events_of(answer.body))
    assert (response.status, response.output_text) == ("failed", "so far")
    assert response.error is not None
    assert response.error.code == "upstream_invalid_response"


async def test_an_endless_stream_costs_little_and_ends_with_its_reader(tmp_path: Path) -> None:
    async with (
        ScriptedUpstream(script_for) as upstream,
        serve_process(tmp_path, upstream.base_url) as process,
        under_watch(process),
    ):
        sessions = [
            asyncio.create_task(read_and_leave(process, "endless", 5_000_000)) for _ in range(2)
        ]
        await asyncio.gather(*sessions)
        endless = [r for r in upstream.requests if b"endless" in r.body]
        async with asyncio.timeout(PATIENCE):
            for received in endless:
                await received.client_left.wait()

    assert len(endless) == 2


async def read_and_leave(process: GatewayProcess, text: str, size: int) -> None:
    """Read this many bytes of a stream, then hang up."""
    body = {"input": text, "stream": True}
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{process.base_url}/responses", json=body) as answer,
    ):
        seen = 0
        while seen < size:
            seen += len(await answer.content.readany())
        answer.close()


async def test_a_compressed_answer_is_refused_unread(tmp_path: Path) -> None:
    async with (
        ScriptedUpstream(script_for) as upstream,
        serve_process(tmp_path, upstream.base_url) as process,
        under_watch(process),
    ):
        answer = await process.ask(input="gzip", stream=True)

    assert (answer.status, answer.error["code"]) == (502, "upstream_invalid_response")


async def test_a_gzip_bomb_for_a_whole_answer_is_refused_unread(tmp_path: Path) -> None:
    bomb = zlib.compress(b'{"choices": [' + b" " * 100_000_000, 9)

    async def explode(request: Request, connection: Connection) -> None:
        if request.method == "GET":
            await connection.write(reply(b'{"data":[{"id":"echo"}]}'))
        elif b"bomb" in request.body:
            await connection.write(reply(bomb, "Content-Encoding: deflate"))
        else:
            await connection.write(reply(WHOLE))

    async with (
        raw_server(explode) as server,
        serve_process(tmp_path, f"{server.url}/v1") as process,
        under_watch(process),
    ):
        answer = await process.ask(input="bomb")

    assert (answer.status, answer.error["code"]) == (502, "upstream_invalid_response")


async def test_a_whole_answer_without_end_is_cut_at_its_limit(tmp_path: Path) -> None:
    async def flood(request: Request, connection: Connection) -> None:
        if request.method == "GET":
            await connection.write(reply(b'{"data":[{"id":"echo"}]}'))
        elif b"flood" in request.body:
            await connection.write(head("application/json") + chunk(b'{"choices": ['))
            while True:
                await connection.write(chunk(b" " * 65_536))
        else:
            await connection.write(reply(WHOLE))

    limits = {"body": 8 * 1024 * 1024}
    async with (
        raw_server(flood) as server,
        serve_process(tmp_path, f"{server.url}/v1", upstream_limits=limits) as process,
        under_watch(process),
    ):
        answer = await process.ask(input="flood")

    assert (answer.status, answer.error["code"]) == (502, "upstream_invalid_response")


async def test_a_hundred_thousand_tiny_events_arrive_whole_and_cost_little(tmp_path: Path) -> None:
    async with (
        ScriptedUpstream(script_for) as upstream,
        serve_process(tmp_path, upstream.base_url) as process,
        under_watch(process),
    ):
        answer: Answer = await process.ask(input="tiny", stream=True)

    assert answer.body.count(b"event: response.output_text.delta\n") == len(PIECES)
    last = answer.body[answer.body.rindex(b"event: response.completed\n") :]
    assert "".join(PIECES).encode() in last


async def test_a_stored_answer_of_seven_million_characters_costs_a_few_times_its_length(
    tmp_path: Path,
) -> None:
    async with (
        ScriptedUpstream(script_for) as upstream,
        serve_process(tmp_path, upstream.base_url) as process,
        under_watch(process, growth=56.0),
    ):
        size = await read_to_the_end(process, "long")

    assert size > 5 * 7_000_000  # as deltas, and in the four events that repeat it


async def read_to_the_end(process: GatewayProcess, text: str) -> int:
    """Read a stream and keep nothing of it; return its length."""
    body = {"input": text, "stream": True}
    size, tail = 0, b""
    async with (
        aiohttp.ClientSession(read_bufsize=65_536) as session,
        session.post(f"{process.base_url}/responses", json=body) as answer,
    ):
        async for piece in answer.content.iter_any():
            size += len(piece)
            tail = (tail + piece)[-100:]
    assert tail.endswith(b"data: [DONE]\n\n")
    return size
