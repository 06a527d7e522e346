"""What a model produces beside text and calls is carried or named, over HTTP and in the client."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from antiphon.client import AsyncClient
from antiphon.protocol.codec import encode_event
from antiphon.protocol.events import ResponseCompleted, event_type
from tests.asking import ask, ask_stream
from tests.client.native import Answer, native
from tests.conformance.judges import event_problems
from tests.faults.house import RawHouse, chat_chunk, frames, open_raw_house
from tests.transport.raw import Connection, chunk, head, reply

Json = dict[str, Any]

PNG = "iVBORw0KGgo="
IMAGE: Json = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}}


@asynccontextmanager
async def upstream(
    message: Json, reason: str | None = "stop", **more: Any
) -> AsyncIterator[RawHouse]:
    """Run an upstream that says this, in a stream if it is asked for one."""

    async def answer(connection: Connection) -> None:
        if b'"stream":true' in house.server.requests[-1].body:
            data = frames(chat_chunk(message, reason))
            await connection.write(head("text/event-stream") + chunk(data) + chunk(b""))
        else:
            choice = {"index": 0, "message": message, "finish_reason": reason}
            body = {"choices": [choice], **more}
            await connection.write(reply(json.dumps(body).encode()))

    async with open_raw_house(answer) as house:
        yield house


async def test_an_image_of_a_whole_answer_is_an_item_of_the_output() -> None:
    async with upstream({"content": "Here.", "images": [IMAGE]}) as house:
        answer = await ask(house.gateway)
    message, image = answer.json["output"]
    assert message["content"][0]["text"] == "Here."
    assert image["id"].startswith("ig_")
    assert (image["type"], image["status"]) == ("image_generation_call", "completed")
    assert (image["result"], image["output_format"]) == (PNG, "png")
    assert "antiphon" not in answer.json or "degraded" not in answer.json["antiphon"]


async def test_an_image_of_a_stream_has_the_events_that_clients_know() -> None:
    async with upstream({"content": "Here.", "images": [IMAGE]}) as house:
        events = await ask_stream(house.gateway)
    assert [event_type(event) for event in events if "image" in event_type(event)] == [
        "response.image_generation_call.in_progress",
        "response.image_generation_call.generating",
        "response.image_generation_call.completed",
    ]
    problems = [event_problems(json.loads(encode_event(event)), "openai") for event in events]
    assert not any(problems)
    assert isinstance(events[-1], ResponseCompleted)
    assert events[-1].response.output[1]["result"] == PNG


@pytest.mark.parametrize("is_streamed", [False, True])
async def test_the_client_carries_an_image_of_a_chat_server(is_streamed: bool) -> None:
    async with upstream({"content": None, "images": [IMAGE]}) as house:
        url = f"{house.server.url}/v1"
        async with AsyncClient(base_url=url, environ={}, wire_api="chat") as client:
            if is_streamed:
                async with client.stream(model="echo", input="draw") as stream:
                    response = await stream.final_response()
            else:
                response = await client.create(model="echo", input="draw")
    assert [item["result"] for item in response.output] == [PNG]


@pytest.mark.parametrize(
    ("message", "reason", "report"),
    [
        ({"content": "a", "audio": {"data": "UklG"}}, "stop", "audio: "),
        ({"content": "a", "images": ["https://127.0.0.1/a.png"]}, "stop", "images: "),
        ({"content": "a"}, "tired", "finish_reason: 'tired' is not known"),
        ({"content": "a"}, None, "finish_reason: the upstream gave none"),
    ],
)
@pytest.mark.parametrize("is_strict", [False, True])
async def test_what_cannot_be_carried_is_named_and_refuses_nothing(
    message: Json, reason: str | None, report: str, is_strict: bool
) -> None:
    strictly = {"x-antiphon-strict": "true"} if is_strict else {}
    async with upstream(message, reason) as house:
        whole = await ask(house.gateway, strictly)
        events = await ask_stream(house.gateway, strictly)
    assert whole.status == 200
    assert whole.json["output"][0]["content"][0]["text"] == "a"
    assert [what for what in whole.json["antiphon"]["degraded"] if what.startswith(report)]
    assert report[:7] in whole.headers["x-antiphon-degraded"]
    last = events[-1]
    assert isinstance(last, ResponseCompleted)
    assert last.response.antiphon
    assert [what for what in last.response.antiphon.degraded if what.startswith(report)]


@pytest.mark.parametrize("field", ["citations", "search_results"])
@pytest.mark.parametrize("is_streamed", [True, False])
async def test_sources_beside_the_answer_are_named_once(field: str, is_streamed: bool) -> None:
    sources = {field: ["https://example.com/a"]}

    async def answer(connection: Connection) -> None:
        if is_streamed:
            words = [({"content": word}, None) for word in ("One ", "two ", "three")]
            choices = [
                {"index": 0, "delta": delta, "finish_reason": reason}
                for delta, reason in [*words, ({}, "stop")]
            ]
            said = [json.dumps({"choices": [choice], **sources}).encode() for choice in choices]
            await connection.write(head("text/event-stream") + chunk(frames(*said)) + chunk(b""))
        else:
            choice = {"index": 0, "message": {"content": "One two three"}, "finish_reason": "stop"}
            await connection.write(reply(json.dumps({"choices": [choice], **sources}).encode()))

    async with open_raw_house(answer) as house:
        told = await ask(house.gateway)
    assert told.json["output"][0]["content"][0]["text"] == "One two three"
    [note] = told.json["antiphon"]["degraded"]
    assert note.startswith("citations: the upstream's list of sources is left out")


@pytest.mark.requirement("22-D2")
async def test_choices_beyond_the_first_are_named_by_the_gateway() -> None:
    async def answer(connection: Connection) -> None:
        choices = [
            {"index": n, "message": {"content": f"{n}"}, "finish_reason": "stop"} for n in range(3)
        ]
        await connection.write(reply(json.dumps({"choices": choices}).encode()))

    async with open_raw_house(answer) as house:
        response = (await ask(house.gateway)).json
    assert [item["content"][0]["text"] for item in response["output"]] == ["0"]
    assert response["antiphon"]["degraded"] == [
        "n: choices beyond the first are not returned; there were 2"
    ]


async def test_usage_without_a_total_is_the_sum() -> None:
    counts = {"prompt_tokens": 5, "completion_tokens": 3}
    async with upstream({"content": "a"}, usage=counts) as house:
        assert (await ask(house.gateway)).json["usage"]["total_tokens"] == 8
    body: Json = {"id": "resp_1", "status": "completed", "output": []}
    body["usage"] = {"input_tokens": 5, "output_tokens": 3}
    event = {"type": "response.completed", "sequence_number": 0, "response": body}
    lines = f"event: response.completed\ndata: {json.dumps(event)}\n\ndata: [DONE]\n\n"
    whole = Answer(pieces=[json.dumps(body).encode()], content_type="application/json")
    async with (
        native(whole, Answer(pieces=[lines.encode()]), whole) as server,
        AsyncClient(base_url=server.base_url, environ={}) as client,
    ):
        made = await client.create(model="m", input="hi")
        async with client.stream(model="m", input="hi") as stream:
            streamed = await stream.final_response()
        stored = await client.retrieve("resp_1")
    for response in (made, streamed, stored):
        assert response.usage
        assert response.usage.total_tokens == 8
