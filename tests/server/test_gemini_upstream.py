"""The whole path from every door to a Gemini server that verifies what it signed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anthropic
import openai
import pytest

from antiphon.backends.chat import ChatBackend
from antiphon.backends.http import HttpBackend
from antiphon.testing import Script, ScriptedUpstream, serve_gateway
from antiphon.testing.gateway import Gateway
from antiphon.wires.gemini.profiles import profile_for
from antiphon.wires.gemini.signatures import DUMMY
from antiphon.wires.gemini.wire import GeminiWire
from antiphon.wires.messages.profiles import ANTHROPIC
from antiphon.wires.messages.wire import MessagesWire
from tests.asking import ask, ask_stream, terminal
from tests.faults.house import PATIENCE
from tests.gemini_upstream import Cut, GeminiUpstream, Json, Refusal, serve_gemini, text
from tests.messages_upstream import serve_messages
from tests.server.test_background import ended
from tests.talking import talk
from tests.wires.gemini.answers import chunk, finish
from tests.wires.messages.answers import message

MODEL = "google/gemini-3-flash"
LOOK: Any = {"type": "function", "name": "look", "parameters": {"type": "object"}}
SEALED = ["reasoning.encrypted_content"]
USER: Any = {"role": "user", "content": "hello"}


def calling(upstream: GeminiUpstream) -> list[Json]:
    """Return an answer that thinks, and looks twice at once."""
    first = {"functionCall": {"name": "look", "args": {"at": "sky"}, "id": "g1"}}
    return [
        chunk({"text": "I need to look.", "thought": True}),
        chunk(upstream.signed(first)),
        chunk({"functionCall": {"name": "look", "args": {}, "id": "g2"}}),
        finish({"text": ""}),
    ]


def answered(upstream: GeminiUpstream, words: str = "Clouds.") -> list[Json]:
    """Return an answer whose text is signed on its last, empty part."""
    return [chunk({"text": words}), finish(upstream.signed({"text": ""}))]


def results(output: list[Json]) -> list[Json]:
    """Return the results of all calls of an answer, the last call first."""
    calls = [item["call_id"] for item in output if item["type"] == "function_call"]
    done = {"type": "function_call_output", "output": "clouds"}
    return [{**done, "call_id": call_id} for call_id in reversed(calls)]


def backend_of(upstream: GeminiUpstream, account: str = "google", **settings: Any) -> HttpBackend:
    return HttpBackend(upstream.base_url, GeminiWire(profile_for("gemini", **settings), account))


@asynccontextmanager
async def served(**settings: Any) -> AsyncIterator[tuple[Gateway, GeminiUpstream]]:
    async with asyncio.timeout(PATIENCE), serve_gemini() as upstream:
        backend = backend_of(upstream, **settings)
        async with serve_gateway({"google": backend}, default_model=MODEL) as gateway:
            yield gateway, upstream


def kinds(upstream: GeminiUpstream) -> list[str]:
    """Return what the parts of the last request are."""
    return [next(iter(part)) for content in upstream.contents for part in content["parts"]]


LOOP = ["text", "functionCall", "functionCall", "functionResponse", "functionResponse"]


# The doors and modes.


async def test_a_stream_over_sse_has_thoughts_and_calls() -> None:
    async with served() as (gateway, upstream):
        upstream.play(calling(upstream))
        response = terminal(await ask_stream(gateway, tools=[LOOK], include=SEALED))

    found = [item["type"] for item in response.output]
    assert found == ["reasoning", "reasoning", "function_call", "function_call"]
    assert [item["call_id"] for item in response.output[2:]] == ["g1", "g2"]
    assert response.usage is not None and response.usage.total_tokens == 5


async def test_a_loop_continues_by_its_id_with_signatures_that_hold() -> None:
    async with served() as (gateway, upstream):
        upstream.play(calling(upstream), answered(upstream), text("Yes."))
        first = await ask(gateway, tools=[LOOK])
        more = {"previous_response_id": first.json["id"], "input": results(first.json["output"])}
        second = await ask(gateway, tools=[LOOK], **more)
        assert kinds(upstream) == LOOP
        third = await ask(gateway, previous_response_id=second.json["id"], input="Sure?")

    assert upstream.problems == []
    assert third.json["status"] == "completed", third.json
    assert kinds(upstream) == [*LOOP, "text", "text", "text"]
    assert upstream.contents[1]["parts"][0]["thoughtSignature"] != DUMMY
    assert "thoughtSignature" in upstream.contents[3]["parts"][1]


async def test_a_loop_continues_statelessly_with_sealed_reasoning() -> None:
    async with served() as (gateway, upstream):
        upstream.play(calling(upstream), text("Clouds."))
        body: Any = {"tools": [LOOK], "include": SEALED, "store": False}
        first = await ask(gateway, input=[USER], **body)
        output = first.json["output"]
        second = await ask(gateway, input=[USER, *output, *results(output)], **body)

    assert upstream.problems == []
    assert second.json["status"] == "completed", second.json
    assert upstream.contents[1]["parts"][0]["thoughtSignature"] != DUMMY
    assert [part["functionResponse"]["id"] for part in upstream.contents[2]["parts"]] == [
        "g1",
        "g2",
    ]


async def test_a_loop_over_a_websocket() -> None:
    async with served() as (gateway, upstream), talk(gateway.base_url) as socket:
        upstream.play(calling(upstream), text("Clouds."))
        body: Any = {"model": MODEL, "tools": [LOOK]}
        first = (await socket.turn(input="hello", **body))["response"]
        more = {"previous_response_id": first["id"], "input": results(first["output"])}
        second = (await socket.turn(**body, **more))["response"]

    assert upstream.problems == []
    assert second["status"] == "completed"
    assert kinds(upstream) == LOOP


async def test_a_response_in_the_background() -> None:
    async with served() as (gateway, upstream):
        upstream.play(text("Done in the dark."))
        queued = await ask(gateway, background=True)
        done = await ended(gateway, queued.json["id"])

    assert done["output"][0]["content"][0]["text"] == "Done in the dark."


async def test_the_chat_door_keeps_signatures_between_turns() -> None:
    tool: Any = {"type": "function", "function": {"name": "look", "parameters": {}}}
    async with served() as (gateway, upstream):
        upstream.play(calling(upstream), text("Clouds."))
        async with openai.AsyncOpenAI(base_url=gateway.base_url, api_key="x") as client:
            messages: list[Any] = [{"role": "system", "content": "Be brief."}, USER]
            first = await client.chat.completions.create(
                model=MODEL, messages=messages, tools=[tool]
            )
            said = first.choices[0].message
            assert said.tool_calls is not None
            messages.append(said.to_dict())
            messages += [
                {"role": "tool", "tool_call_id": one.id, "content": "sky"}
                for one in said.tool_calls
            ]
            last = await client.chat.completions.create(
                model=MODEL, messages=messages, tools=[tool]
            )

    assert upstream.problems == []
    assert last.choices[0].message.content == "Clouds."
    assert kinds(upstream) == LOOP


async def test_the_messages_door_keeps_signatures_between_turns() -> None:
    tool: Any = {"name": "look", "input_schema": {"type": "object", "properties": {}}}
    body: Any = {"model": MODEL, "max_tokens": 32_000, "tools": [tool]}
    async with served() as (gateway, upstream):
        upstream.play(calling(upstream), text("Clouds."))
        root = gateway.base_url.removesuffix("/v1")
        async with anthropic.AsyncAnthropic(base_url=root, api_key="x") as client:
            async with client.messages.stream(messages=[USER], **body) as streamed:
                first = await streamed.get_final_message()
            said = [block.to_dict() for block in first.content]
            used = [block["id"] for block in said if block["type"] == "tool_use"]
            done = [{"type": "tool_result", "tool_use_id": one, "content": "sky"} for one in used]
            messages: Any = [
                USER,
                {"role": "assistant", "content": said},
                {"role": "user", "content": done},
            ]
            last = await client.messages.create(messages=messages, **body, timeout=PATIENCE)

    assert upstream.problems == []
    assert [block.type for block in last.content] == ["text"]
    assert kinds(upstream) == LOOP
    assert upstream.contents[1]["parts"][0]["thoughtSignature"] != DUMMY


# Providers that change between turns.


async def test_a_conversation_goes_through_three_providers_and_comes_back() -> None:
    async with (
        asyncio.timeout(PATIENCE),
        serve_gemini() as google,
        serve_messages() as anthropic_server,
        ScriptedUpstream(Script(text="Blue.")) as local,
    ):
        claude = HttpBackend(anthropic_server.base_url, MessagesWire(ANTHROPIC, account="claude"))
        chat = ChatBackend(local.base_url)
        backends = {"google": backend_of(google), "claude": claude, "local": chat}
        async with serve_gateway(backends) as gateway:
            google.play(calling(google), text("Clouds."), text("Grey."))
            tool = {"type": "tool_use", "id": "toolu_01A", "name": "look", "input": {}}
            thinking = anthropic_server.thinking("Look.")
            anthropic_server.play(message(thinking, tool, stop="tool_use"))
            body: Any = {"tools": [LOOK], "include": SEALED, "store": False}
            history: list[Any] = [USER]
            answers = []
            for model in (MODEL, "claude/claude-opus-4-8", "local/echo", MODEL):
                answer = await ask(gateway, model=model, input=history, **body)
                answers.append(answer)
                output = answer.json["output"]
                history += [*output, *(results(output) or [USER])]

    assert [answer.status for answer in answers] == [200] * 4, [one.body for one in answers]
    assert google.problems == []
    calls = [
        part for content in google.contents for part in content["parts"] if "functionCall" in part
    ]
    signatures = [part.get("thoughtSignature") for part in calls]
    assert signatures[0] != DUMMY and signatures[1:] == [None, DUMMY]
    assert [part["functionCall"].get("id") for part in calls] == ["g1", "g2", None]
    notes = answers[-1].json["antiphon"]["degraded"]
    assert any("another provider" in note for note in notes)
    assert any("a dummy is sent" in note for note in notes)


async def test_signatures_of_another_account_are_dropped_and_reported() -> None:
    async with served() as (_, upstream), serve_gemini(b"another") as stranger:
        backends = {
            "google": backend_of(upstream),
            "stranger": backend_of(stranger, "stranger"),
        }
        async with serve_gateway(backends) as both:
            upstream.play(calling(upstream))
            stranger.play(text("Clouds."))
            first = await ask(both, model=MODEL, tools=[LOOK])
            more = {"previous_response_id": first.json["id"], "tools": [LOOK]}
            second = await ask(
                both, model="stranger/gemini-3-flash", input=results(first.json["output"]), **more
            )

    assert stranger.problems == []
    assert second.status == 200, second.json
    assert any("another provider" in note for note in second.json["antiphon"]["degraded"])


# Tools of the server, and pauses.


async def test_code_that_the_server_ran_goes_back_as_it_came() -> None:
    python: Any = {"type": "code_interpreter", "container": {"type": "auto"}}
    async with served(hosted=("code_interpreter",)) as (gateway, upstream):
        ran = upstream.signed({"executableCode": {"language": "PYTHON", "code": "1+1"}})
        result = {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "2"}}
        upstream.play([chunk(ran), chunk(result), *answered(upstream, "Two.")], text("Yes."))
        first = await ask(gateway, tools=[python])
        again = {"previous_response_id": first.json["id"], "input": "Sure?"}
        await ask(gateway, tools=[python], **again)

    assert upstream.problems == []
    assert upstream.contents[1]["parts"][:3] == [ran, result, {"text": "Two."}]


async def test_a_pause_is_resumed_in_the_same_message_with_all_usage() -> None:
    async with served() as (gateway, upstream):
        paused = finish({"text": "It "}, reason="CONTINUATION", continuationToken="dG9rZW4=")
        upstream.play([paused], answered(upstream, "rains."))
        response = terminal(await ask_stream(gateway, include=SEALED))

    assert response.status == "completed"
    assert response.output[0]["content"][0]["text"] == "It rains."
    assert response.usage is not None and response.usage.total_tokens == 10
    first, second = (request.body for request in upstream.requests)
    assert second == first[:-1] + b',"continuationToken":"dG9rZW4="}'


# Faults.


async def test_a_malformed_call_is_asked_for_again_once() -> None:
    malformed = [finish(reason="MALFORMED_FUNCTION_CALL")]
    async with served() as (gateway, upstream):
        upstream.play(malformed, text("Now."))
        answer = await ask(gateway)
        upstream.play(malformed, malformed)
        failed = await ask(gateway)

    assert answer.json["output"][0]["content"][0]["text"] == "Now."
    assert len(upstream.requests) == 4
    assert (failed.status, failed.error["code"]) == (502, "upstream_invalid_response")


async def test_an_overloaded_server_is_asked_again_and_then_answers() -> None:
    async with served() as (gateway, upstream):
        upstream.play(Refusal(503, "UNAVAILABLE"), text("Now."))
        answer = await ask(gateway)

    assert answer.json["output"][0]["content"][0]["text"] == "Now."


async def test_a_rate_limit_reaches_the_caller_with_its_delay() -> None:
    delay = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "99s"}
    async with served() as (gateway, upstream):
        upstream.play(Refusal(429, "RESOURCE_EXHAUSTED", "slow down", delay))
        answer = await ask(gateway)

    assert (answer.status, answer.headers["Retry-After"]) == (429, "99")


@pytest.mark.parametrize("is_streamed", [True, False])
async def test_a_blocked_prompt_is_an_error_of_the_caller(is_streamed: bool) -> None:
    async with served() as (gateway, upstream):
        upstream.play([{"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}}])
        answer = await ask(gateway, stream=is_streamed)

    assert (answer.status, answer.error["code"]) == (400, "content_policy")


async def test_a_cut_stream_fails_with_what_came() -> None:
    async with served() as (gateway, upstream):
        upstream.play(Cut(chunk({"text": "Half a sentence"})))
        response = terminal(await ask_stream(gateway))

    assert response.status == "failed"
    assert response.error is not None and response.error.code == "upstream_closed"
    assert response.output[0]["content"][0]["text"] == "Half a sentence"


async def test_an_error_in_mid_stream_ends_the_response_as_failed() -> None:
    error: Json = {"error": {"code": 503, "status": "UNAVAILABLE", "message": "busy"}}
    async with served() as (gateway, upstream):
        upstream.play([chunk({"text": "Half"}), error])
        response = terminal(await ask_stream(gateway))

    assert response.status == "failed"
    assert response.error is not None and response.error.code == "upstream_overloaded"


async def test_only_one_call_passes_where_parallel_calls_are_off() -> None:
    async with served() as (gateway, upstream):
        upstream.play(calling(upstream))
        answer = await ask(gateway, tools=[LOOK], parallel_tool_calls=False)

    calls = [item for item in answer.json["output"] if item["type"] == "function_call"]
    assert [item["call_id"] for item in calls] == ["g1"]
    assert any("parallel_tool_calls" in note for note in answer.json["antiphon"]["degraded"])
