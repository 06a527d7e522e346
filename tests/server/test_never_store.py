"""Nothing is stored for a key that must not: what is refused, and what is answered unstored."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from antiphon.backends.scripted import ScriptedBackend
from antiphon.gateway.assemble import ServerSettings
from antiphon.protocol.deltas import Stopped, TextGrew
from antiphon.store.base import Project
from antiphon.store.sqlite import SqliteStore
from antiphon.testing import ScriptedTool
from antiphon.testing.gateway import Gateway, serve_gateway
from tests.asking import ask, ask_stream, request, terminal
from tests.server.keyed import make_key
from tests.talking import talk

KEYED = ServerSettings(require_keys=True)
ASKED = "canary-of-the-question"
ANSWERED = "canary-of-the-answer"
NOTE = "store: nothing may be stored for this key"
HELLO = [{"role": "user", "content": ASKED}]


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Gateway]:
    store = SqliteStore(tmp_path / "a.db")
    backend = ScriptedBackend(lambda plan: [TextGrew(ANSWERED), Stopped("stop")])
    async with serve_gateway(backend, store=store, settings=KEYED) as served:
        yield served
    await store.close()


@pytest.fixture(params=["key", "project"])
async def headers(gateway: Gateway, request: pytest.FixtureRequest) -> dict[str, str]:
    """A key that stores nothing, because of itself or of its project."""
    if request.param == "key":
        return await make_key(gateway.store, never_store=True)
    await gateway.store.projects.create(Project("ann", "Ann", 1, never_store=True))
    return await make_key(gateway.store)


class _Interpreter(ScriptedTool):
    def __init__(self) -> None:
        super().__init__()
        self.kinds = frozenset({"code_interpreter"})


def found_in(folder: Path) -> list[str]:
    """Return the files that hold anything of what was asked or answered."""
    words = (ASKED.encode(), ANSWERED.encode())
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert files
    return [path.name for path in files if any(word in path.read_bytes() for word in words)]


async def test_nothing_reaches_a_file_through_any_door(
    gateway: Gateway, headers: dict[str, str], tmp_path: Path
) -> None:
    whole = await ask(gateway, headers, input=ASKED)
    explicit = await ask(gateway, headers, input=ASKED, store=True, metadata={"a": ASKED})
    streamed = terminal(await ask_stream(gateway, headers, input=ASKED))
    keyed = await ask(gateway, headers | {"Idempotency-Key": ASKED}, input=ASKED)
    again = await ask(gateway, headers | {"Idempotency-Key": ASKED}, input=ASKED)
    chat = await request(
        gateway, "POST", "/chat/completions", {"messages": HELLO, "store": True}, headers
    )
    message = {"messages": HELLO, "max_tokens": 10, "model": "echo"}
    messages = await request(gateway, "POST", "/messages", message, headers)
    async with talk(gateway.base_url, headers) as socket:
        spoken = await socket.turn(input=ASKED)

    for answer in (whole, explicit, keyed, again, chat, messages):
        assert answer.status == 200, answer.body
        assert ANSWERED in answer.body.decode()
    for answer in (whole, explicit, keyed):
        assert answer.json["store"] is False
        assert NOTE in answer.headers["x-antiphon-degraded"]
        assert NOTE in answer.json["antiphon"]["degraded"]
    assert again.headers["x-antiphon-replayed"] == "1"
    assert streamed.store is False
    assert spoken["response"]["store"] is False
    await gateway.store.ping()
    assert found_in(tmp_path) == []
    gone = await request(gateway, "GET", f"/responses/{whole.json['id']}", headers=headers)
    assert gone.status == 404


async def test_the_search_for_the_canary_would_find_it(gateway: Gateway, tmp_path: Path) -> None:
    await ask(gateway, await make_key(gateway.store), input=ASKED)
    await gateway.store.ping()
    assert found_in(tmp_path) != []


async def test_a_request_that_asks_for_no_storage_is_not_degraded(
    gateway: Gateway, headers: dict[str, str]
) -> None:
    answer = await ask(gateway, headers, input=ASKED, store=False)
    assert answer.status == 200
    assert "x-antiphon-degraded" not in answer.headers


async def test_a_strict_caller_is_refused_instead(
    gateway: Gateway, headers: dict[str, str]
) -> None:
    refused = await ask(gateway, headers | {"x-antiphon-strict": "1"}, input=ASKED)
    assert (refused.status, refused.error["param"]) == (400, "store")


@pytest.mark.parametrize(
    ("param", "value"),
    [("background", True), ("conversation", "conv_1"), ("previous_response_id", "resp_1")],
)
async def test_what_needs_storage_is_refused(
    gateway: Gateway, headers: dict[str, str], tmp_path: Path, param: str, value: object
) -> None:
    refused = await ask(gateway, headers, input=ASKED, **{param: value})
    assert (refused.status, refused.error["code"]) == (403, "storage_forbidden")
    assert refused.error["param"] == param
    await gateway.store.ping()
    assert found_in(tmp_path) == []


async def test_a_websocket_goes_on_with_what_it_remembers(
    gateway: Gateway, headers: dict[str, str], tmp_path: Path
) -> None:
    async with talk(gateway.base_url, headers) as socket:
        first = await socket.turn(input=ASKED)
        second = await socket.turn(input="more", previous_response_id=first["response"]["id"])
        refused = await socket.turn(input="more", previous_response_id="resp_of_another_day")
    assert second["type"] == "response.completed"
    assert (refused["status"], refused["error"]["code"]) == (403, "storage_forbidden")
    assert found_in(tmp_path) == []


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/conversations", {"items": [{"type": "message", "role": "user", "content": ASKED}]}),
        ("/conversations/conv_1/items", {"items": []}),
        ("/files", {}),
        ("/uploads", {}),
        ("/vector_stores", {"name": ASKED}),
        ("/vector_stores/vs_1/files", {"file_id": "file-1"}),
        ("/containers", {"name": ASKED}),
        ("/skills", {}),
    ],
)
async def test_routes_that_store_are_refused(
    gateway: Gateway, headers: dict[str, str], tmp_path: Path, path: str, body: object
) -> None:
    refused = await request(gateway, "POST", path, body, headers)
    assert (refused.status, refused.error["code"]) == (403, "storage_forbidden")
    assert found_in(tmp_path) == []


async def test_tools_that_keep_files_are_refused_where_they_are_run_here(
    gateway: Gateway, headers: dict[str, str]
) -> None:
    tools = [{"type": "code_interpreter", "container": {"type": "auto"}}]
    async with serve_gateway(
        ScriptedBackend(), store=gateway.store, settings=KEYED, tools=[_Interpreter()]
    ) as running:
        refused = await ask(running, headers, input=ASKED, tools=tools)
    assert (refused.status, refused.error["code"]) == (403, "storage_forbidden")
    assert refused.error["param"] == "tools[0]"


async def test_a_key_of_the_same_project_that_may_store_still_does(gateway: Gateway) -> None:
    await make_key(gateway.store, never_store=True)
    answer = await ask(gateway, await make_key(gateway.store), input=ASKED)
    assert answer.json["store"] is True
