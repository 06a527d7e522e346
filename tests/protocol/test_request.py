"""Reading a request: what real clients send is taken, what is wrong is named."""

from __future__ import annotations

from typing import Any

import pytest

from antiphon.protocol.errors import InvalidRequest
from antiphon.protocol.request import read_request
from antiphon.protocol.tool_list import ToolList
from antiphon.protocol.tools import Meant, ToolChoice, read_choice


def test_explicit_nulls_mean_nothing_was_said() -> None:
    names = "model tools tool_choice metadata text reasoning temperature top_p store stream include"
    names += " previous_response_id instructions max_output_tokens truncation service_tier"
    body: dict[str, Any] = dict.fromkeys(names.split())
    request = read_request(body | {"input": "hi"})
    assert request.store is None
    assert request.tools is None


@pytest.mark.requirement("RFC016-types-2")
@pytest.mark.parametrize(
    "body",
    [
        {"input": ""},
        {"input": "x", "include": []},
        {"input": "x", "reasoning": {}},
        {"input": "x", "max_output_tokens": 1},
        {"input": "x", "instructions": ""},
        {"input": [{"role": "user", "content": "x"}]},
        {"input": [{"type": "message", "role": "user", "content": [], "id": "msg_1"}]},
        {"input": [{"type": "reasoning", "summary": [], "content": None}]},
        {"input": [{"type": "reasoning", "id": "rs", "summary": [], "encrypted_content": "z"}]},
        {"input": [{"type": "message", "role": "assistant", "content": "x", "phase": None}]},
        {"input": [{"id": "msg_1"}]},
        {"input": [{"type": "acme:thing", "whatever": 1}]},
        {"input": "x", "tools": [{"type": "function", "name": "f", "description": None}]},
        {"input": "x", "tools": [{"type": "web_search", "filters": None}]},
        {"input": "x", "text": {"format": {"type": "json_object"}}},
        {"input": "x", "tools": [{"type": "function", "name": "größe.x y"}]},
        {"input": "x", "tools": [{"type": "function", "name": "n" * 256}]},
        {"input": "x", "tools": [{"type": "custom", "name": "c", "format": {"type": "text"}}]},
        {"input": "x", "tools": [{"type": "custom", "name": "c", "format": None}]},
        {"input": "x", "tools": [{"type": "namespace", "name": "n", "tools": None}]},
        {
            "input": "x",
            "tools": [{"type": "acme", "format": "png", "parameters": "any", "name": 3}],
        },
        {"input": [{"type": "additional_tools", "role": "developer", "tools": [{"type": "new"}]}]},
        {"input": [{"type": "tool_search_call", "call_id": None, "arguments": {}}]},
    ],
)
def test_what_real_clients_send_is_taken(body: dict[str, Any]) -> None:
    read_request(body)


def test_unknown_fields_are_kept_not_refused() -> None:
    request = read_request({"input": "x", "client_metadata": {"a": 1}, "top_k": 3})
    assert request.extra == {"client_metadata": {"a": 1}, "top_k": 3}


def test_unknown_fields_of_inner_objects_are_kept_under_their_path() -> None:
    request = read_request({"input": "x", "reasoning": {"effort": "low", "mode": "deep"}})
    assert request.extra == {"reasoning.mode": "deep"}


def test_our_own_name_for_unknown_fields_is_one_of_them() -> None:
    request = read_request({"input": "x", "$extra": 1, "text": {"format": None, "tone": "dry"}})
    assert request.extra == {"$extra": 1, "text.tone": "dry"}


@pytest.mark.requirement("003-comparison-1", "003-input-1")
def test_a_string_is_a_user_message() -> None:
    assert read_request({"input": "hi"}).items == [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]}
    ]


@pytest.mark.requirement("003-flow-1")
@pytest.mark.parametrize(
    ("body", "param"),
    [
        ([], None),
        ({"input": 3}, "input"),
        ({"input": [3]}, "input[0]"),
        ({"input": [{"type": 3}]}, "input[0].type"),
        ({"input": [{"type": "new", "id": [1]}]}, "input[0].id"),
        ({"input": [{"type": "message", "role": "user"}]}, "input[0].content"),
        ({"input": [{"role": "king", "content": "x"}]}, "input[0].role"),
        ({"input": [{"role": "user", "content": [{"text": "x"}]}]}, "input[0].content[0].type"),
        (
            {"input": [{"role": "user", "content": [{"type": "input_text"}]}]},
            "input[0].content[0].text",
        ),
        (
            {"input": [{"type": "function_call", "name": "f", "arguments": "{}"}]},
            "input[0].call_id",
        ),
        (
            {"input": [{"type": "function_call", "call_id": "c", "name": "f", "arguments": {}}]},
            "input[0].arguments",
        ),
        ({"input": "x", "temperature": 3}, "temperature"),
        ({"input": "x", "temperature": "warm"}, "temperature"),
        ({"input": "x", "truncation": "maybe"}, "truncation"),
        ({"input": "x", "reasoning": {"effort": "herculean"}}, "reasoning.effort"),
        ({"input": "x", "metadata": {"k": 1}}, "metadata"),
        ({"input": "x", "metadata": {"k": "v" * 513}}, "metadata"),
        ({"input": "x", "metadata": {str(n): "v" for n in range(17)}}, "metadata"),
        ({"input": "x", "tools": [{}]}, "tools[0].type"),
        ({"input": "x", "tools": [{"type": "function"}]}, "tools[0].name"),
        ({"input": "x", "tools": [{"type": "function", "name": "a\n"}]}, "tools[0].name"),
        (
            {"input": "x", "tools": [{"type": "function", "name": "f", "parameters": 1}]},
            "tools[0].parameters",
        ),
        ({"input": "x", "tools": [{"type": "web_search"}] * 129}, "tools"),
        ({"input": "x", "tools": [{"type": "custom"}]}, "tools[0].name"),
        ({"input": "x", "tools": [{"type": "function", "name": "n" * 257}]}, "tools[0].name"),
        (
            {"input": "x", "tools": [{"type": "custom", "name": "c", "format": "lark"}]},
            "tools[0].format",
        ),
        (
            {"input": "x", "tools": [{"type": "custom", "name": "c", "format": {}}]},
            "tools[0].format.type",
        ),
        (
            {
                "input": "x",
                "tools": [
                    {"type": "custom", "name": "c", "format": {"type": "grammar", "syntax": "b"}}
                ],
            },
            "tools[0].format.syntax",
        ),
        (
            {
                "input": "x",
                "tools": [
                    {"type": "custom", "name": "c", "format": {"type": "grammar", "syntax": "lark"}}
                ],
            },
            "tools[0].format.definition",
        ),
        ({"input": "x", "tools": [{"type": "namespace"}]}, "tools[0].name"),
        (
            {"input": "x", "tools": [{"type": "namespace", "name": "n", "tools": 3}]},
            "tools[0].tools",
        ),
        (
            {"input": "x", "tools": [{"type": "namespace", "name": "n", "tools": [3]}]},
            "tools[0].tools[0]",
        ),
        (
            {
                "input": "x",
                "tools": [
                    {
                        "type": "namespace",
                        "name": "n",
                        "tools": [{"type": "namespace", "name": "m"}],
                    }
                ],
            },
            "tools[0].tools[0]",
        ),
        (
            {
                "input": "x",
                "tools": [{"type": "namespace", "name": "n", "tools": [{"type": "function"}]}],
            },
            "tools[0].tools[0].name",
        ),
        (
            {
                "input": "x",
                "tools": [{"type": "namespace", "name": "n", "tools": [{"type": "x"}] * 1025}],
            },
            "tools[0].tools",
        ),
        (
            {"input": "x", "tools": [{"type": "tool_search", "parameters": []}]},
            "tools[0].parameters",
        ),
        ({"input": "x", "tool_choice": {"type": "custom"}}, "tool_choice.name"),
        ({"input": "x", "tool_choice": {}}, "tool_choice.type"),
        ({"input": "x", "tool_choice": {"type": "allowed_tools", "tools": [3]}}, "tool_choice"),
        ({"input": [{"type": "shell_call", "call_id": "c", "action": "ls"}]}, "input[0].action"),
        (
            {"input": [{"type": "custom_tool_call", "call_id": "c", "name": "n"}]},
            "input[0].input",
        ),
        ({"input": [{"type": "additional_tools"}]}, "input[0].tools"),
        ({"input": "x", "tool_choice": "maybe"}, "tool_choice"),
        ({"input": "x", "tool_choice": {"type": "function"}}, "tool_choice.name"),
        (
            {"input": "x", "tool_choice": {"type": "allowed_tools", "tools": []}},
            "tool_choice.tools",
        ),
        ({"input": "x", "text": {"format": {"type": "xml"}}}, "text.format.type"),
        ({"input": "x", "text": {"format": {"type": "json_schema"}}}, "text.format.name"),
        (
            {"input": "x", "text": {"format": {"type": "json_schema", "name": "n"}}},
            "text.format.schema",
        ),
        ({"input": "x", "stream": "yes"}, "stream"),
        ({"input": "x", "max_output_tokens": 0}, "max_output_tokens"),
        ({"input": "x", "max_output_tokens": 1.5}, "max_output_tokens"),
        ({"input": "x", "top_logprobs": 21}, "top_logprobs"),
    ],
)
def test_what_is_wrong_is_named(body: object, param: str | None) -> None:
    with pytest.raises(InvalidRequest) as caught:
        read_request(body)
    assert caught.value.param == param
    assert caught.value.code


def test_a_schema_that_is_too_heavy_is_named() -> None:
    schema = {"description": "x" * 70_000}
    tool = {"type": "function", "name": "f", "parameters": schema}
    form = {"type": "json_schema", "name": "n", "schema": schema}
    for body, param in (
        ({"tools": [tool]}, "tools[0].parameters"),
        (
            {"tools": [{"type": "namespace", "name": "n", "tools": [tool]}]},
            "tools[0].tools[0].parameters",
        ),
        ({"tools": [{"type": "tool_search", "parameters": schema}]}, "tools[0].parameters"),
        ({"text": {"format": form}}, "text.format.schema"),
    ):
        with pytest.raises(InvalidRequest) as caught:
            read_request({"input": "x"} | body)
        assert caught.value.param == param


@pytest.mark.requirement(
    "003-tool-choice-1", "003-tool-choice-2", "003-tool-choice-3", "003-tool-choice-4"
)
@pytest.mark.parametrize(
    ("choice", "plain"),
    [
        (None, ToolChoice()),
        ("none", ToolChoice("none")),
        ("required", ToolChoice("required")),
        ({"type": "function", "name": "f"}, ToolChoice("required", (Meant("function", "f"),))),
        (
            {"type": "custom", "name": "f", "namespace": "n"},
            ToolChoice("required", (Meant("custom", "f", "n"),)),
        ),
        ({"type": "web_search"}, ToolChoice("required", (Meant("web_search"),))),
        (
            {"type": "allowed_tools", "tools": [{"type": "function", "name": "f"}]},
            ToolChoice("auto", (Meant("function", "f"),)),
        ),
        (
            {
                "type": "allowed_tools",
                "mode": "required",
                "tools": [{"type": "function", "name": "f"}, {"type": "function", "name": "g"}],
            },
            ToolChoice("required", (Meant("function", "f"), Meant("function", "g"))),
        ),
    ],
)
def test_every_form_of_tool_choice_is_made_plain(choice: Any, plain: ToolChoice) -> None:
    assert read_choice(choice) == plain


_TRIGGER = {"type": "compaction_trigger"}


def test_the_threshold_is_the_first_that_is_given() -> None:
    entries = [
        {"type": "other", "compact_threshold": 1},
        {"type": "compaction"},
        {"type": "compaction", "compact_threshold": 2000},
    ]
    assert read_request({"context_management": entries}).compact_threshold == 2000
    assert read_request({"context_management": []}).compact_threshold is None
    assert read_request({}).compact_threshold is None


@pytest.mark.parametrize(
    ("entries", "param"),
    [
        ({}, "context_management"),
        ([{}], "context_management[0].type"),
        (
            [{"type": "compaction", "compact_threshold": 0}],
            "context_management[0].compact_threshold",
        ),
        ([{"type": "compaction"}] * 17, "context_management"),
    ],
)
def test_context_management_is_checked(entries: object, param: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        read_request({"input": "x", "context_management": entries})
    assert caught.value.param == param


def test_a_compaction_trigger_must_be_the_last_item() -> None:
    message = {"role": "user", "content": "x"}
    assert read_request({"input": [message, _TRIGGER]}).only_compacts
    assert not read_request({"input": [message]}).only_compacts
    assert not read_request({"input": ""}).only_compacts
    with pytest.raises(InvalidRequest) as caught:
        read_request({"input": [_TRIGGER, message]})
    assert caught.value.param == "input[0]"


def _kept(tools: list[Any]) -> ToolList:
    return ToolList(tools, nodes=1)


def test_a_kept_tool_list_is_checked_once_and_shared() -> None:
    tools = _kept([{"type": "function", "name": "f"}])
    first = read_request({"tools": tools})
    second = read_request({"tools": tools, "input": "x", "unknown": 1})
    assert first.tools is second.tools is tools
    assert second.extra == {"unknown": 1}


@pytest.mark.parametrize(
    "tools", [[{"type": "function"}], [1], [{"type": "function", "name": "f"}] * 129]
)
def test_a_kept_tool_list_that_is_wrong_is_refused_each_time(tools: list[Any]) -> None:
    kept = _kept(tools)
    plain = _refusal({"tools": tools})
    assert _refusal({"tools": kept}) == plain
    assert _refusal({"tools": kept}) == plain


def _refusal(body: dict[str, Any]) -> tuple[str, str | None]:
    with pytest.raises(InvalidRequest) as caught:
        read_request(body)
    return caught.value.message, caught.value.param
