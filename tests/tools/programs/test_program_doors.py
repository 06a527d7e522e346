"""Programs through the other doors, in the background, and on PostgreSQL.

The callers of the chat and the Messages door send back calls and their results alone. The program
is kept with its first call, so that it is replayed there as well.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from antiphon.backends.scripted import ScriptedBackend
from antiphon.store.base import Store
from antiphon.store.memory import MemoryStore
from antiphon.store.postgres import PostgresStore
from antiphon.store.sqlite import SqliteStore
from antiphon.testing.gateway import Gateway, serve_gateway
from antiphon.tools.containers.service import ContainerService
from antiphon.tools.programs.runner import ProgramRunner
from tests.asking import ask, ask_stream, request, terminal
from tests.containers import make_service
from tests.postgres import fresh_database
from tests.sandboxes import engine
from tests.tools.programs.test_programs import (
    PROGRAMS,
    SUM,
    TOOLS,
    output_for,
    program,
    saying,
    types_of,
)

USER = {"role": "user", "content": "how many?"}
SCHEMA = {"type": "object", "properties": {"sku": {"type": "string"}}}
CALLERS = {"allowed_callers": ["programmatic"]}
ANSWERS = {"stock": '{"count": 3}', "order": "ordered"}
RESULT = "ordered\ntotal 6"


def _serving(backend: ScriptedBackend, service: ContainerService) -> Any:
    runner = ProgramRunner(service)
    return serve_gateway(backend, store=service.store, tools=[runner], containers=service)


@pytest.fixture
async def service() -> AsyncIterator[ContainerService]:
    service = make_service(MemoryStore(), engine("bwrap+sandlock"))
    yield service
    await service.close()


def _chat_tool(name: str) -> Any:
    return {"type": "function", "function": {"name": name, "parameters": SCHEMA}, **CALLERS}


def _chat_next(answer: Any) -> list[Any]:
    """Return the messages that go on from an answer with calls; none if it has none."""
    message = answer["choices"][0]["message"]
    results = [
        {"role": "tool", "tool_call_id": call["id"], "content": ANSWERS[call["function"]["name"]]}
        for call in message.get("tool_calls") or ()
    ]
    return [message, *results] if results else []


def _messages_tool(name: str) -> Any:
    return {"name": name, "input_schema": SCHEMA, **CALLERS}


def _messages_next(answer: Any) -> list[Any]:
    results = [
        {"type": "tool_result", "tool_use_id": block["id"], "content": ANSWERS[block["name"]]}
        for block in answer["content"]
        if block["type"] == "tool_use"
    ]
    said = {"role": "assistant", "content": answer["content"]}
    return [said, {"role": "user", "content": results}] if results else []


_DOORS = [
    pytest.param("/chat/completions", _chat_tool, _chat_next, id="chat"),
    pytest.param("/messages", _messages_tool, _messages_next, id="messages"),
]


def _body(tool: Any) -> dict[str, Any]:
    tools = [PROGRAMS, tool("stock"), tool("order")]
    return {"model": "test/echo", "max_tokens": 99, "tools": tools}


@pytest.mark.parametrize(("path", "tool", "following"), _DOORS)
async def test_a_program_is_replayed_through_a_door_that_shows_calls_alone(
    service: ContainerService, path: str, tool: Any, following: Any
) -> None:
    backend = ScriptedBackend([program(SUM), saying("Six."), saying("Again six.")])
    messages: list[Any] = [USER]
    async with _serving(backend, service) as gateway:
        for turn in range(4):
            answer = await request(gateway, "POST", path, _body(tool) | {"messages": messages})
            assert answer.status == 200, answer.body
            added = following(answer.json)
            assert len(added) == (3, 2, 0, 0)[turn] or path == "/messages"
            messages += added or [{"role": "assistant", "content": "Six."}, USER]
    assert "Again six." in answer.body.decode()
    shown, later = (plan.items for plan in backend.plans[1:])
    kinds = ["message", "program", "function_call_output"]
    assert [item["type"] for item in shown] == kinds
    assert [item["type"] for item in later] == [*kinds, "message", "message"]
    assert shown[-1]["output"] == later[2]["output"]
    assert RESULT in shown[-1]["output"]


@pytest.mark.parametrize(("path", "tool", "following"), _DOORS)
async def test_calls_of_a_program_are_streamed_as_calls(
    service: ContainerService, path: str, tool: Any, following: Any
) -> None:
    backend = ScriptedBackend([program(SUM)])
    body = _body(tool) | {"messages": [USER], "stream": True}
    async with _serving(backend, service) as gateway:
        text = (await request(gateway, "POST", path, body)).body.decode()
    assert text.count('"name":"stock"') == 2
    assert "order" not in text
    assert '"tool_calls"' in text if path == "/chat/completions" else '"tool_use"' in text
    assert '"left_out":{"program":1}' in text


@pytest.mark.parametrize(("path", "tool", "following"), _DOORS)
async def test_programs_of_conversations_do_not_meet_although_their_ids_are_the_same(
    service: ContainerService, path: str, tool: Any, following: Any
) -> None:
    """Servers count the calls of their models from 0 in every conversation."""
    names = ("one", "two")
    codes = [f"text('{name}', (await tools.stock({{sku: 'a'}})).count)" for name in names]
    backend = ScriptedBackend([*(program(code, "call_0") for code in codes), *map(saying, names)])
    async with _serving(backend, service) as gateway:
        turns = []
        for _ in names:
            answer = await request(gateway, "POST", path, _body(tool) | {"messages": [USER]})
            turns.append([USER, *following(answer.json)])
        for messages in turns:
            await request(gateway, "POST", path, _body(tool) | {"messages": messages})
    outputs = [plan.items[-1]["output"] for plan in backend.plans[2:]]
    assert [output.splitlines()[1:] for output in outputs] == [["one 3"], ["two 3"]]


@pytest.mark.parametrize(("path", "tool", "following"), _DOORS)
async def test_no_program_is_offered_if_it_could_not_go_on(
    service: ContainerService, path: str, tool: Any, following: Any
) -> None:
    backend = ScriptedBackend([saying("ok")])
    async with _serving(backend, service) as gateway:
        gateway.app.engine.sealer = None  # so nothing can be kept
        answer = await request(gateway, "POST", path, _body(tool) | {"messages": [USER]})
    assert answer.status == 200, answer.body
    assert backend.plans[0].toolbox.aliases == frozenset()
    assert "they are not kept here" in answer.body.decode()


async def _whole(gateway: Gateway, **body: Any) -> Any:
    answer = await ask(gateway, **body)
    assert answer.status == 200, answer.body
    return answer.json


async def _streamed(gateway: Gateway, **body: Any) -> Any:
    return msgspec.to_builtins(terminal(await ask_stream(gateway, **body)))


async def _in_background(gateway: Gateway, **body: Any) -> Any:
    response = await _whole(gateway, background=True, **body)
    async with asyncio.timeout(60):
        while response["status"] in ("queued", "in_progress"):
            path = f"/responses/{response['id']}?stream=true"
            await request(gateway, "GET", path)  # returns when the response has ended
            response = (await request(gateway, "GET", f"/responses/{response['id']}")).json
    return response


_MODES = [_whole, _streamed, _in_background]


@asynccontextmanager
async def _sqlite(folder: Path) -> AsyncIterator[Callable[[], Store]]:
    yield lambda: SqliteStore(folder / "antiphon.db")


@asynccontextmanager
async def _postgres(folder: Path) -> AsyncIterator[Callable[[], Store]]:
    async with fresh_database() as url:
        yield lambda: PostgresStore(url)


@pytest.mark.parametrize("mode", _MODES)
@pytest.mark.parametrize("place", [_sqlite, _postgres])
async def test_a_program_goes_on_in_another_process_in_every_mode(
    tmp_path: Path, place: Any, mode: Any
) -> None:
    """Each turn has a gateway of its own: nothing but the store has to last."""
    backend = ScriptedBackend([program(SUM), saying("Six.")])
    response: Any = None
    inputs: list[Any] = [USER]
    types = []
    async with place(tmp_path) as make_store:
        for _ in range(3):
            store: Store = make_store()
            service = make_service(store, engine("bwrap+sandlock"))
            async with _serving(backend, service) as gateway:
                last = response and response["id"]
                response = await mode(gateway, input=inputs, tools=TOOLS, previous_response_id=last)
            await service.close()
            await store.close()
            assert response["status"] == "completed", response
            types.append(types_of(response))
            calls = [item for item in response["output"] if item["type"] == "function_call"]
            inputs = [output_for(call, ANSWERS[call["name"]]) for call in calls]
    assert types == [
        ["program", "function_call", "function_call"],
        ["function_call"],
        ["program_output", "message"],
    ]
    assert response["output"][0]["result"] == RESULT
    assert len(backend.plans) == 2, "the model is asked at the beginning and at the end"


async def test_functions_of_a_namespace_are_replayed(service: ContainerService) -> None:
    stock = {"type": "function", "name": "stock", "parameters": SCHEMA, **CALLERS}
    space = {"type": "namespace", "name": "shop", "description": "A shop.", "tools": [stock]}
    tools = [PROGRAMS, space]
    backend = ScriptedBackend([saying("no program yet")])
    async with _serving(backend, service) as gateway:
        await _whole(gateway, tools=tools)
    (offer,) = backend.plans[0].toolbox.programmatic
    code = f"text((await tools[{offer.alias!r}]({{sku: 'a'}})).count)"
    backend = ScriptedBackend([program(code), saying("ok")])
    async with _serving(backend, service) as gateway:
        first = await _whole(gateway, tools=tools)
        call = first["output"][1]
        assert (call["namespace"], call["name"]) == ("shop", "stock")
        second = await _whole(
            gateway,
            tools=tools,
            previous_response_id=first["id"],
            input=[output_for(call, {"count": 3})],
        )
    assert second["output"][0]["result"] == "3"
