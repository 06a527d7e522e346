"""Which pages and proxies may use a gateway that needs no key."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import aiohttp
import pytest
from aiohttp import web

from antiphon.backends.scripted import ScriptedBackend
from antiphon.gateway.assemble import ServerSettings
from antiphon.server.api.body import read_data
from antiphon.server.app import Call, Route
from antiphon.server.auth import new_key
from antiphon.server.origin import is_loopback_name
from antiphon.store.memory import MemoryStore
from antiphon.testing.gateway import Gateway, serve_gateway
from tests.asking import Answer, ask, request

PAGE = "http://localhost:3000"
ALLOWING = ServerSettings(allowed_origins=(PAGE,))


@pytest.fixture
async def gateway() -> AsyncIterator[Gateway]:
    async with serve_gateway(ScriptedBackend()) as gateway:
        yield gateway


@pytest.fixture
async def allowing() -> AsyncIterator[Gateway]:
    """A gateway that one page may use."""
    async with serve_gateway(ScriptedBackend(), settings=ALLOWING) as gateway:
        yield gateway


def own(gateway: Gateway) -> str:
    """Return the gateway's own origin."""
    return gateway.base_url.removesuffix("/v1")


async def send_raw(gateway: Gateway, data: bytes) -> bytes:
    """Send these bytes on a connection of their own; return all that comes until it is closed."""
    reader, writer = await asyncio.open_connection(*gateway.address)
    async with asyncio.timeout(30):
        writer.write(data)
        answer = await reader.read()
        writer.close()
        await writer.wait_closed()
    return answer


# Pages.


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": "127.0.0.1.evil.example"},
        {"Host": "evil.com@127.0.0.1"},
        {"Host": "127.0.0.1/@evil.com"},
        {"Host": "127.0.0.1:80:80"},
        {"Host": ""},
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": ""},
    ],
)
async def test_a_page_from_elsewhere_gets_nothing_without_a_key(
    headers: dict[str, str], gateway: Gateway
) -> None:
    assert (await ask(gateway, headers)).status == 403


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://localhost:3000"},
        {"Origin": "http://127.0.0.1"},
        {"Origin": "http://[::1]:1"},
        {"Origin": "http://app.localhost:4680"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "same-site", "Origin": "http://localhost:3000"},
    ],
)
async def test_a_page_on_another_port_of_this_machine_is_refused(
    headers: dict[str, str], gateway: Gateway
) -> None:
    answer = await ask(gateway, headers)
    assert answer.status == 403
    assert "allowed_origins" in answer.error["message"]
    assert "Access-Control-Allow-Origin" not in answer.headers


async def test_the_gateways_own_page_and_the_address_bar_may_ask(gateway: Gateway) -> None:
    mine = {"Origin": own(gateway), "Sec-Fetch-Site": "same-origin"}
    assert (await ask(gateway, mine)).status == 200
    assert (
        await request(gateway, "GET", "/models", headers={"Sec-Fetch-Site": "none"})
    ).status == 200


@pytest.mark.parametrize(
    "headers", [{"Origin": "http://localhost:3000"}, {"Sec-Fetch-Site": "same-site"}]
)
async def test_a_page_on_another_port_opens_no_websocket(
    headers: dict[str, str], gateway: Gateway
) -> None:
    async with aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.WSServerHandshakeError) as caught:
            await session.ws_connect(f"{gateway.base_url}/responses", headers=headers)
    assert caught.value.status == 403


@pytest.mark.parametrize(
    "content_type",
    ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", ""],
)
async def test_without_a_key_a_body_that_is_not_declared_as_json_is_refused(
    content_type: str, gateway: Gateway
) -> None:
    host, port = gateway.address
    body = b'{"input":"hello"}'
    kind = f"Content-Type: {content_type}\r\n" if content_type else ""
    head = f"POST /v1/responses HTTP/1.1\r\nHost: {host}:{port}\r\n{kind}"
    head += f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    answer = await send_raw(gateway, head.encode() + body)
    assert answer.startswith(b"HTTP/1.1 415 ")
    assert b'"unsupported_media_type"' in answer


@pytest.mark.parametrize(
    "content_type", ["application/json", "Application/JSON; charset=utf-8", "application/x+json"]
)
async def test_json_in_any_spelling_is_taken(content_type: str, gateway: Gateway) -> None:
    assert (await ask(gateway, {"Content-Type": content_type})).status == 200


async def test_with_a_key_a_body_of_any_type_and_a_page_through_a_proxy_may_ask() -> None:
    store = MemoryStore()
    key, record = new_key("ann", 1)
    await store.add_key(record)
    headers = {
        "Authorization": f"Bearer {key}",
        "Content-Type": "text/plain",
        "Sec-Fetch-Site": "same-site",
        "Host": "gateway.example",
        "X-Forwarded-For": "192.0.2.1",
    }
    settings = ServerSettings(require_keys=True)
    async with serve_gateway(ScriptedBackend(), store=store, settings=settings) as gateway:
        assert (await ask(gateway, headers)).status == 200


async def test_a_route_for_forms_is_open_to_programs_and_to_the_own_page(gateway: Gateway) -> None:
    async def upload(call: Call) -> web.StreamResponse:
        return call.json(b'{"size":%d}' % len(await read_data(call)))

    route = Route("POST", "/v1/forms", upload, takes_form=True)
    gateway.app._routes[route.path] = {"POST": route}
    form = {"Content-Type": "multipart/form-data; boundary=x"}
    page = {**form, "Origin": own(gateway), "Sec-Fetch-Site": "same-origin"}
    doubtful = [
        {**form, "Origin": own(gateway)},
        {**form, "Sec-Fetch-Site": "same-origin"},
        {**form, "Origin": own(gateway), "Sec-Fetch-Site": "none"},
    ]
    foreign = [
        {**page, "Sec-Fetch-Site": "same-site"},
        {**page, "Origin": "null"},
        {**page, "Origin": "http://127.0.0.1:1"},
    ]

    for headers in (form, page):
        assert (await request(gateway, "POST", "/forms", b"--x--", headers)).status == 200
    for headers in doubtful:
        assert (await request(gateway, "POST", "/forms", b"--x--", headers)).status == 415
    for headers in foreign:
        assert (await request(gateway, "POST", "/forms", b"--x--", headers)).status == 403


# Allowed pages, and CORS.


async def test_an_allowed_page_asks_first_and_may_read_the_answer(allowing: Gateway) -> None:
    asked = {
        "Origin": PAGE,
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization,content-type",
        "Access-Control-Request-Private-Network": "true",
    }
    preflight = await request(allowing, "OPTIONS", "/responses", headers=asked)
    answer = await ask(allowing, {"Origin": PAGE, "Sec-Fetch-Site": "cross-site"})

    assert preflight.status == 204
    assert preflight.headers["Access-Control-Allow-Origin"] == PAGE
    assert "POST" in preflight.headers["Access-Control-Allow-Methods"]
    assert preflight.headers["Access-Control-Allow-Headers"] == "authorization,content-type"
    assert preflight.headers["Access-Control-Allow-Private-Network"] == "true"
    assert answer.status == 200
    assert answer.headers["Access-Control-Allow-Origin"] == PAGE
    assert answer.headers["Vary"] == "Origin"


async def test_an_allowed_page_may_read_streams_and_errors(allowing: Gateway) -> None:
    headers = {"Origin": PAGE, "Sec-Fetch-Site": "cross-site"}
    stream = await ask(allowing, headers, stream=True)
    error = await ask(allowing, headers, input=3)

    assert (stream.status, error.status) == (200, 400)
    assert {a.headers["Access-Control-Allow-Origin"] for a in (stream, error)} == {PAGE}


async def test_an_allowed_page_may_open_a_websocket(allowing: Gateway) -> None:
    async with (
        aiohttp.ClientSession() as session,
        session.ws_connect(f"{allowing.base_url}/responses", headers={"Origin": PAGE}) as socket,
    ):
        await socket.send_json({"type": "response.create", "input": "hello"})
        assert (await socket.receive_json())["type"] == "response.created"


@pytest.mark.parametrize("origin", ["http://localhost:3001", "https://localhost:3000", "null"])
async def test_a_page_that_is_not_allowed_is_refused_and_reads_nothing(
    origin: str, allowing: Gateway
) -> None:
    asked = {"Origin": origin, "Access-Control-Request-Method": "POST"}
    answers: list[Answer] = [
        await request(allowing, "OPTIONS", "/responses", headers=asked),
        await ask(allowing, {"Origin": origin}),
    ]
    for answer in answers:
        assert answer.status == 403
        assert "Access-Control-Allow-Origin" not in answer.headers


async def test_any_page_with_a_key_may_ask_where_all_are_allowed() -> None:
    store = MemoryStore()
    key, record = new_key("ann", 1)
    await store.add_key(record)
    settings = ServerSettings(require_keys=True, allowed_origins=("*",))
    page = {"Origin": "https://app.example", "Sec-Fetch-Site": "cross-site"}
    async with serve_gateway(ScriptedBackend(), store=store, settings=settings) as gateway:
        without = await ask(gateway, page)
        answer = await ask(gateway, page | {"Authorization": f"Bearer {key}"})

    assert (without.status, answer.status) == (401, 200)
    assert answer.headers["Access-Control-Allow-Origin"] == "https://app.example"


# Proxies.


@pytest.mark.parametrize(
    "name",
    ["X-Forwarded-For", "x-forwarded-proto", "X-Forwarded-Host", "Forwarded", "Via", "X-Real-IP"],
)
async def test_without_keys_a_request_through_a_proxy_is_refused(
    name: str, gateway: Gateway
) -> None:
    answer = await ask(gateway, {name: "x"})
    assert (answer.status, answer.error["code"]) == (403, "keys_required")
    assert "require_keys" in answer.error["message"]
    for path in ("/../healthz", "/../readyz"):
        assert (await request(gateway, "GET", path, headers={name: "x"})).status == 200


async def test_without_keys_http_1_0_is_refused_except_for_probes(gateway: Gateway) -> None:
    def old(path: str) -> bytes:
        return f"GET {path} HTTP/1.0\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n".encode()

    for path in ("/v1/models", "/openapi.json"):
        answer = await send_raw(gateway, old(path))
        assert b" 403 " in answer.split(b"\r\n", 1)[0]
        assert b"require_keys" in answer
    for path in ("/healthz", "/readyz"):
        assert b" 200 " in (await send_raw(gateway, old(path))).split(b"\r\n", 1)[0]


async def test_with_keys_http_1_0_and_proxies_are_answered() -> None:
    settings = ServerSettings(require_keys=True)
    async with serve_gateway(ScriptedBackend(), settings=settings) as gateway:
        head = b"GET /v1/models HTTP/1.0\r\nHost: 127.0.0.1\r\nX-Forwarded-For: 192.0.2.1\r\n\r\n"
        assert b" 401 " in (await send_raw(gateway, head)).split(b"\r\n", 1)[0]


@pytest.mark.parametrize(
    "line", ["GET /v1/models", "GET /v1/models HTTP/0.9", "GET /v1/models HTTP/2.0"]
)
async def test_http_that_is_not_1_0_or_1_1_is_refused(line: str) -> None:
    for settings in (ServerSettings(), ServerSettings(require_keys=True)):
        async with serve_gateway(ScriptedBackend(), settings=settings) as gateway:
            answer = await send_raw(gateway, f"{line}\r\nHost: 127.0.0.1\r\n\r\n".encode())
            assert b" 400 " in answer.split(b"\r\n", 1)[0]
            assert b'"invalid_http"' in answer


# Names.


@pytest.mark.parametrize(
    ("host", "is_loopback"),
    [
        ("localhost", True),
        ("LocalHost:4680", True),
        ("127.0.0.1:80", True),
        ("127.1.2.3", True),
        ("[::1]:80", True),
        ("app.localhost", True),
        ("127.0.0.1.evil.example", False),
        ("localhost.evil.example", False),
        ("evil.com@127.0.0.1", False),
        ("127.0.0.1?evil.com", False),
        ("127.0.0.1:x", False),
        ("[::1", False),
        ("192.168.0.1", False),
        ("", False),
    ],
)
def test_loopback_names_are_told_from_others(host: str, is_loopback: bool) -> None:
    assert is_loopback_name(host) is is_loopback
