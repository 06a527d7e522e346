"""What tools have found is stored, and shown where `include` asks for it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from antiphon.backends.scripted import ScriptedBackend, Step
from antiphon.protocol.deltas import ItemPassed, Stopped, TextGrew
from antiphon.protocol.events import OutputItemDone
from antiphon.protocol.includes import Hidden
from antiphon.protocol.machines.referee import judge_stream
from antiphon.testing.gateway import Gateway, serve_gateway
from tests.asking import ask, ask_stream, events_of, request, terminal
from tests.talking import talk

SEARCH = {
    "type": "web_search_call",
    "status": "completed",
    "action": {"type": "search", "query": "q", "sources": [{"type": "url", "url": "http://a"}]},
}
CODE = {
    "type": "code_interpreter_call",
    "status": "completed",
    "container_id": "c",
    "code": "1",
    "outputs": [{"type": "logs", "logs": "1"}],
}
FILES = {
    "type": "file_search_call",
    "status": "completed",
    "queries": ["q"],
    "results": [{"file_id": "f", "filename": "n", "score": 1.0, "text": "t", "attributes": {}}],
}
TOOLS = [{"type": "web_search"}, {"type": "code_interpreter"}, {"type": "file_search"}]
ALL = [
    "web_search_call.action.sources",
    "code_interpreter_call.outputs",
    "file_search_call.results",
]


def searcher() -> ScriptedBackend:
    """Return a model whose server has run three tools."""
    script: list[Step] = [[ItemPassed(SEARCH), ItemPassed(CODE), ItemPassed(FILES), TextGrew("ok")]]
    kinds = frozenset({"web_search", "code_interpreter", "file_search"})
    return ScriptedBackend(lambda plan: [*script, Stopped("stop")], tool_kinds=kinds)


def found(output: list[dict[str, Any]]) -> list[bool]:
    """Return whether sources, outputs and results are there."""
    search, code, files = output[:3]
    return ["sources" in search["action"], bool(code["outputs"]), bool(files["results"])]


async def _created(gateway: Gateway, include: list[str]) -> list[dict[str, Any]]:
    answer = await ask(gateway, tools=TOOLS, include=include)
    return list(answer.json["output"])


async def _streamed(gateway: Gateway, include: list[str]) -> list[dict[str, Any]]:
    events = await ask_stream(gateway, tools=TOOLS, include=include)
    assert judge_stream(events) == []
    done = [event.item for event in events if isinstance(event, OutputItemDone)]
    output = terminal(events).output
    assert done == output
    return output


async def _over_websocket(gateway: Gateway, include: list[str]) -> list[dict[str, Any]]:
    async with talk(gateway.base_url) as socket:
        await socket.ask(input="x", tools=TOOLS, include=include)
        return list((await socket.events())[-1]["response"]["output"])


async def _read(gateway: Gateway, include: list[str]) -> list[dict[str, Any]]:
    made = (await ask(gateway, tools=TOOLS)).json
    query = "&".join(f"include[]={name}" for name in include)
    return list((await request(gateway, "GET", f"/responses/{made['id']}?{query}")).json["output"])


async def _resumed(gateway: Gateway, include: list[str]) -> list[dict[str, Any]]:
    made = terminal(await ask_stream(gateway, tools=TOOLS))
    path = f"/responses/{made.id}?stream=true&include={','.join(include)}"
    events = events_of((await request(gateway, "GET", path)).body)
    assert judge_stream(events) == []
    return terminal(events).output


async def _listed(gateway: Gateway, include: list[str]) -> list[dict[str, Any]]:
    items = [SEARCH | {"id": "ws_1"}, CODE | {"id": "ci_1"}, FILES | {"id": "fs_1"}]
    made = (await ask(gateway, input=[*items, {"role": "user", "content": "x"}])).json
    path = f"/responses/{made['id']}/input_items?order=asc&include={','.join(include)}"
    return list((await request(gateway, "GET", path)).json["data"])


async def _conversed(gateway: Gateway, include: list[str]) -> list[dict[str, Any]]:
    talk_id = (await request(gateway, "POST", "/conversations", {})).json["id"]
    await ask(gateway, tools=TOOLS, conversation=talk_id)
    path = f"/conversations/{talk_id}/items?order=asc&include={','.join(include)}"
    return list((await request(gateway, "GET", path)).json["data"])[1:]


async def _added(gateway: Gateway, include: list[str]) -> list[dict[str, Any]]:
    talk_id = (await request(gateway, "POST", "/conversations", {})).json["id"]
    names: dict[str, dict[str, Any]] = {"ws": SEARCH, "ci": CODE, "fs": FILES}
    items = [item | {"id": f"{name}_{len(include)}"} for name, item in names.items()]
    path = f"/conversations/{talk_id}/items?include={','.join(include)}"
    answers = [
        await request(gateway, "POST", path, {"items": items}, {"Idempotency-Key": talk_id})
        for _ in range(2)  # the second is the replay of the first
    ]
    first, second = (answer.json["data"] for answer in answers)
    assert first == second
    return list(first)


ROADS = [_created, _streamed, _over_websocket, _read, _resumed, _listed, _conversed, _added]


@pytest.mark.parametrize("road", ROADS)
async def test_what_was_found_is_shown_where_it_is_included(road: Any) -> None:
    async with serve_gateway(searcher()) as gateway:
        assert found(await road(gateway, ALL)) == [True] * 3
        assert found(await road(gateway, ALL[1:])) == [False, True, True]
        assert found(await road(gateway, [])) == [False] * 3


async def test_what_is_hidden_is_still_in_the_context_of_the_next_turn() -> None:
    backend = searcher()
    async with serve_gateway(backend) as gateway:
        made = (await ask(gateway, tools=TOOLS)).json
        await ask(gateway, tools=TOOLS, previous_response_id=made["id"])
    kept = [item for item in backend.plans[1].items if item["type"] != "message"]
    assert found(kept) == [True] * 3


def test_an_item_is_never_changed() -> None:
    before = msgspec.json.encode(SEARCH)
    assert "sources" not in Hidden().item(SEARCH)["action"]
    assert msgspec.json.encode(SEARCH) == before
    assert Hidden(ALL).item(SEARCH) is SEARCH
