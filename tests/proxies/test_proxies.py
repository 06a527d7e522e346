"""A gateway behind real proxies: with the page's configuration, and in the trap of a bare one."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import msgspec
import pytest

from antiphon.backends.scripted import ScriptedBackend
from antiphon.gateway.assemble import ServerSettings
from antiphon.protocol.deltas import Stopped, TextGrew
from antiphon.server.auth import new_key
from antiphon.store.memory import MemoryStore
from antiphon.testing.gateway import Gateway, serve_gateway
from tests.faults.house import until
from tests.proxies.install import PROXIES, Missing, install
from tests.proxies.running import PATIENCE, Proxy, bare, from_page

MIB = 1024 * 1024


@pytest.fixture(params=PROXIES)
def name(request: pytest.FixtureRequest) -> str:
    """A proxy that can be run here."""
    try:
        install(request.param)
    except Missing as error:
        pytest.skip(str(error))
    return str(request.param)


class Site(msgspec.Struct, frozen=True):
    """A gateway that asks for keys, a proxy before it, and a client with a key."""

    gateway: Gateway
    proxy: Proxy
    session: aiohttp.ClientSession
    hold: asyncio.Event
    """Set it to let the model go on after its first word."""

    @property
    def url(self) -> str:
        return f"{self.proxy.url}/v1/responses"


@pytest.fixture
async def site(name: str, tmp_path: Path) -> AsyncIterator[Site]:
    """The page's configuration."""
    async with _open_site(name, tmp_path) as site:
        yield site


@asynccontextmanager
async def _open_site(name: str, folder: Path) -> AsyncIterator[Site]:
    hold = asyncio.Event()
    backend = ScriptedBackend(
        lambda plan: [TextGrew("one "), hold, TextGrew("two"), Stopped("stop")]
    )
    store = MemoryStore()
    key, record = new_key("ann", 1)
    await store.add_key(record)
    async with serve_gateway(
        backend, store=store, settings=ServerSettings(require_keys=True)
    ) as gateway:
        address = gateway.base_url.removesuffix("/v1")
        async with (
            from_page(name, address, folder) as proxy,
            aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(ssl=proxy.tls or False),
                headers={"Authorization": f"Bearer {key}"},
                timeout=aiohttp.ClientTimeout(total=PATIENCE),
            ) as session,
        ):
            yield Site(gateway, proxy, session, hold)


async def test_a_stream_arrives_event_by_event(site: Site) -> None:
    """The model waits until the client has its first word: a proxy that collects never ends."""
    async with site.session.post(site.url, json={"input": "hello", "stream": True}) as answer:
        assert answer.status == 200
        while b"one " not in await answer.content.readline():
            pass
        site.hold.set()
        rest = await answer.read()
    assert b"response.completed" in rest
    assert rest.endswith(b"data: [DONE]\n\n")


async def test_a_turn_runs_over_a_websocket(site: Site) -> None:
    site.hold.set()
    async with site.session.ws_connect(site.url) as socket:
        await socket.send_json({"type": "response.create", "input": "hello"})
        events = [await socket.receive_json()]
        while events[-1]["type"] != "response.completed":
            events.append(await socket.receive_json())
    assert events[0]["type"] == "response.created"


@pytest.mark.parametrize("megabytes", [30, 40], ids=["under the limit", "over the limit"])
async def test_a_large_body_passes_up_to_the_gateways_limit(site: Site, megabytes: int) -> None:
    site.hold.set()
    image = f"data:image/png;base64,{'A' * (10 * MIB)}"
    parts = [{"type": "input_image", "image_url": image}] * (megabytes // 10)
    body = {"input": [{"role": "user", "content": parts}], "store": False}
    data = io.BytesIO(msgspec.json.encode(body))
    headers = {"Content-Type": "application/json"}
    try:
        async with site.session.post(site.url, data=data, headers=headers) as answer:
            status = answer.status
    except aiohttp.ClientConnectionError:
        status = 413  # the proxy closed while we were still sending
    assert status == (200 if megabytes == 30 else 413)


async def test_a_client_that_leaves_stops_the_model(site: Site) -> None:
    async with site.session.post(site.url, json={"input": "hello", "stream": True}) as answer:
        while b"one " not in await answer.content.readline():
            pass
        # Not `close`: that would first wait for the proxy to say goodbye over TLS.
        assert answer.connection is not None
        assert answer.connection.transport is not None
        answer.connection.transport.abort()
    await until(lambda: site.gateway.app.metrics.turns == 0)


async def test_without_a_key_the_proxys_clients_get_nothing(site: Site) -> None:
    headers = {"Authorization": "Bearer wrong"}
    async with site.session.post(site.url, json={"input": "hello"}, headers=headers) as answer:
        assert answer.status == 401


# The trap: a gateway without keys, and one line of configuration.


async def test_a_bare_proxy_before_a_gateway_without_keys_is_refused(
    name: str, tmp_path: Path
) -> None:
    async with serve_gateway(ScriptedBackend()) as gateway:
        address = gateway.base_url.removesuffix("/v1")
        async with bare(name, address, tmp_path) as proxy, aiohttp.ClientSession() as session:
            for method, path in (("GET", "models"), ("POST", "responses"), ("GET", "responses/x")):
                body = {"input": "hello"} if method == "POST" else None
                url = f"{proxy.url}/v1/{path}"
                async with session.request(method, url, json=body) as answer:
                    assert answer.status == 403
                    error = (await answer.json())["error"]
                    assert error["code"] == "keys_required"
                    assert "require_keys" in error["message"]
            for path in ("healthz", "readyz"):
                async with session.get(f"{proxy.url}/{path}") as answer:
                    assert answer.status == 200


async def test_a_bare_proxy_opens_no_websocket_without_keys(name: str, tmp_path: Path) -> None:
    async with serve_gateway(ScriptedBackend()) as gateway:
        address = gateway.base_url.removesuffix("/v1")
        async with bare(name, address, tmp_path) as proxy, aiohttp.ClientSession() as session:
            with pytest.raises(aiohttp.WSServerHandshakeError) as caught:
                await session.ws_connect(f"{proxy.url}/v1/responses")
    assert caught.value.status == 403


async def test_a_bare_proxy_before_a_gateway_with_keys_works(name: str, tmp_path: Path) -> None:
    store = MemoryStore()
    key, record = new_key("ann", 1)
    await store.add_key(record)
    settings = ServerSettings(require_keys=True)
    headers = {"Authorization": f"Bearer {key}"}
    async with serve_gateway(ScriptedBackend(), store=store, settings=settings) as gateway:
        address = gateway.base_url.removesuffix("/v1")
        async with bare(name, address, tmp_path) as proxy, aiohttp.ClientSession() as session:
            url = f"{proxy.url}/v1/responses"
            async with session.post(url, json={"input": "hello"}, headers=headers) as answer:
                assert answer.status == 200
            async with session.post(url, json={"input": "hello"}) as answer:
                assert answer.status == 401
