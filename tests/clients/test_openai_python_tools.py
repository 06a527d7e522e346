"""openai-python, unmodified: every family of tools on a model that knows functions alone.

Each family makes the round: its call comes up as the right item, its output goes back, and the
upstream sees a tool message that answers the call; whether the gateway remembers the turn or the
caller sends it back, in one piece or as a stream.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import msgspec
import openai
import pytest

from antiphon.testing import Call, Script
from tests.clients.scene import MODEL, PIXEL, Scene, open_scene
from tests.clients.stage import Json, calling, tool_messages

CITY: Final = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER: Final = {"type": "function", "name": "weather", "parameters": CITY}
ROME: Final = '{"city": "Rome"}'
PATCH: Final = {"type": "update_file", "path": "notes.txt", "diff": "@@\n-one\n+two\n"}
DIGITS: Final = {"type": "grammar", "syntax": "regex", "definition": "[0-9]+( [+*] [0-9]+)*"}
SUMS: Final = {
    "type": "grammar",
    "syntax": "lark",
    "definition": 'start: NUMBER " + " NUMBER\nNUMBER: /[0-9]+/',
}
SHELL_OUTPUT: Final = {
    "stdout": "notes.txt",
    "stderr": "",
    "outcome": {"type": "exit", "exit_code": 0},
}


class Case(msgspec.Struct, frozen=True):
    """A family: its tool, how the model calls it, the call that comes, and what answers it."""

    tools: tuple[Mapping[str, Any], ...]
    word: str
    arguments: str
    call: Mapping[str, Any]
    output: Mapping[str, Any]
    told: str


def _namespace(name: str) -> Json:
    return {"type": "namespace", "name": name, "description": "What is known.", "tools": [WEATHER]}


CASES: Final = {
    "custom": Case(
        ({"type": "custom", "name": "note", "description": "Takes a note."},),
        "note",
        json.dumps({"input": 'Say "hi"\nto Ada.'}),
        {"type": "custom_tool_call", "name": "note", "input": 'Say "hi"\nto Ada.'},
        {"type": "custom_tool_call_output", "output": "noted"},
        "noted",
    ),
    "regex": Case(
        ({"type": "custom", "name": "sums", "format": DIGITS},),
        "sums",
        '{"input": "2 + 3"}',
        {"type": "custom_tool_call", "name": "sums", "input": "2 + 3"},
        {"type": "custom_tool_call_output", "output": [{"type": "input_text", "text": "5"}]},
        "5",
    ),
    "lark": Case(
        ({"type": "custom", "name": "sums", "format": SUMS},),
        "sums",
        '{"input": "2 + 3"}',
        {"type": "custom_tool_call", "name": "sums", "input": "2 + 3"},
        {"type": "custom_tool_call_output", "output": "5"},
        "5",
    ),
    "namespace": Case(
        (_namespace("almanac"), _namespace("atlas"), WEATHER),
        "atlas",
        ROME,
        {"type": "function_call", "name": "weather", "namespace": "atlas", "arguments": ROME},
        {"type": "function_call_output", "output": "sun"},
        "sun",
    ),
    "shell": Case(
        ({"type": "shell", "environment": {"type": "local"}},),
        "shell",
        '{"commands": ["ls", "pwd"]}',
        {"type": "shell_call", "status": "completed"},
        {"type": "shell_call_output", "output": [SHELL_OUTPUT], "max_output_length": 1000},
        "notes.txt",
    ),
    "local_shell": Case(
        ({"type": "local_shell"},),
        "shell",
        '{"command": ["ls", "-a"]}',
        {"type": "local_shell_call", "status": "completed"},
        {"type": "local_shell_call_output", "output": "notes.txt"},
        "notes.txt",
    ),
    "apply_patch": Case(
        ({"type": "apply_patch"},),
        "apply_patch",
        json.dumps({"operation": PATCH}),
        {"type": "apply_patch_call", "operation": PATCH, "status": "completed"},
        {"type": "apply_patch_call_output", "status": "completed", "output": "did it"},
        "did it",
    ),
}


async def _make_the_round(case: Case, way: str, kind: str) -> tuple[Json, list[Json]]:
    """Return the call that the caller got, and the two chat requests."""
    scripts = [calling(case.word, case.arguments, "call_1"), Script(text="Done.")]
    fields: Json = {"tools": list(case.tools)}
    async with open_scene(kind, *scripts) as scene:
        asked = await _ask(scene, way, fields)
        (call,) = (item.to_dict() for item in asked.output)
        output = {**case.output, **_answers(call)}
        if way == "previous":
            told = await scene.create(input=[output], previous_response_id=asked.id, **fields)
        else:
            question = {"role": "user", "content": "Go."}
            told = await scene.create(input=[question, call, output], store=False, **fields)
        assert told.output_text == "Done."
        return call, scene.bodies


async def _ask(scene: Scene, way: str, fields: Json) -> Any:  # Any: the SDK's response
    if way != "stream":
        return await scene.create(input="Go.", store=way == "previous", **fields)
    events = await scene.all(await scene.create(input="Go.", store=False, stream=True, **fields))
    done = [event.item.to_dict() for event in events if event.type == "response.output_item.done"]
    assert done == [item.to_dict() for item in events[-1].response.output]
    return events[-1].response


def _answers(call: Json) -> Json:
    """Return how an output says which call it answers."""
    if call["type"] == "local_shell_call":
        return {"id": call["id"]}
    return {"call_id": call["call_id"]}


def _check(case: Case, call: Json, bodies: list[Json]) -> None:
    assert {name: call.get(name) for name in case.call} == case.call
    assert call["call_id"] == "call_1"
    assert call["id"]
    first, second = bodies
    assert all(tool["type"] == "function" for tool in first["tools"])
    assert first["tools"] == second["tools"]
    ((call_id, told),) = tool_messages(second).items()
    assert call_id == "call_1"
    assert case.told in told
    again = next(m for m in second["messages"] if m.get("tool_calls"))["tool_calls"][0]["function"]
    assert case.word in again["name"]
    assert json.loads(again["arguments"]).items() >= json.loads(case.arguments).items()


@pytest.fixture(params=["sync", "async"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=["previous", "replay", "stream"])
def way(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.turn("openai-python", "custom tool", transport="http")
async def test_a_custom_tool(way: str, kind: str) -> None:
    _check(CASES["custom"], *await _make_the_round(CASES["custom"], way, kind))


@pytest.mark.turn("openai-python", "custom tool with a grammar (regex, lark)", transport="http")
@pytest.mark.parametrize("syntax", ["regex", "lark"])
async def test_a_custom_tool_with_a_grammar(syntax: str, way: str) -> None:
    _check(CASES[syntax], *await _make_the_round(CASES[syntax], way, "async"))


@pytest.mark.turn("openai-python", "namespace of tools", transport="http")
async def test_a_namespace(way: str, kind: str) -> None:
    _check(CASES["namespace"], *await _make_the_round(CASES["namespace"], way, kind))


@pytest.mark.turn("openai-python", "shell tool", transport="http")
async def test_a_shell(way: str, kind: str) -> None:
    call, bodies = await _make_the_round(CASES["shell"], way, kind)
    _check(CASES["shell"], call, bodies)
    assert call["action"]["commands"] == ["ls", "pwd"]


@pytest.mark.turn("openai-python", "local_shell tool", transport="http")
async def test_a_local_shell(way: str, kind: str) -> None:
    call, bodies = await _make_the_round(CASES["local_shell"], way, kind)
    _check(CASES["local_shell"], call, bodies)
    assert call["action"]["type"] == "exec"
    assert call["action"]["command"] == ["ls", "-a"]


@pytest.mark.turn("openai-python", "apply_patch tool", transport="http")
async def test_a_patch(way: str, kind: str) -> None:
    _check(CASES["apply_patch"], *await _make_the_round(CASES["apply_patch"], way, kind))


@pytest.mark.turn("openai-python", "tool_search run by the client", transport="http")
async def test_a_search_for_tools(kind: str) -> None:
    search = {
        "type": "tool_search",
        "execution": "client",
        "description": "Finds further tools.",
        "parameters": {"type": "object", "properties": {"goal": {"type": "string"}}},
    }
    hidden = {**_namespace("almanac"), "tools": [{**WEATHER, "defer_loading": True}]}
    scripts = [
        calling("search", '{"goal": "weather"}', "call_search"),
        calling("weather", ROME, "call_rome"),
        Script(text="Sun."),
    ]
    async with open_scene(kind, *scripts) as scene:
        searched = await scene.create(input="The weather?", tools=[search, hidden])
        found = {"type": "tool_search_output", "execution": "client", "status": "completed"}
        (wanted,) = searched.output
        called = await scene.create(
            input=[{**found, "call_id": wanted.call_id, "tools": [hidden]}],
            previous_response_id=searched.id,
            tools=[search, hidden],
        )
        (call,) = called.output
        output = {"type": "function_call_output", "call_id": call.call_id, "output": "sun"}
        told = await scene.create(
            input=[output], previous_response_id=called.id, tools=[search, hidden]
        )
        first, second, third = scene.bodies
    assert (wanted.type, wanted.execution) == ("tool_search_call", "client")
    assert wanted.arguments == {"goal": "weather"}
    assert (call.type, call.namespace, call.name) == ("function_call", "almanac", "weather")
    assert told.output_text == "Sun."
    assert len(first["tools"]) == 1
    assert len(second["tools"]) == len(third["tools"]) == 2
    assert tool_messages(third).keys() == {"call_search", "call_rome"}


@pytest.mark.turn("openai-python", "additional_tools in the input", transport="http")
async def test_tools_that_the_input_brings(kind: str) -> None:
    brought = {"type": "additional_tools", "role": "developer", "tools": [_namespace("almanac")]}
    question = {"role": "user", "content": "The weather?"}
    scripts = [calling("weather", ROME, "call_rome"), Script(text="Sun.")]
    async with open_scene(kind, *scripts) as scene:
        asked = await scene.create(input=[brought, question])
        (call,) = asked.output
        output = {"type": "function_call_output", "call_id": call.call_id, "output": "sun"}
        told = await scene.create(input=[output], previous_response_id=asked.id)
        assert tool_messages(scene.bodies[1]) == {"call_rome": "sun"}
    assert (call.namespace, call.name) == ("almanac", "weather")
    assert told.output_text == "Sun."


@pytest.mark.turn("openai-python", "calls of several families at once", transport="http")
async def test_calls_of_several_families_keep_their_order_and_their_outputs(kind: str) -> None:
    tools = [*CASES["custom"].tools, WEATHER, *CASES["shell"].tools]
    calls = [
        Call("weather", ROME, "call_0"),
        Call("note", '{"input": "hi"}', "call_1"),
        Call("shell", '{"commands": ["ls"]}', "call_2"),
    ]
    mixed = Script(text="Well.", calls=calls, interleave=True)
    async with open_scene(kind, mixed, Script(text="Done.")) as scene:
        events = await scene.all(await scene.create(input="Go.", tools=tools, stream=True))
        response = events[-1].response
        outputs: list[Json] = [
            {"type": "shell_call_output", "call_id": "call_2", "output": [SHELL_OUTPUT]},
            {"type": "custom_tool_call_output", "call_id": "call_1", "output": "noted"},
            {"type": "function_call_output", "call_id": "call_0", "output": "sun"},
        ]
        await scene.create(input=outputs, previous_response_id=response.id, tools=tools)
        told = tool_messages(scene.bodies[1])
    assert [item.type for item in response.output] == [
        "message",
        "function_call",
        "custom_tool_call",
        "shell_call",
    ]
    assert list(told) == ["call_0", "call_1", "call_2"]
    assert (told["call_0"], told["call_1"]) == ("sun", "noted")
    assert "notes.txt" in told["call_2"]


@pytest.mark.turn("openai-python", "an image as the output of a tool", transport="http")
@pytest.mark.parametrize("family", ["function", "custom"])
async def test_an_image_that_a_tool_shows_reaches_the_model(family: str) -> None:
    name, tool = (
        ("weather", WEATHER) if family == "function" else ("note", CASES["custom"].tools[0])
    )
    asking = Script(calls=[Call(name, '{"input": "Rome"}', "call_1")])
    shown = [{"type": "input_text", "text": "See."}, {"type": "input_image", "image_url": PIXEL}]
    async with open_scene("async", asking, Script(text="A square.")) as scene:
        asked = await scene.create(input="Go.", tools=[tool])
        output = {"type": f"{asked.output[0].type}_output", "call_id": "call_1", "output": shown}
        told = await scene.create(input=[output], previous_response_id=asked.id, tools=[tool])
        second = scene.bodies[1]
    assert told.output_text == "A square."
    assert tool_messages(second) == {"call_1": "See."}
    assert PIXEL in json.dumps(second["messages"][-1])


@pytest.mark.turn("openai-python", "a call that breaks its grammar is repaired", transport="http")
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("syntax", ["regex", "lark"])
async def test_a_call_that_breaks_its_grammar_is_mended(syntax: str, stream: bool) -> None:
    bad = Script(calls=[Call("sums", '{"input": "two plus three"}', "call_bad")])
    good = Script(calls=[Call("sums", '{"input": "2 + 3"}', "call_good")])
    async with open_scene("async", bad, good) as scene:
        tools = list(CASES[syntax].tools)
        asked: Any = await scene.create(input="Go.", tools=tools, stream=stream)
        if stream:
            events = await scene.all(asked)
            shown = [e.delta for e in events if e.type == "response.custom_tool_call_input.delta"]
            assert "".join(shown) == "2 + 3"
            asked = events[-1].response
        assert len(scene.bodies) == 2
    (call,) = asked.output
    assert (call.type, call.input) == ("custom_tool_call", "2 + 3")


@pytest.mark.turn("openai-python", "tool_choice that forces a custom tool", transport="http")
async def test_a_custom_tool_is_forced(kind: str) -> None:
    case = CASES["custom"]
    async with open_scene(kind, calling(case.word, case.arguments, "call_1")) as scene:
        choice = {"type": "custom", "name": "note"}
        asked = await scene.create(input="Go.", tools=[*case.tools, WEATHER], tool_choice=choice)
        (body,) = scene.bodies
    assert asked.output[0].type == "custom_tool_call"
    assert body["tool_choice"] == {"type": "function", "function": {"name": "note"}}


@pytest.mark.turn("openai-python", "a forced tool that cannot be run is refused", transport="http")
async def test_a_forced_tool_that_nobody_can_run_is_refused(kind: str) -> None:
    async with open_scene(kind) as scene:
        with pytest.raises(openai.BadRequestError) as caught:
            await scene.create(
                input="Go.", tools=[{"type": "web_search"}], tool_choice={"type": "web_search"}
            )
        assert scene.bodies == []
    assert caught.value.param == "tool_choice"


@pytest.mark.turn("openai-python", "custom tool over a socket", transport="websocket")
async def test_a_custom_tool_over_a_socket(kind: str) -> None:
    case = CASES["custom"]

    def talk(connection: Any) -> Any:
        fields = {"model": MODEL, "tools": list(case.tools), "store": False}
        yield connection.response.create(input="Go.", **fields)
        event = yield from _until_completed(connection)
        (call,) = event.response.output
        output = {**case.output, "call_id": call.call_id}
        previous = event.response.id
        yield connection.response.create(input=[output], previous_response_id=previous, **fields)
        event = yield from _until_completed(connection)
        return call.to_dict(), event.response.output_text

    scripts = [calling(case.word, case.arguments, "call_1"), Script(text="Done.")]
    async with open_scene(kind, *scripts) as scene:
        call, text = await scene.within(scene.client.responses.connect(), talk)
        _check(case, call, scene.bodies)
    assert text == "Done."


def _until_completed(connection: Any) -> Any:
    event = yield connection.recv()
    while event.type != "response.completed":
        assert event.type != "error", event.to_dict()
        event = yield connection.recv()
    return event
