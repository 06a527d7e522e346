"""Bugs that other gateways shipped, each of which must be impossible here.

One test for each; where a test elsewhere already proves it, `docs/topics/faults.md` names that
one. Everything goes through the whole house: upstream, chat backend, engine, builder, socket.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from antiphon.protocol.events import (
    ArgumentsDelta,
    ArgumentsDone,
    ContentPartAdded,
    ContentPartDone,
    ErrorEvent,
    Event,
    OutputItemAdded,
    OutputItemDone,
    OutputTextDelta,
    OutputTextDone,
    ReasoningTextDelta,
    ReasoningTextDone,
    ResponseCompleted,
    ResponseCreated,
    ResponseFailed,
    ResponseInProgress,
)
from antiphon.store.sqlite import SqliteStore
from antiphon.testing import Call, Cut, ErrorChunk, Script, Stall, Status
from tests.asking import ask, ask_stream, request, terminal
from tests.faults.house import (
    PATIENCE,
    chat_chunk,
    frames,
    open_house,
    open_raw_house,
    send_events,
    stored,
)
from tests.faults.listening import listen, open_request
from tests.scraping import value_of

TOOLS = [
    {"type": "function", "name": name, "parameters": {"type": "object"}} for name in ("f", "g")
]
CALLS = [Call("f", '{"a": "first call"}', "call_f"), Call("g", '{"b": "second call"}', "call_g")]
INSIDE = (
    *(ContentPartAdded, ContentPartDone, OutputTextDelta, OutputTextDone),
    *(ReasoningTextDelta, ReasoningTextDone, ArgumentsDelta, ArgumentsDone),
)
EVERYTHING = Script(reasoning="let me think", text="Let me look.", calls=CALLS, interleave=True)


def fragment(
    arguments: str | None, *, index: int | None = 0, call_id: str | None = None, name: str = ""
) -> dict[str, Any]:
    """Return a delta with a fragment of a call."""
    function = {"arguments": arguments} | ({"name": name} if name else {})
    return {"tool_calls": [{"index": index, "id": call_id, "function": function}]}


def of_type(events: Iterable[Event], *kinds: type[Any]) -> list[Any]:
    return [event for event in events if isinstance(event, kinds)]


async def told(*deltas: dict[str, Any], finish: str = "stop", **body: Any) -> list[Event]:
    """Return the events of an answer that consists of these deltas."""
    chunks = [chat_chunk(delta) for delta in deltas]
    pieces = frames(*chunks, chat_chunk({}, finish))
    async with open_raw_house(send_events(pieces)) as house:
        return await ask_stream(house.gateway, tools=TOOLS, **body)


async def everything() -> list[Event]:
    """Return the events of a turn with reasoning, text and two interleaved calls."""
    async with open_house(EVERYTHING) as house:
        return await ask_stream(house.gateway, tools=TOOLS)


# Streams.


@pytest.mark.requirement("003-streaming-1")
async def test_the_response_has_one_id_from_created_to_the_store() -> None:
    async with open_house(EVERYTHING) as house:
        events = await ask_stream(house.gateway, tools=TOOLS)
        kept = await request(house.gateway, "GET", f"/responses/{terminal(events).id}")

    states = of_type(events, ResponseCreated, ResponseInProgress, ResponseCompleted)
    assert {event.response.id for event in states} == {kept.json["id"]}
    assert len(states) == 3


@pytest.mark.requirement("003-streaming-2")
async def test_an_item_has_one_id_from_added_to_the_final_output() -> None:
    events = await everything()
    added = {event.output_index: event.item["id"] for event in of_type(events, OutputItemAdded)}
    done = {event.output_index: event.item["id"] for event in of_type(events, OutputItemDone)}
    inside = {(e.output_index, e.item_id) for e in of_type(events, *INSIDE)}

    assert added == done == dict(inside)
    assert list(added.values()) == [item["id"] for item in terminal(events).output]


@pytest.mark.requirement("003-streaming-2")
async def test_nothing_is_done_that_was_not_added() -> None:
    events = await everything()
    seen: set[str] = set()
    for event in events:
        if isinstance(event, OutputItemAdded):
            seen.add(event.item["id"])
        elif isinstance(event, OutputItemDone):
            assert event.item["id"] in seen
        elif isinstance(event, INSIDE):
            assert event.item_id in seen


async def test_argument_deltas_with_a_null_id_are_kept() -> None:
    events = await told(
        fragment("", call_id="call_1", name="f"),
        fragment('{"a":', call_id=None),
        fragment("1}", call_id=""),
        finish="tool_calls",
    )

    (call,) = terminal(events).output
    assert (call["call_id"], call["arguments"]) == ("call_1", '{"a":1}')


async def test_argument_deltas_without_an_index_are_kept() -> None:
    events = await told(
        fragment('{"a":', index=None, call_id="call_1", name="f"), fragment("1}", index=None)
    )

    assert terminal(events).output[0]["arguments"] == '{"a":1}'


@pytest.mark.parametrize("finish", ["tool_calls", "stop"])
async def test_arguments_that_come_all_at_once_do_not_become_an_empty_object(finish: str) -> None:
    events = await told(fragment('{"a":1}', call_id="call_1", name="f"), finish=finish)

    deltas = of_type(events, ArgumentsDelta)
    (done,) = of_type(events, ArgumentsDone)
    assert "".join(event.delta for event in deltas) == done.arguments == '{"a":1}'
    assert terminal(events).output[0]["arguments"] == '{"a":1}'


async def test_arguments_that_are_an_object_become_its_text() -> None:
    function = {"name": "f", "arguments": {"a": 1}}
    events = await told({"tool_calls": [{"index": 0, "id": "call_1", "function": function}]})

    assert terminal(events).output[0]["arguments"] == '{"a":1}'


async def test_the_first_finished_call_does_not_end_the_stream() -> None:
    async with open_house(Script(calls=CALLS)) as house:
        events = await ask_stream(house.gateway, tools=TOOLS)

    assert [event.item["name"] for event in of_type(events, OutputItemDone)] == ["f", "g"]
    assert isinstance(events[-1], ResponseCompleted)


async def test_every_item_has_an_index_of_its_own() -> None:
    events = await everything()

    assert [event.output_index for event in of_type(events, OutputItemAdded)] == [0, 1, 2, 3]


async def test_the_message_is_in_the_final_output() -> None:
    response = terminal(await everything())

    kinds = [item["type"] for item in response.output]
    assert kinds == ["reasoning", "message", "function_call", "function_call"]
    assert response.output_text == "Let me look."


@pytest.mark.requirement("003-streaming-3")
async def test_the_whole_text_is_told_when_it_is_done() -> None:
    events = await everything()
    (done,) = of_type(events, OutputTextDone)

    assert done.text == "".join(event.delta for event in of_type(events, OutputTextDelta))


async def test_items_are_done_in_the_order_of_their_indexes() -> None:
    # The second call is whole long before the first one.
    events = await told(
        fragment('{"a":', index=0, call_id="call_f", name="f"),
        fragment("{}", index=1, call_id="call_g", name="g"),
        fragment('"late"}', index=0),
        {"content": "and a word"},
    )

    assert [event.output_index for event in of_type(events, OutputItemDone)] == [0, 1, 2]
    assert [item.get("arguments") for item in terminal(events).output] == [
        '{"a":"late"}',
        "{}",
        None,
    ]


async def test_the_index_of_parts_begins_again_in_each_item() -> None:
    events = await told(
        {"reasoning_content": "hm"},
        {"content": "one"},
        {"reasoning_content": "hm again"},
        {"content": "two"},
    )

    parts = of_type(events, ContentPartAdded)
    assert [event.content_index for event in parts] == [0, 0, 0, 0]
    assert [event.output_index for event in parts] == [0, 1, 2, 3]


@pytest.mark.requirement("003-content-limits-4")
async def test_a_reasoning_item_is_done_as_a_reasoning_item() -> None:
    events = await everything()
    first = of_type(events, OutputItemDone)[0]

    assert first.item["type"] == "reasoning"
    assert first.item["content"] == [{"type": "reasoning_text", "text": "let me think"}]


async def test_text_in_the_middle_of_arguments_breaks_neither() -> None:
    events = await told(
        fragment('{"a":', call_id="call_1", name="f"),
        {"content": "By the way, "},
        fragment("1}"),
        {"content": "that is all."},
    )

    response = terminal(events)
    assert response.status == "completed"
    assert response.output[0]["arguments"] == '{"a":1}'
    assert response.output_text == "By the way, that is all."


@pytest.mark.parametrize("after", [2, 3])
async def test_a_stream_cut_right_behind_a_new_item_still_ends(after: int) -> None:
    async with open_house(Script(calls=CALLS, faults=[Cut(after)])) as house:
        events = await ask_stream(house.gateway, tools=TOOLS)

    assert isinstance(events[-1], ResponseFailed)
    assert terminal(events).output[0]["status"] == "incomplete"
    assert terminal(events).output[0]["name"] == "f"


async def test_text_is_told_once_when_the_first_attempt_fails() -> None:
    script = [Script(text="one two", faults=[Status(503)]), Script(text="one two")]
    async with open_house(script) as house:
        events = await ask_stream(house.gateway)

    assert "".join(event.delta for event in of_type(events, OutputTextDelta)) == "one two"


async def test_an_error_in_mid_stream_is_told_in_the_words_of_the_protocol() -> None:
    fault = ErrorChunk(3, {"message": "the GPU is on fire", "code": "on_fire"})
    async with open_house(Script(text="one two three", faults=[fault])) as house:
        answer = await ask(house.gateway, stream=True)
        events = await ask_stream(house.gateway)

    error = events[-2]
    assert isinstance(error, ErrorEvent)
    assert "the GPU is on fire" in error.message
    assert isinstance(events[-1], ResponseFailed)
    assert answer.body.count(b"event: error\n") == 1
    assert terminal(events).output_text == "one two"


async def test_interleaved_calls_do_not_mix_their_arguments() -> None:
    events = await everything()

    calls = terminal(events).output[2:]
    assert [call["arguments"] for call in calls] == [call.arguments for call in CALLS]
    assert [call["call_id"] for call in calls] == ["call_f", "call_g"]


async def test_a_call_that_the_upstream_confirms_again_is_one_call() -> None:
    whole = fragment('{"a":1}', call_id="call_1", name="f")
    events = await told(whole, whole, finish="tool_calls")

    assert [item["call_id"] for item in terminal(events).output] == ["call_1"]


async def test_two_calls_under_one_id_get_two() -> None:
    events = await told(
        fragment('{"a":1}', index=0, call_id="same", name="f"),
        fragment('{"a":2}', index=1, call_id="same", name="g"),
    )

    one, two = terminal(events).output
    assert one["call_id"] != two["call_id"]
    assert (one["arguments"], two["arguments"]) == ('{"a":1}', '{"a":2}')


async def test_the_body_ends_behind_a_failure() -> None:
    async with open_house(Script(text="one two three", faults=[Cut(3)])) as house:
        reader, writer = await open_request(house.gateway.address, {"input": "x", "stream": True})
        async with asyncio.timeout(PATIENCE):
            seen = await reader.readuntil(b"data: [DONE]\n\n\r\n0\r\n\r\n")
        writer.close()

    assert b"event: response.failed\n" in seen


@pytest.mark.requirement("RFC016-types-5", "RFC016-metric-1")
@pytest.mark.parametrize("usage", ["counted", None])
async def test_usage_is_in_every_stream_counted_or_not(usage: Any) -> None:
    async with open_house(Script(text="one two three", usage=usage)) as house:
        response = terminal(await ask_stream(house.gateway, input="four words of input"))

    assert response.usage is not None
    assert response.usage.input_tokens > 0
    assert response.usage.output_tokens > 0
    assert response.usage.total_tokens == (
        response.usage.input_tokens + response.usage.output_tokens
    )
    assert bool(response.antiphon) is (usage is None)


@pytest.mark.requirement("RFC016-gain-2")
async def test_a_cut_for_length_is_not_called_complete() -> None:
    async with open_house(Script(text="one two", finish_reason="length")) as house:
        response = terminal(await ask_stream(house.gateway))
        whole = (await ask(house.gateway)).json

    assert response.status == whole["status"] == "incomplete"
    assert response.incomplete_details is not None
    assert response.incomplete_details.reason == "max_output_tokens"


@pytest.mark.requirement("RFC016-gain-3")
async def test_cached_tokens_are_those_that_the_upstream_counted() -> None:
    usage = {
        "prompt_tokens": 100,
        "completion_tokens": 5,
        "total_tokens": 105,
        "prompt_tokens_details": {"cached_tokens": 64},
        "completion_tokens_details": {"reasoning_tokens": 3},
    }
    async with open_house(Script(text="one", usage=usage)) as house:
        response = terminal(await ask_stream(house.gateway))

    assert response.usage is not None
    assert response.usage.input_tokens_details.cached_tokens == 64
    assert response.usage.output_tokens_details.reasoning_tokens == 3


# State.


async def test_no_history_is_lost_in_silence(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "antiphon.db")
    async with open_house(store=store) as house:
        first = terminal(await ask_stream(house.gateway, input="my name is Ann"))
        await ask(house.gateway, input="who am I?", previous_response_id=first.id)
        sent = house.upstream.requests[-1].json["messages"]
        gone = await request(house.gateway, "DELETE", f"/responses/{first.id}")
        after = await ask(house.gateway, input="and now?", previous_response_id=first.id)
    await store.close()

    assert [message["role"] for message in sent] == ["user", "assistant", "user"]
    assert gone.status == 200
    assert after.error["code"] == "previous_response_not_found"
    assert len(house.upstream.requests) == 2


async def test_a_failed_response_is_not_the_head_of_a_chain() -> None:
    scripts = [Script(text="one two three", faults=[Cut(3)]), Script(text="ok")]
    async with open_house(scripts) as house:
        failed = terminal(await ask_stream(house.gateway))
        answer = await ask(house.gateway, previous_response_id=failed.id)

    assert failed.status == "failed"
    assert answer.error["code"] == "previous_response_not_found"
    assert len(house.upstream.requests) == 1


async def test_a_response_is_in_the_store_before_it_is_complete(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "antiphon.db")
    async with (
        open_house(Script(text="one two three", faults=[Stall(3)]), store=store) as house,
        listen(house.gateway.base_url, input="a question") as listener,
    ):
        await listener.until_text("one two")
        path = f"/responses/{listener.response_id}"
        running = await request(house.gateway, "GET", path)
        items = await request(house.gateway, "GET", f"{path}/input_items")
        house.upstream.release()
        await listener.rest()
    await store.close()

    assert running.json["status"] == "in_progress"
    assert items.json["data"][0]["content"][0]["text"] == "a question"


# Accounting.


@pytest.mark.requirement("RFC016-metric-1")
@pytest.mark.parametrize("usage", ["counted", None])
async def test_an_interrupted_answer_is_not_billed_as_zero(usage: Any) -> None:
    script = Script(text="one two three", usage=usage, faults=[Cut(3)])
    async with open_house(script) as house:
        response = terminal(await ask_stream(house.gateway))

    assert response.status == "failed"
    assert response.usage is not None
    assert response.usage.input_tokens > 0
    assert response.usage.output_tokens > 0


async def test_a_cancelled_answer_is_not_billed_as_zero() -> None:
    async with open_house(Script(text="one two three", faults=[Stall(3)])) as house:
        async with listen(house.gateway.base_url) as listener:
            await listener.until_text("one two")
            listener.leave()
        kept = await stored(house.gateway, listener.response_id, "cancelled")
        metrics = (await request(house.gateway, "GET", "/../metrics")).body.decode()

    assert kept.usage is not None
    assert kept.usage.output_tokens > 0
    counted = value_of(metrics, "antiphon_tokens_total", kind="output", basis="counted")
    assert counted == kept.usage.output_tokens


async def test_an_incomplete_answer_is_not_billed_as_zero() -> None:
    script = Script(text="one two three", finish_reason="length", usage=None)
    async with open_house(script) as house:
        response = terminal(await ask_stream(house.gateway))

    assert response.status == "incomplete"
    assert response.usage is not None
    assert response.usage.output_tokens > 0


async def test_tool_schemas_count_in_the_estimate() -> None:
    heavy = {"type": "object", "description": "x" * 4000}
    tools = [{"type": "function", "name": "f", "parameters": heavy}]
    async with open_house(Script(text="ok", usage=None)) as house:
        without = terminal(await ask_stream(house.gateway))
        with_tool = terminal(await ask_stream(house.gateway, tools=tools))

    assert without.usage is not None
    assert with_tool.usage is not None
    assert with_tool.usage.input_tokens - without.usage.input_tokens > 900


async def test_conversations_at_once_are_estimated_apart() -> None:
    script = Script(text="ok", usage=None)
    async with open_house(script) as house:
        alone = [
            terminal(await ask_stream(house.gateway, input="x" * size)).usage for size in (40, 4000)
        ]
        together = await asyncio.gather(
            *(ask_stream(house.gateway, input="x" * size) for size in (40, 4000) for _ in range(5))
        )

    assert [terminal(events).usage for events in together] == [alone[0]] * 5 + [alone[1]] * 5
