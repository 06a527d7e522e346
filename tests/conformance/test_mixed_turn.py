"""The mixed turn: reasoning, text, two interleaved calls, usage; through the chat backend.

One turn with everything in it must be the same for all readers: the referee, the SDK's stream
helper, a client that retrieves it later, and a client that did not stream.
"""

from __future__ import annotations

import json

import pytest

from antiphon.protocol.codec import decode_event, encode_response
from antiphon.protocol.machines.accumulator import ResponseAccumulator
from antiphon.protocol.machines.referee import judge_stream
from tests.conformance.house import open_house, sdk
from tests.conformance.judges import Json
from tests.conformance.turns import MIXED
from tests.conformance.wire import ask, ask_for_events

NEW_EVERY_TIME = {"id", "created_at", "completed_at"}


async def test_the_referee_accepts_it() -> None:
    async with open_house(MIXED.script) as house:
        answer = await ask_for_events(house.base_url, MIXED.request)
    assert judge_stream([decode_event(json.dumps(event)) for event in answer.events]) == []


async def test_the_accumulator_finds_nothing_to_forgive() -> None:
    async with open_house(MIXED.script) as house:
        answer = await ask_for_events(house.base_url, MIXED.request)
    accumulator = ResponseAccumulator()
    for event in answer.events:
        accumulator.feed(decode_event(json.dumps(event)))
    assert accumulator.deviations == []
    assert json.loads(encode_response(accumulator.finish())) == answer.response


async def test_the_sdk_ends_with_the_response_that_is_stored() -> None:
    async with open_house(MIXED.script) as house, sdk(house.base_url) as client:
        async with client.responses.stream(**MIXED.request) as stream:
            final = await stream.get_final_response()
        stored = await client.responses.retrieve(final.id)
    assert _plain(final) == _plain(stored)
    assert tuple(item.type for item in final.output) == MIXED.kinds


async def test_the_sdk_sees_both_calls_grow_at_once() -> None:
    async with (
        open_house(MIXED.script) as house,
        sdk(house.base_url) as client,
        client.responses.stream(**MIXED.request) as stream,
    ):
        snapshots = {
            event.output_index: event.snapshot
            async for event in stream
            if event.type == "response.function_call_arguments.delta"
        }
    assert snapshots == {2: MIXED.says[2], 3: MIXED.says[3]}


async def test_without_a_stream_it_is_the_same() -> None:
    async with open_house(MIXED.script) as house:
        streamed = await ask_for_events(house.base_url, MIXED.request)
        whole = await ask(house.base_url, MIXED.request)
    assert _without_identity(whole.json) == _without_identity(streamed.response)


@pytest.mark.requirement("RFC016-types-5", "RFC016-gain-3")
async def test_what_the_upstream_counted_is_reported() -> None:
    async with open_house(MIXED.script) as house:
        answer = await ask(house.base_url, MIXED.request)
    assert answer.json["usage"] == {
        "input_tokens": 120,
        "input_tokens_details": {"cached_tokens": 100, "cache_write_tokens": 0},
        "output_tokens": 50,
        "output_tokens_details": {"reasoning_tokens": 20},
        "total_tokens": 170,
    }


@pytest.mark.requirement("003-ids-4")
async def test_the_calls_keep_the_ids_the_model_gave_them() -> None:
    async with open_house(MIXED.script) as house:
        answer = await ask(house.base_url, MIXED.request)
    assert [item.get("call_id") for item in answer.json["output"][2:]] == ["call_w", "call_t"]


def _plain(response: object) -> Json:
    """Return the SDK's object as JSON, without what its parser adds to it."""
    body: Json = json.loads(response.model_dump_json())  # type: ignore[attr-defined]
    for item in body["output"]:
        item.pop("parsed_arguments", None)
        for part in item.get("content") or ():
            part.pop("parsed", None)
    return body


def _without_identity(response: Json) -> Json:
    items = [{k: v for k, v in item.items() if k != "id"} for item in response["output"]]
    return {k: v for k, v in response.items() if k not in NEW_EVERY_TIME} | {"output": items}
