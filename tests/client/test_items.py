"""Typed items: what each holds, and what a call's arguments become."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from antiphon.client import errors, typed_item, typed_items
from antiphon.client.items import (
    CallOutputItem,
    CustomCallItem,
    FunctionCallItem,
    MessageItem,
    OtherItem,
    ReasoningItem,
)
from antiphon.protocol.response import Response


def call(arguments: str) -> FunctionCallItem:
    return FunctionCallItem(
        {
            "type": "function_call",
            "id": "fc_1",
            "call_id": "call_1",
            "name": "weather",
            "arguments": arguments,
            "status": "completed",
        }
    )


def test_the_output_of_a_response_is_read_by_type() -> None:
    thought = {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [{"type": "summary_text", "text": "s"}],
    }
    message = {
        "type": "message",
        "id": "msg_1",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": "Hel"}, {"type": "output_text", "text": "lo"}],
    }
    search = {"type": "web_search_call", "id": "ws_1", "status": "completed"}
    response = Response(id="resp_1", output=[thought, message, call("{}").fields, search])

    items = typed_items(response)

    assert [type(item) for item in items] == [
        ReasoningItem,
        MessageItem,
        FunctionCallItem,
        OtherItem,
    ]
    reasoning, said, called, other = items
    assert isinstance(reasoning, ReasoningItem)
    assert isinstance(said, MessageItem)
    assert isinstance(called, FunctionCallItem)
    assert (reasoning.text, reasoning.summary, reasoning.id) == ("s", "s", "rs_1")
    assert (said.text, said.role, said.status, said.id) == (
        "Hello",
        "assistant",
        "completed",
        "msg_1",
    )
    assert (called.name, called.call_id, called.id) == ("weather", "call_1", "fc_1")
    assert (other.type, other.fields) == ("web_search_call", search)


def test_open_reasoning_comes_before_its_summary() -> None:
    content = [{"type": "reasoning_text", "text": "long"}]
    item = typed_item({"type": "reasoning", "summary": [], "content": content})
    assert isinstance(item, ReasoningItem)
    assert (item.text, item.summary, item.id, item.status) == ("long", "", "", "")


@pytest.mark.parametrize(
    ("text", "arguments"),
    [('{"city": "Rome", "days": 2}', {"city": "Rome", "days": 2}), ("{}", {}), ("", {})],
)
def test_the_arguments_of_a_call_are_parsed(text: str, arguments: dict[str, Any]) -> None:
    assert call(text).arguments == arguments
    assert call(text).arguments_json == text


@pytest.mark.parametrize("text", ['{"city":', "[1]", "Rome", '"\ud800"'])
def test_arguments_that_are_no_object_are_an_error_when_they_are_asked_for(text: str) -> None:
    item = call(text)
    with pytest.raises(errors.InvalidArguments, match="the arguments"):
        _ = item.arguments
    with pytest.raises(ValueError, match="the arguments"):
        item.arguments_as(dict)


@dataclasses.dataclass
class Question:
    city: str
    days: int = 1


def test_arguments_are_read_as_a_type() -> None:
    assert call('{"city": "Rome"}').arguments_as(Question) == Question("Rome", 1)
    assert call('{"city": "Rome", "days": 2.0}').arguments_as(Question) == Question("Rome", 2)
    with pytest.raises(errors.InvalidArguments, match=r"Expected int, got str - at \$.days"):
        call('{"city": "Rome", "days": "two"}').arguments_as(Question)


def test_a_call_makes_the_item_that_answers_it() -> None:
    assert call("{}").output("sun") == {
        "type": "function_call_output",
        "call_id": "call_1",
        "output": "sun",
    }
    assert call("{}").output({"degrees": 18})["output"] == '{"degrees":18}'
    with pytest.raises(errors.BadCall, match="what weather returned"):
        call("{}").output(object())


def test_custom_calls_and_outputs_are_read() -> None:
    custom = typed_item({"type": "custom_tool_call", "call_id": "c", "name": "sql", "input": "x"})
    output = typed_item(
        {
            "type": "function_call_output",
            "call_id": "c",
            "output": [{"type": "input_text", "text": "1"}],
        }
    )
    assert isinstance(custom, CustomCallItem)
    assert isinstance(output, CallOutputItem)
    assert (custom.input, custom.output("y")["type"]) == ("x", "custom_tool_call_output")
    assert (output.call_id, output.text) == ("c", "1")


def test_a_message_without_a_type_is_a_message() -> None:
    item = typed_item({"role": "user", "content": "hello"})
    assert isinstance(item, MessageItem)
    assert (item.text, item.type, item.role) == ("hello", "message", "user")
