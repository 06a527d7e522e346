"""Who may ask: keys, owners, and the keyless caller on this machine."""

from __future__ import annotations

import pytest
from aiohttp.test_utils import make_mocked_request

from antiphon.backends.scripted import ScriptedBackend
from antiphon.protocol.errors import Unauthorized
from antiphon.server.auth import Auth, is_loopback_name, new_key
from antiphon.server.run import ServerSettings
from antiphon.store.memory import MemoryStore
from antiphon.testing.gateway import serve_gateway
from tests.asking import ask, request

KEYED = ServerSettings(require_keys=True)
LATER = 2**40


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


async def test_on_loopback_any_placeholder_key_will_do() -> None:
    async with serve_gateway(ScriptedBackend()) as gateway:
        for headers in ({}, bearer(""), bearer("sk-anything"), {"Authorization": "Basic x"}):
            assert (await ask(gateway, headers)).status == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": "127.0.0.1.evil.example"},
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
    ],
)
async def test_a_page_from_elsewhere_gets_nothing_without_a_key(headers: dict[str, str]) -> None:
    async with serve_gateway(ScriptedBackend()) as gateway:
        assert (await ask(gateway, headers)).status == 403


@pytest.mark.parametrize("origin", ["http://localhost:3000", "http://127.0.0.1", "http://[::1]:1"])
async def test_a_page_of_this_machine_may_ask(origin: str) -> None:
    async with serve_gateway(ScriptedBackend()) as gateway:
        assert (await ask(gateway, {"Origin": origin})).status == 200


async def test_with_keys_nothing_else_will_do() -> None:
    store = MemoryStore()
    good, record = new_key("ann", 1)
    expired, old = new_key("ann", 1, expires_at=2)
    revoked, gone = new_key("ann", 1)
    for key in (record, old, gone):
        await store.add_key(key)
    await store.revoke_key(gone.id, 2)
    async with serve_gateway(ScriptedBackend(), store=store, settings=KEYED) as gateway:
        assert (await ask(gateway, bearer(good))).status == 200
        for wrong in ("", "sk-x", "ak_", "ak__", good[:-1], good + "x", expired, revoked):
            answer = await ask(gateway, bearer(wrong))
            assert (answer.status, answer.error["code"]) == (401, "invalid_api_key")
        assert (await ask(gateway)).headers["WWW-Authenticate"] == "Bearer"


@pytest.mark.parametrize(
    "path", ["/responses/x", "/models", "/../metrics", "/responses/x/input_items"]
)
async def test_no_route_is_open_by_accident(path: str) -> None:
    async with serve_gateway(ScriptedBackend(), settings=KEYED) as gateway:
        assert (await request(gateway, "GET", path)).status == 401


@pytest.mark.parametrize("path", ["/../healthz", "/../readyz", "/../openapi.json"])
async def test_health_needs_no_key(path: str) -> None:
    async with serve_gateway(ScriptedBackend(), settings=KEYED) as gateway:
        assert (await request(gateway, "GET", path)).status == 200


async def test_missing_and_foreign_read_alike() -> None:
    store = MemoryStore()
    ann, ann_record = new_key("ann", 1, expires_at=LATER)
    bob, bob_record = new_key("bob", 1)
    await store.add_key(ann_record)
    await store.add_key(bob_record)
    async with serve_gateway(ScriptedBackend(), store=store, settings=KEYED) as gateway:
        response_id = (await ask(gateway, bearer(ann))).json["id"]
        path = f"/responses/{response_id}"
        foreign = await request(gateway, "GET", path, headers=bearer(bob))
        foreign_items = await request(gateway, "GET", f"{path}/input_items", headers=bearer(bob))
        foreign_delete = await request(gateway, "DELETE", path, headers=bearer(bob))
        chained = await ask(gateway, bearer(bob), previous_response_id=response_id)
        mine = await request(gateway, "GET", path, headers=bearer(ann))
        await request(gateway, "DELETE", path, headers=bearer(ann))
        missing = await request(gateway, "GET", path, headers=bearer(bob))

    assert mine.status == 200
    assert foreign.status == foreign_items.status == foreign_delete.status == 404
    assert foreign.body == missing.body
    assert chained.error["code"] == "previous_response_not_found"


@pytest.mark.parametrize(
    ("host", "is_loopback"),
    [
        ("localhost", True),
        ("localhost:4680", True),
        ("127.0.0.1:80", True),
        ("127.1.2.3", True),
        ("[::1]:80", True),
        ("app.localhost", True),
        ("127.0.0.1.evil.example", False),
        ("localhost.evil.example", False),
        ("192.168.0.1", False),
        ("", False),
    ],
)
def test_loopback_names_are_told_from_others(host: str, is_loopback: bool) -> None:
    assert is_loopback_name(host) is is_loopback


async def test_a_revoked_key_works_for_five_seconds_at_most() -> None:
    store, now = MemoryStore(), [100]
    key, record = new_key("ann", 1)
    await store.add_key(record)
    auth = Auth(store, lambda: now[0], require_keys=True)
    asked = make_mocked_request("GET", "/v1/models", headers=bearer(key))

    assert await auth.owner(asked) == "ann"
    await store.revoke_key(record.id, now[0])
    now[0] += 5
    with pytest.raises(Unauthorized):
        await auth.owner(asked)


async def test_clients_are_told_what_is_not_worth_trying_again() -> None:
    async with serve_gateway(ScriptedBackend()) as gateway:
        wrong = await ask(gateway, input=3)
        missing = await request(gateway, "GET", "/responses/resp_no")
        fine = await ask(gateway)

    assert wrong.headers["x-should-retry"] == missing.headers["x-should-retry"] == "false"
    assert "x-should-retry" not in fine.headers
