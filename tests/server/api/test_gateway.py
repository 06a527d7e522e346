"""/v1/antiphon: who asks, how to log in, which tools there are; and how the gateway is."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from antiphon.backends.chat import ChatBackend
from antiphon.backends.scripted import ScriptedBackend
from antiphon.gateway.assemble import ServerSettings
from antiphon.gateway.config import Settings
from antiphon.gateway.mcp import read_directory
from antiphon.gateway.tool_terms import tool_terms
from antiphon.server.issuers import IssuerSettings
from antiphon.server.ui import content_policy
from antiphon.store.base import Project
from antiphon.store.base.keys import ROLES, Role
from antiphon.store.memory import MemoryStore
from antiphon.testing import Script, ScriptedUpstream
from antiphon.testing.faults import Status
from antiphon.testing.gateway import Gateway, serve_gateway
from antiphon.testing.tools import ScriptedTool
from antiphon.tools.mcp.settings import McpServer, McpSettings
from antiphon.tools.terms import ServerTerms, ToolTerms
from tests.asking import ask, request
from tests.server.api.organization.books import charge, key_of
from tests.server.keyed import bearer
from tests.server.test_issuers import Issuer, run_issuer

_SECRET_PLACE = "https://tickets.example.com/mcp"
_TERMS = (
    ToolTerms("mcp", True, "1 server", (ServerTerms("desk", _SECRET_PLACE),), ("no URLs",)),
    ToolTerms("web_search", False, "not configured"),
)


@asynccontextmanager
async def serving(**more: Any) -> AsyncIterator[Gateway]:
    store = MemoryStore()
    given: dict[str, Any] = {"require_keys": True, "tool_terms": _TERMS} | more
    settings = ServerSettings(ui=True, **given)
    async with serve_gateway(ScriptedBackend(), store=store, settings=settings) as gateway:
        yield gateway
    await store.close()


async def get(gateway: Gateway, path: str, key: str = "") -> Any:
    answer = await request(gateway, "GET", path, headers=bearer(key) if key else None)
    assert answer.status == 200, answer.body
    return answer.json


@pytest.mark.parametrize("role", ROLES)
async def test_every_role_can_ask_who_it_is(role: Role) -> None:
    async with serving() as gateway:
        key = await key_of(gateway.store, "shop", role, models=("small",), user="ann")
        me = await get(gateway, "/antiphon/me", key)
    assert (me["role"], me["project_id"], me["user_id"]) == (role, "shop", "ann")
    assert me["models"] == ["small"]
    assert me["api_key_id"] == key.split("_")[1]


async def test_without_keys_the_user_of_the_machine_is_local() -> None:
    async with serving(require_keys=False) as gateway:
        assert (await get(gateway, "/antiphon/me"))["role"] == "local"
    async with serving() as gateway:
        assert (await request(gateway, "GET", "/antiphon/me")).status == 401


@pytest.mark.parametrize(("role", "sees"), [("user", False), ("viewer", False), ("admin", True)])
async def test_only_administrators_see_on_which_terms_tools_run(role: Role, sees: bool) -> None:
    async with serving() as gateway:
        key = await key_of(gateway.store, "shop", role)
        answer = await request(gateway, "GET", "/antiphon/tools", headers=bearer(key))
    assert (_SECRET_PLACE.encode() in answer.body) is sees
    by_type = {one["type"]: one for one in answer.json["data"]}
    assert [one["label"] for one in by_type["mcp"]["servers"]] == ["desk"]
    assert (by_type["web_search"]["terms"] is not None) is sees


async def test_a_tool_is_ready_only_if_this_process_runs_it() -> None:
    tool = ScriptedTool()
    settings = ServerSettings(tool_terms=(ToolTerms("shell", is_configured=True, terms=""),))
    async with serve_gateway(ScriptedBackend(), tools=[tool], settings=settings) as gateway:
        found = (await get(gateway, "/antiphon/tools"))["data"]
    (kind,) = tool.kinds
    assert {one["type"]: one["configured"] for one in found} == {"shell": False, kind: True}


def test_the_terms_name_what_is_not_configured() -> None:
    found = {one.type: one for one in tool_terms(Settings(), {})}
    assert not found["web_search"].is_configured
    assert "provider" in found["web_search"].terms
    assert not found["mcp"].is_configured
    assert found["file_search"].is_configured


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 servers,"), (1, "1 server,"), (2, "2 servers,")]
)
def test_the_terms_count_the_servers(count: int, text: str) -> None:
    servers = {f"server{number}": McpServer(command="python") for number in range(count)}
    settings = McpSettings(servers=servers)
    endpoints = read_directory(settings, {}).endpoints
    assert tool_terms(Settings(mcp=settings), endpoints)[0].terms.startswith(text)


def login_settings(issuer: Issuer, **more: Any) -> IssuerSettings:
    return issuer.settings(client_id="board", scopes=("openid", "team"), **more)


async def test_the_page_may_connect_to_the_token_endpoint_and_to_nothing_else() -> None:
    async with run_issuer() as issuer, serving(issuers=(login_settings(issuer),)) as gateway:
        found = await get(gateway, "/antiphon/login")
        page = await request(gateway, "GET", "/../ui")
        script = await request(gateway, "GET", "/../ui/js/main.js")
    assert found["unavailable"] == []
    (one,) = found["issuers"]
    assert (one["client_id"], one["scopes"]) == ("board", ["openid", "team"])
    assert one["token_endpoint"] == f"{issuer.url}/token"
    policy = page.headers["Content-Security-Policy"]
    assert policy == content_policy([f"{issuer.url}/token"])
    assert f"connect-src 'self' {issuer.url}/token; base-uri" in policy
    assert script.headers["Content-Security-Policy"] == content_policy()


@pytest.mark.parametrize("endpoint", ["", "javascript:x", "https://a.example/t;script-src *", 7])
async def test_an_endpoint_that_cannot_be_in_the_policy_is_not_used(endpoint: object) -> None:
    async with run_issuer() as issuer:
        issuer.more = {"token_endpoint": endpoint}
        async with serving(issuers=(login_settings(issuer),)) as gateway:
            found = await get(gateway, "/antiphon/login")
            page = await request(gateway, "GET", "/../ui")
    assert (found["issuers"], found["unavailable"]) == ([], [issuer.url])
    assert page.headers["Content-Security-Policy"] == content_policy()


async def test_an_issuer_without_a_client_is_not_offered() -> None:
    async with run_issuer() as issuer, serving(issuers=(issuer.settings(),)) as gateway:
        assert await get(gateway, "/antiphon/login") == {
            "object": "antiphon.login",
            "issuers": [],
            "unavailable": [],
        }


async def test_a_token_of_a_project_is_known_by_its_role() -> None:
    async with run_issuer() as issuer:
        settings = login_settings(issuer, roles={"boss": "admin"})
        async with serving(issuers=(settings,)) as gateway:
            await gateway.store.projects.create(Project("lab", "Lab", 1))
            me = await get(gateway, "/antiphon/me", issuer.token(roles=["boss"]))
    assert (me["role"], me["project_id"], me["user_id"]) == ("admin", "lab", f"{issuer.url} ann-1")


async def test_health_names_upstreams_breakers_and_the_store() -> None:
    def play(body: dict[str, Any]) -> Script:
        return Script(faults=[Status(500)]) if body["model"] == "broken" else Script(text="Yes.")

    async with (
        ScriptedUpstream(play, models=("good", "broken")) as upstream,
        serve_gateway(
            {"farm": ChatBackend(upstream.base_url)}, settings=ServerSettings(workers=1)
        ) as gateway,
    ):
        await ask(gateway, model="good")
        for _ in range(6):
            await ask(gateway, model="broken")
        found = await get(gateway, "/organization/antiphon/health")
    assert found["is_ready"]
    assert (found["workers"], found["nodes"], found["turns"]) == (1, 1, 0)
    (farm,) = found["upstreams"]
    assert (farm["provider"], farm["problem"], farm["in_flight"]) == ("farm", None, 0)
    assert farm["calls"]["completed"] == 1
    assert sum(farm["calls"].values()) > 1
    assert [one["deployment"] for one in farm["breakers"]] == ["farm/broken"]
    assert farm["breakers"][0]["seconds_left"] > 0
    assert farm["p95_ms"] is not None
    assert found["store"]["problem"] is None


async def test_an_upstream_that_is_away_is_named_with_the_reason() -> None:
    async with serve_gateway({"farm": ChatBackend("http://127.0.0.1:9/v1")}) as gateway:
        found = await get(gateway, "/organization/antiphon/health")
    assert not found["is_ready"]
    assert found["upstreams"][0]["problem"]


async def test_the_ledger_is_checked_on_demand() -> None:
    async with serving() as gateway:
        admin = bearer(await key_of(gateway.store, "ops", "admin"))
        await charge(gateway.store, "shop")
        path = "/organization/antiphon/ledger/check"
        answer = await request(gateway, "POST", path, {}, admin)
        refused = await request(
            gateway, "POST", path, {}, bearer(await key_of(gateway.store, "shop", "viewer"))
        )
    assert (answer.json["is_right"], answer.json["problems"]) == (True, [])
    assert refused.status == 403
