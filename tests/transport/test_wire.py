"""A plain request on a connection: what is sent, what is heard, when the connection is free."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import random
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

import aiohttp
import pytest

from antiphon.protocol.errors import BackendError
from antiphon.transport import wire
from antiphon.transport.egress import AddressInfo
from antiphon.transport.http import Exchange, HttpClient, Limits, Secret
from antiphon.transport.wire import Wire
from tests.transport.raw import Connection, Request, chunk, head, raw_server, reply

MIB = 1024 * 1024

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@pytest.fixture(params=[True, False], ids=["written here", "by the library"])
def is_known(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Run a test as it is, and with a library that looks different inside."""
    monkeypatch.setattr(wire, "_IS_KNOWN", request.param)
    return bool(request.param)


@pytest.fixture
async def client() -> AsyncIterator[HttpClient]:
    client = HttpClient(limits=Limits(idle=60))
    yield client
    await client.close()


@contextlib.asynccontextmanager
async def serving(serve: Serve) -> AsyncIterator[str]:
    """Give every connection to `serve`, and close it after that."""

    async def run(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            await serve(reader, writer)
        writer.close()

    listening = socket.create_server(("127.0.0.1", 0))
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024)
    server = await asyncio.start_server(run, sock=listening)
    yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    server.close()


@contextlib.asynccontextmanager
async def new_wire(headers: dict[str, str] | None = None) -> AsyncIterator[Wire]:
    connector = aiohttp.TCPConnector()
    yield Wire(connector, aiohttp.ClientTimeout(), headers or {})
    await connector.close()


@contextlib.contextmanager
def full_port() -> Iterator[int]:
    """Listen on a port that lets nobody in any more."""
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(socket.socket())
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        for _ in range(4):
            guest = stack.enter_context(socket.socket())
            guest.setblocking(False)
            guest.connect_ex(server.getsockname())
        yield server.getsockname()[1]


def open_small(address: AddressInfo) -> socket.socket:
    """Return a socket that cannot hold the bodies of these tests."""
    opened = socket.socket(address[0], address[1], address[2])
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 64 * 1024)
    return opened


async def say_ok(_: Request, connection: Connection) -> None:
    await connection.write(reply(b"{}"))


def test_the_installed_library_is_one_we_know() -> None:
    assert wire._IS_KNOWN


@pytest.mark.parametrize(
    "path",
    [
        "",
        "?a=b",
        "/v1/chat/completions",
        "/a b/%2fü?q=ö&r=a+b c%20#fragment",
        "/a/../b/./c//d",
        '/{model}|^"<>%zz',
        "/x\r\ny: z\ty",
    ],
)
async def test_a_path_is_said_as_the_library_says_it(
    path: str, client: HttpClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with raw_server(say_ok) as server:
        await client.fetch("POST", server.url + path, body=b"{}")
        monkeypatch.setattr(wire, "_IS_KNOWN", False)
        other = HttpClient()
        await other.fetch("POST", server.url + path, body=b"{}")
        await other.close()
    assert server.requests[0] == server.requests[1]


@pytest.mark.parametrize(
    "headers",
    [
        {"Accept": "text/event-stream", "X-Id": "7"},
        {"CONTENT-TYPE": "text/plain", "host": "elsewhere:1"},
        {"authorization": "Basic mine", "User-Agent": "me/2"},
        {"x-a": "1", "X-A": "é\t2"},
        {"Content-Length": "2"},
    ],
    ids=lambda headers: " ".join(headers),
)
async def test_headers_are_said_as_the_library_says_them(
    headers: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with raw_server(say_ok) as server:
        for is_known in (True, False):
            monkeypatch.setattr(wire, "_IS_KNOWN", is_known)
            client = HttpClient(key=Secret("sk-1"), headers={"x-team": "é", "Content-Type": "a/b"})
            await client.fetch("POST", server.url, body=b"{}", headers=headers)
            await client.close()
    assert server.requests[0] == server.requests[1]


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST", "127.0.0.1"])
async def test_the_host_is_told_with_its_port(host: str, client: HttpClient) -> None:
    async with raw_server(say_ok) as server:
        port = server.url.rpartition(":")[2]
        await client.fetch("POST", f"http://{host}:{port}/x", body=b"{}")
    assert server.requests[0].headers["host"] == f"{host.lower()}:{port}"


async def test_an_address_of_version_six_stands_in_brackets() -> None:
    async with new_wire() as found:
        targets = [found.find(f"http://[::1]{port}/x", None) for port in (":81", ":80", "")]
    lines = [target.lines["host"] for target in targets if target is not None]
    assert lines == ["Host: [::1]:81\r\n", "Host: [::1]\r\n", "Host: [::1]\r\n"]


async def test_every_header_is_said_once() -> None:
    async with new_wire({"accept": "a/b", "x": "1"}) as found:
        target = found.find("http://a/b", None)
        assert target is not None
        said = target.head({"X": "2", "y": "3"}, 77).decode()
    first, *lines = said.removesuffix("\r\n\r\n").split("\r\n")
    names = [line.partition(":")[0].lower() for line in lines]
    assert first == "POST /b HTTP/1.1"
    assert len(names) == len(set(names))
    assert {"X: 2", "y: 3", "accept: a/b", "Content-Length: 77"} <= set(lines)


async def test_a_key_and_a_name_in_the_url_are_one_too_many(is_known: bool) -> None:
    client = HttpClient(key=Secret("sk-1"))
    with pytest.raises(ValueError, match="AUTHORIZATION") as caught:
        await client.fetch("POST", "http://me:secret@127.0.0.1:1/", body=b"{}")
    await client.close()
    assert "secret" not in str(caught.value)


async def test_who_stands_in_the_url_signs_in_and_is_not_told(
    client: HttpClient, is_known: bool
) -> None:
    async with raw_server(say_ok) as server:
        url = server.url.replace("//", "//me:secret@")
        await client.fetch("POST", url, body=b"{}")
    assert server.requests[0].headers["authorization"] == "Basic bWU6c2VjcmV0"
    assert "secret" not in server.requests[0].headers["host"] + server.requests[0].path
    other = HttpClient()
    with pytest.raises(BackendError, match="cannot be reached") as caught:
        await other.fetch("POST", url, body=b"{}")
    await other.close()
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("headers", [{"X": "a\r\nY: b"}, {"X": "a\rb"}, {"X\n": "a"}])
async def test_a_header_cannot_bring_another_one(
    headers: dict[str, str], client: HttpClient, is_known: bool
) -> None:
    async with raw_server(say_ok) as server:
        with pytest.raises(ValueError, match="header"):
            await client.fetch("POST", server.url, body=b"{}", headers=headers)
        other = HttpClient(headers=headers)
        with pytest.raises(ValueError, match="header"):
            await other.fetch("POST", server.url, body=b"{}")
        await other.close()
    assert server.requests == []


@pytest.mark.parametrize("value", ["\0", "a\x0bb", "\x7f"])
async def test_a_header_with_control_characters_is_not_sent(value: str, client: HttpClient) -> None:
    async with raw_server(say_ok) as server:
        with pytest.raises(ValueError, match="control characters"):
            await client.fetch("POST", server.url, body=b"{}", headers={"X": value})
    assert server.connections == 0


@pytest.mark.parametrize("url", ["http://", "http://:80/", "http://a:99999/", "http://[::1/"])
async def test_a_url_without_a_host_or_port_is_unreachable(
    url: str, client: HttpClient, is_known: bool
) -> None:
    with pytest.raises(BackendError) as caught:
        await client.fetch("POST", url, body=b"{}")
    assert caught.value.code == "upstream_unreachable"


ANSWERS = {
    "length": (reply(b"{}"), b"{}"),
    "chunks": (head("a/b") + chunk(b"{") + chunk(b"}") + chunk(b""), b"{}"),
    "no content": (b"HTTP/1.1 204 No Content\r\n\r\n", b""),
    "not modified": (b"HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n", b""),
    "empty": (reply(b""), b""),
    "announced": (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Hint\r\n\r\n" + reply(b"{}"), b"{}"),
    "long": (reply(b"x" * MIB), b"x" * MIB),
}


@pytest.mark.parametrize(("sent", "body"), ANSWERS.values(), ids=ANSWERS)
async def test_a_body_read_to_its_end_gives_its_connection_back(
    sent: bytes, body: bytes, client: HttpClient, is_known: bool
) -> None:
    async def answer(_: Request, connection: Connection) -> None:
        await connection.write(sent)

    async with raw_server(answer) as server:
        answers = [await client.fetch("POST", server.url, body=b"{}") for _ in range(3)]
    assert [answer.body for answer in answers] == [body] * 3
    assert (len(server.requests), server.connections) == (3, 1)


LAST = {
    "said so": (reply(b"{}", "Connection: close"), b"{}"),
    "old": (b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\n{}", b"{}"),
    "until it closes": (b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * MIB, b"x" * MIB),
}


@pytest.mark.parametrize(("sent", "body"), LAST.values(), ids=LAST)
async def test_a_connection_that_ends_is_not_used_again(
    sent: bytes, body: bytes, client: HttpClient, is_known: bool
) -> None:
    async def answer(_: Request, connection: Connection) -> None:
        await connection.write(sent)
        connection.writer.close()

    async with raw_server(answer) as server:
        answers = [await client.fetch("POST", server.url, body=b"{}") for _ in range(2)]
    assert [answer.body for answer in answers] == [body] * 2
    assert server.connections == 2


async def test_a_connection_is_shared_with_requests_that_are_not_plain(client: HttpClient) -> None:
    async with raw_server(say_ok) as server:
        await client.fetch("POST", server.url, body=b"{}")
        await client.fetch("GET", server.url)
        await client.fetch("POST", server.url, body=b"x" * (2 * MIB))
        await client.fetch("POST", server.url, body=b"{}")
    assert (len(server.requests), server.connections) == (4, 1)


@pytest.mark.parametrize("size", [MIB, 8 * MIB])
async def test_who_answers_before_it_has_read_is_heard(size: int, is_known: bool) -> None:
    connections = 0
    gone = asyncio.Event()

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        reader._transport.pause_reading()  # type: ignore[attr-defined] # it does not read on
        writer.write(reply(b"too long", status="413 Too Long"))
        await gone.wait()

    client = HttpClient(limits=Limits(idle=60), open_socket=open_small)
    async with serving(refuse) as url:
        for _ in range(2):
            answer = await client.fetch("POST", url, body=b"x" * size)
            assert (answer.head.status, answer.body) == (413, b"too long")
        gone.set()
        await client.close()
    assert connections == 2


async def test_who_answers_and_leaves_before_it_is_asked_is_heard() -> None:
    async def decline(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(reply(b"busy", status="503 Busy"))

    async with serving(decline) as url, new_wire() as found:
        target = found.find(url, None)
        assert target is not None
        connection = await found._connect(target.request)
        assert connection.protocol is not None
        assert connection.protocol.closed is not None
        await connection.protocol.closed
        answer = await wire._exchange(connection, target.head(None, 0), b"")
        assert (answer.status, await answer.content.read()) == (503, b"busy")
        assert answer.connection is None


async def test_a_peer_that_does_not_read_cannot_keep_a_cancelled_request() -> None:
    begun, cancelled = asyncio.Event(), asyncio.Event()
    over: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def read_late(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        size = len(await reader.readuntil(b"\r\n\r\n"))
        begun.set()
        await cancelled.wait()
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65536):
                size += len(data)
        over.set_result(size)

    client = HttpClient(open_socket=open_small)
    async with serving(read_late) as url:
        asking = asyncio.create_task(client.fetch("POST", url, body=b"x" * MIB))
        await begun.wait()
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        cancelled.set()
        assert await asyncio.wait_for(over, 60) < MIB
        await client.close()


async def test_what_nobody_asked_for_answers_nothing(client: HttpClient) -> None:
    go = asyncio.Event()

    async def answer(request: Request, connection: Connection) -> None:
        await connection.write(head("a/b"))
        await go.wait()
        await connection.write(chunk(request.body) + chunk(b""))

    async with raw_server(answer) as server:
        exchange = await client.send("POST", server.url, body=b"1")
        connection = exchange._response.connection
        assert connection is not None
        protocol = connection.protocol
        assert protocol is not None
        go.set()
        assert await exchange.read() == b"1"
        assert await exchange.read() == b""
        protocol.data_received(reply(b"by the way"))
        second = await client.fetch("POST", server.url, body=b"2")
    assert (second.body, server.connections) == (b"2", 2)


async def test_a_body_is_taken_as_it_is() -> None:
    bomb = gzip.compress(b"\0" * MIB)

    async def explode(_: Request, connection: Connection) -> None:
        await connection.write(reply(bomb, "Content-Encoding: gzip"))

    async with raw_server(explode) as server, new_wire() as found:
        target = found.find(server.url, None)
        assert target is not None
        answer = await found.post(target, None, b"{}")
        assert await answer.content.read() == bomb


async def test_a_head_that_is_too_long_is_an_invalid_answer(
    client: HttpClient, is_known: bool
) -> None:
    async def boast(_: Request, connection: Connection) -> None:
        await connection.write(reply(b"{}", "X: " + "x" * 10_000))

    async with raw_server(boast) as server:
        with pytest.raises(BackendError, match="not HTTP") as caught:
            await client.fetch("POST", server.url, body=b"{}")
    assert caught.value.code == "upstream_invalid_response"


async def test_whoever_lets_nobody_in_is_unreachable(is_known: bool) -> None:
    client = HttpClient(limits=Limits(connect=0.05))
    with full_port() as port, pytest.raises(BackendError, match="no connection in time") as caught:
        await client.fetch("POST", f"http://127.0.0.1:{port}", body=b"{}")
    await client.close()
    assert caught.value.code == "upstream_unreachable"


async def test_a_body_read_to_its_end_gives_the_connection_back(
    client: HttpClient, is_known: bool
) -> None:
    go = asyncio.Event()

    async def answer(_: Request, connection: Connection) -> None:
        await connection.write(head("a/b") + chunk(b"1"))
        await go.wait()
        await connection.write(chunk(b""))

    async with raw_server(answer) as server:
        exchange = await client.send("POST", server.url, body=b"{}")
        assert await exchange.read() == b"1"
        go.set()
        assert await exchange.read() == b""
        exchange.abort()
        await client.fetch("POST", server.url, body=b"{}")
    assert server.connections == 1


async def test_hanging_up_is_told_to_who_reads(client: HttpClient, is_known: bool) -> None:
    async def stall(_: Request, connection: Connection) -> None:
        await connection.write(head("a/b"))
        await connection.until_closed()
        server.closed.set()

    async def read(exchange: Exchange) -> bytes | None:
        return await exchange.read()

    async with raw_server(stall) as server:
        exchange = await client.send("POST", server.url, body=b"{}")
        reading = asyncio.create_task(read(exchange))
        await asyncio.sleep(0)
        exchange.abort()
        with pytest.raises(BackendError) as caught:
            await reading
        await asyncio.wait_for(server.closed.wait(), 60)
    assert caught.value.code == "upstream_closed"


async def test_not_every_url_is_remembered() -> None:
    async with new_wire() as found:
        first = found.find("http://a/0", None)
        assert found.find("http://a/0", None) is first is not None
        for number in range(200):
            found.find(f"http://a/{number}", None)
        assert len(found._targets) == wire._MAX_TARGETS
        assert found.find("http://a/0", None) is not first


@pytest.mark.parametrize("name", ["Expect", "Transfer-Encoding", "content-length"])
async def test_what_changes_how_a_body_is_sent_is_for_the_library(name: str) -> None:
    async with new_wire() as plain, new_wire({name: "x"}) as other:
        assert plain.find("http://a/", {name: "x"}) is None
        assert other.find("http://a/", None) is None


@pytest.mark.parametrize("size", [0, 1, wire._LONG, wire._LONG + 1, MIB])
async def test_a_body_arrives_whole_whatever_its_length(size: int) -> None:
    async def script(request: Request, connection: Connection) -> None:
        await connection.write(reply(b"ok"))

    body = random.Random(size).randbytes(size)
    client = HttpClient()
    async with raw_server(script) as server:
        for _ in range(2):
            assert (await client.fetch("POST", server.url, body=body)).body == b"ok"
        await client.close()
    assert [request.body for request in server.requests] == [body, body]
    assert server.connections == 1
