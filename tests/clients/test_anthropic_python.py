"""The anthropic package, unmodified: what its user sees, and what the upstream was sent."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Final

import anthropic
import pytest
from anthropic import beta_async_tool

from antiphon.backends.chat import ChatBackend
from antiphon.testing import Call, Script, ScriptedUpstream, Status, serve_gateway
from tests.clients.stage import tool_messages

pytestmark = pytest.mark.slow

HELLO: Final[Any] = {
    "model": "echo",
    "max_tokens": 99,
    "messages": [{"role": "user", "content": "Hi."}],
}


class Stage:
    """A client before a gateway before a model that plays scripts."""

    def __init__(self, client: anthropic.AsyncAnthropic, upstream: ScriptedUpstream) -> None:
        self.client = client
        self.upstream = upstream
        self.scripts: list[Script] = []

    def play(self, *scripts: Script) -> None:
        self.scripts[:] = scripts


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    scripts: list[Script] = []
    async with ScriptedUpstream(lambda _: scripts.pop(0)) as upstream:
        backend = ChatBackend(upstream.base_url)
        async with serve_gateway({"test": backend}, default_model="echo") as gateway:
            root = gateway.base_url.removesuffix("/v1")
            async with anthropic.AsyncAnthropic(base_url=root, api_key="none") as client:
                stage = Stage(client, upstream)
                stage.scripts = scripts
                yield stage


@pytest.mark.turn("anthropic-python", "messages.create", transport="http")
async def test_a_message_is_created(stage: Stage) -> None:
    stage.play(Script(text="Hello there."))
    message = await stage.client.messages.create(**HELLO, system="Be short.")

    assert message.content[0].to_dict() == {"type": "text", "text": "Hello there."}
    assert message.stop_reason == "end_turn"


@pytest.mark.turn("anthropic-python", "messages.stream", transport="http")
async def test_a_message_is_streamed(stage: Stage) -> None:
    stage.play(Script(text=["one", " two"], reasoning="They count."))
    async with stage.client.messages.stream(**HELLO, thinking={"type": "adaptive"}) as stream:
        texts = [text async for text in stream.text_stream]
        message = await stream.get_final_message()

    assert texts == ["one", " two"]
    assert [block.type for block in message.content] == ["thinking", "text"]


@pytest.mark.turn("anthropic-python", "beta.messages.tool_runner", transport="http")
async def test_the_tool_runner_of_the_sdk_runs_a_loop(stage: Stage) -> None:
    @beta_async_tool
    async def weather(city: str) -> str:
        """Return the weather in a city."""
        return f"Sun in {city}."

    calls = [Call("weather", '{"city": "Rome"}', "a:0"), Call("weather", '{"city": "Oslo"}', "a:1")]
    stage.play(Script(calls=calls, interleave=True), Script(text="Sun in both."))
    runner = stage.client.beta.messages.tool_runner(**HELLO, tools=[weather])
    message = await runner.until_done()

    assert message.content[0].to_dict() == {"type": "text", "text": "Sun in both."}
    first, second = (received.json for received in stage.upstream.requests)
    assert second["messages"][: len(first["messages"])] == first["messages"]
    results = tool_messages(second)
    assert results == {"a:0": "Sun in Rome.", "a:1": "Sun in Oslo."}


@pytest.mark.turn("anthropic-python", "messages.create with a schema", transport="http")
async def test_the_answer_is_held_to_a_schema(stage: Stage) -> None:
    schema = {"type": "object", "properties": {"sum": {"type": "integer"}}, "required": ["sum"]}
    stage.play(Script(text='{"sum": 5}'))
    form: Any = {"format": {"type": "json_schema", "schema": schema}}
    message = await stage.client.messages.create(**HELLO, output_config=form)

    assert message.content[0].to_dict()["text"] == '{"sum": 5}'
    sent = stage.upstream.requests[0].json["response_format"]
    assert sent["json_schema"]["schema"] == schema


@pytest.mark.turn("anthropic-python", "a rate limit is waited out", transport="http")
async def test_a_rate_limit_is_waited_out(stage: Stage) -> None:
    busy = Script(faults=[Status(429, "Too fast.", headers={"Retry-After": "0"})])
    stage.play(busy, busy, busy, Script(text="Now."))
    message = await stage.client.messages.create(**HELLO)

    assert message.content[0].to_dict()["text"] == "Now."


@pytest.mark.turn("anthropic-python", "messages.count_tokens", transport="http")
async def test_tokens_are_counted_without_a_model(stage: Stage) -> None:
    counted = await stage.client.messages.count_tokens(
        model="echo", messages=HELLO["messages"], system="Be short."
    )

    assert counted.input_tokens > 0
    assert stage.upstream.requests == []


@pytest.mark.turn("anthropic-python", "models.list", transport="http")
async def test_models_are_listed(stage: Stage) -> None:
    assert [model.id async for model in stage.client.models.list()] == ["echo"]
