"""Opening connections: names, several addresses, TLS, limits, and giving up in every state."""

from __future__ import annotations

import asyncio
import gc
import socket
import ssl
import time
import weakref
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from antiphon.protocol.errors import BackendError
from antiphon.transport.connection import Connection
from antiphon.transport.dial import NAME_SECONDS, Dialler
from antiphon.transport.egress import AddressInfo
from antiphon.transport.http import HttpClient, Limits, Reply
from antiphon.transport.target import Key
from tests.transport import raw
from tests.transport.certificates import Authority
from tests.transport.raw import Request, raw_server, reply

NAME = "upstream.example"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
async def client() -> AsyncIterator[HttpClient]:
    client = HttpClient(limits=Limits(connect=60))
    yield client
    await client.close()


async def say_ok(_: Request, connection: raw.Connection) -> None:
    await connection.write(reply(b"{}"))


async def fetch(client: HttpClient, url: str) -> Reply:
    return await client.fetch("POST", url, body=b"{}")


async def refusal(client: HttpClient, url: str) -> str:
    with pytest.raises(BackendError) as caught:
        await fetch(client, url)
    assert caught.value.code == "upstream_unreachable"
    return caught.value.message


def know(monkeypatch: pytest.MonkeyPatch, *addresses: tuple[str, int]) -> list[str]:
    """Let one name lead to these addresses; return the list of names that are looked up."""
    asked: list[str] = []

    kind = type(asyncio.get_running_loop())
    real = kind.getaddrinfo

    async def look_up(loop: Any, host: str, port: int, **rest: Any) -> Any:
        if host[0].isdigit():  # uvloop asks for every address again
            return await real(loop, host, port, **rest)
        asked.append(host)
        await asyncio.sleep(0)
        if host != NAME:
            raise socket.gaierror(socket.EAI_NONAME, "not known")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", place) for place in addresses]

    monkeypatch.setattr(kind, "getaddrinfo", look_up)
    return asked


@contextmanager
def full_port() -> Iterator[int]:
    """Listen on a port that accepts no further connection."""
    with ExitStack() as stack:
        server = stack.enter_context(socket.socket())
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        for _ in range(4):
            guest = stack.enter_context(socket.socket())
            guest.setblocking(False)
            guest.connect_ex(server.getsockname())
        yield server.getsockname()[1]


@contextmanager
def closed_port() -> Iterator[int]:
    """Keep a port on which nothing listens."""
    with socket.socket() as placeholder:
        placeholder.bind(("127.0.0.1", 0))
        yield placeholder.getsockname()[1]


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


# Names and addresses.


async def test_the_next_address_is_tried_if_one_refuses(
    client: HttpClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with raw_server(say_ok) as server:
        port = int(server.url.rpartition(":")[2])
        with closed_port() as shut:
            know(monkeypatch, ("127.0.0.1", shut), ("127.0.0.1", port))
            assert (await fetch(client, f"http://{NAME}:{port}")).body == b"{}"


async def test_the_next_address_is_tried_if_one_does_not_answer(
    client: HttpClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with raw_server(say_ok) as server:
        port = int(server.url.rpartition(":")[2])
        with full_port() as full:
            know(monkeypatch, ("127.0.0.1", full), ("127.0.0.1", port))
            assert (await fetch(client, f"http://{NAME}:{port}")).body == b"{}"


async def test_a_failure_of_several_addresses_names_none(
    client: HttpClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closed_port() as one, closed_port() as other:
        know(monkeypatch, ("127.0.0.1", one), ("127.0.0.1", other))
        said = await refusal(client, f"http://{NAME}:{one}")
    assert said.endswith("cannot be reached: connection refused")


async def test_addresses_that_do_not_answer_are_given_up_in_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client = HttpClient(limits=Limits(connect=0.5))
    with full_port() as one:
        know(monkeypatch, ("127.0.0.1", one), ("127.0.0.1", one))
        said = await refusal(client, f"http://{NAME}:{one}")
    await client.close()
    assert said.endswith("no connection in time")


async def test_every_address_is_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    judged: list[object] = []

    def refuse_some(info: AddressInfo) -> socket.socket:
        judged.append(info[4])
        if len(judged) < 3:
            raise PermissionError(13, "the address is not a public one")
        return socket.socket(info[0], info[1], info[2])

    client = HttpClient(limits=Limits(connect=60), open_socket=refuse_some)
    async with raw_server(say_ok) as server:
        place = ("127.0.0.1", int(server.url.rpartition(":")[2]))
        know(monkeypatch, place, place, place)
        assert (await fetch(client, f"http://{NAME}:{place[1]}")).body == b"{}"
    await client.close()
    assert judged == [place] * 3


async def test_an_unknown_name_is_unreachable(
    client: HttpClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    know(monkeypatch)
    said = await refusal(client, "http://nowhere.example")
    assert said == (
        "the upstream at http://nowhere.example cannot be reached: its name is not known"
    )
    for host in ("x" * 64 + ".example", NAME):  # no name at all, and one without an address
        assert (await refusal(client, f"http://{host}")).endswith("its name is not known")


async def test_a_burst_looks_a_name_up_once(
    client: HttpClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with raw_server(say_ok) as server:
        port = int(server.url.rpartition(":")[2])
        asked = know(monkeypatch, ("127.0.0.1", port))
        await asyncio.gather(*(fetch(client, f"http://{NAME}:{port}") for _ in range(100)))
        assert server.connections == 100
    assert asked == [NAME]


async def test_cancelling_one_request_does_not_end_the_look_up_of_another(
    client: HttpClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with raw_server(say_ok) as server:
        port = int(server.url.rpartition(":")[2])
        asked = know(monkeypatch, ("127.0.0.1", port))
        first, second = (
            asyncio.create_task(fetch(client, f"http://{NAME}:{port}")) for _ in range(2)
        )
        await asyncio.sleep(0)
        await cancelled(first)
        assert (await second).body == b"{}"
    assert asked == [NAME]


async def test_a_name_that_was_not_known_is_looked_up_again(
    client: HttpClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = know(monkeypatch)
    for _ in range(2):
        await refusal(client, "http://nowhere.example")
    assert asked == ["nowhere.example"] * 2


async def test_addresses_are_kept_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    async with raw_server(say_ok) as server:
        port = int(server.url.rpartition(":")[2])
        asked = know(monkeypatch, ("127.0.0.1", port))
        clock = Clock()
        dialler = Dialler(clock, None, 60)  # type: ignore[arg-type] # as far as it is used
        for passed in (0, NAME_SECONDS - 1, 1.0, 1.0):
            clock.now += passed
            connection = await dialler.dial(Key(False, NAME, port), unused)
            connection.hang_up()
    await asyncio.sleep(0)
    assert len(asked) == 2


class Clock:
    """The running loop with a time of its own."""

    now = 0.0

    def time(self) -> float:
        return self.now

    def __getattr__(self, name: str) -> object:
        return getattr(asyncio.get_running_loop(), name)


def unused() -> Connection:
    return Connection(asyncio.get_running_loop(), lambda _: None, lambda _: None)


async def test_an_address_of_version_six_is_connected_to(client: HttpClient) -> None:
    with suppress(OSError), socket.create_server(("::1", 0), family=socket.AF_INET6):
        async with raw_server(say_ok, host="::1") as server:
            assert (await fetch(client, server.url)).body == b"{}"
            zone = server.url.replace("::1", "::1%25lo")
            with suppress(BackendError):  # whether loopback has zones depends on the system
                await fetch(client, zone)
        assert server.requests[0].headers["host"] == server.url.removeprefix("http://")


# TLS.


@pytest.fixture
def trusted(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> Authority:
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.path))
    return authority


async def test_a_secure_connection_is_used_again(client: HttpClient, trusted: Authority) -> None:
    seen: list[str | None] = []

    async def answer(_: Request, connection: raw.Connection) -> None:
        seen.append(connection.writer.get_extra_info("ssl_object").selected_alpn_protocol())
        await connection.write(reply(b"x" * 1_000_000))

    context = trusted.server_context("127.0.0.1")
    context.set_alpn_protocols(["h2", "http/1.1"])
    async with raw_server(answer, tls=context) as server:
        for _ in range(3):
            got = await client.fetch("POST", server.url, body=b"y" * 1_000_000)
            assert got.body == b"x" * 1_000_000
    assert server.connections == 1
    assert [len(request.body) for request in server.requests] == [1_000_000] * 3
    assert seen == ["http/1.1"] * 3


async def test_a_stale_secure_connection_is_replaced(
    client: HttpClient, trusted: Authority
) -> None:
    async def answer(_: Request, connection: raw.Connection) -> None:
        if len(server.requests) == 2:
            raise ConnectionError
        await connection.write(reply(b"{}"))

    async with raw_server(answer, tls=trusted.server_context("127.0.0.1")) as server:
        for _ in range(2):
            assert (await fetch(client, server.url)).body == b"{}"
    assert (len(server.requests), server.connections) == (3, 2)


@pytest.mark.parametrize(("status", "count"), [("200 OK", 1), ("413 Too Long", 2)])
async def test_a_secure_connection_that_refused_a_long_request_is_not_used_again(
    status: str, count: int, client: HttpClient, trusted: Authority
) -> None:
    async def answer(_: Request, connection: raw.Connection) -> None:
        await connection.write(reply(b"{}", status=status))

    async with raw_server(answer, tls=trusted.server_context("127.0.0.1")) as server:
        await client.fetch("POST", server.url, body=b"x" * 200_000)
        await fetch(client, server.url)
        await fetch(client, server.url)
    assert server.connections == count


async def test_a_certificate_for_another_name_is_refused(
    client: HttpClient, trusted: Authority
) -> None:
    async with raw_server(say_ok, tls=trusted.server_context("other.example")) as server:
        said = await refusal(client, server.url)
    assert "its certificate is not valid (" in said
    assert server.requests == []


async def test_an_expired_certificate_is_refused(client: HttpClient, trusted: Authority) -> None:
    context = trusted.server_context("127.0.0.1", is_expired=True)
    async with raw_server(say_ok, tls=context) as server:
        assert "certificate has expired" in await refusal(client, server.url)
    assert server.requests == []


async def test_an_unknown_authority_is_refused(client: HttpClient, authority: Authority) -> None:
    async with raw_server(say_ok, tls=authority.server_context("127.0.0.1")) as server:
        assert "its certificate is not valid (" in await refusal(client, server.url)
    assert server.requests == []


async def test_a_burst_reads_the_certificates_once(
    client: HttpClient, trusted: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[ssl.SSLContext] = []
    real = ssl.create_default_context

    def make() -> ssl.SSLContext:
        made.append(real())
        time.sleep(0.05)  # as long as all certificates of a system take
        return made[-1]

    own = tmp_path / "certificates.pem"
    own.write_bytes(trusted.path.read_bytes())
    tls = trusted.server_context("127.0.0.1")
    monkeypatch.setenv("SSL_CERT_FILE", str(own))
    monkeypatch.setattr(ssl, "create_default_context", make)
    async with raw_server(say_ok, tls=tls) as server:
        await asyncio.gather(*(fetch(client, server.url) for _ in range(5)))
    assert len(made) == 1


async def test_a_peer_without_tls_is_unreachable(client: HttpClient) -> None:
    async def babble(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(babble, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    said = await refusal(client, f"https://127.0.0.1:{port}")
    server.close()
    assert said.endswith(("it does not speak TLS as we do", "connection reset by peer"))


async def test_a_handshake_that_is_cut_is_unreachable(client: HttpClient) -> None:
    async def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    said = await refusal(client, f"https://127.0.0.1:{port}")
    server.close()
    assert said.partition("reached: ")[2]


async def test_a_peer_that_does_not_shake_hands_is_given_up_in_time() -> None:
    async def stall(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(65536):
            pass
        writer.close()
        gone.set()

    gone = asyncio.Event()
    client = HttpClient(limits=Limits(connect=0.2))
    server = await asyncio.start_server(stall, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    said = await refusal(client, f"https://127.0.0.1:{port}")
    await asyncio.wait_for(gone.wait(), 60)
    server.close()
    await client.close()
    assert said.endswith("no connection in time")


# Giving up.


async def cancelled(asking: asyncio.Task[Reply]) -> None:
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking


async def test_cancelling_while_a_name_is_looked_up_leaves_nothing(
    client: HttpClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go = asyncio.Event(), asyncio.Event()

    async def look_up(*_: object, **__: object) -> list[object]:
        begun.set()
        await go.wait()
        raise socket.gaierror(socket.EAI_NONAME, "not known")

    monkeypatch.setattr(type(asyncio.get_running_loop()), "getaddrinfo", look_up)
    asking = asyncio.create_task(fetch(client, f"http://{NAME}"))
    await begun.wait()
    await cancelled(asking)
    go.set()
    for _ in range(5):
        await asyncio.sleep(0)
    assert asyncio.all_tasks() == {asyncio.current_task()}


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="counts files in /proc")
@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_cancelling_while_connecting_leaves_no_socket(
    scheme: str, client: HttpClient
) -> None:
    with full_port() as port:
        before = open_files()
        for turns in range(12):
            asking = asyncio.create_task(fetch(client, f"{scheme}://127.0.0.1:{port}"))
            for _ in range(turns):
                await asyncio.sleep(0)
            await cancelled(asking)
        for _ in range(5):
            await asyncio.sleep(0)
        assert open_files() == before


async def test_cancelling_in_the_handshake_closes_the_socket(client: HttpClient) -> None:
    async def stall(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        begun.set()
        with suppress(ConnectionError):
            while await reader.read(65536):
                pass
        writer.close()
        gone.set()

    begun, gone = asyncio.Event(), asyncio.Event()
    server = await asyncio.start_server(stall, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    asking = asyncio.create_task(fetch(client, f"https://127.0.0.1:{port}"))
    await begun.wait()
    await cancelled(asking)
    await asyncio.wait_for(gone.wait(), 60)
    server.close()


async def test_a_cancelled_handshake_is_released_after_the_time_to_connect() -> None:
    loop = asyncio.get_running_loop()
    released = asyncio.Event()

    def make() -> Connection:
        connection = unused()
        weakref.finalize(connection, released.set)
        task = asyncio.current_task()
        assert task is not None
        loop.call_soon(task.cancel)
        return connection

    with socket.create_server(("127.0.0.1", 0)) as silent:
        key = Key(True, "127.0.0.1", silent.getsockname()[1])
        dialling = loop.create_task(Dialler(loop, None, 0.1).dial(key, make))
        await asyncio.wait([dialling])
        assert dialling.cancelled()
        del dialling  # its exception refers to the connection
        async with asyncio.timeout(30):
            while not released.is_set():  # what an event loop drops may refer to itself
                await asyncio.sleep(0.1)
                gc.collect()


async def test_cancelling_at_any_moment_disturbs_no_other_request(
    client: HttpClient, trusted: Authority
) -> None:
    async with raw_server(say_ok, tls=trusted.server_context("127.0.0.1")) as server:
        await fetch(client, server.url)  # the certificates are read now
        for turns in range(25):
            await client.close()
            client = HttpClient(limits=Limits(connect=60))
            given_up = [asyncio.create_task(fetch(client, server.url)) for _ in range(3)]
            for _ in range(turns):
                await asyncio.sleep(0)
            for asking in given_up:
                asking.cancel()
            others = [asyncio.create_task(fetch(client, server.url)) for _ in range(3)]
            assert [(await asking).body for asking in others] == [b"{}"] * 3
            await asyncio.wait(given_up)
        await client.close()


WHEN: dict[str, Callable[[raw.Connection], object]] = {
    "the head": lambda _: asyncio.sleep(0),
    "the body": lambda connection: connection.write(raw.head("a/b")),
    "more of the body": lambda connection: connection.write(raw.head("a/b") + raw.chunk(b"1")),
}


@pytest.mark.parametrize("when", WHEN.values(), ids=WHEN)
@pytest.mark.parametrize("is_secure", [False, True], ids=["plain", "tls"])
async def test_cancelling_closes_the_socket_at_once(
    when: Callable[[raw.Connection], object],
    is_secure: bool,
    client: HttpClient,
    trusted: Authority,
) -> None:
    async def stall(_: Request, connection: raw.Connection) -> None:
        await when(connection)  # type: ignore[misc] # a coroutine
        begun.set()
        await connection.until_closed()
        server.closed.set()

    begun = asyncio.Event()
    tls: ssl.SSLContext | None = trusted.server_context("127.0.0.1") if is_secure else None
    async with raw_server(stall, tls=tls) as server:
        asking = asyncio.create_task(fetch(client, server.url))
        await begun.wait()
        for _ in range(5):
            await asyncio.sleep(0)
        await cancelled(asking)
        await asyncio.wait_for(server.closed.wait(), 60)
