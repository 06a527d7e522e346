"""What a peer may send, byte for byte, and what becomes of it and of the connection."""

from __future__ import annotations

import asyncio
import gc
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from itertools import pairwise

import pytest

from antiphon.protocol.errors import BackendError
from antiphon.protocol.long_body import LongBody
from antiphon.transport.connection import MAX_LINE, MAX_OVERHEAD, Connection
from antiphon.transport.egress import AddressInfo
from antiphon.transport.exchange import Exchange
from antiphon.transport.http import HttpClient, Limits, Reply
from antiphon.transport.stream import open_stream
from tests.transport import raw
from tests.transport.raw import Request, chunk, head, raw_server, reply

MIB = 1024 * 1024
CHUNKED = head("a/b")
END = chunk(b"")

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@pytest.fixture
async def client() -> AsyncIterator[HttpClient]:
    client = HttpClient(limits=Limits(idle=60))
    yield client
    await client.close()


@asynccontextmanager
async def serving(serve: Serve) -> AsyncIterator[str]:
    """Give every connection to `serve`, and close it after that."""

    async def run(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            await serve(reader, writer)
        writer.close()

    listening = socket.create_server(("127.0.0.1", 0))
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024)
    server = await asyncio.start_server(run, sock=listening)
    yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    server.close()


def open_small(address: AddressInfo) -> socket.socket:
    """Return a socket that cannot hold the bodies of these tests."""
    opened = socket.socket(address[0], address[1], address[2])
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 64 * 1024)
    return opened


async def answers(client: HttpClient, *sent: bytes, count: int = 2) -> tuple[list[Reply], int]:
    """Ask a peer that writes this and waits; return its answers and the connections it saw."""

    async def answer(_: Request, connection: raw.Connection) -> None:
        for data in sent:
            await connection.write(data)
            await asyncio.sleep(0)

    async with raw_server(answer) as server:
        replies = [await client.fetch("POST", server.url, body=b"{}") for _ in range(count)]
    return replies, server.connections


async def last_answer(client: HttpClient, *sent: bytes, is_reset: bool = False) -> Reply:
    """Return the answer of a peer that writes this and goes."""

    async def answer(_: Request, connection: raw.Connection) -> None:
        for data in sent:
            await connection.write(data)
            await asyncio.sleep(0)
        if is_reset:
            connection.reset()
        else:
            connection.writer.close()

    async with raw_server(answer) as server:
        return await client.fetch("POST", server.url, body=b"{}")


async def refusal(client: HttpClient, *sent: bytes) -> BackendError:
    """Return the error for a peer that writes this and waits."""

    async def answer(_: Request, connection: raw.Connection) -> None:
        for data in sent:
            await connection.write(data)
        await connection.until_closed()
        server.closed.set()

    async with raw_server(answer) as server:
        with pytest.raises(BackendError) as caught:
            await client.fetch("POST", server.url, body=b"{}")
        await server.closed.wait()
    return caught.value


# Answers that keep the connection, and answers that end it.

KEPT = {
    "length": (reply(b"{}"), b"{}"),
    "chunks": (CHUNKED + chunk(b"{") + chunk(b"}") + END, b"{}"),
    "extension": (CHUNKED + b"2;name=value\r\n{}\r\n" + END, b"{}"),
    "spaces after a chunk size": (CHUNKED + b"2  \r\n{}\r\n" + END, b"{}"),
    "trailers": (CHUNKED + chunk(b"{}") + b"0\r\nX-A: b\r\nX-C: d\r\n\r\n", b"{}"),
    "no content": (b"HTTP/1.1 204 No Content\r\n\r\n", b""),
    "no content, with a length": (b"HTTP/1.1 204 No\r\nContent-Length: 9\r\n\r\n", b""),
    "not modified": (b"HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n", b""),
    "empty": (reply(b""), b""),
    "announced": (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Hint\r\n\r\n" + reply(b"{}"), b"{}"),
    "old, but kept": (
        b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\n{}",
        b"{}",
    ),
    "bare line feeds": (b"HTTP/1.1 200 OK\nContent-Length: 2\n\n{}", b"{}"),
    "long": (reply(b"x" * MIB), b"x" * MIB),
}


@pytest.mark.parametrize(("sent", "body"), KEPT.values(), ids=KEPT)
async def test_a_complete_answer_gives_its_connection_back(
    sent: bytes, body: bytes, client: HttpClient
) -> None:
    replies, connections = await answers(client, sent, count=3)
    assert [reply.body for reply in replies] == [body] * 3
    assert connections == 1


@pytest.mark.parametrize("sent", [KEPT[name][0] for name in KEPT if name != "long"])
async def test_an_answer_byte_by_byte_is_the_same_answer(sent: bytes, client: HttpClient) -> None:
    whole, _ = await answers(client, sent, count=1)
    pieces = [sent[at : at + 1] for at in range(len(sent))]
    replies, connections = await answers(client, *pieces)
    assert replies == [whole[0]] * 2
    assert connections == 1


LAST = {
    "announced": (reply(b"{}", "Connection: close"), b"{}"),
    "old": (b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\n{}", b"{}"),
    "until it closes": (b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * MIB, b"x" * MIB),
    "until it closes, old": (b"HTTP/1.0 200 OK\r\n\r\n{}", b"{}"),
    "until it closes, empty": (b"HTTP/1.1 200 OK\r\n\r\n", b""),
    "no coding at all": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: identity\r\n\r\n{}", b"{}"),
}


@pytest.mark.parametrize(("sent", "body"), LAST.values(), ids=LAST)
async def test_a_connection_that_ends_is_not_used_again(
    sent: bytes, body: bytes, client: HttpClient
) -> None:
    async def answer(_: Request, connection: raw.Connection) -> None:
        await connection.write(sent)
        connection.writer.close()

    async with raw_server(answer) as server:
        replies = [await client.fetch("POST", server.url, body=b"{}") for _ in range(2)]
    assert [reply.body for reply in replies] == [body] * 2
    assert server.connections == 2


async def test_switching_protocols_is_a_head_without_a_body(client: HttpClient) -> None:
    upgrade = b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\nnot http"
    for sent in (upgrade, b"HTTP/1.1 101 Switching\r\n\r\n"):
        replies, connections = await answers(client, sent)
        assert [(reply.head.status, reply.body) for reply in replies] == [(101, b"")] * 2
        assert connections == 2


async def test_repeated_headers_are_joined_and_announcements_have_their_own(
    client: HttpClient,
) -> None:
    hint = b"HTTP/1.1 103 Hint\r\nLink: </style.css>\r\nX-Early: yes\r\n\r\n"
    final = reply(b"{}", "Link: </a>", "link: </b>", "X-Name: é")
    (got, _), _ = await answers(client, hint + hint + final)
    assert got.head.headers["link"] == "</a>, </b>"
    assert got.head.headers["x-name"] == "é"
    assert "x-early" not in got.head.headers


async def test_a_header_that_is_not_utf8_is_kept(client: HttpClient) -> None:
    (got, _), _ = await answers(client, reply(b"{}", "X: v").replace(b"X: v", b"X: \xe9"))
    assert got.head.headers["x"].encode("utf-8", "surrogateescape") == b"\xe9"


async def test_trailers_are_no_headers(client: HttpClient) -> None:
    (got, _), _ = await answers(client, CHUNKED + chunk(b"{}") + b"0\r\nX-Late: a\r\n\r\n")
    assert "x-late" not in got.head.headers


# Answers to nothing.


async def test_a_second_answer_in_the_same_read_is_dropped(client: HttpClient) -> None:
    replies, connections = await answers(client, reply(b"first") + reply(b"second"))
    assert [reply.body for reply in replies] == [b"first"] * 2
    assert connections == 2


async def test_an_answer_on_an_idle_connection_answers_nothing(client: HttpClient) -> None:
    go, sent = asyncio.Event(), asyncio.Event()

    async def answer(request: Request, connection: raw.Connection) -> None:
        await connection.write(reply(request.body))
        if request.body == b"1":
            await go.wait()
            await connection.write(reply(b"by the way"))
            await connection.until_closed()
            sent.set()

    async with raw_server(answer) as server:
        assert (await client.fetch("POST", server.url, body=b"1")).body == b"1"
        go.set()
        await sent.wait()
        second = await client.fetch("POST", server.url, body=b"2")
    assert (second.body, server.connections) == (b"2", 2)


# Answers that are refused.

REFUSED = {
    "no http": b"SSH-2.0-OpenSSH_9.6\r\n\r\n",
    "length and chunks": b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n",
    "two lengths": b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
    "an invalid length": b"HTTP/1.1 200 OK\r\nContent-Length: 2x\r\n\r\n{}",
    "an invalid chunk size": CHUNKED + b"zz\r\n",
    "a coding that was not asked for": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nx",
    "coded chunks": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n" + END,
    "a long line": reply(b"{}", "X: " + "x" * MAX_LINE),
    "a long head": reply(b"{}", *(f"X{n}: {'x' * 8000}" for n in range(9))),
    "a head without end": b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * MAX_OVERHEAD,
    "an extension without end": CHUNKED + b"5;" + b"x" * (2 * MAX_OVERHEAD),
    "a trailer without end": CHUNKED + b"0\r\n" + b"X: y\r\n" * MAX_OVERHEAD,
    "announcements without end": b"HTTP/1.1 100 Continue\r\n\r\n" * MAX_OVERHEAD,
}


@pytest.mark.parametrize("sent", REFUSED.values(), ids=REFUSED)
async def test_what_cannot_be_read_is_refused_at_once(sent: bytes, client: HttpClient) -> None:
    error = await refusal(client, sent)
    assert (error.code, error.message) == (
        "upstream_invalid_response",
        "the upstream's answer is not HTTP",
    )


async def test_the_limit_also_counts_single_bytes() -> None:
    sent = 0
    connection, transport = connected()
    connection.ask(b"", None)
    feed(connection, CHUNKED + b"0\r\nX: ")
    while not transport.is_closing():
        feed(connection, b"x")
        sent += 1
    assert sent <= MAX_OVERHEAD


async def test_the_limit_counts_only_bytes_without_a_body_between_them() -> None:
    connection, transport = connected()
    exchange = connection.ask(b"", None)
    feed(connection, CHUNKED)
    for _ in range(MAX_OVERHEAD // 100):
        feed(connection, b"5;" + b"x" * 200 + b"\r\n", b"hello\r\n")
        assert await exchange.read() == b"hello"
    assert not transport.is_closing()


async def test_what_came_before_a_bad_chunk_is_returned_first(client: HttpClient) -> None:
    async def answer(_: Request, connection: raw.Connection) -> None:
        await connection.write(CHUNKED + chunk(b"one") + chunk(b"two") + b"zz\r\n")
        await connection.until_closed()

    async with raw_server(answer) as server:
        stream = await open_stream(client, server.url, b"{}")
        assert await stream.read() == b"onetwo"
        with pytest.raises(BackendError, match="not HTTP"):
            await stream.read()


CUT = {
    "in the head": (b"HTTP/1.1 200 OK\r\nConte", "it hung up"),
    "after an announcement": (b"HTTP/1.1 100 Continue\r\n\r\n", "it hung up"),
    "in a length": (b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n{}", "its answer is cut off"),
    "in chunks": (CHUNKED + chunk(b"{}"), "its answer is cut off"),
    "in a chunk": (CHUNKED + b"3\r\n{}", "its answer is cut off"),
    "before any byte": (b"", "it hung up"),
}


@pytest.mark.parametrize(("sent", "why"), CUT.values(), ids=CUT)
async def test_an_answer_that_ends_too_early_is_cut_off(
    sent: bytes, why: str, client: HttpClient
) -> None:
    with pytest.raises(BackendError, match=why) as caught:
        await last_answer(client, sent)
    assert caught.value.code == "upstream_closed"


async def test_a_reset_is_no_end_of_a_body(client: HttpClient) -> None:
    async def answer(_: Request, connection: raw.Connection) -> None:
        await connection.write(b"HTTP/1.1 200 OK\r\n\r\nsome")
        await taken.wait()
        opened = connection.writer.get_extra_info("socket")
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        connection.reset()

    taken = asyncio.Event()
    async with raw_server(answer) as server:
        stream = await open_stream(client, server.url, b"{}")
        assert await stream.read() == b"some"
        taken.set()
        with pytest.raises(BackendError, match="its answer is cut off"):
            await stream.read()


# Requests that are answered before they are sent.


@pytest.mark.parametrize("size", [MIB, 8 * MIB])
async def test_an_answer_before_the_body_is_sent_is_read(size: int) -> None:
    connections = 0
    gone = asyncio.Event()

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        writer.transport.pause_reading()  # type: ignore[attr-defined] # it reads as well
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


async def test_a_peer_that_answers_and_leaves_before_the_request_is_read() -> None:
    connection, transport = connected()
    feed(connection, reply(b"busy", status="503 Busy"))
    connection.eof_received()
    transport.close()
    connection.connection_lost(None)
    exchange = connection.ask(b"POST / HTTP/1.1\r\n\r\n", None)
    await exchange.begin()
    assert (exchange.head.status, await exchange.read()) == (503, b"busy")
    assert transport.written == b""


async def test_a_byte_on_an_idle_connection_closes_it() -> None:
    connection, transport = connected()
    connection.ask(b"", None)
    feed(connection, reply(b"{}"))
    assert connection.is_open
    feed(connection, b"H")
    assert transport.is_closing()


async def test_a_connection_that_answered_before_it_was_asked_is_not_kept() -> None:
    connection, transport = connected()
    feed(connection, reply(b"busy", status="503 Busy"))
    assert transport.is_closing()
    assert not connection.is_open


async def test_a_peer_that_does_not_read_cannot_hold_a_cancelled_request() -> None:
    begun, cancelled = asyncio.Event(), asyncio.Event()
    over: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def read_late(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        size = len(await reader.readuntil(b"\r\n\r\n"))
        begun.set()
        await cancelled.wait()
        with suppress(ConnectionError):
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


@pytest.mark.parametrize(
    ("sent", "result"),
    [
        (b"", "it hung up"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nsome", "its answer is cut off"),
        (b"HTTP/1.1 200 OK\r\n\r\nall", "all"),
    ],
)
async def test_a_peer_that_ends_its_half_and_does_not_read_cannot_hold_the_connection(
    sent: bytes, result: str
) -> None:
    over = asyncio.Event()
    size: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def end_half(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.pause_reading()  # type: ignore[attr-defined] # it reads as well
        writer.write(sent)
        writer.write_eof()
        await over.wait()
        writer.transport.resume_reading()  # type: ignore[attr-defined] # it reads as well
        read = 0
        with suppress(ConnectionError):
            while data := await reader.read(65536):
                read += len(data)
        size.set_result(read)

    client = HttpClient(limits=Limits(idle=60), open_socket=open_small)
    async with serving(end_half) as url:
        try:
            found = (await client.fetch("POST", url, body=b"x" * 8 * MIB)).body.decode()
        except BackendError as error:
            found = error.message.rpartition(": ")[2]
        assert found == result
        over.set()
        assert await asyncio.wait_for(size, 60) < 8 * MIB
        await client.close()


@pytest.mark.parametrize("size", [0, 1, 16 * 1024, 16 * 1024 + 1, 256 * 1024 + 1, 3 * MIB + 7])
async def test_a_body_arrives_whole_whatever_its_length(size: int) -> None:
    async def answer(_: Request, connection: raw.Connection) -> None:
        await connection.write(reply(b"ok"))

    body = (bytes(range(251)) * (size // 251 + 1))[:size]
    client = HttpClient(open_socket=open_small)
    async with raw_server(answer) as server:
        for _ in range(2):
            assert (await client.fetch("POST", server.url, body=body)).body == b"ok"
        await client.close()
    assert [request.body for request in server.requests] == [body, body]
    assert server.connections == 1


async def test_a_body_in_pieces_arrives_whole() -> None:
    async def answer(_: Request, connection: raw.Connection) -> None:
        await connection.write(reply(b"ok"))

    pieces = [bytes([number]) * size for number, size in enumerate((1, 40_000, 3 * MIB + 7, 0))]
    client = HttpClient(open_socket=open_small)
    async with raw_server(answer) as server:
        for begin, end in ((b"begin", b"end"), (b"", b"")):
            body = LongBody(begin, pieces, end)
            async with await open_stream(client, server.url, body) as stream:
                assert await stream.read_all(9) == b"ok"
        await client.close()
    whole = b"".join(pieces)
    assert [request.body for request in server.requests] == [b"begin" + whole + b"end", whole]
    assert server.connections == 1


# One connection without a network.


class Transport(asyncio.Transport):
    """A transport that keeps what is written to it."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.is_paused = False
        self._is_closing = False

    def is_closing(self) -> bool:
        return self._is_closing

    def is_reading(self) -> bool:
        return not self.is_paused

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False

    def get_write_buffer_size(self) -> int:
        return 0

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data

    def close(self) -> None:
        self._is_closing = True

    def abort(self) -> None:
        self._is_closing = True


def connected(idle: list[Connection] | None = None) -> tuple[Connection, Transport]:
    """Return a connection, and its transport without a network: the test feeds it."""

    def note_idle(connection: Connection) -> None:
        if idle is not None:
            idle.append(connection)

    connection = Connection(asyncio.get_running_loop(), note_idle, lambda _: None)
    transport = Transport()
    connection.connection_made(transport)
    return connection, transport


def feed(connection: Connection, *reads: bytes) -> None:
    for data in reads:
        connection.data_received(data)


async def test_a_callback_may_end_the_exchange() -> None:
    idle: list[Connection] = []
    connection, transport = connected(idle)
    exchange = connection.ask(b"", None)
    feed(connection, CHUNKED)

    def leave_now(data: bytes) -> bool:
        exchange.abort()
        return True

    reading = asyncio.create_task(exchange.read(leave_now))
    await asyncio.sleep(0)
    feed(connection, chunk(b"x") + END)
    with pytest.raises(BackendError, match="on our side"):
        await reading
    assert idle == []
    assert transport.is_closing()


def cut(data: bytes, places: list[int]) -> list[bytes]:
    return [data[a:b] for a, b in pairwise([0, *sorted(places), len(data)]) if a < b]


RECORDED = (
    b"HTTP/1.1 100 Continue\r\n\r\n"
    + head("text/event-stream", "X-A: b")
    + chunk(b"data: one\n\n")
    + chunk(b"data: two\n\ndata: 5\r\nthree\r\n")
    + b"0005;name=value\r\n\r\n\r\n0\r\n"
    + chunk(b"x")
    + b"0\r\nX-Late: c\r\n\r\n"
)
BODY = b"data: one\n\ndata: two\n\ndata: 5\r\nthree\r\n\r\n\r\n0x"


async def received(reads: list[bytes], wants: list[bool] | None) -> bytes:
    """Return the body of these reads of a socket, passed to a callback if `wants` is given."""
    idle: list[Connection] = []
    connection, _ = connected(idle)
    exchange = connection.ask(b"", None)
    got: list[bytes] = []

    def hear(data: bytes) -> bool:
        got.append(data)
        return not wants or wants[len(got) % len(wants)]

    async def read() -> None:
        await exchange.begin()
        while (data := await exchange.read(None if wants is None else hear)) != b"":
            if data is not None:
                got.append(data)

    reading = asyncio.create_task(read())
    for data in reads:
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        feed(connection, data)
    await reading
    assert idle == [connection]
    connection.connection_lost(None)
    return b"".join(got)


WANTS = {"read": None, "heard": [True], "in turns": [True, False], "one by one": [False]}


@pytest.mark.parametrize("wants", WANTS.values(), ids=WANTS)
async def test_all_cuts_of_a_stream_give_the_same_bytes(wants: list[bool] | None) -> None:
    """Every place for one cut, and every pair of places that are a few bytes apart."""
    size = len(RECORDED)
    places = [[at] for at in range(1, size)]
    places += [[at, at + gap] for gap in (1, 2, 3, 7) for at in range(1, size - gap)]
    for some in [*places, list(range(size))]:
        assert await received(cut(RECORDED, some), wants) == BODY, some


# What is left of a connection.


@pytest.fixture
def without_gc() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def alive() -> int:
    """Return how many objects of a connection exist."""
    names = {"Connection", "Exchange", "_Answer", "HttpResponseParser"}
    return sum(type(one).__name__ in names for one in gc.get_objects())


async def read_whole(connection: Connection, exchange: Exchange) -> None:
    feed(connection, reply(b"{}"))
    await exchange.begin()
    assert await exchange.read() == b"{}"


async def read_broken(connection: Connection, exchange: Exchange) -> None:
    feed(connection, CHUNKED + chunk(b"{}") + b"zz\r\n")
    await exchange.begin()
    assert await exchange.read() == b"{}"
    with suppress(BackendError):
        await exchange.read()


async def cancel(connection: Connection, exchange: Exchange) -> None:
    feed(connection, CHUNKED)
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().call_soon(task.cancel)
    try:
        await exchange.read(lambda _: True)
    except asyncio.CancelledError:
        task.uncancel()


async def break_listener(connection: Connection, exchange: Exchange) -> None:
    def hear(data: bytes) -> bool:
        raise ZeroDivisionError

    feed(connection, CHUNKED)
    asyncio.get_running_loop().call_soon(feed, connection, chunk(b"x"))
    with suppress(ZeroDivisionError):
        await exchange.read(hear)


async def leave(connection: Connection, exchange: Exchange) -> None:
    feed(connection, CHUNKED + chunk(b"{}"))
    exchange.abort()


@pytest.mark.usefixtures("without_gc")
@pytest.mark.parametrize("end", [read_whole, read_broken, cancel, break_listener, leave])
async def test_a_connection_leaves_no_cycle_behind(
    end: Callable[[Connection, Exchange], Awaitable[None]],
) -> None:
    counts = []
    for _ in range(4):
        connection, transport = connected()
        exchange = connection.ask(b"", None)
        await end(connection, exchange)
        connection.hang_up()
        connection.connection_lost(None)
        del connection, transport, exchange
        counts.append(alive())
    assert len(set(counts)) == 1  # a task keeps its last cancellation, and what that refers to


@pytest.mark.usefixtures("without_gc")
async def test_nothing_grows_over_many_exchanges() -> None:
    idle: list[Connection] = []
    connection, transport = connected(idle)

    async def many(count: int) -> int:
        for _ in range(count):
            exchange = connection.ask(b"x", None)
            feed(connection, RECORDED)
            await exchange.begin()
            assert await exchange.read() == BODY
            assert await exchange.read() == b""
        idle.clear()
        transport.written = b""
        return len(gc.get_objects())

    await many(100)
    before = await many(100)
    assert await many(20_000) - before < 100
