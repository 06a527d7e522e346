"""POST /v1/chat/completions on a real socket, asked by OpenAI's own client."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import openai
import pytest

from antiphon.backends.chat import ChatBackend
from antiphon.backends.scripted import ScriptedBackend, Step
from antiphon.gateway.assemble import ServerSettings
from antiphon.protocol.deltas import (
    CallMade,
    ItemPassed,
    ReasoningGrew,
    RefusalGrew,
    Stopped,
    SummaryGrew,
    TextGrew,
    UsageKnown,
)
from antiphon.protocol.errors import BackendError, ContextOverflow
from antiphon.protocol.response import InputDetails, OutputDetails, Usage
from antiphon.server.doors import DoorSettings
from antiphon.testing import ScriptedUpstream
from antiphon.testing.gateway import Gateway, serve_gateway
from tests.asking import Answer, ask, request
from tests.faults.house import PATIENCE
from tests.scraping import value_of

HELLO: list[Step] = [TextGrew("Hel"), TextGrew("lo"), Stopped("stop")]
USER = {"role": "user", "content": "hi"}
LOOK: Any = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
JSON_OF = "Content-Type: application/json\r\nContent-Length: {}\r\n"
COUNTED = UsageKnown(
    Usage(
        input_tokens=5,
        input_tokens_details=InputDetails(cached_tokens=2),
        output_tokens=3,
        output_tokens_details=OutputDetails(reasoning_tokens=1),
        total_tokens=8,
    )
)


@asynccontextmanager
async def gateway_with(
    *scripts: list[Step], settings: ServerSettings | None = None
) -> AsyncIterator[Gateway]:
    async with (
        asyncio.timeout(PATIENCE),
        serve_gateway(ScriptedBackend(scripts), settings=settings) as gateway,
    ):
        yield gateway


async def chat(gateway: Gateway, headers: dict[str, str] | None = None, /, **body: Any) -> Answer:
    return await request(
        gateway, "POST", "/chat/completions", {"messages": [USER], **body}, headers
    )


def chunks_of(answer: Answer) -> list[dict[str, Any]]:
    """Return the chunks of a stream, which must end as it should."""
    assert answer.body.endswith(b"\n\ndata: [DONE]\n\n")
    lines = answer.body.decode().split("\n\n")[:-2]
    return [msgspec.json.decode(line.removeprefix("data: ")) for line in lines]


async def test_a_whole_answer_is_a_completion() -> None:
    async with gateway_with([*HELLO[:2], COUNTED, Stopped("stop")]) as gateway:
        answer = await chat(gateway, model="scripted")

    body = answer.json
    assert (body["object"], body["model"]) == ("chat.completion", "scripted")
    assert body["choices"] == [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "Hello", "refusal": None},
            "logprobs": None,
            "finish_reason": "stop",
        }
    ]
    assert body["usage"] == {
        "prompt_tokens": 5,
        "completion_tokens": 3,
        "total_tokens": 8,
        "prompt_tokens_details": {"cached_tokens": 2, "cache_write_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 1},
    }


async def test_a_tool_loop_of_the_openai_client() -> None:
    scripts: list[list[Step]] = [
        [CallMade("look", '{"at":"it"}', call_id="c1"), Stopped("stop")],
        HELLO,
    ]
    backend = ScriptedBackend(scripts)
    async with (
        asyncio.timeout(PATIENCE),
        serve_gateway(backend) as gateway,
        openai.AsyncOpenAI(base_url=gateway.base_url, api_key="x") as client,
    ):
        messages: list[Any] = [USER]
        async with client.chat.completions.stream(
            model="scripted", messages=messages, tools=[LOOK]
        ) as stream:
            first = (await stream.get_final_completion()).choices[0]
        messages.append(first.message.to_dict())
        calls = first.message.tool_calls or []
        messages += [{"role": "tool", "tool_call_id": one.id, "content": "42"} for one in calls]
        second = await client.chat.completions.create(
            model="scripted", messages=messages, tools=[LOOK]
        )

    assert (first.finish_reason, second.choices[0].message.content) == ("tool_calls", "Hello")
    assert [item["type"] for item in backend.plans[1].items] == [
        "message",
        "function_call",
        "function_call_output",
    ]
    assert backend.plans[1].items[2]["output"] == "42"


async def test_sealed_reasoning_that_comes_back_is_opened_for_the_model() -> None:
    backend = ScriptedBackend([[ReasoningGrew("I think"), *HELLO], HELLO])
    async with asyncio.timeout(PATIENCE), serve_gateway(backend) as gateway:
        message = (await chat(gateway)).json["choices"][0]["message"]
        del message["reasoning_content"]
        answer = await chat(gateway, messages=[USER, message, USER])

    assert answer.status == 200
    shown = backend.plans[1].items[1]
    assert shown["type"] == "reasoning"
    assert shown["content"] == [{"type": "reasoning_text", "text": "I think"}]


async def test_reasoning_has_the_other_name_too_if_the_client_asks() -> None:
    async with gateway_with([ReasoningGrew("hm"), *HELLO], [ReasoningGrew("hm"), *HELLO]) as at:
        plain = (await chat(at)).json["choices"][0]["message"]
        both = chunks_of(await chat(at, {"x-antiphon-reasoning": "reasoning"}, stream=True))

    assert "reasoning" not in plain
    assert both[1]["choices"][0]["delta"] == {"reasoning_content": "hm", "reasoning": "hm"}


@pytest.mark.parametrize(
    ("reason", "finish"), [("length", "length"), ("content_filter", "content_filter")]
)
async def test_an_incomplete_answer_has_its_reason_and_its_usage(reason: Any, finish: str) -> None:
    script: list[Step] = [TextGrew("Hel"), COUNTED, Stopped(reason)]
    async with gateway_with(script, script) as gateway:
        whole = await chat(gateway)
        options = {"include_usage": True}
        *_, last, usage = chunks_of(await chat(gateway, stream=True, stream_options=options))

    assert whole.status == 200
    assert whole.json["choices"][0]["finish_reason"] == finish
    assert last["choices"][0]["finish_reason"] == finish
    assert usage["choices"] == []
    assert usage["usage"] == whole.json["usage"]
    assert whole.json["usage"]["total_tokens"] == 8


async def test_without_the_option_no_chunk_has_usage() -> None:
    async with gateway_with([*HELLO[:2], COUNTED, Stopped("stop")]) as gateway:
        chunks = chunks_of(await chat(gateway, stream=True))

    assert not any("usage" in chunk for chunk in chunks)
    assert chunks[-1]["choices"][0]["finish_reason"] == "stop"


async def test_an_error_in_mid_stream_is_an_error_and_no_end() -> None:
    broken = BackendError("it fell", code="upstream_closed")
    async with (
        gateway_with([TextGrew("Hel"), broken], [TextGrew("Hel"), broken]) as gateway,
        openai.AsyncOpenAI(base_url=gateway.base_url, api_key="x", max_retries=0) as client,
    ):
        answer = await chat(gateway, stream=True)
        seen = ""
        with pytest.raises(openai.APIError) as caught:
            async for chunk in await client.chat.completions.create(
                model="scripted", messages=[{"role": "user", "content": "x"}], stream=True
            ):
                seen += chunk.choices[0].delta.content or ""

    assert seen == "Hel"
    assert caught.value.code == "upstream_closed"
    assert b"[DONE]" not in answer.body
    assert b'"finish_reason":"' not in answer.body


async def test_a_whole_answer_that_fails_is_an_http_error() -> None:
    broken = BackendError("it fell", code="upstream_closed")
    async with gateway_with([TextGrew("Hel"), broken]) as gateway:
        answer = await chat(gateway)

    assert answer.status == 502
    assert answer.error["code"] == "upstream_closed"


async def test_a_client_that_leaves_stops_the_model() -> None:
    backend = ScriptedBackend([[TextGrew("Hel"), asyncio.Event(), Stopped("stop")]])
    async with asyncio.timeout(PATIENCE), serve_gateway(backend) as gateway:
        body = msgspec.json.encode({"messages": [USER], "stream": True})
        head = "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
        reader, writer = await asyncio.open_connection(*gateway.address)
        writer.write((head + JSON_OF.format(len(body))).encode() + b"\r\n" + body)
        await reader.readuntil(b'"content":"Hel"')
        writer.close()
        await backend.stopped.wait()

    assert backend.stopped_early == 1


async def test_a_rate_limit_before_the_first_word_keeps_its_status() -> None:
    limit = BackendError("slow down", code="rate_limit_exceeded", status=429, retry_after=3)
    async with gateway_with([limit]) as gateway:
        answer = await chat(gateway, stream=True)

    assert (answer.status, answer.headers["Retry-After"]) == (429, "3")


async def test_an_overflow_is_an_http_error_also_for_a_stream() -> None:
    async with gateway_with([ContextOverflow("too long")]) as gateway:
        answer = await chat(gateway, stream=True)

    assert answer.status == 400
    assert answer.error["code"] == "context_length_exceeded"


async def test_a_refusal_stands_in_its_own_field() -> None:
    async with gateway_with([RefusalGrew("I can"), RefusalGrew("not"), Stopped("stop")]) as gateway:
        message = (await chat(gateway)).json["choices"][0]["message"]

    assert (message["content"], message["refusal"]) == (None, "I cannot")


async def test_items_that_chat_cannot_hold_are_counted() -> None:
    search = ItemPassed({"type": "web_search_call", "status": "completed"})
    script: list[Step] = [search, search, *HELLO]
    async with gateway_with(script, script) as gateway:
        whole = (await chat(gateway)).json
        chunks = chunks_of(await chat(gateway, stream=True))

    assert whole["antiphon"]["left_out"] == {"web_search_call": 2}
    assert chunks[-1]["antiphon"]["left_out"] == {"web_search_call": 2}
    assert whole["choices"][0]["message"]["content"] == "Hello"


async def test_an_image_is_carried() -> None:
    image = ItemPassed({"type": "image_generation_call", "status": "completed", "result": "QQ=="})
    async with gateway_with([image, *HELLO], [image, *HELLO]) as gateway:
        whole = (await chat(gateway)).json["choices"][0]["message"]
        chunks = chunks_of(await chat(gateway, stream=True))

    url = {"url": "data:image/png;base64,QQ=="}
    assert whole["images"] == [{"type": "image_url", "index": 0, "image_url": url}]
    assert any(chunk["choices"][0]["delta"].get("images") for chunk in chunks)


@pytest.mark.parametrize(
    ("headers", "body", "param"),
    [
        (
            {"x-antiphon-strict": "1"},
            {"messages": [USER, {"role": "assistant", "content": "a", "odd": 1}]},
            "messages[1].odd",
        ),
        (
            {},
            {"functions": [{"name": "look"}], "function_call": {"name": "see"}},
            "function_call",
        ),
    ],
)
async def test_a_fault_that_is_found_after_reading_names_the_field_of_the_caller(
    headers: dict[str, str], body: dict[str, Any], param: str
) -> None:
    async with ScriptedUpstream() as upstream, serve_gateway(ChatBackend(upstream.base_url)) as it:
        answer = await chat(it, headers, model="echo", **body)

    assert (answer.status, answer.error["param"]) == (400, param)
    assert param in answer.error["message"]


async def test_a_client_of_old_functions_gets_one_function_call() -> None:
    script: list[Step] = [CallMade("f", "{}"), CallMade("f", '{"a":1}'), Stopped("stop")]
    async with gateway_with(script, script) as gateway:
        whole = (await chat(gateway, functions=[{"name": "f"}])).json
        chunks = chunks_of(await chat(gateway, functions=[{"name": "f"}], stream=True))

    choice = whole["choices"][0]
    assert choice["message"]["function_call"] == {"name": "f", "arguments": "{}"}
    assert choice["finish_reason"] == chunks[-1]["choices"][0]["finish_reason"] == "function_call"
    suppressed = "parallel_tool_calls: a second call, to 'f', was suppressed"
    assert suppressed in whole["antiphon"]["degraded"]
    calls = [chunk["choices"][0]["delta"].get("function_call") for chunk in chunks]
    assert "".join(one["arguments"] for one in calls if one) == "{}"


async def test_nothing_is_stored_unless_the_caller_asks() -> None:
    async with gateway_with(HELLO, HELLO) as gateway:
        ids = [(await chat(gateway, store=store)).json["id"] for store in (None, True)]
        paths = [f"/responses/resp_{one.removeprefix('chatcmpl-')}" for one in ids]
        found = [(await request(gateway, "GET", path)).status for path in paths]

    assert found == [404, 200]


async def test_a_stored_turn_is_continued_and_replayed_through_the_responses_door() -> None:
    async with gateway_with(HELLO, HELLO) as gateway:
        chunks = chunks_of(await chat(gateway, store=True, stream=True))
        name = f"resp_{chunks[0]['id'].removeprefix('chatcmpl-')}"
        replay = await request(gateway, "GET", f"/responses/{name}?stream=true")
        more = await ask(gateway, previous_response_id=name)

    assert b"response.completed" in replay.body
    assert more.status == 200


async def test_the_settings_may_store_all_turns() -> None:
    settings = ServerSettings(doors=DoorSettings(store=True))
    async with gateway_with(HELLO, settings=settings) as gateway:
        name = (await chat(gateway)).json["id"].removeprefix("chatcmpl-")
        found = await request(gateway, "GET", f"/responses/resp_{name}")

    assert found.status == 200


@pytest.mark.parametrize("first", [SummaryGrew("b"), ReasoningGrew("b")])
async def test_raw_reasoning_and_summaries_have_one_order_in_streams_and_whole_answers(
    first: Step,
) -> None:
    turn: list[Step] = [first, ReasoningGrew("a"), SummaryGrew("c"), *HELLO]
    async with gateway_with(turn, turn) as gateway:
        whole = await chat(gateway)
        streamed = await chat(gateway, stream=True)

    text = whole.json["choices"][0]["message"]["reasoning_content"]
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks_of(streamed)]
    assert text == "".join(delta.get("reasoning_content") or "" for delta in deltas)
    assert text.endswith("a\n\nc")


@pytest.mark.parametrize("stream", [False, True])
async def test_a_key_stands_for_one_run(stream: bool) -> None:
    backend = ScriptedBackend([HELLO])
    async with asyncio.timeout(PATIENCE), serve_gateway(backend) as gateway:
        key = {"Idempotency-Key": "k"}
        first = await chat(gateway, key, stream=stream, model="scripted")
        again = await chat(gateway, key, stream=stream, model="scripted")
        other = await chat(gateway, key, stream=stream, model="scripted", temperature=1)

    assert len(backend.plans) == 1
    assert again.headers["x-antiphon-replayed"] == "1"
    assert other.status == 422
    if not stream:
        assert again.body == first.body
    else:
        texts = [
            "".join(one["choices"][0]["delta"].get("content") or "" for one in chunks_of(answer))
            for answer in (first, again)
        ]
        assert texts == ["Hello", "Hello"]


@pytest.mark.parametrize("store", [False, True])
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    "error",
    [
        BackendError("it broke off", code="upstream_closed"),
        BackendError("too much", code="rate_limit_exceeded", type="rate_limit_error", status=429),
        ContextOverflow("too long"),
    ],
    ids=lambda error: str(error.code),
)
async def test_a_failure_that_is_replayed_is_the_same_error(
    error: BackendError, stream: bool, store: bool
) -> None:
    backend = ScriptedBackend([[TextGrew("Hel"), error], HELLO])
    async with asyncio.timeout(PATIENCE), serve_gateway(backend) as gateway:
        key = {"Idempotency-Key": "k"}
        first = await chat(gateway, key, stream=stream, store=store)
        again = await chat(gateway, key, stream=stream, store=store)

    assert len(backend.plans) == 1
    errors = [error_of(answer) for answer in (first, again)]
    assert errors[0] == errors[1]
    assert errors[0]["type"] == error.type


def error_of(answer: Answer) -> dict[str, Any]:
    *_, last = answer.body.decode().removesuffix("\n\n").split("\n\n")
    error: dict[str, Any] = msgspec.json.decode(last.removeprefix("data: "))["error"]
    return error


async def test_a_key_of_another_door_is_not_the_same_request() -> None:
    async with gateway_with(HELLO, HELLO) as gateway:
        key = {"Idempotency-Key": "k"}
        await ask(gateway, key)
        answer = await chat(gateway, key)

    assert answer.status == 422


async def test_what_cannot_be_honoured_is_reported_and_strict_callers_are_refused() -> None:
    async with gateway_with(HELLO, HELLO) as gateway:
        options = {"include_obfuscation": True}
        answer = await chat(gateway, stream_options=options)
        strict = await chat(gateway, {"x-antiphon-strict": "1"}, stream_options=options)

    assert answer.headers["x-antiphon-degraded"] == "stream_options.include_obfuscation"
    assert answer.json["antiphon"]["degraded"] == ["stream_options.include_obfuscation"]
    assert strict.status == 400


async def test_the_log_line_has_the_door_the_model_and_the_tokens(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.INFO, "antiphon.requests"):
        async with gateway_with([*HELLO[:2], COUNTED, Stopped("stop")]) as gateway:
            await chat(gateway)
            metrics = gateway.app.metrics.render().decode()

    line = next(r.getMessage() for r in caplog.records if "/v1/chat" in r.getMessage())
    assert line.startswith("POST /v1/chat/completions 200 completed model=scripted upstream=test")
    assert "input_tokens=5 output_tokens=3" in line
    assert 'antiphon_requests_total{route="/v1/chat/completions",status="200"} 1.0' in metrics
    assert value_of(metrics, "antiphon_tokens_total", kind="input") == 5


async def test_a_door_that_is_closed_is_a_404() -> None:
    settings = ServerSettings(doors=DoorSettings(chat=False))
    async with gateway_with(HELLO, settings=settings) as gateway:
        answer = await chat(gateway)

    assert (answer.status, answer.error["code"]) == (404, "unknown_url")
