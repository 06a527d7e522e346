"""What the specification demands in prose: chains, tool_choice, truncation, errors."""

from __future__ import annotations

from typing import Any

import pytest

from antiphon.testing import Call, Cut, Script, Status
from tests.conformance.house import House, open_house
from tests.conformance.judges import Json
from tests.conformance.model import MODEL
from tests.conformance.turns import TOOLS
from tests.conformance.wire import Answer, ask, ask_for_events

BOTH = Script(calls=[Call("get_weather", "{}", "call_w"), Call("get_time", "{}", "call_t")])
ONLY_TIME = {
    "type": "allowed_tools",
    "mode": "auto",
    "tools": [{"type": "function", "name": "get_time"}],
}
TOO_LONG = Script(faults=[Status(400, error_code="context_length_exceeded")])


async def _ask(house: House, input: str | list[Json], **fields: Any) -> Answer:
    return await ask(house.base_url, {"model": MODEL, "input": input, **fields})


def _heard(house: House) -> list[tuple[str, str]]:
    """Return the roles and texts of the last request that reached the model."""
    messages = house.upstream.requests[-1].json["messages"]
    return [(message["role"], _words(message["content"])) for message in messages]


def _words(content: object) -> str:
    if isinstance(content, list):
        return "".join(part["text"] for part in content)
    return str(content or "")


# previous_response_id


@pytest.mark.requirement("003-comparison-6", "003-state-1")
async def test_a_chain_is_heard_in_order() -> None:
    async with open_house([Script(text="two"), Script(text="four"), Script(text="six")]) as house:
        first = await _ask(house, "one")
        second = await _ask(house, "three", previous_response_id=first.json["id"])
        await _ask(house, "five", previous_response_id=second.json["id"])
        assert _heard(house) == [
            ("user", "one"),
            ("assistant", "two"),
            ("user", "three"),
            ("assistant", "four"),
            ("user", "five"),
        ]


async def test_a_chain_may_fork() -> None:
    async with open_house([Script(text="two"), Script(text="left"), Script(text="right")]) as house:
        first = await _ask(house, "one")
        await _ask(house, "go left", previous_response_id=first.json["id"])
        await _ask(house, "go right", previous_response_id=first.json["id"])
        assert _heard(house) == [("user", "one"), ("assistant", "two"), ("user", "go right")]


@pytest.mark.requirement("003-comparison-2", "003-input-2")
async def test_instructions_are_not_inherited() -> None:
    async with open_house() as house:
        first = await _ask(house, "one", instructions="Be brief.")
        assert _heard(house)[0] == ("system", "Be brief.")
        await _ask(house, "two", previous_response_id=first.json["id"])
        assert "system" not in [role for role, _ in _heard(house)]


@pytest.mark.requirement("003-input-6", "003-input-7")
async def test_calls_and_their_outputs_stay_together() -> None:
    async with open_house([BOTH, Script(text="done")]) as house:
        first = await _ask(house, "both", tools=TOOLS)
        outputs = [
            {"type": "function_call_output", "call_id": call["call_id"], "output": call["name"]}
            for call in first.json["output"]
        ]
        await _ask(house, outputs, previous_response_id=first.json["id"], tools=TOOLS)
        _, calls, weather, hour = house.upstream.requests[-1].json["messages"]
    assert [call["id"] for call in calls["tool_calls"]] == ["call_w", "call_t"]
    assert (weather["tool_call_id"], weather["content"]) == ("call_w", "get_weather")
    assert (hour["tool_call_id"], hour["content"]) == ("call_t", "get_time")


@pytest.mark.requirement("003-state-3")
async def test_an_item_can_be_referred_to() -> None:
    async with open_house([Script(text="two"), Script(text="four")]) as house:
        first = await _ask(house, "one")
        reference = {"type": "item_reference", "id": first.json["output"][0]["id"]}
        await _ask(house, [reference, {"role": "user", "content": "three"}])
        assert _heard(house) == [("assistant", "two"), ("user", "three")]


async def test_the_output_of_a_call_that_nobody_made_is_refused() -> None:
    async with open_house() as house:
        answer = await _ask(
            house, [{"type": "function_call_output", "call_id": "call_x", "output": "?"}]
        )
    assert answer.status == 400
    assert answer.json["error"]["type"] == "invalid_request_error"


async def test_a_failed_response_cannot_be_continued() -> None:
    broken = Script(text="The answer is that nobody", faults=[Cut(after=3)])
    async with open_house([broken, Script(text="well")]) as house:
        failed = await ask_for_events(house.base_url, {"model": MODEL, "input": "one"})
        answer = await _ask(house, "two", previous_response_id=failed.response["id"])
    assert answer.status == 400
    assert answer.json["error"]["code"] == "previous_response_not_found"


async def test_what_was_not_stored_cannot_be_continued() -> None:
    async with open_house() as house:
        first = await _ask(house, "one", store=False)
        answer = await _ask(house, "two", previous_response_id=first.json["id"])
    assert answer.status == 400
    assert answer.json["error"]["code"] == "previous_response_not_found"


# tool_choice


@pytest.mark.requirement("003-tool-choice-1", "003-tool-choice-2", "003-tool-choice-4")
@pytest.mark.parametrize(
    ("asks", "called"),
    [
        ({}, ["get_weather", "get_time"]),
        ({"tool_choice": "required"}, ["get_weather", "get_time"]),
        ({"tool_choice": "none"}, []),
        ({"tool_choice": ONLY_TIME}, ["get_time"]),
        ({"tool_choice": {"type": "function", "name": "get_time"}}, ["get_time"]),
        ({"parallel_tool_calls": False}, ["get_weather"]),
    ],
    ids=["auto", "required", "none", "allowed_tools", "named", "one at a time"],
)
@pytest.mark.parametrize("stream", [False, True])
async def test_a_call_that_is_not_allowed_is_suppressed(
    asks: Json, called: list[str], stream: bool
) -> None:
    body = {"model": MODEL, "input": "both", "tools": TOOLS, "stream": stream, **asks}
    async with open_house(BOTH) as house:
        answer = await ask(house.base_url, body)
    calls = [item["name"] for item in answer.response["output"] if item["type"] == "function_call"]
    assert calls == called
    notes = answer.response.get("antiphon", {}).get("degraded", [])
    assert len([note for note in notes if "suppressed" in note]) == 2 - len(called)


async def test_all_tools_stay_visible_to_the_model() -> None:
    async with open_house(BOTH) as house:
        await _ask(house, "both", tools=TOOLS, tool_choice=ONLY_TIME)
        tools = house.upstream.requests[-1].json["tools"]
    assert [tool["function"]["name"] for tool in tools] == ["get_weather", "get_time"]


@pytest.mark.requirement("003-tool-choice-3")
@pytest.mark.parametrize("stream", [False, True])
async def test_a_call_that_is_required_and_not_made_is_a_failure(stream: bool) -> None:
    body = {"model": MODEL, "input": "x", "tools": TOOLS, "tool_choice": "required"}
    async with open_house(Script(text="I would rather talk.")) as house:
        answer = await ask(house.base_url, body | {"stream": stream})
    assert answer.response["status"] == "failed"
    assert answer.response["error"]["code"] == "tool_choice_violated"
    assert answer.response["output"][0]["content"][0]["text"] == "I would rather talk."


HOSTED = [
    "file_search",
    "web_search",
    "web_search_preview",
    "code_interpreter",
    "computer_use_preview",
    "image_gen",
    "image_generation",
    "mcp",
]


@pytest.mark.requirement("003-comparison-8", "003-flow-4", "003-tools")
@pytest.mark.parametrize("kind", HOSTED)
async def test_a_tool_that_nobody_can_run_is_left_out_and_reported(kind: str) -> None:
    tool = {"type": kind, "name": "t"}
    async with open_house(Script(text="well")) as house:
        answer = await _ask(house, "one", tools=[tool, TOOLS[0]])
        sent = house.upstream.requests[-1].json["tools"]
        forced = await _ask(house, "one", tools=[tool], tool_choice="required")
    assert answer.json["status"] == "completed"
    assert answer.headers["x-antiphon-degraded"] == f"tools[0] ({kind}): it cannot be run here"
    assert [one["function"]["name"] for one in sent] == ["get_weather"]
    assert (forced.status, forced.json["error"]["param"]) == (400, "tool_choice")


# truncation


async def test_a_context_that_is_too_long_is_refused() -> None:
    async with open_house(TOO_LONG) as house:
        answer = await _ask(house, "one")
    assert answer.status == 400
    assert answer.json["error"]["code"] == "context_length_exceeded"


async def test_a_stream_of_a_context_that_is_too_long_ends_as_failed() -> None:
    async with open_house(TOO_LONG) as house:
        answer = await ask_for_events(house.base_url, {"model": MODEL, "input": "one"})
    assert [event["type"] for event in answer.events[-2:]] == ["error", "response.failed"]
    assert answer.response["error"]["code"] == "context_length_exceeded"


async def test_truncation_drops_the_oldest_and_says_so() -> None:
    turns = [{"role": role, "content": role} for role in ("user", "assistant", "user")]
    async with open_house([TOO_LONG, Script(text="well")]) as house:
        answer = await _ask(house, turns, truncation="auto")
        assert _heard(house) == [("user", "user")]
    assert answer.json["status"] == "completed"
    assert any(note.startswith("truncation") for note in answer.json["antiphon"]["degraded"])


# Errors


@pytest.mark.requirement("003-errors-1", "003-flow-1")
@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"input": 42}, "input"),
        ({"input": [{"role": "user"}]}, "input[0].content"),
        ({"input": "x", "tools": [{"type": "function"}]}, "tools[0].name"),
        ({"input": "x", "tool_choice": "sometimes"}, "tool_choice"),
        ({"input": "x", "max_output_tokens": 0}, "max_output_tokens"),
        ({"input": "x", "top_logprobs": 21}, "top_logprobs"),
        ({"input": "x", "metadata": {"k" * 65: "v"}}, "metadata"),
        ({"input": "x", "text": {"format": {"type": "json_schema"}}}, "text.format.name"),
        ({}, "input"),
    ],
)
async def test_a_mistake_is_a_400_that_names_it(body: Json, param: str) -> None:
    async with open_house() as house:
        answer = await ask(house.base_url, {"model": MODEL, **body})
    assert answer.status == 400
    error = answer.json["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert (error["type"], error["param"]) == ("invalid_request_error", param)
    assert isinstance(error["code"], str)
    assert error["message"]
