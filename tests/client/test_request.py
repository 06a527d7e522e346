"""Requests: the body that a call makes, for a matrix of calls."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from types import MappingProxyType
from typing import Any

import msgspec
import pytest

from antiphon.client.errors import AmbiguousInput, BadCall, MissingInput, TooManyTools
from antiphon.client.request import build_request, plain_json, read_items
from antiphon.client.tool_limits import ToolLimits
from antiphon.protocol.request import read_request

HI = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]}
SYSTEM = {"type": "message", "role": "system", "content": [{"type": "input_text", "text": "s"}]}
SCHEMA = {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]}
CHAT: list[dict[str, Any]] = [
    {"role": "system", "content": "s"},
    {"role": "user", "content": "hi"},
    {
        "role": "assistant",
        "content": "let me see",
        "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "find", "arguments": "{}"}}
        ],
    },
    {"role": "tool", "tool_call_id": "c1", "content": "42"},
]
ITEMS = [
    SYSTEM,
    HI,
    {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "let me see"}],
    },
    {"type": "function_call", "call_id": "c1", "name": "find", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "c1", "output": "42"},
]

MATRIX: list[Any] = [
    pytest.param({"model": "m", "input": "hi"}, {"model": "m", "input": "hi"}, id="string"),
    pytest.param({"input": [HI]}, {"input": [HI]}, id="items"),
    pytest.param(
        {"input": [{"role": "user", "content": "hi"}]},
        {"input": [{"type": "message", "role": "user", "content": "hi"}]},
        id="easy message",
    ),
    pytest.param({"prompt": "hi"}, {"input": [HI]}, id="prompt"),
    pytest.param({"messages": CHAT}, {"input": ITEMS}, id="messages"),
    pytest.param({"messages": [CHAT[0], HI]}, {"input": [SYSTEM, HI]}, id="mixed messages"),
    pytest.param({"prompt": {"id": "pmpt_1"}}, {"prompt": {"id": "pmpt_1"}}, id="template"),
    pytest.param(
        {"prompt": {"id": "pmpt_1"}, "input": "hi"},
        {"prompt": {"id": "pmpt_1"}, "input": "hi"},
        id="template with input",
    ),
    pytest.param(
        {"prompt": {"id": "pmpt_1"}, "messages": CHAT[:1]},
        {"prompt": {"id": "pmpt_1"}, "input": [SYSTEM]},
        id="template with messages",
    ),
    pytest.param(
        {
            "model": "m",
            "messages": CHAT,
            "max_tokens": 9,
            "temperature": 0.5,
            "top_p": 0.9,
            "presence_penalty": 0.1,
            "frequency_penalty": 0.2,
            "user": "u",
            "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": {}}},
            "reasoning_effort": "low",
            "verbosity": "low",
            "logprobs": True,
            "top_logprobs": 2,
            "tools": [{"type": "function", "function": {"name": "find", "parameters": SCHEMA}}],
            "tool_choice": {"type": "function", "function": {"name": "find"}},
            "parallel_tool_calls": False,
            "metadata": {"a": "b"},
            "store": False,
        },
        {
            "model": "m",
            "input": ITEMS,
            "max_output_tokens": 9,
            "temperature": 0.5,
            "top_p": 0.9,
            "presence_penalty": 0.1,
            "frequency_penalty": 0.2,
            "user": "u",
            "text": {
                "format": {"type": "json_schema", "name": "a", "schema": {}},
                "verbosity": "low",
            },
            "reasoning": {"effort": "low"},
            "include": ["message.output_text.logprobs"],
            "top_logprobs": 2,
            "tools": [{"type": "function", "name": "find", "parameters": SCHEMA, "strict": False}],
            "tool_choice": {"type": "function", "name": "find"},
            "parallel_tool_calls": False,
            "metadata": {"a": "b"},
            "store": False,
        },
        id="a call from chat completions",
    ),
    pytest.param(
        {
            "model": "m",
            "input": "hi",
            "instructions": "be brief",
            "parent_id": "resp_1",
            "tools": [{"type": "web_search"}],
            "tool_choice": "required",
            "extra_body": {"acme": {"x": 1}},
            "session": "s",
        },
        {
            "model": "m",
            "input": "hi",
            "instructions": "be brief",
            "previous_response_id": "resp_1",
            "tools": [{"type": "web_search"}],
            "tool_choice": "required",
            "acme": {"x": 1},
        },
        id="a native call",
    ),
    pytest.param(
        {"input": "hi", "conversation_id": "conv_1", "messages": None, "stop": None},
        {"input": "hi", "conversation": "conv_1"},
        id="nones",
    ),
]


@pytest.mark.requirement("22-B1", "22-B3", "22-B4", "22-B-AC", "22-A3", "REQ-007.1")
@pytest.mark.parametrize(("params", "body"), MATRIX)
def test_a_call_makes_this_body(params: dict[str, Any], body: dict[str, Any]) -> None:
    assert build_request(params).body == body


@pytest.mark.requirement("22-B1", "REQ-004.3")
@pytest.mark.parametrize(("params", "body"), MATRIX)
def test_a_server_takes_every_body(params: dict[str, Any], body: dict[str, Any]) -> None:
    extra = read_request(build_request(params).body).extra
    assert extra == ({"acme": {"x": 1}} if "acme" in body else {})


@pytest.mark.parametrize(
    ("params", "items"),
    [({"input": "hi"}, [HI]), ({"prompt": "hi"}, [HI]), ({"messages": CHAT}, ITEMS)],
)
def test_the_input_is_also_there_as_items(params: dict[str, Any], items: list[Any]) -> None:
    request = build_request(params)
    assert request.items == items == read_items(params)
    assert request.is_history is ("messages" in params)


@pytest.mark.requirement("22-B3")
@pytest.mark.parametrize(
    ("params", "names"),
    [
        ({"prompt": "a", "messages": CHAT}, ["messages", "prompt"]),
        ({"prompt": "a", "input": "b"}, ["input", "prompt"]),
        ({"input": "a", "messages": CHAT}, ["input", "messages"]),
        ({"input": "", "messages": [], "prompt": ""}, ["input", "messages", "prompt"]),
        ({"input": "a", "messages": [], "prompt": {"id": "p"}}, ["input", "messages"]),
    ],
)
def test_more_than_one_input_is_ambiguous(params: dict[str, Any], names: list[str]) -> None:
    with pytest.raises(AmbiguousInput) as refusal:
        build_request(params)
    assert refusal.value.names == names


@pytest.mark.requirement("22-B3")
@pytest.mark.parametrize(
    "params",
    [
        {},
        {"input": None, "messages": None, "prompt": None},
        {"input": ""},
        {"input": []},
        {"messages": []},
        {"messages": [{"role": "assistant", "content": ""}]},
        {"prompt": ""},
        {"prompt": {}},
        {"previous_response_id": "resp_1"},
    ],
)
def test_a_call_without_input_is_refused(params: dict[str, Any]) -> None:
    with pytest.raises(MissingInput, match="nothing to answer"):
        build_request(params)


@pytest.mark.requirement("REQ-004.3")
@pytest.mark.parametrize("parent", ["parent_id", "previous_response_id"])
@pytest.mark.parametrize("conversation", ["conversation_id", "conversation"])
def test_two_threads_cannot_be_continued_at_once(parent: str, conversation: str) -> None:
    with pytest.raises(BadCall, match="cannot both be continued"):
        build_request({"input": "hi", parent: "resp_1", conversation: "conv_1"})


@pytest.mark.requirement("22-B4", "REQ-006.1")
def test_the_limits_of_tools_are_the_callers() -> None:
    params = {"input": "hi", "tools": [{"type": "web_search"}] * 2}
    with pytest.raises(TooManyTools):
        build_request(params, ToolLimits(max_count=1))
    assert len(build_request(params).body["tools"]) == 2


@pytest.mark.requirement("22-C4")
def test_sessions_are_stateful_unless_told_otherwise() -> None:
    request = build_request({"input": "hi", "session": "s"})
    assert (request.session, request.is_stateful) == ("s", True)
    assert build_request({"input": "hi", "stateful": False}).is_stateful is False
    assert build_request({"input": "hi", "stateful": None}).is_stateful is True
    assert build_request({"input": "hi"}).session is None


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"input": "hi", "session": ""}, "session must be"),
        ({"input": "hi", "session": 7}, "session must be"),
        ({"prompt": 7}, "prompt must be"),
        ({"input": 7}, "input must be a list"),
    ],
)
def test_the_wrong_kind_of_value_is_refused(params: dict[str, Any], message: str) -> None:
    with pytest.raises(BadCall, match=message):
        build_request(params)


def test_nothing_the_caller_holds_is_changed() -> None:
    params: dict[str, Any] = {
        "messages": CHAT,
        "tools": [{"type": "function", "function": {"name": "find"}}],
        "prompt": {"id": "p"},
    }
    before = repr(params)
    build_request(params).body["prompt"]["id"] = "other"
    assert repr(params) == before


class Word(str):
    """A text of another library."""


class Count:
    """A whole number of another library."""

    def __index__(self) -> int:
        return 5


class Ratio:
    """A number of another library."""

    def __init__(self, value: float) -> None:
        self.value = value

    def __float__(self) -> float:
        return self.value


class bool_(Ratio):  # noqa: N801 - the name that numpy gives it
    """A truth of another library, which also is a float."""

    def __bool__(self) -> bool:
        return self.value > 0


class Verbosity(Enum):
    LOW = "low"


@dataclass
class Place:
    city: str
    weight: Decimal


class Opaque:
    """What no library knows to write."""


class Broken:
    """A number that cannot tell itself."""

    def __float__(self) -> float:
        raise ValueError("no")


class Vector:
    """More than one number."""

    def __len__(self) -> int:
        return 1

    def __float__(self) -> float:
        return 1.0


@pytest.mark.parametrize(
    ("given", "plain"),
    [
        (MappingProxyType({"a": MappingProxyType({"b": 1})}), {"a": {"b": 1}}),
        ({"a": (1, (2,))}, {"a": [1, [2]]}),
        (deque([1]), [1]),
        (range(2), [0, 1]),
        ({1: "a", Word("b"): None}, {"1": "a", "b": None}),
        (Word("w\u00e4"), "w\u00e4"),
        (Verbosity.LOW, "low"),
        (Count(), 5),
        (Ratio(0.5), 0.5),
        (bool_(1.0), True),
        (Decimal("0.5"), 0.5),
        (Fraction(1, 4), 0.25),
        (10**30, 10**30),
        (True, True),
        (date(2026, 1, 2), "2026-01-02"),
        (Place("Rome", Decimal("0.5")), {"city": "Rome", "weight": 0.5}),
    ],
)
def test_what_looks_like_json_becomes_it(given: Any, plain: Any) -> None:
    made = plain_json(given, "metadata")
    assert made == plain
    assert type(made) is type(plain)
    assert build_request({"input": "hi", "metadata": {"x": given}}).body["metadata"] == {"x": plain}
    assert msgspec.json.decode(msgspec.json.encode(made)) == plain


def cycle() -> dict[str, Any]:
    made: dict[str, Any] = {}
    made["self"] = made
    return made


@pytest.mark.parametrize(
    ("params", "where", "why"),
    [
        ({"input": "x\ud83d"}, "input", "it has half a surrogate pair at 1"),
        ({"prompt": "\ude00"}, "prompt", "it has half a surrogate pair at 0"),
        (
            {
                "messages": [
                    CHAT[0],
                    {"role": "user", "content": [{"type": "text", "text": "\ud83d"}]},
                ]
            },
            "messages[1].content[0].text",
            "it has half a surrogate pair",
        ),
        ({"metadata": {"a\ud83d": "b"}}, "metadata['a\\ud83d']", "it has half a surrogate pair"),
        ({"metadata": {"a b": {1: float("nan")}}}, "metadata['a b']['1']", "there is no nan"),
        ({"temperature": float("inf")}, "temperature", "there is no inf"),
        ({"temperature": Ratio(float("-inf"))}, "temperature", "there is no -inf"),
        ({"temperature": Decimal("NaN")}, "temperature", "there is no nan"),
        ({"metadata": {(1, 2): "x"}}, "metadata['(1, 2)']", "a key is a string, not of type tuple"),
        ({"metadata": {True: "x"}}, "metadata['True']", "a key is a string, not of type bool"),
        ({"metadata": {"a": Opaque()}}, "metadata.a", "it is of type Opaque"),
        ({"temperature": Broken()}, "temperature", "it is of type Broken"),
        ({"temperature": Vector()}, "temperature", "it is of type Vector"),
        ({"temperature": int}, "temperature", "it is of type type"),
        (
            {"tools": [lambda: 0]},
            "tools[0]",
            "it is a function; antiphon.client.function_tool makes a tool of it",
        ),
        ({"tools": [{"type": "x", "y": Opaque()}]}, "tools[0].y", "it is of type Opaque"),
        ({"extra_body": {"a": b"x"}}, "extra_body.a", "it is of type bytes; give text"),
        ({"input": b"hi"}, "input", "it is of type bytes; give text"),
        ({"messages": (message for message in CHAT)}, "messages", "it is of type generator; give"),
        ({"tools": iter([])}, "tools", "it is of type list_iterator; give"),
        ({"metadata": cycle()}, "metadata", "it is nested too deeply, or in itself"),
    ],
)
def test_what_json_cannot_hold_is_refused_by_its_place(
    params: dict[str, Any], where: str, why: str
) -> None:
    if not params.keys() & {"input", "messages", "prompt"}:
        params = {"input": "hi", **params}
    with pytest.raises(BadCall) as refusal:
        build_request(params)
    assert refusal.value.message.startswith(f"{where} cannot be written as JSON: {why}")
    assert refusal.value.param == where


def test_messages_may_be_of_any_kind_of_mapping_and_list() -> None:
    def proxies() -> Iterator[Any]:
        for message in CHAT[:2]:
            yield MappingProxyType(message)

    assert build_request({"messages": tuple(proxies())}).body["input"] == [SYSTEM, HI]
    assert build_request({"input": (MappingProxyType(HI),)}).items == [HI]


def test_a_body_is_a_copy_all_the_way_down() -> None:
    item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]}
    request = build_request({"input": [item]})
    item["content"][0]["text"] = "changed"  # type: ignore[index] # a dict of any values
    assert request.items == [HI] == request.body["input"]
