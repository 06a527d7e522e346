"""Every kind of turn, in order: the semantic rules of the protocol on real streams.

Three judges check each stream: our referee (`protocol/machines/referee.py`), the independent
models (every single event), and the stream helper of the official SDK, which raises on what
it cannot follow.
"""

from __future__ import annotations

import json
import re
from typing import Any, get_args

import openai
import pytest
from openai.types.responses import Response as SdkResponse

from antiphon.backends.scripted import ScriptedBackend
from antiphon.protocol.codec import Dialect, decode_event
from antiphon.protocol.deltas import AnnotationAdded, Delta, Stopped, TextGrew, TierUsed
from antiphon.protocol.machines.referee import judge_stream
from antiphon.testing.gateway import serve_gateway
from tests.conformance.house import open_house, sdk
from tests.conformance.judges import Json, event_problems, response_problems
from tests.conformance.turns import TURNS, Turn
from tests.conformance.wire import ask, ask_for_events, fetch

# Where the two dialects use different words.
OWN_WORDS = {"reasoning", "mixed", "failure"}
LOGPROB = {"token": "Rain", "logprob": -0.1, "bytes": [82, 97, 105, 110], "top_logprobs": []}
CITATION = {
    "type": "url_citation",
    "url": "https://example.org",
    "title": "An example",
    "start_index": 0,
    "end_index": 4,
}
ANNOTATED: list[Delta] = [
    TextGrew("Rain", (LOGPROB,)),
    AnnotationAdded(CITATION),
    TextGrew(", they say."),
    TierUsed("flex"),
    Stopped("stop"),
]

both_dialects = pytest.mark.parametrize("dialect", get_args(Dialect))
every_turn = pytest.mark.parametrize("turn", TURNS.values(), ids=list(TURNS))


@pytest.mark.requirement("003-flow-7", "003-streaming")
@every_turn
@both_dialects
async def test_the_referee_accepts_the_stream(turn: Turn, dialect: Dialect) -> None:
    async with open_house(turn.script) as house:
        answer = await ask_for_events(house.base_url, turn.request, dialect)
    events = [decode_event(json.dumps(event)) for event in answer.events]
    assert judge_stream(events) == []


@pytest.mark.requirement("RFC016-types-4")
@every_turn
@both_dialects
async def test_every_event_is_valid(turn: Turn, dialect: Dialect) -> None:
    async with open_house(turn.script) as house:
        answer = await ask_for_events(house.base_url, turn.request, dialect)
    assert _problems(answer.events, dialect) == []


@every_turn
@both_dialects
async def test_the_end_is_what_is_stored(turn: Turn, dialect: Dialect) -> None:
    async with open_house(turn.script) as house:
        answer = await ask_for_events(house.base_url, turn.request, dialect)
        stored = await fetch(house.base_url, f"/responses/{answer.response['id']}", dialect=dialect)
    assert stored.json == answer.response
    assert response_problems(stored.json, dialect) == []


@pytest.mark.requirement("003-comparison-3", "003-output-1", "RFC016-types-4")
@every_turn
@both_dialects
async def test_the_end_tells_what_the_model_said(turn: Turn, dialect: Dialect) -> None:
    async with open_house(turn.script) as house:
        answer = await ask_for_events(house.base_url, turn.request, dialect)
    assert answer.events[-1]["type"] == f"response.{turn.status}"
    assert answer.response["status"] == turn.status
    assert tuple(item["type"] for item in answer.response["output"]) == turn.kinds
    assert tuple(map(_said, answer.response["output"])) == turn.says
    assert answer.response["usage"] is not None


@pytest.mark.parametrize("name", [name for name in TURNS if name != "failure"])
async def test_the_stream_helper_of_the_sdk_follows(name: str) -> None:
    turn = TURNS[name]
    async with (
        open_house(turn.script) as house,
        sdk(house.base_url) as client,
        client.responses.stream(**turn.request) as stream,
    ):
        events: list[Any] = [event async for event in stream]  # one of sixty classes each
    last = events[-1]
    assert last.type == f"response.{turn.status}"
    assert isinstance(last.response, SdkResponse)
    assert tuple(item.type for item in last.response.output) == turn.kinds


async def test_the_sdk_raises_at_the_error_event_and_names_the_response() -> None:
    turn = TURNS["failure"]
    async with open_house(turn.script) as house, sdk(house.base_url) as client:
        async with client.responses.stream(**turn.request) as stream:
            created: Any = await anext(stream)
            with pytest.raises(openai.APIError) as caught:
                await stream.until_done()
        kept = await client.responses.retrieve(created.response.id)
    assert caught.value.code == "upstream_closed"
    assert kept.id in caught.value.message
    assert tuple(item.type for item in kept.output) == turn.kinds


@pytest.mark.requirement("003-flow-6")
@pytest.mark.parametrize("name", [name for name in TURNS if name != "failure"])
@both_dialects
async def test_whole_and_streamed_answers_are_equal(name: str, dialect: Dialect) -> None:
    turn = TURNS[name]
    async with open_house(turn.script) as house:
        streamed = await ask_for_events(house.base_url, turn.request, dialect)
        whole = await ask(house.base_url, turn.request, dialect=dialect)
    assert response_problems(whole.json, dialect) == []
    assert _without_identity(whole.json) == _without_identity(streamed.response)


async def test_a_failure_without_a_stream_is_an_http_error() -> None:
    turn = TURNS["failure"]
    async with open_house(turn.script) as house:
        answer = await ask(house.base_url, turn.request)
    assert answer.status == 502
    assert answer.json["error"]["code"] == "upstream_closed"


@pytest.mark.requirement("003-comparison-7")
async def test_raw_reasoning_has_the_name_of_its_dialect() -> None:
    turn = TURNS["reasoning"]
    async with open_house(turn.script) as house:
        openai = await ask_for_events(house.base_url, turn.request, "openai")
        open_responses = await ask_for_events(house.base_url, turn.request, "open-responses")
    assert _names(openai.events, "reasoning") == {
        "response.reasoning_text.delta",
        "response.reasoning_text.done",
    }
    assert _names(open_responses.events, "reasoning") == {
        "response.reasoning.delta",
        "response.reasoning.done",
    }


async def test_a_summary_goes_out_on_the_summary_channel_only() -> None:
    turn = TURNS["summary"]
    async with open_house(turn.script) as house:
        answer = await ask_for_events(house.base_url, turn.request)
    assert _names(answer.events, "reasoning") == {
        f"response.reasoning_summary_{what}"
        for what in ("part.added", "text.delta", "text.done", "part.done")
    }
    assert "content" not in answer.response["output"][0]


async def test_interleaved_arguments_reach_their_own_calls() -> None:
    turn = TURNS["interleaved calls"]
    async with open_house(turn.script) as house:
        answer = await ask_for_events(house.base_url, turn.request)
    told: dict[int, str] = {}
    for event in answer.events:
        if event["type"] == "response.function_call_arguments.delta":
            index = event["output_index"]
            told[index] = told.get(index, "") + event["delta"]
    assert told == dict(enumerate(turn.says))


@pytest.mark.requirement("RFC016-gain-2")
@pytest.mark.parametrize(
    ("name", "reason"), [("length", "max_output_tokens"), ("content filter", "content_filter")]
)
async def test_an_incomplete_response_says_why(name: str, reason: str) -> None:
    turn = TURNS[name]
    async with open_house(turn.script) as house:
        answer = await ask_for_events(house.base_url, turn.request)
    assert answer.response["incomplete_details"] == {"reason": reason}
    assert answer.response["output"][-1]["status"] == "incomplete"


@pytest.mark.parametrize("name", sorted(set(TURNS) - OWN_WORDS))
async def test_elsewhere_one_stream_serves_both_dialects(name: str) -> None:
    turn = TURNS[name]
    async with open_house(turn.script) as house:
        openai = await ask_for_events(house.base_url, turn.request, "openai")
        open_responses = await ask_for_events(house.base_url, turn.request, "open-responses")
    assert _problems(openai.events, "open-responses") == []
    assert _problems(open_responses.events, "openai") == []


@pytest.mark.requirement("003-content-limits-3")
@both_dialects
async def test_notes_on_a_text_are_told_in_order(dialect: Dialect) -> None:
    async with serve_gateway(ScriptedBackend([ANNOTATED])) as gateway:
        answer = await ask_for_events(gateway.base_url, {"input": "Rain?"}, dialect)
    assert _problems(answer.events, dialect) == []
    assert judge_stream([decode_event(json.dumps(event)) for event in answer.events]) == []
    (part,) = answer.response["output"][0]["content"]
    assert part["annotations"] == [CITATION]
    assert part["logprobs"] == [LOGPROB]
    assert answer.response["service_tier"] == "flex"


@pytest.mark.requirement("003-errors-4")
@both_dialects
async def test_a_failure_is_an_error_event_and_then_the_end(dialect: Dialect) -> None:
    turn = TURNS["failure"]
    async with open_house(turn.script) as house:
        answer = await ask_for_events(house.base_url, turn.request, dialect)
    error, failed = answer.events[-2:]
    failure = failed["response"]["error"]
    assert error["type"] == "error"
    assert error["error"]["code"] == failure["code"] == "upstream_closed"
    assert error["error"]["message"].startswith(failure["message"])
    flat = {key: error.get(key) for key in ("code", "message")}
    assert flat == (failure if dialect == "openai" else {"code": None, "message": None})


@both_dialects
async def test_the_nested_error_names_the_response_that_keeps_what_was_produced(
    dialect: Dialect,
) -> None:
    turn = TURNS["failure"]
    async with open_house(turn.script) as house:
        answer = await ask_for_events(house.base_url, turn.request, dialect)
        nested = answer.events[-2]["error"]
        (path,) = re.findall(r"GET /v1(/responses/[\w-]+)", nested["message"])
        kept = await fetch(house.base_url, path)
    assert set(nested) == {"type", "code", "message", "param"}
    assert kept.json["status"] == "failed"
    assert kept.json["output"] == answer.response["output"] != []


async def test_the_nested_error_of_a_response_that_is_not_stored_promises_nothing() -> None:
    turn = TURNS["failure"]
    async with open_house(turn.script) as house:
        answer = await ask_for_events(house.base_url, turn.request | {"store": False}, "openai")
    message = answer.events[-2]["error"]["message"]
    assert answer.response["id"] in message
    assert "GET" not in message


async def test_the_error_event_is_the_same_when_the_stream_is_read_again() -> None:
    turn = TURNS["failure"]
    async with open_house(turn.script) as house:
        answer = await ask_for_events(house.base_url, turn.request, "openai")
        path = f"/responses/{answer.response['id']}?stream=true"
        again = await fetch(house.base_url, path)
    assert again.events[-2] == answer.events[-2]


def _problems(events: list[Json], dialect: Dialect) -> list[str]:
    return [problem for event in events for problem in event_problems(event, dialect)]


def _said(item: Json) -> str:
    if item["type"] == "function_call":
        return str(item["arguments"])
    parts = [*item.get("summary", ()), *item.get("content", ())]
    return "".join(part.get("text") or part.get("refusal") or "" for part in parts)


def _names(events: list[Json], word: str) -> set[str]:
    return {event["type"] for event in events if f".{word}" in event["type"]}


def _without_identity(response: Json) -> Json:
    """Return the response without what is new in every run: ids and times."""
    items = [{k: v for k, v in item.items() if k != "id"} for item in response["output"]]
    rest = {k: v for k, v in response.items() if k not in ("id", "created_at", "completed_at")}
    return rest | {"output": items}
