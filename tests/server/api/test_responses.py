"""POST /v1/responses and its relatives, over a real socket."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest

from antiphon.backends.base import DeltaSink
from antiphon.backends.chat import ChatBackend
from antiphon.backends.scripted import ScriptedBackend, Step
from antiphon.gateway.assemble import ServerSettings
from antiphon.protocol.deltas import (
    CallGrew,
    CallOpened,
    Degraded,
    ReasoningGrew,
    Stopped,
    TextGrew,
    UsageKnown,
)
from antiphon.protocol.errors import BackendError, ContextOverflow
from antiphon.protocol.events import ErrorEvent, OutputTextDelta, event_type
from antiphon.protocol.response import InputDetails, OutputDetails, Usage
from antiphon.testing import Script, ScriptedUpstream
from antiphon.testing.gateway import serve_gateway
from antiphon.wires.chat.profiles import Profile
from tests.asking import ask, ask_stream, events_of, request, terminal

STOP = Stopped("stop")
PLAIN = Profile(name="plain", extra_fields=frozenset())
FUNCTION = {"type": "function", "name": "f", "parameters": {"type": "object"}}
OTHER = {"type": "function", "name": "g", "parameters": {"type": "object"}}


async def test_an_answer_is_a_whole_response() -> None:
    async with serve_gateway(ScriptedBackend()) as gateway:
        answer = await ask(gateway, input="Good morning", metadata={"k": "v"})

    assert answer.status == 200
    assert answer.json["status"] == "completed"
    assert answer.json["output"][0]["content"][0]["text"] == "Good morning"
    assert answer.json["metadata"] == {"k": "v"}
    assert answer.json["usage"]["total_tokens"] == 4
    assert answer.json["id"].startswith("resp_")
    assert answer.headers["x-request-id"].startswith("req_")
    assert "x-antiphon-degraded" not in answer.headers


async def test_a_stream_ends_in_the_response_that_can_be_retrieved() -> None:
    async with serve_gateway(ScriptedBackend()) as gateway:
        events = await ask_stream(gateway, input="Good morning")
        stored = await request(gateway, "GET", f"/responses/{terminal(events).id}")

    deltas = [event.delta for event in events if isinstance(event, OutputTextDelta)]
    assert "".join(deltas) == "Good morning"
    assert stored.json["output"] == terminal(events).output
    assert stored.json["usage"]["output_tokens"] == 2


async def test_streaming_and_not_streaming_say_the_same() -> None:
    script: list[Step] = [
        ReasoningGrew("hm"),
        TextGrew("Let me see."),
        CallOpened(0, "f", "call_a"),
        CallOpened(1, "g", "call_b"),
        CallGrew(0, '{"x":'),
        CallGrew(1, "{}"),
        CallGrew(0, "1}"),
        UsageKnown(
            Usage(
                input_tokens=9,
                input_tokens_details=InputDetails(cached_tokens=4),
                output_tokens=7,
                output_tokens_details=OutputDetails(reasoning_tokens=2),
                total_tokens=16,
            )
        ),
        STOP,
    ]
    async with serve_gateway(ScriptedBackend([script, script])) as gateway:
        streamed = terminal(await ask_stream(gateway, tools=[FUNCTION, OTHER]))
        plain = (await ask(gateway, tools=[FUNCTION, OTHER])).json

    def without_ids(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [{key: item[key] for key in item if key != "id"} for item in items]

    assert without_ids(streamed.output) == without_ids(plain["output"])
    assert plain["usage"]["input_tokens_details"]["cached_tokens"] == 4
    assert plain["usage"]["output_tokens_details"]["reasoning_tokens"] == 2


async def test_a_deleted_response_is_gone() -> None:
    async with serve_gateway(ScriptedBackend()) as gateway:
        response_id = (await ask(gateway)).json["id"]
        deleted = await request(gateway, "DELETE", f"/responses/{response_id}")
        again = await request(gateway, "DELETE", f"/responses/{response_id}")
        missing = await request(gateway, "GET", f"/responses/{response_id}")

    assert deleted.json == {"id": response_id, "object": "response.deleted", "deleted": True}
    assert again.status == missing.status == 404
    assert missing.error["code"] == "response_not_found"


@pytest.mark.requirement("003-ignored-1")
async def test_what_is_not_stored_cannot_be_found_again() -> None:
    async with serve_gateway(ScriptedBackend()) as gateway:
        response_id = (await ask(gateway, store=False)).json["id"]
        missing = await request(gateway, "GET", f"/responses/{response_id}")
        follow_up = await ask(gateway, previous_response_id=response_id)

    assert missing.status == 404
    assert follow_up.status == 400
    assert follow_up.error["code"] == "previous_response_not_found"


async def test_input_items_come_in_pages() -> None:
    items = [{"role": "user", "content": str(number)} for number in range(5)]
    async with serve_gateway(ScriptedBackend()) as gateway:
        path = f"/responses/{(await ask(gateway, input=items)).json['id']}/input_items"
        newest = (await request(gateway, "GET", f"{path}?limit=2")).json
        rest = (await request(gateway, "GET", f"{path}?after={newest['last_id']}")).json
        oldest = (await request(gateway, "GET", f"{path}?order=asc&limit=1")).json

    def texts(page: dict[str, Any]) -> list[str]:
        return [item["content"][0]["text"] for item in page["data"]]

    assert (texts(newest), newest["has_more"]) == (["4", "3"], True)
    assert (texts(rest), rest["has_more"]) == (["2", "1", "0"], False)
    assert texts(oldest) == ["0"]


@pytest.mark.parametrize("query", ["limit=0", "limit=101", "limit=x", "order=up", "after=nobody"])
async def test_a_page_that_cannot_be_is_refused(query: str) -> None:
    async with serve_gateway(ScriptedBackend()) as gateway:
        path = f"/responses/{(await ask(gateway)).json['id']}/input_items"
        answer = await request(gateway, "GET", f"{path}?{query}")

    assert answer.status == 400
    assert answer.error["param"] == query.split("=")[0]


@pytest.mark.requirement("003-state-3")
async def test_an_item_can_be_referred_to() -> None:
    backend = ScriptedBackend()
    async with serve_gateway(backend) as gateway:
        first = (await ask(gateway, input="remember me")).json
        reference = {"type": "item_reference", "id": first["output"][0]["id"]}
        await ask(gateway, input=[reference, {"role": "user", "content": "and?"}])
        unknown = await ask(gateway, input=[{"type": "item_reference", "id": "msg_no"}])

    assert backend.plans[1].items[0] == first["output"][0]
    assert (unknown.status, unknown.error["param"]) == (404, "input[0].id")


async def test_a_reference_to_what_is_in_the_chain_adds_nothing() -> None:
    backend = ScriptedBackend()
    async with serve_gateway(backend) as gateway:
        first = (await ask(gateway)).json
        reference = {"type": "item_reference", "id": first["output"][0]["id"]}
        await ask(
            gateway,
            input=[reference, {"role": "user", "content": "and?"}],
            previous_response_id=first["id"],
        )

    assert len(backend.plans[1].items) == 3


@pytest.mark.requirement("003-errors-4")
async def test_an_error_before_the_first_word_is_an_http_error() -> None:
    refusal = BackendError("slow down", code="rate_limit_exceeded", status=429, retry_after=7)
    async with serve_gateway(ScriptedBackend([[refusal], [refusal]])) as gateway:
        plain = await ask(gateway)
        streamed = await ask(gateway, stream=True)

    for answer in (plain, streamed):
        assert answer.status == 429
        assert answer.headers["Retry-After"] == "7"
        assert answer.error["code"] == "rate_limit_exceeded"


@pytest.mark.requirement("003-errors-4")
async def test_an_error_after_the_first_word_keeps_the_words() -> None:
    broken: list[Step] = [TextGrew("half an "), BackendError("gone", code="upstream_closed")]
    async with serve_gateway(ScriptedBackend([broken, broken])) as gateway:
        events = await ask_stream(gateway)
        plain = await ask(gateway)
        stored = await request(gateway, "GET", f"/responses/{terminal(events).id}")
        follow_up = await ask(gateway, previous_response_id=terminal(events).id)

    assert [event_type(event) for event in events[-2:]] == ["error", "response.failed"]
    assert terminal(events).output_text == "half an "
    assert terminal(events).usage is not None
    assert plain.json["status"] == "failed"
    assert stored.json["error"]["code"] == "upstream_closed"
    assert stored.json["output"][0]["content"][0]["text"] == "half an "
    assert follow_up.error["code"] == "previous_response_not_found"


async def test_a_bug_of_ours_still_ends_the_stream() -> None:
    class Buggy(ScriptedBackend):
        async def play(self, steps: Iterable[Step], sink: DeltaSink) -> None:
            if not sink.push([TextGrew("so far ")]):
                await sink.drained()
            raise ZeroDivisionError

    async with serve_gateway(Buggy()) as gateway:
        events = await ask_stream(gateway)

    error = events[-2]
    assert isinstance(error, ErrorEvent)
    assert error.code == "server_error"
    assert terminal(events).output_text == "so far "


@pytest.mark.requirement("003-errors-3")
async def test_a_bug_before_the_first_word_is_a_500_without_details() -> None:
    class Buggy(ScriptedBackend):
        async def play(self, steps: Iterable[Step], sink: DeltaSink) -> None:
            raise ZeroDivisionError("secret")

    async with serve_gateway(Buggy()) as gateway:
        answer = await ask(gateway)

    assert answer.status == 500
    assert b"secret" not in answer.body


async def test_an_overflow_is_a_400_or_a_failed_stream() -> None:
    overflow = ContextOverflow("too long")
    async with serve_gateway(ScriptedBackend([[overflow], [overflow]])) as gateway:
        plain = await ask(gateway)
        events = await ask_stream(gateway)

    assert (plain.status, plain.error["code"]) == (400, "context_length_exceeded")
    assert terminal(events).status == "failed"
    assert terminal(events).error is not None
    assert terminal(events).error.code == "context_length_exceeded"  # type: ignore[union-attr] # see above


async def test_truncation_auto_drops_the_oldest_and_says_so() -> None:
    backend = ScriptedBackend(
        [[ContextOverflow("too long")], [ContextOverflow("too long")], [TextGrew("ok"), STOP]]
    )
    items = [{"role": "user", "content": str(number)} for number in range(8)]
    async with serve_gateway(backend) as gateway:
        answer = await ask(gateway, input=items, truncation="auto")

    assert answer.status == 200
    assert [item["content"] for item in backend.plans[2].items] == ["6", "7"]
    assert "truncation: the 6 oldest items" in answer.headers["x-antiphon-degraded"]


@pytest.mark.requirement("003-tools")
async def test_what_could_not_be_honoured_is_said_and_stored() -> None:
    script: list[Step] = [[Degraded("text.verbosity")], TextGrew("ok"), STOP]
    async with serve_gateway(ScriptedBackend([script])) as gateway:
        answer = await ask(gateway, tools=[{"type": "web_search"}])
        stored = await request(gateway, "GET", f"/responses/{answer.json['id']}")

    degraded = ["tools[0] (web_search): it cannot be run here", "text.verbosity"]
    assert answer.headers["x-antiphon-degraded"] == "; ".join(degraded)
    assert stored.json["antiphon"]["degraded"] == degraded


@pytest.mark.requirement("003-tools")
async def test_strict_refuses_what_cannot_be_honoured() -> None:
    script: list[Step] = [[Degraded("text.verbosity")], TextGrew("ok"), STOP]
    backend = ScriptedBackend([script, script])
    async with serve_gateway(backend) as gateway:
        answer = await ask(gateway, {"x-antiphon-strict": "1"})
        tool = await ask(gateway, {"x-antiphon-strict": "1"}, tools=[{"type": "web_search"}])

    assert (answer.status, answer.error["param"]) == (400, "text.verbosity")
    assert (tool.status, tool.error["param"]) == (400, "tools[0]")


async def test_a_suppressed_call_leaves_no_trace_but_a_note() -> None:
    script: list[Step] = [
        CallOpened(0, "g", "call_g"),
        CallGrew(0, "{}"),
        CallOpened(1, "f", "call_f"),
        CallGrew(1, "{}"),
        STOP,
    ]
    choice = {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "f"}]}
    async with serve_gateway(ScriptedBackend([script])) as gateway:
        events = await ask_stream(gateway, tools=[FUNCTION, OTHER], tool_choice=choice)

    response = terminal(events)
    assert [item["name"] for item in response.output] == ["f"]
    assert response.antiphon
    assert response.antiphon.degraded == ("tool_choice: a call to 'g' was suppressed",)


async def test_a_required_call_that_was_not_made_fails() -> None:
    async with serve_gateway(ScriptedBackend([[TextGrew("no"), STOP]] * 2)) as gateway:
        events = await ask_stream(gateway, tools=[FUNCTION], tool_choice="required")

    assert terminal(events).error is not None
    assert terminal(events).error.code == "tool_choice_violated"  # type: ignore[union-attr] # see above
    assert terminal(events).output_text == "no"


def _schema(*, strict: bool) -> dict[str, Any]:
    schema = {"type": "object", "required": ["a"], "properties": {"a": {"type": "integer"}}}
    return {"format": {"type": "json_schema", "name": "n", "schema": schema, "strict": strict}}


@pytest.mark.parametrize(
    ("text", "strict", "status"),
    [
        ('{"a":1}', True, "completed"),
        ('{"a":"x"}', True, "failed"),
        ('{"a":"x"}', False, "completed"),
    ],
)
async def test_an_answer_is_held_against_its_schema(text: str, strict: bool, status: str) -> None:
    async with serve_gateway(ScriptedBackend([[TextGrew(text), STOP]])) as gateway:
        response = terminal(await ask_stream(gateway, text=_schema(strict=strict)))

    assert response.status == status
    assert response.output_text == text
    if status == "failed":
        assert response.error is not None
        assert response.error.code == "output_format_violated"
    elif not strict:
        assert response.antiphon
        assert "does not match the schema" in response.antiphon.degraded[0]


async def test_an_answer_that_cannot_be_checked_is_told_as_unchecked() -> None:
    twice = {"properties": {"a": {"allOf": [{"$ref": "#"}, {"$ref": "#"}]}}}
    form = {"type": "json_schema", "name": "n", "schema": twice, "strict": True}
    deep = '{"a":' * 60 + "{}" + "}" * 60
    async with serve_gateway(ScriptedBackend([[TextGrew(deep), STOP]])) as gateway:
        response = terminal(await ask_stream(gateway, text={"format": form}))

    assert response.status == "completed"
    assert response.antiphon
    assert "too deep to check" in response.antiphon.degraded[0]


async def test_usage_that_nobody_counted_is_estimated_and_marked() -> None:
    async with serve_gateway(ScriptedBackend([[TextGrew("12345678"), STOP]])) as gateway:
        answer = (await ask(gateway, input="12345678")).json

    assert answer["usage"]["output_tokens"] == 2
    assert answer["usage"]["input_tokens"] == 2
    assert answer["antiphon"]["usage"] == "estimated"


@pytest.mark.requirement("003-comparison-2")
async def test_instructions_reach_the_model_and_are_not_inherited() -> None:
    backend = ScriptedBackend()
    async with serve_gateway(backend) as gateway:
        first = (await ask(gateway, instructions="be brief")).json
        second = (await ask(gateway, previous_response_id=first["id"])).json

    assert backend.plans[0].instructions == "be brief"
    assert backend.plans[1].instructions is None
    assert second["instructions"] is None


async def test_open_responses_names_reasoning_and_errors_its_own_way() -> None:
    script: list[Step] = [ReasoningGrew("hm"), TextGrew("x"), BackendError("gone")]
    async with serve_gateway(
        ScriptedBackend([script]), settings=ServerSettings(dialect="open-responses")
    ) as gateway:
        answer = await ask(gateway, stream=True)

    assert b"event: response.reasoning.delta\n" in answer.body
    assert b"reasoning_text.delta" not in answer.body
    assert (
        b'"error":{"type":"upstream_error","code":"upstream_error","message":"gone (what was'
        in (answer.body)
    )


async def test_a_dialect_is_chosen_per_request_and_checked() -> None:
    async with serve_gateway(ScriptedBackend([[ReasoningGrew("hm"), STOP]])) as gateway:
        good = await ask(gateway, {"x-antiphon-dialect": "open-responses"}, stream=True)
        bad = await ask(gateway, {"x-antiphon-dialect": "klingon"})

    assert b"response.reasoning.delta" in good.body
    assert bad.status == 400


@pytest.mark.requirement("003-comparison-7", "003-ignored-3")
async def test_reasoning_goes_to_the_summary_when_it_is_asked_for() -> None:
    async with serve_gateway(ScriptedBackend([[ReasoningGrew("hm"), STOP]])) as gateway:
        events = await ask_stream(gateway, reasoning={"summary": "auto"})

    assert terminal(events).output[0]["summary"] == [{"type": "summary_text", "text": "hm"}]


async def test_a_response_can_be_seen_while_it_grows() -> None:
    go_on = asyncio.Event()
    backend = ScriptedBackend([[TextGrew("a"), go_on, TextGrew("b"), STOP]])
    async with serve_gateway(backend) as gateway:
        running = asyncio.create_task(ask(gateway, stream=True))
        response_id = await _only_response(gateway)
        seen = await request(gateway, "GET", f"/responses/{response_id}")
        follow_up = await ask(gateway, previous_response_id=response_id)
        go_on.set()
        events = events_of((await running).body)

    assert seen.json["status"] == "in_progress"
    assert follow_up.error["code"] == "previous_response_not_found"
    assert terminal(events).id == response_id


async def _only_response(gateway: Any) -> str:
    """Return the id of the turn that runs, as soon as it is there."""
    while True:
        for turn in gateway.app._turns.values():
            if await gateway.store.get("local", turn.response_id) is not None:
                found: str = turn.response_id
                return found
        await asyncio.sleep(0)


async def test_a_websocket_is_sent_back_to_http() -> None:
    async with serve_gateway(ScriptedBackend()) as gateway:
        answer = await request(gateway, "GET", "/responses")

    assert answer.status == 426


async def test_an_empty_format_is_no_format() -> None:
    async with serve_gateway(ScriptedBackend()) as gateway:
        answer = await ask(gateway, text={"format": {}})

    assert (answer.status, answer.json["status"]) == (200, "completed")


async def test_stop_seed_and_logit_bias_are_sent_to_a_chat_upstream_that_takes_them() -> None:
    sampling = {"stop": ["END"], "seed": 7, "logit_bias": {"11": -5}}
    async with ScriptedUpstream([Script(text=["Hi"]), Script(text=["Hi"])]) as upstream:
        takes, lacks = ChatBackend(upstream.base_url), ChatBackend(upstream.base_url, profile=PLAIN)
        async with serve_gateway(takes) as gateway:
            honoured = await ask(gateway, model="echo", n=1, **sampling)
        async with serve_gateway(lacks) as gateway:
            reported = await ask(gateway, model="echo", **sampling)
            refused = await ask(gateway, {"x-antiphon-strict": "1"}, model="echo", **sampling)

    assert {name: upstream.requests[0].json.get(name) for name in sampling} == sampling
    assert "x-antiphon-degraded" not in honoured.headers
    assert sampling.keys().isdisjoint(upstream.requests[1].json)
    assert reported.headers["x-antiphon-degraded"].count("this backend cannot send it") == 3
    assert refused.status == 400
