"""Streams over real sockets: pieces as they come, stalls, resets, closing."""

from __future__ import annotations

import asyncio

import pytest

from antiphon.protocol.errors import BackendError
from antiphon.transport.http import PIECE, HttpClient, Limits
from antiphon.transport.stream import open_stream
from tests import clock
from tests.transport.raw import Connection, Request, chunk, head, raw_server

EVENTS = head("text/event-stream; charset=utf-8")


async def test_pieces_come_as_they_are_sent_and_the_connection_is_kept() -> None:
    taken = asyncio.Event()

    async def tell(_: Request, connection: Connection) -> None:
        await connection.write(EVENTS + chunk(b"one"))
        await taken.wait()
        await connection.write(chunk(b"two") + chunk(b""))

    client = HttpClient()
    async with raw_server(tell) as server:
        for _ in range(2):
            taken.clear()
            pieces = []
            async with await open_stream(client, server.url, b"{}") as stream:
                assert stream.head.content_type == "text/event-stream"
                async for piece in stream:
                    pieces.append(piece)
                    taken.set()
            assert pieces == [b"one", b"two"]
        await client.close()
    assert server.connections == 1


async def test_a_peer_without_a_head_is_late() -> None:
    async def stall(_: Request, connection: Connection) -> None:
        clock.skip(100)
        await connection.until_closed()
        server.closed.set()

    client = HttpClient(limits=Limits(first_byte=100))
    async with raw_server(stall) as server:
        with pytest.raises(BackendError) as caught:
            await open_stream(client, server.url, b"{}")
        await server.closed.wait()
        await client.close()
    assert (caught.value.code, caught.value.status) == ("upstream_timeout", 504)


@pytest.mark.parametrize(
    ("limits", "sent"),
    [
        (Limits(first_byte=100), b""),
        (Limits(idle=100), chunk(b"one")),
        (Limits(wall=100), chunk(b"one")),
    ],
    ids=["first byte", "idle", "wall"],
)
async def test_a_stall_is_a_timeout_that_hangs_up(limits: Limits, sent: bytes) -> None:
    async def stall(_: Request, connection: Connection) -> None:
        await connection.write(EVENTS + sent)
        await connection.until_closed()
        server.closed.set()

    client = HttpClient(limits=limits)
    async with raw_server(stall) as server:
        stream = await open_stream(client, server.url, b"{}")
        if sent:
            assert await anext(stream) == b"one"
        asyncio.get_running_loop().call_soon(clock.skip, 100)
        with pytest.raises(BackendError) as caught:
            await anext(stream)
        await server.closed.wait()
        await client.close()
    assert caught.value.code == "upstream_timeout"


async def test_life_between_two_looks_of_the_timer_keeps_a_stream_going() -> None:
    async def drip(_: Request, connection: Connection) -> None:
        await connection.write(EVENTS)
        for _beat in range(8):
            await connection.write(chunk(b"."))
            await taken.wait()
            taken.clear()
            clock.skip(60)
        await connection.write(chunk(b""))

    taken = asyncio.Event()
    client = HttpClient(limits=Limits(idle=100))
    async with raw_server(drip) as server:
        async with await open_stream(client, server.url, b"{}") as stream:
            pieces = []
            async for piece in stream:
                pieces.append(piece)
                taken.set()
        await client.close()
    assert pieces == [b"."] * 8


async def test_a_timer_that_was_set_for_the_first_byte_leaves_more_time_to_the_next() -> None:
    async def pause(_: Request, connection: Connection) -> None:
        await connection.write(EVENTS + chunk(b"one"))
        await taken.wait()
        clock.skip(200)
        await connection.write(chunk(b"two"))
        await connection.until_closed()

    taken = asyncio.Event()
    client = HttpClient(limits=Limits(first_byte=100, idle=300))
    async with raw_server(pause) as server:
        stream = await open_stream(client, server.url, b"{}")
        assert await anext(stream) == b"one"
        taken.set()
        assert await anext(stream) == b"two"
        asyncio.get_running_loop().call_soon(clock.skip, 300)
        with pytest.raises(BackendError) as caught:
            await anext(stream)
        await client.close()
    assert caught.value.code == "upstream_timeout"


async def test_life_that_is_passed_on_as_it_comes_keeps_a_stream_going() -> None:
    heard: asyncio.Queue[bytes] = asyncio.Queue()

    async def speak(_: Request, connection: Connection) -> None:
        await connection.write(EVENTS)
        for number in range(4):
            await connection.write(chunk(b"%d" % number))
            assert await heard.get() == b"%d" % number
            clock.skip(60)
        await connection.until_closed()

    def hear(data: bytes) -> bool:
        heard.put_nowait(data)
        pieces.append(data)
        if len(pieces) == 4:
            asyncio.get_running_loop().call_soon(clock.skip, 100)
        return True

    pieces: list[bytes] = []
    client = HttpClient(limits=Limits(first_byte=1000, idle=100))
    async with raw_server(speak) as server:
        async with await open_stream(client, server.url, b"{}") as stream:
            with pytest.raises(BackendError) as caught:
                while piece := await stream.read_or_hear(hear):
                    hear(piece)  # it was there before we waited
        await client.close()
    assert pieces == [b"0", b"1", b"2", b"3"]
    assert caught.value.code == "upstream_timeout"


async def test_a_busy_reader_is_not_the_peers_stall() -> None:
    go = asyncio.Event()

    async def wait(_: Request, connection: Connection) -> None:
        await connection.write(EVENTS + chunk(b"one"))
        await go.wait()
        await connection.write(chunk(b"two") + chunk(b""))

    client = HttpClient(limits=Limits(idle=100))
    async with raw_server(wait) as server:
        async with await open_stream(client, server.url, b"{}") as stream:
            first = await anext(stream)
            clock.skip(200)
            for _ in range(3):
                await asyncio.sleep(0)  # the timer looks
            go.set()
            rest = await stream.read_all(100)
        await client.close()
    assert (first, rest) == (b"one", b"two")


async def test_what_came_before_a_reset_is_read_before_it_is_raised() -> None:
    async def break_off(_: Request, connection: Connection) -> None:
        await connection.write(EVENTS + chunk(b"one"))
        await go.wait()
        await connection.write(chunk(b"two"))
        connection.writer.close()
        gone.set()

    go, gone = asyncio.Event(), asyncio.Event()
    client = HttpClient()
    async with raw_server(break_off) as server:
        stream = await open_stream(client, server.url, b"{}")
        assert await anext(stream) == b"one"
        go.set()
        await gone.wait()
        # There is no read while the piece and the end of the connection arrive.
        for _ in range(20):
            await asyncio.sleep(0.005)
        assert await anext(stream) == b"two"
        with pytest.raises(BackendError) as caught:
            await anext(stream)
        await client.close()
    assert caught.value.code == "upstream_closed"


async def test_closing_or_cancelling_hangs_up_at_once() -> None:
    async def stall(_: Request, connection: Connection) -> None:
        await connection.write(EVENTS + chunk(b"one"))
        await connection.until_closed()
        server.closed.set()

    client = HttpClient()
    async with raw_server(stall) as server:
        stream = await open_stream(client, server.url, b"{}")
        await anext(stream)
        stream.close()
        stream.close()
        await asyncio.wait_for(server.closed.wait(), 60)

        server.closed.clear()
        stream = await open_stream(client, server.url, b"{}")
        await anext(stream)
        reading = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(0)
        reading.cancel()
        await asyncio.wait_for(server.closed.wait(), 60)
        await client.close()


async def test_finish_keeps_a_connection_whose_end_follows() -> None:
    async def tell(_: Request, connection: Connection) -> None:
        await connection.write(EVENTS + chunk(b"one"))
        await connection.write(chunk(b""))

    clock.stop()
    client = HttpClient()
    async with raw_server(tell) as server:
        for _ in range(3):
            stream = await open_stream(client, server.url, b"{}")
            await anext(stream)
            await stream.finish()
        await client.close()
    assert server.connections == 1


async def test_finish_hangs_up_on_a_peer_that_goes_on() -> None:
    async def never_end(_: Request, connection: Connection) -> None:
        await connection.write(EVENTS + chunk(b"one"))
        await connection.until_closed()
        server.closed.set()

    client = HttpClient()
    async with raw_server(never_end) as server:
        stream = await open_stream(client, server.url, b"{}")
        await anext(stream)
        await stream.finish()
        await asyncio.wait_for(server.closed.wait(), 60)
        await client.close()


async def test_a_flood_comes_in_pieces_and_lets_others_run() -> None:
    async def flood(_: Request, connection: Connection) -> None:
        await connection.write(EVENTS + chunk(b" " * 1_000_000) + chunk(b""))

    async def count() -> None:
        while True:
            beats.append(None)
            await asyncio.sleep(0)

    beats: list[None] = []
    pieces: list[tuple[int, int]] = []
    client = HttpClient()
    async with raw_server(flood) as server:
        async with await open_stream(client, server.url, b"{}") as stream:
            counter = asyncio.create_task(count())
            async for piece in stream:
                pieces.append((len(piece), len(beats)))
            counter.cancel()
        await client.close()
    assert sum(size for size, _ in pieces) == 1_000_000
    assert max(size for size, _ in pieces) == PIECE
    full = [beat for size, beat in pieces if size == PIECE]
    assert full == sorted(set(full))


async def test_a_whole_body_over_the_limit_is_cut() -> None:
    async def flood(_: Request, connection: Connection) -> None:
        await connection.write(EVENTS)
        while True:
            await connection.write(chunk(b" " * 65536))

    client = HttpClient()
    async with raw_server(flood) as server:
        async with await open_stream(client, server.url, b"{}") as stream:
            with pytest.raises(BackendError, match="longer than 200000"):
                await stream.read_all(200_000)
        await client.close()
