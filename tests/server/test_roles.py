"""Which key may call what: roles by route, models by key, archived projects, last use."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest

from antiphon.accounts.principal import LOCAL, Principal
from antiphon.backends.base import ModelInfo
from antiphon.backends.scripted import ScriptedBackend
from antiphon.gateway.assemble import ServerSettings, routes_of
from antiphon.protocol.errors import StoreUnavailable
from antiphon.routing.settings import RouteSettings
from antiphon.server.doors import DoorSettings
from antiphon.server.key_uses import KeyUses
from antiphon.server.roles import NotAllowed, check_route, require_admin
from antiphon.store.base import KeyChange, ProjectChange
from antiphon.store.base.keys import ROLES, Role
from antiphon.store.memory import MemoryStore
from antiphon.testing.gateway import Gateway, serve_gateway
from tests.asking import ask, request
from tests.server.keyed import make_key
from tests.talking import talk

KEYED = ServerSettings(require_keys=True)
HELLO = [{"role": "user", "content": "hello"}]


class Three(ScriptedBackend):
    """Lists three models."""

    async def models(self) -> Sequence[ModelInfo]:
        return [ModelInfo("small"), ModelInfo("big"), ModelInfo("huge")]


@pytest.fixture
async def gateway() -> AsyncIterator[Gateway]:
    routes = {"fast": RouteSettings(to="big")}
    store = MemoryStore()
    async with serve_gateway(
        Three(), store=store, settings=KEYED, default_model="big", routes=routes
    ) as served:
        yield served
    await store.close()


@pytest.mark.parametrize("role", ROLES)
async def test_each_role_reaches_its_own_routes_only(gateway: Gateway, role: Role) -> None:
    headers = await make_key(gateway.store, role=role)
    models = await request(gateway, "GET", "/models", headers=headers)
    asked = await ask(gateway, headers)
    metrics = await request(gateway, "GET", "/../metrics", headers=headers)
    is_data = role in ("user", "viewer")
    assert (models.status, asked.status) == ((200, 200) if is_data else (403, 403))
    assert metrics.status == (200 if role in ("admin", "metrics") else 403)
    for refused in (models, asked, metrics):
        if refused.status == 403:
            assert refused.error["code"] == "insufficient_permissions"
            assert role in refused.error["message"]


_FIGURES = tuple(
    f"/v1/organization/{name}"
    for name in ("usage/", "costs", "antiphon/charges", "antiphon/requests")
)


def test_every_route_is_for_some_role_and_the_table_decides() -> None:
    doors = DoorSettings()
    paths = {(route.method, route.path) for route in routes_of(doors) if not route.is_open}
    paths |= {("GET", "/v1/organization/projects"), ("POST", "/v1/organization")}
    for method, path in paths:
        allowed = set()
        for role in ROLES:
            try:
                check_route(Principal("ann", "k", role=role), method, path)
            except NotAllowed:
                continue
            allowed.add(role)
        if path == "/metrics":
            assert allowed == {"admin", "metrics"}
        elif path.startswith(_FIGURES):
            assert allowed == {"admin", "viewer"}
        elif path.startswith("/v1/organization"):
            assert allowed == {"admin"}
        elif path == "/v1/antiphon/me":
            assert allowed == set(ROLES)
        elif path == "/v1/antiphon/tools":
            assert allowed == {"user", "viewer", "admin"}
        else:
            assert allowed == {"user", "viewer"}
        check_route(LOCAL, method, path)


def test_a_path_that_only_begins_like_another_is_not_below_it() -> None:
    check_route(Principal("ann", "k"), "GET", "/v1/organizations")
    with pytest.raises(NotAllowed):
        check_route(Principal("ann", "k"), "GET", "/v1/organization/x")


@pytest.mark.parametrize("role", ROLES)
def test_only_an_admin_manages_the_organization(role: Role) -> None:
    require_admin(LOCAL)
    if role == "admin":
        require_admin(Principal("ann", "k", role=role))
    else:
        with pytest.raises(NotAllowed):
            require_admin(Principal("local", "k", role=role))


async def test_a_role_that_was_changed_counts_on_an_open_websocket(gateway: Gateway) -> None:
    headers = await make_key(gateway.store)
    async with talk(gateway.base_url, headers) as socket:
        assert (await socket.turn(input="hi", model="big"))["type"] == "response.completed"
        (key,) = await gateway.store.list_keys()
        await gateway.store.update_key(key.id, KeyChange(role="metrics"))
        async with asyncio.timeout(30):
            last = await socket.turn(input="hi", model="big")
            while last["type"] != "error":
                last = await socket.turn(input="hi", model="big")
    assert (last["status"], last["error"]["code"]) == (403, "insufficient_permissions")


async def test_a_model_that_a_key_does_not_allow_reads_as_missing_on_every_door(
    gateway: Gateway,
) -> None:
    headers = await make_key(gateway.store, models=("small",))
    doors: dict[str, dict[str, object]] = {
        "/responses": {"input": "hi"},
        "/responses/compact": {"input": "hi"},
        "/responses/input_tokens": {"input": "hi"},
        "/chat/completions": {"messages": HELLO},
        "/messages": {"messages": HELLO, "max_tokens": 10},
        "/messages/count_tokens": {"messages": HELLO},
        "/embeddings": {"input": "hi"},
        "/completions": {"prompt": "hi"},
    }
    for path, body in doors.items():
        # A route to another model, a name with its provider, and one that does not exist.
        for model in ("big", "fast", "test/small", "nothing"):
            answer = await request(gateway, "POST", path, body | {"model": model}, headers)
            assert answer.status == 404, (path, model, answer.body)
            assert "does not exist or you do not have access" in answer.error["message"]
            if "messages" not in path:
                assert answer.error["code"] == "model_not_found"
    assert (await ask(gateway, headers, model="small")).status == 200
    # Without a model, the default is meant.
    assert (await ask(gateway, headers)).status == 404


async def test_an_alias_that_is_allowed_may_be_asked_for(gateway: Gateway) -> None:
    headers = await make_key(gateway.store, models=("fast",))
    assert (await ask(gateway, headers, model="fast")).status == 200
    assert (await ask(gateway, headers, model="big")).status == 404


async def test_a_websocket_refuses_a_model_too(gateway: Gateway) -> None:
    headers = await make_key(gateway.store, models=("small",))
    async with talk(gateway.base_url, headers) as socket:
        refused = await socket.turn(input="hi", model="big")
        good = await socket.turn(input="hi", model="small")
    assert (refused["status"], refused["error"]["code"]) == (404, "model_not_found")
    assert good["type"] == "response.completed"


async def test_the_list_has_only_models_that_may_be_asked_for(gateway: Gateway) -> None:
    headers = await make_key(gateway.store, models=("small", "fast"))
    listed = (await request(gateway, "GET", "/models", headers=headers)).json
    assert [model["id"] for model in listed["data"]] == ["fast", "small"]
    assert [model["slug"] for model in listed["models"]] == ["fast", "small"]
    shown = await request(
        gateway, "GET", "/models", headers=headers | {"anthropic-version": "2023-06-01"}
    )
    assert [model["id"] for model in shown.json["data"]] == ["fast", "small"]
    assert (await request(gateway, "GET", "/models/small", headers=headers)).status == 200
    hidden = await request(gateway, "GET", "/models/big", headers=headers)
    assert (hidden.status, hidden.error["code"]) == (404, "model_not_found")


async def test_keys_of_an_archived_project_are_refused(gateway: Gateway) -> None:
    headers = await make_key(gateway.store)
    await gateway.store.projects.archive("ann", 9)
    refused = await ask(gateway, headers)
    assert (refused.status, refused.error["code"]) == (401, "invalid_api_key")


async def test_the_last_use_is_written_after_the_request(gateway: Gateway) -> None:
    headers = await make_key(gateway.store)
    await ask(gateway, headers, model="small")
    await gateway.app.close()
    (key,) = await gateway.store.list_keys()
    assert key.last_used_at is not None


class Counting(MemoryStore):
    """Counts the writes of uses, and fails on request."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[dict[str, int]] = []
        self.is_away = False

    async def note_uses(self, times: object) -> None:
        assert isinstance(times, dict)
        if self.is_away:
            raise StoreUnavailable("away")
        self.writes.append(dict(times))


async def test_uses_are_written_once_a_minute() -> None:
    store, now = Counting(), [1_000]
    uses = KeyUses(store, lambda: now[0])
    for second in (0, 1, 59):
        now[0] = 1_000 + second
        uses.note("k1")
        await uses.settled()
    assert store.writes == [{"k1": 1_000}]
    now[0] = 1_060
    uses.note("k1")
    uses.note("k2")
    await uses.settled()
    assert store.writes[1:] == [{"k1": 1_060, "k2": 1_060}]


async def test_uses_wait_for_a_store_that_is_away() -> None:
    store, now = Counting(), [1_000]
    uses = KeyUses(store, lambda: now[0])
    store.is_away = True
    uses.note("k1")
    await uses.settled()
    store.is_away = False
    uses.note("k2")
    await uses.settled()
    assert store.writes == [{"k1": 1_000, "k2": 1_000}]


async def test_a_project_that_is_changed_counts_for_its_keys(gateway: Gateway) -> None:
    headers = await make_key(gateway.store)
    await gateway.store.projects.update("ann", ProjectChange(never_store=True))
    answer = await ask(gateway, headers, model="small")
    assert answer.json["store"] is False
