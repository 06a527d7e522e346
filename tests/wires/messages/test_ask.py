"""A Messages body as a request: settings, tools, and what is unknown."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from antiphon.protocol.body import decode_body
from antiphon.protocol.errors import InvalidRequest
from antiphon.protocol.request import CreateResponse
from antiphon.wires.messages.ask import Thinking, read_ask, read_thinking

HELLO = {"role": "user", "content": "hello"}
TOOL = {"name": "look", "description": "Looks.", "input_schema": {"type": "object"}}
FOUND = {"type": "search_result", "title": "T", "source": "S", "content": 5}
CITING = {"type": "text", "text": "so", "citations": 5}


def asked(**fields: Any) -> CreateResponse:
    return read_ask({"model": "m", "max_tokens": 99, "messages": [HELLO], **fields})


def test_a_plain_request_is_not_stored() -> None:
    request = asked(stream=True, temperature=0.5, top_p=0.9)

    content = [{"type": "input_text", "text": "hello"}]
    assert request.items == [{"type": "message", "role": "user", "content": content}]
    assert (request.model, request.max_output_tokens, request.stream) == ("m", 99, True)
    assert (request.temperature, request.top_p, request.store) == (0.5, 0.9, False)
    assert (request.instructions, request.include, request.reasoning) == (None, None, None)
    assert request.extra == {}


@pytest.mark.parametrize(
    ("thinking", "config", "effort"),
    [
        (None, None, None),
        ({"type": "disabled"}, {"effort": "high"}, "none"),
        ({"type": "adaptive"}, None, None),
        ({"type": "adaptive"}, {"effort": "high"}, "high"),
        ({"type": "adaptive"}, {"effort": "max"}, "max"),
        (None, {"effort": "low"}, "low"),
        ({"type": "enabled", "budget_tokens": 1024}, None, "minimal"),
        ({"type": "enabled", "budget_tokens": 2048}, None, "low"),
        ({"type": "enabled", "budget_tokens": 10_000}, None, "medium"),
        ({"type": "enabled", "budget_tokens": 31_999}, None, "high"),
        ({"type": "enabled", "budget_tokens": 64_000}, {"effort": "low"}, "xhigh"),
    ],
)
def test_thinking_and_effort_become_a_level(
    thinking: object, config: object, effort: str | None
) -> None:
    reasoning = asked(thinking=thinking, output_config=config).reasoning
    assert (reasoning.effort if reasoning else None) == effort


@pytest.mark.parametrize(
    ("thinking", "read"),
    [
        (None, Thinking()),
        ({"type": "disabled"}, Thinking()),
        ({"type": "adaptive"}, Thinking(is_shown=True)),
        ({"type": "enabled", "budget_tokens": 2048}, Thinking(is_shown=True)),
        ({"type": "adaptive", "display": "omitted"}, Thinking(is_shown=True, is_omitted=True)),
    ],
)
def test_thinking_is_sealed_for_those_who_asked_for_it(thinking: object, read: Thinking) -> None:
    assert read_thinking({"thinking": thinking}) == read
    include = ["reasoning.encrypted_content"] if read.is_shown else None
    assert asked(thinking=thinking).include == include


def test_a_schema_for_the_output_becomes_a_format() -> None:
    form = {"type": "json_schema", "schema": {"type": "object"}}
    expected = {**form, "name": "output", "strict": True}
    for request in (asked(output_config={"format": form}), asked(output_format=form)):
        assert request.text is not None
        assert request.text.format == expected


def test_zero_tokens_ask_for_no_answer() -> None:
    request = asked(max_tokens=0)
    assert (request.generate, request.max_output_tokens) == (False, None)


def test_tools_become_functions() -> None:
    extra = {"cache_control": {"type": "ephemeral"}, "eager_input_streaming": True, "strict": True}
    request = asked(tools=[{**TOOL, "type": "custom", **extra}])
    assert request.tools == [
        {
            "type": "function",
            "name": "look",
            "parameters": {"type": "object"},
            "description": "Looks.",
            "cache_control": {"type": "ephemeral"},
            "strict": True,
        }
    ]


def test_tools_of_the_server_keep_their_type_for_the_report() -> None:
    search = {"type": "web_search_20250305", "name": "web_search", "max_uses": 3}
    code = {"type": "code_execution_20250825", "name": "code_execution"}
    tools = asked(tools=[search, code]).tools
    assert tools is not None
    assert [tool["type"] for tool in tools] == ["web_search", "code_execution_20250825"]


def test_a_toolbox_sent_again_is_the_same_list() -> None:
    tools = [{**TOOL, "name": f"look_{number}", "description": "x" * 99} for number in range(20)]
    data = msgspec.json.encode({"model": "m", "messages": [HELLO], "tools": tools})

    first, second = (read_ask(decode_body(data)) for _ in range(2))  # type: ignore[arg-type]  # an object

    assert first.tools is second.tools


@pytest.mark.parametrize(
    ("choice", "read", "parallel"),
    [
        ({"type": "auto"}, "auto", None),
        ({"type": "any"}, "required", None),
        ({"type": "none"}, "none", None),
        ({"type": "tool", "name": "look"}, {"type": "function", "name": "look"}, None),
        ({"type": "auto", "disable_parallel_tool_use": True}, "auto", False),
        ({"type": "any", "disable_parallel_tool_use": False}, "required", None),
    ],
)
def test_tool_choice_is_ours(choice: object, read: object, parallel: bool | None) -> None:
    request = asked(tools=[TOOL], tool_choice=choice)
    assert (request.tool_choice, request.parallel_tool_calls) == (read, parallel)


def test_what_has_no_word_of_ours_stays_under_its_own_name() -> None:
    request = asked(
        stop_sequences=["END"],
        top_k=5,
        context_management={"edits": [{"type": "clear_thinking_20251015"}]},
        mcp_servers=[],
        container=None,
        speed="fast",
        service_tier="priority",
        output_config={"effort": "extreme", "task_budget": 9},
    )
    assert request.extra == {
        "stop": ["END"],
        "top_k": 5,
        "context_management": {"edits": [{"type": "clear_thinking_20251015"}]},
        "speed": "fast",
        "service_tier": "priority",
        "output_config.effort": "extreme",
        "output_config.task_budget": 9,
    }
    assert request.context_management is None


@pytest.mark.parametrize(
    ("fields", "extra"),
    [
        ({"metadata": {"user_id": "x" * 513}}, {"metadata.user_id": "x" * 513}),
        ({"metadata": {"user_id": 7, "team": "a"}}, {"metadata.user_id": 7, "metadata.team": "a"}),
        ({"metadata": {"user_id": "u", "team": None}}, {}),
        ({"thinking": {"type": "deep"}}, {"thinking.type": "deep"}),
        (
            {"thinking": {"type": "enabled", "budget_tokens": "all"}},
            {"thinking.budget_tokens": "all"},
        ),
    ],
)
def test_metadata_and_thinking_that_have_no_use_are_kept_to_be_reported(
    fields: dict[str, Any], extra: dict[str, Any]
) -> None:
    assert asked(**fields).extra == extra


@pytest.mark.parametrize("effort", [["low"], {"level": "low"}, 5])
def test_an_effort_of_a_wrong_type_is_kept_to_be_reported(effort: object) -> None:
    request = asked(output_config={"effort": effort})
    assert request.extra == {"output_config.effort": effort}


@pytest.mark.parametrize(("tier", "ours"), [("auto", "auto"), ("standard_only", "default")])
def test_service_tiers_are_renamed(tier: str, ours: str) -> None:
    request = asked(service_tier=tier)
    assert (request.service_tier, request.extra) == (ours, {})


@pytest.mark.parametrize(
    ("user", "key"),
    [
        ('{"device_id":"d","session_id":"5f1c"}', "5f1c"),
        ('{"session_id":7}', None),
        ("{not json", None),
        ("user_1", None),
        ('{"session_id":"' + "x" * 99 + '"}', None),
    ],
)
def test_a_session_in_the_user_id_is_the_key_of_the_cache(user: str, key: str | None) -> None:
    request = asked(metadata={"user_id": user})
    assert request.prompt_cache_key == key
    assert request.metadata == {"user_id": user}


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"messages": None}, "messages"),
        ({"messages": []}, "messages"),
        ({"messages": ["x"]}, "messages[0]"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": 7}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": [{}]}]}, "messages[0].content[0].type"),
        (
            {"messages": [{"role": "user", "content": [{"type": "text"}]}]},
            "messages[0].content[0].text",
        ),
        ({"messages": [{"role": "user", "content": [FOUND]}]}, "messages[0].content[0].content"),
        (
            {"messages": [{"role": "assistant", "content": [CITING]}]},
            "messages[0].content[0].citations",
        ),
        ({"tools": [{"name": "look"}]}, "tools[0].input_schema"),
        ({"tools": {}}, "tools"),
        ({"tool_choice": "auto"}, "tool_choice.type"),
        ({"tool_choice": {"type": "some"}}, "tool_choice.type"),
        ({"thinking": "yes"}, "thinking"),
        ({"output_config": {"format": {"type": "text"}}}, "output_config.format.type"),
        ({"temperature": "hot"}, "temperature"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"max_tokens": False}, "max_tokens"),
    ],
)
def test_a_malformed_body_is_refused_with_its_place(fields: Any, param: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        asked(**fields)
    assert caught.value.param == param
