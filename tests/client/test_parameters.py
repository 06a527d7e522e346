"""Parameters: where each keyword goes, what is refused, and that the docs say the same."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from antiphon.client.errors import BadCall, UnsupportedParameter
from antiphon.client.parameters import PARAMETERS, REFUSED, Params, place_parameters

PAGE = Path(__file__).parents[2] / "docs/reference/parameters.md"
NATIVE = [row.name for row in PARAMETERS if row.group == "same"]
VALUES: dict[str, Any] = {"tool_choice": "auto", "stream_options": {"include_obfuscation": False}}
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}


@pytest.mark.requirement("22-B1")
def test_the_documented_table_is_the_table() -> None:
    listed = re.findall(r"^\| `(\w+)` \| (?:`([\w.]+)`|never sent) \|(.*)\|$", _tables(), re.M)
    rows = [(name, field, note.strip()) for name, field, note in listed]
    assert rows == [(row.name, row.field, row.note) for row in PARAMETERS]


@pytest.mark.requirement("22-B1")
def test_the_documented_refusals_are_the_refusals() -> None:
    listed = re.findall(r"^\| `(\w+)` \| (.*) \|$", _section("## Refused"), re.M)
    assert listed == list(REFUSED.items())


def test_no_keyword_is_both_taken_and_refused() -> None:
    names = [row.name for row in PARAMETERS]
    assert len(set(names)) == len(names)
    assert REFUSED.keys().isdisjoint(names)


@pytest.mark.requirement("22-A2", "22-B1")
def test_the_types_name_what_the_table_names() -> None:
    assert list(Params.__annotations__) == [row.name for row in PARAMETERS]


@pytest.mark.requirement("22-B1", "22-B4")
@pytest.mark.parametrize("name", NATIVE)
def test_names_of_the_responses_api_pass_unchanged(name: str) -> None:
    value = VALUES.get(name, {"a": [name]})
    assert place_parameters({name: value}) == {name: value}


@pytest.mark.requirement("22-A2", "22-B1", "22-B4", "REQ-004.3")
@pytest.mark.parametrize(
    ("params", "body"),
    [
        ({"max_tokens": 5}, {"max_output_tokens": 5}),
        ({"max_completion_tokens": 5}, {"max_output_tokens": 5}),
        ({"max_tokens": 5, "max_completion_tokens": 5}, {"max_output_tokens": 5}),
        ({"conversation_id": "conv_1"}, {"conversation": "conv_1"}),
        ({"parent_id": "resp_1"}, {"previous_response_id": "resp_1"}),
        ({"reasoning_effort": "low"}, {"reasoning": {"effort": "low"}}),
        (
            {"reasoning_effort": "low", "reasoning": {"summary": "auto"}},
            {"reasoning": {"summary": "auto", "effort": "low"}},
        ),
        ({"verbosity": "high"}, {"text": {"verbosity": "high"}}),
        (
            {"verbosity": "high", "response_format": {"type": "json_object"}},
            {"text": {"format": {"type": "json_object"}, "verbosity": "high"}},
        ),
        ({"response_format": {"type": "text"}}, {"text": {"format": {"type": "text"}}}),
        (
            {"response_format": {"type": "text"}, "text": {"format": None}},
            {"text": {"format": {"type": "text"}}},
        ),
        (
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "place", "schema": SCHEMA, "strict": True},
                }
            },
            {
                "text": {
                    "format": {
                        "type": "json_schema",
                        "name": "place",
                        "schema": SCHEMA,
                        "strict": True,
                    }
                }
            },
        ),
        (
            {"logprobs": True, "top_logprobs": 3},
            {"include": ["message.output_text.logprobs"], "top_logprobs": 3},
        ),
        (
            {"logprobs": True, "include": ["reasoning.encrypted_content"]},
            {"include": ["reasoning.encrypted_content", "message.output_text.logprobs"]},
        ),
        (
            {"logprobs": True, "include": ["message.output_text.logprobs"]},
            {"include": ["message.output_text.logprobs"]},
        ),
        ({"logprobs": False}, {}),
        ({"session": "s", "stateful": True}, {}),
        ({"temperature": None, "stop": None, "max_tokens": None, "made_up": None}, {}),
        ({"extra_body": {"top_k": 5}, "top_p": 0.5}, {"top_k": 5, "top_p": 0.5}),
    ],
)
def test_a_keyword_goes_where_the_table_says(params: dict[str, Any], body: dict[str, Any]) -> None:
    assert place_parameters(params) == body


@pytest.mark.parametrize("parent", ["previous_response_id", "parent_id"])
@pytest.mark.parametrize("conversation", ["conversation", "conversation_id"])
def test_a_thread_without_a_name_is_not_given(parent: str, conversation: str) -> None:
    assert place_parameters({parent: "", conversation: "conv_1"}) == {"conversation": "conv_1"}
    for empty in ("", {}, {"id": ""}, {"id": None}):
        body = place_parameters({parent: "resp_1", conversation: empty})
        assert body == {"previous_response_id": "resp_1"}
    assert place_parameters({"parent_id": "", "previous_response_id": "a"}) == {
        "previous_response_id": "a"
    }


@pytest.mark.requirement("22-B4", "003-tool-choice")
@pytest.mark.parametrize(
    ("choice", "flat"),
    [
        ("required", "required"),
        ({"type": "function", "name": "find"}, {"type": "function", "name": "find"}),
        ({"type": "function", "function": {"name": "find"}}, {"type": "function", "name": "find"}),
        ({"type": "custom", "custom": {"name": "go"}}, {"type": "custom", "name": "go"}),
        ({"type": "web_search"}, {"type": "web_search"}),
        ({"name": "no type"}, {"name": "no type"}),
        (
            {
                "type": "allowed_tools",
                "allowed_tools": {
                    "mode": "auto",
                    "tools": [{"type": "function", "function": {"name": "find"}}],
                },
            },
            {
                "type": "allowed_tools",
                "mode": "auto",
                "tools": [{"type": "function", "name": "find"}],
            },
        ),
        (
            {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "web_search"}]},
            {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "web_search"}]},
        ),
    ],
)
def test_a_tool_choice_in_chat_shape_is_made_flat(choice: Any, flat: Any) -> None:
    assert place_parameters({"tool_choice": choice}) == {"tool_choice": flat}


@pytest.mark.requirement("22-B4", "REQ-004.3")
@pytest.mark.parametrize("name", sorted(REFUSED.keys() - {"stream"}))
def test_what_the_responses_api_lacks_is_refused_with_what_to_do(name: str) -> None:
    with pytest.raises(UnsupportedParameter) as refusal:
        place_parameters({name: 1})
    assert refusal.value.name == refusal.value.param == name
    assert REFUSED[name] in refusal.value.message


CHAT_ONLY: dict[str, Any] = {"stop": ["END"], "seed": 7, "logit_bias": {"50256": -100}}


@pytest.mark.parametrize("name", CHAT_ONLY)
def test_a_keyword_of_chat_servers_goes_to_chat_servers_only(name: str) -> None:
    given = {name: CHAT_ONLY[name]}
    assert place_parameters(given, "chat") == given
    with pytest.raises(UnsupportedParameter, match='A chat server takes it: wire_api="chat"'):
        place_parameters(given)


def test_every_keyword_of_chat_servers_is_tested_here() -> None:
    assert [row.name for row in PARAMETERS if row.group == "chat"] == list(CHAT_ONLY)


@pytest.mark.parametrize("wire", ["responses", "chat"])
def test_one_answer_may_be_asked_for_and_more_are_refused(wire: Any) -> None:
    assert place_parameters({"n": 1}, wire) == {}
    with pytest.raises(UnsupportedParameter, match="send it as often as you want answers"):
        place_parameters({"n": 2}, wire)


def test_extra_body_does_not_overwrite_a_keyword_of_chat_servers() -> None:
    with pytest.raises(BadCall, match="give seed as a keyword"):
        place_parameters({"seed": 1, "extra_body": {"seed": 2}}, "chat")


@pytest.mark.requirement("22-A2")
def test_streaming_is_chosen_by_the_method() -> None:
    with pytest.raises(BadCall, match="stream\\(\\) streams") as refusal:
        place_parameters({"stream": True})
    assert not isinstance(refusal.value, UnsupportedParameter)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("temprature", "did you mean temperature"),
        ("conversationId", "did you mean conversation_id"),
        ("zzz", "extra_body"),
    ],
)
def test_an_unknown_keyword_is_refused_with_a_guess(name: str, hint: str) -> None:
    with pytest.raises(UnsupportedParameter, match=hint):
        place_parameters({name: 1})


@pytest.mark.parametrize(
    ("params", "names"),
    [
        ({"max_tokens": 5, "max_output_tokens": 6}, ["max_output_tokens", "max_tokens"]),
        ({"max_tokens": 5, "max_completion_tokens": 6}, ["max_tokens", "max_completion_tokens"]),
        ({"conversation": "a", "conversation_id": "b"}, ["conversation", "conversation_id"]),
        ({"parent_id": "a", "previous_response_id": "b"}, ["previous_response_id", "parent_id"]),
        ({"text": {"verbosity": "low"}, "verbosity": "high"}, ["text", "verbosity"]),
        (
            {"text": {"format": {"type": "text"}}, "response_format": {"type": "json_object"}},
            ["text", "response_format"],
        ),
    ],
)
def test_two_names_for_one_field_must_agree(params: dict[str, Any], names: list[str]) -> None:
    with pytest.raises(BadCall, match=f"^{names[0]} and {names[1]} both set") as refusal:
        place_parameters(params)
    assert refusal.value.param == names[1]


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"response_format": "json"}, "response_format must be a dict"),
        ({"response_format": {}}, "response_format has no type"),
        (
            {"response_format": {"type": "json_schema", "json_schema": "x"}},
            "response_format.json_schema must be a dict",
        ),
        ({"logprobs": 5}, "how many is top_logprobs"),
        ({"logprobs": True, "include": "all"}, "include must be a list"),
        ({"verbosity": "low", "text": "x"}, "text must be a dict"),
        ({"stream_options": {"include_usage": True}}, "usage always comes"),
        ({"extra_body": [1]}, "extra_body must be a dict"),
        ({"extra_body": {"tools": []}}, "give tools as a keyword"),
        ({"extra_body": {"stream": True}}, "give stream as a keyword"),
    ],
)
def test_what_cannot_be_rewritten_is_refused(params: dict[str, Any], message: str) -> None:
    with pytest.raises(BadCall, match=message):
        place_parameters(params)


def test_nothing_the_caller_holds_is_changed() -> None:
    params: dict[str, Any] = {
        "text": {"format": {"type": "text"}},
        "verbosity": "low",
        "reasoning": {"summary": "auto"},
        "reasoning_effort": "high",
        "include": ["a"],
        "logprobs": True,
        "response_format": {"type": "text"},
        "extra_body": {"x": 1},
    }
    before = repr(params)
    place_parameters(params)
    assert repr(params) == before


def _tables() -> str:
    return PAGE.read_text().partition("## Refused")[0]


def _section(title: str) -> str:
    return PAGE.read_text().partition(title)[2].partition("\n## ")[0]
