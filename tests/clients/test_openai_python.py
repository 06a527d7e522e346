"""openai-python, unmodified, blocking and async: every method of responses and conversations.

`tests/conformance` looks closer at what the answers hold. Here is the list of what can be called,
each with what the user sees and what the upstream was sent; the last test keeps the list whole.
"""

from __future__ import annotations

import asyncio
import base64
import json
from pathlib import Path
from typing import Any, Final

import openai
import pytest
from openai import OpenAI
from pydantic import BaseModel

from antiphon.engine.keep.webhooks import Endpoint
from antiphon.gateway.assemble import ServerSettings
from antiphon.testing import Call, Script, Stall
from antiphon.transport.secret import Secret
from tests.clients.results import read_turns
from tests.clients.scene import MODEL, PATIENCE, PIXEL, open_scene
from tests.clients.stage import roles, tool_messages
from tests.transport.raw import Connection, Request, raw_server, reply

WEATHER: Final = {
    "type": "function",
    "name": "weather",
    "description": "The weather in a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
}


class Person(BaseModel):
    """What `parse` is asked to return."""

    name: str
    age: int


@pytest.fixture(params=["sync", "async"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


# Responses.


@pytest.mark.turn("openai-python", "responses.create", transport="http")
async def test_create(kind: str) -> None:
    async with open_scene(kind) as scene:
        response = await scene.create(instructions="Be short.", input="Say hello.")
        assert (response.status, response.output_text) == ("completed", "Hello there.")
        (body,) = scene.bodies
    assert [m["content"] for m in body["messages"]] == ["Be short.", "Say hello."]


@pytest.mark.turn("openai-python", "responses.create with a stream", transport="http")
async def test_create_with_a_stream(kind: str) -> None:
    async with open_scene(kind, Script(text="one two", reasoning="Well.")) as scene:
        events = await scene.all(await scene.create(input="Hello.", stream=True))
        assert scene.bodies[0]["stream"] is True
    assert [event.sequence_number for event in events] == list(range(len(events)))
    deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
    assert "".join(deltas) == events[-1].response.output_text == "one two"


@pytest.mark.turn("openai-python", "responses.stream", transport="http")
async def test_stream(kind: str) -> None:
    def follow(stream: Any) -> Any:
        return (yield stream.get_final_response())

    async with open_scene(kind, Script(text="one two")) as scene:
        manager = scene.client.responses.stream(model=MODEL, input="Hello.")
        final = await scene.within(manager, follow)
        again = await scene.within(scene.client.responses.stream(response_id=final.id), follow)
        assert len(scene.bodies) == 1
    assert final.output_text == "one two"
    assert again.to_dict() == final.to_dict()


@pytest.mark.turn("openai-python", "responses.parse", transport="http")
async def test_parse(kind: str) -> None:
    async with open_scene(kind, Script(text='{"name": "Ada", "age": 36}')) as scene:
        response = await scene.call(
            scene.client.responses.parse, model=MODEL, input="Invent one.", text_format=Person
        )
        asked = scene.bodies[0]["response_format"]["json_schema"]
    assert response.output_parsed == Person(name="Ada", age=36)
    assert asked["schema"]["properties"].keys() == {"name", "age"}


@pytest.mark.turn("openai-python", "with_raw_response", transport="http")
async def test_with_raw_response(kind: str) -> None:
    async with open_scene(kind) as scene:
        raw = await scene.call(
            scene.client.responses.with_raw_response.create, model=MODEL, input="Hello."
        )
        found = await scene.call(scene.client.responses.with_raw_response.retrieve, raw.parse().id)
    assert raw.status_code == 200
    assert raw.headers["x-request-id"] == raw.request_id
    assert raw.parse() == found.parse()


@pytest.mark.turn("openai-python", "with_streaming_response", transport="http")
async def test_with_streaming_response(kind: str) -> None:
    def read(response: Any) -> Any:
        return (yield response.read())

    async with open_scene(kind) as scene:
        manager = scene.client.responses.with_streaming_response.create(model=MODEL, input="Hello.")
        body = json.loads(await scene.within(manager, read))
    assert body["output"][0]["content"][0]["text"] == "Hello there."


@pytest.mark.turn("openai-python", "responses.retrieve, and its stream", transport="http")
async def test_retrieve(kind: str) -> None:
    async with open_scene(kind, Script(text="one two three")) as scene:
        live = await scene.all(await scene.create(input="Hello.", stream=True))
        created = live[-1].response
        retrieve = scene.client.responses.retrieve
        assert await scene.call(retrieve, created.id) == created
        again = await scene.all(await scene.call(retrieve, created.id, stream=True))
        rest = await scene.all(
            await scene.call(retrieve, created.id, stream=True, starting_after=4)
        )
        assert len(scene.bodies) == 1
    assert again == live
    assert rest == live[5:]


@pytest.mark.turn("openai-python", "responses.delete", transport="http")
async def test_delete(kind: str) -> None:
    async with open_scene(kind) as scene:
        created = await scene.create(input="Hello.")
        await scene.call(scene.client.responses.delete, created.id)
        with pytest.raises(openai.NotFoundError):
            await scene.call(scene.client.responses.retrieve, created.id)


@pytest.mark.turn("openai-python", "responses.cancel stops the upstream", transport="http")
async def test_cancel(kind: str) -> None:
    async with open_scene(kind, Script(text="one two", faults=[Stall(2)])) as scene:
        created = await scene.create(input="Hello.", background=True)
        request = await asyncio.wait_for(scene.upstream.received(), PATIENCE)
        await asyncio.wait_for(request.stalled.wait(), PATIENCE)
        cancelled = await scene.call(scene.client.responses.cancel, created.id)
        await asyncio.wait_for(request.client_left.wait(), PATIENCE)
    assert (cancelled.id, cancelled.status) == (created.id, "cancelled")


@pytest.mark.turn("openai-python", "background, asked for until it has ended", transport="http")
async def test_background(kind: str) -> None:
    async with open_scene(kind, Script(text="In good time.")) as scene:
        created = await scene.create(input="Hello.", background=True)
        assert created.status in ("queued", "in_progress")
        async with asyncio.timeout(PATIENCE):
            while created.status in ("queued", "in_progress"):
                created = await scene.call(scene.client.responses.retrieve, created.id)
        assert len(scene.bodies) == 1
    assert (created.status, created.output_text) == ("completed", "In good time.")


@pytest.mark.turn("openai-python", "responses.input_items.list in pages", transport="http")
async def test_input_items(kind: str) -> None:
    said = [{"role": "user", "content": str(number)} for number in range(5)]
    async with open_scene(kind) as scene:
        created = await scene.create(input=said)
        listing = scene.client.responses.input_items.list
        items = await scene.pages(listing, created.id, limit=2, order="asc")
    assert [item.content[0].text for item in items] == list("01234")


@pytest.mark.turn("openai-python", "responses.input_tokens.count", transport="http")
async def test_input_tokens(kind: str) -> None:
    async with open_scene(kind) as scene:
        count = scene.client.responses.input_tokens.count
        counted = await scene.call(count, model=MODEL, input="Hello there.", tools=[WEATHER])
        assert scene.bodies == []
    assert counted.input_tokens > 0


@pytest.mark.turn("openai-python", "responses.compact", transport="http")
async def test_compact(kind: str) -> None:
    scripts = [Script(text="Hello, Ada."), Script(text="It is Ada."), Script(text="Ada.")]
    async with open_scene(kind, *scripts) as scene:
        first = await scene.create(input="My name is Ada.")
        compacted = await scene.call(
            scene.client.responses.compact, model=MODEL, previous_response_id=first.id
        )
        window = [item.to_dict(warnings=False) for item in compacted.output]
        told = await scene.create(input=[*window, {"role": "user", "content": "Who am I?"}])
        last = scene.bodies[-1]
    assert compacted.output[-1].type == "compaction"
    assert told.output_text == "Ada."
    assert "It is Ada." in json.dumps(last["messages"])


@pytest.mark.turn("openai-python", "responses.connect, two turns", transport="websocket")
async def test_connect(kind: str) -> None:
    def talk(connection: Any) -> Any:
        ids: list[str] = []
        for text in ("My name is Ada.", "Who am I?"):
            more = {"previous_response_id": ids[-1]} if ids else {}
            yield connection.response.create(model=MODEL, input=text, store=False, **more)
            event = yield connection.recv()
            while event.type != "response.completed":
                event = yield connection.recv()
            ids.append(event.response.id)
        return event.response

    async with open_scene(kind, Script(text="Hello, Ada."), Script(text="Ada.")) as scene:
        final = await scene.within(scene.client.responses.connect(), talk)
        assert roles(scene.bodies[1]) == ["user", "assistant", "user"]
    assert final.output_text == "Ada."


@pytest.mark.turn("openai-python", "tool loop by previous_response_id", transport="http")
async def test_a_tool_loop(kind: str) -> None:
    calls = [Call("weather", '{"city": "Rome"}', "call_a"), Call("weather", "{}", "call_b")]
    async with open_scene(kind, Script(calls=calls), Script(text="Sun.")) as scene:
        asked = await scene.create(input="The weather?", tools=[WEATHER])
        outputs = [
            {"type": "function_call_output", "call_id": call.call_id, "output": f"sun {index}"}
            for index, call in enumerate(asked.output)
        ]
        told = await scene.create(previous_response_id=asked.id, input=outputs, tools=[WEATHER])
        assert tool_messages(scene.bodies[1]) == {"call_a": "sun 0", "call_b": "sun 1"}
    assert told.output_text == "Sun."


@pytest.mark.turn("openai-python", "image input", transport="http")
async def test_an_image(kind: str) -> None:
    content = [
        {"type": "input_text", "text": "Which shape?"},
        {"type": "input_image", "image_url": PIXEL, "detail": "auto"},
    ]
    async with open_scene(kind, Script(text="A square.")) as scene:
        told = await scene.create(input=[{"role": "user", "content": content}])
        text, image = scene.bodies[0]["messages"][0]["content"]
    assert told.output_text == "A square."
    assert (text["text"], image["image_url"]["url"]) == ("Which shape?", PIXEL)


@pytest.mark.turn("openai-python", "errors as typed exceptions", transport="http")
async def test_errors(kind: str) -> None:
    async with open_scene(kind) as scene:
        with pytest.raises(openai.BadRequestError) as caught:
            await scene.create(input="Hello.", previous_response_id="resp_nothing")
        assert scene.bodies == []
    assert caught.value.code == "previous_response_not_found"


# Conversations.


@pytest.mark.turn("openai-python", "conversations.create/retrieve/update/delete", transport="http")
async def test_conversations(kind: str) -> None:
    async with open_scene(kind) as scene:
        conversations = scene.client.conversations
        made = await scene.call(conversations.create, metadata={"topic": "sea"})
        await scene.call(conversations.update, made.id, metadata={"topic": "land"})
        found = await scene.call(conversations.retrieve, made.id)
        gone = await scene.call(conversations.delete, made.id)
        with pytest.raises(openai.NotFoundError):
            await scene.call(conversations.retrieve, made.id)
    assert (made.metadata, found.metadata) == ({"topic": "sea"}, {"topic": "land"})
    assert gone.deleted is True


@pytest.mark.turn(
    "openai-python", "conversations.items.create/list/retrieve/delete", transport="http"
)
async def test_conversation_items(kind: str) -> None:
    said = [{"type": "message", "role": "user", "content": str(n)} for n in range(5)]
    async with open_scene(kind) as scene:
        items = scene.client.conversations.items
        made = await scene.call(scene.client.conversations.create)
        added = await scene.call(items.create, made.id, items=said)
        listed = await scene.pages(items.list, made.id, limit=2, order="asc")
        one = await scene.call(items.retrieve, listed[0].id, conversation_id=made.id)
        await scene.call(items.delete, listed[0].id, conversation_id=made.id)
        left = await scene.pages(items.list, made.id)
    assert [item.content[0].text for item in listed] == list("01234")
    assert [item.id for item in added.data] == [item.id for item in listed]
    assert one == listed[0]
    assert len(left) == 4


@pytest.mark.turn("openai-python", "turns in a conversation", transport="http")
async def test_turns_in_a_conversation(kind: str) -> None:
    async with open_scene(kind, Script(text="Hello, Ada."), Script(text="Ada.")) as scene:
        made = await scene.call(scene.client.conversations.create)
        await scene.create(input="My name is Ada.", conversation=made.id)
        told = await scene.create(input="Who am I?", conversation=made.id)
        second = scene.bodies[1]
    assert told.output_text == "Ada."
    assert [m["content"] for m in second["messages"]] == [
        "My name is Ada.",
        "Hello, Ada.",
        "Who am I?",
    ]


# The rest of what the gateway serves.


@pytest.mark.turn("openai-python", "models.list and models.retrieve", transport="http")
async def test_models(kind: str) -> None:
    async with open_scene(kind) as scene:
        listed = await scene.pages(scene.client.models.list)
        one = await scene.call(scene.client.models.retrieve, MODEL)
    assert [model.id for model in listed] == [one.id] == [MODEL]


@pytest.mark.turn("openai-python", "webhooks.unwrap of a delivered webhook", transport="-")
async def test_webhooks(kind: str) -> None:
    secret = "whsec_" + base64.b64encode(b"k" * 32).decode()
    heard: asyncio.Queue[Request] = asyncio.Queue()

    async def listen(request: Request, connection: Connection) -> None:
        heard.put_nowait(request)
        await connection.write(reply(b""))

    async with raw_server(listen) as listener:
        hook = Endpoint(url=listener.url, secrets=(Secret(secret),), allow_private=True)
        settings = ServerSettings(webhooks=(hook,))
        async with open_scene(kind, settings=settings) as scene:
            created = await scene.create(input="Hello.", background=True)
            told = await asyncio.wait_for(heard.get(), PATIENCE)
            event = scene.client.webhooks.unwrap(told.body, told.headers, secret=secret)
    assert (event.type, event.data.id) == ("response.completed", created.id)


# The list.


def test_every_method_is_in_the_list() -> None:
    """What a new version of the SDK adds must be tried here before it is claimed."""
    client = OpenAI(api_key="none", base_url="http://127.0.0.1:9")
    turns = [what for _, what, _ in read_turns(Path(__file__).read_text("utf-8"))]
    for path, resource in {
        "responses": client.responses,
        "responses.input_items": client.responses.input_items,
        "responses.input_tokens": client.responses.input_tokens,
        "conversations": client.conversations,
        "conversations.items": client.conversations.items,
    }.items():
        for name in dir(resource):
            if not name.startswith("_") and callable(getattr(resource, name)):
                tried = [what for what in turns if what.startswith(f"{path}.") and name in what]
                assert tried, f"{path}.{name} is not tried"
