"""Compaction, sealed reasoning and counting, over a real socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest

from antiphon.backends.chat import ChatBackend
from antiphon.backends.local import MODEL, LocalBackend
from antiphon.backends.scripted import Script, ScriptedBackend
from antiphon.gateway.assemble import ServerSettings
from antiphon.plans.plan import Plan
from antiphon.protocol.deltas import Stopped, TextGrew, UsageKnown
from antiphon.protocol.errors import ContextOverflow
from antiphon.protocol.events import OutputItemAdded, OutputItemDone, OutputTextDelta
from antiphon.protocol.items import Item, text_of
from antiphon.protocol.response import Usage
from antiphon.store.memory import MemoryStore
from antiphon.testing import Call, ScriptedUpstream
from antiphon.testing import Script as Wire
from antiphon.testing.gateway import Gateway, serve_gateway
from tests.asking import Answer, ask, ask_stream, request, terminal

STOP: Final = Stopped("stop")
TRIGGER: Final[Item] = {"type": "compaction_trigger"}
USAGE: Final = Usage(input_tokens=100, output_tokens=10, total_tokens=110)
SEALED: Final = ["reasoning.encrypted_content"]


def said(role: str, text: str) -> Item:
    return {"type": "message", "role": role, "content": text}


def summing(plan: Plan) -> Script:
    """Write a summary when asked for one, and an answer otherwise; both cost the same."""
    asked = "notes to yourself" in text_of(plan.items[-1].get("content"))
    return [TextGrew("SECRET SUM" if asked else "ANSWER"), [UsageKnown(USAGE), STOP]]


def threshold(tokens: int) -> dict[str, Any]:
    return {"context_management": [{"type": "compaction", "compact_threshold": tokens}]}


def texts(plan: Plan) -> list[str]:
    return [text_of(item.get("content")).split("\n")[-1][:12] for item in plan.items]


async def compact(
    gateway: Gateway, headers: dict[str, str] | None = None, /, **body: Any
) -> Answer:
    return await request(
        gateway, "POST", "/responses/compact", {"model": "scripted"} | body, headers
    )


async def count(gateway: Gateway, **body: Any) -> Answer:
    return await request(gateway, "POST", "/responses/input_tokens", body)


@asynccontextmanager
async def unsealed() -> AsyncIterator[Gateway]:
    """Run a gateway that cannot seal."""
    async with serve_gateway(ScriptedBackend(summing)) as gateway:
        gateway.app.engine.sealer = None
        yield gateway


TALK: Final = [said("user", "first"), said("assistant", "reply"), said("user", "second")]
LONG: Final = [said("user", "one" + "x" * 2000), said("assistant", "two" + "x" * 2000)]


# POST /v1/responses/compact


async def test_a_window_goes_round() -> None:
    backend = ScriptedBackend(summing)
    async with serve_gateway(backend) as gateway:
        done = await compact(gateway, input=TALK)
        answer = await ask(gateway, input=[*done.json["output"], said("user", "third")])
        again = await compact(gateway, previous_response_id=answer.json["id"])
        last = await ask(gateway, input=[*again.json["output"], said("user", "fourth")])

    assert done.json["object"] == "response.compaction"
    assert done.json["usage"]["total_tokens"] == 110
    assert b"SECRET" not in done.body
    assert "antiphon" not in done.json
    assert texts(backend.plans[1]) == ["first", "second", "SECRET SUM", "third"]
    assert texts(backend.plans[2])[:-1] == ["first", "second", "SECRET SUM", "third", "ANSWER"]
    assert last.status == 200
    assert texts(backend.plans[3]) == ["first", "second", "third", "SECRET SUM", "fourth"]


async def test_nothing_is_stored_by_it() -> None:
    async with serve_gateway(ScriptedBackend(summing)) as gateway:
        done = await compact(gateway, input=TALK, store=True)
        missing = await request(gateway, "GET", f"/responses/{done.json['id']}")
    assert missing.status == 404


async def test_the_instructions_of_the_request_are_the_models() -> None:
    backend = ScriptedBackend(summing)
    async with serve_gateway(backend) as gateway:
        await compact(gateway, input=TALK, instructions="be a pirate", stream=True)
    assert backend.plans[0].instructions == "be a pirate"


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"model": None, "input": "x"}, "model"),
        ({"model": "", "input": "x"}, "model"),
        ({}, "input"),
        ({"input": []}, "input"),
        ({"input": [TRIGGER, said("user", "x")]}, "input[0]"),
        ({"previous_response_id": "resp_gone"}, "previous_response_id"),
    ],
)
async def test_a_mistake_is_named(body: dict[str, Any], param: str) -> None:
    async with serve_gateway(ScriptedBackend(summing)) as gateway:
        answer = await compact(gateway, **body)
    assert (answer.status, answer.error["param"]) == (400, param)


async def test_a_model_that_is_not_there_is_a_404() -> None:
    async with serve_gateway(ScriptedBackend(summing)) as gateway:
        answer = await compact(gateway, model="other", input="x")
    assert (answer.status, answer.error["code"]) == (404, "model_not_found")


async def test_an_empty_summary_is_an_upstream_error() -> None:
    async with serve_gateway(ScriptedBackend([[STOP]])) as gateway:
        answer = await compact(gateway, input=TALK)
    assert answer.status == 502
    assert answer.error["code"] == "upstream_invalid_response"
    assert "wrote no summary" in answer.error["message"]


async def test_too_long_a_context_is_read_in_pieces() -> None:
    def script(plan: Plan) -> Script:
        return [ContextOverflow("too long")] if len(plan.items) > 4 else summing(plan)

    backend = ScriptedBackend(script)
    items = [said("assistant", f"{n}" * 100) for n in range(8)]
    async with serve_gateway(backend) as gateway:
        answer = await compact(gateway, input=items)
    assert answer.status == 200
    assert answer.json["usage"]["total_tokens"] > 110


async def test_what_was_lost_is_in_the_header_and_refused_when_strict() -> None:
    backend = ScriptedBackend([[TextGrew("half"), Stopped("length")]] * 2)
    async with serve_gateway(backend) as gateway:
        answer = await compact(gateway, input=TALK)
        strict = await compact(gateway, {"x-antiphon-strict": "1"}, input=TALK)
    assert "cut off" in answer.headers["x-antiphon-degraded"]
    assert answer.json["antiphon"] == {"usage": "estimated"}
    assert strict.status == 400


async def test_without_the_extra_it_is_not_there() -> None:
    async with unsealed() as gateway:
        answer = await compact(gateway, input=TALK)
    assert answer.status == 501
    assert "pip install '.[seal]'" in answer.error["message"]


async def test_a_client_that_leaves_stops_the_model() -> None:
    called = asyncio.Event()

    def script(plan: Plan) -> Script:
        called.set()
        return [TextGrew("a"), asyncio.Event(), STOP]

    backend = ScriptedBackend(script)
    async with serve_gateway(backend) as gateway:
        asking = asyncio.create_task(compact(gateway, input=TALK))
        await asyncio.wait_for(called.wait(), 60)
        asking.cancel()
        await asyncio.wait_for(backend.stopped.wait(), 60)


# In a turn.


async def test_a_trigger_answers_with_one_compaction_item() -> None:
    backend = ScriptedBackend(summing)
    async with serve_gateway(backend) as gateway:
        events = await ask_stream(gateway, input=[*TALK, TRIGGER], store=False)
        (item,) = terminal(events).output
        answer = await ask(gateway, input=[item, said("user", "third")])

    assert item["type"] == "compaction"
    assert item["id"].startswith("cmp_")
    kinds = [type(event) for event in events]
    assert kinds.count(OutputItemAdded) == kinds.count(OutputItemDone) == 1
    assert terminal(events).usage == USAGE
    assert answer.status == 200
    assert texts(backend.plans[1]) == ["first", "second", "SECRET SUM", "third"]


async def test_a_trigger_with_a_forced_tool_is_still_answered() -> None:
    tool = {"type": "function", "name": "f", "parameters": {"type": "object"}}
    async with serve_gateway(ScriptedBackend(summing)) as gateway:
        answer = await ask(gateway, input=[*TALK, TRIGGER], tools=[tool], tool_choice="required")
    assert answer.status == 200
    assert answer.json["status"] == "completed", answer.json["error"]


async def test_a_call_that_was_sealed_open_takes_its_output() -> None:
    call = {"type": "function_call", "call_id": "b", "name": "f", "arguments": "{}"}
    output = {"type": "function_call_output", "call_id": "b", "output": "done"}
    backend = ScriptedBackend(summing)
    async with serve_gateway(backend) as gateway:
        sealed = (await ask(gateway, input=[*TALK, call, TRIGGER], store=False)).json["output"]
        answer = await ask(gateway, input=[*sealed, output])
        orphan = await ask(gateway, input=[*sealed, output | {"call_id": "c"}])
    assert answer.status == 200, answer.body
    assert [item["type"] for item in backend.plans[1].items[-2:]] == [call["type"], output["type"]]
    assert (orphan.status, orphan.error["code"]) == (400, "tool_call_not_found")


async def test_a_trigger_without_the_extra_is_not_built() -> None:
    async with unsealed() as gateway:
        answer = await ask(gateway, input=[*TALK, TRIGGER])
    assert answer.status == 501


async def test_over_the_threshold_the_stream_shows_the_item_and_goes_on() -> None:
    backend = ScriptedBackend(summing)
    async with serve_gateway(backend) as gateway:
        events = await ask_stream(gateway, input=[*LONG, said("user", "three")], **threshold(900))
        response = terminal(events)
        answer = await ask(gateway, input="four", previous_response_id=response.id)

    assert [item["type"] for item in response.output] == ["compaction", "message"]
    assert response.usage == Usage(input_tokens=200, output_tokens=20, total_tokens=220)
    kinds = [type(event) for event in events]
    assert kinds.index(OutputItemDone) < kinds.index(OutputTextDelta)
    assert answer.status == 200
    assert texts(backend.plans[2]) == ["SECRET SUM", "three", "ANSWER", "four"]


async def test_a_chain_that_is_compacted_twice_shows_only_the_last_summary() -> None:
    backend = ScriptedBackend(summing)
    async with serve_gateway(backend) as gateway:
        previous = None
        for n in range(4):
            text = f"{n}" + "y" * 2000
            answer = await ask(
                gateway, input=text, previous_response_id=previous, **threshold(1100)
            )
            previous = answer.json["id"]
    last = texts(backend.plans[-1])
    assert sum("SECRET SUM" in text for text in last) == 1
    assert last[-1][:1] == "3"
    assert not any(text[:1] == "0" for text in last)


async def test_without_the_extra_the_threshold_is_reported() -> None:
    async with unsealed() as gateway:
        answer = await ask(gateway, input=TALK, **threshold(1))
    assert answer.status == 200
    assert answer.headers["x-antiphon-degraded"].startswith("context_management")


async def test_another_owners_window_is_dropped_and_reported() -> None:
    store = MemoryStore()
    async with serve_gateway(ScriptedBackend(summing), store=store) as gateway:
        sealer = gateway.app.engine.sealer
        assert sealer is not None
        foreign = {"type": "compaction", "encrypted_content": sealer.seal("x", "compaction", b"{}")}
        answer = await ask(gateway, input=[foreign, said("user", "hi")])
        strict = await ask(gateway, {"x-antiphon-strict": "1"}, input=[foreign, said("user", "hi")])
    assert answer.status == 200
    assert "input[0] (compaction)" in answer.headers["x-antiphon-degraded"]
    assert strict.status == 400


async def test_keys_are_rotated_without_losing_a_window() -> None:
    old, new = b"o" * 32, b"n" * 32
    backend = ScriptedBackend(summing)
    async with serve_gateway(backend, settings=ServerSettings(seal_keys=(old,))) as gateway:
        window = (await compact(gateway, input=TALK)).json["output"]
    for keys, is_known in (((new, old), True), ((new,), False)):
        settings = ServerSettings(seal_keys=keys)
        async with serve_gateway(ScriptedBackend(summing), settings=settings) as gateway:
            answer = await ask(gateway, input=[*window, said("user", "third")])
        assert ("x-antiphon-degraded" not in answer.headers) is is_known


# Sealed reasoning.


@asynccontextmanager
async def thinking() -> AsyncIterator[tuple[Gateway, ScriptedUpstream]]:
    scripts = [
        Wire(reasoning="deep thought", calls=[Call("f", "{}", "call_1")]),
        Wire(text="done"),
    ]
    async with ScriptedUpstream(scripts) as upstream:
        backend = ChatBackend(upstream.base_url, profile="deepseek")
        async with serve_gateway(backend) as gateway:
            yield gateway, upstream


TOOL: Final = {"type": "function", "name": "f", "parameters": {"type": "object"}}
OUTPUT: Final = {"type": "function_call_output", "call_id": "call_1", "output": "ok"}


@pytest.mark.parametrize("has_ids", [True, False])
@pytest.mark.parametrize("reasoning", [{}, {"summary": "auto"}])
async def test_reasoning_goes_out_sealed_and_comes_back_whole(
    has_ids: bool, reasoning: dict[str, str]
) -> None:
    async with thinking() as (gateway, upstream):
        first = await ask(gateway, store=False, include=SEALED, tools=[TOOL], reasoning=reasoning)
        thought, called = first.json["output"]
        replayed = {
            "type": "reasoning",
            "summary": [],
            "content": None,
            "encrypted_content": thought["encrypted_content"],
        }
        if has_ids:
            replayed["id"] = thought["id"]
        items = [said("user", "hello"), replayed, called, OUTPUT]
        second = await ask(gateway, store=False, include=SEALED, tools=[TOOL], input=items)

    assert "x-antiphon-degraded" not in first.headers
    assert "deep" not in thought["encrypted_content"]
    assert second.status == 200
    assert "x-antiphon-degraded" not in second.headers
    messages = upstream.requests[1].json["messages"]
    assert messages[1]["reasoning_content"] == "deep thought"


async def test_without_the_wish_nothing_is_sealed() -> None:
    async with thinking() as (gateway, _):
        answer = await ask(gateway, tools=[TOOL])
    assert "encrypted_content" not in answer.json["output"][0]


async def test_a_stored_chain_brings_the_reasoning_back_too() -> None:
    async with thinking() as (gateway, upstream):
        first = await ask(gateway, include=SEALED, tools=[TOOL])
        await ask(gateway, input=[OUTPUT], previous_response_id=first.json["id"], tools=[TOOL])
    assert upstream.requests[1].json["messages"][1]["reasoning_content"] == "deep thought"


async def test_foreign_reasoning_is_dropped_and_reported() -> None:
    foreign = {"type": "reasoning", "summary": [], "encrypted_content": "gAAAAABpforeign"}
    async with serve_gateway(ScriptedBackend(summing)) as gateway:
        answer = await ask(gateway, input=[foreign, said("user", "hi")])
    assert answer.status == 200
    assert "input[0] (reasoning): encrypted_content" in answer.headers["x-antiphon-degraded"]


async def test_without_the_extra_the_wish_is_reported() -> None:
    async with unsealed() as gateway:
        answer = await ask(gateway, include=SEALED)
    assert "pip install '.[seal]'" in answer.headers["x-antiphon-degraded"]


# POST /v1/responses/input_tokens


async def test_the_count_is_the_input_of_the_real_run() -> None:
    body = {"input": "one two three", "instructions": "four five", "model": "echo"}
    async with serve_gateway(ScriptedBackend()) as gateway:
        counted = await count(gateway, **body)
        run = await ask(gateway, **body)
    assert counted.json == {"object": "response.input_tokens", "input_tokens": 5}
    assert run.json["usage"]["input_tokens"] == 5


async def test_the_history_counts() -> None:
    async with serve_gateway(ScriptedBackend()) as gateway:
        first = await ask(gateway, input="one two")
        follow = {"input": "three", "previous_response_id": first.json["id"]}
        counted = await count(gateway, **follow)
        run = await ask(gateway, **follow)
    assert counted.json["input_tokens"] == run.json["usage"]["input_tokens"] == 5


async def test_a_conversation_counts_and_is_not_locked() -> None:
    first = {**said("user", "one two"), "id": "msg_1"}
    async with serve_gateway(ScriptedBackend()) as gateway:
        made = await request(gateway, "POST", "/conversations", {"items": [first]})
        items = await gateway.store.conversations.items("local", made.json["id"])
        assert items is not None
        reference = {"type": "item_reference", "id": items[0]["id"]}
        body: dict[str, Any] = {"conversation": {"id": made.json["id"]}}
        counted = [
            await count(gateway, input=[reference, said("user", "three")], **body) for _ in range(2)
        ]
        run = await ask(gateway, input="three", **body)
    assert [answer.json["input_tokens"] for answer in counted] == [3, 3]
    assert run.json["usage"]["input_tokens"] == 3


async def test_a_conversation_that_is_not_there_is_a_404() -> None:
    async with serve_gateway(ScriptedBackend()) as gateway:
        answer = await count(gateway, input="x", conversation="conv_gone")
        both = await count(gateway, input="x", conversation="c", previous_response_id="r")
    assert (answer.status, answer.error["code"]) == (404, "conversation_not_found")
    assert both.status == 400


async def test_an_estimate_is_marked_and_notes_are_in_the_header() -> None:
    backend = ScriptedBackend([[TextGrew("x"), STOP]])
    async with serve_gateway(backend) as gateway:
        answer = await count(gateway, input="x" * 400, tools=[{"type": "web_search"}])
    assert answer.json == {
        "object": "response.input_tokens",
        "input_tokens": 100,
        "antiphon": {"usage": "estimated"},
    }
    assert "web_search" in answer.headers["x-antiphon-degraded"]
    assert backend.plans == []


async def test_a_bad_request_is_refused_as_by_create() -> None:
    async with serve_gateway(ScriptedBackend()) as gateway:
        answer = await count(gateway, input="x", truncation="maybe")
        empty = await count(gateway)
    assert (answer.status, answer.error["param"]) == (400, "truncation")
    assert (empty.status, empty.error["param"]) == (400, "input")


# truncation


@pytest.mark.parametrize("truncation", ["disabled", None])
async def test_an_overflow_is_an_error_unless_truncation_is_auto(truncation: str | None) -> None:
    backend = ScriptedBackend(lambda plan: [ContextOverflow("too long")])
    items = [said("user", str(n)) for n in range(4)]
    async with serve_gateway(backend) as gateway:
        answer = await ask(gateway, input=items, truncation=truncation)
    assert (answer.status, answer.error["code"]) == (400, "context_length_exceeded")
    assert len(backend.plans) == 1


async def test_truncation_auto_gives_up_at_the_newest_turn() -> None:
    backend = ScriptedBackend(lambda plan: [ContextOverflow("too long")])
    async with serve_gateway(backend) as gateway:
        answer = await ask(
            gateway, input=[said("user", str(n)) for n in range(4)], truncation="auto"
        )
    assert answer.status == 400
    assert [len(plan.items) for plan in backend.plans] == [4, 2, 1]


# The embedded model, for real.


@pytest.mark.slow
async def test_the_embedded_model_compacts_counts_and_goes_on() -> None:
    talk = [
        said("user", "My dog is called Rex and he is four years old."),
        said("assistant", "Rex sounds like a fine dog!"),
    ]
    question = said("user", "Hello again.")
    async with serve_gateway(LocalBackend(threads=1, context=2048)) as gateway:
        done = await compact(gateway, model=MODEL, input=talk)
        assert done.status == 200, done.body
        body: dict[str, Any] = {"input": [*done.json["output"], question]}
        counted = await count(gateway, **body)
        run = await ask(gateway, **body, max_output_tokens=1)

    assert [item["type"] for item in done.json["output"]] == ["message", "compaction"]
    assert done.json["usage"]["output_tokens"] > 0
    assert b"sounds like" not in done.body
    assert "antiphon" not in counted.json
    assert counted.json["input_tokens"] == run.json["usage"]["input_tokens"]
