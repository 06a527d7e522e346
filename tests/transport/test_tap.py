"""Chunks that are handed over as they arrive: the same bytes, in order, however they are cut."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable
from itertools import pairwise

import pytest

from antiphon.protocol.errors import BackendError
from antiphon.transport.chunks import ChunkReader
from antiphon.transport.http import PIECE, HttpClient
from antiphon.transport.stream import open_stream
from antiphon.transport.tap import MOST, TappedHandler, split_chunks
from tests.transport.raw import Connection, Request, chunk, head, raw_server

HEAD = head("text/event-stream")


class Line(asyncio.Transport):
    """A transport that goes nowhere: the test says what arrives."""

    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def close(self) -> None: ...


class Listener:
    """Hears what is handed over, and now and then has had enough."""

    def __init__(self, wants: Iterable[bool]) -> None:
        self.pieces: list[bytes] = []
        self.heard = 0
        self._wants = iter(wants)

    def hear(self, data: bytes) -> bool:
        self.pieces.append(data)
        self.heard += 1
        return next(self._wants, True)


async def received(reads: list[bytes], listener: Listener) -> bytes:
    """Return the body that these reads of a socket bring, heard and read."""
    handler = TappedHandler(asyncio.get_running_loop())
    handler.connection_made(Line())
    handler.set_response_params(read_until_eof=True, auto_decompress=False)

    async def read() -> None:
        _, content = await handler.read()
        reader = ChunkReader(content)
        while (data := await reader.read(PIECE, listener.hear)) != b"":
            if data is not None:
                listener.pieces.append(data)

    reading = asyncio.create_task(read())
    for data in reads:
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        handler.data_received(data)
    await reading
    return b"".join(listener.pieces)


def cut(data: bytes, places: list[int]) -> list[bytes]:
    marks = [0, *sorted(places), len(data)]
    return [data[a:b] for a, b in pairwise(marks) if a < b]


async def test_whole_chunks_are_heard_as_they_come() -> None:
    texts = [b"one", b"two\r\n", b"x" * 300]
    listener = Listener([])
    reads = [HEAD, *map(chunk, texts), chunk(b"a") + chunk(b"b"), chunk(b"")]
    assert await received(reads, listener) == b"".join(texts) + b"ab"
    assert listener.pieces == [*texts, b"ab"]
    assert listener.heard == 4


@pytest.mark.parametrize(
    "odd",
    [
        [b"5\r\nhel", b"lo\r\n"],
        [b"5", b"\r\nhello\r\n"],
        [b"5;name=value\r\nhello\r\n"],
        [chunk(b"x" * (MOST + 1))],
        [chunk(b"hello")[:-1], b"\n"],
    ],
    ids=["cut in its text", "cut in its size", "with an extension", "a flood", "cut in its end"],
)
async def test_what_is_not_plain_is_read_by_the_library_from_there_on(odd: list[bytes]) -> None:
    listener = Listener([])
    body = await received([HEAD, chunk(b"first"), *odd, chunk(b"last"), chunk(b"")], listener)
    assert body.startswith(b"first")
    assert body.endswith(b"last")
    assert listener.heard == 1


async def test_a_size_that_was_cut_is_not_mistaken_for_another() -> None:
    """What follows the cut looks like a whole chunk of five bytes, and is part of one of 21."""
    inner = b"5\r\nabcde\r\n"
    reads = [HEAD, chunk(b"first"), b"1", inner, b"0123456789abcd\r\n", chunk(b"")]
    listener = Listener([])
    assert await received(reads, listener) == b"firstabcde\r\n0123456789abcd"
    assert listener.heard == 1


async def test_who_has_had_enough_reads_the_rest_in_order() -> None:
    texts = [b"%d;" % number for number in range(9)]
    listener = Listener([True, False, True, True, False])
    reads = [HEAD, *map(chunk, texts), chunk(b"")]
    assert await received(reads, listener) == b"".join(texts)


@pytest.mark.parametrize("seed", range(200))
async def test_the_bytes_are_the_same_however_they_are_cut(seed: int) -> None:
    chance = random.Random(seed)
    texts = [
        bytes(chance.choices(b"0123456789abcdef\r\n;", k=chance.choice((1, 5, 21, 300))))
        for _ in range(chance.randint(0, 40))
    ]
    sizes = [chance.choice((b"%x", b"%X", b"0%x")) % len(text) for text in texts]
    raw = HEAD + b"".join(b"%b\r\n%b\r\n" % pair for pair in zip(sizes, texts, strict=True))
    ends = [len(HEAD)]
    for size, text in zip(sizes, texts, strict=True):
        ends.append(ends[-1] + len(size) + len(text) + 4)
    cuts = [place for place in ends if chance.random() < 0.8]
    cuts += chance.sample(range(1, len(raw)), k=chance.choice((0, 0, 1, 3)))
    listener = Listener(chance.random() < 0.8 for _ in range(1000))
    assert await received([*cut(raw, cuts), chunk(b"")], listener) == b"".join(texts)


async def test_the_next_answer_on_a_connection_is_looked_at_anew() -> None:
    async def script(request: Request, connection: Connection) -> None:
        await connection.write(HEAD + b"5\r\nhe")
        await connection.write(b"llo\r\n" + chunk(b""))

    client = HttpClient()
    async with raw_server(script) as server:
        for _ in range(2):
            async with await open_stream(client, server.url, b"{}") as stream:
                got = b""
                while (piece := await stream.read_or_hear(lambda data: False)) != b"":
                    got += piece or b""
            assert len(got) in (0, 5)  # heard or read
        assert server.connections == 1
        await client.close()


async def test_what_breaks_the_listener_is_raised_where_the_data_is_awaited() -> None:
    ready = asyncio.Event()

    async def script(request: Request, connection: Connection) -> None:
        await connection.write(HEAD)
        await ready.wait()
        await connection.write(chunk(b"boom"))
        await connection.until_closed()

    def hear(data: bytes) -> bool:
        raise ZeroDivisionError

    client = HttpClient()
    async with raw_server(script) as server:
        async with await open_stream(client, server.url, b"{}") as stream:
            reading = asyncio.create_task(stream.read_or_hear(hear))
            await asyncio.sleep(0)
            ready.set()
            with pytest.raises(ZeroDivisionError):
                await reading
        await client.close()


async def test_a_connection_that_breaks_while_somebody_listens_is_an_error() -> None:
    ready = asyncio.Event()

    async def script(request: Request, connection: Connection) -> None:
        await connection.write(HEAD)
        await ready.wait()
        await connection.write(chunk(b"so far"))
        connection.reset()

    heard: list[bytes] = []

    def hear(data: bytes) -> bool:
        heard.append(data)
        return True

    client = HttpClient()
    async with raw_server(script) as server:
        async with await open_stream(client, server.url, b"{}") as stream:
            reading = asyncio.create_task(stream.read_or_hear(hear))
            await asyncio.sleep(0)
            ready.set()
            with pytest.raises(BackendError):
                while (piece := await reading) is not None:
                    heard.append(piece)
                    reading = asyncio.create_task(stream.read_or_hear(hear))
        await client.close()
    assert b"".join(heard) in (b"so far", b"")  # a reset may overtake what was sent before it


@pytest.mark.parametrize(
    ("data", "content"),
    [
        (b"3\r\nabc\r\n", b"abc"),
        (b"1\r\na\r\n2\r\nbc\r\n", b"abc"),
        (b"5\r\n3\r\nab\r\n", b"3\r\nab"),
        (b"0\r\n\r\n", None),
        (b"3\r\nabc\r\n0\r\n\r\n", None),
        (b"3\r\nab\r\n", None),
        (b"2\r\nabc\r\n", None),
        (b"0x3\r\nabc\r\n", None),
        (b"+3\r\nabc\r\n", None),
        (b" 3\r\nabc\r\n", None),
        (b"3;a=b\r\nabc\r\n", None),
        (b"3\nabc\r\n", None),
        (b"000000003\r\nabc\r\n", None),
    ],
)
def test_only_whole_plain_chunks_are_split(data: bytes, content: bytes | None) -> None:
    assert split_chunks(data) == content
