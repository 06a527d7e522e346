"""The nine HTTP cases of the official compliance suite, and what the suite does not look at.

The suite validates bodies and events and asks for little else. Here the same requests are
also held against what must reach the model, and against the SDK's types in its dialect.
"""

from __future__ import annotations

from typing import Final, get_args

import pytest

from antiphon.protocol.codec import Dialect
from tests.conformance.house import open_house
from tests.conformance.judges import Json, event_problems, response_problems
from tests.conformance.model import MODEL
from tests.conformance.turns import TOOLS
from tests.conformance.wire import ask, ask_for_events

PIXEL: Final = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk"
    "+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


def _message(role: str, content: str | list[Json], **more: str) -> Json:
    return {"type": "message", "role": role, "content": content, **more}


CASES: Final[dict[str, Json]] = {
    "basic-response": {"input": [_message("user", "Say hello in exactly 3 words.")]},
    "assistant-phase": {
        "input": [
            _message("assistant", "I will look it up.", phase="commentary"),
            _message("assistant", "It is Paris.", phase="final_answer"),
            _message("user", "Say that again."),
        ]
    },
    "system-prompt": {
        "input": [
            _message("system", "You are a pirate. Always respond in pirate speak."),
            _message("user", "Say hello."),
        ]
    },
    "image-input": {
        "input": [
            _message(
                "user",
                [
                    {"type": "input_text", "text": "What do you see? Answer in one sentence."},
                    {"type": "input_image", "image_url": PIXEL},
                ],
            )
        ]
    },
    "multi-turn": {
        "input": [
            _message("user", "My name is Alice."),
            _message("assistant", "Hello Alice! Nice to meet you."),
            _message("user", "What is my name?"),
        ]
    },
}
TOOL_CALLING: Final = {
    "input": [_message("user", "What's the weather like in San Francisco?")],
    "tools": [TOOLS[0]],
}
COMPACT: Final = {
    "model": MODEL,
    "prompt_cache_key": "a-key",
    "input": [_message("user", "Hello."), _message("assistant", "Hello to you.")],
}

both_dialects = pytest.mark.parametrize("dialect", get_args(Dialect))


@pytest.mark.requirement("003-comparison-1", "RFC016-types-1")
@pytest.mark.parametrize("case", CASES)
@both_dialects
async def test_a_case_is_answered(case: str, dialect: Dialect) -> None:
    async with open_house() as house:
        answer = await ask(house.base_url, {"model": MODEL, **CASES[case]}, dialect=dialect)
    assert answer.status == 200
    assert answer.headers["Content-Type"].startswith("application/json")
    assert response_problems(answer.json, dialect) == []
    assert answer.json["status"] == "completed"
    assert [item["type"] for item in answer.json["output"]] == ["message"]


@pytest.mark.requirement("003-comparison-5")
@both_dialects
async def test_streaming_response(dialect: Dialect) -> None:
    body = {"model": MODEL, "input": [_message("user", "Count from 1 to 5.")]}
    async with open_house() as house:
        answer = await ask_for_events(house.base_url, body, dialect)
    assert answer.headers["Content-Type"].startswith("text/event-stream")
    assert [problem for event in answer.events for problem in event_problems(event, dialect)] == []
    assert response_problems(answer.response, dialect) == []
    assert answer.response["status"] == "completed"


@pytest.mark.requirement("003-comparison-4", "003-output-2")
@both_dialects
async def test_tool_calling(dialect: Dialect) -> None:
    async with open_house() as house:
        answer = await ask(house.base_url, {"model": MODEL, **TOOL_CALLING}, dialect=dialect)
    assert response_problems(answer.json, dialect) == []
    (call,) = answer.json["output"]
    assert (call["type"], call["name"], call["status"]) == (
        "function_call",
        "get_weather",
        "completed",
    )
    assert answer.json["tools"] == [TOOLS[0] | {"strict": None}]


@pytest.mark.requirement("003-streaming-4")
@both_dialects
async def test_tool_calling_streaming(dialect: Dialect) -> None:
    async with open_house() as house:
        answer = await ask_for_events(house.base_url, {"model": MODEL, **TOOL_CALLING}, dialect)
    told = [event["type"].removeprefix("response.") for event in answer.events]
    assert told[2] == "output_item.added"
    assert set(told[3:-3]) == {"function_call_arguments.delta"}
    assert told[-3:] == ["function_call_arguments.done", "output_item.done", "completed"]


@pytest.mark.requirement("003-input-5")
async def test_the_system_prompt_reaches_the_model_as_one() -> None:
    async with open_house() as house:
        await ask(house.base_url, {"model": MODEL, **CASES["system-prompt"]})
    system, user = house.upstream.requests[0].json["messages"]
    assert (system["role"], user["role"]) == ("system", "user")
    assert "pirate" in str(system["content"])


@pytest.mark.requirement("003-content-1", "003-content-3")
async def test_the_image_reaches_the_model() -> None:
    async with open_house() as house:
        await ask(house.base_url, {"model": MODEL, **CASES["image-input"]})
    (message,) = house.upstream.requests[0].json["messages"]
    text, image = message["content"]
    assert text == {"type": "text", "text": "What do you see? Answer in one sentence."}
    assert image["image_url"]["url"] == PIXEL


@pytest.mark.requirement("003-input-3", "003-input-4")
async def test_the_turns_reach_the_model_in_order() -> None:
    async with open_house() as house:
        answer = await ask(house.base_url, {"model": MODEL, **CASES["multi-turn"]})
    roles = [message["role"] for message in house.upstream.requests[0].json["messages"]]
    assert roles == ["user", "assistant", "user"]
    assert answer.json["output"][0]["content"][0]["text"] == "Alice"


async def test_the_phase_of_a_message_survives() -> None:
    async with open_house() as house:
        answer = await ask(house.base_url, {"model": MODEL, **CASES["assistant-phase"]})
        items = await house.gateway.store.input_items("local", answer.json["id"])
    assert items is not None
    assert [item.get("phase") for item in items] == ["commentary", "final_answer", None]
