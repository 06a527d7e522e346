"""One exchange over real sockets: headers, limits, faults, connections."""

from __future__ import annotations

import asyncio
import gzip
import socket

import pytest

from antiphon.protocol.errors import BackendError, OutOfFiles
from antiphon.transport.http import HttpClient, Limits, Reply, Secret
from tests import clock
from tests.transport.raw import Connection, Request, chunk, head, raw_server, reply


async def say_ok(_: Request, connection: Connection) -> None:
    await connection.write(reply(b"{}"))


async def fetch(client: HttpClient, url: str) -> Reply:
    return await client.fetch("POST", url + "/x", body=b"{}")


async def test_a_request_carries_key_type_and_no_wish_for_compression() -> None:
    client = HttpClient(key=Secret("sk-1"), headers={"X-Team": "blue"})
    async with raw_server(say_ok) as server:
        answer = await client.fetch("POST", server.url + "/x", body=b'{"a":1}')
        await client.close()
    assert answer.body == b"{}"
    assert (answer.head.status, answer.head.content_type) == (200, "application/json")
    request = server.requests[0]
    assert (request.method, request.path, request.body) == ("POST", "/x", b'{"a":1}')
    assert request.headers["authorization"] == "Bearer sk-1"
    assert request.headers["accept-encoding"] == "identity"
    assert request.headers["content-type"] == "application/json"
    assert request.headers["x-team"] == "blue"


async def test_a_keyless_get_sends_neither_key_nor_type() -> None:
    client = HttpClient()
    async with raw_server(say_ok) as server:
        await client.fetch("GET", server.url + "/models")
        await client.close()
    assert server.requests[0].headers.keys().isdisjoint({"authorization", "content-type"})


async def test_a_connection_is_used_again() -> None:
    client = HttpClient()
    async with raw_server(say_ok) as server:
        for _ in range(3):
            await fetch(client, server.url)
        await client.close()
    assert (len(server.requests), server.connections) == (3, 1)


async def test_a_large_body_arrives_whole() -> None:
    body = b"x" * (3 * 1024 * 1024)
    client = HttpClient()
    async with raw_server(say_ok) as server:
        await client.fetch("POST", server.url, body=body)
        await client.close()
    assert server.requests[0].body == body


async def test_redirects_are_not_followed() -> None:
    async def send_away(_: Request, connection: Connection) -> None:
        await connection.write(reply(b"", "Location: /other", status="302 Found"))

    client = HttpClient()
    async with raw_server(send_away) as server:
        answer = await fetch(client, server.url)
        await client.close()
    assert answer.head.status == 302
    assert len(server.requests) == 1


async def test_cookies_are_not_kept() -> None:
    async def set_cookie(_: Request, connection: Connection) -> None:
        await connection.write(reply(b"{}", "Set-Cookie: a=b"))

    client = HttpClient()
    async with raw_server(set_cookie) as server:
        await fetch(client, server.url)
        await fetch(client, server.url)
        await client.close()
    assert "cookie" not in server.requests[1].headers


async def test_a_compressed_answer_is_refused_unread() -> None:
    bomb = gzip.compress(b"\0" * 10_000_000)

    async def explode(_: Request, connection: Connection) -> None:
        await connection.write(reply(bomb, "Content-Encoding: gzip"))

    client = HttpClient()
    async with raw_server(explode) as server:
        with pytest.raises(BackendError, match="gzip") as caught:
            await fetch(client, server.url)
        await client.close()
    assert caught.value.code == "upstream_invalid_response"


async def test_an_answer_over_the_limit_is_cut() -> None:
    async def flood(_: Request, connection: Connection) -> None:
        await connection.write(head("application/json"))
        while True:
            await connection.write(chunk(b" " * 65536))

    client = HttpClient(limits=Limits(body=1_000_000))
    async with raw_server(flood) as server:
        with pytest.raises(BackendError, match="longer than 1000000") as caught:
            await fetch(client, server.url)
        await client.close()
    assert caught.value.code == "upstream_invalid_response"


async def test_a_closed_port_is_unreachable() -> None:
    with socket.socket() as placeholder:
        placeholder.bind(("127.0.0.1", 0))
        port = placeholder.getsockname()[1]
    client = HttpClient()
    with pytest.raises(BackendError, match="cannot be reached") as caught:
        await fetch(client, f"http://127.0.0.1:{port}")
    await client.close()
    assert (caught.value.code, caught.value.status) == ("upstream_unreachable", 502)


async def test_a_url_that_is_none_is_unreachable() -> None:
    client = HttpClient()
    with pytest.raises(BackendError) as caught:
        await fetch(client, "not a url")
    await client.close()
    assert caught.value.code == "upstream_unreachable"


async def test_hanging_up_before_the_head_is_a_close() -> None:
    async def hang_up(_: Request, connection: Connection) -> None:
        connection.reset()

    client = HttpClient()
    async with raw_server(hang_up) as server:
        with pytest.raises(BackendError) as caught:
            await fetch(client, server.url)
        await client.close()
    assert caught.value.code == "upstream_closed"


async def test_a_cut_body_is_a_close() -> None:
    async def cut(_: Request, connection: Connection) -> None:
        await connection.write(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n{}")
        connection.writer.close()

    client = HttpClient()
    async with raw_server(cut) as server:
        with pytest.raises(BackendError, match="cut off") as caught:
            await fetch(client, server.url)
        await client.close()
    assert caught.value.code == "upstream_closed"


async def test_what_is_not_http_is_an_invalid_answer() -> None:
    async def babble(_: Request, connection: Connection) -> None:
        await connection.write(b"SSH-2.0-OpenSSH_9.6\r\n\r\n")
        await connection.until_closed()

    client = HttpClient()
    async with raw_server(babble) as server:
        with pytest.raises(BackendError) as caught:
            await fetch(client, server.url)
        await client.close()
    assert caught.value.code == "upstream_invalid_response"


async def test_a_peer_that_stays_silent_is_given_up() -> None:
    async def stall(_: Request, connection: Connection) -> None:
        clock.skip(100)
        await connection.until_closed()
        server.closed.set()

    client = HttpClient(limits=Limits(idle=100))
    async with raw_server(stall) as server:
        with pytest.raises(BackendError) as caught:
            await fetch(client, server.url)
        await server.closed.wait()
        await client.close()
    assert (caught.value.code, caught.value.status) == ("upstream_timeout", 504)


@pytest.mark.parametrize("begun", [False, True], ids=["before the head", "in the body"])
async def test_cancelling_closes_the_connection_at_once(begun: bool) -> None:
    asked = asyncio.Event()

    async def stall(_: Request, connection: Connection) -> None:
        if begun:
            await connection.write(head("application/json") + chunk(b"{"))
        asked.set()
        await connection.until_closed()
        server.closed.set()

    client = HttpClient()
    async with raw_server(stall) as server:
        task = asyncio.create_task(fetch(client, server.url))
        await asked.wait()
        task.cancel()
        await asyncio.wait_for(server.closed.wait(), 60)
        with pytest.raises(asyncio.CancelledError):
            await task
        await client.close()


async def test_a_cancelled_read_hangs_up_although_the_exchange_is_still_held() -> None:
    async def stall(_: Request, connection: Connection) -> None:
        await connection.write(head("application/json"))
        await connection.until_closed()
        server.closed.set()

    client = HttpClient()
    async with raw_server(stall) as server:
        exchange = await client.send("POST", server.url, body=b"{}")
        reading = asyncio.create_task(exchange.read())
        await asyncio.sleep(0)
        reading.cancel()
        await asyncio.wait_for(server.closed.wait(), 60)
        assert exchange.head.status == 200
        await client.close()


def test_a_client_keeps_to_its_event_loop() -> None:
    client = HttpClient()

    async def use() -> None:
        async with raw_server(say_ok) as server:
            await fetch(client, server.url)

    with asyncio.Runner() as runner:
        runner.run(use())
        with asyncio.Runner() as other, pytest.raises(RuntimeError, match="one event loop"):
            other.run(use())
        runner.run(client.close())


async def test_the_callers_headers_win_however_they_are_spelt() -> None:
    async def script(request: Request, connection: Connection) -> None:
        await connection.write(reply(b"{}"))

    client = HttpClient(
        key=Secret("sk-key"), headers={"AUTHORIZATION": "Basic mine", "user-agent": "me/1"}
    )
    async with raw_server(script) as server:
        await client.fetch("GET", server.url)
        await client.close()
    sent = server.requests[0].headers
    assert (sent["authorization"], sent["user-agent"]) == ("Basic mine", "me/1")


async def test_a_closed_client_sends_nothing() -> None:
    client = HttpClient()
    await client.close()
    with pytest.raises(RuntimeError, match="the client is closed"):
        await client.fetch("GET", "http://127.0.0.1:1/")


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_without_a_file_descriptor_left_the_peer_is_not_blamed(host: str) -> None:
    resource = pytest.importorskip("resource", reason="this system has no limit of open files")
    client = HttpClient()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    async with raw_server(say_ok) as server:
        url = server.url.replace("127.0.0.1", host)
        resource.setrlimit(resource.RLIMIT_NOFILE, (_open_files(), hard))
        try:
            with pytest.raises(OutOfFiles) as caught:
                await client.fetch("POST", url, body=b"{}")
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert (await client.fetch("POST", server.url, body=b"{}")).head.status == 200
    await client.close()

    assert caught.value.status == 503
    assert "ulimit -n" in caught.value.message


def _open_files() -> int:
    """Return a limit under which not one file more can be opened."""
    with socket.socket() as probe:
        return probe.fileno()
