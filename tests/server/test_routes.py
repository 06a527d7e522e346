"""Every route, listed: one that reaches a model has keys, limits, a log line and metrics.

A route that is not in the table fails the first test. Which routes reach a model is not
written down but found out, with a backend that counts.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest

from antiphon.backends.base import Ask, Relayed
from antiphon.backends.scripted import ScriptedBackend
from antiphon.gateway.assemble import ServerSettings, routes_of
from antiphon.plans.plan import Plan
from antiphon.server.app import Route
from antiphon.server.auth import new_key
from antiphon.server.doors import DoorSettings
from antiphon.server.limits import ServerLimits
from antiphon.store.memory import MemoryStore
from antiphon.testing.gateway import Gateway, serve_gateway
from antiphon.transport.http import Sending
from tests.asking import Answer, request
from tests.faults.house import PATIENCE
from tests.scraping import value_of
from tests.talking import talk

_MESSAGES: Final = [{"role": "user", "content": "hi"}]
_TURN: Final = {"model": "echo", "input": "hi"}
_CHAT: Final = {"model": "echo", "messages": _MESSAGES}
_CLAUDE: Final = {**_CHAT, "max_tokens": 9}
_ID: Final = "x"
_ADMIN: Final = "/v1/organization"
_PROJECT: Final = f"{_ADMIN}/projects/{{id}}"

BODIES: Final[dict[tuple[str, str], Any]] = {
    ("POST", "/v1/responses"): _TURN,
    ("GET", "/v1/responses"): None,
    ("GET", "/v1/responses/{id}"): None,
    ("DELETE", "/v1/responses/{id}"): None,
    ("GET", "/v1/responses/{id}/input_items"): None,
    ("POST", "/v1/responses/{id}/cancel"): {},
    ("GET", "/v1/responses/{id}/antiphon/times"): None,
    ("GET", "/v1/responses/{id}/antiphon/rounds"): None,
    ("GET", "/v1/responses/{id}/antiphon/rounds/{item}"): None,
    ("GET", "/v1/responses/{id}/antiphon/tree"): None,
    ("GET", "/v1/responses/{id}/antiphon/export"): None,
    ("GET", "/v1/conversations/{id}/antiphon/tree"): None,
    ("GET", "/v1/conversations/{id}/antiphon/export"): None,
    ("POST", "/v1/conversations/antiphon/import"): {"jsonl": ""},
    ("POST", "/v1/responses/compact"): _TURN,
    ("POST", "/v1/responses/input_tokens"): _TURN,
    ("POST", "/v1/chat/completions"): _CHAT,
    ("POST", "/v1/messages"): _CLAUDE,
    ("POST", "/v1/messages/count_tokens"): _CHAT,
    ("POST", "/v1/embeddings"): {"model": "echo", "input": "hi"},
    ("POST", "/v1/completions"): {"model": "echo", "prompt": "hi"},
    ("POST", "/v1/conversations"): {},
    ("GET", "/v1/conversations/{id}"): None,
    ("POST", "/v1/conversations/{id}"): {"metadata": {}},
    ("DELETE", "/v1/conversations/{id}"): None,
    ("GET", "/v1/conversations/{id}/items"): None,
    ("POST", "/v1/conversations/{id}/items"): {"items": []},
    ("GET", "/v1/conversations/{id}/items/{item}"): None,
    ("DELETE", "/v1/conversations/{id}/items/{item}"): None,
    ("POST", "/v1/files"): {},
    ("GET", "/v1/files"): None,
    ("GET", "/v1/files/{id}"): None,
    ("DELETE", "/v1/files/{id}"): None,
    ("GET", "/v1/files/{id}/content"): None,
    ("POST", "/v1/uploads"): {},
    ("POST", "/v1/uploads/{id}/parts"): {},
    ("POST", "/v1/uploads/{id}/complete"): {"part_ids": []},
    ("POST", "/v1/uploads/{id}/cancel"): {},
    ("POST", "/v1/vector_stores"): {},
    ("GET", "/v1/vector_stores"): None,
    ("GET", "/v1/vector_stores/{id}"): None,
    ("POST", "/v1/vector_stores/{id}"): {},
    ("DELETE", "/v1/vector_stores/{id}"): None,
    ("POST", "/v1/vector_stores/{id}/search"): {"query": "hi"},
    ("POST", "/v1/vector_stores/{id}/files"): {"file_id": _ID},
    ("GET", "/v1/vector_stores/{id}/files"): None,
    ("GET", "/v1/vector_stores/{id}/files/{item}"): None,
    ("POST", "/v1/vector_stores/{id}/files/{item}"): {"attributes": {}},
    ("DELETE", "/v1/vector_stores/{id}/files/{item}"): None,
    ("GET", "/v1/vector_stores/{id}/files/{item}/content"): None,
    ("POST", "/v1/vector_stores/{id}/file_batches"): {"file_ids": [_ID]},
    ("GET", "/v1/vector_stores/{id}/file_batches/{item}"): None,
    ("POST", "/v1/vector_stores/{id}/file_batches/{item}/cancel"): {},
    ("GET", "/v1/vector_stores/{id}/file_batches/{item}/files"): None,
    ("POST", "/v1/containers"): {"name": "hi"},
    ("GET", "/v1/containers"): None,
    ("GET", "/v1/containers/{id}"): None,
    ("DELETE", "/v1/containers/{id}"): None,
    ("POST", "/v1/containers/{id}/files"): {"file_id": _ID},
    ("GET", "/v1/containers/{id}/files"): None,
    ("GET", "/v1/containers/{id}/files/{item}"): None,
    ("DELETE", "/v1/containers/{id}/files/{item}"): None,
    ("GET", "/v1/containers/{id}/files/{item}/content"): None,
    ("POST", "/v1/skills"): {},
    ("GET", "/v1/skills"): None,
    ("GET", "/v1/skills/{id}"): None,
    ("POST", "/v1/skills/{id}"): {"default_version": "1"},
    ("DELETE", "/v1/skills/{id}"): None,
    ("GET", "/v1/skills/{id}/content"): None,
    ("POST", "/v1/skills/{id}/versions"): {},
    ("GET", "/v1/skills/{id}/versions"): None,
    ("GET", "/v1/skills/{id}/versions/{item}"): None,
    ("DELETE", "/v1/skills/{id}/versions/{item}"): None,
    ("GET", "/v1/skills/{id}/versions/{item}/content"): None,
    ("GET", f"{_ADMIN}/usage/completions"): None,
    ("GET", f"{_ADMIN}/usage/embeddings"): None,
    ("GET", f"{_ADMIN}/usage/images"): None,
    ("GET", f"{_ADMIN}/usage/web_search_calls"): None,
    ("GET", f"{_ADMIN}/costs"): None,
    ("GET", f"{_ADMIN}/antiphon/charges"): None,
    ("GET", f"{_ADMIN}/antiphon/requests"): None,
    ("GET", f"{_ADMIN}/antiphon/health"): None,
    ("POST", f"{_ADMIN}/antiphon/ledger/check"): {},
    ("GET", f"{_ADMIN}/antiphon/budgets"): None,
    ("POST", f"{_ADMIN}/antiphon/budgets"): {},
    ("GET", f"{_ADMIN}/antiphon/budgets/{{id}}"): None,
    ("DELETE", f"{_ADMIN}/antiphon/budgets/{{id}}"): None,
    ("GET", f"{_ADMIN}/admin_api_keys"): None,
    ("POST", f"{_ADMIN}/admin_api_keys"): {"name": "hi"},
    ("GET", f"{_ADMIN}/admin_api_keys/{{id}}"): None,
    ("DELETE", f"{_ADMIN}/admin_api_keys/{{id}}"): None,
    ("GET", f"{_ADMIN}/audit_logs"): None,
    ("GET", f"{_ADMIN}/projects"): None,
    ("POST", f"{_ADMIN}/projects"): {"name": "hi"},
    ("GET", _PROJECT): None,
    ("POST", _PROJECT): {"name": "hi"},
    ("POST", f"{_PROJECT}/archive"): {},
    ("GET", f"{_PROJECT}/api_keys"): None,
    ("GET", f"{_PROJECT}/api_keys/{{item}}"): None,
    ("POST", f"{_PROJECT}/api_keys/{{item}}"): {},
    ("DELETE", f"{_PROJECT}/api_keys/{{item}}"): None,
    ("POST", f"{_PROJECT}/api_keys/{{item}}/antiphon/rotate"): {},
    ("GET", f"{_PROJECT}/service_accounts"): None,
    ("POST", f"{_PROJECT}/service_accounts"): {"name": "hi"},
    ("GET", f"{_PROJECT}/service_accounts/{{item}}"): None,
    ("POST", f"{_PROJECT}/service_accounts/{{item}}"): {"name": "hi"},
    ("DELETE", f"{_PROJECT}/service_accounts/{{item}}"): None,
    ("POST", f"{_PROJECT}/service_accounts/{{item}}/api_keys"): {},
    ("GET", f"{_PROJECT}/rate_limits"): None,
    ("POST", f"{_PROJECT}/rate_limits/{{item}}"): {},
    ("DELETE", f"{_PROJECT}/rate_limits/{{item}}"): None,
    **{
        (method, f"{path}/spend_limit"): {} if method == "POST" else None
        for path in (_ADMIN, _PROJECT)
        for method in ("GET", "POST", "DELETE")
    },
    **{
        (method, f"{path}/spend_alerts"): {} if method == "POST" else None
        for path in (_ADMIN, _PROJECT)
        for method in ("GET", "POST")
    },
    **{
        (method, path): {} if method == "POST" else None
        for path in (f"{_ADMIN}/spend_alerts/{{id}}", f"{_PROJECT}/spend_alerts/{{item}}")
        for method in ("GET", "POST", "DELETE")
    },
    ("GET", "/v1/antiphon/me"): None,
    ("GET", "/v1/antiphon/login"): None,
    ("GET", "/v1/antiphon/tools"): None,
    ("GET", "/v1/models"): None,
    ("GET", "/v1/models/{id}"): None,
    ("GET", "/"): None,
    ("GET", "/version"): None,
    ("GET", "/healthz"): None,
    ("GET", "/health"): None,
    ("GET", "/readyz"): None,
    ("GET", "/metrics"): None,
    ("GET", "/openapi.json"): None,
}
"""What to send to each route, so that it does what it is for."""

# What is written when these are called is kept, so that a key must stand for one run of each.
CREATING: Final = {
    ("POST", "/v1/responses"),
    ("POST", "/v1/chat/completions"),
    ("POST", "/v1/messages"),
    ("POST", "/v1/conversations"),
    ("POST", "/v1/conversations/{id}/items"),
}
# Forms, and what needs a file first: their keys are tested in `api`.
CREATING_WITH_FILES: Final = {
    ("POST", "/v1/conversations/antiphon/import"),
    ("POST", "/v1/files"),
    ("POST", "/v1/uploads"),
    ("POST", "/v1/uploads/{id}/parts"),
    ("POST", "/v1/uploads/{id}/complete"),
    ("POST", "/v1/vector_stores"),
    ("POST", "/v1/vector_stores/{id}/files"),
    ("POST", "/v1/vector_stores/{id}/file_batches"),
    ("POST", "/v1/containers"),
    ("POST", "/v1/skills"),
    ("POST", "/v1/skills/{id}/versions"),
}
# What an administrator makes: their keys are tested in `api.organization`.
CREATING_AS_ADMIN: Final = {
    ("POST", f"{_ADMIN}/projects"),
    ("POST", f"{_ADMIN}/admin_api_keys"),
    ("POST", f"{_PROJECT}/service_accounts"),
    ("POST", f"{_PROJECT}/service_accounts/{{item}}/api_keys"),
    ("POST", f"{_PROJECT}/api_keys/{{item}}/antiphon/rotate"),
}
# A question, or a change that is the same when it is made twice.
NOT_CREATING: Final = {
    ("POST", "/v1/embeddings"),
    ("POST", "/v1/completions"),
    ("POST", "/v1/responses/{id}/cancel"),
    ("POST", "/v1/responses/compact"),
    ("POST", "/v1/responses/input_tokens"),
    ("POST", "/v1/messages/count_tokens"),
    ("POST", "/v1/conversations/{id}"),
    ("POST", "/v1/uploads/{id}/cancel"),
    ("POST", "/v1/vector_stores/{id}"),
    ("POST", "/v1/vector_stores/{id}/search"),
    ("POST", "/v1/vector_stores/{id}/files/{item}"),
    ("POST", "/v1/vector_stores/{id}/file_batches/{item}/cancel"),
    ("POST", "/v1/containers/{id}/files"),
    ("POST", "/v1/skills/{id}"),
    ("POST", _PROJECT),
    ("POST", f"{_PROJECT}/archive"),
    ("POST", f"{_PROJECT}/api_keys/{{item}}"),
    ("POST", f"{_PROJECT}/service_accounts/{{item}}"),
    ("POST", f"{_PROJECT}/rate_limits/{{item}}"),
    ("POST", f"{_PROJECT}/spend_limit"),
    ("POST", f"{_ADMIN}/spend_limit"),
    ("POST", f"{_ADMIN}/antiphon/budgets"),
    ("POST", f"{_ADMIN}/antiphon/ledger/check"),
    # Refused always.
    ("POST", f"{_ADMIN}/spend_alerts"),
    ("POST", f"{_ADMIN}/spend_alerts/{{id}}"),
    ("POST", f"{_PROJECT}/spend_alerts"),
    ("POST", f"{_PROJECT}/spend_alerts/{{item}}"),
}

Name = tuple[str, str]
ROUTES: Final[dict[Name, Route]] = {
    (route.method, route.path): route for route in routes_of(DoorSettings())
}


class Counting(ScriptedBackend):
    """A model that counts how often it is reached."""

    reached = 0

    async def open(self, plan: Plan) -> Ask:
        self.reached += 1
        return await super().open(plan)

    async def count(self, plan: Plan) -> int | None:
        self.reached += 1
        return await super().count(plan)

    @asynccontextmanager
    async def relay(
        self, path: str, body: bytes, *, is_streamed: bool, sending: Sending
    ) -> AsyncIterator[Relayed]:
        self.reached += 1
        yield Relayed(False, _pieces())


async def _pieces() -> AsyncIterator[bytes]:
    yield b"{}"


@asynccontextmanager
async def serving(
    backend: Counting, *, turns: int = 9, require_keys: bool = True
) -> AsyncIterator[tuple[Gateway, dict[str, str]]]:
    """Yield a gateway, and the headers of a caller with a key."""
    store = MemoryStore()
    key, record = new_key("ann", 1)
    await store.add_key(record)
    settings = ServerSettings(require_keys=require_keys, limits=ServerLimits(turns=turns))
    async with (
        asyncio.timeout(PATIENCE),
        serve_gateway(backend, store=store, settings=settings) as gateway,
    ):
        yield gateway, {"Authorization": f"Bearer {key}"}
    await store.close()


async def use(gateway: Gateway, name: Name, headers: dict[str, str]) -> Answer | int:
    """Ask a route for what it is for; return the answer, or the status of a WebSocket's."""
    method, path = name
    if name == ("GET", "/v1/responses"):
        return await _use_socket(gateway, headers)
    path = path.replace("{id}", _ID).replace("{item}", _ID)
    return await request(gateway, method, f"/..{path}", BODIES[name], headers)


async def _use_socket(gateway: Gateway, headers: dict[str, str]) -> int:
    async with talk(gateway.base_url, headers=headers) as socket:
        last = await socket.turn(input="hi")
    status: int = last.get("status", 200)
    return status


async def reaching() -> set[Name]:
    """Return the routes that reach a model."""
    found: set[Name] = set()
    for name in BODIES:
        backend = Counting()
        async with serving(backend) as (gateway, headers):
            await use(gateway, name, headers)
        if backend.reached:
            found.add(name)
    return found


def test_every_route_is_listed_here() -> None:
    assert set(ROUTES) == set(BODIES)


async def test_only_these_routes_reach_a_model() -> None:
    assert await reaching() == {
        ("POST", "/v1/responses"),
        ("GET", "/v1/responses"),
        ("POST", "/v1/responses/compact"),
        ("POST", "/v1/responses/input_tokens"),
        ("POST", "/v1/chat/completions"),
        ("POST", "/v1/messages"),
        ("POST", "/v1/messages/count_tokens"),
        ("POST", "/v1/embeddings"),
        ("POST", "/v1/completions"),
    }


async def test_no_route_reaches_a_model_without_a_key() -> None:
    for name, route in ROUTES.items():
        backend = Counting()
        async with serving(backend) as (gateway, _):
            if name == ("GET", "/v1/responses"):
                answer: Any = await request(gateway, "GET", "/responses", None, _UPGRADE)
            else:
                answer = await use(gateway, name, {})
        assert backend.reached == 0, name
        assert route.is_open or answer.status == 401, name


_UPGRADE: Final = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
}


async def test_no_route_reaches_a_model_when_the_server_is_full() -> None:
    for name in await reaching():
        backend = Counting()
        async with serving(backend, turns=0) as (gateway, headers):
            answer = await use(gateway, name, headers)
        status = answer if isinstance(answer, int) else answer.status
        assert backend.reached == 0, name
        assert status in (503, 529), name


async def test_what_reaches_a_model_is_logged_and_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    for name in await reaching():
        caplog.clear()
        method, path = name
        with caplog.at_level(logging.INFO, "antiphon.requests"):
            async with serving(Counting()) as (gateway, headers):
                await use(gateway, name, headers)
                metrics = gateway.app.metrics.render().decode()
        lines = [record.getMessage() for record in caplog.records]
        is_socket = method == "GET"
        begins = f"{'WEBSOCKET' if is_socket else method} {path} "
        assert any(line.startswith(begins) and "key=" in line for line in lines), name
        counted = value_of(metrics, "antiphon_responses_total", status="completed")
        requested = value_of(metrics, "antiphon_requests_total", route=path, status="200")
        assert (counted if is_socket else requested) == 1, name


def test_every_post_is_known_to_create_something_or_not() -> None:
    posts = {name for name in ROUTES if name[0] == "POST"}

    assert posts == CREATING | CREATING_WITH_FILES | CREATING_AS_ADMIN | NOT_CREATING
    assert not CREATING & NOT_CREATING


async def test_a_key_that_stood_for_another_body_is_refused_by_every_creating_post() -> None:
    for name in CREATING:
        async with serving(Counting(), require_keys=False) as (gateway, _):
            key = {"Idempotency-Key": "k"}
            made = await request(gateway, "POST", "/conversations", {})
            path = name[1].replace("{id}", made.json["id"])
            first = (
                {**(BODIES[name] or {}), "items": [_item("a")]} if _takes(name) else BODIES[name]
            )
            second = {**first, "items": [_item("b")]} if _takes(name) else {**first, "top_p": 0.5}
            answers = [
                await request(gateway, "POST", f"/..{path}", body, key) for body in (first, second)
            ]
        assert [answer.status for answer in answers] == [200, 422], name


def _takes(name: Name) -> bool:
    return name[1].startswith("/v1/conversations")


def _item(text: str) -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": text}
