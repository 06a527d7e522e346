"""Who may ask: keys, owners, and the keyless caller on this machine."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from aiohttp.test_utils import make_mocked_request

from antiphon.backends.base import DeltaSink
from antiphon.backends.scripted import ScriptedBackend, Step
from antiphon.gateway.assemble import ServerSettings
from antiphon.protocol.errors import Unauthorized
from antiphon.server.auth import Auth, new_key
from antiphon.store.memory import MemoryStore
from antiphon.testing.gateway import serve_gateway
from antiphon.transport.aside import works_for
from tests.asking import ask, request

KEYED = ServerSettings(require_keys=True)
LATER = 2**40


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


async def test_on_loopback_any_placeholder_key_will_do() -> None:
    async with serve_gateway(ScriptedBackend()) as gateway:
        for headers in ({}, bearer(""), bearer("sk-anything"), {"Authorization": "Basic x"}):
            assert (await ask(gateway, headers)).status == 200


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


class Noting(ScriptedBackend):
    """Notes for whom the task works that asks for an answer."""

    def __init__(self) -> None:
        super().__init__()
        self.owners: list[str] = []

    async def play(self, steps: Iterable[Step], sink: DeltaSink) -> None:
        self.owners.append(works_for())
        await super().play(steps, sink)


@pytest.mark.parametrize("background", [False, True])
async def test_large_work_of_a_turn_takes_the_turn_of_its_owner(background: bool) -> None:
    store, backend = MemoryStore(), Noting()
    ann, first = new_key("ann", 1)
    bob, second = new_key("bob", 1)
    await store.add_key(first)
    await store.add_key(second)
    async with serve_gateway(backend, store=store, settings=KEYED) as gateway:
        for key in (ann, bob, ann):
            response = (await ask(gateway, bearer(key), background=background)).json
            while response["status"] != "completed":
                path = f"/responses/{response['id']}"
                response = (await request(gateway, "GET", path, headers=bearer(key))).json

    assert backend.owners == ["ann", "bob", "ann"]


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


async def test_a_revoked_key_is_refused_within_a_second() -> None:
    store, clock = MemoryStore(), [100.0]
    key, record = new_key("ann", 1)
    await store.add_key(record)
    auth = Auth(store, lambda: 1_000, require_keys=True, clock=lambda: clock[0])
    asked = make_mocked_request("GET", "/v1/models", headers=bearer(key))

    assert (await auth.principal(asked)).owner == "ann"
    await store.revoke_key(record.id, 1_000)
    clock[0] += 0.9
    with pytest.raises(Unauthorized):
        await auth.principal(asked)


async def test_a_wall_clock_that_is_set_back_keeps_no_revoked_key_alive() -> None:
    store, clock, now = MemoryStore(), [100.0], [1_000_000]
    key, record = new_key("ann", 1)
    await store.add_key(record)
    auth = Auth(store, lambda: now[0], require_keys=True, clock=lambda: clock[0])
    asked = make_mocked_request("GET", "/v1/models", headers=bearer(key))

    assert (await auth.principal(asked)).owner == "ann"
    await store.revoke_key(record.id, now[0])
    now[0] -= 3600
    clock[0] += 0.9
    with pytest.raises(Unauthorized):
        await auth.principal(asked)


async def test_a_key_with_another_prefix_is_refused() -> None:
    store = MemoryStore()
    key, record = new_key("ann", 1)
    await store.add_key(record)
    rest = key.removeprefix("ak")
    async with serve_gateway(ScriptedBackend(), store=store, settings=KEYED) as gateway:
        assert (await ask(gateway, bearer(f"ak{rest}"))).status == 200
        for prefix in ("", "sk", "AK", "ak-ak", "a" * 100):
            answer = await ask(gateway, bearer(f"{prefix}{rest}"))
            assert (answer.status, answer.error["code"]) == (401, "invalid_api_key")


async def test_clients_are_told_what_is_not_worth_trying_again() -> None:
    async with serve_gateway(ScriptedBackend()) as gateway:
        wrong = await ask(gateway, input=3)
        missing = await request(gateway, "GET", "/responses/resp_no")
        fine = await ask(gateway)

    assert wrong.headers["x-should-retry"] == missing.headers["x-should-retry"] == "false"
    assert "x-should-retry" not in fine.headers
