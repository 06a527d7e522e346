"""What a Responses server is sent: the caller's own words where it knows them."""

from __future__ import annotations

import json
from typing import Any, Final

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types.responses import response_create_params
from pydantic import TypeAdapter, ValidationError

from antiphon.plans.assess import assess
from antiphon.plans.plan import make_plan
from antiphon.plans.toolbox import gather_tools
from antiphon.protocol.deltas import NativeState
from antiphon.protocol.items import Item
from antiphon.protocol.native_state import NATIVE
from antiphon.protocol.request import read_request
from antiphon.protocol.tools import ToolPolicy
from antiphon.wires.responses.profiles import PROFILES, capabilities_of
from antiphon.wires.responses.request import encode_request, write_request
from tests.building import plan_with

Json = dict[str, Any]

USER: Final[Item] = {"type": "message", "role": "user", "content": "hello"}
LOOK: Final[Json] = {"type": "function", "name": "look", "parameters": {"type": "object"}}
CUSTOM: Final[Json] = {"type": "custom", "name": "patch", "format": {"type": "text"}}
SPACE: Final[Json] = {"type": "namespace", "name": "files", "description": "F", "tools": [LOOK]}
CALL: Final[Item] = {
    "type": "function_call",
    "id": "fc_ours",
    "call_id": "c1",
    "name": "look",
    "arguments": "{}",
    "status": "completed",
}
OUTPUT: Final[Item] = {"type": "function_call_output", "call_id": "c1", "output": "seen"}


def write(profile: str = "openai", tools: Any = (), **fields: Any) -> tuple[Json, list[str]]:
    """Return the body and the report of a plan, as the server would decode it."""
    chosen = PROFILES[profile]
    upstream = capabilities_of(chosen).tool_kinds
    plan = msgspec.structs.replace(
        plan_with(**{"items": [USER], **fields}), toolbox=gather_tools(tools, (), upstream)[0]
    )
    data, report = encode_request(plan, chosen, upstream, "team")
    return json.loads(data), report


def inputs(items: list[Item], profile: str = "openai", tools: Any = ()) -> list[Item]:
    found: list[Item] = write(profile, tools, items=items)[0]["input"]
    return found


def thought(account: str = "team", wire: str = "responses", **more: Any) -> Item:
    state = NativeState(wire, b"cipher", account=account)
    summary = [{"type": "summary_text", "text": "hm"}]
    return {"type": "reasoning", "id": "rs_ours", "summary": summary, NATIVE: state, **more}


# The frame.


def test_the_server_keeps_nothing_and_encrypts_its_reasoning() -> None:
    body, report = write()
    assert report == []
    assert body["store"] is False
    assert body["include"] == ["reasoning.encrypted_content"]
    assert body["stream_options"] == {"include_obfuscation": False}
    assert "previous_response_id" not in body


def test_other_servers_are_not_asked_for_what_they_do_not_know() -> None:
    body, _ = write("llamacpp")
    assert set(body) == {"model", "stream", "store", "input"}


def test_settings_are_passed_and_what_a_server_lacks_is_reported() -> None:
    fields: Json = {
        "instructions": "Be brief.",
        "max_output_tokens": 9,
        "temperature": 0.5,
        "top_p": 0.9,
        "reasoning_effort": "low",
        "reasoning_summary": "auto",
        "verbosity": "low",
        "service_tier": "flex",
        "top_logprobs": 2,
        "logprobs": True,
        "hints": {"prompt_cache_key": "k", "max_tool_calls": 3},
    }
    body, report = write(**fields)
    assert report == []
    assert body["reasoning"] == {"effort": "low", "summary": "auto"}
    assert body["text"] == {"verbosity": "low"}
    assert (body["prompt_cache_key"], body["max_tool_calls"]) == ("k", 3)
    assert "message.output_text.logprobs" in body["include"]
    _, report = write("ollama", **fields)
    assert [note.partition(":")[0] for note in report] == [
        "text.verbosity",
        "top_logprobs",
        "service_tier",
        "max_tool_calls",
    ]


def test_penalties_are_reported_only_if_they_would_change_something() -> None:
    assert write(presence_penalty=0.0)[1] == []
    assert write(presence_penalty=0.5)[1] == ["presence_penalty: this server has no such setting"]
    assert write("vllm", presence_penalty=0.5)[0]["presence_penalty"] == 0.5


def test_fields_beyond_the_api_go_to_servers_that_know_them() -> None:
    body, report = write("vllm", extra={"seed": 1, "n": 1, "weather": 2})
    assert body["seed"] == 1
    assert [note.partition(":")[0] for note in report] == ["weather"]


def test_a_schema_is_told_where_it_is_not_taken() -> None:
    form = {"type": "json_schema", "name": "x", "schema": {"type": "object"}}
    assert write(format=form)[0]["text"] == {"format": form}
    body, _ = write("llamacpp", format=form)
    assert '{"type":"object"}' in body["instructions"]
    assert "format" not in capabilities_of(PROFILES["llamacpp"]).enforces


# Items.


def test_ids_and_labels_are_left_out() -> None:
    message: Item = {
        "type": "message",
        "id": "msg_ours",
        "role": "assistant",
        "status": "completed",
    }
    message["content"] = [{"type": "output_text", "text": "Hi", "annotations": [], "logprobs": []}]
    first, call, output = inputs([message, CALL, OUTPUT])
    assert "id" not in first
    assert "status" not in first
    assert first["content"] == [{"type": "output_text", "text": "Hi", "annotations": []}]
    assert call == {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"}
    assert output == OUTPUT


def test_phases_go_back() -> None:
    message = {"role": "assistant", "content": "Hm.", "phase": "commentary"}
    assert inputs([message])[0]["phase"] == "commentary"


def test_reasoning_of_this_account_goes_back_as_its_cipher() -> None:
    (item,) = inputs([thought()])
    assert item == {
        "type": "reasoning",
        "summary": [{"type": "summary_text", "text": "hm"}],
        "encrypted_content": "cipher",
    }


@pytest.mark.parametrize("foreign", [{"account": "other"}, {"wire": "messages"}])
def test_reasoning_of_another_account_is_left_out_and_reported(foreign: Json) -> None:
    body, report = write(items=[thought(**foreign), USER])
    assert len(body["input"]) == 1
    assert len(report) == 1
    assert "another provider or account" in report[0]


def test_reasoning_without_a_cipher_is_reported() -> None:
    item = {
        "type": "reasoning",
        "summary": [],
        "content": [{"type": "reasoning_text", "text": "x"}],
    }
    assert write(items=[item, USER])[1] == [
        "input[0] (reasoning): this server does not take it back"
    ]


def test_servers_without_ciphers_get_the_text() -> None:
    (item, _) = inputs([thought(), USER], "llamacpp")
    assert item["content"] == [{"type": "reasoning_text", "text": "hm"}]
    assert "encrypted_content" not in item


def test_a_cipher_that_came_late_stands_before_its_message() -> None:
    late = {**thought(), NATIVE: NativeState("responses", b"cipher", "previous", "team")}
    message = {"role": "assistant", "content": "Hi"}
    assert [item["type"] for item in inputs([USER, message, late])] == [
        "message",
        "reasoning",
        "message",
    ]


def test_call_ids_that_are_too_long_are_shortened_alike() -> None:
    call_id = "x" * 65
    call, output = inputs([{**CALL, "call_id": call_id}, {**OUTPUT, "call_id": call_id}])
    assert call["call_id"] == output["call_id"]
    assert len(call["call_id"]) <= 64


def test_a_call_without_an_output_gets_one() -> None:
    body, report = write(items=[CALL, USER])
    assert [item["type"] for item in body["input"]] == [
        "function_call",
        "function_call_output",
        "message",
    ]
    assert report == ["input[0] (function_call): its output is missing"]


def test_an_output_without_a_call_is_a_text() -> None:
    body, report = write(items=[OUTPUT])
    assert body["input"][0]["role"] == "user"
    assert report == ["input[0] (function_call_output): its call is missing; sent as text"]


def test_calls_of_kinds_that_a_server_knows_stay() -> None:
    call = {"type": "custom_tool_call", "call_id": "c", "name": "patch", "input": "x"}
    output = {"type": "custom_tool_call_output", "call_id": "c", "output": "done"}
    assert inputs([call, output], tools=[CUSTOM]) == [call, output]
    lowered = inputs([call, output], "llamacpp", tools=[CUSTOM])
    assert [item["type"] for item in lowered] == ["function_call", "function_call_output"]
    assert lowered[0]["arguments"] == '{"input":"x"}'


def test_calls_in_a_namespace_keep_it_or_get_a_name() -> None:
    call = {**CALL, "namespace": "files"}
    assert inputs([call, OUTPUT], tools=[SPACE])[0]["namespace"] == "files"
    lowered = inputs([call, OUTPUT], "xai", tools=[SPACE])[0]
    assert lowered["name"] == "files__look"
    assert "namespace" not in lowered


SEARCH: Final[Item] = {"type": "web_search_call", "id": "ws_1", "status": "completed"}


def test_what_a_server_ran_goes_back_to_one_that_runs_it() -> None:
    search = {**SEARCH, "action": {"type": "search", "query": "x"}}
    assert inputs([search]) == [search]
    lowered = inputs([search], "llamacpp")
    assert [item["type"] for item in lowered] == ["function_call", "function_call_output"]


def test_items_that_nobody_knows_are_reported() -> None:
    body, report = write(items=[{"type": "vendor:thing"}, USER])
    assert len(body["input"]) == 1
    assert report == ["input[0] (vendor:thing): this server does not take it"]


def test_parts_in_the_words_of_chat_are_translated() -> None:
    content = [
        {"type": "text", "text": "see"},
        {"type": "image_url", "image_url": {"url": "http://x/y.png", "detail": "low"}},
    ]
    assert inputs([{"role": "user", "content": content}])[0]["content"] == [
        {"type": "input_text", "text": "see"},
        {"type": "input_image", "image_url": "http://x/y.png", "detail": "low"},
    ]


def test_parts_that_a_server_does_not_take_are_reported() -> None:
    content = [{"type": "input_file", "filename": "x", "file_data": "data:,x"}]
    assert inputs([{"role": "user", "content": content}])[0]["content"] == content
    body, report = write("llamacpp", items=[{"role": "user", "content": content}])
    assert body["input"][0]["content"] == []
    assert report == ["input[0].content[0] (input_file): this server does not take it"]


def test_marks_for_the_cache_are_written_where_they_are_known() -> None:
    part = {"type": "input_text", "text": "x", "cache_control": {"type": "ephemeral"}}
    items: list[Item] = [{"role": "user", "content": [part]} for _ in range(6)]
    marked = [item["content"][0].get("prompt_cache_breakpoint") for item in inputs(items)]
    assert marked == [{"mode": "explicit"}] * 4 + [None] * 2
    assert inputs(items, "xai")[0]["content"] == [{"type": "input_text", "text": "x"}]


# Tools.


def test_tools_that_a_server_knows_are_the_callers_own() -> None:
    tools = [LOOK, CUSTOM, SPACE, {"type": "web_search"}, {"type": "mcp", "server_label": "s"}]
    body, report = write(tools=tools)
    assert report == []
    assert [tool["type"] for tool in body["tools"]] == [
        "function",
        "custom",
        "namespace",
        "web_search",
        "mcp",
    ]
    assert body["tools"][2] == SPACE


def test_tools_that_a_server_does_not_know_are_functions() -> None:
    body, _ = write("llamacpp", tools=[LOOK, CUSTOM, SPACE, {"type": "shell"}])
    assert {tool["type"] for tool in body["tools"]} == {"function"}
    assert [tool["name"] for tool in body["tools"]] == ["look", "patch", "files__look", "shell"]
    assert all("strict" in tool for tool in body["tools"][1:])


@pytest.mark.parametrize(
    ("policy", "choice"),
    [
        (ToolPolicy(), None),
        (ToolPolicy("none"), "none"),
        (ToolPolicy("required"), "required"),
        (ToolPolicy("required", frozenset({"look"})), {"type": "function", "name": "look"}),
        (ToolPolicy("required", frozenset({"patch"})), {"type": "custom", "name": "patch"}),
        (ToolPolicy("required", frozenset({"web_search"})), {"type": "web_search"}),
        (
            ToolPolicy("auto", frozenset({"look", "web_search"})),
            {
                "type": "allowed_tools",
                "mode": "auto",
                "tools": [{"type": "function", "name": "look"}, {"type": "web_search"}],
            },
        ),
    ],
)
def test_tool_choice_names_tools_as_the_server_knows_them(policy: ToolPolicy, choice: Any) -> None:
    tools = [LOOK, CUSTOM, {"type": "web_search"}]
    assert write(tools=tools, policy=policy)[0].get("tool_choice") == choice


def test_parallel_calls_are_passed_or_reported() -> None:
    assert write(tools=[LOOK], parallel_tool_calls=False)[0]["parallel_tool_calls"] is False
    _, report = write("ollama", tools=[LOOK], parallel_tool_calls=False)
    assert report == ["parallel_tool_calls: this server may still call several at once"]


def test_what_is_to_be_seen_of_hosted_tools_is_asked_for() -> None:
    request = read_request({"model": "m", "input": "x", "include": ["file_search_call.results"]})
    capabilities = capabilities_of(PROFILES["openai"])
    assessment = assess(request, request.items, capabilities, can_seal=True)
    assert assessment.degraded == []
    plan = make_plan(request, assessment, request.items, "m")
    body, _ = write_request(plan, PROFILES["openai"], capabilities.tool_kinds, "team")
    assert body["include"] == ["file_search_call.results", "reasoning.encrypted_content"]


# For any conversation.

TEXTS = st.text(max_size=8)
ITEMS = st.one_of(
    TEXTS.map(lambda text: {"type": "message", "role": "user", "content": text}),
    TEXTS.map(
        lambda text: {
            "type": "message",
            "role": "assistant",
            "id": f"msg_{len(text)}",
            "content": [{"type": "output_text", "text": text, "annotations": [], "logprobs": []}],
        }
    ),
    TEXTS.map(lambda text: thought(summary=[{"type": "summary_text", "text": text}])),
    st.just({**SEARCH, "action": {"type": "search", "query": "x"}}),
    st.just(thought(account="other")),
)
TURNS = st.lists(
    st.one_of(
        ITEMS.map(lambda item: [item]), st.integers(0, 99).map(lambda number: called(number))
    ),
    max_size=8,
)


def called(number: int) -> list[Item]:
    return [{**CALL, "call_id": f"c{number}"}, {**OUTPUT, "call_id": f"c{number}"}]


@pytest.mark.parametrize("profile", ["openai", "llamacpp", "xai"])
@given(before=TURNS, after=TURNS)
def test_the_bytes_of_a_turn_are_the_beginning_of_the_next(
    profile: str, before: list[list[Item]], after: list[list[Item]]
) -> None:
    first = [USER, *(item for turn in before for item in turn)]
    second = [*first, *(item for turn in after for item in turn)]
    chosen = PROFILES[profile]
    short, long = (
        encode_request(plan_with([LOOK], items=items), chosen, chosen.hosted, "team")[0]
        for items in (first, second)
    )
    assert long.startswith(short.removesuffix(b"]}"))


@given(turns=TURNS)
def test_bodies_are_what_the_vendors_own_types_describe(turns: list[list[Item]]) -> None:
    items = [USER, *(item for turn in turns for item in turn)]
    body, _ = write(tools=[LOOK, CUSTOM, {"type": "web_search"}], items=items)
    validate(body)


ASKS: Final[list[Item]] = [
    {"type": "mcp_approval_request", "id": "x1", "server_label": "s", "name": "t"},
    {"type": "anthropic:server_tool_use", "id": "x1", "name": "web_search", "input": {}},
    {"type": "computer_call", "call_id": "x1", "action": {"type": "screenshot"}},
    {"type": "program", "call_id": "x1", "code": "1"},
]
TELLS: Final[list[Item]] = [
    {"type": "mcp_approval_response", "approval_request_id": "x1", "approve": True},
    {"type": "anthropic:web_search_tool_result", "tool_use_id": "x1", "content": [{"url": "u"}]},
    {"type": "computer_call_output", "call_id": "x1", "output": {"image_url": "data:,"}},
    {"type": "program_output", "call_id": "x1", "result": "2"},
]


@pytest.mark.parametrize(("asks", "tells"), list(zip(ASKS, TELLS, strict=True)))
def test_tools_of_other_servers_are_calls_with_their_outputs(asks: Item, tells: Item) -> None:
    both = inputs([USER, asks, tells], "vllm")
    assert [item["type"] for item in both[1:]] == ["function_call", "function_call_output"]
    assert both[1]["call_id"] == both[2]["call_id"]
    assert both[2].keys() == {"type", "call_id", "output"}
    alone = inputs([USER, asks], "vllm")
    assert [item["type"] for item in alone[1:]] == ["function_call", "function_call_output"]
    [_, orphan] = inputs([USER, tells], "vllm")
    assert orphan["role"] == "user"


def test_what_only_another_provider_can_read_is_reported() -> None:
    _, degraded = write("vllm", items=[USER, ASKS[1], TELLS[1]])
    assert "input[2].content: sent in words" in degraded


def test_a_long_call_id_and_the_output_that_is_missing_have_the_same_short_one() -> None:
    [_, call, output] = inputs([USER, CALL | {"call_id": "c" * 100}])
    assert call["call_id"] == output["call_id"]
    assert len(call["call_id"]) <= 64


VENDOR: Final = TypeAdapter(response_create_params.ResponseCreateParamsStreaming)


def validate(body: Json) -> None:
    """Check a body against the types of the vendor's SDK.

    They want an id of what the model wrote, which the API does not: Codex leaves it out too.
    """
    labels = {"id": "msg_1", "status": "completed"}
    items = [
        {**labels, **item} if "assistant" in item.values() or "reasoning" in item.values() else item
        for item in body["input"]
    ]
    VENDOR.validate_python(body | {"input": items})


def test_the_vendors_types_refuse_what_is_wrong() -> None:
    body, _ = write(items=[{"role": "user", "content": [{"type": "input_text", "text": "x"}]}])
    validate(body)
    body["input"][0]["content"][0]["type"] = "text"
    with pytest.raises(ValidationError):
        validate(body)


@pytest.mark.parametrize("is_large", [False, True])
def test_a_large_plan_is_the_same_request(is_large: bool) -> None:
    plan = plan_with([LOOK], items=[USER, *called(1)], is_large=is_large)
    data, _ = encode_request(plan, PROFILES["openai"], frozenset(), "team")
    body, _ = write_request(plan, PROFILES["openai"], frozenset(), "team")
    assert json.loads(data)["input"] == body["input"]
