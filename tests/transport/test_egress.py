"""The egress guard: however an address is written, it is where the socket goes that counts."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable

import pytest

from antiphon.protocol.errors import BackendError
from antiphon.transport.egress import is_public, open_public_socket
from antiphon.transport.http import HttpClient, Limits
from tests import clock
from tests.transport.raw import Connection, RawServer, Request, raw_server, reply

# Some spellings the library or the name service refuses already; never is it "no route" or the
# like, which would be luck.
_REASONS = (
    "the address is not a public one",
    "its name is not known",
    "the URL has no host",
    "the URL cannot be read",
)
LOOPBACK_HOSTS = [
    "127.0.0.1",
    "127.1",
    "127.0.1",
    "127.255.255.254",
    "2130706433",
    "0x7f000001",
    "0x7f.0.0.1",
    "0x7F.0x0.0x0.0x1",
    "017700000001",
    "0177.0.0.1",
    "0177.0.0.01",
    "127.0.0.1.",
    "0",
    "0.0.0.0",
    "localhost",
    "localhost.",
    "LOCALHOST",
    "somebody@127.0.0.1",
    "example.com:80@127.0.0.1",
    "%31%32%37.0.0.1",
    "①②⑦.0.0.1",
    "127。0。0。1",
    "[::1]",
    "[0:0:0:0:0:0:0:1]",
    "[::]",
    "[::ffff:127.0.0.1]",
    "[::ffff:7f00:1]",
    "[0:0:0:0:0:ffff:127.0.0.1]",
    "[::127.0.0.1]",
    "[64:ff9b::127.0.0.1]",
    "[64:ff9b::7f00:1]",
    "[64:ff9b:1::7f00:1]",
    "[2002:7f00:1::]",
    "[2001:0:4136:e378:8000:63bf:80ff:fffe]",
    "[fe80::1%25lo]",
]
OTHER_HOSTS = [
    "10.0.0.1",
    "100.64.0.1",
    "100.100.100.200",
    "169.254.169.254",
    "2852039166",
    "0xa9fea9fe",
    "[::ffff:169.254.169.254]",
    "[fd00:ec2::254]",
    "[fe80::1]",
    "[fec0::1]",
    "[ff02::1]",
    "168.63.129.16",
    "172.31.255.255",
    "192.0.0.192",
    "192.168.1.1",
    "198.18.0.1",
    "224.0.0.1",
    "240.0.0.1",
    "255.255.255.255",
]


@pytest.fixture
async def server() -> AsyncIterator[RawServer]:
    async def say_ok(_: Request, connection: Connection) -> None:
        await connection.write(reply(b"{}"))

    async with raw_server(say_ok) as running:
        yield running


@pytest.fixture
async def client() -> AsyncIterator[HttpClient]:
    guarded = HttpClient(limits=Limits(connect=2), open_socket=open_public_socket)
    yield guarded
    await guarded.close()


async def _refusal(client: HttpClient, url: str) -> BackendError:
    with pytest.raises(BackendError) as caught:
        await client.post(url, b"{}", {})
    return caught.value


def resolving(*addresses: str) -> Callable[..., list[tuple[object, ...]]]:
    """Return a name service that knows one answer."""

    def look_up(host: str, port: int, *_: object, **__: object) -> list[tuple[object, ...]]:
        found: list[tuple[object, ...]] = []
        for address in addresses:
            family = socket.AF_INET6 if ":" in address else socket.AF_INET
            place = (address, port, 0, 0) if ":" in address else (address, port)
            found.append((family, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", place))
        return found

    return look_up


@pytest.mark.parametrize("host", LOOPBACK_HOSTS)
async def test_no_spelling_of_loopback_gets_through(
    host: str, server: RawServer, client: HttpClient
) -> None:
    port = server.url.rpartition(":")[2]
    error = await _refusal(client, f"http://{host}:{port}/hook")
    assert error.code == "upstream_unreachable"
    assert error.message.endswith(_REASONS)
    assert server.connections == 0


@pytest.mark.parametrize("host", OTHER_HOSTS)
async def test_inner_networks_are_refused_before_a_packet_leaves(
    host: str, client: HttpClient
) -> None:
    error = await _refusal(client, f"http://{host}:9/latest/meta-data")
    assert error.message.endswith(_REASONS)


async def test_without_the_guard_the_same_server_is_reached(server: RawServer) -> None:
    client = HttpClient()
    head = await client.post(f"{server.url}/hook", b"{}", {"x-a": "b"})
    await client.close()
    assert head.status == 200
    assert (server.requests[0].method, server.requests[0].headers["x-a"]) == ("POST", "b")


@pytest.mark.parametrize(
    "addresses",
    [["127.0.0.1"], ["::1"], ["::ffff:127.0.0.1"], ["10.1.2.3", "127.0.0.1"], ["localhost"]],
)
async def test_a_name_that_leads_to_an_inner_address_is_refused(
    addresses: list[str],
    server: RawServer,
    client: HttpClient,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", resolving(*addresses))
    port = server.url.rpartition(":")[2]
    error = await _refusal(client, f"http://hooks.example.com:{port}/")
    assert error.message.endswith("the address is not a public one")
    assert server.connections == 0


async def test_a_redirect_to_an_inner_address_is_told_and_not_followed(server: RawServer) -> None:
    async def send_away(_: Request, connection: Connection) -> None:
        await connection.write(
            reply(b"", f"Location: {server.url}/secret", status="307 Temporary Redirect")
        )

    client = HttpClient()
    async with raw_server(send_away) as outside:
        head = await client.post(outside.url, b"{}", {})
    await client.close()
    assert (head.status, server.connections) == (307, 0)


async def test_other_schemes_than_http_are_refused(client: HttpClient) -> None:
    for url in (
        "file:///etc/passwd",
        "gopher://127.0.0.1/",
        "ftp://127.0.0.1/",
        "http://",
        "//x",
        "ws://1.1.1.1",
    ):
        assert (await _refusal(client, url)).code == "upstream_unreachable"


@pytest.mark.parametrize(
    "address",
    [
        "1.1.1.1",
        "8.8.8.8",
        "100.63.255.255",
        "100.128.0.0",
        "172.32.0.1",
        "2606:4700::1111",
        "2001:4860:4860::8888",
        "::ffff:8.8.8.8",
        "64:ff9b::808:808",
    ],
)
def test_public_addresses_are_open(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize("text", ["", "localhost", "2130706433", "127.1", "1.1.1.1/32", "::1%x"])
def test_what_is_no_address_is_not_public(text: str) -> None:
    assert not is_public(text)


def test_a_public_address_gets_a_socket_of_its_family() -> None:
    with open_public_socket((socket.AF_INET, socket.SOCK_STREAM, 0, "", ("1.1.1.1", 443))) as sock:
        assert sock.family == socket.AF_INET


def test_other_families_than_the_internets_get_no_socket() -> None:
    with pytest.raises(PermissionError):
        open_public_socket((socket.AF_UNSPEC, socket.SOCK_STREAM, 0, "", ("1.1.1.1",)))


async def test_a_peer_that_does_not_answer_is_not_waited_for() -> None:
    gone = asyncio.Event()

    async def say_nothing(_: Request, connection: Connection) -> None:
        clock.skip(100)
        await connection.until_closed()
        gone.set()

    client = HttpClient(limits=Limits(first_byte=100))
    async with raw_server(say_nothing) as silent:
        error = await _refusal(client, silent.url)
        await gone.wait()
    await client.close()
    assert error.code == "upstream_timeout"


async def test_the_body_of_an_answer_is_not_read() -> None:
    gone = asyncio.Event()

    async def flood(_: Request, connection: Connection) -> None:
        head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 99999999\r\n\r\n"
        await connection.write(head)
        await connection.until_closed()
        gone.set()

    client = HttpClient()
    async with raw_server(flood) as server:
        assert (await client.post(server.url, b"{}", {})).status == 200
        await gone.wait()
    await client.close()
