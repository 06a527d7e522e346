"""Sessions: turns form a thread, the server is sent what is new, and a lost thread is mended."""

from __future__ import annotations

import logging
from typing import Any

import msgspec
import pytest

from antiphon.backends.scripted import ScriptedBackend
from antiphon.client import ConversationCache, errors
from antiphon.protocol.deltas import CallGrew, CallOpened, TextGrew, UsageKnown
from antiphon.protocol.items import text_of
from antiphon.protocol.response import Usage
from antiphon.testing import Script, ScriptedUpstream, serve_gateway
from tests.asking import terminal
from tests.building import COUNTED, STOP, build
from tests.client.calling import KINDS, calling
from tests.client.native import Answer, NativeServer, error, native, response, whole

GONE = error(400, "previous_response_not_found", "Previous response with id 'resp_1' not found.")
FIRST = whole(terminal(build([TextGrew("one"), COUNTED, STOP])))
SECOND = whole(terminal(build([TextGrew("two"), COUNTED, STOP])))


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def texts(server: NativeServer, number: int) -> list[str]:
    """Return the texts of what a request sent, item after item."""
    sent = server.body(number)["input"]
    if isinstance(sent, str):
        return [sent]
    return ["".join(part["text"] for part in item["content"]) for item in sent]


@pytest.mark.requirement("22-C4", "REQ-004.1", "22-goal-2")
async def test_the_second_turn_sends_only_what_is_new(kind: str) -> None:
    async with (
        native(FIRST, SECOND) as server,
        calling(kind, server.base_url) as caller,
    ):
        await caller.create(model="m", session="s", input="first")
        await caller.create(model="m", session="s", input="second")

    assert "previous_response_id" not in server.body(0)
    assert server.body(1)["previous_response_id"] == "resp_1"
    assert texts(server, 1) == ["second"]


@pytest.mark.requirement("22-C4", "REQ-004.2")
async def test_a_whole_history_is_cut_to_what_the_server_lacks(kind: str) -> None:
    history: list[dict[str, Any]] = [{"role": "user", "content": "first"}]
    async with (
        native(FIRST, SECOND) as server,
        calling(kind, server.base_url) as caller,
    ):
        await caller.create(model="m", session="s", messages=history)
        history += [
            {"role": "assistant", "content": "one"},
            {"role": "user", "content": "second"},
        ]
        await caller.create(model="m", session="s", messages=history)

    assert server.body(1)["previous_response_id"] == "resp_1"
    assert texts(server, 1) == ["second"]


async def test_an_edited_history_is_sent_whole_and_from_no_thread(kind: str) -> None:
    edited = [
        {"role": "user", "content": "other"},
        {"role": "assistant", "content": "one"},
        {"role": "user", "content": "second"},
    ]
    async with (
        native(FIRST, SECOND) as server,
        calling(kind, server.base_url) as caller,
    ):
        await caller.create(model="m", session="s", messages=[{"role": "user", "content": "first"}])
        await caller.create(model="m", session="s", messages=edited)

    assert "previous_response_id" not in server.body(1)
    assert texts(server, 1) == ["other", "one", "second"]


@pytest.mark.requirement("22-C4")
@pytest.mark.parametrize("other", [{"stateful": False}, {"session": "t"}, {"model": "n"}])
async def test_another_session_model_or_a_stateless_call_has_no_thread(
    kind: str, other: dict[str, Any]
) -> None:
    async with (
        native(FIRST, SECOND) as server,
        calling(kind, server.base_url) as caller,
    ):
        await caller.create(model="m", session="s", input="first")
        await caller.create(**({"model": "m", "session": "s", "input": "second"} | other))

    assert "previous_response_id" not in server.body(1)


@pytest.mark.requirement("22-C5")
@pytest.mark.parametrize("status", [400, 404, 410])
@pytest.mark.parametrize("is_streamed", [False, True])
async def test_a_lost_thread_is_mended_once_and_nobody_notices(
    kind: str, status: int, is_streamed: bool
) -> None:
    gone = error(status, "previous_response_not_found", "Previous response 'resp_1' not found")
    answers = (FIRST, gone, SECOND)
    async with (
        native(*answers) as server,
        calling(kind, server.base_url) as caller,
    ):
        await caller.create(model="m", session="s", input="first")
        if is_streamed:
            seen = await caller.follow(model="m", session="s", input="second")
            assert seen.error is None and seen.response is not None
            answer = seen.response
        else:
            answer = await caller.create(model="m", session="s", input="second")

    assert answer.output_text == "two"
    assert texts(server, 2) == ["first", "one", "second"]
    assert "previous_response_id" not in server.body(2)
    keys = [request.headers["idempotency-key"] for request in server.requests]
    assert len(set(keys)) == 3


async def test_a_thread_that_is_lost_for_good_goes_on_from_what_we_have(kind: str) -> None:
    async with (
        native(FIRST, GONE, GONE, SECOND) as server,
        calling(kind, server.base_url) as caller,
    ):
        await caller.create(model="m", session="s", input="first")
        with pytest.raises(errors.ThreadGone):
            await caller.create(model="m", session="s", input="second")
        assert len(server.requests) == 3
        await caller.create(model="m", session="s", input="third")

    assert "previous_response_id" not in server.body(3)
    assert texts(server, 3) == ["first", "one", "third"]


async def test_a_thread_named_by_the_caller_is_mended_only_with_its_history(kind: str) -> None:
    history = [
        {"role": "user", "content": "first"},
        {"role": "assistant", "content": "one"},
        {"role": "user", "content": "second"},
    ]
    async with (
        native(GONE, SECOND, GONE) as server,
        calling(kind, server.base_url) as caller,
    ):
        made = await caller.create(model="m", previous_response_id="resp_9", messages=history)
        with pytest.raises(errors.ThreadGone, match="not found") as caught:
            await caller.create(model="m", previous_response_id="resp_9", input="second")

    assert made.output_text == "two"
    assert texts(server, 0) == ["second"]
    assert texts(server, 1) == ["first", "one", "second"]
    assert caught.value.thread == "resp_9"


async def test_a_failed_turn_is_not_continued_from(kind: str) -> None:
    failed = whole(terminal(build([TextGrew("half")])))
    async with (
        native(FIRST, failed, SECOND) as server,
        calling(kind, server.base_url) as caller,
    ):
        await caller.create(model="m", session="s", input="first")
        assert (await caller.create(model="m", session="s", input="lost")).status == "failed"
        await caller.create(model="m", session="s", input="second")

    assert server.body(2)["previous_response_id"] == "resp_1"
    assert texts(server, 2) == ["second"]


async def test_a_stream_that_was_left_is_not_continued_from(kind: str) -> None:
    slow = Answer(
        pieces=response(TextGrew("half"), COUNTED, STOP).pieces[:4],
        then="stall",
    )
    async with (
        native(FIRST, slow, SECOND) as server,
        calling(kind, server.base_url) as caller,
    ):
        await caller.create(model="m", session="s", input="first")
        await caller.peek(2, model="m", session="s", input="left")
        await caller.create(model="m", session="s", input="second")

    assert texts(server, 2) == ["second"]


@pytest.mark.requirement("REQ-002.1", "REQ-002.2")
async def test_tokens_are_the_servers_and_an_estimate_only_where_it_says_nothing(
    kind: str,
) -> None:
    counted = UsageKnown(Usage(input_tokens=40, output_tokens=2, total_tokens=42))
    said = terminal(build([TextGrew("one"), counted, STOP]))
    silent = terminal(build([TextGrew("a word or two"), STOP]))
    silent.usage = None
    async with (
        native(whole(said), whole(silent)) as server,
        calling(kind, server.base_url) as caller,
    ):
        await caller.create(model="m", session="s", input="first")
        first = caller.cache.get("s", "m")
        await caller.create(model="m", session="s", input="second")
        second = caller.cache.get("s", "m")

    assert first is not None and second is not None
    assert (first.tokens, first.is_estimate) == (42, False)
    assert second.tokens > 42
    assert second.is_estimate


@pytest.mark.requirement("22-C4", "22-E2")
async def test_the_second_turn_on_our_gateway_sends_only_the_question(kind: str) -> None:
    long = "word " * 400
    async with (
        serve_gateway(ScriptedBackend(models=["echo"])) as gateway,
        calling(kind, gateway.base_url) as caller,
    ):
        first = await caller.create(model="echo", session="s", input=long)
        second = await caller.create(model="echo", session="s", input="And now?")
        kept = await caller.all_input_items(second.id)

    assert second.previous_response_id == first.id
    assert [text_of(item["content"]) for item in kept] == ["And now?"]


async def test_a_gateway_that_lost_the_thread_is_told_everything(kind: str) -> None:
    async with (
        serve_gateway(ScriptedBackend(models=["echo"])) as gateway,
        calling(kind, gateway.base_url) as caller,
    ):
        first = await caller.create(model="echo", session="s", input="Remember the milk")
        await caller.delete(first.id)
        seen = await caller.follow(model="echo", session="s", input="What was it?")

        assert seen.error is None and seen.response is not None
        kept = await caller.all_input_items(seen.response.id)
    assert [item["role"] for item in kept] == ["user", "assistant", "user"]
    assert seen.response.previous_response_id is None


@pytest.mark.requirement("REQ-004.2")
async def test_tool_outputs_go_out_alone_because_the_server_has_the_calls(kind: str) -> None:
    calls = (
        CallOpened(0, "f", "call_a"),
        CallGrew(0, "{}"),
        CallOpened(1, "g", "call_b"),
        CallGrew(1, "{}"),
    )
    asked = whole(terminal(build([*calls, COUNTED, STOP])))
    outputs = [
        {"type": "function_call_output", "call_id": "call_a", "output": "1"},
        {"type": "function_call_output", "call_id": "call_b", "output": "2"},
    ]
    async with (
        native(asked, GONE, SECOND) as server,
        calling(kind, server.base_url) as caller,
    ):
        await caller.create(model="m", session="s", input="first")
        await caller.create(model="m", session="s", input=outputs)

    assert server.body(1)["input"] == outputs
    kinds = [item["type"] for item in server.body(2)["input"]]
    assert kinds == ["message", "function_call", "function_call", *["function_call_output"] * 2]


async def test_a_chat_server_is_sent_the_whole_session_every_time(kind: str) -> None:
    async with (
        ScriptedUpstream(Script(text="fine")) as upstream,
        calling(kind, upstream.base_url, wire_api="chat") as caller,
    ):
        await caller.create(model="echo", session="s", input="first")
        await caller.create(model="echo", session="s", input="second")

    assert [message["content"] for message in upstream.requests[1].json["messages"]] == [
        "first",
        "fine",
        "second",
    ]


@pytest.mark.requirement("22-C3")
async def test_a_cache_can_be_shared_and_its_threads_run_out(kind: str) -> None:
    now = [0.0]
    cache = ConversationCache(ttl=60.0, clock=lambda: now[0])
    async with native(FIRST, SECOND, SECOND) as server:
        async with calling(kind, server.base_url, cache=cache) as caller:
            await caller.create(model="m", session="s", input="first")
        async with calling(kind, server.base_url, cache=cache) as caller:
            await caller.create(model="m", session="s", input="second")
            now[0] += 61.0
            await caller.create(model="m", session="s", input="third")

    assert server.body(1)["previous_response_id"] == "resp_1"
    assert "previous_response_id" not in server.body(2)


@pytest.mark.requirement("REQ-010.1")
async def test_the_log_tells_sizes_and_decisions_and_no_content(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="antiphon")
    async with (
        native(FIRST, GONE, SECOND) as server,
        calling(kind, server.base_url, api_key="sk-secret-key") as caller,
    ):
        await caller.create(model="m", session="sess-x", input="the secret question")
        await caller.create(model="m", session="sess-x", input="another secret question")

    records = [record for record in caplog.records if record.name.startswith("antiphon.client")]
    told = "\n".join(record.getMessage() for record in records)
    assert {record.levelname for record in records} == {"DEBUG"}
    assert "cache tokens updated" in told
    assert "cannot be continued" in told
    assert "posting" in told
    assert "secret" not in told and "one" not in told.split()


# Calls that the user goes on without.

CALLED = whole(terminal(build([CallOpened(0, "f", "call_1"), CallGrew(0, "{}"), COUNTED, STOP])))
NO_TOOL_OUTPUT = error(400, "", "No tool output found for function call call_1.")
ASKED = {"role": "user", "content": "first"}
CALL = {"type": "function_call", "call_id": "call_1", "name": "f", "arguments": "{}"}
NEVER_MIND = {"role": "user", "content": "never mind"}


def lacks_output(body: dict[str, Any], known: set[str]) -> set[str]:
    """Return the calls that OpenAI's server would miss an output for; `known` are its own."""
    items = body["input"] if isinstance(body["input"], list) else []
    calls = {item["call_id"] for item in items if item.get("type") == "function_call"} | known
    return calls - {item["call_id"] for item in items if item["type"] == "function_call_output"}


@pytest.mark.requirement("REQ-004.2")
@pytest.mark.parametrize("way", ["messages", "input"])
async def test_a_session_goes_on_after_a_call_that_nobody_answered(kind: str, way: str) -> None:
    asked: list[dict[str, Any]] = [{"input": "first"}, {"input": "never mind"}, {"input": "so?"}]
    if way == "messages":
        said = {"role": "assistant", "content": "one"}
        history = [ASKED, CALL, NEVER_MIND, said, {"role": "user", "content": "so?"}]
        asked = [{"messages": history[:count]} for count in (1, 3, 5)]
    async with (
        native(CALLED, FIRST, SECOND) as server,
        calling(kind, server.base_url) as caller,
    ):
        for question in asked:
            await caller.create(model="m", session="s", **question)

    assert server.body(1)["previous_response_id"] == "resp_1"
    assert lacks_output(server.body(1), {"call_1"}) == set()
    assert server.body(1)["input"][0]["output"] == "(no output was provided for this call)"
    # The history of the caller is still known: the third turn sends only what is new.
    assert server.body(2)["previous_response_id"] == "resp_1"
    assert texts(server, 2) == ["so?"]


async def test_a_call_before_the_output_of_a_server_run_tool_still_needs_its_own(
    kind: str,
) -> None:
    called = terminal(build([CallOpened(0, "f", "call_1"), CallGrew(0, "{}"), COUNTED, STOP]))
    ran = [
        {"type": "shell_call", "id": "sh_1", "call_id": "s", "action": {"commands": ["ls"]}},
        {"type": "shell_call_output", "id": "sho_1", "call_id": "s", "output": []},
    ]
    mixed = msgspec.structs.replace(called, output=[*called.output, *ran])
    async with (
        native(whole(mixed), FIRST) as server,
        calling(kind, server.base_url) as caller,
    ):
        await caller.create(model="m", session="s", input="first")
        await caller.create(model="m", session="s", input="never mind")

    assert server.body(1)["previous_response_id"] == "resp_1"
    assert lacks_output(server.body(1), {"call_1"}) == set()


@pytest.mark.requirement("REQ-004.2")
@pytest.mark.parametrize("is_named", [True, False])
async def test_a_server_that_misses_an_output_is_sent_the_full_history_once(
    kind: str, is_named: bool
) -> None:
    given: dict[str, Any] = {"previous_response_id": "resp_9"} if is_named else {}
    async with (
        native(NO_TOOL_OUTPUT, FIRST) as server,
        calling(kind, server.base_url) as caller,
    ):
        answer = await caller.create(model="m", messages=[ASKED, CALL, NEVER_MIND], **given)

    assert answer.output_text == "one"
    assert len(server.requests) == 2
    assert "previous_response_id" not in server.body(1)
    assert lacks_output(server.body(1), set()) == set()
    assert [item["type"] for item in server.body(1)["input"]] == [
        *("message", "function_call", "function_call_output", "message"),
    ]


async def test_without_the_history_a_missing_output_is_an_error_of_its_own(kind: str) -> None:
    async with native(NO_TOOL_OUTPUT) as server, calling(kind, server.base_url) as caller:
        with pytest.raises(errors.OutputMissing, match="call_1"):
            await caller.create(model="m", previous_response_id="resp_9", input="never mind")
    assert len(server.requests) == 1


async def test_a_history_that_still_lacks_an_output_is_not_sent_for_ever(kind: str) -> None:
    async with native(NO_TOOL_OUTPUT) as server, calling(kind, server.base_url) as caller:
        with pytest.raises(errors.OutputMissing):
            await caller.create(model="m", messages=[ASKED, CALL, NEVER_MIND])
    assert len(server.requests) == 2


@pytest.mark.parametrize("is_streamed", [True, False])
async def test_a_decision_about_a_thread_is_logged_once(
    kind: str, is_streamed: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="antiphon")
    history = [ASKED, {"role": "assistant", "content": "one"}, NEVER_MIND]
    first, second = (response(TextGrew(it), COUNTED, STOP) for it in ("one", "two"))
    async with (
        native(first, second) as server,
        calling(kind, server.base_url) as caller,
    ):
        for messages in (history[:1], history):
            if is_streamed:
                await caller.follow(model="m", session="s", messages=messages)
            else:
                await caller.create(model="m", session="s", messages=messages)

    lines = [record.getMessage() for record in caplog.records]
    assert [line for line in lines if "trimmed" in line] == [
        "trimmed 2 of 3 items that the server has"
    ]
