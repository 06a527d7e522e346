"""Tools for a model that has none: which is called, and what the model is asked to write."""

from __future__ import annotations

from typing import Any

import pytest

from antiphon.backends.toolless import (
    candidates,
    in_functions,
    plan_answer,
    plan_arguments,
    plan_choice,
    plan_words,
    unenforced,
)
from antiphon.plans.plan import Plan
from antiphon.protocol.deltas import CallClosed, CallGrew, CallOpened, Stopped, TextGrew
from antiphon.protocol.tools import Tool, ToolPolicy
from antiphon.wires.chat.profiles import PROFILES
from antiphon.wires.lower import functions_of
from tests.building import plan_with


def tool(name: str, description: str, **properties: Any) -> Tool:
    parameters = {"type": "object", "properties": properties, "required": list(properties)}
    return {
        "type": "function",
        "name": name,
        "description": description,
        "parameters": parameters,
    }


TEXT = {"type": "string"}
WEATHER = tool("get_weather", "Get the current weather for a location", location=TEXT)
READ = tool("readFile", "Read a file from disk and return its text.\n\nLong text here.", path=TEXT)
EMAIL = tool("send_email", "Send an email to a person", to=TEXT, body=TEXT)
TOOLS = [WEATHER, READ, EMAIL]


def plan_of(text: str, policy: ToolPolicy | None = None, **fields: Any) -> Plan:
    items = [{"role": "user", "content": text}]
    fields = {"tools": TOOLS, "items": items, **fields}
    return plan_with(policy=policy or ToolPolicy(), **fields)


def names(tools: list[Tool]) -> list[str]:
    return [tool["name"] for tool in tools]


@pytest.mark.parametrize(
    ("text", "called"),
    [
        ("What's the weather like in San Francisco?", "get_weather"),
        ("Read notes.txt", "readFile"),
        ("Please open that file from my disk", "readFile"),
        ("Write an email to Bob", "send_email"),
    ],
)
def test_a_tool_is_called_when_the_message_names_it(text: str, called: str) -> None:
    assert names(candidates(plan_of(text))) == [called]


@pytest.mark.parametrize(
    "text", ["Hello! How are you?", "Tell me a joke.", "What is the current time?", "Get lost", ""]
)
def test_other_messages_are_answered_in_words(text: str) -> None:
    assert candidates(plan_of(text)) == []


def test_a_result_is_answered_in_words() -> None:
    items = [
        {"role": "user", "content": "the weather, please"},
        {"type": "function_call", "call_id": "c", "name": "get_weather", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "sunny"},
    ]
    assert candidates(plan_of("", items=items)) == []
    assert candidates(plan_of("", ToolPolicy("required"), items=items)) != []


def test_no_tool_is_called_when_none_may_be() -> None:
    assert candidates(plan_of("the weather, please", ToolPolicy("none"))) == []


def test_only_allowed_tools_are_called() -> None:
    policy = ToolPolicy("required", frozenset({"send_email"}))
    assert names(candidates(plan_of("the weather, please", policy))) == ["send_email"]


def test_a_required_tool_that_nobody_named_is_the_models_choice() -> None:
    plan = plan_of("surprise me", ToolPolicy("required"))
    assert names(candidates(plan)) == names(TOOLS)
    chosen = plan_choice(plan, TOOLS)
    assert chosen.format is not None
    assert chosen.format["schema"] == {"enum": ["get_weather", "readFile", "send_email"]}
    assert "readFile: Read a file from disk and return its text.\n" in (chosen.instructions or "")


def test_the_arguments_are_written_under_the_tools_own_schema() -> None:
    asked = plan_arguments(plan_of("x", instructions="Be brief."), EMAIL)
    assert not functions_of(asked)
    assert asked.format is not None
    assert asked.format["schema"] == EMAIL["parameters"] | {"additionalProperties": False}
    assert (asked.instructions or "").startswith("Be brief.\n\nCall the tool send_email: Send an")


def test_objects_are_closed_at_every_depth_unless_the_schema_says_otherwise() -> None:
    inner = {"type": "object", "properties": {"a": TEXT}}
    open_one = {"type": "object", "properties": {}, "additionalProperties": True}
    nested = tool("t", "", rows={"type": "array", "items": inner}, free=open_one)
    schema = (plan_arguments(plan_of("x"), nested).format or {})["schema"]
    assert schema["properties"]["rows"]["items"]["additionalProperties"] is False
    assert schema["properties"]["free"]["additionalProperties"] is True


def test_a_tool_without_parameters_takes_an_empty_object() -> None:
    bare = {"type": "function", "name": "now", "description": None, "parameters": None}
    schema = (plan_arguments(plan_of("x"), bare).format or {})["schema"]
    assert schema == {"type": "object", "properties": {}, "additionalProperties": False}


def test_earlier_calls_are_told_in_words_and_other_items_are_kept() -> None:
    message = {"role": "user", "content": "hi"}
    items = [
        message,
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": '{"a": 1}'},
        {"type": "function_call_output", "call_id": "c", "output": "sunny"},
    ]
    told = plan_words(plan_of("", items=items)).items
    assert told[0] is message
    assert told[1]["content"] == 'I call f with {"a": 1}.'
    assert [item["role"] for item in told] == ["user", "assistant", "user"]
    assert "sunny" in told[2]["content"]


def test_keywords_that_are_not_enforced_are_named() -> None:
    schema = {
        "type": "object",
        "properties": {
            "not": {"type": "string"},
            "a": {"type": "array", "uniqueItems": True, "items": {"multipleOf": 2}},
            "b": {"type": "string", "pattern": "^[a-z]+$"},
            "c": {"type": "string", "pattern": "[a-z]"},
            "d": {"enum": [{"if": 1}]},
        },
    }
    assert unenforced(schema) == ["multipleOf", "pattern", "uniqueItems"]
    assert unenforced(None) == []


@pytest.mark.parametrize(
    ("schema", "named"),
    [
        ({"type": "integer", "minimum": 1, "exclusiveMaximum": 9}, []),
        ({"type": "number", "minimum": 1, "exclusiveMaximum": 9}, ["exclusiveMaximum", "minimum"]),
        ({"type": "string", "format": "date"}, []),
        ({"type": "string", "format": "email"}, ["format"]),
        ({"type": "string", "pattern": "^(?=x)y$"}, ["pattern"]),
        ({"type": "object", "properties": {"format": {"type": "string"}}}, []),
    ],
)
def test_what_is_enforced_depends_on_the_type(schema: dict[str, Any], named: list[str]) -> None:
    assert unenforced(schema) == named


def custom_plan(definition: str) -> Plan:
    form = {"type": "grammar", "syntax": "lark", "definition": definition}
    call = {"type": "custom_tool_call", "call_id": "1", "name": "note", "input": "AB"}
    items = [{"role": "user", "content": "note it"}, call]
    return plan_of("", tools=[{"type": "custom", "name": "note", "format": form}], items=items)


def test_the_input_of_a_tool_with_a_grammar_is_written_under_it() -> None:
    plan = custom_plan('start: "A" "B"')

    asked, emulation = plan_answer(plan, functions_of(plan), PROFILES["llamacpp"])

    assert emulation is not None
    assert (asked.format or {})["syntax"] == "lark"
    assert asked.items[1]["content"] == 'I call note with {"input":"AB"}.'
    assert emulation.feed([TextGrew("AB"), Stopped("stop")]) == [
        CallOpened(0, "note"),
        CallGrew(0, '{"input":"'),
        CallGrew(0, "AB"),
        CallGrew(0, '"}'),
        CallClosed(0),
        Stopped("stop"),
    ]


def test_without_a_way_to_say_the_grammar_the_arguments_are_asked_for() -> None:
    plan = custom_plan('start: "A" "B"')

    asked, emulation = plan_answer(plan, functions_of(plan), PROFILES["generic"])

    assert emulation is None
    assert asked.format is not None
    assert asked.format["schema"]["required"] == ["input"]


def test_without_tools_words_are_asked_for() -> None:
    asked, emulation = plan_answer(plan_of("hi"), [], PROFILES["generic"])

    assert (functions_of(asked), asked.format, emulation) == ((), None, None)


def test_a_call_that_a_server_ran_is_told_in_words_with_its_result() -> None:
    call = {"type": "mcp_call", "id": "m", "server_label": "wiki", "name": "read"}
    shot = {"type": "image_generation_call", "id": "i", "status": "completed", "result": "AAAA"}
    items = [call | {"arguments": "{}", "output": "a city"}, shot]
    told = plan_words(in_functions(plan_of("", items=items))).items
    assert [item["role"] for item in told] == ["assistant", "user"] * 2
    assert told[0]["content"] == "I call wiki__read with {}."
    assert told[1]["content"].startswith("Result: a city")
    # The model cannot see it, and that is reported when the message is written.
    assert told[3]["content"][1]["type"] == "input_image"


@pytest.mark.parametrize("kind", ["input_image", "image_url"])
def test_an_image_in_a_result_is_kept_to_be_reported(kind: str) -> None:
    call = {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"}
    image = {"type": kind, "image_url": "data:image/png;base64,AAAA"}
    output = {"type": "function_call_output", "call_id": "c", "output": [image]}
    told = plan_words(in_functions(plan_of("", items=[call, output]))).items
    assert told[1]["content"][1] == image
