"""The seven WebSocket cases of the official compliance suite, and the official SDK's socket.

The suite validates every event and asks for little else. Here the same frames are also held
against what the model was shown, and against the SDK's types in its dialect.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any, get_args

import pytest
from openai import OpenAI
from openai.types.responses import ResponsesServerEvent
from openai.types.responses.responses_server_event import ResponseWsError
from pydantic import TypeAdapter

from antiphon.protocol.codec import Dialect, decode_event
from antiphon.protocol.machines.referee import judge_stream
from tests.conformance.house import House, open_house, sdk
from tests.conformance.judges import (
    Json,
    event_problems,
    open_responses_problems,
    response_problems,
)
from tests.conformance.model import MODEL
from tests.conformance.wire import ask as post
from tests.talking import Talk, talk

both_dialects = pytest.mark.parametrize("dialect", get_args(Dialect))


def message(text: str) -> Json:
    return {"type": "message", "role": "user", "content": text}


class Judged:
    """A socket whose every event is judged as it comes."""

    def __init__(self, socket: Talk, dialect: Dialect) -> None:
        self._socket = socket
        self._dialect: Dialect = dialect

    async def turn(self, text: str | list[Json], **more: Any) -> Json:
        """Have a turn that must complete; return its response."""
        events = await self._events(text, more)
        for event in events:
            assert event_problems(event, self._dialect) == []
        judge_stream([decode_event(json.dumps(event)) for event in events])
        response: Json = events[-1]["response"]
        assert response_problems(response, self._dialect) == []
        assert response["status"] == "completed"
        return response

    async def error(self, text: str | list[Json], **more: Any) -> str:
        """Have a turn that must be refused; return the code of its error."""
        (event,) = await self._events(text, more)
        assert "sequence_number" not in event
        ResponseWsError.model_validate_json(json.dumps(event), strict=True)
        assert open_responses_problems("WebSocketErrorEvent", event) == []
        code = event["error"]["code"]
        assert isinstance(code, str)
        return code

    async def _events(self, text: str | list[Json], more: Json) -> list[Json]:
        await self._socket.ask(**{"model": MODEL, "input": text, **more})
        return await self._socket.events()


def open_talk(house: House, dialect: Dialect) -> Any:  # Any: a context manager of a Talk
    return talk(house.base_url, {"Authorization": "Bearer x", "x-antiphon-dialect": dialect})


@both_dialects
async def test_websocket_response(dialect: Dialect) -> None:
    async with open_house() as house, open_talk(house, dialect) as socket:
        response = await Judged(socket, dialect).turn([message("Say hello in exactly 3 words.")])

    assert [item["type"] for item in response["output"]] == ["message"]


@both_dialects
async def test_websocket_sequential_responses(dialect: Dialect) -> None:
    async with open_house() as house, open_talk(house, dialect) as socket:
        talker = Judged(socket, dialect)
        first = await talker.turn("Say one.", store=False)
        second = await talker.turn("Say two.", store=False)

    assert first["id"] != second["id"]
    assert len(house.upstream.requests[1].json["messages"]) == 1


@both_dialects
async def test_websocket_continuation(dialect: Dialect) -> None:
    async with open_house() as house, open_talk(house, dialect) as socket:
        talker = Judged(socket, dialect)
        first = await talker.turn("My name is Alice.", store=False)
        second = await talker.turn(
            "What is my name?", store=False, previous_response_id=first["id"]
        )

    assert second["output"][0]["content"][0]["text"] == "Alice"
    roles = [said["role"] for said in house.upstream.requests[1].json["messages"]]
    assert roles == ["user", "assistant", "user"]


@both_dialects
async def test_websocket_reconnect_store_false_recovery(dialect: Dialect) -> None:
    async with open_house() as house:
        async with open_talk(house, dialect) as socket:
            first = await Judged(socket, dialect).turn("Remember 7.", store=False)
        async with open_talk(house, dialect) as socket:
            talker = Judged(socket, dialect)
            code = await talker.error("And now?", store=False, previous_response_id=first["id"])
            await talker.turn("Start anew.", store=False)

    assert code == "previous_response_not_found"


@both_dialects
async def test_websocket_previous_response_not_found(dialect: Dialect) -> None:
    async with open_house() as house, open_talk(house, dialect) as socket:
        code = await Judged(socket, dialect).error(
            "And now?", store=False, previous_response_id="resp_does_not_exist"
        )

    assert code == "previous_response_not_found"
    assert house.upstream.requests == []


@both_dialects
async def test_websocket_failed_continuation_evicts_cache(dialect: Dialect) -> None:
    orphan = [{"type": "function_call_output", "call_id": "call_unknown", "output": "{}"}]
    async with open_house() as house, open_talk(house, dialect) as socket:
        talker = Judged(socket, dialect)
        first = await talker.turn("Remember 7.", store=False)
        failed = await talker.error(orphan, store=False, previous_response_id=first["id"])
        missed = await talker.error("And now?", store=False, previous_response_id=first["id"])

    assert failed == "tool_call_not_found"
    assert missed == "previous_response_not_found"


@both_dialects
async def test_websocket_compact_new_chain(dialect: Dialect) -> None:
    def spoken(role: str, kind: str, text: str) -> Json:
        return {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}

    window = [
        spoken("user", "input_text", "My name is Alice."),
        spoken("assistant", "output_text", "Hello Alice!"),
        spoken("user", "input_text", "Thank you."),
    ]
    async with open_house() as house, open_talk(house, dialect) as socket:
        compacted = await post(
            house.base_url, {"model": MODEL, "input": window}, path="/responses/compact"
        )
        assert compacted.status == 200
        response = await Judged(socket, dialect).turn(
            [*compacted.json["output"], message("What is my name?")], tools=[]
        )

    assert response["output"][0]["content"][0]["text"] == "Alice"


async def test_a_warm_up_generates_nothing_and_can_be_continued() -> None:
    async with open_house() as house, open_talk(house, "openai") as socket:
        talker = Judged(socket, "openai")
        warm = await talker.turn("My name is Alice.", store=False, generate=False)
        response = await talker.turn(
            "What is my name?", store=False, previous_response_id=warm["id"]
        )

    assert warm["output"] == []
    assert response["output"][0]["content"][0]["text"] == "Alice"
    assert len(house.upstream.requests) == 1


async def test_events_of_a_lane_are_events_of_the_sdk() -> None:
    adapter: TypeAdapter[Any] = TypeAdapter(ResponsesServerEvent)
    async with open_house() as house, open_talk(house, "openai") as socket:
        await socket.ask(model=MODEL, input="What is 2 + 2?", stream_id="sums")
        events = await socket.events()

    assert {adapter.validate_python(event).stream_id for event in events} == {"sums"}


# The official SDK.


async def test_the_sdk_holds_a_conversation() -> None:
    async with (
        open_house() as house,
        sdk(house.base_url) as client,
        client.responses.connect() as connection,
    ):
        await connection.response.create(model=MODEL, input="My name is Ada.", store=False)
        async for event in connection:
            if event.type == "response.completed":
                break
        await connection.response.create(
            model=MODEL,
            input="What is my name?",
            store=False,
            previous_response_id=event.response.id,  # type: ignore[union-attr] # as its type says
        )
        text = ""
        async for event in connection:
            if event.type == "response.output_text.delta":
                text += event.delta
            if event.type == "response.completed":
                break

    assert text == "Ada"


async def test_the_sdk_goes_on_after_an_error() -> None:
    async with (
        open_house() as house,
        sdk(house.base_url) as client,
        client.responses.connect() as connection,
    ):
        await connection.response.create(
            model=MODEL, input="?", store=False, previous_response_id="resp_none"
        )
        error = await connection.recv()
        await connection.response.create(model=MODEL, input="What is 2 + 2?", store=False)
        async for event in connection:
            if event.type == "response.completed":
                break

    assert error.type == "error"
    assert error.status == 400
    assert error.error.code == "previous_response_not_found"
    assert event.response.output_text == "4"  # type: ignore[union-attr] # as its type says


async def test_the_sdk_runs_lanes_and_is_told_that_nobody_steers() -> None:
    async with (
        open_house() as house,
        sdk(house.base_url) as client,
        client.responses.connect() as connection,
    ):
        for lane, question in (("a", "What is 2 + 2?"), ("b", "What is 3 * 3?")):
            await connection.response.create(model=MODEL, input=question, stream_id=lane)
        answers: dict[str | None, str] = {}
        while len(answers) < 2:
            event = await connection.recv()
            if event.type == "response.completed":
                answers[event.stream_id] = event.response.output_text
        await connection.response.steer(
            input=[{"type": "message", "role": "user", "content": "Louder."}],
            previous_response_id="resp_any",
        )
        refused = await connection.recv()

    assert answers == {"a": "4", "b": "9"}
    assert refused.type == "error"
    assert refused.error.code == "steer_not_supported"


async def test_the_synchronous_sdk_holds_a_conversation() -> None:
    def converse(base_url: str) -> str:
        with (
            OpenAI(base_url=base_url, api_key="x", max_retries=0) as client,
            client.responses.connect() as connection,
        ):
            previous: dict[str, Any] = {}
            for text in ("My name is Ada.", "What is my name?"):
                connection.response.create(model=MODEL, input=text, store=False, **previous)
                for event in connection:
                    if event.type == "response.completed":
                        previous = {"previous_response_id": event.response.id}
                        answer = event.response.output_text
                        break
            return answer

    async with open_house() as house:
        assert await asyncio.to_thread(converse, house.base_url) == "Ada"
