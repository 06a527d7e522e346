"""The whole path from every door to an editor that offers its models."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import anthropic
import openai
import pytest

from antiphon.backends.base import Backend
from antiphon.backends.host import HostBackend
from antiphon.backends.scripted import ScriptedBackend
from antiphon.routing.settings import DeploymentSettings, RouteSettings
from antiphon.testing import serve_gateway
from antiphon.testing.gateway import Gateway
from antiphon.transport.http import Limits
from tests.asking import ask, ask_stream, request, terminal
from tests.faults.house import PATIENCE
from tests.host_upstream import (
    CUT,
    TOKEN,
    EditorDouble,
    Json,
    Raw,
    Refuse,
    Step,
    call,
    done,
    part,
    serve_editor,
    text,
)
from tests.server.test_background import ended
from tests.talking import talk

MODEL = "editor/gpt-5"
LOOK: Any = {"type": "function", "name": "look", "parameters": {"type": "object"}}
PATCH: Any = {"type": "custom", "name": "patch", "description": "Changes files."}
USER: Any = {"role": "user", "content": "hello"}
PNG = base64.b64encode(b"\x89PNG picture").decode()
PICTURE: Any = {"type": "input_image", "image_url": f"data:image/png;base64,{PNG}"}


def calling(editor: EditorDouble) -> list[Step]:
    """Return an answer that thinks, and looks twice at once."""
    return [
        editor.thought("I need to look."),
        [call("look", "c1", at="sky"), call("look", "c2")],
        done(usage={"input_tokens": 3, "output_tokens": 2, "total_tokens": 5}),
    ]


def results(output: list[Json]) -> list[Json]:
    """Return the results of all calls of an answer, the last call first."""
    calls = [item["call_id"] for item in output if item["type"] == "function_call"]
    given = {"type": "function_call_output", "output": "clouds"}
    return [{**given, "call_id": call_id} for call_id in reversed(calls)]


def backend_of(editor: EditorDouble, **settings: Any) -> HostBackend:
    given: Any = {"limits": Limits(connect=PATIENCE), "sleep": no_sleep} | settings
    return HostBackend(editor.path, **given)


async def no_sleep(seconds: float) -> None:
    """Wait for nothing between attempts."""


@asynccontextmanager
async def served(tmp_path: Path, **settings: Any) -> AsyncIterator[tuple[Gateway, EditorDouble]]:
    async with asyncio.timeout(2 * PATIENCE), serve_editor(tmp_path / "editor.json") as editor:
        backend = backend_of(editor, **settings)
        async with serve_gateway({"editor": backend}, default_model=MODEL) as gateway:
            yield gateway, editor


def kinds(editor: EditorDouble) -> list[str]:
    """Return what the parts of the last request are."""
    return [one["type"] for message in editor.messages for one in message["content"]]


def notes(response: Json) -> str:
    return "\n".join(response["antiphon"]["degraded"])


LOOP = ["text", "thinking", "tool_call", "tool_call", "tool_result", "tool_result"]


# The doors and modes.


async def test_a_stream_over_sse_has_thoughts_and_parallel_calls(tmp_path: Path) -> None:
    async with served(tmp_path) as (gateway, editor):
        editor.play(calling(editor))
        response = terminal(await ask_stream(gateway, tools=[LOOK]))

    found = [item["type"] for item in response.output]
    assert found == ["reasoning", "function_call", "function_call"]
    assert [item["call_id"] for item in response.output[1:]] == ["c1", "c2"]
    assert response.output[1]["arguments"] == '{"at":"sky"}'
    assert response.usage is not None and response.usage.total_tokens == 5
    assert editor.options["tools"][0]["name"] == "look"


async def test_a_loop_continues_by_its_id_and_thoughts_go_back(tmp_path: Path) -> None:
    async with served(tmp_path) as (gateway, editor):
        editor.play(calling(editor), text("Clouds."), text("Yes."))
        first = await ask(gateway, tools=[LOOK])
        more = {"previous_response_id": first.json["id"], "input": results(first.json["output"])}
        second = await ask(gateway, tools=[LOOK], **more)
        assert kinds(editor) == LOOP
        third = await ask(gateway, previous_response_id=second.json["id"], input="Sure?")

    assert editor.problems == []
    assert third.json["status"] == "completed", third.json
    assert kinds(editor) == [*LOOP, "text", "text", "text"][: len(kinds(editor))]
    assert editor.messages[-1]["content"] == [{"type": "text", "value": "Sure?"}]


async def test_thoughts_do_not_go_to_another_model_of_the_editor(tmp_path: Path) -> None:
    async with served(tmp_path) as (gateway, editor):
        editor.play([editor.thought("Hm."), part("One.")], text("Two."))
        first = await ask(gateway)
        more = {"previous_response_id": first.json["id"], "input": "And?"}
        second = await ask(gateway, model="editor/claude", **more)

    assert kinds(editor) == ["text", "text", "text"]
    assert "(reasoning): this model does not take it back" in notes(second.json)


async def test_a_loop_over_a_websocket(tmp_path: Path) -> None:
    async with served(tmp_path) as (gateway, editor), talk(gateway.base_url) as socket:
        editor.play(calling(editor), text("Clouds."))
        body: Any = {"model": MODEL, "tools": [LOOK]}
        first = (await socket.turn(input="hello", **body))["response"]
        more = {"previous_response_id": first["id"], "input": results(first["output"])}
        second = (await socket.turn(**body, **more))["response"]

    assert editor.problems == []
    assert second["status"] == "completed"
    assert kinds(editor) == LOOP


async def test_a_response_in_the_background(tmp_path: Path) -> None:
    async with served(tmp_path) as (gateway, editor):
        editor.play(text("Done in the dark."))
        queued = await ask(gateway, background=True)
        finished = await ended(gateway, queued.json["id"])

    assert finished["output"][0]["content"][0]["text"] == "Done in the dark."


async def test_the_chat_door_runs_a_loop_of_tools(tmp_path: Path) -> None:
    tool: Any = {"type": "function", "function": {"name": "look", "parameters": {}}}
    async with served(tmp_path) as (gateway, editor):
        editor.play(calling(editor), text("Clouds."))
        async with openai.AsyncOpenAI(base_url=gateway.base_url, api_key="x") as client:
            messages: list[Any] = [{"role": "system", "content": "Be brief."}, USER]
            first = await client.chat.completions.create(
                model=MODEL, messages=messages, tools=[tool]
            )
            said = first.choices[0].message
            assert said.tool_calls is not None and len(said.tool_calls) == 2
            messages.append(said.to_dict())
            messages += [
                {"role": "tool", "tool_call_id": one.id, "content": "sky"}
                for one in said.tool_calls
            ]
            last = await client.chat.completions.create(
                model=MODEL, messages=messages, tools=[tool]
            )

    assert editor.problems == []
    assert last.choices[0].message.content == "Clouds."
    assert editor.messages[0]["role"] == "system"


async def test_the_messages_door_runs_a_loop_of_tools(tmp_path: Path) -> None:
    tool: Any = {"name": "look", "input_schema": {"type": "object", "properties": {}}}
    body: Any = {"model": MODEL, "max_tokens": 32_000, "tools": [tool]}
    async with served(tmp_path) as (gateway, editor):
        editor.play(calling(editor), text("Clouds."))
        root = gateway.base_url.removesuffix("/v1")
        async with anthropic.AsyncAnthropic(base_url=root, api_key="x") as client:
            async with client.messages.stream(messages=[USER], **body) as streamed:
                first = await streamed.get_final_message()
            said = [block.to_dict() for block in first.content]
            used = [block["id"] for block in said if block["type"] == "tool_use"]
            given = [{"type": "tool_result", "tool_use_id": one, "content": "sky"} for one in used]
            messages: Any = [
                USER,
                {"role": "assistant", "content": said},
                {"role": "user", "content": given},
            ]
            last = await client.messages.create(messages=messages, **body, timeout=PATIENCE)

    assert editor.problems == []
    assert [block.type for block in last.content] == ["text"]
    assert kinds(editor) == LOOP
    assert editor.options["model_options"]["max_tokens"] == 32_000


async def test_models_are_listed_with_what_the_editor_states(tmp_path: Path) -> None:
    async with served(tmp_path) as (gateway, _):
        listed = (await request(gateway, "GET", "/models")).json["data"]

    assert [model["id"] for model in listed] == ["gpt-5", "claude"]
    assert listed[0]["owned_by"] == "editor"


async def test_tokens_are_counted_by_the_editor(tmp_path: Path) -> None:
    async with served(tmp_path) as (gateway, editor):
        body = {"model": MODEL, "input": "hello", "instructions": "Be brief."}
        counted = await request(gateway, "POST", "/responses/input_tokens", body)
        estimated = await request(
            gateway, "POST", "/responses/input_tokens", body | {"tools": [LOOK]}
        )

    (asked,) = editor.counts
    assert [message["role"] for message in asked["contents"]] == ["system", "user"]
    assert counted.json["input_tokens"] > 100  # the double counts bytes of JSON
    assert 0 < estimated.json["input_tokens"] < 100


# What is in a request and an answer.


async def test_a_custom_tool_is_a_function_there_and_custom_here(tmp_path: Path) -> None:
    async with served(tmp_path) as (gateway, editor):
        editor.play([call("patch", "c1", input="*** Begin")], text("Done."))
        first = await ask(gateway, tools=[PATCH])
        (made,) = first.json["output"]
        assert (made["type"], made["input"]) == ("custom_tool_call", "*** Begin")
        result = {"type": "custom_tool_call_output", "call_id": "c1", "output": "applied"}
        more = {"previous_response_id": first.json["id"], "input": [result]}
        await ask(gateway, tools=[PATCH], **more)

    assert editor.problems == []
    again = editor.messages[1]["content"][0]
    assert again["input"] == {"input": "*** Begin"}
    assert editor.messages[2]["content"][0]["content"] == [{"type": "text", "value": "applied"}]


@pytest.mark.parametrize(
    ("choice", "mode", "name"),
    [
        ("auto", "auto", None),
        ("none", "none", None),
        ("required", "required", None),
        ({"type": "function", "name": "look"}, "required", "look"),
    ],
)
async def test_tool_choices_are_modes(
    tmp_path: Path, choice: Any, mode: str, name: str | None
) -> None:
    async with served(tmp_path) as (gateway, editor):
        is_required = mode == "required"
        editor.play([call("look", "c1")] if is_required else text("Hello."))
        answer = await ask(gateway, tools=[LOOK, PATCH], tool_choice=choice)

    assert answer.json["status"] == "completed", answer.json
    assert (editor.options["tool_mode"], editor.options["tool_name"]) == (mode, name)


async def test_an_image_goes_as_bytes_and_an_address_is_named(tmp_path: Path) -> None:
    away = {"type": "input_image", "image_url": "https://example.com/a.png"}
    async with served(tmp_path) as (gateway, editor):
        content = [{"type": "input_text", "text": "What is it?"}, PICTURE, away]
        answer = await ask(gateway, input=[{"role": "user", "content": content}])

    sent = editor.messages[0]["content"]
    assert sent[1] == {"type": "data", "mime": "image/png", "data": PNG}
    assert sent[2]["type"] == "text" and "left out" in sent[2]["value"]
    assert "only images in data URLs" in answer.headers["x-antiphon-degraded"]


async def test_an_image_that_the_model_makes_is_an_item_and_goes_back(tmp_path: Path) -> None:
    async with served(tmp_path) as (gateway, editor):
        editor.play([{"type": "data", "mime": "image/png", "data": PNG}, part("Here.")])
        first = await ask(gateway)
        await ask(gateway, previous_response_id=first.json["id"], input="Nice.")

    assert first.json["output"][0]["type"] == "image_generation_call"
    assert first.json["output"][0]["result"] == PNG
    assert [one["type"] for one in editor.messages[1]["content"]] == ["data", "text"]
    assert editor.problems == []


async def test_what_cannot_be_sent_or_read_is_named(tmp_path: Path) -> None:
    odd = {"type": "parts", "id": 2, "parts": [{"type": "hologram"}, part("So.")]}
    async with served(tmp_path) as (gateway, editor):
        await request(gateway, "GET", "/models")  # the request of id 1
        line = Raw(json.dumps(odd).encode() + b"\n")
        editor.play([line, {"type": "data", "mime": "model/gltf", "data": ""}, done()])
        answer = await ask(
            gateway, top_logprobs=2, parallel_tool_calls=False, tools=[LOOK], seed=1, wobble=2
        )

    found = notes(answer.json)
    assert answer.json["output"][0]["content"][0]["text"] == "So."
    for name in ("top_logprobs", "parallel_tool_calls", "wobble", "hologram", "model/gltf"):
        assert name in found
    assert editor.options["model_options"] == {"seed": 1}


async def test_a_format_is_ordered_and_repaired(tmp_path: Path) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    form = {"type": "json_schema", "name": "x", "schema": schema, "strict": True}
    async with served(tmp_path) as (gateway, editor):
        editor.play(text("Well, it is one."), text('{"a": 1}'))
        answer = await ask(gateway, text={"format": form})

    assert answer.json["output"][0]["content"][0]["text"] == '{"a": 1}'
    assert "JSON Schema" in editor.requests[0]["messages"][0]["content"][0]["value"]
    assert len(editor.requests) == 2


async def test_usage_is_estimated_and_marked_where_the_editor_gives_none(tmp_path: Path) -> None:
    counted = {"input_tokens": 3, "output_tokens": 2, "total_tokens": 5}
    async with served(tmp_path) as (gateway, editor):
        editor.play(text("One."), [part("Two."), done(usage=counted | {"is_estimate": True})])
        first, second = await ask(gateway), await ask(gateway)

    for answer in (first, second):
        assert answer.json["usage"]["total_tokens"] > 0
        assert answer.json["antiphon"]["usage"] == "estimated"


async def test_what_the_editor_could_not_honour_is_named(tmp_path: Path) -> None:
    async with served(tmp_path) as (gateway, editor):
        editor.play([part("Yes."), done(degraded=["temperature: this model ignores it"])])
        answer = await ask(gateway, temperature=0.5)

    assert "temperature: this model ignores it" in notes(answer.json)


# Errors.


@pytest.mark.parametrize(
    ("code", "status", "given"),
    [
        ("unsupported_content", 400, "invalid_request"),
        ("blocked", 400, "content_policy"),
        ("not_found", 404, "model_not_found"),
        ("no_consent", 502, "upstream_auth"),
        ("quota_exceeded", 429, "insufficient_quota"),
        ("unreachable", 502, "upstream_unreachable"),
        ("timed_out", 504, "upstream_timeout"),
        ("invalid_answer", 502, "upstream_invalid_response"),
        ("an_error_of_next_year", 502, "upstream_error"),
    ],
)
@pytest.mark.parametrize("is_streamed", [True, False])
async def test_errors_have_the_class_and_the_action_of_the_editor(
    tmp_path: Path, code: str, status: int, given: str, is_streamed: bool
) -> None:
    async with served(tmp_path) as (gateway, editor):
        refusal = Refuse(code, "It does not work.", "Press the button.")
        editor.play([refusal], [refusal], [refusal])
        answer = await ask(gateway, stream=is_streamed)

    assert (answer.status, answer.error["code"]) == (status, given)
    assert "It does not work; Press the button" in answer.error["message"]


async def test_a_context_that_is_too_long_is_the_callers(tmp_path: Path) -> None:
    async with served(tmp_path) as (gateway, editor):
        editor.play([Refuse("context_too_long")])
        answer = await ask(gateway)

    assert (answer.status, answer.error["code"]) == (400, "context_length_exceeded")


async def test_a_rate_limit_reaches_the_caller_with_its_delay(tmp_path: Path) -> None:
    async with served(tmp_path) as (gateway, editor):
        editor.play([Refuse("rate_limited", retry_after=99)])
        answer = await ask(gateway)

    assert (answer.status, answer.headers["Retry-After"]) == (429, "99")


async def test_an_error_in_mid_answer_keeps_what_came(tmp_path: Path) -> None:
    async with served(tmp_path) as (gateway, editor):
        editor.play([part("Half"), Refuse("server_failed")])
        response = terminal(await ask_stream(gateway))

    assert response.status == "failed"
    assert response.output[0]["content"][0]["text"] == "Half"


async def test_a_cut_connection_fails_the_answer_with_what_came(tmp_path: Path) -> None:
    async with served(tmp_path) as (gateway, editor):
        editor.play([part("Half a sentence"), CUT], text("Whole."))
        response = terminal(await ask_stream(gateway))
        again = await ask(gateway)

    assert response.status == "failed"
    assert response.error is not None and response.error.code == "upstream_closed"
    assert response.output[0]["content"][0]["text"] == "Half a sentence"
    assert again.json["output"][0]["content"][0]["text"] == "Whole."
    assert len(editor.hellos) == 2


async def test_another_provider_answers_while_the_user_gives_no_consent(tmp_path: Path) -> None:
    route = RouteSettings(
        deployments=(DeploymentSettings(provider="editor", model="gpt-5"),),
        fallbacks=("other/echo",),
    )
    async with asyncio.timeout(PATIENCE), serve_editor(tmp_path / "editor.json") as editor:
        backends: dict[str, Backend] = {"editor": backend_of(editor), "other": ScriptedBackend()}
        async with serve_gateway(backends, routes={"main": route}) as gateway:
            editor.play([Refuse("no_consent")])
            answers = [await ask(gateway, model="main") for _ in range(3)]

    assert [answer.status for answer in answers] == [200] * 3
    assert len(editor.requests) == 1  # the breaker is open after the first


# The file, the token and the address.


async def test_a_missing_file_names_what_to_do(tmp_path: Path) -> None:
    async with served(tmp_path) as (gateway, editor):
        editor.path.unlink()
        answer = await ask(gateway)

    assert (answer.status, answer.error["code"]) == (503, "upstream_unreachable")
    assert str(editor.path) in answer.error["message"]
    assert "start the editor" in answer.error["message"]


async def test_an_editor_that_is_gone_names_what_to_do(tmp_path: Path) -> None:
    async with served(tmp_path) as (gateway, editor):
        await editor.stop()
        answer = await ask(gateway)

    assert (answer.status, answer.error["code"]) == (503, "upstream_unreachable")
    assert "Test Editor does not answer" in answer.error["message"]


async def test_a_wrong_token_is_refused_and_not_repeated(tmp_path: Path) -> None:
    wrong = "another-token-0123456789"
    async with served(tmp_path) as (gateway, editor):
        editor.write_file(token=wrong)
        answer = await ask(gateway)
        editor.write_file()

    assert (answer.status, answer.error["code"]) == (502, "upstream_auth")
    assert wrong not in answer.error["message"] and "***" in answer.error["message"]


async def test_the_token_is_sent_only_in_the_greeting(tmp_path: Path) -> None:
    async with served(tmp_path) as (gateway, editor):
        await ask(gateway)

    assert [hello["token"] for hello in editor.hellos] == [TOKEN]
    assert TOKEN not in str(editor.requests)


@pytest.mark.parametrize("address", ["192.0.2.1:80", "localhost:80", "example.com:80", "0.0.0.0:1"])
async def test_only_loopback_addresses_are_used(tmp_path: Path, address: str) -> None:
    async with served(tmp_path) as (gateway, editor):
        editor.write_file(address=address)
        answer = await ask(gateway)

    assert (answer.status, answer.error["code"]) == (502, "upstream_auth")
    assert "not a loopback address" in answer.error["message"]


@pytest.mark.parametrize("mode", [0o604, 0o640, 0o660, 0o666])
async def test_a_file_that_others_can_read_is_not_used(tmp_path: Path, mode: int) -> None:
    async with served(tmp_path) as (gateway, editor):
        editor.write_file(mode=mode)
        answer = await ask(gateway)

    assert answer.error["code"] == "upstream_auth"
    assert f"mode {mode:04o}" in answer.error["message"]
    assert editor.hellos == []


# The connection.


async def test_an_editor_that_restarts_is_found_at_its_new_port(tmp_path: Path) -> None:
    async with served(tmp_path) as (gateway, editor):
        first = await ask(gateway)
        port = editor.port
        await editor.stop()
        await editor.start()
        second = await ask(gateway, previous_response_id=first.json["id"], input="again")

    assert editor.port != port
    assert second.json["output"][0]["content"][0]["text"] == "again"
    assert len(editor.hellos) == 2


async def test_a_request_on_a_connection_that_dies_is_sent_again_once(tmp_path: Path) -> None:
    async with served(tmp_path) as (gateway, editor):
        await ask(gateway)
        editor.play([CUT], text("Now."))
        answer = await ask(gateway)
        editor.play([CUT], [CUT], [CUT])
        failed = await ask(gateway)

    assert answer.json["output"][0]["content"][0]["text"] == "Now."
    assert (failed.status, failed.error["code"]) == (502, "upstream_closed")


async def test_fifty_requests_share_one_connection(tmp_path: Path) -> None:
    async with served(tmp_path) as (gateway, editor):
        editor.max_requests = 7
        asked = (ask(gateway, input=f"number {n}", stream=n % 2 == 0) for n in range(50))
        answers = await asyncio.gather(*asked)

    assert all(f"number {n}" in answer.body.decode() for n, answer in enumerate(answers))
    assert len(editor.hellos) == 1
    assert len(editor.requests) == 50


async def test_a_client_that_leaves_cancels_within_100_milliseconds(tmp_path: Path) -> None:
    async with served(tmp_path) as (gateway, editor):
        took = [await seconds_to_cancel(gateway, editor) for _ in range(10)]
        after = await ask(gateway)

    assert editor.cancelled == [one["id"] for one in editor.requests[:10]]
    assert min(took) < 0.1, took  # a busy machine may delay any of them
    assert after.json["status"] == "completed"
    assert len(editor.hellos) == 1


async def seconds_to_cancel(gateway: Gateway, editor: EditorDouble) -> float:
    """Leave in mid-answer; return how long it takes until the editor is asked to stop."""
    editor.play([part("Once upon"), asyncio.Event()])
    body = {"model": MODEL, "input": "hello", "stream": True}
    async with aiohttp.ClientSession() as session:
        reply = await session.post(f"{gateway.base_url}/responses", json=body)
        while b"Once upon" not in await reply.content.readline():
            pass
        left = time.monotonic()
        reply.close()
        await editor.cancels.acquire()
    return time.monotonic() - left


async def test_a_background_response_is_cancelled_at_the_editor(tmp_path: Path) -> None:
    async with served(tmp_path) as (gateway, editor):
        editor.play([part("Once upon"), asyncio.Event()])
        queued = await ask(gateway, background=True)
        await editor.was_asked.wait()
        await request(gateway, "POST", f"/responses/{queued.json['id']}/cancel")
        await editor.cancels.acquire()

    assert editor.cancelled == [editor.requests[0]["id"]]


@pytest.mark.parametrize("garbage", [b"nonsense\n", b'{"id": 2}\n', b"\xff\xfe\n", b"[1]\n"])
async def test_a_line_that_is_no_message_fails_what_runs(tmp_path: Path, garbage: bytes) -> None:
    async with served(tmp_path) as (gateway, editor):
        editor.play([part("Half"), Raw(garbage)])
        response = terminal(await ask_stream(gateway))
        again = await ask(gateway)

    assert response.status == "failed"
    assert response.error is not None and response.error.code == "upstream_invalid_response"
    assert again.status == 200


async def test_new_messages_for_no_request_are_ignored(tmp_path: Path) -> None:
    lines = b'{"type":"weather","sky":"blue"}\n{"type":"models_changed"}\n\n'
    log = b'{"type":"log","level":"error","message":"x"}\n'
    async with served(tmp_path) as (gateway, editor):
        editor.play([Raw(lines), part("Fine."), Raw(log)])
        answer = await ask(gateway)

    assert answer.json["output"][0]["content"][0]["text"] == "Fine."


async def test_a_line_of_200_megabytes_is_dropped_and_fails_the_answer(tmp_path: Path) -> None:
    async with served(tmp_path) as (gateway, editor):
        piece = Raw(b"x" * 2**20)
        editor.play([part("Half"), *[piece] * 200, Raw(b"\n")])
        response = terminal(await ask_stream(gateway))
        again = await ask(gateway)

    assert response.status == "failed"
    assert response.error is not None and response.error.code == "upstream_invalid_response"
    assert again.status == 200


async def test_a_request_that_is_larger_than_a_line_is_the_callers(tmp_path: Path) -> None:
    async with served(tmp_path) as (gateway, editor):
        editor.max_line_bytes = 10_000
        answer = await ask(gateway, input="x" * 20_000)
        small = await ask(gateway)

    assert (answer.status, answer.error["code"]) == (413, "request_too_large")
    assert small.status == 200


async def test_an_editor_that_does_not_greet_is_not_waited_for(tmp_path: Path) -> None:
    async with served(tmp_path, limits=Limits(connect=0.2)) as (gateway, editor):
        editor.greeting = [asyncio.Event()]
        answer = await ask(gateway)

    assert (answer.status, answer.error["code"]) == (504, "upstream_timeout")


async def test_an_editor_that_does_not_begin_is_cancelled_after_a_while(tmp_path: Path) -> None:
    limits = Limits(connect=PATIENCE, first_byte=0.2)
    async with served(tmp_path, limits=limits) as (gateway, editor):
        editor.play([asyncio.Event()])
        answer = await ask(gateway)
        await editor.cancels.acquire()

    assert (answer.status, answer.error["code"]) == (504, "upstream_timeout")


async def test_an_editor_that_does_not_go_on_is_cancelled_after_a_while(tmp_path: Path) -> None:
    limits = Limits(connect=PATIENCE, first_byte=PATIENCE, idle=0.2)
    async with served(tmp_path, limits=limits) as (gateway, editor):
        editor.play([part("Half"), asyncio.Event()])
        response = terminal(await ask_stream(gateway))
        await editor.cancels.acquire()

    assert response.error is not None and response.error.code == "upstream_timeout"
    assert response.output[0]["content"][0]["text"] == "Half"
