"""Proxies of the environment: which one is used, tunnels through it, and what it must not do."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from antiphon.protocol.errors import BackendError
from antiphon.transport.egress import open_public_socket
from antiphon.transport.http import HttpClient, Limits, Secret
from antiphon.transport.proxy import Proxy, find_proxy
from tests.transport.certificates import Authority
from tests.transport.raw import Connection, Request, raw_server, reply

VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "REQUEST_METHOD")
OPEN = b"HTTP/1.1 200 Connection established\r\n\r\n"


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
async def client(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[HttpClient]:
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.path))
    client = HttpClient(limits=Limits(connect=60), key=Secret("sk-1"), proxies=True)
    yield client
    await client.close()


class ProxyServer:
    """Answers CONNECT with these bytes, and connects the two sides if they open a tunnel."""

    def __init__(self, answer: bytes = OPEN) -> None:
        self.answer = answer
        self.heads: list[str] = []
        self.closed = asyncio.Event()
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        self.heads.append(head)
        writer.write(self.answer)
        with suppress(ConnectionError):
            if self.answer == OPEN:
                host, _, port = head.split(" ")[1].rpartition(":")
                far_reader, far_writer = await asyncio.open_connection(host, int(port))
                await asyncio.gather(_pump(reader, far_writer), _pump(far_reader, writer))
            elif self.answer:
                await reader.read()
        writer.close()
        self.closed.set()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.close()


@asynccontextmanager
async def proxy_server(answer: bytes = OPEN) -> AsyncIterator[ProxyServer]:
    proxy = ProxyServer(answer)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    proxy.port = server.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        server.close()


async def say_ok(_: Request, connection: Connection) -> None:
    await connection.write(reply(b"{}"))


# Which proxy.


def found(url: str) -> str | None:
    scheme, _, rest = url.partition("://")
    host, _, port = rest.partition(":")
    is_secure = scheme == "https"
    proxy = find_proxy(is_secure=is_secure, host=host, port=int(port or (443 if is_secure else 80)))
    return None if proxy is None else f"{proxy.host}:{proxy.port}"


@pytest.mark.parametrize("change", [str.upper, str.lower])
def test_each_scheme_has_a_variable(change: object, monkeypatch: pytest.MonkeyPatch) -> None:
    assert callable(change)
    monkeypatch.setenv(change("HTTP_PROXY"), "http://one:3128")
    monkeypatch.setenv(change("HTTPS_PROXY"), "two:3128")
    assert (found("http://a"), found("https://a")) == ("one:3128", "two:3128")
    monkeypatch.delenv(change("HTTPS_PROXY"))
    monkeypatch.setenv(change("ALL_PROXY"), "http://three")
    assert (found("http://a"), found("https://a")) == ("one:3128", "three:80")


def test_without_variables_there_is_no_proxy() -> None:
    assert found("http://a") is found("https://a") is None


@pytest.mark.parametrize(
    ("exceptions", "url", "is_excepted"),
    [
        ("a.example", "http://a.example", True),
        ("A.Example", "http://x.a.EXAMPLE", True),
        (".a.example", "http://x.a.example", True),
        (".a.example", "http://a.example", True),
        ("a.example", "http://ba.example", False),
        ("other, a.example", "http://a.example", True),
        ("a.example:81", "http://a.example:81", True),
        ("a.example:81", "http://a.example", False),
        ("*", "https://a.example", True),
        ("127.0.0.1", "http://127.0.0.1:8000", True),
        ("", "http://a.example", False),
        (",", "http://a.example", False),
    ],
)
def test_exceptions_are_names_with_all_below_them(
    exceptions: str, url: str, is_excepted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ALL_PROXY", "http://proxy:3128")
    monkeypatch.setenv("NO_PROXY", exceptions)
    assert (found(url) is None) is is_excepted


def test_the_sign_in_of_a_proxy_does_not_show_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://me:secret@proxy:3128")
    proxy = find_proxy(is_secure=True, host="a", port=443)
    assert isinstance(proxy, Proxy)
    assert proxy.sign_in == Secret(f"Basic {base64.b64encode(b'me:secret').decode()}")
    assert "secret" not in repr(proxy)


@pytest.mark.parametrize("url", ["https://proxy:3128", "socks5://proxy", "http://", "http://a:x"])
async def test_a_proxy_that_cannot_be_used_is_reported(
    url: str, client: HttpClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ALL_PROXY", url)
    with pytest.raises(BackendError, match="the proxy in the environment") as caught:
        await client.fetch("POST", "http://127.0.0.1:1", body=b"{}")
    assert caught.value.code == "upstream_unreachable"


# Through the proxy.


async def test_a_secure_request_goes_through_a_tunnel(
    client: HttpClient, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = authority.server_context("127.0.0.1")
    async with raw_server(say_ok, tls=context) as server, proxy_server() as proxy:
        monkeypatch.setenv("https_proxy", f"http://me:secret@127.0.0.1:{proxy.port}")
        for _ in range(3):
            assert (await client.fetch("POST", server.url, body=b"{}")).body == b"{}"
        await client.close()
        await asyncio.wait_for(proxy.closed.wait(), 60)
    (head,) = proxy.heads  # one tunnel for all requests
    place = server.url.removeprefix("https://")
    assert head.startswith(f"CONNECT {place} HTTP/1.1\r\nHost: {place}\r\n")
    assert "Proxy-Authorization: Basic bWU6c2VjcmV0\r\n" in head
    assert "sk-1" not in head
    assert "proxy-authorization" not in server.requests[0].headers


async def test_a_plain_request_names_its_whole_url(
    client: HttpClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with raw_server(say_ok) as proxy:
        monkeypatch.setenv("http_proxy", proxy.url.replace("//", "//me:secret@"))
        for _ in range(2):
            got = await client.fetch("POST", "http://upstream.example/v1?a=b", body=b"{}")
            assert got.body == b"{}"
    request = proxy.requests[0]
    assert request.path == "http://upstream.example/v1?a=b"
    assert request.headers["host"] == "upstream.example"
    assert request.headers["proxy-authorization"] == "Basic bWU6c2VjcmV0"
    assert proxy.connections == 1


REFUSED = {
    "407": (b"HTTP/1.1 407 Sign in\r\n\r\n", "the proxy answered 407; it needs a name"),
    "403": (b"HTTP/1.1 403 No\r\nContent-Length: 2\r\n\r\nno", "the proxy answered 403"),
    "too much": (OPEN + b"hello", "the proxy sent something through the tunnel"),
    "no http": (b"SSH-2.0\r\n\r\n", "not HTTP"),
    "no end": (b"HTTP/1.1 200 OK\r\nX: " + b"x" * 70_000, "no answer that can be read"),
    "hangs up": (b"", "no answer that can be read"),
}


@pytest.mark.parametrize(("answer", "why"), REFUSED.values(), ids=REFUSED)
async def test_a_proxy_that_opens_no_tunnel_is_reported(
    answer: bytes, why: str, client: HttpClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with proxy_server(answer) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", f"http://me:secret@127.0.0.1:{proxy.port}")
        with pytest.raises(BackendError, match=why) as caught:
            await client.fetch("POST", "https://upstream.example/v1", body=b"{}")
        await asyncio.wait_for(proxy.closed.wait(), 60)
    said = caught.value.message
    assert said.startswith("the upstream at https://upstream.example cannot be reached through the")
    assert "secret" not in said
    assert caught.value.code == "upstream_unreachable"


async def test_cancelling_while_the_tunnel_is_opened_closes_the_socket(
    client: HttpClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with proxy_server(b"HTTP/1.1 200") as proxy:  # and then nothing
        monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{proxy.port}")
        asking = asyncio.create_task(
            client.fetch("POST", "https://upstream.example/v1", body=b"{}")
        )
        async with asyncio.timeout(60):
            while not proxy.heads:  # noqa: ASYNC110 - the proxy has no event for it
                await asyncio.sleep(0.001)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        await asyncio.wait_for(proxy.closed.wait(), 60)


# No proxy.


async def test_a_client_uses_no_proxy_by_default(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:1")
    client = HttpClient()
    async with raw_server(say_ok) as server:
        assert (await client.fetch("POST", server.url, body=b"{}")).body == b"{}"
    await client.close()
    assert server.requests[0].path == "/"


def test_a_guarded_client_cannot_use_a_proxy() -> None:
    with pytest.raises(ValueError, match="must not use proxies"):
        HttpClient(open_socket=open_public_socket, proxies=True)
