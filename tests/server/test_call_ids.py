"""Every call has an id of its own, whatever ids the upstream gives, over HTTP and in the client."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from antiphon.client import AsyncClient
from antiphon.protocol.events import ResponseCompleted
from antiphon.protocol.response import Response
from antiphon.testing import Call, Script
from tests.asking import ask, ask_stream
from tests.faults.house import (
    RawHouse,
    chat_chunk,
    frames,
    open_house,
    open_raw_house,
)
from tests.transport.raw import Connection, chunk, head, reply

Json = dict[str, Any]

TOOLS: list[Json] = [{"type": "function", "name": "look"}]
ULM, BONN = '{"city":"Ulm"}', '{"city":"Bonn"}'


def entry(arguments: str, **more: Any) -> Json:
    """Return an entry of `tool_calls`, always under the same id."""
    function = {"name": "look", "arguments": arguments}
    return {"id": "call_0", "type": "function", "function": function, **more}


def whole(*calls: Json) -> bytes:
    message = {"role": "assistant", "content": None, "tool_calls": list(calls)}
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
    return json.dumps({"choices": [choice]}).encode()


@asynccontextmanager
async def upstream(*calls: Json) -> AsyncIterator[RawHouse]:
    """Run an upstream that makes these calls, each in a chunk if it is asked for a stream."""

    async def answer(connection: Connection) -> None:
        if b'"stream":true' in house.server.requests[-1].body:
            chunks = [chat_chunk({"tool_calls": [call]}) for call in calls]
            data = frames(*chunks, chat_chunk({}, "tool_calls"))
            await connection.write(head("text/event-stream") + chunk(data) + chunk(b""))
        else:
            await connection.write(reply(whole(*calls)))

    async with open_raw_house(answer) as house:
        yield house


def made(response: Response | Json) -> list[tuple[str, str]]:
    """Return the id and the arguments of every call."""
    output = response["output"] if isinstance(response, dict) else response.output
    return [(item["call_id"], item["arguments"]) for item in output]


async def test_two_equal_calls_under_one_id_in_a_whole_answer_are_two_calls() -> None:
    async with upstream(entry(ULM), entry(ULM)) as house:
        answer = await ask(house.gateway, tools=TOOLS)
    assert made(answer.json) == [("call_0", ULM), ("call_0_2", ULM)]


REPORT = "call_id: the upstream's 'call_0' is taken; it is 'call_0_2' here"


async def test_two_calls_under_one_id_in_a_whole_answer_stay_two() -> None:
    async with upstream(entry(ULM), entry(BONN)) as house:
        answer = await ask(house.gateway, tools=TOOLS)
    assert made(answer.json) == [("call_0", ULM), ("call_0_2", BONN)]
    assert answer.json["status"] == "completed"
    assert answer.json["antiphon"]["degraded"] == [REPORT]
    assert answer.headers["x-antiphon-degraded"] == REPORT


@pytest.mark.parametrize(
    "places", [({}, {}), ({"index": 0}, {"index": 0}), ({"index": 0}, {"index": 1})]
)
async def test_two_calls_under_one_id_in_a_stream_stay_two(places: tuple[Json, Json]) -> None:
    async with upstream(entry(ULM, **places[0]), entry(BONN, **places[1])) as house:
        events = await ask_stream(house.gateway, tools=TOOLS)
    last = events[-1]
    assert isinstance(last, ResponseCompleted)
    assert made(last.response) == [("call_0", ULM), ("call_0_2", BONN)]
    assert last.response.antiphon
    assert last.response.antiphon.degraded == (REPORT,)


@pytest.mark.parametrize("is_streamed", [False, True])
async def test_the_client_keeps_two_calls_under_one_id_apart(is_streamed: bool) -> None:
    async with upstream(entry(ULM), entry(BONN)) as house:
        url = f"{house.server.url}/v1"
        async with AsyncClient(base_url=url, environ={}, wire_api="chat") as client:
            params: Json = {"model": "echo", "input": "hi", "tools": TOOLS}
            if is_streamed:
                async with client.stream(**params) as stream:
                    response = await stream.final_response()
            else:
                response = await client.create(**params)
    assert made(response) == [("call_0", ULM), ("call_0_2", BONN)]
    assert response.antiphon
    assert REPORT in response.antiphon.degraded


async def test_outputs_of_derived_ids_go_back_to_their_own_calls() -> None:
    def output(call_id: str, text: str) -> Json:
        return {"type": "function_call_output", "call_id": call_id, "output": text}

    async with upstream(entry(ULM), entry(BONN)) as house:
        first = await ask(house.gateway, tools=TOOLS)
        outputs = [output("call_0_2", "sun"), output("call_0", "rain")]
        for _ in range(2):  # the same history gives the same ids
            await ask(house.gateway, input=outputs, previous_response_id=first.json["id"])
    messages = [json.loads(request.body)["messages"] for request in house.server.requests[-2:]]
    assert messages[0] == messages[1]
    _, called, *results = messages[0]
    assert [(call["id"], call["function"]["arguments"]) for call in called["tool_calls"]] == [
        ("call_0", ULM),
        ("call_0_2", BONN),
    ]
    assert [(result["tool_call_id"], result["content"]) for result in results] == [
        ("call_0", "rain"),
        ("call_0_2", "sun"),
    ]


async def test_an_upstream_that_counts_from_0_in_every_turn_gets_ids_of_their_own() -> None:
    async with open_house(Script(calls=[Call("look", id="call_0")])) as house:
        ids: list[str] = []
        previous = None
        for _ in range(3):
            outputs = [
                {"type": "function_call_output", "call_id": call_id, "output": "rain"}
                for call_id in ids[-1:]
            ]
            answer = await ask(
                house.gateway, input=outputs or "hi", tools=TOOLS, previous_response_id=previous
            )
            previous = answer.json["id"]
            ids.append(answer.json["output"][0]["call_id"])
    assert ids == ["call_0", "call_0_2", "call_0_3"]
    sent = house.upstream.requests[-1].json["messages"]
    assert [m["tool_call_id"] for m in sent if m["role"] == "tool"] == ["call_0", "call_0_2"]
