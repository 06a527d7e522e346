"""URLs and headers: what goes into the head of a request, and what is refused before that."""

from __future__ import annotations

import traceback
from collections.abc import AsyncIterator

import pytest

from antiphon.protocol.errors import BackendError
from antiphon.transport.http import HttpClient, Secret
from antiphon.transport.proxy import BadUrl
from antiphon.transport.target import Target, target_finder
from tests.transport.raw import Connection, Request, raw_server, reply


@pytest.fixture
async def client() -> AsyncIterator[HttpClient]:
    client = HttpClient()
    yield client
    await client.close()


async def say_ok(_: Request, connection: Connection) -> None:
    await connection.write(reply(b"{}"))


def lines(target: Target, headers: dict[str, str] | None = None) -> list[str]:
    return target.head("POST", headers, 77).decode().removesuffix("\r\n\r\n").split("\r\n")


PATHS = {
    "": "/",
    "?a=b": "/?a=b",
    "/v1/chat/completions": "/v1/chat/completions",
    "/a b/%2fü?q=ö&r=a+b c%20#fragment": "/a%20b/%2F%C3%BC?q=%C3%B6&r=a+b+c%20",
    "/a/../b/./c//d": "/b/c//d",
    '/{model}|^"<>%zz': "/%7Bmodel%7D%7C%5E%22%3C%3E%25zz",
    "/x\r\ny: z\ty": "/xy:%20zy",
}


@pytest.mark.parametrize(("path", "sent"), PATHS.items())
async def test_a_path_is_quoted(path: str, sent: str, client: HttpClient) -> None:
    async with raw_server(say_ok) as server:
        await client.fetch("POST", server.url + path, body=b"{}")
    assert server.requests[0].path == sent


HEADERS: dict[str, tuple[dict[str, str], dict[str, str]]] = {
    "added": ({"Accept": "text/event-stream", "X-Id": "7"}, {"accept": "text/event-stream"}),
    "own type and host": (
        {"CONTENT-TYPE": "text/plain", "host": "elsewhere:1"},
        {"content-type": "text/plain", "host": "elsewhere:1"},
    ),
    "own key": ({"authorization": "Basic mine"}, {"authorization": "Basic mine"}),
    "last spelling": ({"x-a": "1", "X-A": "2"}, {"x-a": "2"}),
    "own length": ({"Content-Length": "7"}, {"content-length": "2"}),
    "the client's": ({}, {"x-team": "blue", "authorization": "Bearer sk-1", "accept": "*/*"}),
    "the type of a body": ({}, {"content-type": "application/json"}),
}


@pytest.mark.parametrize(("headers", "sent"), HEADERS.values(), ids=HEADERS)
async def test_the_headers_of_a_request_win(headers: dict[str, str], sent: dict[str, str]) -> None:
    client = HttpClient(key=Secret("sk-1"), headers={"X-Team": "blue", "Content-Type": "a/b"})
    async with raw_server(say_ok) as server:
        await client.fetch("POST", server.url, body=b"{}", headers=headers)
    await client.close()
    assert sent.items() <= server.requests[0].headers.items()


@pytest.mark.parametrize(
    ("method", "length"), [("GET", None), ("DELETE", "0"), ("POST", "0"), ("OPTIONS", None)]
)
async def test_a_request_without_a_body_says_so_where_one_is_usual(
    method: str, length: str | None, client: HttpClient
) -> None:
    async with raw_server(say_ok) as server:
        await client.fetch(method, server.url)
    sent = server.requests[0]
    assert (sent.method, sent.headers.get("content-length")) == (method, length)
    assert "content-type" not in sent.headers


def test_every_header_is_sent_once() -> None:
    target = Target("http://a/b", {"accept": "a/b", "x": "1"})
    first, *others = lines(target, {"X": "2", "y": "3", "content-length": "1"})
    names = [line.partition(":")[0].lower() for line in others]
    assert first == "POST /b HTTP/1.1"
    assert names[0] == "host"
    assert len(names) == len(set(names))
    assert {"X: 2", "y: 3", "accept: a/b", "Content-Length: 77"} <= set(others)


HOSTS = {
    "http://LOCALHOST:81/": "localhost:81",
    "http://a:80/": "a",
    "https://a:443/": "a",
    "https://a:80/": "a:80",
    "http://a./": "a",
    "http://[::1]:81/x": "[::1]:81",
    "http://[::1]/x": "[::1]",
    "http://bücher.example/": "xn--bcher-kva.example",
    "http://me:secret@a:81/": "a:81",
}


@pytest.mark.parametrize(("url", "host"), HOSTS.items())
def test_the_host_is_sent_with_its_port(url: str, host: str) -> None:
    assert lines(Target(url, {}))[1] == f"Host: {host}"


def test_requests_to_one_place_share_a_key() -> None:
    keys = [Target(url, {}).key for url in ("http://a/1", "http://A:80/2?x", "http://me@a/3")]
    others = [Target(url, {}).key for url in ("https://a/", "http://a:81/", "http://b/")]
    assert len(set(keys)) == 1
    assert len({*keys, *others}) == 4


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:1?key=sesame",
        "http://127.0.0.1:1#sesame",
        "http://127.0.0.1:x?key=sesame",
        "http://me:sesame\u20ac@127.0.0.1:1/",
        "http://me:sesame@127.0.0.1:99999/",
        "http://me:sesame@127.0.0.1 1/",
    ],
)
async def test_a_failed_request_names_the_host_and_no_key(url: str, client: HttpClient) -> None:
    with pytest.raises(BackendError, match=r"127\.0\.0\.1.* cannot be reached") as caught:
        await client.fetch("POST", url, body=b"{}")
    assert caught.value.code == "upstream_unreachable"
    assert "sesame" not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize(
    "url",
    [
        "http://",
        "http://:80/",
        "http://a:99999/",
        "http://[::1/",
        "http://a:x/",
        "http:///a",
        "http://a b/",
    ],
)
async def test_a_url_without_a_host_or_port_is_unreachable(url: str, client: HttpClient) -> None:
    with pytest.raises(BadUrl):
        Target(url, {})
    with pytest.raises(BackendError, match="cannot be reached") as caught:
        await client.fetch("POST", url, body=b"{}")
    assert caught.value.code == "upstream_unreachable"


@pytest.mark.parametrize("is_function", [False, True])
async def test_a_key_and_a_name_in_the_url_cannot_be_combined(is_function: bool) -> None:
    async def ask() -> Secret:
        return Secret("sk-1")

    client = HttpClient(key=ask if is_function else Secret("sk-1"))
    with pytest.raises(ValueError, match="AUTHORIZATION") as caught:
        await client.fetch("POST", "http://me:secret@127.0.0.1:1/", body=b"{}")
    await client.close()
    assert "secret" not in str(caught.value)


async def test_a_name_in_the_url_signs_in_and_is_in_no_message(client: HttpClient) -> None:
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


@pytest.mark.parametrize(
    "headers",
    [
        {"X": "a\r\nY: b"},
        {"X": "a\rb"},
        {"X\n": "a"},
        {"X": "\0"},
        {"X": "a\x0bb"},
        {"X": "\x7f"},
        {"Transfer-Encoding": "chunked"},
    ],
)
async def test_a_header_cannot_bring_another_one(
    headers: dict[str, str], client: HttpClient
) -> None:
    async with raw_server(say_ok) as server:
        with pytest.raises(ValueError, match="header"):
            await client.fetch("POST", server.url, body=b"{}", headers=headers)
        other = HttpClient(headers=headers)
        with pytest.raises(ValueError, match="header"):
            await other.fetch("POST", server.url, body=b"{}")
        await other.close()
        with pytest.raises(ValueError, match="header"):
            await client.fetch("GET /\r\nX: y", server.url)
    assert server.connections == 0


def test_not_every_url_is_remembered() -> None:
    find = target_finder({})
    kept, first = find("http://a/kept"), find("http://a/0")
    assert find("http://a/0") is first
    for number in range(1, 200):
        find(f"http://a/{number}")
        assert find("http://a/kept") is kept
    assert find("http://a/0") is not first
