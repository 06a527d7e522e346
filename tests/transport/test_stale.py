"""Reused connections that the peer has closed: not an attempt, not an error."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator

import pytest

from antiphon.protocol.errors import BackendError
from antiphon.transport.http import HttpClient, Limits
from antiphon.transport.stream import open_stream
from tests.transport.raw import Connection, RawServer, Request, raw_server, reply

MIB = 1024 * 1024

REQUESTS = {
    "small": ("POST", b"{}"),
    "large": ("POST", b"x" * (3 * MIB)),
    "without a body": ("GET", None),
}


@pytest.fixture
async def client() -> AsyncIterator[HttpClient]:
    client = HttpClient(limits=Limits(idle=60))
    yield client
    await client.close()


class OneAnswerEach:
    """A peer that answers the first request of each connection and breaks at the second."""

    def __init__(self, *, is_reset: bool = False, last_words: bytes = b"") -> None:
        self._is_reset = is_reset
        self._last_words = last_words
        self._answered: Counter[object] = Counter()  # keeps them: ids are used again

    async def __call__(self, _: Request, connection: Connection) -> None:
        self._answered[connection.writer] += 1
        if self._answered[connection.writer] == 1:
            await connection.write(reply(b"{}"))
            return
        await connection.write(self._last_words)
        if self._is_reset:
            connection.reset()
        else:
            connection.writer.close()
        await connection.writer.wait_closed()
        raise ConnectionError


@pytest.mark.parametrize("is_reset", [False, True], ids=["closed", "reset"])
@pytest.mark.parametrize(("method", "body"), REQUESTS.values(), ids=REQUESTS)
async def test_a_request_on_a_stale_connection_goes_again_on_a_fresh_one(
    method: str, body: bytes | None, is_reset: bool, client: HttpClient
) -> None:
    async with raw_server(OneAnswerEach(is_reset=is_reset)) as server:
        answers = [await client.fetch(method, server.url, body=body) for _ in range(3)]

    assert [answer.head.status for answer in answers] == [200] * 3
    assert server.connections >= 2
    assert all(request.body == (body or b"") for request in server.requests)


async def test_a_stream_on_a_stale_connection_begins_on_a_fresh_one(client: HttpClient) -> None:
    async with raw_server(OneAnswerEach()) as server:
        for _ in range(3):
            async with await open_stream(client, server.url, b"{}") as stream:
                assert await stream.read_all(100) == b"{}"


async def test_other_idle_connections_are_not_tried_after_a_stale_one(client: HttpClient) -> None:
    async with raw_server(OneAnswerEach()) as server:
        await _fill_pool(client, server, 4)
        before = len(server.requests)
        await client.fetch("POST", server.url, body=b"{}")

    assert len(server.requests) - before == 2


async def test_a_fresh_connection_that_breaks_is_an_error(client: HttpClient) -> None:
    has_begun = False

    async def answer(_: Request, connection: Connection) -> None:
        nonlocal has_begun
        if has_begun:
            raise ConnectionError
        has_begun = True
        await connection.write(reply(b"{}"))

    async with raw_server(answer) as server:
        await client.fetch("POST", server.url, body=b"{}")
        with pytest.raises(BackendError) as caught:
            await client.fetch("POST", server.url, body=b"{}")

    assert caught.value.code == "upstream_closed"
    assert len(server.requests) == 3


@pytest.mark.parametrize("last_words", [b"H", b"HTTP/1.1 200 OK\r\nContent-"])
async def test_after_the_first_byte_of_an_answer_a_reused_connection_is_an_attempt(
    last_words: bytes, client: HttpClient
) -> None:
    async with raw_server(OneAnswerEach(last_words=last_words)) as server:
        await client.fetch("POST", server.url, body=b"{}")
        with pytest.raises(BackendError):
            await client.fetch("POST", server.url, body=b"{}")

    assert len(server.requests) == 2


async def _fill_pool(client: HttpClient, server: RawServer, count: int) -> None:
    """Leave this many idle connections in the pool."""
    await asyncio.gather(*(client.fetch("POST", server.url, body=b"{}") for _ in range(count)))
    assert server.connections == count
