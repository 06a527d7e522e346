"""Bodies in very many chunks: nothing is lost, doubled or held back, whoever reads."""

from __future__ import annotations

import random

import pytest

from antiphon.protocol.errors import BackendError
from antiphon.transport import chunks
from antiphon.transport.http import PIECE, HttpClient
from antiphon.transport.stream import open_stream
from tests.transport.raw import Connection, Request, chunk, head, raw_server

SIZES = {
    "events": [200] * 3000,
    "pieces": [PIECE, PIECE - 1, 1, PIECE + 1] * 5,
    "large": [5 * PIECE + 7, 3, 2 * PIECE],
    "mixed": [random.Random(7).choice((1, 80, 250, 4000, 70_000)) for _ in range(400)],
    "none": [],
}


@pytest.fixture(params=[True, False], ids=["taken at once", "by the library"])
def is_known(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Run a test as it is, and with a library that looks different inside."""
    monkeypatch.setattr(chunks, "_IS_KNOWN", request.param)
    return bool(request.param)


def body_of(sizes: list[int]) -> list[bytes]:
    return [bytes([index % 251]) * size for index, size in enumerate(sizes)]


@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
async def test_a_body_arrives_as_it_was_sent(sizes: list[int], is_known: bool) -> None:
    body = body_of(sizes)

    async def script(request: Request, connection: Connection) -> None:
        await connection.write(head("text/plain"))
        for start in range(0, len(body), 64):
            await connection.write(b"".join(map(chunk, body[start : start + 64])))
        await connection.write(chunk(b""))

    client = HttpClient()
    async with raw_server(script) as server:
        # Twice on one connection: what was read to its end is given back.
        for _ in range(2):
            async with await open_stream(client, server.url, b"{}") as stream:
                pieces = [piece async for piece in stream]
            assert b"".join(pieces) == b"".join(body)
            assert max(map(len, pieces), default=0) <= PIECE
        assert server.connections == 1
        await client.close()


async def test_what_came_before_a_reset_comes_first(is_known: bool) -> None:
    body = body_of([300] * 500)

    async def script(request: Request, connection: Connection) -> None:
        await connection.write(head("text/plain") + b"".join(map(chunk, body)))
        connection.writer.close()

    client = HttpClient()
    async with raw_server(script) as server:
        got = b""
        async with await open_stream(client, server.url, b"{}") as stream:
            with pytest.raises(BackendError, match=r"cut off|hung up|closed"):
                async for piece in stream:
                    got += piece
        await client.close()
    assert got == b"".join(body)


def test_the_library_looks_inside_as_we_know_it() -> None:
    """If this fails, streams are read more slowly: look into `chunks` again."""
    assert chunks._IS_KNOWN


@pytest.mark.parametrize("status", ["204 No Content", "304 Not Modified"])
async def test_an_answer_that_cannot_have_a_body_has_none(status: str, is_known: bool) -> None:
    async def script(request: Request, connection: Connection) -> None:
        await connection.write(f"HTTP/1.1 {status}\r\nETag: x\r\n\r\n".encode())

    client = HttpClient()
    async with raw_server(script) as server:
        reply = await client.fetch("GET", server.url)
        await client.close()
    assert (reply.head.status, reply.body) == (int(status[:3]), b"")
