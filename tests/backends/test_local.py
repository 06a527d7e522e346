"""The embedded model, for real: its text, its tokens, its calls, and how it is stopped."""

from __future__ import annotations

import asyncio
import re
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Sequence
from pathlib import Path
from typing import Any

import jsonschema_rs
import msgspec
import pytest

from antiphon.backends.local import MODEL, LocalBackend
from antiphon.backends.weights import SMOLLM2, ensure_weights
from antiphon.plans.plan import Plan
from antiphon.protocol.deltas import (
    CallGrew,
    CallMade,
    CallOpened,
    Degraded,
    Delta,
    Stopped,
    TextGrew,
    UsageKnown,
)
from antiphon.protocol.errors import BackendError, ContextOverflow
from antiphon.protocol.response import Usage
from antiphon.protocol.tools import Tool, ToolPolicy
from tests.building import plan_with
from tests.host.texts import SMOLLM2_COUNTS, TEXTS
from tests.playing import Collected, play_into, said

WEATHER: Tool = {
    "type": "function",
    "name": "get_weather",
    "description": "Get the current weather for a location",
    "parameters": {
        "type": "object",
        "properties": {
            "location": {"type": "string", "description": "The city and state"},
            "unit": {"enum": ["celsius", "fahrenheit"]},
        },
        "required": ["location", "unit"],
    },
}
EMAIL: Tool = {
    "type": "function",
    "name": "send_email",
    "description": "Send an email",
    "parameters": {
        "type": "object",
        "properties": {"to": {"enum": ["alice", "bob"]}},
        "required": ["to"],
    },
}


@pytest.fixture
async def backend() -> AsyncIterator[LocalBackend]:
    backend = LocalBackend(threads=1, context=1024)
    yield backend
    await backend.close()


def plan_of(text: str, **fields: Any) -> Plan:
    fields = {"temperature": 0.0, "max_output_tokens": 64, **fields}
    return plan_with(model=MODEL, items=[{"role": "user", "content": text}], **fields)


def text_in(deltas: Sequence[Delta]) -> str:
    return "".join(delta.text for delta in deltas if isinstance(delta, TextGrew))


def arguments_in(deltas: Sequence[Delta]) -> Any:
    grown = [delta.arguments for delta in deltas if isinstance(delta, CallGrew)]
    return msgspec.json.decode("".join(grown))


def usage_in(deltas: Sequence[Delta]) -> Usage:
    (usage,) = [delta.usage for delta in deltas if isinstance(delta, UsageKnown)]
    return usage


@pytest.mark.slow
async def test_it_answers_and_counts_its_tokens(backend: LocalBackend) -> None:
    deltas = await said(backend, plan_of("What is the capital of France?"))
    pieces = [delta for delta in deltas if isinstance(delta, TextGrew)]
    assert "Paris" in text_in(deltas)
    assert len(pieces) > 3
    usage = usage_in(deltas)
    assert usage.total_tokens == usage.input_tokens + usage.output_tokens
    assert usage.input_tokens > 15
    assert 0 <= usage.output_tokens - len(pieces) <= 2
    assert deltas[-1] == Stopped("stop")


@pytest.mark.slow
async def test_pieces_arrive_while_the_model_still_writes(backend: LocalBackend) -> None:
    times: list[float] = []

    class Timed(Collected):
        def push(self, batch: Sequence[Delta]) -> bool:
            times.append(time.monotonic())
            return super().push(batch)

    await play_into(Timed(), backend, plan_of("Tell me a story about a dragon."))
    assert len(times) > 10
    assert times[-1] - times[0] > 0.1


@pytest.mark.slow
async def test_the_limit_of_the_caller_ends_the_answer_for_length(backend: LocalBackend) -> None:
    deltas = await said(backend, plan_of("Tell me a story.", max_output_tokens=16))
    assert deltas[-1] == Stopped("length")
    assert usage_in(deltas).output_tokens == 16


async def _seconds(work: Awaitable[object]) -> float:
    """Return how long it took on the processor: what others do there does not count."""
    before = time.process_time()
    await work
    return time.process_time() - before


@pytest.mark.slow
async def test_cancelling_stops_the_model(backend: LocalBackend) -> None:
    short = await _seconds(said(backend, plan_of("Hi", max_output_tokens=1)))
    sink = Collected()
    plan = plan_of("Tell me a long story.", max_output_tokens=900)
    playing = asyncio.create_task(play_into(sink, backend, plan))
    await sink.has_more.wait()
    playing.cancel()
    # Compared with a short answer in the same run: a slow machine is slow at both.
    assert await _seconds(asyncio.wait({playing})) < 0.1 + 10 * short
    await said(backend, plan_of("Hi", max_output_tokens=1))
    await asyncio.wait_for(backend.close(), 60)


@pytest.mark.slow
async def test_cancelling_stops_it_in_the_middle_of_a_long_prompt() -> None:
    backend = LocalBackend(threads=1, parallel=1)
    await said(backend, plan_of("Hi", max_output_tokens=1))  # loads the weights
    short = await _seconds(said(backend, plan_of("Hi", max_output_tokens=1)))
    long = asyncio.ensure_future(said(backend, plan_of("Tell me more about that. " * 1000)))
    await asyncio.sleep(0.5)
    long.cancel()
    with pytest.raises(asyncio.CancelledError):
        await long
    # The only slot is free again long before the prompt could have been read: that takes some
    # hundred times as long as a short answer.
    again = await _seconds(said(backend, plan_of("Hi", max_output_tokens=1)))
    assert again < 1.0 + 30 * short
    await backend.close()


@pytest.mark.slow
async def test_more_requests_than_slots_all_get_their_answer(backend: LocalBackend) -> None:
    plans = [plan_of(f"Say {number}.", max_output_tokens=16) for number in range(5)]
    answers = await asyncio.gather(*(said(backend, plan) for plan in plans))
    assert all(isinstance(answer[-1], Stopped) for answer in answers)


@pytest.mark.slow
async def test_a_schema_is_kept_to(backend: LocalBackend) -> None:
    schema = {
        "type": "object",
        "properties": {
            "city": {"enum": ["Paris", "Oslo"]},
            "population": {"type": "integer", "minimum": 1, "maximum": 99},
            "tags": {"type": "array", "items": {"type": "boolean"}, "maxItems": 3},
        },
        "required": ["city", "population", "tags"],
        "additionalProperties": False,
    }
    form = {"type": "json_schema", "name": "city", "schema": schema, "strict": True}
    deltas = await said(backend, plan_of("Describe a city.", format=form, max_output_tokens=200))
    assert deltas[-1] == Stopped("stop")
    assert not any(isinstance(delta, Degraded) for delta in deltas)
    jsonschema_rs.validate(schema, msgspec.json.decode(text_in(deltas)))


@pytest.mark.slow
@pytest.mark.parametrize(
    "schema",
    [
        {"type": "integer", "minimum": 500, "maximum": 510},
        {"type": "integer", "exclusiveMinimum": 500, "exclusiveMaximum": 502},
        {"type": "string", "pattern": "^[0-9]{4}$"},
        {"type": "string", "maxLength": 3},
        {"type": "string", "format": "date"},
        {"type": "string", "format": "time"},
        {"type": "string", "format": "date-time"},
        {"type": "string", "format": "uuid"},
        {"type": "array", "items": {"enum": ["a"]}, "minItems": 4, "maxItems": 5},
    ],
)
async def test_what_is_not_reported_is_enforced(
    backend: LocalBackend, schema: dict[str, Any]
) -> None:
    form = {"type": "json_schema", "name": "n", "schema": schema}
    deltas = await said(backend, plan_of("Write the word elephant.", format=form))
    assert not any(isinstance(delta, Degraded) for delta in deltas)
    value = msgspec.json.decode(text_in(deltas))
    assert jsonschema_rs.is_valid(schema, value, validate_formats=True), value


@pytest.mark.slow
async def test_a_schema_that_cannot_be_kept_to_is_reported_or_refused(
    backend: LocalBackend,
) -> None:
    loose = {"type": "json_schema", "name": "n", "schema": {"type": "integer", "multipleOf": 7}}
    deltas = await said(backend, plan_of("A number.", format=loose))
    assert deltas[0] == Degraded("text.format: multipleOf is not enforced")
    wrong = {"type": "json_schema", "name": "n", "schema": {"type": "florb"}}
    with pytest.raises(BackendError) as caught:
        await said(backend, plan_of("A number.", format=wrong))
    assert caught.value.status == 400


@pytest.mark.slow
async def test_a_named_tool_is_called_with_arguments_that_fit_its_schema(
    backend: LocalBackend,
) -> None:
    policy = ToolPolicy("required", frozenset({"get_weather"}))
    plan = plan_of("Paris, please.", tools=[EMAIL, WEATHER], policy=policy)
    deltas = await said(backend, plan)
    assert deltas[0] == CallOpened(0, "get_weather", alias="get_weather")
    jsonschema_rs.validate(WEATHER["parameters"], arguments_in(deltas))
    assert sum(isinstance(delta, CallGrew) for delta in deltas) > 3
    assert text_in(deltas) == ""
    assert deltas[-1] == Stopped("stop")


@pytest.mark.slow
async def test_a_required_tool_that_nobody_named_is_chosen_by_the_model(
    backend: LocalBackend,
) -> None:
    plan = plan_of("Surprise me.", tools=[EMAIL, WEATHER], policy=ToolPolicy("required"))
    deltas = await said(backend, plan)
    (opened,) = [delta for delta in deltas if isinstance(delta, CallOpened)]
    tool = {"get_weather": WEATHER, "send_email": EMAIL}[opened.name]
    jsonschema_rs.validate(tool["parameters"], arguments_in(deltas))
    assert usage_in(deltas).input_tokens > 80


@pytest.mark.slow
async def test_auto_calls_the_tool_that_is_named_and_says_how_it_decided(
    backend: LocalBackend,
) -> None:
    question = "What's the weather like in San Francisco?"
    deltas = await said(backend, plan_of(question, tools=[WEATHER]))
    assert isinstance(deltas[0], Degraded)
    assert deltas[1] == CallOpened(0, "get_weather", alias="get_weather")
    assert "San Francisco" in arguments_in(deltas)["location"]
    words = await said(backend, plan_of("Hello!", tools=[WEATHER]))
    assert text_in(words)


@pytest.mark.slow
async def test_a_context_that_is_too_long_is_the_callers_to_mend(backend: LocalBackend) -> None:
    with pytest.raises(ContextOverflow):
        await said(backend, plan_of("word " * 1200))


@pytest.mark.slow
async def test_an_image_becomes_a_note(backend: LocalBackend) -> None:
    parts = [
        {"type": "input_text", "text": "What is this?"},
        {"type": "input_image", "image_url": "data:image/png;base64,AAAA"},
    ]
    plan = msgspec.structs.replace(plan_of(""), items=[{"role": "user", "content": parts}])
    deltas = await said(backend, plan)
    assert isinstance(deltas[0], Degraded)
    assert text_in(deltas)


@pytest.mark.slow
async def test_a_file_that_is_no_model_is_named(tmp_path: Path) -> None:
    path = tmp_path / "Broken.gguf"
    path.write_bytes(b"GGUF, but not really")
    backend = LocalBackend(path, threads=1)
    with pytest.raises(BackendError, match=r"Broken\.gguf cannot be loaded"):
        await said(backend, msgspec.structs.replace(plan_of("Hi"), model="broken"))
    await backend.close()


@pytest.mark.slow
def test_the_weights_are_what_they_should_be() -> None:
    assert ensure_weights().stat().st_size == SMOLLM2.size


async def test_a_missing_library_is_one_clear_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    backend = LocalBackend()
    with pytest.raises(BackendError, match=r"pip install '\.\[local\]'"):
        await said(backend, plan_of("Hi"))
    await backend.close()


async def test_it_serves_one_model_and_no_other() -> None:
    backend = LocalBackend(context=2048)
    (info,) = await backend.models()
    assert (info.id, info.context_length) == (MODEL, 2048)
    with pytest.raises(BackendError) as caught:
        await said(backend, msgspec.structs.replace(plan_of("Hi"), model="gpt"))
    assert caught.value.code == "model_not_found"
    await backend.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    "plan",
    [
        plan_of("What is the capital of France? <|im_end|> é", max_output_tokens=1),
        plan_of("Hi", instructions="You are a pirate.", max_output_tokens=1),
        plan_of("What is the weather in Paris?", tools=[WEATHER], max_output_tokens=16),
    ],
)
async def test_the_count_is_what_the_usage_says(backend: LocalBackend, plan: Plan) -> None:
    counted = await backend.count(plan)
    assert counted == usage_in(await said(backend, plan)).input_tokens


@pytest.mark.slow
async def test_a_choice_between_tools_cannot_be_counted(backend: LocalBackend) -> None:
    plan = plan_of("hello", tools=[WEATHER, EMAIL], policy=ToolPolicy("required"))
    assert await backend.count(plan) is None


@pytest.mark.slow
async def test_the_counts_that_estimates_are_judged_by_are_the_models_own(
    backend: LocalBackend,
) -> None:
    """`bench/estimates.py` prints them; around a text stand the marks of a message."""
    marks = await backend.count(plan_of("x"))
    assert marks is not None
    for kind, texts in TEXTS.items():
        for text, recorded in zip(texts, SMOLLM2_COUNTS[kind], strict=True):
            counted = await backend.count(plan_of(text))
            assert counted == pytest.approx(recorded + marks - 1, abs=1), kind


async def test_another_model_cannot_be_counted(backend: LocalBackend) -> None:
    with pytest.raises(BackendError, match="there is no model"):
        await backend.count(Plan(model="other", items=[]))


@pytest.mark.slow
async def test_the_input_of_a_custom_tool_is_of_its_grammar(backend: LocalBackend) -> None:
    grammar = 'start: "BEGIN " /[a-z]{3}/ " END"'
    form = {"type": "grammar", "syntax": "lark", "definition": grammar}
    plan = plan_of("note: hi", tools=[{"type": "custom", "name": "note", "format": form}])

    deltas = await said(backend, plan)

    (call,) = [delta for delta in deltas if isinstance(delta, CallMade)]
    assert re.fullmatch(r"BEGIN [a-z]{3} END", call.said)


async def test_the_request_of_an_ask_is_what_the_model_gets() -> None:
    backend = LocalBackend()
    asked = {"type": "message", "role": "user", "content": "What is up?"}
    plain = await backend.open(Plan(model=MODEL, items=[asked]))
    must = ToolPolicy("required")
    choosing = await backend.open(
        plan_with([WEATHER, EMAIL], model=MODEL, items=[asked], policy=must)
    )
    await backend.close()
    messages = msgspec.json.decode(bytes(plain.body()))["messages"]
    assert messages[-1] == {"role": "user", "content": "What is up?"}
    assert messages[0]["role"] == "system"
    assert choosing.body() == b""
