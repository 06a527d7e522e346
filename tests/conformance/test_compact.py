"""The two compact cases of the official suite, and the new chain that begins with a window.

The suite looks at the schema and at the type of one item. Here the same requests are also
held against what reaches the model, and a window against what it must not show.
"""

from __future__ import annotations

from typing import Final, get_args

import pytest
from openai.types.responses import CompactedResponse

from antiphon.protocol.codec import Dialect
from antiphon.testing import Script
from tests.conformance.house import House, open_house
from tests.conformance.judges import Json, open_responses_problems, response_problems, sdk_problems
from tests.conformance.model import MODEL, answer
from tests.conformance.wire import Answer, ask

ALICE: Final = "My name is Alice."
PATH: Final = "/responses/compact"

both_dialects = pytest.mark.parametrize("dialect", get_args(Dialect))


def _message(role: str, text: str, kind: str = "input_text") -> Json:
    return {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}


def problems(body: Json) -> list[str]:
    """Return what all judges find wrong with a compacted window."""
    # The SDK has no type for the user messages that OpenAI itself puts there.
    others = [item for item in body["output"] if item.get("role") != "user"]
    return [
        *open_responses_problems("CompactResource", body),
        *sdk_problems(CompactedResponse, body | {"output": others}),
    ]


def summing(body: Json) -> Script:
    """Answer as the model does; write a fixed summary when asked for one."""
    if "notes to yourself" in str(body["messages"][-1]["content"]):
        return Script(text="She is called Alice.", model=MODEL)
    return answer(body)


async def compact(house: House, input: list[Json], **fields: object) -> Answer:
    return await ask(house.base_url, {"model": MODEL, "input": input, **fields}, path=PATH)


async def test_compact_response() -> None:
    async with open_house(summing) as house:
        done = await compact(
            house,
            [
                {"type": "message", "role": "user", "content": "Hello."},
                {"type": "message", "role": "assistant", "content": "Hello to you."},
            ],
            prompt_cache_key="a-key",
        )
    assert done.status == 200, done.body
    body = done.json
    assert problems(body) == []
    assert body["object"] == "response.compaction"
    assert [item["type"] for item in body["output"]] == ["message", "compaction"]
    assert body["usage"]["input_tokens"] > 0
    assert b"Alice" not in done.body


async def test_compact_missing_model() -> None:
    async with open_house(summing) as house:
        done = await ask(house.base_url, {"input": "Hello."}, path=PATH)
    assert done.status == 400
    assert done.json["error"]["code"] == "missing_required_parameter"
    assert done.json["error"]["param"] == "model"


@both_dialects
async def test_a_window_begins_a_new_chain(dialect: Dialect) -> None:
    async with open_house(summing) as house:
        done = await compact(
            house,
            [
                _message("user", ALICE),
                _message("assistant", "Hello Alice!", "output_text"),
                _message("user", "I live in Paris."),
            ],
        )
        window = done.json["output"]
        turn = await ask(
            house.base_url,
            {
                "model": MODEL,
                "input": [*window, _message("user", "What is my name?")],
                "tools": [],
                "store": False,
            },
            dialect=dialect,
        )
    assert turn.status == 200, turn.body
    assert turn.response["status"] == "completed"
    assert response_problems(turn.response, dialect) == []
    assert "x-antiphon-degraded" not in turn.headers
    sent = [message["content"] for message in house.upstream.requests[-1].json["messages"]]
    assert sent[0] == ALICE
    assert sent[1] == "I live in Paris."
    assert sent[2].endswith("She is called Alice.")
    assert sent[3] == "What is my name?"
    assert len(sent) == 4


async def test_a_chain_is_compacted_by_its_last_response() -> None:
    async with open_house(summing) as house:
        first = await ask(house.base_url, {"model": MODEL, "input": ALICE})
        done = await ask(
            house.base_url,
            {"model": MODEL, "previous_response_id": first.json["id"]},
            path=PATH,
        )
    assert done.status == 200, done.body
    assert problems(done.json) == []
    assert [item["type"] for item in done.json["output"]] == ["message", "compaction"]


async def test_calls_and_pictures_in_a_window_are_of_the_schemas() -> None:
    items: list[Json] = [
        {
            "type": "message",
            "role": "user",
            "content": [
                {"type": "input_text", "text": "Look."},
                {"type": "input_image", "image_url": "data:image/png;base64,AAAA"},
            ],
        },
        {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "done"},
        {"type": "function_call", "call_id": "c2", "name": "f", "arguments": "{}"},
    ]
    async with open_house(summing) as house:
        done = await compact(house, items)
        assert problems(done.json) == []
        kinds = [item["type"] for item in done.json["output"]]
        assert kinds == ["message", "compaction", "function_call"]
        result = {"type": "function_call_output", "call_id": "c2", "output": "42"}
        turn = await ask(house.base_url, {"model": MODEL, "input": [*done.json["output"], result]})
    assert turn.status == 200, turn.body
    roles = [message["role"] for message in house.upstream.requests[-1].json["messages"]]
    assert roles == ["user", "user", "assistant", "tool"]
