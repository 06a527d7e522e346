"""A body on its way from the connection to the task that reads it: order, limits, the end."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator

import pytest

from antiphon.protocol.errors import BackendError
from antiphon.transport.exchange import (
    HIGH_MARK,
    LOW_MARK,
    MAX_CALLBACK,
    PIECE,
    Exchange,
    Head,
    closed,
)
from antiphon.transport.http import HttpClient, Limits
from antiphon.transport.stream import open_stream
from tests.transport.raw import Connection, Request, chunk, head, raw_server

SIZES = {
    "events": [200] * 3000,
    "pieces": [PIECE, PIECE - 1, 1, PIECE + 1] * 5,
    "large": [5 * PIECE + 7, 3, 2 * PIECE],
    "mixed": [random.Random(7).choice((1, 80, 250, 4000, 70_000)) for _ in range(400)],
    "none": [],
}


class Source:
    """A connection that notes what is asked of it."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def pause_reading(self) -> None:
        self.calls.append("pause")

    def resume_reading(self) -> None:
        self.calls.append("resume")

    def stop_sending(self) -> None:
        self.calls.append("stop")

    def hang_up(self, exchange: Exchange) -> None:
        self.calls.append("hang up")
        exchange.end(closed("for the test"))


@pytest.fixture
async def source() -> Source:
    return Source()


@pytest.fixture
async def exchange(source: Source) -> Exchange:
    exchange = Exchange(asyncio.get_running_loop(), source)
    exchange.start(Head(200, {}))
    return exchange


@pytest.fixture
async def client() -> AsyncIterator[HttpClient]:
    client = HttpClient(limits=Limits(idle=60))
    yield client
    await client.close()


async def begun(reading: asyncio.Task[bytes | None]) -> asyncio.Task[bytes | None]:
    """Return the task when it waits."""
    await asyncio.sleep(0)
    return reading


@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
async def test_a_body_arrives_as_it_was_sent(sizes: list[int], client: HttpClient) -> None:
    body = [bytes([index % 251]) * size for index, size in enumerate(sizes)]

    async def script(request: Request, connection: Connection) -> None:
        await connection.write(head("text/plain"))
        for start in range(0, len(body), 64):
            await connection.write(b"".join(map(chunk, body[start : start + 64])))
        await connection.write(chunk(b""))

    async with raw_server(script) as server:
        # Twice on one connection: after the last byte it is given back.
        for _ in range(2):
            async with await open_stream(client, server.url, b"{}") as stream:
                pieces = [piece async for piece in stream]
            assert b"".join(pieces) == b"".join(body)
            assert max(map(len, pieces), default=0) <= PIECE
        assert server.connections == 1


async def test_what_came_before_a_reset_comes_first(client: HttpClient) -> None:
    body = bytes(300) * 500

    async def script(request: Request, connection: Connection) -> None:
        await connection.write(head("text/plain") + chunk(body))
        connection.writer.close()

    got = b""
    async with raw_server(script) as server:
        stream = await open_stream(client, server.url, b"{}")
        with pytest.raises(BackendError, match="cut off"):
            async for piece in stream:
                got += piece
    assert got == body


async def test_a_full_buffer_stops_the_connection_until_it_is_read(
    exchange: Exchange, source: Source
) -> None:
    exchange.put(bytes(HIGH_MARK))
    assert source.calls == []
    exchange.put(b"x")
    exchange.put(b"x")
    assert source.calls == ["pause"]
    left = HIGH_MARK + 2
    while left > LOW_MARK:
        assert source.calls == ["pause"]
        data = await exchange.read()
        assert data is not None
        left -= len(data)
    assert source.calls == ["pause", "resume"]


async def test_a_body_that_ended_while_it_was_stopped_is_read_to_its_end(
    exchange: Exchange, source: Source
) -> None:
    exchange.put(bytes(HIGH_MARK + 1))
    exchange.end(None)
    got = 0
    while data := await exchange.read():
        got += len(data)
    assert got == HIGH_MARK + 1
    assert source.calls == ["pause"]  # the connection serves another exchange


@pytest.mark.parametrize(
    ("sizes", "is_behind"),
    [([1], False), ([PIECE - 1], False), ([PIECE], True), ([PIECE, 1], True), ([1, PIECE], True)],
)
async def test_a_reader_is_behind_if_a_read_was_full(
    sizes: list[int], is_behind: bool, exchange: Exchange
) -> None:
    for size in sizes:
        exchange.put(bytes(size))
    data = await exchange.read()
    assert data is not None
    assert len(data) == min(sum(sizes), PIECE)
    assert exchange.is_behind is is_behind


async def test_a_listener_gets_what_arrives_until_it_takes_no_more(exchange: Exchange) -> None:
    heard: list[bytes] = []

    def hear(data: bytes) -> bool:
        heard.append(data)
        return len(heard) < 2

    reading = await begun(asyncio.create_task(exchange.read(hear)))
    for data in (b"1", b"2", b"3", b"4"):
        exchange.put(data)
    assert await reading is None
    assert heard == [b"1", b"2"]
    assert await exchange.read(hear) == b"34"


async def test_a_large_part_is_not_heard_and_nothing_overtakes_it(exchange: Exchange) -> None:
    heard: list[bytes] = []

    def hear(data: bytes) -> bool:
        heard.append(data)
        return True

    reading = await begun(asyncio.create_task(exchange.read(hear)))
    exchange.put(bytes(MAX_CALLBACK))
    exchange.put(bytes(MAX_CALLBACK + 1))
    exchange.put(b"last")
    assert await reading == bytes(MAX_CALLBACK + 1) + b"last"
    assert heard == [bytes(MAX_CALLBACK)]


async def test_what_a_listener_raises_is_raised_by_the_read(
    exchange: Exchange, source: Source
) -> None:
    def hear(data: bytes) -> bool:
        raise ZeroDivisionError

    reading = await begun(asyncio.create_task(exchange.read(hear)))
    exchange.put(b"1")
    exchange.put(b"2")
    with pytest.raises(ZeroDivisionError):
        await reading
    assert source.calls == ["hang up"]


async def test_the_end_is_not_heard_but_read(exchange: Exchange) -> None:
    reading = await begun(asyncio.create_task(exchange.read(lambda _: True)))
    exchange.put(b"1")
    exchange.end(None)
    assert await reading == b""
    assert await exchange.read() == b""


async def test_every_read_after_a_fault_raises_it(exchange: Exchange) -> None:
    exchange.put(b"1")
    exchange.end(closed("it hung up"))
    assert await exchange.read() == b"1"
    for _ in range(2):
        with pytest.raises(BackendError, match="it hung up"):
            await exchange.read()


async def test_a_cancelled_read_hangs_up_and_leaves_no_waiter(
    exchange: Exchange, source: Source
) -> None:
    reading = await begun(asyncio.create_task(exchange.read(lambda _: True)))
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    assert source.calls == ["hang up"]
    exchange.put(b"late")  # nothing waits for it, and nothing breaks


async def test_an_abort_drops_what_waits_and_wakes_the_reader(
    exchange: Exchange, source: Source
) -> None:
    reading = await begun(asyncio.create_task(exchange.read()))
    exchange.abort()
    exchange.abort()
    with pytest.raises(BackendError):
        await reading
    assert source.calls == ["hang up"]


async def test_a_second_reader_at_the_same_time_is_a_mistake(exchange: Exchange) -> None:
    reading = await begun(asyncio.create_task(exchange.read()))
    with pytest.raises(RuntimeError, match="another task"):
        await exchange.read()
    exchange.end(None)
    assert await reading == b""


async def test_a_slow_reader_stops_the_peer(client: HttpClient) -> None:
    sent = 0

    async def flood(_: Request, connection: Connection) -> None:
        nonlocal sent
        await connection.write(head("text/plain"))
        while True:
            await connection.write(chunk(bytes(65536)))
            sent += 65536

    async with raw_server(flood) as server:
        stream = await open_stream(client, server.url, b"{}")
        await stream.read()
        before = -1
        while sent != before:
            before = sent
            await asyncio.sleep(0.1)
        for _ in range(1000):
            assert await stream.read()
        stream.close()
    assert before < 30_000_000  # what the buffers of the kernel take, and a little of ours
    assert sent > before
