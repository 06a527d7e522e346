"""The whole path from every door to a Messages server that verifies what it signed."""

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
from antiphon.routing.settings import DeploymentSettings, RouteSettings
from antiphon.testing import Script, ScriptedUpstream, serve_gateway
from antiphon.testing.gateway import Gateway
from antiphon.transport.secret import Secret
from antiphon.wires.messages.profiles import ANTHROPIC
from antiphon.wires.messages.wire import MessagesWire
from tests.asking import ask, ask_stream, request, terminal
from tests.faults.house import PATIENCE
from tests.messages_upstream import Cut, MessagesUpstream, Refusal, serve_messages, text
from tests.server.test_background import ended
from tests.talking import talk
from tests.wires.messages.answers import TWINS, message, stream

MODEL = "claude/claude-opus-4-8"
LOOK: Any = {"type": "function", "name": "look", "parameters": {"type": "object"}}
SEALED = ["reasoning.encrypted_content"]
USER: Any = {"role": "user", "content": "hello"}


def calling(upstream: MessagesUpstream) -> dict[str, Any]:
    """Return an answer that thinks, looks twice and thinks in between."""
    first = {"type": "tool_use", "id": "toolu_01A", "name": "look", "input": {"at": "sky"}}
    return message(
        upstream.thinking("I need — to look."),
        {"type": "text", "text": "Let me see."},
        first,
        upstream.redacted("secret"),
        {**first, "id": "toolu_02B", "input": {}},
        stop="tool_use",
    )


def results(output: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the results of all calls of an answer, the last call first."""
    calls = [item["call_id"] for item in output if item["type"] == "function_call"]
    done = {"type": "function_call_output", "output": "clouds"}
    return [{**done, "call_id": call_id} for call_id in reversed(calls)]


@asynccontextmanager
async def served(**settings: Any) -> AsyncIterator[tuple[Gateway, MessagesUpstream]]:
    async with asyncio.timeout(PATIENCE), serve_messages() as upstream:
        wire = MessagesWire(ANTHROPIC, account="claude", **settings)
        backend = HttpBackend(upstream.base_url, wire, key=Secret("sk-ant-secret-1"))
        async with serve_gateway({"claude": backend}, default_model=MODEL) as gateway:
            yield gateway, upstream


def kinds(upstream: MessagesUpstream) -> list[str]:
    return [block["type"] for block in upstream.blocks]


LOOP = ["text", "thinking", "text", "tool_use", "redacted_thinking", "tool_use"]


# The doors and modes.


async def test_a_stream_over_sse_has_thinking_text_and_calls() -> None:
    async with served() as (gateway, upstream):
        upstream.play(calling(upstream))
        response = terminal(await ask_stream(gateway, tools=[LOOK], include=SEALED))

    found = [item["type"] for item in response.output]
    assert found == ["reasoning", "message", "function_call", "reasoning", "function_call"]
    assert response.output[2]["arguments"] == '{"at":"sky"}'
    assert response.usage is not None and response.usage.total_tokens == 15


async def test_a_loop_continues_by_its_id_with_signatures_that_hold() -> None:
    async with served() as (gateway, upstream):
        upstream.play(calling(upstream), text("Clouds."))
        first = await ask(gateway, tools=[LOOK])
        more = {"previous_response_id": first.json["id"], "input": results(first.json["output"])}
        second = await ask(gateway, tools=[LOOK], **more)

    assert second.json["status"] == "completed", second.json
    assert kinds(upstream) == [*LOOP, "tool_result", "tool_result"]


async def test_a_loop_continues_statelessly_with_sealed_reasoning() -> None:
    async with served() as (gateway, upstream):
        upstream.play(calling(upstream), text("Clouds."))
        body: Any = {"tools": [LOOK], "include": SEALED, "store": False}
        first = await ask(gateway, input=[USER], **body)
        output = first.json["output"]
        second = await ask(gateway, input=[USER, *output, *results(output)], **body)

    assert second.json["status"] == "completed", second.json
    assert kinds(upstream) == [*LOOP, "tool_result", "tool_result"]


async def test_a_loop_over_a_websocket() -> None:
    async with served() as (gateway, upstream), talk(gateway.base_url) as socket:
        upstream.play(calling(upstream), text("Clouds."))
        body: Any = {"model": MODEL, "tools": [LOOK]}
        first = (await socket.turn(input="hello", **body))["response"]
        more = {"previous_response_id": first["id"], "input": results(first["output"])}
        second = (await socket.turn(**body, **more))["response"]

    assert second["status"] == "completed"
    assert kinds(upstream) == [*LOOP, "tool_result", "tool_result"]


async def test_a_response_in_the_background() -> None:
    async with served() as (gateway, upstream):
        upstream.play(text("Done in the dark."))
        queued = await ask(gateway, background=True)
        done = await ended(gateway, queued.json["id"])

    assert done["output"][0]["content"][0]["text"] == "Done in the dark."


async def test_the_chat_door() -> None:
    async with served() as (gateway, upstream):
        upstream.play(text("Hello."))
        async with openai.AsyncOpenAI(base_url=gateway.base_url, api_key="x") as client:
            answer = await client.chat.completions.create(
                model=MODEL, messages=[{"role": "system", "content": "Be brief."}, USER]
            )

    assert answer.choices[0].message.content == "Hello."
    assert upstream.requests[0].body["system"] == [{"type": "text", "text": "Be brief."}]


async def test_the_messages_door_gives_back_what_it_got_to_the_block() -> None:
    tool: Any = {"name": "look", "input_schema": {"type": "object", "properties": {}}}
    body: Any = {
        "model": MODEL,
        "max_tokens": 32_000,
        "system": [
            {"type": "text", "text": "x-anthropic-billing-header: cc_version=1; h=af31"},
            {"type": "text", "text": "You are a tool.", "cache_control": {"type": "ephemeral"}},
        ],
        "tools": [tool],
        "thinking": {"type": "adaptive"},
        "output_config": {"effort": "high"},
        "metadata": {"user_id": '{"session_id":"s1"}'},
        "extra_body": {"context_management": {"edits": []}},
    }
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

    assert used == ["toolu_01A", "toolu_02B"]  # the provider's own, all the way
    assert [block.type for block in last.content] == ["text"]
    sent = upstream.requests[-1].body
    assert kinds(upstream) == [*LOOP, "tool_result", "tool_result"]
    assert [block["text"] for block in sent["system"]] == ["You are a tool."]
    assert sent["system"][0]["cache_control"] == {"type": "ephemeral"}
    assert sent["thinking"] == {"type": "adaptive"}
    assert sent["output_config"] == {"effort": "high"}
    assert sent["metadata"]["user_id"] != '{"session_id":"s1"}'


async def test_the_messages_door_counts_without_a_model() -> None:
    async with served() as (gateway, upstream):
        body = {"model": MODEL, "messages": [USER]}
        answer = await request(gateway, "POST", "/messages/count_tokens", body)

    assert answer.json["input_tokens"] == 42
    assert upstream.requests == []


# Providers that change between turns.


async def test_a_conversation_goes_to_another_provider_and_comes_back() -> None:
    async with served() as (_, upstream), ScriptedUpstream(Script(text="Blue.")) as other:
        chat = ChatBackend(other.base_url)
        wire = MessagesWire(ANTHROPIC, account="claude")
        claude = HttpBackend(upstream.base_url, wire, key=Secret("sk-ant-secret-1"))
        async with serve_gateway({"claude": claude, "other": chat}) as both:
            upstream.play(calling(upstream), text("Clouds."))
            body: Any = {"tools": [LOOK], "include": SEALED, "store": False}
            first = await ask(both, model=MODEL, input=[USER], **body)
            history = [USER, *first.json["output"], *results(first.json["output"])]
            second = await ask(both, model="other/echo", input=history, **body)
            history += [*second.json["output"], {"role": "user", "content": "And now?"}]
            third = await ask(both, model=MODEL, input=history, **body)

    assert [one.status for one in (first, second, third)] == [200, 200, 200], third.json
    assert third.json["output"][0]["content"][0]["text"] == "Clouds."
    assert kinds(upstream) == [*LOOP, "tool_result", "tool_result", "text", "text"]
    dropped = [note for note in second.json["antiphon"]["degraded"] if "another provider" in note]
    assert len(dropped) == 1


async def test_signatures_of_another_account_are_dropped_and_reported() -> None:
    async with served() as (_, upstream), serve_messages(b"another") as stranger:
        backends = {
            name: HttpBackend(one.base_url, MessagesWire(ANTHROPIC, account=name))
            for name, one in {"claude": upstream, "stranger": stranger}.items()
        }
        async with serve_gateway(backends) as both:
            upstream.play(calling(upstream))
            stranger.play(text("Clouds."))
            first = await ask(both, model=MODEL, tools=[LOOK])
            more = {"previous_response_id": first.json["id"], "tools": [LOOK]}
            second = await ask(
                both, model="stranger/claude-x", input=results(first.json["output"]), **more
            )

    assert second.json["status"] == "completed", second.json
    assert "thinking" not in kinds(stranger)
    assert any("another provider" in note for note in second.json["antiphon"]["degraded"])


# Tools that the provider runs.


async def test_a_pause_is_resumed_in_the_same_response_with_all_usage() -> None:
    search: Any = {"type": "web_search"}
    async with served(hosted=["web_search"]) as (gateway, upstream):
        paused = message(upstream.thinking("Search."), *TWINS["search"]["content"][:2])
        upstream.play({**paused, "stop_reason": "pause_turn"}, text("It rains."))
        response = terminal(await ask_stream(gateway, tools=[search], include=SEALED))

    assert response.status == "completed"
    found = [item["type"] for item in response.output]
    assert found == ["reasoning", "web_search_call", "message"]
    assert response.usage is not None and response.usage.total_tokens == 30
    assert upstream.requests[1].body["messages"][-1] == {
        "role": "assistant",
        "content": paused["content"],
    }


async def test_a_provider_that_pauses_without_end_is_left_incomplete() -> None:
    async with served(hosted=["web_search"]) as (gateway, upstream):
        call = {"type": "server_tool_use", "name": "web_search", "input": {"query": "x"}}
        searches = [{**call, "id": f"srvtoolu_{number}"} for number in range(11)]
        upstream.play(*[message(one, stop="pause_turn") for one in searches])
        response = terminal(await ask_stream(gateway, tools=[{"type": "web_search"}]))

    assert response.status == "incomplete"
    assert len(upstream.requests) == 11
    assert response.antiphon
    assert any("paused" in note for note in response.antiphon.degraded)


SOURCES = ["web_search_call.action.sources"]


async def test_a_search_goes_back_to_its_provider_as_it_came() -> None:
    async with served(hosted=["web_search"]) as (gateway, upstream):
        upstream.play(TWINS["search"], text("Yes."))
        first = await ask(gateway, tools=[{"type": "web_search"}], include=SOURCES)
        body: Any = {"previous_response_id": first.json["id"], "input": "Sure?"}
        await ask(gateway, tools=[{"type": "web_search"}], **body)

    assert first.json["output"][0]["action"]["sources"][0]["title"] == "Rain"
    # Texts that cite pages go back with the index by which the provider finds them.
    assert upstream.blocks[1:-1] == TWINS["search"]["content"]


async def test_a_chat_model_is_shown_what_a_search_found_and_that_is_reported() -> None:
    async with served(hosted=["web_search"]) as (gateway, upstream):
        upstream.play(TWINS["search"])
        first = await ask(gateway, tools=[{"type": "web_search"}], store=False, include=SOURCES)
    async with ScriptedUpstream(Script(text="Boots.")) as other:
        async with serve_gateway(ChatBackend(other.base_url)) as chat:
            history = [USER, *first.json["output"], USER]
            second = await ask(chat, input=history)
        messages = other.requests[0].json["messages"]

    shown = [one["content"] for one in messages if one["role"] == "tool"]
    assert len(shown) == 2
    assert all("Rain" in one and "https://weather.example/rain" in one for one in shown)
    assert "opaque" not in str(messages)
    assert any(note.endswith(".anthropic:blocks") for note in second.json["antiphon"]["degraded"])


# Faults.


async def test_an_overloaded_provider_is_asked_again_and_then_answers() -> None:
    async with served() as (gateway, upstream):
        upstream.play(Refusal(529, "overloaded_error"), text("Now."))
        answer = await ask(gateway)

    assert answer.json["output"][0]["content"][0]["text"] == "Now."
    assert len(upstream.requests) == 2


async def test_an_error_before_any_content_is_asked_again() -> None:
    head = stream(text("x")).partition(b"event: content_block_start")[0]
    error = b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error"}}\n\n'
    async with served() as (gateway, upstream):
        upstream.play(Cut(head + error), text("Now."))
        response = terminal(await ask_stream(gateway))

    assert response.status == "completed"
    assert len(upstream.requests) == 2


async def test_a_cut_stream_fails_with_what_came() -> None:
    data = stream(text("Half a sentence")).partition(b"event: content_block_stop")[0]
    async with served() as (gateway, upstream):
        upstream.play(Cut(data))
        response = terminal(await ask_stream(gateway))

    assert response.status == "failed"
    assert response.output[0]["content"][0]["text"] == "Half a sentence"


async def test_an_overflow_is_the_callers_to_fix() -> None:
    words = "prompt is too long: 208310 tokens > 200000 maximum"
    async with served() as (gateway, upstream):
        upstream.play(Refusal(400, "invalid_request_error", words))
        answer = await ask(gateway)

    assert answer.error["code"] == "context_length_exceeded"


@pytest.mark.parametrize("door", ["/responses", "/messages", "/chat/completions"])
async def test_the_key_never_leaves_through_an_error(door: str) -> None:
    body: Any = {"model": MODEL, "max_tokens": 9, "messages": [USER]}
    if door == "/responses":
        body = {"model": MODEL, "input": "hello"}
    async with served() as (gateway, upstream):
        upstream.play(Refusal(400, "invalid_request_error", "the key sk-ant-secret-1 is odd"))
        answer = await request(gateway, "POST", door, body)

    assert b"sk-ant-secret-1" not in answer.body
    assert answer.status == 400


# Betas.


async def test_betas_of_the_messages_door_are_passed_on_if_they_are_allowed() -> None:
    wanted = "context-management-2025-06-27, context-1m-2025-08-07,effort-\tx,"
    body = {
        "model": MODEL,
        "max_tokens": 9,
        "messages": [{"role": "user", "content": "Hi."}],
        "context_management": {"edits": []},
    }
    async with served(betas=["one-1"]) as (gateway, upstream):
        upstream.play(text("a"), text("b"))
        headers = {"anthropic-beta": wanted}
        first = await request(gateway, "POST", "/messages", body, headers=headers)
        second = await request(gateway, "POST", "/messages", body)

    assert (first.status, second.status) == (200, 200)
    betas = [one.headers["anthropic-beta"] for one in upstream.requests]
    assert betas == ["one-1,context-management-2025-06-27", "one-1"]
    has_field = ["context_management" in one.body for one in upstream.requests]
    assert has_field == [True, False]
    assert "antiphon" not in first.json


async def test_betas_of_another_door_are_a_field_that_nobody_knows() -> None:
    async with served() as (gateway, upstream):
        upstream.play(text("a"))
        named: Any = {"anthropic-beta": ["context-management-2025-06-27"]}
        answer = await ask(gateway, **named)

    assert "anthropic-beta" not in upstream.requests[0].headers
    assert any("anthropic-beta" in note for note in answer.json["antiphon"]["degraded"])


# Continuation.


@pytest.mark.parametrize(("name", "asked"), [("claude-opus-4-1", 1), ("claude-opus-4-8", 0)])
async def test_an_older_model_goes_on_with_an_answer_that_broke_off(name: str, asked: int) -> None:
    whole, shown = "It rains  \n\nand pours.", "It rains  \n\n"
    mark = b"event: content_block_delta"
    begun = mark.join(stream(text(whole), len(shown)).split(mark)[:2])
    async with asyncio.timeout(PATIENCE), serve_messages() as one, serve_messages() as two:
        one.play(Cut(begun))
        two.play(text(whole[len(shown.rstrip()) :]))
        backends = {
            key: HttpBackend(server.base_url, MessagesWire(ANTHROPIC, account=key))
            for key, server in (("a", one), ("b", two))
        }
        deployments = tuple(DeploymentSettings(provider=key, model=name) for key in backends)
        route = RouteSettings(deployments=deployments, affinity="none", failover="stream")
        async with serve_gateway(backends, routes={"route": route}) as gateway:
            response = terminal(await ask_stream(gateway, model="route"))

    assert len(two.requests) == asked
    assert response.status == ("completed" if asked else "failed")
    if asked:
        assert response.output_text == whole
        last = two.requests[0].body["messages"][-1]
        assert last == {"role": "assistant", "content": [{"type": "text", "text": shown.rstrip()}]}
