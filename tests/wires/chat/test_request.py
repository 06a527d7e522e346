"""Plans in the words of chat servers, and what is reported when there are no words."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from antiphon.plans.plan import Plan
from antiphon.protocol.deltas import NativeState
from antiphon.protocol.items import Item
from antiphon.protocol.native_state import NATIVE, without_state
from antiphon.protocol.thread import Thread
from antiphon.protocol.tools import ToolPolicy
from antiphon.wires.chat.profiles import GENERIC, PROFILES, Profile
from antiphon.wires.chat.request import encode_request, write_request
from tests.building import plan_with

OPENAI = PROFILES["openai"]
PLAIN = Profile(
    name="plain",
    images=False,
    reasoning_effort=False,
    json_schema=False,
    strict_tools=False,
    enforces_required=False,
    parallel_tool_calls=False,
    logprobs=False,
    penalties=False,
    stream_options=False,
    extra_fields=frozenset(),
)
TOOL = {"type": "function", "name": "f", "parameters": {"type": "object"}}


def message(role: str, *content: str | dict[str, Any]) -> Item:
    parts = [{"type": "input_text", "text": p} if isinstance(p, str) else p for p in content]
    return {"type": "message", "role": role, "content": parts}


def call(call_id: str, arguments: str = "{}") -> Item:
    return {"type": "function_call", "call_id": call_id, "name": "f", "arguments": arguments}


def output(call_id: str, value: Any) -> Item:
    return {"type": "function_call_output", "call_id": call_id, "output": value}


def write(profile: Profile = GENERIC, **fields: Any) -> tuple[dict[str, Any], list[str]]:
    plan = plan_with(**{"items": [message("user", "hi")], **fields})
    return write_request(plan, profile)


def messages(*items: Item, profile: Profile = GENERIC, **fields: Any) -> list[dict[str, Any]]:
    body, report = write(profile, items=items, **fields)
    assert report == []
    told: list[dict[str, Any]] = body["messages"]
    return told


# Messages.


def test_a_bare_plan_is_a_bare_request() -> None:
    assert write() == (
        {
            "model": "m",
            "messages": [{"role": "user", "content": "hi"}],
            "stream": True,
            "stream_options": {"include_usage": True},
        },
        [],
    )


def test_without_streaming_no_stream_options() -> None:
    body, _ = write(stream=False)
    assert body["stream"] is False
    assert "stream_options" not in body


@pytest.mark.requirement("003-flow-3", "003-input-2", "003-input-5")
def test_instructions_and_leading_system_messages_become_one() -> None:
    items = [message("developer", "b"), message("system", "c", "d"), message("user", "hi")]
    assert messages(*items, instructions="a") == [
        {"role": "system", "content": "a\n\nb\n\nc\nd"},
        {"role": "user", "content": "hi"},
    ]


def test_a_server_may_want_them_apart_and_under_another_name() -> None:
    apart = msgspec.structs.replace(OPENAI, merges_system=False)
    told = messages(message("system", "b"), instructions="a", profile=apart)
    assert told == [
        {"role": "developer", "content": "a"},
        {"role": "developer", "content": "b"},
    ]


@pytest.mark.requirement("003-input-5")
def test_a_late_system_message_stays_where_it_is() -> None:
    late = message("system", "b")
    assert messages(message("user", "a"), late)[1] == {"role": "system", "content": "b"}
    meek = Profile(name="meek", late_system_role="user")
    body, report = write(meek, items=[message("user", "a"), late])
    assert body["messages"][1] == {"role": "user", "content": "b"}
    assert report == ["input[1] (system message): sent as a user message"]


@pytest.mark.requirement("003-input-3")
def test_content_may_be_a_string_and_the_type_may_be_missing() -> None:
    assert messages({"role": "user", "content": "hi"}) == [{"role": "user", "content": "hi"}]


@pytest.mark.requirement("003-input-4", "003-content-2")
def test_an_assistants_parts_and_refusals_are_its_words() -> None:
    parts = [{"type": "output_text", "text": "a"}, {"type": "refusal", "refusal": "b"}]
    assert messages({"role": "assistant", "content": parts}) == [
        {"role": "assistant", "content": "ab"}
    ]


@pytest.mark.requirement("003-input-6", "003-input-7")
def test_calls_and_results() -> None:
    items = [message("user", "hi"), message("assistant", "so"), call("1", '{"a":1}'), call("2", "")]
    items += [output("2", "y"), output("1", "x")]
    assert messages(*items)[1:] == [
        {
            "role": "assistant",
            "content": "so",
            "tool_calls": [
                {
                    "id": "1",
                    "type": "function",
                    "function": {"name": "f", "arguments": '{"a":1}'},
                },
                {"id": "2", "type": "function", "function": {"name": "f", "arguments": "{}"}},
            ],
        },
        {"role": "tool", "tool_call_id": "1", "content": "x"},
        {"role": "tool", "tool_call_id": "2", "content": "y"},
    ]


@pytest.mark.parametrize("arguments", ['{"a":', '"a"', "[1]", "null", "ls -l"])
def test_arguments_that_no_server_could_read_are_sent_as_a_text(arguments: str) -> None:
    body, report = write(items=[call("1", arguments), output("1", "x")])

    sent = body["messages"][0]["tool_calls"][0]["function"]["arguments"]
    assert msgspec.json.decode(sent) == {"arguments": arguments}
    assert report == ["input[0].arguments: no JSON object; sent as a text in one"]


def test_calls_without_words_have_null_content() -> None:
    assert messages(call("1"), output("1", "x"))[0]["content"] is None


def test_an_unanswered_call_gets_a_result_that_says_so() -> None:
    body, report = write(items=[call("1"), message("user", "go on")])
    assert body["messages"][1]["role"] == "tool"
    assert "no output was provided" in body["messages"][1]["content"]
    assert report == ["input[0] (function_call): no output was provided for 1"]


def test_a_result_without_a_call_is_said_by_the_user() -> None:
    body, report = write(items=[message("user", "a"), output("9", "lost")])
    assert body["messages"][1] == {
        "role": "user",
        "content": "Output of a tool call (9):\nlost",
    }
    assert len(report) == 1


def test_images_of_a_result_follow_in_a_user_message() -> None:
    image = {"type": "input_image", "image_url": "data:image/png;base64,AA=="}
    parts = [{"type": "input_text", "text": "a"}, image, {"type": "input_text", "text": "b"}]
    told = messages(call("1"), call("2"), output("1", parts), output("2", [image]))
    shown = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
    assert told[1:] == [
        {"role": "tool", "tool_call_id": "1", "content": "a\nb"},
        {"role": "tool", "tool_call_id": "2", "content": "(see the next message)"},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "Shown by tool call 1:"},
                shown,
                {"type": "text", "text": "Shown by tool call 2:"},
                shown,
            ],
        },
    ]


# Parts.


@pytest.mark.requirement("003-content-3", "003-content-limits-1")
def test_images_keep_their_detail() -> None:
    image = {"type": "input_image", "image_url": "https://example.org/a.png", "detail": "low"}
    assert messages(message("user", "see", image))[0]["content"] == [
        {"type": "text", "text": "see"},
        {"type": "image_url", "image_url": {"url": "https://example.org/a.png", "detail": "low"}},
    ]


@pytest.mark.requirement("003-content-4", "RFC016-types-2")
@pytest.mark.parametrize(
    ("part", "what"),
    [
        ({"type": "input_image", "file_id": "f"}, "input[0].content[1] (input_image)"),
        ({"type": "input_file", "file_id": "f"}, "input[0].content[1] (input_file)"),
        (
            {"type": "input_file", "file_url": "https://example.org"},
            "input[0].content[1] (input_file)",
        ),
        ({"type": "input_video", "video_url": "x"}, "input[0].content[1] (input_video)"),
        ({"type": "acme:part"}, "input[0].content[1] (acme:part)"),
    ],
)
def test_what_cannot_be_sent_leaves_a_note_and_is_reported(part: dict[str, Any], what: str) -> None:
    body, report = write(items=[message("user", "see", part)])
    assert [line.partition(": ")[0] for line in report] == [what]
    assert body["messages"][0]["content"].startswith("see\n[")


def test_a_model_without_eyes_is_told_that_there_was_an_image() -> None:
    image = {"type": "input_image", "image_url": "https://example.org/a.png"}
    body, report = write(PLAIN, items=[message("user", image)])
    assert body["messages"][0]["content"] == "[image left out: this model takes no images]"
    assert report == ["input[0].content[0] (input_image): this model takes no images"]


def data_url(media: str, data: bytes) -> str:
    return f"data:{media};base64,{base64.b64encode(data).decode()}"


@pytest.mark.requirement("003-content-4", "003-content-limits-2")
@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("a.bin", data_url("text/plain", "grüße".encode())),
        ("a.csv", data_url("application/octet-stream", "grüße".encode())),
        ("a.md", base64.b64encode("grüße".encode()).decode()),
        ("a.txt", "data:text/plain,grüße"),
        ("a", data_url("application/json", "grüße".encode())),
        ("a.txt", data_url("text/plain", "\ufeffgrüße".encode())),
    ],
)
def test_a_file_of_text_is_read_to_the_model(name: str, data: str) -> None:
    part = {"type": "input_file", "filename": name, "file_data": data}
    assert messages(message("user", part)) == [
        {"role": "user", "content": f"File {name}:\ngrüße"},
    ]


@pytest.mark.requirement("003-content-4", "003-content-limits-2")
@pytest.mark.parametrize("media", ["application/pdf", "text/plain"])
def test_any_other_file_goes_as_it_is_where_the_server_takes_files(media: str) -> None:
    data = data_url(media, b"\xff\xfe\x00")
    part = {"type": "input_file", "filename": "a.pdf", "file_data": data}
    told = messages(message("user", part), profile=OPENAI)
    file = {"filename": "a.pdf", "file_data": data}
    assert told[0]["content"] == [{"type": "file", "file": file}]
    _, report = write(items=[message("user", part)])
    assert report == ["input[0].content[0] (input_file): this model takes no files but text"]


# Reasoning.

THOUGHT = {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "hm"}]}


@pytest.mark.parametrize("profile", ["vllm", "llamacpp", "deepseek"])
def test_reasoning_goes_back_where_the_server_wants_it(profile: str) -> None:
    chosen = PROFILES[profile]
    told = messages(THOUGHT, call("1"), output("1", "x"), profile=chosen)
    assert told[0][chosen.reasoning_replay] == "hm"


def test_a_summary_stands_in_for_reasoning() -> None:
    item = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "in short"}]}
    told = messages(item, message("assistant", "a"), profile=PROFILES["vllm"])
    assert told[0]["reasoning"] == "in short"


def test_reasoning_that_no_one_wants_is_reported_once() -> None:
    items = [THOUGHT, message("assistant", "a"), message("user", "b"), THOUGHT, call("1")]
    body, report = write(items=[*items, output("1", "x")])
    assert report == ["input[0] (reasoning): this model does not take it back (and 1 more)"]
    assert "hm" not in str(body)


def test_reasoning_of_another_server_is_dropped_and_reported() -> None:
    sealed = {"type": "reasoning", "summary": [], "encrypted_content": "xyz"}
    body, report = write(PROFILES["vllm"], items=[sealed, message("assistant", "a")])
    assert report == ["input[0] (reasoning): encrypted_content of another server"]
    assert "xyz" not in str(body)


@pytest.mark.parametrize("make", [list, lambda items: Thread(items, weight=1 << 20)])
def test_native_state_is_dropped_and_reported_once(make: Callable[[list[Item]], Any]) -> None:
    state = NativeState("messages", b"signed", None, "team")
    bare: Item = {"type": "reasoning", "summary": [], NATIVE: state}
    items = [THOUGHT | {NATIVE: state}, message("assistant", "a"), message("user", "b"), bare]
    plan = Plan(model="m", items=make([*items, call("1"), output("1", "x")]))
    body, report = encode_request(plan, PROFILES["vllm"])
    assert report == [
        "input[0] (reasoning): the state of another provider or account is not sent (and 1 more)"
    ]
    without = [without_state(item) for item in items if item is not bare]
    asked = Plan(model="m", items=[*without, call("1"), output("1", "x")])
    assert body == encode_request(asked, PROFILES["vllm"])[0]


def test_empty_reasoning_is_nothing() -> None:
    assert messages({"type": "reasoning", "summary": []}, message("user", "a")) == [
        {"role": "user", "content": "a"}
    ]


def test_a_turn_of_reasoning_alone_goes_back_where_the_server_takes_it() -> None:
    body, report = write(PROFILES["vllm"], items=[THOUGHT, message("user", "a")])
    assert report == []
    assert body["messages"] == [
        {"role": "assistant", "content": "", "reasoning": "hm"},
        {"role": "user", "content": "a"},
    ]


def test_a_turn_of_reasoning_alone_is_reported_where_the_server_does_not_take_it() -> None:
    body, report = write(items=[THOUGHT, message("user", "a")])
    assert report == ["input[0] (reasoning): this model does not take it back"]
    assert [sent["role"] for sent in body["messages"]] == ["user"]


# Tools.


@pytest.mark.requirement("003-flow-4")
def test_tools_keep_their_schema_and_lose_their_nulls() -> None:
    schema = {"type": "object", "title": "Fields"}
    tools = [
        {"type": "function", "name": "f", "description": None, "parameters": schema},
        {"type": "function", "name": "g", "description": "d", "parameters": None, "strict": True},
        {"type": "function", "name": "h", "strict": None},
    ]
    body, report = write(tools=tools)
    empty = {"type": "object", "properties": {}}
    assert [tool["function"] for tool in body["tools"]] == [
        {"name": "f", "parameters": schema},
        {"name": "g", "description": "d", "parameters": empty, "strict": True},
        {"name": "h", "parameters": empty},
    ]
    assert "tool_choice" not in body
    assert report == []


@pytest.mark.requirement(
    "003-tool-choice-1", "003-tool-choice-2", "003-tool-choice-3", "003-tool-choice-4"
)
@pytest.mark.parametrize(
    ("policy", "choice"),
    [
        (ToolPolicy("auto"), None),
        (ToolPolicy("none"), "none"),
        (ToolPolicy("required"), "required"),
        (ToolPolicy("auto", frozenset({"f"})), None),
        (ToolPolicy("required", frozenset({"f", "g"})), "required"),
        (ToolPolicy("required", frozenset({"f"})), {"type": "function", "function": {"name": "f"}}),
    ],
)
def test_tool_choice(policy: ToolPolicy, choice: object) -> None:
    body, _ = write(tools=[TOOL, {**TOOL, "name": "g"}], policy=policy)
    assert body.get("tool_choice") == choice
    assert len(body["tools"]) == 2


def test_without_tools_nothing_is_said_about_them() -> None:
    body, report = write(policy=ToolPolicy("required"), parallel_tool_calls=True)
    assert body.keys().isdisjoint({"tools", "tool_choice", "parallel_tool_calls"})
    assert report == []


@pytest.mark.requirement("003-ignored-1", "003-ignored-2")
def test_a_server_without_such_settings_is_reported() -> None:
    _, report = write(
        PLAIN,
        tools=[{**TOOL, "strict": True}],
        policy=ToolPolicy("required"),
        parallel_tool_calls=False,
        format={"type": "json_schema", "name": "n", "schema": {}},
        reasoning_effort="low",
        verbosity="low",
        service_tier="flex",
        presence_penalty=0.5,
        logprobs=True,
        extra={"prompt_cache_key": "k", "top_k": None},
    )
    assert [line.partition(":")[0] for line in report] == [
        "parallel_tool_calls",
        "presence_penalty",
        "top_logprobs",
        "reasoning.effort",
        "text.verbosity",
        "service_tier",
        "prompt_cache_key",
    ]


def test_what_a_server_does_anyway_is_not_reported() -> None:
    _, report = write(
        PLAIN,
        tools=[{**TOOL, "strict": False}],
        parallel_tool_calls=True,
        verbosity="medium",
        service_tier="auto",
        presence_penalty=0.0,
    )
    assert report == []


# The rest.


@pytest.mark.requirement("003-ignored-1", "003-ignored-2")
def test_settings_go_under_the_names_that_the_server_knows() -> None:
    body, report = write(
        OPENAI,
        tools=[TOOL],
        parallel_tool_calls=False,
        temperature=0.0,
        top_p=0.9,
        presence_penalty=0.1,
        frequency_penalty=0.2,
        max_output_tokens=100,
        reasoning_effort="high",
        verbosity="low",
        service_tier="flex",
        logprobs=True,
        top_logprobs=3,
        extra={"prompt_cache_key": "k", "seed": 7},
    )
    assert report == []
    assert (
        body.items()
        >= {
            "parallel_tool_calls": False,
            "temperature": 0.0,
            "top_p": 0.9,
            "presence_penalty": 0.1,
            "frequency_penalty": 0.2,
            "max_completion_tokens": 100,
            "reasoning_effort": "high",
            "verbosity": "low",
            "service_tier": "flex",
            "logprobs": True,
            "top_logprobs": 3,
            "prompt_cache_key": "k",
            "seed": 7,
        }.items()
    )


def test_a_schema_moves_into_response_format() -> None:
    schema = {"type": "object"}
    form = {"type": "json_schema", "name": "n", "description": None, "schema": schema}
    body, report = write(format={**form, "strict": True})
    assert body["response_format"] == {
        "type": "json_schema",
        "json_schema": {"name": "n", "schema": schema, "strict": True},
    }
    assert report == []


def test_plain_json_and_unknown_formats() -> None:
    body, report = write(format={"type": "json_object"})
    assert (body["response_format"], report) == ({"type": "json_object"}, [])
    body, report = write(format={"type": "grammar", "syntax": "regex", "definition": "a+"})
    assert "response_format" not in body
    assert report == ["text.format (grammar): this backend cannot send it"]


def test_extra_fields_never_overwrite_the_request() -> None:
    sly = Profile(name="sly", extra_fields=frozenset({"messages", "top_k"}))
    body, report = write(sly, extra={"messages": [], "top_k": 5})
    assert body["top_k"] == 5
    assert body["messages"]
    assert report == ["messages: unknown parameter; use input"]


def test_the_plan_is_left_as_it_was() -> None:
    items = [message("user", "a"), call("1"), output("1", [{"type": "input_text", "text": "x"}])]
    before = msgspec.json.encode(items)
    write(items=items, tools=[TOOL])
    assert msgspec.json.encode(items) == before


def test_fields_of_parts_that_nobody_reads_are_reported() -> None:
    part = {"type": "input_text", "text": "x", "prompt_cache_breakpoint": {"mode": "explicit"}}
    item = {"type": "message", "role": "user", "content": [part]}
    _, report = write_request(Plan(model="m", items=[item]), GENERIC)

    assert report == ["input[0].content[0].prompt_cache_breakpoint"]


def test_a_server_that_knows_no_schemas_has_its_model_told_of_it() -> None:
    form = {"type": "json_schema", "name": "n", "schema": {"required": ["answer"]}}
    body, report = write(PLAIN, format=form, instructions="Be brief.")

    system = body["messages"][0]["content"]
    assert system.startswith("Be brief.")
    assert '{"required":["answer"]}' in system
    assert body["response_format"] == {"type": "json_object"}
    assert report == []


SAMPLING: dict[str, Any] = {"stop": ["END"], "seed": 7, "logit_bias": {"11": -5}}


@pytest.mark.parametrize(
    ("profile", "sent", "reported"),
    [
        ("generic", SAMPLING, []),
        ("openai", SAMPLING, []),
        ("vllm", SAMPLING, []),
        ("mistral", {"stop": ["END"], "random_seed": 7}, ["logit_bias"]),
        ("groq", {"stop": ["END"], "seed": 7}, ["logit_bias"]),
        ("ollama", {"stop": ["END"], "seed": 7}, ["logit_bias"]),
        ("deepseek", {"stop": ["END"]}, ["seed", "logit_bias"]),
    ],
)
def test_stop_seed_and_logit_bias_reach_the_servers_that_take_them(
    profile: str, sent: dict[str, Any], reported: list[str]
) -> None:
    body, report = write(PROFILES[profile], extra=SAMPLING)
    names = {*SAMPLING, "random_seed"}
    assert {name: value for name, value in body.items() if name in names} == sent
    assert [line.partition(":")[0] for line in report] == reported


def test_one_answer_is_what_every_server_gives_so_it_is_not_reported() -> None:
    assert write(extra={"n": 1})[1] == []
    assert write(extra={"n": 2})[1] == ["n: this backend cannot send it"]


def test_images_can_be_asked_of_the_server_that_sends_them() -> None:
    asked = {"modalities": ["image", "text"], "image_config": {"aspect_ratio": "16:9"}}
    body, report = write(PROFILES["openrouter"], extra=asked)
    assert body.items() >= asked.items()
    assert report == []
