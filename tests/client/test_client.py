"""One suite for both clients: what they send, what they return, how they fail."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import msgspec
import pytest

from antiphon.backends.scripted import ScriptedBackend
from antiphon.client import errors
from antiphon.client.settings import Timeouts
from antiphon.protocol.codec import encode_event, encode_sse
from antiphon.protocol.deltas import (
    CallGrew,
    CallOpened,
    ReasoningGrew,
    TextGrew,
)
from antiphon.protocol.events import OutputTextDelta, ResponseCompleted, ResponseFailed
from antiphon.protocol.items import text_of
from antiphon.protocol.response import Response
from antiphon.testing import Call, Gateway, Script, ScriptedUpstream, serve_gateway
from antiphon.transport.secret import Secret
from tests.asking import terminal
from tests.building import COUNTED, STOP, build
from tests.client.calling import KINDS, Caller, calling
from tests.client.native import Answer, error, events, native, response, whole
from tests.transport.raw import Connection, Request, raw_server, reply

HELLO = (TextGrew("Hel"), TextGrew("lo"), COUNTED, STOP)


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def gateway() -> AsyncIterator[Gateway]:
    async with serve_gateway(ScriptedBackend(models=["echo"])) as gateway:
        yield gateway


@pytest.fixture
async def caller(kind: str, gateway: Gateway) -> AsyncIterator[Caller]:
    async with calling(kind, gateway.base_url) as caller:
        yield caller


# Against our own gateway.


@pytest.mark.requirement("22-A3", "RFC016-client")
async def test_create_returns_the_whole_response(caller: Caller) -> None:
    response = await caller.create(model="echo", input="Good morning")

    assert response.status == "completed"
    assert "Good morning" in response.output_text
    assert response.usage is not None and response.usage.total_tokens > 0


@pytest.mark.requirement("22-A3", "RFC016-client")
async def test_a_stream_tells_its_events_and_then_the_response(caller: Caller) -> None:
    seen = await caller.follow(model="echo", input="Good morning")

    assert seen.error is None
    assert seen.response is not None
    deltas = [event.delta for event in seen.events if isinstance(event, OutputTextDelta)]
    assert "".join(deltas) == seen.response.output_text
    assert terminal(seen.events) == seen.response


async def test_what_is_stored_can_be_had_again(caller: Caller) -> None:
    made = await caller.create(model="echo", input="Remember me")

    assert await caller.retrieve(made.id) == made
    page = await caller.input_items(made.id, limit=1)
    assert page.items[0]["content"][0]["text"] == "Remember me"
    assert await caller.all_input_items(made.id) == page.items
    assert (await caller.delete(made.id)).deleted
    with pytest.raises(errors.ResourceNotFound):
        await caller.retrieve(made.id)


async def test_all_input_items_come_page_after_page(caller: Caller) -> None:
    texts = [f"line {number}" for number in range(230)]
    asked = [{"role": "user", "content": text} for text in texts]
    made = await caller.create(model="echo", input=asked)

    items = await caller.all_input_items(made.id)

    assert [text_of(item["content"]) for item in items] == texts


async def test_models_are_those_of_the_server(caller: Caller) -> None:
    assert [model.id for model in await caller.models()] == ["echo"]


async def test_an_id_goes_into_a_path_as_one_segment(caller: Caller) -> None:
    with pytest.raises(errors.ResourceNotFound):
        await caller.retrieve("../models?x=1")
    with pytest.raises(errors.BadCall):
        await caller.retrieve("")


async def test_a_part_the_server_does_not_have_is_refused_in_its_words(kind: str) -> None:
    async with (
        native(error(501, "not_implemented", "no such thing")) as server,
        calling(kind, server.base_url) as caller,
    ):
        with pytest.raises(errors.ServerFailed, match="no such thing"):
            await caller.cancel("resp_1")
    assert server.requests[0].path == "/v1/responses/resp_1/cancel"


async def test_cancel_returns_the_response_it_stopped(kind: str) -> None:
    stopped = Response(id="resp_1", status="cancelled")
    async with native(whole(stopped)) as server, calling(kind, server.base_url) as caller:
        assert (await caller.cancel("resp_1")).status == "cancelled"


# Native servers, both dialects.


@pytest.mark.parametrize("dialect", ["openai", "open-responses"])
async def test_a_native_stream_is_read_in_both_dialects(kind: str, dialect: Any) -> None:
    said = (
        ReasoningGrew("hm"),
        TextGrew("Hello"),
        CallOpened(0, "f", "call_1"),
        CallGrew(0, "{}"),
        COUNTED,
        STOP,
    )
    async with (
        native(response(*said, dialect=dialect)) as server,
        calling(kind, server.base_url) as caller,
    ):
        seen = await caller.follow(model="m", input="x")

    assert seen.error is None
    assert seen.events == build(said)
    assert seen.response == terminal(build(said))


async def test_a_server_that_streams_unasked_is_understood(kind: str) -> None:
    async with native(response(*HELLO)) as server, calling(kind, server.base_url) as caller:
        made = await caller.create(model="m", input="x")
    assert made.output_text == "Hello"


async def test_a_server_that_answers_a_stream_in_one_piece_is_understood(kind: str) -> None:
    made = terminal(build(HELLO))
    async with native(whole(made)) as server, calling(kind, server.base_url) as caller:
        seen = await caller.follow(model="m", input="x")
    assert seen.response == made
    assert [type(event) for event in seen.events] == [ResponseCompleted]


async def test_a_background_response_comes_back_as_it_stands(kind: str) -> None:
    queued = Response(id="resp_1", status="queued", background=True)
    async with native(whole(queued)) as server, calling(kind, server.base_url) as caller:
        made = await caller.create(model="m", input="x", background=True)
    assert made.status == "queued"


async def test_a_failed_response_is_returned_with_its_reason(kind: str) -> None:
    failed = [ResponseFailed(sequence_number=0, response=Response(id="resp_1", status="failed"))]
    async with native(events(failed)) as server, calling(kind, server.base_url) as caller:
        assert (await caller.create(model="m", input="x")).status == "failed"
        seen = await caller.follow(model="m", input="x")
    assert seen.response is not None and seen.response.status == "failed"


WHOLE = {
    "id": "resp_123",
    "object": "response",
    "model": "m",
    "status": "completed",
    "usage": {"input_tokens": 62, "output_tokens": 23, "total_tokens": 85},
    "output": [
        {"id": "msg_1", "type": "message", "content": [{"type": "output_text", "text": "One, "}]},
        {
            "id": "fc_1",
            "type": "function_call",
            "name": "weather",
            "call_id": "call_abc",
            "arguments": '{"in":"Rome"}',
        },
        {
            "id": "msg_2",
            "type": "message",
            "content": [
                {"type": "output_text", "text": "two, "},
                {"type": "output_text", "text": "three."},
            ],
        },
    ],
}


@pytest.mark.requirement("REQ-001.1", "REQ-001.2", "REQ-001.3", "REQ-001.4", "REQ-002.3")
@pytest.mark.parametrize("is_streamed", [False, True])
async def test_a_whole_answer_has_its_text_in_order_its_calls_and_its_usage(
    kind: str, is_streamed: bool
) -> None:
    answer = Answer(pieces=[msgspec.json.encode(WHOLE)], content_type="application/json")
    async with native(answer) as server, calling(kind, server.base_url) as caller:
        if is_streamed:
            made = (await caller.follow(model="m", input="x")).response
        else:
            made = await caller.create(model="m", input="x")

    assert made is not None and made.id == "resp_123"
    assert made.output_text == "One, two, three."
    (call,) = (item for item in made.output if item["type"] == "function_call")
    assert (call["call_id"], call["name"], call["arguments"]) == (
        "call_abc",
        "weather",
        '{"in":"Rome"}',
    )
    assert made.usage is not None
    tokens = (made.usage.input_tokens, made.usage.output_tokens, made.usage.total_tokens)
    assert tokens == (62, 23, 85)


# What is sent.


async def test_key_organization_and_project_are_sent(kind: str) -> None:
    environ = {
        "OPENAI_API_KEY": "sk-test",
        "OPENAI_ORG_ID": "org-1",
        "OPENAI_PROJECT_ID": "proj-1",
    }
    async with native(whole(Response(id="resp_1", status="completed"))) as server:
        environ["OPENAI_BASE_URL"] = server.base_url + "/"
        async with calling(kind, "", environ=environ) as caller:
            await caller.create(model="m", input="x")

    sent = server.requests[0]
    assert sent.path == "/v1/responses"
    assert sent.headers["authorization"] == "Bearer sk-test"
    assert sent.headers["openai-organization"] == "org-1"
    assert sent.headers["openai-project"] == "proj-1"


@pytest.mark.parametrize("is_async", [False, True])
async def test_a_key_may_be_a_function_that_is_asked_for_every_request(
    kind: str, is_async: bool
) -> None:
    made: Iterator[str | Secret] = iter(["sk-first-key", Secret("sk-second-key"), ""])

    async def later() -> str | Secret:
        await asyncio.sleep(0)
        return next(made)

    key = later if is_async else lambda: next(made)
    answers = [whole(Response(id="resp_1", status="completed"))]
    async with native(*answers) as server, calling(kind, server.base_url, api_key=key) as caller:
        await caller.create(model="m", input="x")
        await caller.follow(model="m", input="x")
        await caller.retrieve("resp_1")

    sent = [request.headers.get("authorization") for request in server.requests]
    assert sent == ["Bearer sk-first-key", "Bearer sk-second-key", None]


async def test_a_key_that_expired_is_asked_for_once_more(kind: str) -> None:
    made = iter(["sk-expired-key", "sk-fresh-key", "sk-other-key"])
    answers = [error(401), whole(Response(id="resp_1", status="completed"))]
    options: Any = {"api_key": lambda: next(made), "max_retries": 0}
    async with native(*answers) as server, calling(kind, server.base_url, **options) as caller:
        response = await caller.create(model="m", input="x")

    assert response.id == "resp_1"
    sent = [request.headers["authorization"] for request in server.requests]
    assert sent == ["Bearer sk-expired-key", "Bearer sk-fresh-key"]


async def test_a_second_refusal_of_a_key_is_raised_without_the_keys(kind: str) -> None:
    made = iter(["sk-expired-key", "sk-also-bad-key"])
    refused = error(401, message="no sk-expired-key and no sk-also-bad-key")
    async with (
        native(refused) as server,
        calling(kind, server.base_url, api_key=lambda: next(made)) as caller,
    ):
        with pytest.raises(errors.AuthFailed) as raised:
            await caller.create(model="m", input="x")
    assert "no *** and no ***" in raised.value.message
    assert len(server.requests) == 2


async def test_a_fixed_key_that_is_refused_is_not_sent_again(kind: str) -> None:
    async with native(error(401)) as server, calling(kind, server.base_url, api_key="k") as caller:
        with pytest.raises(errors.AuthFailed):
            await caller.create(model="m", input="x")
    assert len(server.requests) == 1


async def test_a_function_that_gives_no_key_is_an_error_that_says_so(kind: str) -> None:
    async with calling(kind, "http://127.0.0.1:9/v1", api_key=lambda: None) as caller:
        with pytest.raises(errors.BadCall, match="api_key must give a string, not NoneType"):
            await caller.models()


async def test_what_the_function_of_a_key_raises_reaches_the_caller(kind: str) -> None:
    def broken() -> str:
        raise PermissionError("the vault is closed")

    async with calling(kind, "http://127.0.0.1:9/v1", api_key=broken) as caller:
        with pytest.raises(PermissionError, match="the vault is closed"):
            await caller.create(model="m", input="x")


async def test_a_request_that_is_tried_again_keeps_its_idempotency_key(kind: str) -> None:
    good = whole(Response(id="resp_1", status="completed"))
    async with native(error(503), good) as server, calling(kind, server.base_url) as caller:
        await caller.create(model="m", input="x")
        await caller.create(model="m", input="x")

    first, again, other = (request.headers["idempotency-key"] for request in server.requests)
    assert first == again != other


# How it fails.


@pytest.mark.requirement("22-A4", "22-C5", "RFC016-client")
@pytest.mark.parametrize(
    ("status", "code", "expected"),
    [
        (400, "invalid_value", errors.ValidationFailed),
        (400, "context_length_exceeded", errors.ContextTooLong),
        (401, "invalid_api_key", errors.AuthFailed),
        (403, None, errors.AuthFailed),
        (404, "not_found", errors.ResourceNotFound),
        (409, "conversation_locked", errors.Conflict),
        (410, None, errors.ThreadGone),
        (418, None, errors.ServerRefused),
        (422, None, errors.ValidationFailed),
        (402, None, errors.QuotaExceeded),
        (429, "insufficient_quota", errors.QuotaExceeded),
        (307, None, errors.InvalidAnswer),
    ],
)
@pytest.mark.parametrize("wire_api", ["responses", "chat"])
async def test_refusals_have_their_own_errors_and_are_not_tried_again(
    kind: str, status: int, code: str | None, expected: type[errors.ClientError], wire_api: str
) -> None:
    refusal = error(status, code, "because", x_request_id="req_7")
    async with (
        native(refusal) as server,
        calling(kind, server.base_url, wire_api=wire_api) as caller,
    ):
        with pytest.raises(expected, match="because") as caught:
            await caller.create(model="m", input="x")
        seen = await caller.follow(model="m", input="x")

    assert type(caught.value) is expected
    assert (caught.value.status, caught.value.request_id) == (status, "req_7")
    assert type(seen.error) is expected
    assert len(server.requests) == 2


@pytest.mark.requirement("22-C5")
@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
async def test_what_may_pass_is_tried_once_more(kind: str, status: int) -> None:
    async with (
        native(error(status), response(*HELLO)) as server,
        calling(kind, server.base_url) as caller,
    ):
        seen = await caller.follow(model="m", input="x")
    assert seen.response is not None and seen.response.output_text == "Hello"
    assert len(server.requests) == 2


async def test_the_last_refusal_is_told_with_its_retry_after(kind: str) -> None:
    async with (
        native(error(429, retry_after="3")) as server,
        calling(kind, server.base_url, max_retries=2) as caller,
    ):
        with pytest.raises(errors.RateLimited) as caught:
            await caller.create(model="m", input="x")
    assert caught.value.retry_after == 3.0
    assert len(server.requests) == 3


async def test_a_wait_beyond_all_patience_is_left_to_the_caller(kind: str) -> None:
    async with (
        native(error(429, retry_after="3600")) as server,
        calling(kind, server.base_url) as caller,
    ):
        with pytest.raises(errors.RateLimited) as caught:
            await caller.create(model="m", input="x")
    assert caught.value.retry_after == 3600.0
    assert len(server.requests) == 1


@pytest.mark.parametrize(("advice", "tries"), [("false", 1), ("true", 2)])
async def test_the_servers_own_advice_about_retries_counts(
    kind: str, advice: str, tries: int
) -> None:
    status = 503 if advice == "false" else 409
    async with (
        native(error(status, x_should_retry=advice)) as server,
        calling(kind, server.base_url) as caller,
    ):
        with pytest.raises(errors.ClientError):
            await caller.create(model="m", input="x")
    assert len(server.requests) == tries


async def test_retries_wait_longer_each_time_with_jitter(kind: str) -> None:
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    options = {"max_retries": 3, "sleep": sleep, "jitter": lambda: 0.5}
    async with native(error(500)) as server, calling(kind, server.base_url, **options) as caller:
        with pytest.raises(errors.ServerFailed):
            await caller.create(model="m", input="x")
    assert waits == [0.75, 1.5, 3.0]


@pytest.mark.requirement("22-C-AC")
@pytest.mark.parametrize("then", ["end", "reset"])
async def test_a_stream_that_breaks_off_tells_what_came_and_is_not_tried_again(
    kind: str, then: Any
) -> None:
    whole_stream = build(HELLO)
    cut = events(whole_stream[:-3], then=then)
    cut.pieces = cut.pieces[:-1]
    async with native(cut) as server, calling(kind, server.base_url) as caller:
        seen = await caller.follow(model="m", input="x")

    assert seen.events == whole_stream[:-3]
    assert isinstance(seen.error, errors.StreamBroken)
    assert seen.error.partial is not None
    assert seen.error.partial.output_text == "Hello"
    assert len(server.requests) == 1


@pytest.mark.parametrize("then", ["end", "reset"])
async def test_a_long_stream_that_breaks_off_tells_all_that_came(kind: str, then: Any) -> None:
    """More than one read of the wire is waiting when it breaks."""
    told = build([*(TextGrew(f"word {number} ") for number in range(3000)), COUNTED, STOP])[:-3]
    cut = Answer(pieces=[b"".join(encode_sse(event) for event in told)], then=then)
    async with native(cut) as server, calling(kind, server.base_url) as caller:
        seen = await caller.follow(model="m", input="x")

    assert seen.events == told
    assert isinstance(seen.error, errors.StreamBroken)


async def test_a_stream_without_a_single_event_is_tried_again(kind: str) -> None:
    empty = Answer(pieces=[b": nothing yet\n\n"], then="reset")
    async with (
        native(empty, response(*HELLO)) as server,
        calling(kind, server.base_url) as caller,
    ):
        seen = await caller.follow(model="m", input="x")
    assert seen.error is None
    assert len(server.requests) == 2


async def test_garbage_in_mid_stream_comes_after_what_was_good(kind: str) -> None:
    good = b"".join(encode_sse(event) for event in build(HELLO)[:4])
    torn = Answer(pieces=[good + b"data: {nonsense\n\n"])
    async with native(torn) as server, calling(kind, server.base_url) as caller:
        seen = await caller.follow(model="m", input="x")
    assert len(seen.events) == 4
    assert isinstance(seen.error, errors.StreamBroken)
    assert seen.error.code == "server_invalid_response"


async def test_an_error_event_without_an_end_is_told_in_its_words(kind: str) -> None:
    begun = encode_sse(build(HELLO)[0])
    told = b'data: {"type":"error","error":{"type":"x","code":"boom","message":"it burnt"}}\n\n'
    async with (
        native(Answer(pieces=[begun, told])) as server,
        calling(kind, server.base_url) as caller,
    ):
        seen = await caller.follow(model="m", input="x")
    assert isinstance(seen.error, errors.StreamBroken)
    assert seen.error.code == "boom"
    assert "it burnt" in str(seen.error)


async def test_the_last_event_may_lack_its_blank_line(kind: str) -> None:
    *rest, last = build(HELLO)
    bare = b"data: " + encode_event(last)
    answer = Answer(pieces=[*(encode_sse(event) for event in rest), bare])
    async with native(answer) as server, calling(kind, server.base_url) as caller:
        seen = await caller.follow(model="m", input="x")
    assert seen.error is None and seen.response == terminal([last])


@pytest.mark.parametrize("body", [b"<html>", b"", b"[]", b'{"object":"list"}'])
async def test_what_is_no_response_is_an_error_that_says_so(kind: str, body: bytes) -> None:
    odd = Answer(pieces=[body] if body else [], content_type="application/json")
    async with native(odd) as server, calling(kind, server.base_url) as caller:
        with pytest.raises(errors.InvalidAnswer):
            await caller.create(model="m", input="x")


async def test_a_page_instead_of_a_stream_is_an_error_that_says_so(kind: str) -> None:
    page = Answer(pieces=[b"<html>"], content_type="text/html")
    async with native(page) as server, calling(kind, server.base_url) as caller:
        seen = await caller.follow(model="m", input="x")
    assert isinstance(seen.error, errors.InvalidAnswer)
    assert "text/html" in str(seen.error)


async def test_a_base_url_without_its_path_is_asked_about(kind: str) -> None:
    async with native(error(404, "unknown_url", "nothing here")) as server:
        bare = server.base_url.removesuffix("/v1")
        async with calling(kind, bare) as caller:
            with pytest.raises(errors.ResourceNotFound) as caught:
                await caller.create(model="m", input="x")
    assert "does the base URL end in /v1?" in caught.value.__notes__[0]


async def test_nobody_at_the_address_is_an_error_that_names_it(kind: str) -> None:
    async with calling(kind, "http://127.0.0.1:1/v1") as caller:
        with pytest.raises(errors.ServerUnreachable, match=r"the server at .*127\.0\.0\.1:1"):
            await caller.create(model="m", input="x")


async def test_a_silent_server_is_a_timeout_and_no_cancel(kind: str) -> None:
    begun = [encode_sse(event) for event in build(HELLO)[:4]]
    silent = Answer(pieces=begun, then="stall")
    quick = Timeouts(idle=2.0)
    async with (
        native(silent) as server,
        calling(kind, server.base_url, timeouts=quick) as caller,
    ):
        seen = await caller.follow(model="m", input="x")
    assert len(seen.events) == 4
    assert isinstance(seen.error, errors.TimedOut)
    assert isinstance(seen.error, TimeoutError)
    assert not isinstance(seen.error, asyncio.CancelledError)
    assert seen.error.partial is not None


async def test_an_answer_that_does_not_begin_in_time_is_a_timeout(kind: str) -> None:
    silent = Answer(pieces=[], content_type="application/json", then="stall")
    quick = Timeouts(answer=2.0)
    async with (
        native(silent) as server,
        calling(kind, server.base_url, timeouts=quick) as caller,
    ):
        with pytest.raises(errors.TimedOut):
            await caller.create(model="m", input="x")
    assert len(server.requests) == 1


async def test_leaving_early_closes_the_connection(kind: str) -> None:
    begun = [encode_sse(event) for event in build(HELLO)[:4]]
    async with (
        native(Answer(pieces=begun, then="stall")) as server,
        calling(kind, server.base_url) as caller,
    ):
        taken = await caller.peek(2, model="m", input="x")
        await asyncio.wait_for(server.raw.closed.wait(), 60)
    assert len(taken) == 2


async def test_a_key_that_a_server_repeats_stays_out_of_the_error(kind: str) -> None:
    refusal = error(401, None, "the key sk-very-secret is not good")
    async with (
        native(refusal) as server,
        calling(kind, server.base_url, api_key="sk-very-secret") as caller,
    ):
        with pytest.raises(errors.AuthFailed, match=r"the key \*\*\* is not good") as caught:
            await caller.create(model="m", input="x")
    assert "sk-very-secret" not in repr(caught.value) + str(caught.value.args)


# Chat servers.


@pytest.mark.requirement("22-A4", "REQ-009.1")
async def test_a_chat_server_answers_as_if_it_spoke_responses(kind: str) -> None:
    script = Script(text="Hello there", reasoning="hm", calls=[Call("f", '{"a":1}')])
    tools = [{"type": "function", "name": "f", "parameters": {"type": "object"}}]
    async with (
        ScriptedUpstream(script) as upstream,
        calling(kind, upstream.base_url, wire_api="chat") as caller,
    ):
        made = await caller.create(model="echo", input="x", tools=tools)
        seen = await caller.follow(model="echo", input="x", tools=tools)

    assert seen.response is not None
    assert made.output_text == seen.response.output_text == "Hello there"
    assert [item["type"] for item in made.output] == ["reasoning", "message", "function_call"]
    assert {received.path for received in upstream.requests} == {"/v1/chat/completions"}


SAMPLING: dict[str, Any] = {"stop": ["END"], "seed": 7, "logit_bias": {"11": -5.0}}


async def test_a_chat_server_is_sent_stop_seed_and_logit_bias(kind: str) -> None:
    async with (
        ScriptedUpstream([Script(text=["Hello"])]) as upstream,
        calling(kind, upstream.base_url, wire_api="chat") as caller,
    ):
        made = await caller.create(model="echo", input="x", n=1, **SAMPLING)

    posted = upstream.requests[0].json
    assert {name: posted.get(name) for name in SAMPLING} == SAMPLING
    assert "n" not in posted
    assert not made.antiphon  # nothing was degraded


async def test_further_answers_of_a_chat_server_are_reported(kind: str) -> None:
    choices = [
        {"index": index, "message": {"content": f"<{index}>"}, "finish_reason": "stop"}
        for index in (0, 1)
    ]
    body = msgspec.json.encode({"choices": choices})
    answer = Answer(pieces=[body], content_type="application/json")
    async with (
        native(answer) as server,
        calling(kind, server.base_url, wire_api="chat") as caller,
    ):
        made = await caller.create(model="m", input="x")
    assert made.output_text == "<0>"
    assert made.antiphon
    assert made.antiphon.degraded[0].startswith("n: choices beyond the first are not returned")


async def test_a_server_that_closed_an_idle_connection_costs_no_attempt(kind: str) -> None:
    answered: set[asyncio.StreamWriter] = set()
    message = {"role": "assistant", "content": "hi"}
    chat = {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}

    async def serve(_: Request, connection: Connection) -> None:
        if connection.writer in answered:
            raise ConnectionError  # it hangs up
        answered.add(connection.writer)
        await connection.write(reply(msgspec.json.encode(chat)))

    options: dict[str, Any] = {"max_retries": 0, "wire_api": "chat"}
    async with raw_server(serve) as server, calling(kind, server.url, **options) as caller:
        answers = [await caller.create(model="m", input="x") for _ in range(4)]

    assert [answer.output_text for answer in answers] == ["hi"] * 4
    assert len(server.requests) > len(answers), "no connection was stale"
