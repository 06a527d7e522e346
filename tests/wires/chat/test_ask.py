"""A chat request as a request of ours: what each field becomes, and what is refused."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from antiphon.protocol.body import decode_body
from antiphon.protocol.errors import InvalidRequest
from antiphon.protocol.request import CreateResponse
from antiphon.protocol.tool_list import ToolList
from antiphon.wires.chat.ask import read_chat

USER = {"role": "user", "content": "hi"}
LOOK = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}


def read(**body: Any) -> CreateResponse:
    return read_chat({"messages": [USER], **body}).request


def refused(**body: Any) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        read(**body)
    return caught.value


def test_settings_get_the_names_of_the_responses_api() -> None:
    request = read(
        model="m",
        max_completion_tokens=7,
        max_tokens=9,
        reasoning_effort="low",
        verbosity="high",
        logprobs=True,
        top_logprobs=2,
        temperature=0.5,
        prompt_cache_key="k",
        user="u",
    )

    assert (request.model, request.max_output_tokens, request.temperature) == ("m", 7, 0.5)
    assert request.reasoning is not None
    assert request.text is not None
    assert (request.reasoning.effort, request.text.verbosity) == ("low", "high")
    assert request.include == ["message.output_text.logprobs"]
    assert (request.top_logprobs, request.prompt_cache_key, request.user) == (2, "k", "u")
    assert request.extra == {}


def test_max_tokens_is_a_limit_too_and_without_any_there_is_none() -> None:
    assert read(max_tokens=5).max_output_tokens == 5
    assert read().max_output_tokens is None


def test_a_turn_is_stored_only_if_the_caller_or_the_settings_say_so() -> None:
    assert read().store is False
    assert read(store=True).store is True
    body = {"messages": [USER]}
    assert read_chat(body, store=True).request.store is True
    assert read_chat({**body, "store": False}, store=True).request.store is False


def test_reasoning_is_sealed_where_that_is_possible() -> None:
    assert read().include == []
    assert read_chat({"messages": [USER]}, seals=True).request.include == [
        "reasoning.encrypted_content"
    ]


def test_a_schema_stands_beside_its_type() -> None:
    schema = {"type": "object"}
    inner = {"name": "s", "schema": schema, "strict": True}
    request = read(response_format={"type": "json_schema", "json_schema": inner})

    assert request.text is not None
    assert request.text.format == {"type": "json_schema", **inner}
    assert request.extra == {}


def test_fields_that_are_not_known_are_kept_to_be_passed_on_or_reported() -> None:
    request = read(stop=["x"], seed=3, top_k=4, logit_bias={"1": 2}, made_up=True)

    assert request.extra == {
        "stop": ["x"],
        "seed": 3,
        "top_k": 4,
        "logit_bias": {"1": 2},
        "made_up": True,
    }


def test_fields_of_the_responses_api_are_not_obeyed_here() -> None:
    request = read(previous_response_id="resp_1", background=True, instructions="be")

    assert request.previous_response_id is None
    assert request.background is None
    assert request.instructions is None
    assert request.extra == {
        "previous_response_id": "resp_1",
        "background": True,
        "instructions": "be",
    }


def test_the_usage_chunk_is_asked_for_and_other_options_are_kept() -> None:
    options = {"include_usage": True, "include_obfuscation": True, "more": 1}
    ask = read_chat({"messages": [USER], "stream": True, "stream_options": options})

    assert ask.has_usage
    assert ask.request.stream
    assert ask.request.stream_options is not None
    assert ask.request.stream_options.include_obfuscation is True
    assert ask.request.extra == {"stream_options.more": 1}


def test_tools_are_flat_and_not_strict_unless_asked_for() -> None:
    grammar = {"type": "grammar", "grammar": {"syntax": "lark", "definition": "start: /a/"}}
    custom = {"type": "custom", "custom": {"name": "run", "format": grammar}}
    request = read(tools=[LOOK, custom])

    assert request.tools == [
        {"type": "function", "name": "look", "parameters": {"type": "object"}, "strict": False},
        {
            "type": "custom",
            "name": "run",
            "format": {"type": "grammar", "syntax": "lark", "definition": "start: /a/"},
        },
    ]


def test_a_long_list_of_tools_is_flattened_once() -> None:
    tools = [
        {"type": "function", "function": {"name": f"t{n}", "description": "d" * 50}}
        for n in range(24)
    ]
    data = msgspec.json.encode({"messages": [USER], "tools": tools})
    first, second = (read_chat(decode_body(data)).request.tools for _ in range(2))

    assert isinstance(first, ToolList)
    assert first is second
    assert first.is_checked


@pytest.mark.parametrize(
    ("choice", "ours"),
    [
        ("required", "required"),
        (
            {"type": "function", "function": {"name": "look"}},
            {"type": "function", "name": "look"},
        ),
        ({"type": "custom", "custom": {"name": "run"}}, {"type": "custom", "name": "run"}),
        (
            {
                "type": "allowed_tools",
                "allowed_tools": {
                    "mode": "auto",
                    "tools": [{"type": "function", "function": {"name": "look"}}],
                },
            },
            {
                "type": "allowed_tools",
                "mode": "auto",
                "tools": [{"type": "function", "name": "look"}],
            },
        ),
    ],
)
def test_every_form_of_tool_choice_has_one_here(choice: Any, ours: Any) -> None:
    assert read(tools=[LOOK], tool_choice=choice).tool_choice == ours


def test_old_functions_become_tools_and_one_call_at_a_time() -> None:
    body = {"messages": [USER], "functions": [{"name": "look"}], "function_call": {"name": "look"}}
    ask = read_chat(body)

    assert ask.is_old
    assert ask.request.tools == [{"type": "function", "name": "look", "strict": False}]
    assert ask.request.tool_choice == {"type": "function", "name": "look"}
    assert ask.request.parallel_tool_calls is False


def test_search_options_ask_for_the_hosted_tool() -> None:
    place = {"type": "approximate", "approximate": {"city": "Ulm"}}
    request = read(web_search_options={"user_location": place, "search_context_size": "low"})

    assert request.tools == [
        {
            "type": "web_search",
            "search_context_size": "low",
            "user_location": {"type": "approximate", "city": "Ulm"},
        }
    ]


def test_nothing_of_one_request_is_left_in_the_next() -> None:
    body = {"messages": [USER], "max_tokens": 3, "tools": [LOOK]}
    before = msgspec.json.encode(body)
    read_chat(body)

    assert msgspec.json.encode(body) == before
    assert read().max_output_tokens is None
    assert read().tools is None


@pytest.mark.parametrize(
    ("body", "param", "code"),
    [
        ({"messages": None}, "messages", "missing_required_parameter"),
        ({"messages": []}, "messages", "invalid_value"),
        ({"n": 2}, "n", "unsupported_value"),
        ({"modalities": ["text", "audio"]}, "modalities", "unsupported_value"),
        ({"tools": [{"type": "shell"}]}, "tools[0].type", "unsupported_value"),
        ({"tools": [{"type": "function", "function": {}}]}, "tools[0].name", None),
        ({"functions": [{"name": 5}]}, "functions[0].name", None),
        ({"max_tokens": 0}, "max_tokens", "invalid_value"),
        ({"max_completion_tokens": "x"}, "max_completion_tokens", "invalid_type"),
        ({"reasoning_effort": "vast"}, "reasoning_effort", "invalid_value"),
        ({"reasoning": {"effort": "vast"}}, "reasoning.effort", "invalid_value"),
        (
            {"response_format": {"type": "json_schema"}},
            "response_format.json_schema",
            "missing_required_parameter",
        ),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "s"}}},
            "response_format.json_schema.schema",
            "missing_required_parameter",
        ),
        ({"response_format": {"type": "xml"}}, "response_format.type", "invalid_value"),
        ({"response_format": 3}, "response_format", "invalid_type"),
        ({"tool_choice": "any"}, "tool_choice", "invalid_value"),
        ({"functions": [{"name": "f"}], "function_call": "any"}, "function_call", "invalid_value"),
        ({"tools": [{"type": ["function"]}]}, "tools[0].type", None),
        ({"logprobs": 3}, "logprobs", "invalid_type"),
        ({"stream_options": {"include_usage": 1}}, "stream_options.include_usage", "invalid_type"),
        (
            {"stream_options": {"include_obfuscation": 1}},
            "stream_options.include_obfuscation",
            "invalid_type",
        ),
        ({"web_search_options": [1]}, "web_search_options", "invalid_type"),
        ({"stream_options": 1}, "stream_options", "invalid_type"),
    ],
)
def test_a_fault_names_the_field_that_the_caller_wrote(
    body: dict[str, Any], param: str, code: str | None
) -> None:
    error = refused(**body)

    assert error.param == param
    assert code is None or error.code == code
    assert "input" not in error.message
    assert "max_output_tokens" not in error.message


def test_a_body_that_is_no_object_is_refused() -> None:
    with pytest.raises(InvalidRequest):
        read_chat([])
