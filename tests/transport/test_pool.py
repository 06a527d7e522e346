"""Which connection takes the next request, and when the others are closed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from antiphon.protocol.errors import BackendError
from antiphon.transport.http import HttpClient
from antiphon.transport.pool import IDLE_SECONDS
from tests import clock
from tests.transport.raw import Connection, Request, chunk, head, raw_server, reply


class Peer:
    """Answers with the number of the connection; waits for `go` before that."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.arrived = asyncio.Semaphore(0)
        self._numbers: dict[object, int] = {}

    async def __call__(self, _: Request, connection: Connection) -> None:
        number = self._numbers.setdefault(connection.writer, len(self._numbers))
        self.arrived.release()
        await self.go.wait()
        await connection.write(reply(str(number).encode()))


@pytest.fixture
async def client() -> AsyncIterator[HttpClient]:
    client = HttpClient()
    yield client
    await client.close()


async def ask(client: HttpClient, url: str) -> int:
    return int((await client.fetch("POST", url, body=b"{}")).body)


async def fill(client: HttpClient, peer: Peer, url: str, count: int) -> list[int]:
    """Leave idle connections; return their numbers, the one that is idle longest first."""
    asking = [asyncio.create_task(ask(client, url)) for _ in range(count)]
    for _ in range(count):
        await peer.arrived.acquire()
    peer.go.set()
    return await asyncio.gather(*asking)


async def test_requests_at_the_same_time_have_a_connection_each(client: HttpClient) -> None:
    peer = Peer()
    async with raw_server(peer) as server:
        assert sorted(await fill(client, peer, server.url, 50)) == list(range(50))
        await asyncio.gather(*(ask(client, server.url) for _ in range(50)))
    assert server.connections == 50


async def test_the_connection_used_last_is_used_first(client: HttpClient) -> None:
    peer = Peer()
    async with raw_server(peer) as server:
        await fill(client, peer, server.url, 3)
        last = await ask(client, server.url)
        assert [await ask(client, server.url) for _ in range(5)] == [last] * 5


async def test_an_idle_connection_is_closed_after_a_while() -> None:
    left = asyncio.Event()

    async def answer(_: Request, connection: Connection) -> None:
        await connection.write(reply(b"{}"))
        await connection.until_closed()
        left.set()

    client = HttpClient()
    async with raw_server(answer) as server:
        await client.fetch("POST", server.url, body=b"{}")
        await asyncio.sleep(0)
        assert not left.is_set()
        clock.skip(IDLE_SECONDS)
        await asyncio.wait_for(left.wait(), 60)
        await client.close()


async def test_a_connection_in_use_does_not_grow_old(client: HttpClient) -> None:
    go = asyncio.Event()

    async def answer(_: Request, connection: Connection) -> None:
        await connection.write(head("a/b") + chunk(b"1"))
        await go.wait()
        await connection.write(chunk(b"2") + chunk(b""))

    async with raw_server(answer) as server:
        go.set()
        await client.fetch("POST", server.url, body=b"{}")
        go.clear()
        exchange = await client.send("POST", server.url, body=b"{}")
        clock.skip(2 * IDLE_SECONDS)
        for _ in range(3):
            await asyncio.sleep(0)  # the timer looks
        go.set()
        got = b""
        while data := await exchange.read():
            got += data
    assert (got, server.connections) == (b"12", 1)


async def test_a_connection_that_the_peer_closed_is_not_used(client: HttpClient) -> None:
    async def answer(_: Request, connection: Connection) -> None:
        await connection.write(reply(b"{}"))
        if server.connections == 1:
            connection.writer.close()
            await connection.writer.wait_closed()
            closed.set()

    closed = asyncio.Event()
    async with raw_server(answer) as server:
        await client.fetch("POST", server.url, body=b"{}")
        await closed.wait()
        for _ in range(5):
            await asyncio.sleep(0)  # the end arrives
        await client.fetch("POST", server.url, body=b"{}")
    assert (len(server.requests), server.connections) == (2, 2)


async def test_places_have_connections_of_their_own(client: HttpClient) -> None:
    one, other = Peer(), Peer()
    one.go.set()
    other.go.set()
    async with raw_server(one) as first, raw_server(other) as second:
        for _ in range(2):
            await ask(client, first.url)
            await ask(client, second.url)
            await ask(client, first.url.replace("127.0.0.1", "localhost"))
    assert (first.connections, second.connections) == (2, 1)


async def test_every_method_shares_the_connections(client: HttpClient) -> None:
    peer = Peer()
    peer.go.set()
    async with raw_server(peer) as server:
        await client.fetch("POST", server.url, body=b"{}")
        await client.fetch("GET", server.url)
        await client.fetch("POST", server.url, body=b"x" * 3_000_000)
        await client.post(server.url, b"{}", {})
        await client.fetch("DELETE", server.url)
    assert server.connections <= 2  # a webhook closes its connection if the body is not there yet


async def test_closing_the_client_ends_what_is_under_way() -> None:
    client, peer = HttpClient(), Peer()
    async with raw_server(peer) as server:
        asking = asyncio.create_task(ask(client, server.url))
        await peer.arrived.acquire()
        await client.close()
        with pytest.raises(BackendError) as caught:
            await asking
    assert caught.value.code == "upstream_closed"


async def test_closing_the_client_while_it_connects_leaves_no_connection() -> None:
    client, peer = HttpClient(), Peer()
    async with raw_server(peer) as server:
        asking = asyncio.create_task(ask(client, server.url))
        await asyncio.sleep(0)
        await client.close()
        with pytest.raises(RuntimeError, match="the client is closed"):
            await asking
    assert server.requests == []


async def test_a_client_that_is_closed_twice_is_closed() -> None:
    client, peer = HttpClient(), Peer()
    peer.go.set()
    async with raw_server(peer) as server:
        await ask(client, server.url)
        await client.close()
        await client.close()


async def test_a_client_can_be_closed_by_two_tasks_at_once() -> None:
    client, peer = HttpClient(), Peer()
    peer.go.set()
    async with raw_server(peer) as server:
        await ask(client, server.url)
        await asyncio.wait_for(asyncio.gather(client.close(), client.close()), 60)


def test_a_client_whose_event_loop_is_gone_can_be_closed() -> None:
    client = HttpClient()

    async def use() -> None:
        async with raw_server(Peer()):
            with pytest.raises(BackendError):
                await client.fetch("POST", "http://127.0.0.1:1", body=b"{}")

    asyncio.run(use())
    asyncio.run(client.close())
