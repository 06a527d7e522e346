"""Conversations over previous_response_id: every context exact, through restarts and forks."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from antiphon.backends.scripted import Script, ScriptedBackend
from antiphon.plans.plan import Plan
from antiphon.protocol.deltas import CallGrew, CallOpened, Stopped, TextGrew
from antiphon.protocol.items import text_of
from antiphon.store.memory import MemoryStore
from antiphon.store.sqlite import SqliteStore
from antiphon.testing.gateway import Gateway, serve_gateway
from tests.asking import ask, ask_stream, request, terminal

STOP = Stopped("stop")


def answering(plan: Plan) -> Script:
    """Answer each user text with its echo in capitals, so that no two items are alike."""
    text = text_of(plan.items[-1]["content"])
    return [TextGrew(text.upper()), STOP]


def texts(plan: Plan) -> list[str]:
    return [text_of(item["content"]) for item in plan.items]


def spoken(names: list[str]) -> list[str]:
    """Return what a conversation over these user texts looks like before its last answer."""
    return [text for name in names for text in (name, name.upper())][:-1]


async def say(gateway: Gateway, text: str, previous: str | None) -> str:
    """Take one turn, streaming every second time, and return the response's id."""
    body: dict[str, Any] = {"input": text, "previous_response_id": previous}
    if len(text) % 2:
        return terminal(await ask_stream(gateway, **body)).id
    answer = await ask(gateway, **body)
    assert answer.status == 200, answer.body
    response_id: str = answer.json["id"]
    return response_id


@pytest.mark.requirement("003-state-1")
async def test_a_hundred_turns_a_restart_and_a_fork_keep_every_context(tmp_path: Path) -> None:
    names = [f"turn{number}" for number in range(100)]
    ids: list[str] = []
    for part in (names[:50], names[50:]):
        store = SqliteStore(tmp_path / "antiphon.db")
        backend = ScriptedBackend(answering)
        async with serve_gateway(backend, store=store) as gateway:
            for name in part:
                ids.append(await say(gateway, name, ids[-1] if ids else None))
                said = names[: len(ids)]
                assert texts(backend.plans[-1]) == spoken(said)
        await store.close()

    store = SqliteStore(tmp_path / "antiphon.db")
    backend = ScriptedBackend(answering)
    async with serve_gateway(backend, store=store) as gateway:
        fork = await say(gateway, "fork", ids[50])
        await say(gateway, "on", fork)
        await say(gateway, "main", ids[99])
    await store.close()

    assert texts(backend.plans[0]) == spoken([*names[:51], "fork"])
    assert texts(backend.plans[1]) == spoken([*names[:51], "fork", "on"])
    assert texts(backend.plans[2]) == spoken([*names, "main"])


async def test_forks_of_one_turn_taken_at_once_stay_apart() -> None:
    backend = ScriptedBackend(answering)
    async with serve_gateway(backend) as gateway:
        root = await say(gateway, "root", None)
        forks = await asyncio.gather(*(say(gateway, f"fork{n}", root) for n in range(20)))
        for number, fork in enumerate(forks):
            await say(gateway, f"on{number}", fork)
            assert texts(backend.plans[-1]) == spoken(["root", f"fork{number}", f"on{number}"])


async def test_the_follow_up_right_after_the_answer_finds_it(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "antiphon.db")
    backend = ScriptedBackend(answering)
    async with serve_gateway(backend, store=store) as gateway:
        previous = None
        for number in range(20):
            events = await ask_stream(gateway, input=f"t{number}", previous_response_id=previous)
            previous = terminal(events).id
    await store.close()

    assert len(backend.plans[-1].items) == 39


async def test_a_call_and_its_output_meet_over_the_chain() -> None:
    def script(plan: Plan) -> Script:
        if plan.items[-1]["type"] == "function_call_output":
            return [TextGrew("it is sunny"), STOP]
        return [CallOpened(0, "weather", "call_w"), CallGrew(0, '{"at":"Rome"}'), STOP]

    tool = {"type": "function", "name": "weather", "parameters": {"type": "object"}}
    backend = ScriptedBackend(script)
    async with serve_gateway(backend) as gateway:
        first = (await ask(gateway, input="weather?", tools=[tool])).json
        output = {"type": "function_call_output", "call_id": "call_w", "output": "sun"}
        orphan = await ask(gateway, input=[output])
        second = await ask(gateway, input=[output], previous_response_id=first["id"], tools=[tool])

    assert orphan.status == 400
    assert second.json["status"] == "completed"
    assert [item["type"] for item in backend.plans[-1].items] == [
        "message",
        "function_call",
        "function_call_output",
    ]


async def test_the_output_of_a_call_of_long_ago_is_taken() -> None:
    def script(plan: Plan) -> Script:
        if len(plan.items) == 1:
            return [CallOpened(0, "weather", "call_w"), CallGrew(0, "{}"), STOP]
        return [TextGrew("well"), STOP]

    async with serve_gateway(ScriptedBackend(script)) as gateway:
        tool = {"type": "function", "name": "weather"}
        ids = [(await ask(gateway, input="weather?", tools=[tool])).json["id"]]
        for _ in range(40):
            ids.append(await say(gateway, "and", ids[-1]))
        output = {"type": "function_call_output", "call_id": "call_w", "output": "sun"}
        late = await ask(gateway, input=[output], previous_response_id=ids[-1])
        output["call_id"] = "call_x"
        orphan = await ask(gateway, input=[output], previous_response_id=ids[-1])

    assert late.status == 200
    assert orphan.error["code"] == "tool_call_not_found"
    assert "call_x" in orphan.error["message"]


async def test_list_input_and_unknown_items_are_remembered_whole() -> None:
    strange = {"type": "acme:thing", "id": "t_1", "deep": {"a": [1, None]}}
    message = {"role": "user", "content": [{"type": "input_text", "text": "x", "odd": True}]}
    backend = ScriptedBackend(lambda plan: [TextGrew("ok"), STOP])
    async with serve_gateway(backend) as gateway:
        first = (await ask(gateway, input=[strange, message])).json
        await ask(gateway, input="next", previous_response_id=first["id"])

    remembered = backend.plans[-1].items
    assert remembered[0] == strange
    assert remembered[1]["content"] == message["content"]


@pytest.mark.requirement("003-state-4")
async def test_a_chain_with_a_hole_is_refused_not_shortened() -> None:
    async with serve_gateway(ScriptedBackend(answering)) as gateway:
        root = await say(gateway, "root", None)
        child = await say(gateway, "child", root)
        await request(gateway, "DELETE", f"/responses/{root}")
        answer = await ask(gateway, input="x", previous_response_id=child)

    assert answer.error["code"] == "previous_response_not_found"
    assert root in answer.error["message"]


@pytest.mark.requirement("003-state-4")
@pytest.mark.parametrize("unknown", ["resp_unknown", "x", ""])
async def test_an_unknown_parent_is_refused(unknown: str) -> None:
    backend = ScriptedBackend()
    async with serve_gateway(backend) as gateway:
        answer = await ask(gateway, previous_response_id=unknown)

    assert answer.status == 400
    assert answer.error["code"] == "previous_response_not_found"
    assert "previous response with id" in answer.error["message"].lower()
    assert backend.plans == []


async def test_an_incomplete_turn_can_be_continued() -> None:
    backend = ScriptedBackend([[TextGrew("half"), Stopped("length")], [TextGrew("rest"), STOP]])
    async with serve_gateway(backend) as gateway:
        first = (await ask(gateway)).json
        second = await ask(gateway, previous_response_id=first["id"])

    assert first["status"] == "incomplete"
    assert second.json["status"] == "completed"


async def test_two_servers_on_one_memory_store_share_what_was_said() -> None:
    store = MemoryStore()
    backend = ScriptedBackend(answering)
    async with (
        serve_gateway(ScriptedBackend(answering), store=store) as one,
        serve_gateway(backend, store=store) as two,
    ):
        root = await say(one, "root", None)
        await say(two, "child", root)

    assert texts(backend.plans[0]) == spoken(["root", "child"])


@pytest.mark.parametrize(
    "output",
    [
        {"type": "function_call_output", "call_id": "call_9", "output": "x"},
        {"type": "custom_tool_call_output", "call_id": "call_9", "output": "x"},
        {"type": "shell_call_output", "call_id": "call_9", "output": []},
        {"type": "local_shell_call_output", "id": "call_9", "output": "x"},
        {"type": "apply_patch_call_output", "call_id": "call_9", "status": "completed"},
        {"type": "tool_search_output", "call_id": "call_9", "tools": []},
    ],
)
async def test_the_output_of_a_call_that_nobody_made_is_refused(output: dict[str, Any]) -> None:
    async with serve_gateway(ScriptedBackend()) as gateway:
        answer = await ask(gateway, input=[output])

    assert (answer.status, answer.error["code"]) == (400, "tool_call_not_found")
